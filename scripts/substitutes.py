# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows which words fit a place of a text: `hf-elmo substitutes`."""

import argparse
import json
import math
from pathlib import Path

from hf_elmo.cli import Command
from hf_elmo.scoring import DIRECTIONS
from hf_elmo.substitutes import Place, Substitute, Substitutes
from hf_elmo.vocabulary import check_output

from .arguments import add_report_arguments, command_line
from .score import add_model_arguments, as_text, load_model


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("text", metavar="TEXT", help="a sentence")
    parser.add_argument(
        "--word",
        nargs="+",
        metavar="N|WORD",
        help="whose place it is: positions, from 1, or words that are there once (default: every word)",
    )
    parser.add_argument("--top-k", type=int, default=10, metavar="N", help="show so many words (default: %(default)s)")
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_output(arguments.json, arguments.overwrite)
    places: list[Place] | None = None
    if arguments.word is not None:
        places = [int(word) if word.isascii() and word.isdigit() else word for word in arguments.word]
    model, tokenizer = load_model(arguments)
    found = model.substitutes(as_text(arguments.text, arguments), tokenizer, places, top_k=arguments.top_k)
    if not found:
        raise ValueError("There are no words in the text: nothing can be substituted.")
    print("\n\n".join(map(table, found)))
    if arguments.json is not None:
        record = {
            "command": command_line("hf-elmo"),
            "model": Path(arguments.model).name,
            "text": arguments.text,
            "places": [place.to_dict() for place in found],
        }
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(found: Substitutes) -> str:
    """The words for a place side by side: by each direction with the probability, and combined with its logarithm."""
    columns = []
    for direction in DIRECTIONS:
        cells = [(substitute.word, _figure(substitute, direction)) for substitute in getattr(found, direction)]
        head = (direction, "mean log p" if direction == "combined" else "p")
        width, figures = (max(len(row[side]) for row in [head, *cells]) for side in (0, 1))
        columns.append([f"{word:<{width}}  {figure:>{figures}}" for word, figure in [head, *cells]])
    places = [f"{rank:>4}" for rank in ["", *range(1, len(columns[0]))]]
    lines = ["   ".join(cells).rstrip() for cells in zip(places, *columns, strict=True)]
    return "\n".join([_headline(found), *lines])


def _figure(substitute: Substitute, direction: str) -> str:
    score = getattr(substitute, direction)
    return f"{score:.3f}" if direction == "combined" else f"{math.exp(score):.2%}"


def _headline(found: Substitutes) -> str:
    own = f"{found.word} (position {found.position})"
    if found.ranks is None:
        return f"{own}: not in the vocabulary"
    ranks = (
        f"{direction} {found.ranks[direction]:,} ({_figure(found.scores, direction)})" for direction in DIRECTIONS
    )
    return f"{own}: rank {', '.join(ranks)}"


SUBSTITUTES = Command(
    description="Shows the words that a language model expects at a place of a text: by the words before it "
    "(forward), by those after it (backward), and by both (combined: the mean of the two log-probabilities, in nats). "
    "The word that stands there is not read; it is shown with its own rank.",
    examples="""  hf-elmo substitutes my-elmo "The cat sat on the mat." --word mat
  hf-elmo substitutes my-elmo "The cat sat on the mat." --word 2 5 --top-k 20 --json substitutes.json""",
    add_arguments=_arguments,
    run=_run,
)
