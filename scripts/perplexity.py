# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how well a language model predicts a text: `hf-elmo perplexity`."""

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any, cast

import torch

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.checked_loading import stored_tensors
from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.messages import no_bars, reading_weights
from hf_elmo.perplexity import HOW, MAX_SENTENCE_WORDS, Perplexity, evaluate_perplexity
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.vocabulary import check_output

from .arguments import add_errors_argument, add_report_arguments, command_line


def load_language_model(folder: str | os.PathLike[str]) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """The model of a folder and its tokenizer; refuses a folder without the weights of the softmax."""
    load_config(folder)  # says what is wrong with a folder of something else
    if not any(name.startswith("softmax.") for name in stored_tensors(Path(folder))):
        raise ValueError(
            f"{folder} holds an encoder without a softmax, as published weights do, so it predicts no words. Train "
            f"one: hf-elmo pretrain --init_from {folder} --text ... --heldout ... --output ..., with --vocab if the "
            "folder has no vocabulary"
        )
    with reading_weights(folder):  # what is missing is told here
        loaded: Any = ElmoForPreTraining.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(f"{folder} lacks weights: {', '.join(missing[:5])}. Get the folder again.")
    return model, ElmoTokenizer.from_pretrained(folder)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "text",
        nargs="+",
        metavar="FILE",
        help="files, folders or patterns; a sentence a line, words between spaces; .gz, .xz and .zst are decompressed",
    )
    parser.add_argument(
        "--mode",
        choices=HOW,
        default="stream",
        help="; ".join(f"{mode}: {how}" for mode, how in HOW.items()) + " (default: %(default)s)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=32,
        metavar="N",
        help="read so many places of the text, or sentences, at a time; for a stream, this decides which sentence "
        "comes after which, and changes the result slightly (default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=20,
        metavar="N",
        help="read so many words of each place at a time; for a stream, as --rows (default: %(default)s)",
    )
    parser.add_argument("--max-words", type=int, metavar="N", help="end after about so many words (default: all)")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    parser.add_argument("--num-workers", type=int, default=0, metavar="N", help="processes that prepare the text")
    add_errors_argument(parser)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_output(arguments.json, arguments.overwrite)
    device = _device(arguments.device)
    with no_bars(arguments.quiet):
        model, tokenizer = load_language_model(model_folder(arguments.model))
        cast(torch.nn.Module, model).to(device)
        perplexity = evaluate_perplexity(
            model,
            tokenizer,
            arguments.text,
            mode=arguments.mode,
            rows=arguments.rows,
            steps=arguments.steps,
            max_words=arguments.max_words,
            errors=arguments.errors,
            num_workers=arguments.num_workers,
            show_progress=not arguments.quiet,
        )
    if not math.isfinite(perplexity.both):
        raise ValueError(f"The perplexity of {arguments.model} is {perplexity.both}: its weights are damaged.")
    print(f"model: {arguments.model}\n{perplexity}, on {device}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_record(arguments, perplexity), indent=1) + "\n", encoding="utf-8")


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _record(arguments: argparse.Namespace, perplexity: Perplexity) -> dict[str, Any]:
    """The figures and what they depend on."""
    return {
        "command": command_line("hf-elmo"),
        "model": arguments.model,
        "text": arguments.text,
        "softmax": "full",
        "rows": arguments.rows,
        "steps": arguments.steps,
        "max_words": arguments.max_words,
        **perplexity.to_dict(),
    }


PERPLEXITY = Command(
    description="Measures the perplexity of text under a language model, with the softmax over all words of its "
    "vocabulary: forward, backward, and both as the geometric mean of the two. Words that are not in the vocabulary "
    "count as <UNK>, so compare models only if they have the same vocabulary. With --mode sentences, those of more "
    f"than {MAX_SENTENCE_WORDS} words are cut. The test program of bilm-tf reads a stream with --rows 256 --steps 1.",
    examples="""  hf-elmo perplexity my-elmo heldout.txt
  hf-elmo perplexity my-elmo heldout.txt --rows 256 --steps 1
  hf-elmo perplexity my-elmo heldout/*.txt.gz --mode sentences --rows 64 --json perplexity.json""",
    add_arguments=_arguments,
    run=_run,
)
