# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures quantised models, `quantize(model, "int8")` and `"float16"`, beside the same model in single precision.

They read the same words into all layers and take turns; each figure is the median of the rounds, with the range.
Beside each ratio stands how far the vectors are from those of single precision: the difference of a word's vector
relative to its length, and the cosine, for each layer, as the mean and the worst over all words. The weights are
random, of the published sizes, or those of --model; errors of trained weights may be others. The memory of the
weights is what a process gains by loading the model and quantising it.

Examples:
    python -m hf_elmo.scripts.bench_quantization --quick
    python -m hf_elmo.scripts.bench_quantization --output results/speed/bench_quantization.json
    python -m hf_elmo.scripts.bench_quantization --model my-elmo --text news.txt
"""

import argparse
import gc
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from hf_elmo import ElmoModel, batch_to_ids, quantize
from hf_elmo.quantization import QUANTIZATIONS, Quantization

from .bench_inference import works_of
from .measuring import (
    PUBLISHED,
    SIZES,
    Sentences,
    add_common_arguments,
    draw_ratios,
    in_a_process,
    memory,
    name_of,
    parse,
    ratio,
    read_words,
    spread,
    take_turns,
    write_random_models,
    write_results,
)

SINGLE = "float32"
WORKS = ["one sentence of 20 words", "32 sentences of 10 to 60 words"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), nargs="+", default=PUBLISHED, help="default: %(default)s")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="of a model to measure instead of random weights")
    parser.add_argument("--text", type=Path, help="words to read, between spaces")
    add_common_arguments(parser, rounds=15)
    arguments = parse(parser)
    all_works = works_of(read_words(arguments.text))
    works = {name: all_works[name] for name in (WORKS[:1] if arguments.quick else WORKS)}
    results = []
    if arguments.model is not None:
        results += measure(arguments.model, arguments.model.name, works, arguments.rounds)
    for size in [] if arguments.model is not None else ["tiny"] if arguments.quick else arguments.size:
        with tempfile.TemporaryDirectory() as folder:
            write_random_models(size, Path(folder))
            results += measure(Path(folder) / "converted", size, works, arguments.rounds)
    write_results(arguments, "bench_quantization", {"text": name_of(arguments.text), "results": results}, draw)


def load(folder: Path, to: str) -> ElmoModel:
    model = ElmoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return model if to == SINGLE else quantize(model, cast(Quantization, to))


def measure(folder: Path, size: str, works: dict[str, Sentences], rounds: int) -> list[dict[str, Any]]:
    models = {to: load(folder, to) for to in (SINGLE, *QUANTIZATIONS)}
    weights = {to: in_a_process(_memory_of_weights, folder, to) for to in models}
    results = []
    for name, sentences in works.items():
        characters = batch_to_ids(sentences)
        runs = {to: reading(model, characters) for to, model in models.items()}
        exact = runs[SINGLE]()
        mask = (characters > 0).any(dim=2)
        errors = {to: errors_of(runs[to](), exact, mask) for to in QUANTIZATIONS}
        seconds = take_turns(runs, rounds, warm_up=False)  # all have run already
        for to in QUANTIZATIONS:
            results.append(
                {
                    "size": size,
                    "work": name,
                    "quantize": to,
                    "float32_seconds": spread(seconds[SINGLE]),
                    "seconds": spread(seconds[to]),
                    "ratio": ratio(seconds[SINGLE], seconds[to]),
                    "errors": errors[to],
                    "weight_bytes": weights[to],
                    "float32_weight_bytes": weights[SINGLE],
                }
            )
            tell(results[-1])
    return results


def reading(model: ElmoModel, characters: torch.Tensor) -> Callable[[], Sequence[torch.Tensor]]:
    @torch.inference_mode()
    def read() -> Sequence[torch.Tensor]:
        return model(characters, output_hidden_states=True).hidden_states

    return read


def errors_of(
    found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], mask: torch.Tensor
) -> list[dict[str, float]]:
    """For each layer how far the words' vectors (B, T, D) are from the exact ones."""
    errors = []
    for layer, expected in zip(found, exact, strict=True):
        layer, expected = layer[mask].double(), expected[mask].double()
        relative = (layer - expected).norm(dim=1) / expected.norm(dim=1)
        cosine = torch.cosine_similarity(layer, expected, dim=1)
        errors.append(
            {
                "mean_relative_error": float(relative.mean()),
                "max_relative_error": float(relative.max()),
                "mean_cosine": float(cosine.mean()),
                "min_cosine": float(cosine.min()),
            }
        )
    return errors


def _memory_of_weights(folder: Path, to: str) -> int:
    before = memory("VmRSS")
    model = load(folder, to)
    gc.collect()
    model.eval()
    return memory("VmRSS") - before


def tell(result: dict[str, Any]) -> None:
    worst = max(result["errors"], key=lambda error: error["max_relative_error"])
    print(
        f"{result['size']:<9} {result['work']:<31} {result['quantize']:<8} {result['ratio']['median']:5.2f}x float32 "
        f"({result['ratio']['lowest']:.2f} to {result['ratio']['highest']:.2f})   "
        f"{1e3 * result['seconds']['median']:8.1f} ms   relative error {worst['mean_relative_error']:.1e}, at most "
        f"{worst['max_relative_error']:.1e}, cosine {worst['min_cosine']:.5f} or more",
        flush=True,
    )


def draw(picture: Any, figures: dict[str, Any]) -> None:
    names = [f"{result['quantize']}, {result['work']}, {result['size']}" for result in figures["results"]]
    draw_ratios(picture, names, [result["ratio"] for result in figures["results"]], "times as fast as float32")


if __name__ == "__main__":
    main()
