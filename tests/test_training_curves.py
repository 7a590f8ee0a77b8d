"""The pictures of a training log: that they are there, say what they show, and are the same for the same rows."""

import math
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from tiny import tiny_config

from hf_elmo import training_curves
from hf_elmo.training_curves import plot_curves

ALL = ["training_loss.png", "heldout_perplexity.png", "learning_rate.png"]


def training_row(step, **changes):
    losses = {"forward_loss": 5 + 4 / step, "backward_loss": 5.1 + 4 / step}
    return {"step": step, **losses, "gradient_norm": 2.0 + step % 3, "learning_rate": 0.2, **changes}


def heldout_row(step, perplexity=200.0):
    sides = {"forward_perplexity": 1.1 * perplexity, "backward_perplexity": perplexity / 1.1}
    return {"step": step, "heldout": {**sides, "perplexity": perplexity, "words": 9, "unknown_share": 0.1}}


@pytest.fixture
def rows():
    steps = range(1, 301)
    return [row for step in steps for row in [training_row(step), *([heldout_row(step)] if step % 100 == 0 else [])]]


@pytest.fixture
def drawn(monkeypatch):
    """The figures, by the names of their files."""
    figures, save = {}, Figure.savefig

    def keep(figure, path, **options):
        figures[path.name] = figure
        return save(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_pictures_are_the_same_for_the_same_rows(rows, tmp_path):
    paths = plot_curves(rows, tmp_path / "new" / "a", "sampled", unigram_perplexity=700.0)
    assert paths == [tmp_path / "new" / "a" / name for name in ALL]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(ALL)
    for path, again in zip(paths, plot_curves(iter(rows), str(tmp_path / "b"), "sampled", 700.0), strict=True):
        assert path.read_bytes() == again.read_bytes()
        assert b"matplotlib" not in path.read_bytes()
        pixels = imread(path)
        assert pixels.shape == (720, 1280, 4)
        assert 0.01 < np.mean(pixels[..., :3].min(axis=2) < 0.9) < 0.3  # neither empty nor black
    (changed,) = plot_curves([training_row(1, forward_loss=8.0)], tmp_path / "c", "sampled")[:1]
    assert changed.read_bytes() != paths[0].read_bytes()


@pytest.mark.parametrize(
    ("softmax", "title"),
    [
        ("sampled", "Sampled training loss (not a likelihood)"),
        ("full", "Training loss (full softmax)"),
        ("adaptive", "Training loss (adaptive softmax)"),
    ],
)
def test_the_loss_is_called_what_it_is(rows, tmp_path, drawn, softmax, title):
    plot_curves(rows, tmp_path, softmax)
    (axes,) = drawn["training_loss.png"].axes
    assert axes.get_title() == title
    assert axes.get_xlabel() == "step"
    assert labels(axes) == ["forward, mean of 6 rows", "backward, mean of 6 rows"]


def test_the_thick_line_is_a_centred_mean(rows, tmp_path, drawn):
    plot_curves(rows, tmp_path, "full")
    raw, smooth = drawn["training_loss.png"].axes[0].lines[:2]
    assert raw.get_xydata().tolist() == [[step, 5 + 4 / step] for step in range(1, 301)]
    assert len(smooth.get_xydata()) == 295
    np.testing.assert_allclose(smooth.get_xydata()[10], [13.5, np.mean([5 + 4 / step for step in range(11, 17)])])


def test_the_perplexity_is_of_all_words_and_compared(rows, tmp_path, drawn):
    plot_curves(rows, tmp_path, "sampled", unigram_perplexity=1234.5)
    (axes,) = drawn["heldout_perplexity.png"].axes
    assert axes.get_title() == "Held-out perplexity (full softmax)"
    assert axes.get_yscale() == "log"
    assert labels(axes) == ["forward", "backward", "both (geometric mean)", "word frequencies alone: 1,234"]
    both = next(line for line in axes.lines if line.get_label().startswith("both"))
    assert both.get_xydata().tolist() == [[100, 200], [200, 200], [300, 200]]
    assert axes.lines[-1].get_linestyle() == "--"
    plot_curves(rows, tmp_path, "adaptive")
    (axes,) = drawn["heldout_perplexity.png"].axes
    assert axes.get_title() == "Held-out perplexity (adaptive softmax over all words)"
    assert labels(axes) == ["forward", "backward", "both (geometric mean)"]


def test_learning_rate_and_norm(rows, tmp_path, drawn):
    plot_curves(rows, tmp_path, "full")
    rate, norm = drawn["learning_rate.png"].axes
    assert (rate.get_ylabel(), norm.get_ylabel()) == ("learning rate", "norm of the gradient")
    assert rate.get_ylim()[0] == 0
    assert rate.lines[0].get_ydata().tolist() == [0.2] * 300
    plot_curves([training_row(1, gradient_norm=None), training_row(2, gradient_norm=0.0)], tmp_path, "full")
    (rate,) = drawn["learning_rate.png"].axes
    assert rate.get_title() == "Learning rate"


@pytest.mark.parametrize("perplexities", [(101.0, 100.0), (900.0, 100.0), (5000.0, 90.0), (1e7, 2.0), (7.0,)])
def test_a_logarithmic_axis_has_plain_numbers_in_any_range(tmp_path, drawn, perplexities):
    plot_curves([heldout_row(step, value) for step, value in enumerate(perplexities)], tmp_path, "full")
    (axes,) = drawn["heldout_perplexity.png"].axes
    low, high = axes.get_ylim()
    shown = [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert 3 <= len(set(shown)) == len(shown) <= 12
    assert all(float(label.replace(",", "")) > 0 for label in shown)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([], []),
        ([training_row(1)], [ALL[0], ALL[2]]),
        ([heldout_row(0)], [ALL[1]]),
        ([heldout_row(5, math.nan), heldout_row(6, math.inf), heldout_row(7, 1e300)], []),
        ([heldout_row(5, math.nan), heldout_row(6, 3.0)], [ALL[1]]),
        ([{"step": 3, "heldout": {}}, {"step": 3}], []),
        ([training_row(1, forward_loss=math.nan, backward_loss=math.inf)], [ALL[2]]),
        ([training_row(1, forward_loss=None, learning_rate=math.nan, gradient_norm=math.inf)], [ALL[0]]),
        ([training_row(step, forward_loss=-1e29, gradient_norm=1e-29) for step in range(1, 200)], [ALL[0], ALL[2]]),
    ],
)
def test_what_is_missing_or_not_finite_is_left_out(tmp_path, rows, names):
    assert [path.name for path in plot_curves(rows, tmp_path, "full", unigram_perplexity=math.inf)] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_an_unknown_softmax_is_refused(rows, tmp_path):
    with pytest.raises(ValueError, match="softmax='hierarchical' is not possible; choose one of full, sampled, adapt"):
        plot_curves(rows, tmp_path, "hierarchical")


def test_without_matplotlib_it_says_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "hf-elmo\[train\]"'):
        plot_curves(rows, tmp_path, "full")


def test_neither_pyplot_nor_its_settings_are_touched(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it now fails
    before = matplotlib.rcParams.copy()
    plot_curves(rows, tmp_path, "full")
    assert matplotlib.rcParams.copy() == before


def test_names_of_the_softmax_are_those_of_the_config():
    for softmax in training_curves.LOSS_NAMES:
        tiny_config(softmax=softmax, num_sampled=2, softmax_cutoffs=[2] if softmax == "adaptive" else None)
