# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast a text is scored against a large vocabulary, and how much memory it takes.

A model of the published small size with random weights, and a full softmax over as many words as are asked for, scores
sentences of 5 to 45 words drawn by Zipf's law. Some scores are compared with the softmax of all logits in float64. The
peak of the memory is that of the process, after as many words as given: if it does not grow from one to the next,
memory does not depend on the length of the text.
As sentences are read ahead, only the time of the last part is that of its words; the others are an upper bound.

Examples:
    python -m hf_elmo.scripts.bench_scoring --words 2000 --vocabulary 1000
    python -m hf_elmo.scripts.bench_scoring --output results/speed/bench_scoring.json
"""

import argparse
import json
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer, ScoreTotals
from hf_elmo.scoring import BATCH_TOKENS

from .arguments import command_line

COMPARED = 8  # sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=100_000, help="of the text (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=100_000, help="words in it (default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="default: %(default)s")
    parser.add_argument("--parts", type=int, default=4, help="figures are noted so many times (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file, too")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    model, tokenizer = random_model(arguments.vocabulary)
    before = peak_bytes()
    text = list(sentences(arguments.words, arguments.vocabulary))
    parts = measure(model, tokenizer, text, arguments)
    result = {
        "command": command_line("python -m hf_elmo.scripts.bench_scoring"),
        "processor": platform.machine(),
        "threads": arguments.threads,
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "model": "small (projection 128, cell 1024), random weights",
        "vocabulary": model.softmax.num_words,
        "batch_tokens": arguments.batch_tokens,
        "model_bytes": sum(value.numel() * value.element_size() for value in model.parameters()),
        "peak_bytes_before_scoring": before,
        "parts": parts,
        "largest_difference_from_all_logits": compare(model, tokenizer, text[:COMPARED]),
    }
    print(json.dumps(result, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


def random_model(vocabulary: int) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("\n".join(["<S>", "</S>", "<UNK>", *(f"word{number}" for number in range(vocabulary))]))
        tokenizer = ElmoTokenizer(path)
    torch.manual_seed(0)
    model = ElmoForPreTraining(ElmoConfig.small(vocab_size=len(tokenizer), softmax="full"))
    return model.eval(), tokenizer


def sentences(words: int, vocabulary: int) -> Iterator[list[str]]:
    """Sentences with so many words in all; one in fifty is not in the vocabulary."""
    generator = random.Random(0)
    left = words
    while left > 0:
        length = min(generator.randint(5, 45), left)
        ranks = [int(vocabulary ** generator.random()) for _ in range(length)]
        yield [f"word{rank}" if generator.random() > 0.02 else f"unknown{rank}" for rank in ranks]
        left -= length


def measure(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, text: list[list[str]], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Words, time and peak of the memory, after each part of the text."""
    parts: list[dict[str, Any]] = []
    totals, start, cpu_start = ScoreTotals(), time.perf_counter(), time.process_time()
    for score in model.score_stream(text, tokenizer, batch_tokens=arguments.batch_tokens):
        totals = totals.plus(ScoreTotals.of(score))
        if totals.words * arguments.parts >= arguments.words * (len(parts) + 1):
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            parts.append(
                {
                    "words": totals.words,
                    "unknown_share": totals.unknown_share,
                    "seconds": seconds,
                    "words_per_second": totals.words / seconds,
                    "cpu_seconds": cpu_seconds,  # which other programs on the machine hardly change
                    "words_per_cpu_second": totals.words / cpu_seconds,
                    "peak_bytes": peak_bytes(),
                }
            )
            print(parts[-1], file=sys.stderr)
    return parts


@torch.no_grad()
def compare(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, text: list[list[str]]) -> float:
    """The largest difference of a forward score from the softmax of all logits in float64."""
    largest = 0.0
    for words, score in zip(text, model.score(text, tokenizer), strict=True):
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        logits = model(**batch, output_logits=True).forward_logits[0, :-2].double()
        expected = logits.log_softmax(dim=1).gather(1, batch["input_ids"][0, 1:-1].unsqueeze(1)).squeeze(1)
        largest = max(largest, (expected - torch.tensor(score.forward, dtype=torch.float64)).abs().max().item())
    return largest


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
