# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how long it takes to load a model, beside AllenNLP 2.10.1 with the same weights.

AllenNLP reads `options.json` and its HDF5 file, we read the converted folder with `ElmoModel.from_pretrained`. The
weights are random, of the published sizes. All libraries are imported before, and all files were read before, so that
they are in the memory of the system (a warm page cache). The programs take turns. Beside the ratio stands how far the
vectors of a sentence are apart, and how much memory loading takes at its peak in a process of its own, and as a part
of the size of the file.

Examples:
    python -m hf_elmo.scripts.bench_loading --quick
    python -m hf_elmo.scripts.bench_loading --output results/speed/bench_loading.json
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hf_elmo import ElmoModel, batch_to_ids

from .measuring import (
    PUBLISHED,
    SIZES,
    add_common_arguments,
    allennlp_bilm,
    draw_ratios,
    in_a_process,
    parse,
    peak_memory,
    ratio,
    read_words,
    spread,
    take_turns,
    write_random_models,
    write_results,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=PUBLISHED, help="default: %(default)s")
    add_common_arguments(parser, rounds=5)
    arguments = parse(parser)
    results = [measure(size, arguments.rounds) for size in (["tiny"] if arguments.quick else arguments.size)]
    write_results(arguments, "bench_loading", {"page_cache": "warm", "results": results}, draw)


def load_ours(folder: Path) -> ElmoModel:
    return ElmoModel.from_pretrained(folder / "converted")


LOADERS: dict[str, Callable[[Path], Any]] = {"allennlp": allennlp_bilm, "hf_elmo": load_ours}
FILES = {"allennlp": "weights.hdf5", "hf_elmo": "converted/model.safetensors"}


def measure(size: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_random_models(size, folder)
        seconds = take_turns({name: partial(load, folder) for name, load in LOADERS.items()}, rounds)
        bytes_of_files = {name: (folder / file).stat().st_size for name, file in FILES.items()}
        peaks = {name: in_a_process(_peak_of_loading, name, folder) for name in LOADERS}
        result: dict[str, Any] = {
            "size": size,
            "file_bytes": bytes_of_files,
            **{f"{name}_seconds": spread(times) for name, times in seconds.items()},
            "ratio": ratio(seconds["allennlp"], seconds["hf_elmo"]),
            "apart": apart(folder),
            "peak_bytes": peaks,
            "peak_of_file": {name: peak and round(peak / bytes_of_files[name], 2) for name, peak in peaks.items()},
        }
    print(
        f"{size:<9} loaded {result['ratio']['median']:5.2f}x as fast ({result['ratio']['lowest']:.2f} to "
        f"{result['ratio']['highest']:.2f})   {1e3 * result['hf_elmo_seconds']['median']:.0f} ms   "
        f"peak {result['peak_of_file']['hf_elmo']} x the file   {result['apart']:.1e} apart"
    )
    return result


@torch.inference_mode()
def apart(folder: Path) -> float:
    """How far the vectors of a sentence are apart."""
    characters = batch_to_ids([read_words(None, 20)])
    theirs = LOADERS["allennlp"](folder)(characters)["activations"]
    ours = LOADERS["hf_elmo"](folder)(characters, output_hidden_states=True).hidden_states
    return max(float((our - their[:, 1:-1]).abs().max()) for our, their in zip(ours, theirs, strict=True))


def _peak_of_loading(name: str, folder: Path) -> int:
    """The most memory that loading takes, in a process that has loaded a model before."""
    with tempfile.TemporaryDirectory() as temporary:
        write_random_models("tiny", Path(temporary))
        LOADERS[name](Path(temporary))
    with peak_memory() as found:
        LOADERS[name](folder)
    return found[0]


def draw(picture: Any, figures: dict[str, Any]) -> None:
    names = [f"loading, {result['size']}" for result in figures["results"]]
    draw_ratios(picture, names, [result["ratio"] for result in figures["results"]], "times as fast as AllenNLP 2.10.1")


if __name__ == "__main__":
    main()
