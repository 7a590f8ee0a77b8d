# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What transformers shows and tells while it works, hidden or put into other words."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
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
    """Hides reports of what was missing or left out, where it is on purpose or told better, and leaves the setting."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@contextmanager
def reading_weights(name_or_path: str | os.PathLike[str], advice: str = "get the folder again") -> Iterator[None]:
    """The same while weights are loaded, and an error that a user understands if their file is damaged or missing."""
    with only_errors():
        try:
            yield
        except SafetensorError as error:
            raise ValueError(f"The weights of {name_or_path} cannot be read; {advice}. ({error})") from error
        except OSError as error:
            folder = Path(name_or_path)
            if not folder.is_dir() or any(folder.rglob("*.safetensors")):
                raise
            pickles = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth"))
            unread = f" ({pickles[0]} is a pickle, which can run code and is not read)" if pickles else ""
            raise FileNotFoundError(f"{folder} has no weights, model.safetensors{unread}; {advice}.") from error
