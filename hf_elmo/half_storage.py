# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of half the size: weights stored in half precision, which are computed with in single precision.

The config of such a folder says float32, and that is what `from_pretrained` makes of the weights unless it is asked
for something else. What was rounded stays rounded: `shrink` measures how far that moves the vectors.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from .configuration_elmo import ElmoConfig
from .embedder import ElmoEmbedder
from .hub import CARD, CHECKSUMS, finish_folder, new_folder

HalfPrecision: TypeAlias = Literal["float16", "bfloat16"]
HALF_PRECISIONS: tuple[HalfPrecision, ...] = get_args(HalfPrecision)

CONFIG, WEIGHTS, INDEX = "config.json", "*.safetensors", "model.safetensors.index.json"

# What the vectors are measured with.
SENTENCES = [
    "He sat on the bank of the river .".split(),
    "The bank raised its interest rates , although nobody in Zürich had expected it .".split(),
    "Deep contextualized word representations model complex characteristics of word use .".split(),
]


@dataclass(frozen=True)
class ShrinkReport:
    """What became smaller, and how far the vectors of some sentences moved, relative to their length."""

    folder: Path
    bytes_before: int
    bytes_after: int
    mean_error: float
    max_error: float

    def __str__(self) -> str:
        return (
            f"weights: {self.bytes_before / 1e6:,.1f} MB before, {self.bytes_after / 1e6:,.1f} MB now\n"
            f"vectors: relative error {self.mean_error:.1e} on average, at most {self.max_error:.1e}\n"
            f"folder: {self.folder}"
        )


def shrink(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    dtype: HalfPrecision = "float16",
    overwrite: bool = False,
) -> ShrinkReport:
    """Writes a folder like another one, with its weights in half precision.

    Args:
        folder: Of an ELMo model, of any kind.
        output: The folder to write.
        dtype: `"float16"`, which keeps more digits, or `"bfloat16"`, which holds larger numbers.
        overwrite: Whether a folder that hf-elmo wrote before may be replaced.
    """
    source = Path(folder)
    if dtype not in HALF_PRECISIONS:
        raise ValueError(f"dtype={dtype!r} is not possible: it is {', '.join(map(repr, HALF_PRECISIONS))}.")
    files = _files_of(source)
    with new_folder(output, overwrite) as temporary:
        for name in files:
            place = temporary / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.match(WEIGHTS):
                _write_weights(source / name, place, getattr(torch, dtype))
            else:
                shutil.copyfile(source / name, place)
        _describe(temporary, dtype)
        finish_folder(temporary)
        mean, largest = _distance(source, temporary)
        before, after = (sum(path.stat().st_size for path in place.glob(WEIGHTS)) for place in (source, temporary))
    return ShrinkReport(Path(output), before, after, mean, largest)


def _files_of(folder: Path) -> list[Path]:
    """What is copied: all files but hidden ones and the list of checksums."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} has no {CONFIG}: give the folder of a model.")
    kind = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model_type")
    if kind != ElmoConfig.model_type:
        raise ValueError(f"{folder} holds a model of the kind {kind!r}, not ELMo.")
    if not any(folder.glob(WEIGHTS)):
        raise FileNotFoundError(f"{folder} has no weights ({WEIGHTS}).")
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [name for name in names if name.name != CHECKSUMS and not any(part.startswith(".") for part in name.parts)]


def _write_weights(source: Path, target: Path, dtype: torch.dtype) -> None:
    with safe_open(source, framework="pt") as file:
        tensors = {name: _rounded(name, file.get_tensor(name), dtype) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, target, metadata=file.metadata())


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    rounded = tensor.to(dtype)
    if bool(rounded.isfinite().all()) or not bool(tensor.isfinite().all()):
        return rounded
    raise ValueError(
        f"{name} has the value {float(tensor.abs().max()):g}, which does not fit {dtype}: choose bfloat16."
    )


def _describe(folder: Path, dtype: str) -> None:
    """Says in the config what to compute in, in the index how much there is, and in the card what was done."""
    _change_json(folder / CONFIG, lambda config: config | {"dtype": "float32"})
    total = sum(path.stat().st_size for path in folder.glob(WEIGHTS))
    if (folder / INDEX).is_file():
        _change_json(folder / INDEX, lambda index: index | {"metadata": index["metadata"] | {"total_size": total}})
    if (folder / CARD).is_file():
        with open(folder / CARD, "a", encoding="utf-8") as card:
            card.write(
                f"\nThe weights are stored in {dtype} (`hf-elmo shrink`). They are computed with in float32 unless "
                "`from_pretrained` is given another `dtype`.\n"
            )


def _change_json(path: Path, change: Any) -> None:
    path.write_text(
        json.dumps(change(json.loads(path.read_text(encoding="utf-8"))), indent=2) + "\n", encoding="utf-8"
    )


def _distance(before: Path, after: Path) -> tuple[float, float]:
    """How far the vectors of all layers move, relative to their length: on average, and at most."""
    exact, rounded = (
        np.concatenate(
            ElmoEmbedder.from_pretrained(folder, device="cpu", dtype=torch.float32).encode(SENTENCES, "all"), axis=1
        )
        for folder in (before, after)
    )
    length = np.maximum(np.linalg.norm(exact, axis=2), np.finfo(np.float32).tiny)  # (L + 1, words)
    errors = np.linalg.norm(rounded - exact, axis=2) / length
    return float(errors.mean()), float(errors.max())


__all__ = ["ShrinkReport", "shrink"]
