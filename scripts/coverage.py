# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts how much of a text a model knows: `hf-elmo coverage`."""

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging

from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.text_files import ErrorPolicy, check_error_policy, cut_into_parts, find_files, read_blocks
from hf_elmo.tokenization_elmo import Coverage, ElmoTokenizer
from hf_elmo.vocabulary import check_output

from .arguments import add_errors_argument, add_report_arguments

# Shares from which on a text is none for the model. Text like that of the training has far less than a hundredth of
# unknown characters; of text in another script only digits, punctuation and Latin names are known.
UNKNOWN_SCRIPT = 0.10
UNKNOWN_LANGUAGE = 0.50

BATCH = 1_000  # sentences
BLOCK = 2**22  # bytes


@dataclass(frozen=True)
class CoverageReport:
    """How much of a text a model knows.

    Args:
        coverage: The counts.
        longest_word: Characters of a word that the model reads.
        unit: What it counts them in: `"characters"` or `"bytes"`.
        sentences: Lines of the text that are not empty.
        undecodable: Lines that are not UTF-8.
    """

    coverage: Coverage
    longest_word: int
    unit: str
    sentences: int
    undecodable: int

    def warnings(self) -> list[str]:
        """What a user should know before using the model on this text."""
        coverage, found = self.coverage, []
        characters, words = coverage.unknown_character_share, coverage.unknown_word_share
        if characters is not None and characters >= UNKNOWN_SCRIPT:
            found.append(
                f"this text's script is unknown to the model: it does not know {characters:.1%} of the characters "
                f"({UNKNOWN_SCRIPT:.0%} or more mean that), so its vectors say little"
            )
        elif words is not None and words >= UNKNOWN_LANGUAGE:
            found.append(
                f"{words:.1%} of the words are not in the vocabulary ({UNKNOWN_LANGUAGE:.0%} or more are many): is "
                "the text in another language, or is it split into words in another way?"
            )
        if self.undecodable:
            found.append(f"{self.undecodable:,} lines are not UTF-8: is the text in another encoding?")
        return found

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold."""
        coverage = self.coverage
        return {
            "sentences": self.sentences,
            **asdict(coverage),
            "unknown_character_share": coverage.unknown_character_share,
            "unknown_word_share": coverage.unknown_word_share,
            "longest_word": self.longest_word,
            "unit": self.unit,
            "undecodable_lines": self.undecodable,
            "warnings": self.warnings(),
        }

    def __str__(self) -> str:
        coverage = self.coverage
        return "\n".join(
            [
                f"text: {self.sentences:,} sentences, {coverage.words:,} words, {coverage.characters:,} characters",
                f"cut words: {_share(coverage.cut_words, coverage.words)} have more than {self.longest_word} "
                f"{self.unit}, and the model does not read the rest",
                _line("unknown characters", coverage.unknown_characters, coverage.characters),
                _line("unknown words", coverage.unknown_words, coverage.words),
            ]
        )


def measure_coverage(
    tokenizer: ElmoTokenizer,
    text: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    split_words: bool = False,
    errors: ErrorPolicy = "replace",
    show_progress: bool = True,
) -> CoverageReport:
    """Counts the words of files that the tokenizer cuts, and the words and characters that it does not know.

    Args:
        tokenizer: The tokenizer of the model.
        text: Files, folders or patterns; a sentence a line.
        split_words: Whether words are what stands between spaces; otherwise the tokenizer finds them in raw text.
        errors: What is done with lines that are not UTF-8: `"replace"`, `"skip"` or `"stop"`.
        show_progress: Whether to show a bar.
    """
    check_error_policy(errors)
    total, undecodable, sentences = tokenizer.coverage([], is_split_into_words=split_words), 0, 0
    files = find_files(text)
    with logging.tqdm(desc="coverage", unit=" words", unit_scale=True, disable=not show_progress) as bar:
        for batch, bad in _batches(files, errors):
            undecodable += bad
            sentences += len(batch)
            found = tokenizer.coverage([line.split() if split_words else line for line in batch], split_words)
            total += found
            bar.update(found.words)
    if not total.words:
        raise ValueError("There are no words in the text: nothing can be said about it.")
    return CoverageReport(
        coverage=total,
        longest_word=tokenizer.max_characters_per_token - 2,
        unit="bytes" if tokenizer.characters is None else "characters",
        sentences=sentences,
        undecodable=undecodable,
    )


def _batches(files: list[Path], errors: ErrorPolicy) -> Iterator[tuple[list[str], int]]:
    """The lines of files that are not blank, some at a time, and how many of the lines read were not UTF-8."""
    batch: list[str] = []
    undecodable = 0
    for part in cut_into_parts(files, BLOCK):
        for block in read_blocks(part, BLOCK):
            for raw in block.split(b"\n"):
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    if errors == "stop":
                        raise ValueError(
                            f"{part.path} has a line that is not UTF-8: {raw[:60]!r} ({error})"
                        ) from error
                    undecodable += 1
                    line = raw.decode("utf-8", errors="replace") if errors == "replace" else ""
                if line.strip():
                    batch.append(line.strip())
                if len(batch) == BATCH:
                    yield batch, undecodable
                    batch, undecodable = [], 0
    yield batch, undecodable


def _line(name: str, count: int | None, total: int) -> str:
    if count is None:
        return (
            f"{name}: not known, as the model reads bytes and came without a vocabulary; it has a vector for all text"
        )
    return f"{name}: {_share(count, total)}"


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({count / max(total, 1):.3%})"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "text",
        nargs="+",
        metavar="FILE",
        help="files, folders or patterns; a sentence a line; .gz, .xz and .zst are decompressed",
    )
    parser.add_argument(
        "--split-words",
        action="store_true",
        help="the text has spaces between all words; otherwise the tokenizer finds the words",
    )
    add_errors_argument(parser)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_output(arguments.json, arguments.overwrite)
    tokenizer = _load_tokenizer(model_folder(arguments.model))
    report = measure_coverage(
        tokenizer,
        arguments.text,
        split_words=arguments.split_words,
        errors=arguments.errors,
        show_progress=not arguments.quiet,
    )
    print(f"model: {arguments.model}\n{report}")
    for warning in report.warnings():
        print(f"warning: {warning}")
    if arguments.json is not None:
        record = {"model": arguments.model, "text": arguments.text, **report.to_dict()}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _load_tokenizer(folder: Path) -> ElmoTokenizer:
    load_config(folder)  # says what is wrong with a folder of something else
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(f"{folder} has no tokenizer.json. Get the whole folder of the model.")
    return ElmoTokenizer.from_pretrained(folder)


COVERAGE = Command(
    description="Counts the words of a text that are longer than a model reads, and the characters and words that it "
    f"does not know. From {UNKNOWN_SCRIPT:.0%} of unknown characters on, it warns that the text's script is unknown "
    f"to the model; from {UNKNOWN_LANGUAGE:.0%} of unknown words on, that the text may be in another language. A "
    "model that reads bytes knows a character if a word of its vocabulary has it; without a vocabulary nothing can be "
    "said.",
    examples="""  hf-elmo coverage elmo-manylangs-ko news.txt
  hf-elmo coverage elmo-manylangs-ko corpus/*.txt.gz --split-words --json coverage.json""",
    add_arguments=_arguments,
    run=_run,
)
