# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a trained model in half precision, as it is shipped in the package.

The folder gets what `from_pretrained` reads and no copy of the code. Its config still asks for single precision, so
the weights become that again when they are loaded. Nothing is written if the folder would be too large, if a weight
does not fit half precision, or if the vectors of some sentences change by more than rounding does.

Examples:
    python -m hf_elmo.scripts.ship_model runs/mini/model --output hf_elmo/mini
    python -m hf_elmo.scripts.ship_model runs/mini/model --output hf_elmo/mini --card mini.md --overwrite
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hf_elmo.configuration_elmo import CODE_FILES
from hf_elmo.hub import CARD, check_place, finish_folder, new_folder
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .perplexity import load_language_model

LARGEST_FOLDER = 16_000_000  # bytes
LARGEST_DIFFERENCE = 0.02  # of vectors, whose numbers are about 1 and come from weights with a precision of 0.0005

SENTENCES = [
    "She sat down on the bank of the river and watched the boats .",
    "The bank lent them money at a rate of 4.5 per cent .",
    "Mr. O 'Neill won 't play in the second half , the coach said .",
    "Incomprehensibilities aside , the naïve 2018 model reads 조용한 강둑 , too .",
]


@dataclass(frozen=True)
class Shipped:
    """What was written.

    Args:
        folder: Where.
        parameters: How many weights.
        size: Bytes of the whole folder.
        difference: The largest difference of a number in the layers of some sentences, before and after.
    """

    folder: Path
    parameters: int
    size: int
    difference: float

    def __str__(self) -> str:
        return (
            f"{self.folder}: {self.parameters:,} weights in half precision, {self.size / 1e6:.2f} MB of "
            f"{LARGEST_FOLDER / 1e6:.0f} MB; vectors differ by at most {self.difference:.1e}"
        )


def ship_model(
    source: Path, output: Path, card: Path | None = None, overwrite: bool = False, largest: int = LARGEST_FOLDER
) -> Shipped:
    """Writes the model of a folder, with its softmax, in half precision.

    Args:
        source: The folder of a trained `ElmoForPreTraining` and its tokenizer.
        output: The folder to write.
        card: The model card, copied as README.md.
        overwrite: Whether an earlier result may be replaced.
        largest: Bytes that the folder may have.
    """
    check_place(output, overwrite)
    card_text = None if card is None else card.read_text(encoding="utf-8")
    model, tokenizer = load_language_model(source)
    module = cast(nn.Module, model)
    before = _layers(model, tokenizer)
    _round(module)
    difference = float((_layers(model, tokenizer) - before).abs().max())
    if not difference <= LARGEST_DIFFERENCE:
        raise ValueError(
            f"In half precision the vectors of {source} differ by {difference:.3g}; up to {LARGEST_DIFFERENCE} is "
            "rounding. Its weights are too large or damaged."
        )
    with new_folder(output, overwrite) as temporary:
        _write(module, tokenizer, temporary)
        if card_text is not None:
            (temporary / CARD).write_text(card_text, encoding="utf-8")
        finish_folder(temporary)
        size = sum(path.stat().st_size for path in temporary.iterdir())
        if size > largest:
            raise ValueError(
                f"The folder would have {size:,} bytes, but at most {largest:,} are shipped. Train a smaller model or "
                "vocabulary."
            )
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return Shipped(output, parameters, size, difference)


@torch.no_grad()
def _layers(model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> torch.Tensor:
    """All layers of the sentences (L + 1, B, T, D), in single precision."""
    batch = tokenizer(
        [sentence.split() for sentence in SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    module: Any = model.eval().float()
    return torch.stack(module.elmo(**batch, output_hidden_states=True).hidden_states)


@torch.no_grad()
def _round(module: nn.Module) -> None:
    """Rounds all weights to half precision; refuses those that it cannot hold."""
    for name, parameter in module.named_parameters():
        rounded = parameter.half()
        if not bool(rounded.isfinite().all()):
            raise ValueError(
                f"The weight {name} has a value of {float(parameter.abs().max()):.3g}, which half precision (up to "
                "65504) does not hold, or one that is not a number."
            )
        parameter.copy_(rounded)


def _write(module: Any, tokenizer: ElmoTokenizer, folder: Path) -> None:
    """Writes weights, config and tokenizer without the code, which the package has."""
    module.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in CODE_FILES:
        (folder / name).unlink(missing_ok=True)
    _edit(folder / "config.json", dtype="float32")
    _edit(folder / "tokenizer_config.json")


def _edit(path: Path, **values: Any) -> None:
    """Sets values of a JSON file, and removes what names code that is not beside it."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **values}
    content.pop("auto_map", None)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="FOLDER", help="of a trained model with its softmax")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="to write")
    parser.add_argument("--card", type=Path, metavar="FILE", help="the model card, which becomes its README.md")
    parser.add_argument("--overwrite", action="store_true", help="replace what this script wrote there before")
    arguments = parser.parse_args(argv)
    try:
        print(ship_model(arguments.source, arguments.output, arguments.card, arguments.overwrite))
    except (ValueError, OSError) as error:
        print(f"ship_model: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
