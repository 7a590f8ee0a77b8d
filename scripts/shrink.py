# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The subcommand `hf-elmo shrink`."""

import argparse
from pathlib import Path

from hf_elmo.checked_loading import load_config
from hf_elmo.cli import Command
from hf_elmo.half_storage import HALF_PRECISIONS, shrink
from hf_elmo.messages import no_bars
from hf_elmo.shipped_model import MODEL_HELP, model_folder


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--dtype",
        choices=HALF_PRECISIONS,
        default="float16",
        help="float16 keeps more digits, bfloat16 holds larger numbers (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _run(arguments: argparse.Namespace) -> None:
    load_config(arguments.folder)  # says what is wrong with a folder of something else
    with no_bars(arguments.quiet):
        print(shrink(arguments.folder, arguments.output, arguments.dtype, arguments.overwrite))


SHRINK = Command(
    description="Writes a folder like another one, with the weights in half precision: half the size on the disk and "
    "on the Hub. The model is still computed with in float32, unless from_pretrained is asked for something else. "
    "How far the vectors of some sentences move is measured and printed.",
    examples="""  hf-elmo shrink elmo-original --output elmo-original-float16
  hf-elmo shrink run/model --dtype bfloat16 --output run/half""",
    add_arguments=_arguments,
    run=_run,
)
