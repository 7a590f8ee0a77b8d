# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows how probable a language model finds each word of a text: `hf-elmo score`."""

import argparse
import json
import math
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import torch
from transformers.utils import logging

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.cli import Command
from hf_elmo.messages import no_bars
from hf_elmo.pictures import check_matplotlib
from hf_elmo.scoring import BATCH_TOKENS, DIRECTIONS, ScoreTotals, SentenceScore, Text
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.surprisal_picture import plot_surprisal
from hf_elmo.text_files import ErrorPolicy, find_files, open_text
from hf_elmo.vocabulary import check_output

from .arguments import add_errors_argument, add_report_arguments, command_line
from .perplexity import _device, load_language_model

STATES = {"zero": "every sentence from a zero state", "warm": "every sentence from the stored warm state"}
WORD_COLUMNS = (
    "position",
    "word",
    "kind",
    *(f"{direction}_log_probability_nats" for direction in DIRECTIONS),
    *(f"{direction}_surprisal_bits" for direction in DIRECTIONS),
)
SENTENCE_COLUMNS = (
    "words",
    "unknown_words",
    *(f"{direction}_log_probability_nats" for direction in DIRECTIONS),
    *(f"{direction}_surprisal_bits" for direction in DIRECTIONS),
    *(f"{direction}_perplexity" for direction in DIRECTIONS),
    "text",
)


# --- What several commands need --------------------------------------------------------------------------------------


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what commands of the language model have: its folder, the device and how text becomes words."""
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    parser.add_argument(
        "--split-words",
        action="store_true",
        help="the text has spaces between all words; otherwise the tokenizer finds the words",
    )


def add_batch_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--batch-tokens`."""
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=BATCH_TOKENS,
        metavar="N",
        help="compute so many words at a time; changes memory and speed only (default: %(default)s)",
    )


def load_model(arguments: argparse.Namespace) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """The language model that is asked for, on its device, and its tokenizer."""
    device = _device(arguments.device)
    with no_bars(arguments.quiet):
        model, tokenizer = load_language_model(model_folder(arguments.model))
    cast(torch.nn.Module, model).to(device)
    return model, tokenizer


def as_text(text: str, arguments: argparse.Namespace) -> Text:
    """The text, or its words if there are spaces between them."""
    return text.split() if arguments.split_words else text


def check_finite(totals: ScoreTotals, model: str) -> None:
    """Raises if the scores are no numbers."""
    if not math.isfinite(totals.combined):
        raise ValueError(f"The scores of {model} are not finite: its weights are damaged. Get the folder again.")


def read_sentences(files: list[str], errors: ErrorPolicy) -> Iterator[str]:
    """The lines of files that are not blank."""
    for path in (path for item in files for path in find_files(item)):  # in the order in which they are given
        with open_text(path) as file:
            for number, content in enumerate(file, start=1):
                try:
                    line = content.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    if errors == "stop":
                        raise ValueError(f"{path}: line {number} is not UTF-8. Convert the file.") from error
                    line = content.decode("utf-8", errors="replace") if errors == "replace" else ""
                if line.strip():
                    yield line.strip()


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A file that gets its name when it is complete, or the standard output."""
    if path is None:
        yield sys.stdout
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_row(file: TextIO, values: list[Any]) -> None:
    """A line of a table; nothing for what is missing, and white space within a text is a space."""
    file.write("\t".join(map(_cell, values)) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    return "" if value is None else " ".join(value.split()) if isinstance(value, str) else str(value)


# --- The command -----------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="sentences")
    parser.add_argument(
        "--files",
        nargs="+",
        metavar="FILE",
        help="instead of TEXT: files, folders or patterns; a sentence a line, blank lines are left out; .gz, .xz and "
        ".zst are decompressed",
    )
    parser.add_argument(
        "--level", choices=["words", "sentences"], default="words", help="a line for each (default: %(default)s)"
    )
    parser.add_argument(
        "--format",
        choices=["tsv", "jsonl"],
        default="tsv",
        help="tsv: a table with a header; jsonl: a JSON object for each sentence, with its words unless --level "
        "sentences (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (default: standard output)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the surprisal of the words of a sentence")
    parser.add_argument(
        "--plot-sentence", type=int, default=1, metavar="N", help="which one to draw (default: %(default)s)"
    )
    add_batch_argument(parser)
    add_errors_argument(parser)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    for path in filter(None, (arguments.json, arguments.output, arguments.plot)):
        check_output(path, arguments.overwrite)
    if arguments.plot is not None:
        check_matplotlib()
    if arguments.plot_sentence < 1:
        raise ValueError(f"--plot-sentence {arguments.plot_sentence} is not possible: sentences count from 1.")
    texts = _texts(arguments)
    model, tokenizer = load_model(arguments)
    start = time.perf_counter()
    totals, drawn = _score(model, tokenizer, texts, arguments)
    seconds = time.perf_counter() - start
    if arguments.plot is not None:
        if drawn is None:
            raise ValueError(
                f"--plot-sentence {arguments.plot_sentence} is not there: the text has {totals.sentences} sentences."
            )
        plot_surprisal(drawn, arguments.plot)
    # Standard output is a table that other programs can read.
    print(
        f"model: {arguments.model}\n{_summary(totals, model)}\ntime: {seconds:.1f} s, "
        f"{totals.words / max(seconds, 1e-9):,.0f} words/s, on {model.device}",
        file=sys.stderr if arguments.output is None else sys.stdout,
    )
    if arguments.json is not None:
        record = {
            "command": command_line("hf-elmo"),
            "model": Path(arguments.model).name,
            "state": model.config.initial_state,
            **totals.to_dict(),
            "seconds": seconds,
            "words_per_second": totals.words / max(seconds, 1e-9),
        }
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _texts(arguments: argparse.Namespace) -> Iterator[Text]:
    if bool(arguments.text) == bool(arguments.files):
        raise ValueError("Give sentences, or --files with sentences, one of the two.")
    for text in arguments.text:
        if "\n" not in text and len(text) < 256 and Path(text).is_file():
            raise ValueError(f"{text} is a file. To score its lines, give --files {text}")
    lines = arguments.text if arguments.text else read_sentences(arguments.files, arguments.errors)
    return (as_text(line, arguments) for line in lines)


def _score(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, texts: Iterator[Text], arguments: argparse.Namespace
) -> tuple[ScoreTotals, SentenceScore | None]:
    """Writes the scores; returns their sums, and the score of the sentence that is to be drawn."""
    totals, drawn = ScoreTotals(), None
    scores = model.score_stream(texts, tokenizer, batch_tokens=arguments.batch_tokens)
    with (
        open_output(arguments.output) as file,
        logging.tqdm(desc="scoring", unit=" words", unit_scale=True, disable=arguments.quiet, delay=1) as bar,
    ):
        if arguments.format == "tsv":
            columns = WORD_COLUMNS if arguments.level == "words" else SENTENCE_COLUMNS
            write_row(file, ["sentence", *columns])
        for number, score in enumerate(scores, start=1):
            totals = totals.plus(ScoreTotals.of(score))
            check_finite(totals, arguments.model)
            _write(file, number, score, arguments)
            if number == arguments.plot_sentence:
                drawn = score
            bar.update(len(score.words))
        if not totals.sentences:
            raise ValueError("There are no sentences in the text: nothing can be scored.")
    return totals, drawn


def _write(file: TextIO, number: int, score: SentenceScore, arguments: argparse.Namespace) -> None:
    if arguments.format == "jsonl":
        content = {"sentence": number, **score.to_dict()}
        if arguments.level == "sentences":
            del content["positions"]
        file.write(json.dumps(content, ensure_ascii=False) + "\n")
    elif arguments.level == "words":
        for row in score.rows():
            write_row(file, [number, *(row[column] for column in WORD_COLUMNS)])
    else:
        figures = score.to_dict()
        write_row(file, [number, *(figures[column] for column in SENTENCE_COLUMNS)])


def _summary(totals: ScoreTotals, model: ElmoForPreTraining) -> str:
    log_probabilities = ", ".join(f"{name} {totals.total(name):.4f}" for name in DIRECTIONS)
    perplexities = ", ".join(f"{name} {totals.perplexity(name):.4f}" for name in DIRECTIONS)
    return "\n".join(
        [
            f"text: {totals.sentences:,} sentences, {totals.words:,} words, of which {totals.unknown_words:,} "
            f"({totals.unknown_share:.2%}) are not in the vocabulary and count as <UNK>",
            f"log-probability (nats): {log_probabilities}",
            f"perplexity: {perplexities} (geometric mean)",
            f"how: full softmax, {STATES[model.config.initial_state]}",
        ]
    )


SCORE = Command(
    description="Gives the log-probability (nats, natural logarithm) and the surprisal (bits, -log2 p) of each word "
    "under a language model, with the softmax over all words of its vocabulary: forward, given the words before it, "
    "backward, given the words after it, and combined, the mean of the two log-probabilities. The forward direction "
    "also predicts </S>, the backward one <S>; they have lines of their own (kind: boundary) and are part of the "
    "totals. Words that are not in the vocabulary (kind: unknown) have the figures of <UNK>. The totals are those of "
    "hf-elmo perplexity --mode sentences if the words are the same (--split-words).",
    examples="""  hf-elmo score my-elmo "The cat sat on the mat." --plot surprisal.png
  hf-elmo score my-elmo --files stories.txt --output scores.tsv
  hf-elmo score my-elmo --files news/*.txt.gz --split-words --level sentences --format jsonl --output scores.jsonl""",
    add_arguments=_arguments,
    run=_run,
)
