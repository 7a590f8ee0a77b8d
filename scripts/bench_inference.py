# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast words become vectors, beside the real AllenNLP 2.10.1 module with the same weights.

Random weights of the published small and original size go into both programs, which then read the same character ids
into all layers. They take turns, so that a busy moment of the machine hits both; each figure is the median of the
rounds, with the range. Beside each ratio stands how far the two results are apart, what fraction of the fastest matrix
product on this machine ours reaches (products that the plain formulas need, for different words only), and how much
memory a call takes at its peak. No vectors are kept between calls.

The words are drawn by Zipf's law, or come from a file. AllenNLP is imported by the tests' `originals.py`, so this
needs a checkout of the repository.

Examples:
    python -m hf_elmo.scripts.bench_inference --quick
    python -m hf_elmo.scripts.bench_inference --threads 2 --output results/bench_inference.json
    python -m hf_elmo.scripts.bench_inference --size small --text news.txt
"""

import argparse
import importlib
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers

from hf_elmo import ElmoModel, batch_to_ids
from hf_elmo.conversion import convert_allennlp
from hf_elmo.fast_paths import plain_path

from .arguments import command_line

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"projection": 16, "cell": 32, "highway": 1, "character_dim": 4, "filters": [[1, 8], [2, 8], [3, 16]]},
    "small": {"projection": 128, "cell": 1024, "highway": 1, "character_dim": 16, "filters": FILTERS},
    "original": {"projection": 512, "cell": 4096, "highway": 2, "character_dim": 16, "filters": FILTERS},
}
PUBLISHED = ["small", "original"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=PUBLISHED, help="default: %(default)s")
    parser.add_argument("--text", type=Path, help="sentences to read, one a line, words between spaces")
    parser.add_argument("--rounds", type=int, default=9, help="how often to measure (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="default: all processors, %(default)s here"
    )
    parser.add_argument("--quick", action="store_true", help="only see that it runs: a tiny model, one round")
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file, too")
    arguments = parser.parse_args()
    sizes, rounds = (["tiny"], 1) if arguments.quick else (arguments.size, arguments.rounds)

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    peak = product_speed(512 if arguments.quick else 3072)
    print(f"{arguments.threads} threads, fastest matrix product {peak / 1e9:.0f} GFLOP/s")
    works = works_of(read_words(arguments.text))
    results = [result for size in sizes for result in measure_size(size, works, rounds, peak)]
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(describe(arguments, rounds, peak, results), indent=2) + "\n")


# --- What is read ----------------------------------------------------------------------------------------------------


def read_words(file: Path | None, count: int = 20_000) -> list[str]:
    """The words of a text, or words drawn by Zipf's law, of which frequent ones are short."""
    if file is not None:
        words = file.read_text(encoding="utf-8").split()
        if len(words) < 4_000:
            raise ValueError(f"{file} has {len(words)} words; at least 4000 are needed for the batches measured here.")
        return words
    generator = random.Random(0)
    letters = "etaoinshrdlcumwfgypbvk"
    weights = [1 / (rank + 2.7) for rank in range(len(letters))]
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < 50_000:
        typical = 2 + len(vocabulary) ** 0.2
        length = max(1, round(generator.gauss(typical, 0.25 * typical)))
        vocabulary["".join(generator.choices(letters, weights, k=length))] = None
    ranks = [(rank + 2.7) ** -1.1 for rank in range(len(vocabulary))]
    return generator.choices(list(vocabulary), ranks, k=count)


def works_of(words: Sequence[str]) -> dict[str, list[list[str]]]:
    """The batches that are measured."""
    ragged = [10 + round(50 * number / 31) for number in range(32)]
    random.Random(1).shuffle(ragged)
    lengths = {"one sentence of 20 words": [20], "32 sentences of 10 to 60 words": ragged, "64 x 40 words": [40] * 64}
    works = {}
    for name, sizes in lengths.items():
        source = iter(words)
        works[name] = [[next(source) for _ in range(size)] for size in sizes]
    return works


# --- Who reads -------------------------------------------------------------------------------------------------------


def originals() -> ModuleType:
    """The tests' `originals.py`, which imports AllenNLP from its wheel."""
    folder = Path(__file__).resolve().parent.parent / "tests"
    if not (folder / "originals.py").is_file():
        raise OSError(
            f"{folder / 'originals.py'} does not exist, but AllenNLP is imported by it. Install the package from a "
            "checkout of the repository, pip install -e '.[test]', and run this program again."
        )
    sys.path.insert(0, str(folder))
    return importlib.import_module("originals")


def both_models(size: str, folder: Path) -> tuple[Any, ElmoModel]:
    """AllenNLP's biLM and our model, with the same random weights."""
    original = originals()
    options, weights = original.write_random_weights(folder, original.elmo_options(**SIZES[size]))
    theirs = original.original_elmo_module()._ElmoBiLm(str(options), str(weights)).eval()
    convert_allennlp(options, weights, folder / "converted")
    return theirs, ElmoModel.from_pretrained(folder / "converted")


# --- Measuring -------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def measure_size(size: str, works: dict[str, list[list[str]]], rounds: int, peak: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = both_models(size, Path(folder))
    results = []
    for name, sentences in works.items():
        characters = batch_to_ids(sentences)

        def allennlp(characters: torch.Tensor = characters) -> list[torch.Tensor]:
            theirs._elmo_lstm.reset_states()  # otherwise results depend on what was read before
            return theirs(characters)["activations"]

        def hf_elmo(characters: torch.Tensor = characters) -> tuple[torch.Tensor, ...]:
            return ours(characters, output_hidden_states=True).hidden_states

        def hf_elmo_plain(characters: torch.Tensor = characters) -> tuple[torch.Tensor, ...]:
            with plain_path():
                return hf_elmo(characters)

        runs: dict[str, Callable[[], Any]] = {"allennlp": allennlp, "hf_elmo": hf_elmo, "hf_elmo_plain": hf_elmo_plain}
        seconds = take_turns(runs, rounds)
        operations = operations_of(size, sentences)
        result: dict[str, Any] = {
            "size": size,
            "work": name,
            "words": sum(map(len, sentences)),
            "different_words": len({word for sentence in sentences for word in sentence}),
            **{f"{run}_seconds": spread(times) for run, times in seconds.items()},
            "ratio": ratio(seconds["allennlp"], seconds["hf_elmo"]),
            "ratio_plain": ratio(seconds["allennlp"], seconds["hf_elmo_plain"]),
            "apart": apart(hf_elmo(), [layer[:, 1:-1] for layer in allennlp()], characters),
            "apart_from_plain": apart(hf_elmo(), hf_elmo_plain(), characters),
            "fraction_of_peak": round(operations / statistics.median(seconds["hf_elmo"]) / peak, 3),
            "peak_bytes": {run: peak_bytes(call) for run, call in runs.items()},
        }
        print(
            f"{size:<9} {name:<31} {result['ratio']['median']:5.2f}x "
            f"({result['ratio']['lowest']:.2f} to {result['ratio']['highest']:.2f})   "
            f"{1e3 * result['hf_elmo_seconds']['median']:8.1f} ms   "
            f"{100 * result['fraction_of_peak']:3.0f} % of peak   {result['apart']:.1e} apart",
            flush=True,
        )
        results.append(result)
    return results


def take_turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each round of each run, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if number > 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """The ratio of the medians, and the range of the ratios within a round."""
    each = [their / our for their, our in zip(theirs, ours, strict=True)]
    return {"median": statistics.median(theirs) / statistics.median(ours), "lowest": min(each), "highest": max(each)}


def apart(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], characters: torch.Tensor) -> float:
    """The largest difference of any value of any layer, for the words that are there."""
    mask = (characters > 0).any(dim=2)
    return max(float((our - their)[mask].abs().max()) for our, their in zip(ours, theirs, strict=True))


def operations_of(size: str, sentences: Sequence[Sequence[str]], directions: int = 2) -> float:
    """Floating-point operations of the products: the LSTMs' for all words, the others' for each different word."""
    settings = SIZES[size]
    projection, cell = settings["projection"], settings["cell"]
    features = sum(count for _, count in settings["filters"])
    lstm = directions * 2 * (2 * projection * 4 * cell + cell * projection)  # two layers
    window = settings["character_dim"] * sum(width * count for width, count in settings["filters"])
    different = {word for sentence in sentences for word in sentence}
    windows = sum(min(len(word.encode()) + 3, 50) for word in different)
    word = settings["highway"] * 2 * features**2 + features * projection
    return 2.0 * (
        lstm * sum(len(sentence) + 2 for sentence in sentences) + window * windows + word * (len(different) + 2)
    )


def product_speed(size: int) -> float:
    """Floating-point operations a second of the fastest of some large matrix products."""
    matrix, result = torch.randn(size, size), torch.empty(size, size)
    times = take_turns({"product": lambda: torch.mm(matrix, matrix, out=result)}, 7)["product"]
    return 2 * size**3 / min(times)


def peak_bytes(run: Callable[[], Any]) -> int | None:
    """How much memory a call takes at its peak, on top of what there is before it; None where Linux is not."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    except OSError:
        return None
    before = memory("VmRSS")
    run()
    return memory("VmHWM") - before


def memory(field: str) -> int:
    """Bytes of this process as Linux counts them: `VmRSS` is now, `VmHWM` the most there was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(kilobytes)


def describe(arguments: argparse.Namespace, rounds: int, peak: float, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "command": command_line("python -m hf_elmo.scripts.bench_inference"),
        "text": arguments.text.name if arguments.text else "words drawn by Zipf's law",
        "rounds": rounds,
        **machine(),
        "product_flops": peak,
        "results": results,
    }


def machine() -> dict[str, Any]:
    """What the figures depend on besides the program."""
    return {
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


if __name__ == "__main__":
    main()
