# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Pictures of what layers know: neighbours of a word, its senses, scores of probes, weights of the layers.

They are drawn with matplotlib's objects, so neither a display nor anything that a caller draws is touched, and the
same figures give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .neighbors import Neighbors, fit, layer_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that everybody can tell apart, and shapes for print in grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
GREY = "#666666"
DOTS_PER_INCH = 160
LABEL_COLUMNS = 62  # of a context in the picture of neighbours


def check_matplotlib() -> None:
    """Raises ImportError, with what to install, if there is no matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError('Pictures are drawn with matplotlib: pip install "hf-elmo[plot]"') from error


def plot_neighbors(neighbors: Neighbors, path: str | os.PathLike[str]) -> Path:
    """Draws the nearest contexts of a word as bars, a plot for each layer."""
    check_matplotlib()
    counts = [len(found) for found in neighbors.by_layer.values()]
    figure = _figure((9.5, 1.2 + sum(0.5 + 0.27 * count for count in counts)))
    plots = figure.subplots(len(counts), squeeze=False, sharex=True, height_ratios=[count + 1 for count in counts])
    for axes, (layer, found) in zip(plots[:, 0], neighbors.by_layer.items(), strict=True):
        rows = np.arange(len(found))[::-1]
        axes.barh(rows, [neighbor.cosine for neighbor in found], color=COLOURS[0], height=0.7)
        labels = [
            neighbor.context.word if layer == 0 else _centred(*neighbor.context.sides(), neighbor.context.word)
            for neighbor in found
        ]
        axes.set_yticks(rows, [_plain(label) for label in labels], fontsize=8, family="monospace")
        axes.set_ylim(-0.6, len(found) - 0.4)
        axes.set_title(layer_name(layer), fontsize=9, loc="left")
        for row, neighbor in zip(rows, found, strict=True):
            inside = neighbor.cosine > 0.15
            axes.text(
                neighbor.cosine - 0.01 if inside else max(neighbor.cosine, 0) + 0.01,
                row,
                f"{neighbor.cosine:.2f}" + (f", {neighbor.occurrences:,} times" if neighbor.occurrences > 1 else ""),
                ha="right" if inside else "left",
                va="center",
                fontsize=7.5,
                color="white" if inside else "black",
            )
        _tidy(axes)
    lowest = min(neighbor.cosine for found in neighbors.by_layer.values() for neighbor in found)
    plots[-1, 0].set_xlim(min(lowest, 0.0), 1.02)
    plots[-1, 0].set_xlabel("cosine")
    figure.suptitle(_plain(f"Nearest to {_shortened(str(neighbors.query), 90)}"), fontsize=10)
    return _save(figure, path)


def _centred(before: str, after: str, word: str) -> str:
    """A context of a fixed number of columns, with its word in the middle."""
    side = (LABEL_COLUMNS - len(word) - 4) // 2
    return f"{fit(before, side, keep_end=True)} [{word}] {fit(after, side)}"


def plot_senses(
    vectors: Mapping[str, np.ndarray], senses: Mapping[str, Sequence[str]], path: str | os.PathLike[str]
) -> Path:
    """Draws the contexts of words as points, a row of plots for each word and a plot for each layer.

    Points are the vectors' two directions of largest spread (principal components), of each plot for itself.

    Args:
        vectors: (L + 1, contexts, D) by word.
        senses: The sense of each context by word.
        path: The PNG file to write.
    """
    check_matplotlib()
    layers = len(next(iter(vectors.values())))
    figure = _figure((3.2 * layers, 0.4 + 3.1 * len(vectors)))
    plots = figure.subplots(len(vectors), layers, squeeze=False)
    for row, (word, of_word) in zip(plots, vectors.items(), strict=True):
        for layer, axes in enumerate(row):
            _draw_senses(axes, _flat(of_word[layer]), senses[word])
            axes.set_title(f"{word}, {'layer 0 (static)' if layer == 0 else f'layer {layer}'}", fontsize=10)
        row[0].legend(fontsize=8, loc="best", frameon=True)
    figure.suptitle(
        "One word, two senses: each point is the word in a sentence (two principal components)", fontsize=11
    )
    return _save(figure, path)


def _draw_senses(axes: Axes, points: np.ndarray, senses: Sequence[str]) -> None:
    spread = float(np.abs(points).max())
    is_one_point = spread < 1e-4
    for number, sense in enumerate(dict.fromkeys(senses)):
        chosen = np.array([other == sense for other in senses])
        # Points that fall on one another are drawn as a small and a large one, so that both can be seen.
        size = (160 if number == 0 else 40) if is_one_point else 42
        axes.scatter(
            points[chosen, 0],
            points[chosen, 1],
            s=size,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            label=f"{sense} ({chosen.sum()})",
            edgecolors="white",
            linewidths=0.6,
        )
    if is_one_point:
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
        axes.text(0, -0.35, f"all {len(points)} contexts\nare one point", ha="center", va="top", fontsize=9)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color("#bbbbbb")


def _flat(vectors: np.ndarray) -> np.ndarray:
    """(contexts, 2): the two principal components of vectors (contexts, D)."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, scales, directions = np.linalg.svd(centred, full_matrices=False)
    # The sign of a direction is free: the largest number of each is made positive.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    flat = centred @ (directions * signs[:, None]).T
    return np.pad(flat, ((0, 0), (0, 2)))[:, :2] if scales.size and scales[0] > 1e-9 else np.zeros((len(vectors), 2))


def plot_layers(
    scores: Mapping[str, Sequence[tuple[float, float | None]]],
    path: str | os.PathLike[str],
    title: str,
    unit: str,
    lines: Mapping[str, float] | None = None,
) -> Path:
    """Draws the scores of layers as groups of bars, one group for each layer and one colour for each system.

    Args:
        scores: Mean and standard deviation (or `None`) of each layer, by system.
        path: The PNG file to write.
        title: What stands above.
        unit: What the scores are, beside the axis.
        lines: Scores of systems without layers, drawn as horizontal lines.
    """
    check_matplotlib()
    lines = lines or {}
    figure = _figure((8.0, 4.5))
    axes = figure.subplots()
    layers = max(map(len, scores.values()))
    width = 0.8 / len(scores)
    for number, (system, values) in enumerate(scores.items()):
        places = np.arange(len(values)) + (number - (len(scores) - 1) / 2) * width
        deviations = [deviation or 0.0 for _, deviation in values]
        means = [mean for mean, _ in values]
        axes.bar(
            places,
            means,
            0.92 * width,
            yerr=deviations if any(deviations) else None,
            capsize=3,
            color=COLOURS[number % len(COLOURS)],
            label=system,
        )
        for place, mean, deviation in zip(places, means, deviations, strict=True):
            axes.annotate(
                f"{mean:.1f}",
                (place, mean + deviation),
                (0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                bbox={
                    "facecolor": "white",
                    "edgecolor": "none",
                    "alpha": 0.9,
                    "pad": 0.8,
                },  # above a line, if one is there
            )
    styles = ("--", ":", "-.")
    for number, (name, value) in enumerate(lines.items()):
        axes.axhline(value, color=GREY, linestyle=styles[number % 3], linewidth=1.3, label=f"{name}: {value:.1f}")
    names = ["layer 0\n(without context)", *(f"layer {layer}" for layer in range(1, layers))]
    axes.set_xticks(range(layers), names)
    everything = [mean for values in scores.values() for mean, _ in values] + list(lines.values())
    lowest, highest = min(everything), max(everything)
    margin = max(highest - lowest, 1.0)
    axes.set_ylim(max(lowest - 0.3 * margin, 0), highest + 0.15 * margin)
    axes.set_ylabel(f"{unit} (axis does not begin at 0)" if axes.get_ylim()[0] > 0 else unit)
    axes.set_title(title)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, fontsize=9, frameon=False)
    _tidy(axes)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.8)
    return _save(figure, path)


def plot_layer_weights(
    weights: Mapping[str, Sequence[float]], path: str | os.PathLike[str], title: str = "Weights of the layers"
) -> Path:
    """Draws the weights that mixes give to the layers as a heat map, a row for each mix.

    Args:
        weights: Those of each mix, which sum up to 1, by its name. Mixes must have the same number of layers.
        path: The PNG file to write.
        title: What stands above.
    """
    check_matplotlib()
    counts = {name: len(row) for name, row in weights.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"One picture shows mixes of the same number of layers, but these have {counts}.")
    matrix = np.array(list(weights.values()), dtype=float)
    figure = _figure((3.6 + 1.1 * matrix.shape[1], 1.6 + 0.45 * len(matrix)))
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=max(1.0, float(matrix.max())), aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.55 else "black")
    axes.set_xticks(range(matrix.shape[1]), [f"layer {layer}" for layer in range(matrix.shape[1])])
    axes.set_yticks(range(len(matrix)), [_plain(_shortened(name, 40)) for name in weights])
    axes.set_title(title, fontsize=11)
    figure.colorbar(image, label="weight")
    return _save(figure, path)


# --- Their parts -----------------------------------------------------------------------------------------------------


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _plain(text: str) -> str:
    """The text as it is: matplotlib takes what stands between two dollars for a formula."""
    return text.replace("$", r"\$")


def _save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    # The library's version would change the bytes.
    metadata: dict[str, Any] = {"Software": None}
    figure.savefig(path, dpi=DOTS_PER_INCH, format="png", metadata=metadata)
    return Path(path)


__all__ = ["plot_layer_weights", "plot_layers", "plot_neighbors", "plot_senses"]
