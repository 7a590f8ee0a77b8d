# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores the mean state after a sentence with a model, for its sentences to start from: `hf-elmo warm-state`."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

import torch

import hf_elmo
from hf_elmo import ElmoEmbedder, ElmoPreTrainedModel, ElmoTokenizer
from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.corpus import CorpusReader
from hf_elmo.hub import CARD, check_place, finish_hub_folder, new_folder, save_model_files
from hf_elmo.messages import no_bars, reading_weights
from hf_elmo.model_card import _block, _code
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.warm_state import MAX_SENTENCES, WarmState, warm_state, with_warm_state

from .arguments import add_errors_argument, command_line
from .perplexity import _device

HEADING = "## Initial state"
NO_CARD = "---\nlibrary_name: transformers\ntags:\n- elmo\n- word-embeddings\n---\n\n# An ELMo model\n"


def load_as_saved(folder: str | os.PathLike[str]) -> ElmoPreTrainedModel:
    """The model of a folder, with its head, in the precision that it was saved in."""
    config = load_config(folder)
    names = config.architectures or ["ElmoModel"]
    model_class = getattr(hf_elmo, names[0], None)
    if not (isinstance(model_class, type) and issubclass(model_class, ElmoPreTrainedModel)):
        raise ValueError(f"{folder} holds a {names[0]}, which is no model of hf-elmo.")
    with reading_weights(folder):  # what is missing is told here
        loaded: Any = model_class.from_pretrained(folder, dtype="auto", use_safetensors=True, output_loading_info=True)
    model, report = loaded
    if report["missing_keys"]:
        raise ValueError(f"{folder} lacks weights: {', '.join(sorted(report['missing_keys'])[:5])}. Get them again.")
    return model.eval()


def card_with_state(card: str | None, state: WarmState, text: list[str], command: str) -> str:
    """The card of a model, with what its sentences start from; what was said of an earlier state goes."""
    report = state.report
    files = ", ".join(_code(os.path.basename(os.path.normpath(name))) for name in text)
    section = [
        HEADING,
        f"Every sentence starts from a stored state: the mean of the states after {report.counted:,} sentences of "
        f"{files} ({report.sentences:,} sentences with {report.words:,} words were read, as in training). "
        '`from_pretrained(..., initial_state="zero")` starts from zeros instead. Made with hf-elmo:',
        _block(command, "bash"),
    ]
    card = NO_CARD if card is None else card
    card = re.sub(rf"^{HEADING}\n.*?(?=^## |\Z)", "", card, flags=re.MULTILINE | re.DOTALL)
    added = "\n\n".join(section) + "\n\n"
    before, limits, after = card.partition("## Limits\n")
    return before + added + limits + after if limits else f"{card.rstrip()}\n\n{added.rstrip()}\n"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "text",
        nargs="+",
        metavar="TEXT",
        help="files, folders or patterns, like those that the model was trained on; a sentence a line in the order of "
        "the text, words between spaces; .gz, .xz and .zst are decompressed",
    )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--max-sentences",
        type=int,
        default=MAX_SENTENCES,
        metavar="N",
        help="read the first N sentences of the text (default: %(default)s)",
    )
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    add_errors_argument(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _run(arguments: argparse.Namespace) -> None:
    check_place(arguments.output, arguments.overwrite)
    if arguments.max_sentences < 1:
        raise ValueError(f"--max-sentences {arguments.max_sentences} is not possible: it must be 1 or more.")
    device = _device(arguments.device)
    with no_bars(arguments.quiet):
        state = state_of_text(arguments, arguments.model, arguments.text, arguments.max_sentences, device)
        _save(arguments, state)
    print(f"{state.report}, on {device}\nmodel with a warm state: {arguments.output}")


def state_of_text(
    arguments: argparse.Namespace, model: Path, text: list[str], max_sentences: int, device: torch.device
) -> WarmState:
    """The mean state that the first sentences of a text leave in a model, which is read in single precision."""
    load_config(model)  # says what is wrong with a folder of something else
    embedder = ElmoEmbedder.from_pretrained(model, device=device, dtype=torch.float32)
    sentences = CorpusReader(text, shuffle=False, epochs=1, errors=arguments.errors)
    return warm_state(
        embedder.model,
        embedder.tokenizer,
        sentences,
        max_sentences=max_sentences,
        show_progress=not arguments.quiet,
    )


def _save(arguments: argparse.Namespace, state: WarmState) -> None:
    model = with_warm_state(load_as_saved(arguments.model), state)
    tokenizer = ElmoTokenizer.from_pretrained(arguments.model)
    card = arguments.model / CARD
    with new_folder(arguments.output, arguments.overwrite) as folder:
        save_model_files(model, tokenizer, folder)
        text = card_with_state(
            card.read_text(encoding="utf-8") if card.is_file() else None,
            state,
            arguments.text,
            command_line("hf-elmo"),
        )
        finish_hub_folder(folder, text)


WARM_STATE = Command(
    description="Makes a folder with the same model whose sentences do not start from zeros, but from the state that "
    "a sentence of the text leaves on average, for each layer and direction. So the first words of a sentence are "
    "read as in the middle of a text, and still the same sentence has the same vectors everywhere. The text is read "
    "in its order with the state carried from sentence to sentence, as in training.",
    examples="""  hf-elmo warm-state my-elmo train.txt --output my-elmo-warm
  hf-elmo warm-state my-elmo corpus/*.txt.gz --max-sentences 50000 --output my-elmo-warm""",
    add_arguments=_arguments,
    run=_run,
)
