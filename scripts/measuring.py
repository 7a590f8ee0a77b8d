# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: sizes and random weights, words to read, the original programs, clocks and memory.

AllenNLP is imported by the tests' `originals.py`, simple_elmo by `tensorflow_python.py`, so the programs that measure
beside them need a checkout of the repository.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers

from hf_elmo.conversion import convert_allennlp
from hf_elmo.pictures import check_matplotlib
from hf_elmo.products import HAS_ONEDNN, NEVER, product

from .arguments import command_line

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"projection": 16, "cell": 32, "highway": 1, "character_dim": 4, "filters": [[1, 8], [2, 8], [3, 16]]},
    "small": {"projection": 128, "cell": 1024, "highway": 1, "character_dim": 16, "filters": FILTERS},
    "original": {"projection": 512, "cell": 4096, "highway": 2, "character_dim": 16, "filters": FILTERS},
}
PUBLISHED = ["small", "original"]

Sentences = list[list[str]]

# Whether this run is to see that the program works, and no more.
_only_trying = False


# --- What all programs are told --------------------------------------------------------------------------------------


def add_common_arguments(parser: argparse.ArgumentParser, rounds: int, threads: int | None = None) -> None:
    """Adds what all of them have; with a number of threads, this is not to be chosen."""
    parser.add_argument("--rounds", type=int, default=rounds, help="how often to measure (default: %(default)s)")
    if threads is None:
        everything = os.cpu_count()
        parser.add_argument(
            "--threads", type=int, default=everything, help="default: all processors, %(default)s here"
        )
    else:
        parser.set_defaults(threads=threads)
    parser.add_argument("--quick", action="store_true", help="only see that it runs: a tiny model, one round")
    parser.add_argument(
        "--output", type=Path, help="write the figures to this JSON file, too, and a picture beside it (.png)"
    )


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, checked, with torch set up as they say."""
    global _only_trying
    arguments = parser.parse_args()
    _only_trying = arguments.quick
    for name in ("rounds", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} {getattr(arguments, name)} is not possible: it must be 1 or more")
    if arguments.quick:
        arguments.rounds = 1
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(arguments.threads)
    return arguments


def write_results(
    arguments: argparse.Namespace, program: str, content: dict[str, Any], draw: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Writes the figures, with the command and the machine, and what `draw` puts into a figure of matplotlib."""
    if arguments.output is None:
        return
    check_matplotlib()
    from matplotlib.figure import Figure

    figures = {
        "command": command_line(f"python -m hf_elmo.scripts.{program}"),
        "quick": arguments.quick,
        "rounds": arguments.rounds,
        **machine(),
        **content,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    picture = Figure(figsize=(8, 4), layout="constrained")
    draw(picture, figures)
    picture.suptitle(f"{figures['processor']}, {figures['threads']} threads", size=8, color="gray", x=0.99, ha="right")
    picture.savefig(arguments.output.with_suffix(".png"), dpi=120, metadata={"Software": None})


def draw_ratios(picture: Any, names: Sequence[str], ratios: Sequence[dict[str, float]], label: str) -> None:
    """Bars with the range of the rounds, and a line where nothing is gained."""
    picture.set_size_inches(8, 1.2 + 0.38 * len(names))
    axes = picture.subplots()
    middles = [one["median"] for one in ratios]
    below = [max(one["median"] - one["lowest"], 0) for one in ratios]
    above = [max(one["highest"] - one["median"], 0) for one in ratios]
    axes.barh(range(len(names)), middles, xerr=[below, above], color="#0072b2", ecolor="#222222", capsize=3)
    axes.axvline(1, color="#666666", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(label)


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


def cut_into_sentences(words: Sequence[str], lengths: Iterator[int]) -> Sentences:
    """The words in sentences of these lengths; the last may be shorter."""
    sentences, start = [], 0
    while start < len(words):
        end = start + next(lengths)
        sentences.append(list(words[start:end]))
        start = end
    return sentences


def name_of(text: Path | None) -> str:
    return text.name if text else "words drawn by Zipf's law"


# --- Weights, and who reads them -------------------------------------------------------------------------------------

# A factor on random weights of the LSTMs. With this one, what they give is a little larger than what the trained model
# in the package gives, and seldom at a clip. With 1, many values are, and rounding errors are larger.
LIKE_TRAINED = 0.5


def _tests_module(name: str) -> ModuleType:
    folder = Path(__file__).resolve().parent.parent / "tests"
    if not (folder / f"{name}.py").is_file():
        raise OSError(
            f"{folder / name}.py does not exist, but the original program is imported by it. Install the package from "
            "a checkout of the repository, pip install -e '.[test]', and run this program again."
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def originals() -> ModuleType:
    """The tests' `originals.py`, which imports AllenNLP from its wheel."""
    return _tests_module("originals")


def tensorflow_python() -> ModuleType:
    """The tests' `tensorflow_python.py`, which makes an environment with TensorFlow."""
    return _tests_module("tensorflow_python")


def write_random_models(size: str, folder: Path, scale: float = LIKE_TRAINED) -> None:
    """Random weights for both: `options.json` and `weights.hdf5` for AllenNLP, `converted` for us."""
    original = originals()
    options, weights = original.write_random_weights(folder, original.elmo_options(**SIZES[size]), scale=scale)
    convert_allennlp(options, weights, folder / "converted")


def allennlp_bilm(folder: Path) -> Any:
    module = originals().original_elmo_module()
    return module._ElmoBiLm(str(folder / "options.json"), str(folder / "weights.hdf5")).eval()


# --- Time ------------------------------------------------------------------------------------------------------------


PAUSE = 0.1  # seconds
WAKING_SIZE = 512


def take_turns(runs: Mapping[str, Callable[[], Any]], rounds: int, warm_up: bool = True) -> dict[str, list[float]]:
    """The seconds of each round of each run, after one round that is not counted.

    Before each run there is a pause: threads of the program before it may wait for more work by spinning. After it, a
    product wakes all of them up: processors of a virtual machine that have slept may begin milliseconds late.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    matrix = torch.ones(WAKING_SIZE, WAKING_SIZE)
    for number in range(-1 if warm_up else 0, rounds):
        for name, run in runs.items():
            time.sleep(PAUSE)
            torch.mm(matrix, matrix)
            start = time.perf_counter()
            run()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """The ratio of the medians, and the range of the ratios within a round."""
    each = [their / our for their, our in zip(theirs, ours, strict=True)]
    return {"median": statistics.median(theirs) / statistics.median(ours), "lowest": min(each), "highest": max(each)}


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


def product_speed(quick: bool) -> float:
    """Floating-point operations a second of the fastest of some large matrix products, by either library of torch."""
    size = 512 if quick else 3072
    matrix, weight = torch.randn(size, size), torch.randn(size, size).T  # as its library reads it fastest
    libraries: dict[str, Callable[[], Any]] = {"MKL": lambda: product(matrix, weight, None, NEVER)}
    if HAS_ONEDNN:
        libraries["oneDNN"] = lambda: product(matrix, weight, None, 1)
    times = take_turns(libraries, 7)
    return 2 * size**3 / min(min(of_one) for of_one in times.values())


# --- Memory ----------------------------------------------------------------------------------------------------------


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own, with as many threads as this one; None where Linux is not.

    With --quick it is this process, which takes less time; the memory it then finds means nothing.
    """
    if not Path("/proc/self/status").exists():
        return None
    if _only_trying:
        return function(*arguments)
    with multiprocessing.get_context("spawn").Pool(1, _begin_process, (torch.get_num_threads(),)) as pool:
        return pool.apply(function, arguments)


def _begin_process(threads: int) -> None:
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Appends the most bytes that this process had meanwhile, on top of what it had before."""
    found: list[int] = []
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = memory("VmRSS")
    yield found
    found.append(max(memory("VmHWM") - before, 0))


def memory(field: str) -> int:
    """Bytes of this process as Linux counts them: `VmRSS` is now, `VmHWM` the most there was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(kilobytes)


# --- The machine -----------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What the figures depend on besides the program."""
    return {
        "threads": torch.get_num_threads(),
        "processor": processor_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def processor_name() -> str:
    """The model's name as Linux knows it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
