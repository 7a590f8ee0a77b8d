"""Pictures of layers: they are drawn, the same for the same figures, and they show what they are given."""

import numpy as np
import pytest

from hf_elmo import pictures
from hf_elmo.neighbors import Context, Neighbor, Neighbors
from hf_elmo.pictures import plot_layer_weights, plot_layers, plot_neighbors, plot_senses


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    saved = []
    save = pictures._save

    def watched(figure, path):
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(pictures, "_save", watched)
    return saved


def texts_of(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


SCORES = {
    "model": [(80.0, 0.5), (91.2, 0.1), (90.1, 0.2)],
    "random weights": [(70.0, None), (75.0, None), (74.0, None)],
}


def test_layers(figures, tmp_path):
    path = plot_layers(SCORES, tmp_path / "layers.png", "Parts of speech", "accuracy, %", {"GloVe": 85.4})
    axes = figures[0].axes[0]
    assert [round(patch.get_height(), 1) for patch in axes.patches] == [80.0, 91.2, 90.1, 70.0, 75.0, 74.0]
    assert axes.get_legend_handles_labels()[1] == ["GloVe: 85.4", "model", "random weights"]
    low, high = axes.get_ylim()
    assert low < 70
    assert high > 91.3
    assert "91.2" in texts_of(figures[0])
    again = plot_layers(SCORES, tmp_path / "again.png", "Parts of speech", "accuracy, %", {"GloVe": 85.4})
    assert path.read_bytes() == again.read_bytes()


def test_senses(figures, tmp_path):
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(3, 6, 5))
    vectors[0] = vectors[0, :1]
    senses = ["river"] * 4 + ["money"] * 2
    plot_senses({"bank": vectors}, {"bank": senses}, tmp_path / "senses.png")
    plots = figures[0].axes
    assert [axes.get_title() for axes in plots] == ["bank, layer 0 (static)", "bank, layer 1", "bank, layer 2"]
    assert plots[0].get_legend_handles_labels()[1] == ["river (4)", "money (2)"]
    assert any("all 6 contexts" in text for text in texts_of(figures[0]))
    points = np.vstack([collection.get_offsets() for collection in plots[1].collections])
    centred = vectors[1] - vectors[1].mean(axis=0)
    largest = np.linalg.svd(centred, compute_uv=False)[:2]
    np.testing.assert_allclose(np.linalg.norm(points, axis=0), largest, rtol=1e-6)


def test_neighbours(figures, tmp_path):
    context = Context(("It", "cost", "$5", "and", "$6", "at", "the", "bank"), 7, 0)
    found = {0: [Neighbor(context, 1.0, 4)], 1: [Neighbor(context, 0.9, 1), Neighbor(context, -0.1, 1)]}
    plot_neighbors(Neighbors(context, found, False, 5, 20, 0), tmp_path / "neighbors.png")
    assert [len(axes.patches) for axes in figures[0].axes] == [1, 2]
    shown = texts_of(figures[0])
    assert "1.00, 4 times" in shown
    assert any(text.count(r"\$") == 2 and "[bank]" in text for text in shown)
    assert figures[0].axes[1].get_xlim()[0] <= -0.1


def test_layer_weights(figures, tmp_path):
    plot_layer_weights({"ner": [0.2, 0.5, 0.3], "pos": [0.1, 0.8, 0.1]}, tmp_path / "weights.png")
    assert {"0.50", "0.80", "layer 2"} <= set(texts_of(figures[0]))
    with pytest.raises(ValueError, match="mixes of the same number of layers, but these have"):
        plot_layer_weights({"a": [0.5, 0.5], "b": [1.0]}, tmp_path / "other.png")
