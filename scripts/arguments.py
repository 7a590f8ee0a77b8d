# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands have."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from hf_elmo.text_files import ERROR_POLICIES


def add_errors_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--errors`, for commands that read text files."""
    parser.add_argument(
        "--errors",
        choices=ERROR_POLICIES,
        default="replace",
        help="lines that are not UTF-8: put U+FFFD for what is no text, leave the line out, or stop "
        "(default: %(default)s)",
    )


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`, `--overwrite` and `--quiet`, for commands that measure."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--overwrite", action="store_true", help="replace that file if it exists")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def command_line(program: str) -> str:
    """The command that is running, for a file of results: without the folders of this machine."""
    words = [os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv[1:]]
    return f"{program} {shlex.join(words)}".strip()
