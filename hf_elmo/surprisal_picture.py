# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""A picture of the surprisal of each word of a sentence."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .pictures import COLOURS, GREY, _figure, _plain, _save, _shortened, _tidy, check_matplotlib
from .scoring import SentenceScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_WORDS = 80  # of a sentence that can be read in a picture
LABEL_LENGTH = 22
BAR = 0.38


def plot_surprisal(score: SentenceScore, path: str | os.PathLike[str]) -> Path:
    """Draws the surprisal of each word, in bits, from the left, from the right and combined, as a PNG file.

    The boundaries are there, too, each with the one direction that predicts it. Words that are not in the vocabulary
    have a star, as their figure is that of `<UNK>`.

    Args:
        score: Of the sentence.
        path: Of the file.
    """
    check_matplotlib()
    if len(score.words) > MOST_WORDS:
        raise ValueError(
            f"The sentence has {len(score.words)} words, but a picture has room for {MOST_WORDS}: draw a part of it."
        )
    rows = score.rows()
    figure = _figure((max(6.5, 1.5 + 0.42 * len(rows)), 4.2))
    axes = figure.subplots()
    for side, colour, direction, label in (
        (-0.5, COLOURS[0], "forward", "forward: from the words before"),
        (+0.5, COLOURS[1], "backward", "backward: from the words after"),
    ):
        bars = [(row["position"] + side * BAR, row[f"{direction}_surprisal_bits"]) for row in rows]
        places, heights = zip(*[(place, height) for place, height in bars if height is not None], strict=True)
        axes.bar(places, heights, width=BAR, color=colour, label=label)
    if score.words:
        axes.plot(
            range(1, len(score.words) + 1),
            score.surprisals("combined"),
            color="black",
            marker="o",
            markersize=4,
            linewidth=1,
            label="combined: mean of the two",
        )
    _label_words(axes, rows)
    axes.set_ylabel("surprisal (bits)")
    axes.set_title(_title(score), fontsize=9, loc="left")
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.8)
    _tidy(axes)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = _save(figure, path)
    if any("missing from" in str(warning.message) for warning in caught):
        warnings.warn(f"The fonts here lack characters of the sentence: {path} has boxes for them.", stacklevel=2)
    return saved


def _label_words(axes: Axes, rows: list[dict]) -> None:
    names = [_plain(_shortened(row["word"], LABEL_LENGTH)) + ("*" if row["kind"] == "unknown" else "") for row in rows]
    axes.set_xticks(range(len(rows)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    for label, row in zip(axes.get_xticklabels(), rows, strict=True):
        if row["kind"] != "word":
            label.set_color(GREY)


def _title(score: SentenceScore) -> str:
    perplexity = ", ".join(f"{name} {score.perplexity(name):,.1f}" for name in ("forward", "backward", "combined"))
    unknown = f"\n* not in the vocabulary, {score.unknown_words} of {len(score.words)} words: the figures are of <UNK>"
    return f"perplexity: {perplexity}{unknown if score.unknown_words else ''}"


__all__ = ["plot_surprisal"]
