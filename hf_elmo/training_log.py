# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The log of a training run: a file of JSON lines that survives a kill and can be taken back to an earlier step.

A row is of training:

    {"step", "epoch", "words", "loss", "forward_loss", "backward_loss", "gradient_norm", "learning_rate",
     "words_per_second", "seconds"}

or of a measurement on held-out text:

    {"step", "heldout": {"forward_perplexity", "backward_perplexity", "perplexity", "words", "unknown_share",
     "seconds"}}

`loss` is what was trained on. With a sampled softmax it is no likelihood; the perplexities always are of all words.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

BLOCK = 2**16  # bytes; in which the end of the last complete line is searched


class TrainingLog:
    """Rows in a file, one JSON object a line, each with an integer `step`.

    A line is complete when its end is written. What a killed process left of a line is not read, and cut off before
    the next row is added. Numbers are read back as exactly those that were added, NaN and infinity among them.

    One process writes at a time.

    Args:
        path: The file; it is made by the first row.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row and hands it to the operating system, so that it outlives this process."""
        if not _is_row(row):
            raise ValueError(f"A row needs an integer 'step', but this is {dict(row)!r}.")
        line = json.dumps(dict(row)).encode() + b"\n"
        with open(self.path, "ab+") as file:
            _cut_torn_line(file)
            file.write(line)

    def read(self) -> list[dict[str, Any]]:
        """All rows in the order in which they were added; none if there is no file.

        Raises:
            ValueError: If a line is not a row; names it.
        """
        return [row for _, row in self._lines()]

    def keep_until(self, step: int) -> None:
        """Removes the rows after a step, so that a run that goes on from there logs no step twice.

        The file changes as a whole or not at all.
        """
        kept = b"".join(line for line, row in self._lines() if row["step"] <= step)
        if not self.path.exists() or self.path.stat().st_size == len(kept):
            return
        # The folder belongs to one run, so there is one such file at most, and the next call replaces what is left.
        temporary = self.path.with_name(f".{self.path.name}.partial")
        try:
            with open(temporary, "wb") as file:
                file.write(kept)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Complete lines as they are in the file, and what they say."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")[:-1]  # the last piece is empty or torn
        return [(line + b"\n", self._parse(line, number)) for number, line in enumerate(lines, start=1)]

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            row = None
        if not _is_row(row):
            raise ValueError(
                f"{self.path}, line {number}: this is not a JSON object with an integer 'step', but "
                f"{line[:60]!r}. Repair or remove the line, or move the file away."
            )
        return row


def _is_row(row: object) -> bool:
    return isinstance(row, Mapping) and isinstance(row.get("step"), int) and not isinstance(row["step"], bool)


def _cut_torn_line(file: BinaryIO) -> None:
    """Shortens the file to its last line end."""
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - BLOCK, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        file.truncate(end)


__all__ = ["TrainingLog"]
