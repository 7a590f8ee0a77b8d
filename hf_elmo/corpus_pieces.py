# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus as pieces of lines that fit into memory: of text files, or of the rows of a data set.

A piece knows which words `CorpusReader` reads in it, and where in the corpus a line of it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .data_set_rows import (
    ROWS_OF_A_BLOCK,
    Line,
    RowKind,
    kind_of_row,
    lines_of_row,
    replace_surrogates,
    rows_of,
    shown_value,
    streamed_blocks,
)
from .text_files import Lines, Part, cut_at_lines, find_lines, read_blocks, without_lines

PIECE_ROWS = 2**16

# Bytes that white space of any kind begins with in UTF-8.
BEGINS_SPACE = np.isin(np.arange(256), [*range(ord(" ") + 1), 0xC2, 0xE1, 0xE2, 0xE3])


class LeftOut(NamedTuple):
    """A row of a data set that is no text."""

    kind: RowKind
    row: int
    text: str


@dataclass
class Piece:
    """Some lines of a corpus.

    Args:
        data: The lines, in UTF-8.
        lines: Where they are in it.
        word_lists: The words of each line, if they were given so; else they are what white space parts.
        rows: Of a data set, the row that each line is of.
        num_rows: Of a data set, how many there are in the piece.
        left_out: Those of them that are no text.
    """

    data: bytes
    lines: Lines
    word_lists: list[list[str]] | None = None
    rows: np.ndarray | None = None
    num_rows: int = 0
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.data.decode("utf-8", errors="replace")

    def line(self, number: int) -> str:
        """The text of a line."""
        return self.data[self.lines.starts[number] : self.lines.ends[number]].decode("utf-8", errors="replace")

    def count_words(self) -> Counter[str]:
        """How often each word is there."""
        # A line end is white space, so the words of the piece are the words of its lines.
        return Counter(self.text.split() if self.word_lists is None else chain.from_iterable(self.word_lists))

    def num_words(self, number: int) -> int:
        """Words of a line."""
        return len(self.line(number).split() if self.word_lists is None else self.word_lists[number])

    def most_words(self, has_odd_spaces: bool) -> np.ndarray:
        """How many words each line has at most; other white space than ASCII's has to be known of."""
        if self.word_lists is not None:
            return np.array([len(words) for words in self.word_lists], dtype=np.int64)
        if not len(self.lines.starts):
            return self.lines.starts
        # As many as white space, line ends included; less where there is more than one between two words.
        characters = np.frombuffer(self.data, dtype=np.uint8)
        spaces = BEGINS_SPACE[characters] if has_odd_spaces else characters <= ord(" ")
        return np.add.reduceat(spaces, self.lines.starts, dtype=np.int64) + 1

    def find_word(self, word: str) -> int:
        """The first line that has a word, which is in the piece."""
        if self.word_lists is not None:
            return next(number for number, words in enumerate(self.word_lists) if word in words)
        start = self.text.index(word)
        while f" {self.text[max(start - 1, 0) : start + len(word) + 1]} ".split() != [word]:
            start = self.text.index(word, start + 1)
        return self.text.count("\n", 0, start)

    def row_and_line(self, number: int) -> tuple[int, int | None]:
        """Of a data set: the row of a line, and the line in the row, from 0, if it has more than one."""
        if self.rows is None:
            raise ValueError("The piece is not of a data set.")
        row = int(self.rows[number])
        first, end = np.searchsorted(self.rows, [row, row + 1]).tolist()
        return row, number - first if end - first > 1 else None

    def without(self, numbers: np.ndarray) -> "Piece":
        """The piece with these lines made empty."""
        data = without_lines(self.data, numbers)
        lines = find_lines(data)
        word_lists = self.word_lists
        if word_lists is not None:
            left_out = set(numbers.tolist())
            word_lists = [[] if number in left_out else words for number, words in enumerate(word_lists)]
            lines = _with_blank(lines, word_lists)
        return Piece(data, lines, word_lists, self.rows, self.num_rows, self.left_out)


def _with_blank(lines: Lines, word_lists: list[list[str]]) -> Lines:
    """The lines of lists, of which those without a word are blank: a word of white space is a word."""
    return lines._replace(blank=np.array([not words for words in word_lists], dtype=bool))


# --- Files -----------------------------------------------------------------------------------------------------------


def text_pieces(part: Part, block_bytes: int, piece_bytes: int) -> Iterator[Piece]:
    """The pieces of a part of a file."""
    for block in read_blocks(part, block_bytes):
        for data in cut_at_lines(block, piece_bytes):
            yield Piece(data, find_lines(data))


# --- Data sets -------------------------------------------------------------------------------------------------------


class RowPart(NamedTuple):
    """Rows of a data set that are looked at by one process."""

    start: int
    end: int
    bytes_on_disk: int  # as estimated: the number of processes depends on it


def cut_rows_into_parts(dataset: Any, column: str, part_bytes: int) -> list[RowPart]:
    """Parts of about this size, as far as the first rows tell."""
    count = len(dataset)
    sample = rows_of(dataset, column, 0, min(count, ROWS_OF_A_BLOCK))
    row_bytes = max(_text_size(sample) / max(len(sample), 1), 1.0)
    step = max(int(part_bytes / row_bytes), 1)
    starts = range(0, count, step)
    return [RowPart(start, min(start + step, count), int(min(step, count - start) * row_bytes)) for start in starts]


def blocks_of_part(dataset: Any, column: str, part: RowPart) -> Iterator[list[Any]]:
    """The column of the rows of a part, some at a time."""
    for start in range(part.start, part.end, ROWS_OF_A_BLOCK):
        yield rows_of(dataset, column, start, min(start + ROWS_OF_A_BLOCK, part.end))


class FirstRows:
    """The first rows of a streamed data set, some at a time; afterwards `complete` says whether these were all.

    Args:
        dataset: That is streamed.
        column: With text or lists of words.
        max_rows: How many to read.
        max_bytes: After how much text to stop earlier.
    """

    def __init__(self, dataset: Any, column: str, max_rows: int, max_bytes: int):
        self._blocks = streamed_blocks(dataset, column)
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self.complete = False

    def __iter__(self) -> Iterator[list[Any]]:
        rows, size = self._max_rows, self._max_bytes
        for block in self._blocks:
            if not rows or size <= 0:
                return
            yield block[:rows]
            if len(block) > rows:
                return
            rows -= len(block)
            size -= _text_size(block)
        self.complete = True


def row_pieces(blocks: Iterable[list[Any]], first: int, piece_bytes: int) -> Iterator[Piece]:
    """The pieces of blocks of rows that begin with the row number `first`."""
    rows: list[Any] = []
    size = 0
    for block in blocks:
        rows += block
        size += _text_size(block)
        if size >= piece_bytes or len(rows) >= PIECE_ROWS:
            yield _piece_of_rows(rows, first)
            first += len(rows)
            rows, size = [], 0
    if rows:
        yield _piece_of_rows(rows, first)


def _piece_of_rows(values: list[Any], first: int) -> Piece:
    lines: list[Line] = []
    rows: list[int] = []
    left_out = []
    for number, value in enumerate(values, start=first):
        kind = kind_of_row(value)
        if kind in ("missing", "not text"):
            left_out.append(LeftOut(kind, number, shown_value(value)))
            continue
        found = lines_of_row(value)
        lines += found
        rows += [number] * len(found)
    texts = [line if isinstance(line, str) else " ".join(line).replace("\n", " ") for line in lines]
    data = "".join(f"{text}\n" for text in texts).encode("utf-8", errors="surrogatepass")
    places = find_lines(data)
    word_lists = None
    if any(isinstance(line, list) for line in lines):
        for number in places.undecodable.tolist():
            lines[number] = replace_surrogates(lines[number])
        word_lists = [line.split() if isinstance(line, str) else line for line in lines]
        places = _with_blank(places, word_lists)
    return Piece(data, places, word_lists, np.array(rows, dtype=np.int64), len(values), left_out)


def _text_size(values: list[Any]) -> int:
    """About how much text there is in some rows."""
    size = 0
    for value in values:
        kind = kind_of_row(value)
        if kind in ("text", "words"):
            size += len(value) if kind == "text" else sum(map(len, value)) + len(value)
    return size
