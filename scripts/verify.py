# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks a model folder: `hf-elmo verify`."""

import argparse
import json

from hf_elmo.cli import Command
from hf_elmo.messages import no_bars
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.verify import check_folder
from hf_elmo.vocabulary import check_output

from .arguments import add_report_arguments, command_line


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help=MODEL_HELP)
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_output(arguments.json, arguments.overwrite)
    with no_bars(arguments.quiet):
        report = check_folder(model_folder(arguments.folder))
    print(report)
    if arguments.json is not None:
        record = {"command": command_line("hf-elmo"), **report.to_dict(), "folder": arguments.folder}
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not report.passed:
        raise ValueError(
            f"{arguments.folder} is not whole: {report.count('FAILED')} of {len(report.checks)} checks failed."
        )


VERIFY = Command(
    description="Checks the folder of a model, offline: whether its files are as its checksums say, whether the "
    "config is possible, whether its code is that of this package, whether it has exactly the weights that the model "
    "needs, all finite, whether the tokenizer fits the model, and whether some sentences can be read. The code of the "
    "folder is not run, and pickles are not read. Exits with 0 if nothing failed, also if there are warnings; "
    "otherwise with 1.",
    examples="""  hf-elmo verify elmo-small
  hf-elmo verify run/model --json verified.json""",
    add_arguments=_arguments,
    run=_run,
)
