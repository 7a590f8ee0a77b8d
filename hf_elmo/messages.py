# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What transformers shows and tells while it works, switched off for a part of a program."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def no_bars(hidden: bool = True) -> Iterator[None]:
    """Hides progress bars, if that is asked for, and leaves the setting as it was."""
    hidden = hidden and logging.is_progress_bar_enabled()
    if hidden:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if hidden:
            logging.enable_progress_bar()


@contextmanager
def only_errors() -> Iterator[None]:
    """Tells errors only, where what a load report would say is on purpose or told better, and leaves the setting."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
