# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows how much of each layer trained models use: `hf-elmo layers`."""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.messages import no_bars, reading_weights
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.pictures import check_matplotlib, plot_layer_weights
from hf_elmo.shipped_model import MINI_NAME, model_folder, name_of_folder
from hf_elmo.vocabulary import check_output

from .arguments import command_line


@dataclass(frozen=True)
class Mix:
    """How a model combines its layers.

    Args:
        name: Of the model, and of the mix if it has several.
        weights: Of the layers, from 0; they sum up to 1.
        gamma: What the sum is multiplied by.
        learned: Whether they are the result of training. In a model without a task, all layers have the same weight.
    """

    name: str
    weights: list[float]
    gamma: float
    learned: bool


def read_mixes(folder: Path, name: str) -> list[Mix]:
    """The mixes of the model in a folder; most models have one."""
    config = load_config(folder)
    if not config.use_elmo:
        raise ValueError(f"{folder} holds a model without ELMo (use_elmo=False), which has no layers to mix.")
    with reading_weights(folder):  # a head is left out on purpose
        model: Any = ElmoModel.from_pretrained(folder, use_safetensors=True)
    count = len(model.mixes) or 1
    mixes = []
    for number in range(count):
        weights, gamma = (values.detach() for values in model.layer_weights(number))
        is_fresh = bool((weights == weights[0]).all()) and gamma == 1
        label = name if count == 1 else f"{name}, mix {number + 1}"
        learned = config.layer_combination == "mix" and not is_fresh
        mixes.append(Mix(label, weights.tolist(), gamma.item(), learned))
    return mixes


def names_of(folders: list[Path]) -> list[str]:
    """Short names, or the whole paths if two would be called the same."""
    short = [name_of_folder(folder) for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _table(mixes: list[Mix]) -> str:
    width = max(len(mix.name) for mix in mixes)
    layers = max(len(mix.weights) for mix in mixes)
    lines = [f"{'':{width}}  " + "  ".join(f"layer {layer}" for layer in range(layers)) + "    gamma"]
    for mix in mixes:
        shown = [f"{weight:7.3f}" for weight in mix.weights] + [" " * 7] * (layers - len(mix.weights))
        note = "" if mix.learned else "  (not learned)"
        lines.append(f"{mix.name:{width}}  {'  '.join(shown)}  {mix.gamma:7.3f}{note}")
    return "\n".join(lines)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        type=model_folder,
        metavar="FOLDER",
        help=f"of a model, best one that was trained on a task; {MINI_NAME} is the one in the package",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the weights there, as a heat map")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the weights there")
    parser.add_argument("--overwrite", action="store_true", help="replace these files if they exist")


def _run(arguments: argparse.Namespace) -> None:
    for output in filter(None, (arguments.json, arguments.plot)):
        check_output(output, arguments.overwrite)
    if arguments.plot is not None:
        check_matplotlib()
    names = names_of(arguments.models)
    with no_bars():
        mixes = [mix for folder, name in zip(arguments.models, names, strict=True) for mix in read_mixes(folder, name)]
    if arguments.plot is not None:
        plot_layer_weights({mix.name: mix.weights for mix in mixes}, arguments.plot)
    print(_table(mixes))
    if arguments.json is not None:
        record = {"command": command_line("hf-elmo"), "mixes": [asdict(mix) for mix in mixes]}
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        print(f"picture: {arguments.plot}")


LAYERS = Command(
    description="Shows how much of each layer trained models use: the normalised weights of their mix, and gamma. A "
    "model that was not trained on a task weighs all layers the same.",
    examples="""  hf-elmo layers ner/model
  hf-elmo layers ner/model pos/model sst/model --plot layers.png --json layers.json""",
    add_arguments=_arguments,
    run=_run,
)
