# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of a data set of `datasets` to lines of text: one rule for the reader and for the look through a corpus.

A row has a text, whose lines are sentences, or a list of words, which is one sentence, or `None`, which is no text.
Words of a list are taken as they are. Rows count from 0, as in `dataset[0]`.
"""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np

from .text_files import ErrorPolicy

RowKind: TypeAlias = Literal["text", "words", "missing", "not text"]
Line: TypeAlias = str | list[str]

ROWS_OF_A_BLOCK = 2**8  # that are in memory at the same time
SHOWN_CHARACTERS = 60


def is_data_set(source: Any) -> bool:
    """Whether this is a data set and not a path or several."""
    return not isinstance(source, (str, os.PathLike, list, tuple, set, frozenset, Iterator))


def load_data_set(name: str, config: str | None, split: str, streaming: bool = False) -> Any:
    """A part of the data set with this name, or in this folder."""
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split, streaming=streaming)
    except datasets.exceptions.DatasetGenerationError as error:  # its cause says what is wrong
        raise ValueError(
            f"The data set {name} cannot be read: {error.__cause__ or error}. If its files are damaged, or a column "
            "has values of different kinds, such as texts and numbers, correct them."
        ) from error


def check_column(dataset: Any, column: str) -> None:
    """Raises if the data set says that it has no such column; a streamed one may not know."""
    columns = getattr(dataset, "column_names", None)
    if columns is not None and column not in columns:
        raise ValueError(
            f"The data set has no column {column!r}; it has {', '.join(map(repr, columns))}. Choose one with text or "
            "with lists of words."
        )


def number_of_rows(dataset: Any) -> int | None:
    """How many rows there are; `None` if it is not known, as the data set can only be read from the begin."""
    return len(dataset) if hasattr(dataset, "__len__") else None


def rows_of(dataset: Any, column: str, start: int, end: int) -> list[Any]:
    """The column of some rows of a data set that is not streamed."""
    return list(dataset[start:end][column])


def streamed_blocks(dataset: Any, column: str, block_rows: int = ROWS_OF_A_BLOCK) -> Iterator[list[Any]]:
    """The column of all rows, some at a time, from the begin on."""
    rows = iter(dataset)
    first = 0
    while block := list(islice(rows, block_rows)):
        yield [_value(row, column, number) for number, row in enumerate(block, start=first)]
        first += len(block)


def _value(row: dict[str, Any], column: str, number: int) -> Any:
    if column not in row:
        raise ValueError(
            f"Row {number} of the data set has no column {column!r}; it has {', '.join(map(repr, row))}. Choose one "
            "with text or with lists of words."
        )
    return row[column]


def kind_of_row(row: Any) -> RowKind:
    """What a row has in the column."""
    if isinstance(row, str):
        return "text"
    if row is None:
        return "missing"
    is_list = isinstance(row, (list, tuple, np.ndarray))
    return "words" if is_list and all(isinstance(word, str) for word in row) else "not text"


def lines_of_row(row: Any) -> list[Line]:
    """The lines of a text, or the one sentence of a list of words."""
    if isinstance(row, str):
        return [*row.split("\n")]
    return [list(row)]


def shown_value(row: Any) -> str:
    """A value that is no text, with its type, in short; of a list the first item that is no word."""
    if isinstance(row, (list, tuple, np.ndarray)):
        item = next(item for item in row if not isinstance(item, str))
        return f"a list with {shown_value(item)}"
    return "None" if row is None else f"{type(row).__name__} {str(row)[:SHOWN_CHARACTERS]}"


def read_row(row: Any, number: int, column: str, errors: ErrorPolicy) -> list[Line]:
    """The lines of a row that are read, blank ones included.

    `errors` is about all that is no text. `None` is left out, unless it is to stop; numbers and the like are left out
    only if that is asked for (`"skip"`). A lone surrogate is treated as bytes of a file that are not UTF-8.
    """
    kind = kind_of_row(row)
    if kind == "missing" and errors != "stop":
        return []
    if kind in ("missing", "not text"):
        if errors == "skip":
            return []
        raise ValueError(
            f"Row {number} of the data set has {shown_value(row)} in the column {column!r}, which must have text or "
            "lists of words. Choose another column, remove such rows, or leave them out with errors='skip'."
        )
    lines = lines_of_row(row)
    if is_unicode(row):
        return lines
    if errors == "stop":
        raise ValueError(
            f"Row {number} of the data set has text that is not Unicode (a lone surrogate). Correct it, or choose "
            "errors='replace' (U+FFFD for what is no text) or errors='skip'."
        )
    return [replace_surrogates(line) for line in lines if errors == "replace" or is_unicode(line)]


def is_unicode(line: Line) -> bool:
    """Whether there is no lone surrogate."""
    try:
        (line if isinstance(line, str) else "".join(line)).encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(line: Line) -> Line:
    """The line with U+FFFD for what is no text, as it would be read from a file."""
    if isinstance(line, str):
        return line.encode("utf-8", errors="surrogatepass").decode("utf-8", errors="replace")
    return [str(replace_surrogates(word)) for word in line]
