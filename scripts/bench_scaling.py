# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how the cost of reading grows with the text: 1,000, 10,000 and 100,000 words through `ElmoEmbedder`.

The words come as sentences of 25 words, and as one single document, and all layers are computed. Time is fitted by a
line, seconds = start + words x seconds per word, and by a power, seconds ~ words^exponent: an exponent of 1 is linear
growth, and one below says that a long text costs less for a word, as more of its words were seen before. Memory is the
most that a process takes for it on top of the weights; the vectors, which sentences hand out one by one and a document
all at once, are part of it.

Examples:
    python -m hf_elmo.scripts.bench_scaling --quick
    python -m hf_elmo.scripts.bench_scaling --output results/speed/bench_scaling.json
"""

import argparse
import itertools
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from hf_elmo import ElmoEmbedder, ElmoModel

from .measuring import (
    PUBLISHED,
    SIZES,
    Sentences,
    add_common_arguments,
    cut_into_sentences,
    in_a_process,
    name_of,
    parse,
    peak_memory,
    read_words,
    spread,
    take_turns,
    write_random_models,
    write_results,
)

KINDS = {"sentences": 25, "one document": 10**9}
WORDS = [1_000, 10_000, 100_000]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small", help=f"such as {PUBLISHED} (default: small)")
    parser.add_argument("--words", type=int, nargs="+", default=WORDS, help="default: %(default)s")
    parser.add_argument("--text", type=Path, help="words to read, between spaces")
    add_common_arguments(parser, rounds=3)
    arguments = parse(parser)
    size, counts = ("tiny", [100, 400, 1600]) if arguments.quick else (arguments.size, sorted(set(arguments.words)))
    if len(counts) < 2 or counts[0] < 1:
        parser.error(f"--words {counts} is not possible: a fit needs two different numbers of words from 1 on")
    words = read_words(arguments.text, counts[-1])
    if len(words) < counts[-1]:
        parser.error(f"{arguments.text} has {len(words)} words, but {counts[-1]} are asked for")
    with tempfile.TemporaryDirectory() as folder:
        write_random_models(size, Path(folder))
        results = [
            measure(Path(folder) / "converted", kind, [words[:count] for count in counts], arguments.rounds)
            for kind in KINDS
        ]
    content = {"size": size, "text": name_of(arguments.text), "results": results}
    write_results(arguments, "bench_scaling", content, draw)


def measure(folder: Path, kind: str, texts: list[list[str]], rounds: int) -> dict[str, Any]:
    embedder = ElmoEmbedder(ElmoModel.from_pretrained(folder).eval())
    sentences = [cut_into_sentences(words, itertools.repeat(KINDS[kind])) for words in texts]
    read(embedder, sentences[0])
    counts = [len(words) for words in texts]
    runs = {str(count): partial(read, embedder, given) for count, given in zip(counts, sentences, strict=True)}
    seconds = take_turns(runs, rounds, warm_up=False)
    middles = [spread(times)["median"] for times in seconds.values()]
    points = [
        {"words": count, "seconds": spread(times), "peak_bytes": in_a_process(_peak_of, folder, given)}
        for count, times, given in zip(counts, seconds.values(), sentences, strict=True)
    ]
    per_word, start = line(counts, middles)
    exponent, _ = line([math.log(count) for count in counts], [math.log(middle) for middle in middles])
    print(
        f"{kind:<13} "
        + "   ".join(f"{count:,} words {middle:.2f} s" for count, middle in zip(counts, middles, strict=True))
        + f"   exponent {exponent:.3f}, {1e6 * per_word:.0f} microseconds a word",
        flush=True,
    )
    return {
        "kind": kind,
        "points": points,
        "exponent": exponent,
        "seconds_per_word": per_word,
        "start_seconds": start,
    }


def read(embedder: ElmoEmbedder, sentences: Sentences) -> None:
    for _ in embedder.encode_stream(sentences, "all", show_progress=False):
        pass


def line(x: list[float] | list[int], y: list[float]) -> tuple[float, float]:
    """Slope and intercept of the line with the least squares."""
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((one - middle_x) * (other - middle_y) for one, other in zip(x, y, strict=True))
    slope /= sum((one - middle_x) ** 2 for one in x)
    return slope, middle_y - slope * middle_x


def _peak_of(folder: Path, sentences: Sentences) -> int:
    embedder = ElmoEmbedder(ElmoModel.from_pretrained(folder).eval())
    read(embedder, [["a"]])
    with peak_memory() as found:
        read(embedder, sentences)
    return found[0]


def draw(picture: Any, figures: dict[str, Any]) -> None:
    time, memory = picture.subplots(1, 2)
    for result, colour, marker in zip(figures["results"], ("#0072b2", "#d55e00"), "os", strict=True):
        words = [point["words"] for point in result["points"]]
        middles = [point["seconds"]["median"] for point in result["points"]]
        label = f"{result['kind']}, exponent {result['exponent']:.2f}"
        time.loglog(words, middles, marker, color=colour, label=label)
        fitted = [math.exp(sum(map(math.log, middles)) / len(words)) for _ in words]
        centre = math.exp(sum(map(math.log, words)) / len(words))
        curve = [middle * (count / centre) ** result["exponent"] for middle, count in zip(fitted, words, strict=True)]
        time.loglog(words, curve, color=colour, linewidth=1)
        peaks = [(point["peak_bytes"] or 0) / 1e6 for point in result["points"]]
        memory.semilogx(words, peaks, marker + "-", color=colour, label=result["kind"])
    time.set(xlabel="words", ylabel="seconds")
    memory.set(xlabel="words", ylabel="MB at the peak, without the weights")
    time.legend(fontsize=8)
    memory.legend(fontsize=8)


if __name__ == "__main__":
    main()
