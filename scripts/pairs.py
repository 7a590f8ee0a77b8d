# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how often a language model prefers the right one of two sentences: `hf-elmo pairs`."""

import argparse
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from transformers.utils import logging

from hf_elmo.cli import Command
from hf_elmo.minimal_pairs import MinimalPair, PairCounts, PairResults, ScoredPair, read_pairs, score_pairs
from hf_elmo.scoring import DIRECTIONS, ScoreTotals
from hf_elmo.text_files import find_files
from hf_elmo.vocabulary import check_output

from .arguments import add_report_arguments, command_line
from .score import add_batch_argument, add_model_arguments, check_finite, load_model, open_output, write_row

COLUMNS = [
    "pair",
    *(f"{direction}_verdict" for direction in DIRECTIONS),
    *(f"{direction}_{side}_nats" for direction in DIRECTIONS for side in ("good", "bad")),
    "unknown_words",
    "good",
    "bad",
]


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "pairs",
        nargs="+",
        metavar="FILE",
        help="files, folders or patterns; a pair a line: the good sentence, a tab, the bad one; or JSON lines as of "
        "BLiMP, with sentence_good and sentence_bad",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a table with the scores of all pairs there")
    add_batch_argument(parser)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    for path in filter(None, (arguments.json, arguments.output)):
        check_output(path, arguments.overwrite)
    files = [path for item in arguments.pairs for path in find_files(item)]
    pairs = [pair for file in files for pair in read_pairs(file)]  # all, so that a bad line is found at once
    if not pairs:
        raise ValueError("There are no pairs in the files: nothing can be compared.")
    results = _score(pairs, arguments)
    print(f"model: {arguments.model}\n{summary(results)}")
    if arguments.json is not None:
        record: dict[str, Any] = {
            "command": command_line("hf-elmo"),
            "model": Path(arguments.model).name,
            **results.to_dict(),
        }
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _score(pairs: list[MinimalPair], arguments: argparse.Namespace) -> PairResults:
    model, tokenizer = load_model(arguments)
    results = PairResults()
    scored_pairs = score_pairs(
        model, tokenizer, pairs, split_words=arguments.split_words, batch_tokens=arguments.batch_tokens
    )
    output: Any = nullcontext() if arguments.output is None else open_output(arguments.output)
    with output as file, logging.tqdm(desc="pairs", total=len(pairs), disable=arguments.quiet, delay=1) as bar:
        if file is not None:
            write_row(file, COLUMNS)
        for number, scored in enumerate(scored_pairs, start=1):
            check_finite(ScoreTotals.of(scored.good).plus(ScoreTotals.of(scored.bad)), arguments.model)
            results.add(scored)
            if file is not None:
                write_row(file, list(_row(number, scored)))
            bar.update(1)
    return results


def _row(number: int, scored: ScoredPair) -> Iterator[Any]:
    yield number
    yield from map(scored.verdict, DIRECTIONS)
    yield from (score.total(direction) for direction in DIRECTIONS for score in (scored.good, scored.bad))
    yield scored.good.unknown_words + scored.bad.unknown_words
    yield from (scored.pair.good, scored.pair.bad)


def summary(results: PairResults) -> str:
    """The accuracies as a table: all pairs, those without unknown words, and the phenomena."""
    rows = [("all pairs", results.all)]
    if results.all_words_known.pairs < results.all.pairs:
        rows.append(("all words known", results.all_words_known))
    groups = results.groups.get("linguistics_term") or results.groups.get("UID") or {}
    rows += sorted(groups.items())
    width = max(len(name) for name, _ in rows)
    heads = "".join(f"{direction:>10}" for direction in DIRECTIONS)
    lines = [f"{'accuracy':<{width}}{'pairs':>9}{heads}", *(_line(name, counts, width) for name, counts in rows)]
    ties = ", ".join(f"{direction} {results.all.verdicts[direction]['tie']:,}" for direction in DIRECTIONS)
    unknown = results.all.pairs_with_unknown_words
    return "\n".join(
        [
            *lines,
            f"ties, which are not right: {ties}",
            f"{unknown:,} of {results.all.pairs:,} pairs have words that are not in the vocabulary",
        ]
    )


def _line(name: str, counts: PairCounts, width: int) -> str:
    shares = "".join(
        f"{counts.accuracy(direction):>10.2%}" if counts.pairs else f"{'-':>10}" for direction in DIRECTIONS
    )
    return f"{name:<{width}}{counts.pairs:>9,}{shares}"


PAIRS = Command(
    description="Measures how often a language model gives the good one of two sentences the higher log-probability: "
    "forward, backward, and combined, the mean of the two. The log-probability of a sentence is that of all its words "
    "and of the boundary that the direction predicts. Equal ones are ties, and not right. Of BLiMP's files, the "
    "accuracy of each phenomenon is shown; the JSON report has those of fields and of kinds of sentences (UID), too.",
    examples="""  hf-elmo pairs my-elmo pairs.tsv
  hf-elmo pairs my-elmo blimp/data/*.jsonl --json blimp.json --output blimp-scores.tsv""",
    add_arguments=_arguments,
    run=_run,
)
