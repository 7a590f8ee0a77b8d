# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws sentences from a language model: `hf-elmo sample`."""

import argparse
import json
from pathlib import Path

from hf_elmo.cli import Command
from hf_elmo.vocabulary import check_output

from .arguments import add_report_arguments, command_line
from .score import add_model_arguments, as_text, load_model


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what the sentences begin with")
    parser.add_argument("--num-samples", type=int, default=5, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--max-words", type=int, default=50, metavar="N", help="draw at most so many words (default: %(default)s)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="X",
        help="divide log-probabilities by this; below 1, probable words come even more often (default: %(default)s)",
    )
    parser.add_argument("--top-k", type=int, metavar="N", help="draw from the best N words; 1: always the best")
    parser.add_argument(
        "--top-p", type=float, metavar="X", help="draw from the best words that have this share of the probability"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same gives the same (default: %(default)s)"
    )
    parser.add_argument("--allow-unknown", action="store_true", help="let <UNK> be drawn, too")
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_output(arguments.json, arguments.overwrite)
    model, tokenizer = load_model(arguments)
    samples = model.sample(
        tokenizer,
        as_text(arguments.prompt, arguments),
        num_samples=arguments.num_samples,
        max_words=arguments.max_words,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
        allow_unknown=arguments.allow_unknown,
    )
    for sample in samples:
        print(sample.text if sample.ended else f"{sample.text} ...")
    if arguments.json is not None:
        record = {
            "command": command_line("hf-elmo"),
            "model": Path(arguments.model).name,
            "samples": [sample.to_dict() for sample in samples],
        }
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


SAMPLE = Command(
    description="Draws sentences from the forward direction of a language model, word by word, until the end of the "
    "sentence. One that has reached --max-words before is shown with ... behind it.",
    examples="""  hf-elmo sample my-elmo
  hf-elmo sample my-elmo --prompt "The old man" --num-samples 20 --top-p 0.9 --seed 3
  hf-elmo sample my-elmo --temperature 0.7 --top-k 50 --max-words 30 --json samples.json""",
    add_arguments=_arguments,
    run=_run,
)
