# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how many words a second the tokenizer turns into padded torch tensors on one core.

Raw text, one sentence a line, goes through the whole of `tokenizer(lines, padding=True, return_tensors="pt")`. What is
counted is the words that come out, without boundaries and padding. The variants take turns, so that a busy moment of
the machine hits all of them; the median of the rounds is the figure, the range is printed beside it.

Examples:
    python -m hf_elmo.scripts.bench_tokenizer --quick
    python -m hf_elmo.scripts.bench_tokenizer news.txt --output results/speed/bench_tokenizer.json
"""

import os

# One core: before the libraries start their threads.
os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers

from hf_elmo import ElmoTokenizer
from hf_elmo.scripts.measuring import add_common_arguments, parse, spread, take_turns, write_results
from hf_elmo.scripts.original_wheels import allennlp_fixtures
from hf_elmo.tokenization_elmo import character_row

Measured = dict[str, float | int | str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="text, one sentence a line (default: AllenNLP's fixtures)")
    parser.add_argument("--lines", type=int, default=10_000, help="how many lines to use (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="lines in a call (default: %(default)s)")
    add_common_arguments(parser, rounds=7, threads=1)
    arguments = parse(parser)
    lines = read_lines(arguments.file, 200 if arguments.quick else arguments.lines)
    batches = [lines[start : start + arguments.batch_size] for start in range(0, len(lines), arguments.batch_size)]
    results = measure(batches, arguments.rounds)
    for result in results:
        print(
            f"{result['variant']:<34} {result['words_per_second']:>9,} words/s"
            f"   ({result['slowest']:,} to {result['fastest']:,})"
        )
    content = {
        "text": arguments.file.name if arguments.file else "AllenNLP fixtures",
        "lines": len(lines),
        "batch_size": arguments.batch_size,
        "tokenizers": tokenizers.__version__,
        "results": results,
    }
    write_results(arguments, "bench_tokenizer", content, draw)


def draw(picture: Any, figures: dict[str, Any]) -> None:
    axes = picture.subplots()
    results = figures["results"]
    axes.barh([result["variant"] for result in results], [result["words_per_second"] for result in results])
    axes.invert_yaxis()
    axes.set_xlabel("words a second")


def read_lines(file: Path | None, count: int) -> list[str]:
    """At most `count` lines that are not empty; without a file, the sentences of AllenNLP's fixtures over and over."""
    if file is not None:
        with open(file, encoding="utf-8") as text:
            return [line.rstrip("\n") for line in text if line.strip()][:count]
    lists = json.loads((allennlp_fixtures() / "elmo/sentences.json").read_text())
    sentences = [sentence for sentences in lists for sentence in sentences]
    return (sentences * (count // len(sentences) + 1))[:count]


def measure(batches: list[list[str]], rounds: int) -> list[Measured]:
    tokenizer = ElmoTokenizer()
    split = [[tokenizer.tokenize(line) for line in batch] for batch in batches]
    words = sum(len(sentence) for batch in split for sentence in batch)

    def raw() -> None:
        for batch in batches:
            tokenizer(batch, padding=True, return_tensors="pt")

    def raw_with_empty_cache() -> None:
        character_row.cache_clear()
        raw()

    def given_words() -> None:
        for batch in split:
            tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")

    variants: dict[str, Callable[[], None]] = {
        "raw text": raw,
        "raw text, no word seen before": raw_with_empty_cache,
        "words given": given_words,
    }
    seconds = {name: spread(times) for name, times in take_turns(variants, rounds, warm_up=False).items()}
    return [
        {
            "variant": name,
            "words": words,
            "words_per_second": round(words / times["median"]),
            "fastest": round(words / times["lowest"]),
            "slowest": round(words / times["highest"]),
        }
        for name, times in seconds.items()
    ]


if __name__ == "__main__":
    main()
