# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures onnxruntime beside torch: the same model reads the same batches, exported in single precision and in int8.

The programs take turns, round by round, with the same number of threads, so that what else the machine does disturbs
all of them alike. What is measured is the way from character ids to all layers. Also measured: how far the values are
from those of torch, and all of them from those of torch in double precision, which tells mistakes from rounding; how
large the files are, also with half precision as storage; and beside int8 that of torch (`hf_elmo.quantize`).

Words are drawn by Zipf's law, or come from a file. Weights are random, unless there is a --model: how far int8 is from
single precision depends on the weights, and those of a trained model are not random.

Examples:
    python -m hf_elmo.scripts.bench_onnx --quick
    python -m hf_elmo.scripts.bench_onnx --output results/speed/bench_onnx.json
    python -m hf_elmo.scripts.bench_onnx --model my-elmo --text news.txt --threads 1
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from hf_elmo import ElmoModel, ElmoTokenizer, quantize
from hf_elmo.conversion.onnx_export import export_onnx
from hf_elmo.elmo_onnx import ElmoOnnx

from .bench_inference import works_of
from .measuring import (
    PUBLISHED,
    SIZES,
    Sentences,
    add_common_arguments,
    draw_ratios,
    name_of,
    parse,
    ratio,
    read_words,
    spread,
    take_turns,
    write_random_models,
    write_results,
)

# How the model is exported, by name.
EXPORTS: dict[str, dict[str, bool]] = {
    "onnx": {},
    "onnx_int8": {"int8": True},
    "onnx_float16": {"float16": True},
    "onnx_int8_float16": {"int8": True, "float16": True},
}
# Half precision is only stored, so its speed is that of single precision.
MEASURED = ("onnx", "onnx_int8")

Read = Callable[[], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=PUBLISHED, help="default: %(default)s")
    parser.add_argument("--model", type=Path, help="measure the model of this folder, and no random ones")
    parser.add_argument("--text", type=Path, help="words for the batches, between spaces")
    add_common_arguments(parser, rounds=9)
    arguments = parse(parser)
    works = works_of(read_words(arguments.text))
    sizes, results = {}, []
    for size in ["tiny"] if arguments.quick else arguments.size:
        with tempfile.TemporaryDirectory() as folder:
            source = arguments.model
            if source is None:
                write_random_models(size, Path(folder))
                source = Path(folder) / "converted"
            title = size if arguments.model is None else source.name
            sizes[title] = export(source, Path(folder))
            programs = Programs(source, Path(folder), arguments.threads)
            for name, sentences in works.items():
                results.append({"size": title, "work": name, **programs.measure(sentences, arguments.rounds)})
                tell(results[-1])
        if arguments.model is not None:
            break
    content = {
        "onnxruntime": onnxruntime.__version__,
        "text": name_of(arguments.text),
        "bytes": sizes,
        "results": results,
    }
    write_results(arguments, "bench_onnx", content, draw)


def export(source: Path, folder: Path) -> dict[str, int]:
    """Exports the model in all ways; the sizes of the files that torch and onnxruntime read."""
    weights = source.glob("*.safetensors")
    sizes = {"torch": sum(path.stat().st_size for path in weights)}
    for name, options in EXPORTS.items():
        sizes[name] = export_onnx(source, folder / name, "features", **options).num_bytes
    return sizes


class Programs:
    """The same model by torch and by onnxruntime."""

    def __init__(self, source: Path, folder: Path, threads: int):
        self.tokenizer = ElmoTokenizer.from_pretrained(source)
        self.torch, encoder = (
            ElmoModel.from_pretrained(source, dtype=torch.float32, use_safetensors=True).eval() for _ in range(2)
        )
        self.torch_int8 = quantize(encoder, "int8")
        self.double = ElmoModel.from_pretrained(source, dtype=torch.float64, use_safetensors=True).eval()
        self.onnx = {name: ElmoOnnx(folder / name, threads=threads) for name in EXPORTS}

    def measure(self, sentences: Sentences, rounds: int) -> dict[str, Any]:
        encoded = self.tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
        arrays = {name: tensor.numpy() for name, tensor in encoded.items()}
        runs: dict[str, Read] = {
            "torch": lambda: layers_of(self.torch, encoded),
            "torch_int8": lambda: layers_of(self.torch_int8, encoded),
        }
        for name, model in self.onnx.items():
            runs[name] = lambda model=model: model.run(arrays, ["hidden_states"])["hidden_states"]  # type: ignore[misc]
        found = {name: run() for name, run in runs.items()}
        exact = layers_of(self.double, encoded)
        apart = {name: largest(layers - found["torch"]) for name, layers in found.items() if name != "torch"}
        timed = {name: run for name, run in runs.items() if name in ("torch", "torch_int8", *MEASURED)}
        seconds = take_turns(timed, rounds, warm_up=False)  # all have run already
        return {
            "sentences": len(sentences),
            "words": sum(map(len, sentences)),
            "apart": apart,
            "apart_from_float64": {name: largest(layers - exact) for name, layers in found.items()},
            "largest_value": largest(exact),
            "seconds": {name: spread(times) for name, times in seconds.items()},
            "ratio": {name: ratio(seconds["torch"], times) for name, times in seconds.items() if name != "torch"},
        }


def largest(values: np.ndarray) -> float:
    return float(np.abs(values).max())


@torch.inference_mode()
def layers_of(model: ElmoModel, encoded: Any) -> np.ndarray:
    """All layers (L + 1, B, T, D), as onnxruntime gives them."""
    return torch.stack(model(**encoded, output_hidden_states=True).hidden_states).numpy()


# --- What is told ----------------------------------------------------------------------------------------------------


def tell(result: dict[str, Any]) -> None:
    print(f"{result['size']:<9} {result['work']:<31}", end="")
    for name, times in result["seconds"].items():
        print(f"   {name} {1e3 * times['median']:.1f} ms", end="")
        if name != "torch":
            print(f" ({result['ratio'][name]['median']:.2f}x, {result['apart'][name]:.1e} apart)", end="")
    print(flush=True)


def draw(picture: Any, figures: dict[str, Any]) -> None:
    names, ratios = [], []
    for result in figures["results"]:
        for name in MEASURED:
            names.append(
                f"{result['work']}, {result['size']}, {name.replace('onnx', 'onnxruntime').replace('_', ' ')}"
            )
            ratios.append(result["ratio"][name])
    draw_ratios(picture, names, ratios, "times as fast as torch")


if __name__ == "__main__":
    main()
