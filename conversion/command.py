# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The subcommands `hf-elmo convert ...` and `hf-elmo export ...`."""

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.utils import logging

from hf_elmo.cli import Command
from hf_elmo.model_card import UNKNOWN_LICENSE

from .allennlp import convert_allennlp, export_allennlp


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--options", required=True, type=Path, metavar="FILE", help="the options.json")
    parser.add_argument("--weights", required=True, type=Path, metavar="FILE", help="the HDF5 file with the weights")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--vocab",
        type=Path,
        metavar="FILE",
        help="words, one a line, in bilm-tf's order; the vectors do not need them",
    )
    parser.add_argument(
        "--license",
        default=UNKNOWN_LICENSE,
        metavar="ID",
        help="licence of the weights for the model card, spelled as on the Hub: apache-2.0 (default: %(default)s)",
    )
    parser.add_argument(
        "--language",
        action="append",
        default=[],
        metavar="CODE",
        help="language of the training text for the model card, such as en; may be repeated",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="print the result only")


def _convert(arguments: argparse.Namespace) -> None:
    with _progress_bars(not arguments.quiet):
        report = convert_allennlp(
            arguments.options,
            arguments.weights,
            arguments.output,
            vocabulary=arguments.vocab,
            license=arguments.license,
            languages=tuple(arguments.language),
            overwrite=arguments.overwrite,
            progress=None if arguments.quiet else _tell,
        )
    print(report)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the model folder")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="where to write the two files")
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")
    parser.add_argument("--quiet", action="store_true", help="print the result only")


def _export(arguments: argparse.Namespace) -> None:
    with _progress_bars(not arguments.quiet), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        report = export_allennlp(arguments.folder, arguments.output, overwrite=arguments.overwrite)
    for warning in caught:
        _tell(f"warning: {warning.message}")
    print(report)


def _tell(text: str) -> None:
    print(f"hf-elmo: {text}", file=sys.stderr, flush=True)


@contextmanager
def _progress_bars(shown: bool) -> Iterator[None]:
    """Shows or hides the bars of transformers, and leaves that setting as it was."""
    before = logging.is_progress_bar_enabled()
    if not shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if before and not shown:
            logging.enable_progress_bar()


CONVERT_ALLENNLP = Command(
    description="Converts the weights of AllenNLP or bilm-tf (options.json and HDF5) to a folder for the Hub, and "
    "verifies it.",
    examples="""  hf-elmo convert allennlp --options options.json --weights weights.hdf5 --output elmo-small
  hf-elmo convert allennlp --options options.json --weights weights.hdf5 --output elmo-small \\
      --license apache-2.0 --language en""",
    add_arguments=_convert_arguments,
    run=_convert,
)

EXPORT_ALLENNLP = Command(
    description="Writes options.json and weights.hdf5, which AllenNLP and bilm-tf read, from a model folder.",
    examples="  hf-elmo export allennlp elmo-small --output allennlp-files",
    add_arguments=_export_arguments,
    run=_export,
)
