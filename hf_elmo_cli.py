# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The program `hf-elmo`, which is `hf_elmo/cli.py`, without waiting for torch where no command is run.

Importing `hf_elmo` imports torch and transformers, which takes seconds. The help, the version and mistakes in the name
of a command need neither. For them the modules of the package are found here as modules of `hf_elmo_cli`: `.cli` is
`hf_elmo/cli.py`, loaded without `hf_elmo/__init__.py`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

_package = find_spec("hf_elmo")
if _package is None or _package.submodule_search_locations is None:
    raise ImportError("The package hf_elmo is not installed: pip install hf-elmo")
__path__ = list(_package.submodule_search_locations)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-elmo` with these arguments, by default those of the process, and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    light = import_module(".cli", __name__)
    if not light.command_of(argv):
        light.parse(argv)  # shows the help or what is wrong, and ends the program
    return import_module("hf_elmo.cli").main(argv)
