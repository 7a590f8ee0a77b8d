# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a training log: the loss, the held-out perplexity, the learning rate and the gradient's norm over steps.

They are drawn with matplotlib's objects, so neither a display nor anything that a caller draws is touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS, PERPLEXITY, STEP_SIZE = "training_loss.png", "heldout_perplexity.png", "learning_rate.png"
LOSS_NAMES = {
    "full": "training loss (full softmax)",
    "sampled": "sampled training loss (not a likelihood)",
    "adaptive": "training loss (adaptive softmax)",
}

# Blue, orange and black can be told apart by everybody, and in grey.
COLOURS = {"forward": "#0072b2", "backward": "#d55e00", "both": "#000000"}
SIZE, DOTS_PER_INCH = (8.0, 4.5), 160
SMOOTHED_SHARE = 0.02  # of the rows that go into one point of the thick curve
LARGEST = 1e30  # a run with such figures has failed, and no picture could show the others beside them
MARKED_POINTS = 60  # more are drawn without marks


def plot_curves(
    rows: Iterable[Mapping[str, Any]],
    folder: str | os.PathLike[str],
    softmax: str,
    unigram_perplexity: float | None = None,
) -> list[Path]:
    """Draws the curves of a training run as PNG files; the same rows give the same bytes.

    Figures that are missing, not finite or beyond 1e30 are left out, and so are pictures that would be empty.

    Args:
        rows: What `TrainingLog.read` returns.
        folder: Where to write the pictures.
        softmax: What the loss was computed with: `"full"`, `"sampled"` or `"adaptive"`.
        unigram_perplexity: What guessing by the frequency of words alone reaches on the held-out text, for comparison.

    Returns:
        The files: the loss, the held-out perplexity, the learning rate with the norm of the gradient.
    """
    if softmax not in LOSS_NAMES:
        raise ValueError(f"softmax={softmax!r} is not possible; choose one of {', '.join(LOSS_NAMES)}.")
    _check_matplotlib()
    rows = list(rows)
    training = [row for row in rows if "heldout" not in row]
    heldout = [{"step": row["step"], **row["heldout"]} for row in rows if "heldout" in row]
    figures = {
        LOSS: _loss(training, softmax),
        PERPLEXITY: _perplexity(heldout, softmax, unigram_perplexity),
        STEP_SIZE: _learning_rate(training),
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            # The library's version would change the bytes.
            figure.savefig(folder / name, dpi=DOTS_PER_INCH, metadata={"Software": None})
            paths.append(folder / name)
    return paths


# --- The pictures ----------------------------------------------------------------------------------------------------


def _loss(rows: Sequence[Mapping[str, Any]], softmax: str) -> Figure | None:
    curves = {name: _curve(rows, f"{name}_loss") for name in ("forward", "backward")}
    if not any(len(steps) for steps, _ in curves.values()):
        return None
    figure, (axes,) = _figure(1, rows)
    for name, (steps, values) in curves.items():
        _draw_noisy(axes, steps, values, name, COLOURS[name])
    axes.set_title(LOSS_NAMES[softmax].capitalize())
    axes.set_ylabel("mean loss of a predicted word")
    axes.legend(loc="upper right")  # it falls; matplotlib would look at every point for a place
    return figure


def _perplexity(rows: Sequence[Mapping[str, Any]], softmax: str, unigram_perplexity: float | None) -> Figure | None:
    keys = {"forward": "forward_perplexity", "backward": "backward_perplexity", "both": "perplexity"}
    curves = {name: _curve(rows, key, positive=True) for name, key in keys.items()}
    if not any(len(steps) for steps, _ in curves.values()):
        return None
    figure, (axes,) = _figure(1, rows)
    for name, (steps, values) in curves.items():
        marker = "o" if len(steps) <= MARKED_POINTS else ""
        label = "both (geometric mean)" if name == "both" else name
        axes.plot(steps, values, color=COLOURS[name], label=label, marker=marker, markersize=3.5, linewidth=1.6)
    shown = [value for _, values in curves.values() for value in values]
    if unigram_perplexity is not None and 0 < unigram_perplexity < LARGEST:
        label = f"word frequencies alone: {unigram_perplexity:,.0f}"
        axes.axhline(unigram_perplexity, color="#666666", linestyle="--", linewidth=1.2, label=label)
        shown.append(unigram_perplexity)
    kind = "adaptive softmax over all words" if softmax == "adaptive" else "full softmax"
    axes.set_title(f"Held-out perplexity ({kind})")
    axes.set_ylabel("perplexity")
    _make_logarithmic(axes, shown)
    axes.legend()
    return figure


def _learning_rate(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    rates, norms = _curve(rows, "learning_rate"), _curve(rows, "gradient_norm", positive=True)
    drawn = [len(rates[0]) > 0, len(norms[0]) > 0]
    if not any(drawn):
        return None
    figure, axes = _figure(sum(drawn), rows)
    titles = [name for name, there in zip(("Learning rate", "norm of the gradient"), drawn, strict=True) if there]
    axes[0].set_title(" and ".join(titles).capitalize())
    if drawn[0]:
        axes[0].plot(*rates, color=COLOURS["both"], linewidth=1.6, marker="o" if len(rates[0]) == 1 else "")
        axes[0].set_ylabel("learning rate")
        axes[0].set_ylim(bottom=0)
    if drawn[1]:
        _draw_noisy(axes[-1], *norms, "norm", COLOURS["forward"])
        axes[-1].set_ylabel("norm of the gradient")
        _make_logarithmic(axes[-1], norms[1])
        axes[-1].legend(loc="upper right")
    return figure


# --- Their parts -----------------------------------------------------------------------------------------------------


def _check_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError('The curves are drawn with matplotlib: pip install "hf-elmo[train]"') from error


def _figure(count: int, rows: Sequence[Mapping[str, Any]]) -> tuple[Figure, list[Axes]]:
    """A figure of one or more plots, one below the other, over the steps of the rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    plots = list(figure.subplots(count, sharex=True, squeeze=False)[:, 0])
    for axes in plots:
        axes.grid(True, color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    first, last = min(row["step"] for row in rows), max(row["step"] for row in rows)
    margin = max(0.02 * (last - first), 1)
    plots[-1].set_xlim(first - margin, last + margin)
    plots[-1].set_xlabel("step")
    plots[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9, min_n_ticks=1))
    plots[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure, plots


def _curve(rows: Sequence[Mapping[str, Any]], key: str, positive: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows that have a value that can be drawn."""
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    steps, values = np.array(points, dtype=float).reshape(-1, 2).T
    chosen = np.abs(values) < LARGEST  # which NaN is not
    if positive:
        chosen &= values > 1 / LARGEST
    return steps[chosen], values[chosen]


def _draw_noisy(axes: Axes, steps: np.ndarray, values: np.ndarray, label: str, colour: str) -> None:
    """A thin line of all values, and a thick one of their running mean if there are enough."""
    window = round(SMOOTHED_SHARE * len(values))
    if window < 2:
        axes.plot(steps, values, color=colour, linewidth=1.6, label=label, marker="o" if len(values) == 1 else "")
        return
    axes.plot(steps, values, color=colour, linewidth=0.6, alpha=0.3)
    smooth_steps, smooth_values = (sliding_window_view(side, window).mean(axis=1) for side in (steps, values))
    axes.plot(smooth_steps, smooth_values, color=colour, linewidth=1.8, label=f"{label}, mean of {window} rows")


def _make_logarithmic(axes: Axes, values: Sequence[float] | np.ndarray) -> None:
    """A logarithmic axis with plain numbers, and enough of them in a narrow range, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_yscale("log")
    spread = max(values) / min(values)
    if spread < 3:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    else:
        digits = (1, 1.5, 2, 3, 5, 7) if spread < 30 else (1, 2, 5) if spread < 1000 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=digits, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
    )


__all__ = ["plot_curves"]
