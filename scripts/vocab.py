# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes the word vocabulary for pretraining from text: `hf-elmo vocab`."""

import argparse
from pathlib import Path

from hf_elmo.cli import Command
from hf_elmo.messages import no_bars
from hf_elmo.vocabulary import build_vocabulary, check_output, count_words

from .arguments import add_errors_argument


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="+",
        metavar="TEXT",
        help="files, folders or patterns; a sentence a line, words between spaces; .gz, .xz and .zst are decompressed",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="the vocabulary to write")
    parser.add_argument(
        "--min-count", type=int, default=3, metavar="N", help="leave out rarer words (default: %(default)s)"
    )
    parser.add_argument("--max-words", type=int, metavar="N", help="keep at most so many words (default: all)")
    parser.add_argument("--processes", type=int, metavar="N", help="that count (default: one for each processor)")
    add_errors_argument(parser)
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write the counts of all words there, as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _run(arguments: argparse.Namespace) -> None:
    outputs = [path for path in (arguments.output, arguments.counts) if path is not None]
    for path in outputs:
        check_output(path, arguments.overwrite)
    if arguments.min_count < 1:
        raise ValueError(f"--min-count {arguments.min_count} is not possible: it must be 1 or more.")
    if arguments.max_words is not None and arguments.max_words < 1:
        raise ValueError(f"--max-words {arguments.max_words} is not possible: it must be 1 or more.")
    with no_bars(arguments.quiet):
        counts = count_words(arguments.text, processes=arguments.processes, errors=arguments.errors)
    vocabulary = build_vocabulary(counts, min_count=arguments.min_count, max_words=arguments.max_words)
    vocabulary.save(arguments.output, overwrite=arguments.overwrite)
    if arguments.counts is not None:
        vocabulary.save_counts(arguments.counts, overwrite=arguments.overwrite)
    print(f"{vocabulary}\nvocabulary: {arguments.output}")


VOCAB = Command(
    description="Makes a word vocabulary from text, in bilm-tf's order: <S>, </S>, <UNK>, then words by falling "
    "count. Words that occur equally often stand in the order of their code points.",
    examples="""  hf-elmo vocab text/*.txt --output vocab.txt
  hf-elmo vocab text --output vocab.txt --min-count 3 --max-words 800000 --processes 8 --counts counts.json""",
    add_arguments=_arguments,
    run=_run,
)
