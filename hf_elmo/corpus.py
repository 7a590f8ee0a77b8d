# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretraining text: files to sentences, in a shuffled order that a small state can continue.

A line is a sentence; its words are what white space parts. Lines of white space only are no sentences; they end a
document. The order of an epoch is a pure function of the text, the seed and the epoch: all files are cut into small
pieces, these are shuffled, and so are the sentences, or documents, of as many of them as fit into the buffer. So a
buffer has something of every file, though files may differ in kind. Compressed files cannot be cut; they are read one
after the other.
"""

import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .data_set_rows import (
    ROWS_OF_A_BLOCK,
    Line,
    check_column,
    kind_of_row,
    number_of_rows,
    read_row,
    rows_of,
    streamed_blocks,
)
from .text_files import (
    ErrorPolicy,
    Lines,
    check_error_policy,
    count_lines_before,
    cut_into_parts,
    find_files,
    find_lines,
    read_blocks,
)

logger = logging.getLogger(__name__)

BUFFER_BYTES = 2**26  # text that is shuffled as a whole
PIECES_OF_A_BUFFER = 2**8
SMALLEST_PIECE = 2**12
LISTED = 100  # undecodable lines of a file that are named
STATE_VERSION = 2
RESTORE = "Restore the corpus, or begin a new run."


# --- Blocks of sentences ---------------------------------------------------------------------------------------------


@dataclass
class Undecodable:
    """Lines of a file that are not UTF-8: how many, and the numbers of the first of them, from 1."""

    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, numbers: Sequence[int]) -> None:
        self.count += len(numbers)
        self.lines += list(numbers)[: LISTED - len(self.lines)]


class _TextBlock:
    """The sentences of a block of text."""

    def __init__(self, data: bytes, lines: Lines, errors: ErrorPolicy):
        self._data = data
        is_sentence = ~lines.blank
        if errors == "skip":
            is_sentence[lines.undecodable] = False
        self._starts, self._ends = lines.starts[is_sentence], lines.ends[is_sentence]
        self.documents = np.cumsum(lines.blank)[is_sentence]  # a number for each sentence, equal in a document
        self.size = len(data)
        self.checksum = zlib.crc32(data)

    def __len__(self) -> int:
        return len(self._starts)

    def words(self, number: int) -> list[str]:
        return self._data[self._starts[number] : self._ends[number]].decode("utf-8", errors="replace").split()


class _RowBlock:
    """The sentences of some rows of a data set, from the row number `first` on; a row is a document."""

    def __init__(self, rows: Sequence[Any], first: int, column: str, errors: ErrorPolicy):
        self._sentences: list[Line] = []
        documents = []
        checksum = self.size = 0
        self.left_out: list[int] = []  # numbers of rows that are no text
        for number, row in enumerate(rows, start=first):
            for sentence in read_row(row, number, column, errors):
                if sentence.split() if isinstance(sentence, str) else sentence:
                    self._sentences.append(sentence)
                    documents.append(number - first)
            if isinstance(row, str):
                text = row
            elif kind_of_row(row) == "words":
                text = "\n".join(row)
            else:
                text = repr(row)
                self.left_out.append(number)
            checksum = zlib.crc32(text.encode("utf-8", errors="surrogatepass"), checksum)
            self.size += len(text)
        self.documents = np.array(documents, dtype=np.int64)
        self.checksum = checksum

    def __len__(self) -> int:
        return len(self._sentences)

    def words(self, number: int) -> list[str]:
        sentence = self._sentences[number]
        return sentence.split() if isinstance(sentence, str) else sentence


_Block: TypeAlias = _TextBlock | _RowBlock


class _Buffer:
    """The sentences of several blocks together."""

    def __init__(self, blocks: list[_Block]):
        self._blocks = blocks
        lengths = [len(block) for block in blocks]
        self._firsts = np.cumsum([0, *lengths])  # the number of the first sentence of each block
        of_block = np.repeat(np.arange(len(blocks)), lengths)
        within = np.concatenate([block.documents for block in blocks]) if blocks else np.empty(0, dtype=np.int64)
        self.documents = of_block * (within.max(initial=0) + 1) + within
        self.checksum = zlib.crc32(repr([block.checksum for block in blocks]).encode())

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def words(self, number: int) -> list[str]:
        block = int(np.searchsorted(self._firsts, number, side="right")) - 1
        return self._blocks[block].words(number - int(self._firsts[block]))


class _TextSource:
    """Text files as parts and blocks."""

    def __init__(self, files: list[Path], errors: ErrorPolicy, buffer_bytes: int, keep_documents: bool):
        self.files = files
        self.undecodable: dict[str, Undecodable] = {}
        self._errors: ErrorPolicy = errors
        self._buffer_bytes = buffer_bytes
        self._keep_documents = keep_documents
        piece = max(buffer_bytes // PIECES_OF_A_BUFFER, min(buffer_bytes, SMALLEST_PIECE))
        self._parts = cut_into_parts(files, piece)
        self._reported: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._parts)

    def blocks(self, part: int) -> Iterator[_Block]:
        lines_before = 0
        for number, data in enumerate(read_blocks(self._parts[part], self._buffer_bytes, self._keep_documents)):
            lines = find_lines(data)
            if len(lines.undecodable) and (part, number) not in self._reported:
                self._report(part, number, lines_before, lines)
            lines_before += len(lines.starts)
            yield _TextBlock(data, lines, self._errors)

    def _report(self, part: int, block: int, lines_before: int, lines: Lines) -> None:
        path = self._parts[part].path
        lines_before += count_lines_before(self._parts[part], self._keep_documents)
        numbers = (lines.undecodable + lines_before + 1).tolist()
        if self._errors == "stop":
            raise ValueError(
                f"{path}, line {numbers[0]}: this is not UTF-8 (lines like this in the same block: {len(numbers)}). "
                "Convert the file, or choose errors='replace' (U+FFFD for what is no text) or errors='skip'."
            )
        if str(path) not in self.undecodable:
            logger.warning("%s, line %d: not UTF-8 (errors=%r); there may be more", path, numbers[0], self._errors)
        self.undecodable.setdefault(str(path), Undecodable()).add(numbers)
        self._reported.add((part, block))

    def fingerprint(self) -> list[list[Any]]:
        """For each file its name below the folder that all are in, its size, and a checksum of its begin and end."""
        folder = os.path.commonpath([path.resolve().parent for path in self.files])
        return [
            [path.resolve().relative_to(folder).as_posix(), os.path.getsize(path), _ends_checksum(path)]
            for path in self.files
        ]


def _ends_checksum(path: Path) -> int:
    with open(path, "rb") as file:
        checksum = zlib.crc32(file.read(2**14))
        file.seek(max(os.path.getsize(path) - 2**14, 0))
        return zlib.crc32(file.read(2**14), checksum)


class _DatasetSource:
    """A data set of `datasets` as parts and blocks: by rows, or as one part if it can only be read from the begin."""

    def __init__(self, dataset: Any, column: str, errors: ErrorPolicy):
        check_column(dataset, column)
        self._dataset = dataset
        self._column = column
        self._errors: ErrorPolicy = errors
        self._rows = number_of_rows(dataset)
        self._left_some_out = False
        self.undecodable: dict[str, Undecodable] = {}

    def __len__(self) -> int:
        return 1 if self._rows is None else -(-self._rows // ROWS_OF_A_BLOCK)

    def blocks(self, part: int) -> Iterator[_Block]:
        if self._rows is not None:
            start = part * ROWS_OF_A_BLOCK
            end = min(start + ROWS_OF_A_BLOCK, self._rows)
            yield self._block(rows_of(self._dataset, self._column, start, end), start)
            return
        for number, rows in enumerate(streamed_blocks(self._dataset, self._column, ROWS_OF_A_BLOCK)):
            yield self._block(rows, number * ROWS_OF_A_BLOCK)

    def _block(self, rows: list[Any], first: int) -> _RowBlock:
        block = _RowBlock(rows, first, self._column, self._errors)
        if block.left_out and not self._left_some_out:
            self._left_some_out = True
            logger.warning("data set, row %d: left out, as it is no text; there may be more", block.left_out[0])
        return block

    def fingerprint(self) -> list[list[Any]]:
        return [["data set", self._rows, getattr(self._dataset, "_fingerprint", None)]]


# --- The reader ------------------------------------------------------------------------------------------------------


class CorpusReader:
    """Gives the sentences of a corpus, lists of words, in an order that depends on the text, the seed and the epoch.

    The order is one for all processes and workers; each takes its groups of sentences from it in turn. With
    `group_size` set to the sentences of a batch, the batches of a `DataLoader` are the same for any number of workers.

    `state_dict()` is the position after the sentences that the processes got with the last one given here, so it is
    the same for processes that took as many. It fits any number of processes and workers. With workers, it has to be
    taken by the worker and to travel with the batch, as workers run ahead of training.

    Args:
        source: Files, folders and patterns (see `find_files`), or a data set of `datasets`, streamed or not.
        column: For a data set, the column with the text (one sentence a line) or with lists of words.
        seed: Of the order.
        shuffle: Whether to shuffle at all.
        keep_documents: Keep the sentences of a document, which ends at a blank line, together and in their order. A
            row of a data set is a document.
        epochs: After how many to end; by default never.
        errors: What to do with lines that are not UTF-8. `"replace"` puts U+FFFD in place of what is no text,
            `"skip"` leaves the line out, `"stop"` raises. `undecodable` lists them in any case. Rows of a data set
            that are `None` are left out, too, unless it is `"stop"`; other values that are no text raise, unless it
            is `"skip"`.
        buffer_bytes: Text that is held in memory and shuffled at a time.
        rank: Of this process.
        world_size: Number of processes.
        worker: Of this worker of the process.
        num_workers: Number of workers of each process.
        group_size: Sentences that a process takes in turn.

    Attributes:
        epoch: Number of the epoch at the position, from 0.
        starts_document: Whether the sentence given last is the first of its document (with `keep_documents`).

    Example:
        >>> reader = CorpusReader("text/*.txt", seed=1)  # doctest: +SKIP
        >>> next(reader)  # doctest: +SKIP
        ['A', 'sentence', '.']
    """

    def __init__(
        self,
        source: Any,
        *,
        column: str = "text",
        seed: int = 0,
        shuffle: bool = True,
        keep_documents: bool = False,
        epochs: int | None = None,
        errors: ErrorPolicy = "replace",
        buffer_bytes: int = BUFFER_BYTES,
        rank: int = 0,
        world_size: int = 1,
        worker: int = 0,
        num_workers: int = 1,
        group_size: int = 1,
    ):
        check_error_policy(errors)
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must not be negative.")
        if buffer_bytes < 1 or group_size < 1:
            raise ValueError(f"buffer_bytes={buffer_bytes} and group_size={group_size} must be 1 or more.")
        for name, number, count in (("rank", rank, world_size), ("worker", worker, num_workers)):
            if not 0 <= number < count:
                raise ValueError(f"{name} is {number}, but it must be from 0 to {count - 1}, as there are {count}.")
        self._source: _TextSource | _DatasetSource
        if _is_paths(source):
            self._source = _TextSource(find_files(source), errors, buffer_bytes, keep_documents)
        else:
            self._source = _DatasetSource(source, column, errors)
        self._seed = seed
        self._order_settings: dict[str, Any] = {
            "seed": seed,
            "shuffle": shuffle,
            "keep_documents": keep_documents,
            "errors": errors,
            "buffer_bytes": buffer_bytes,
        }
        self._epochs = epochs
        self._rank, self._world_size = rank, world_size
        self._worker, self._num_workers = worker, num_workers
        # A group is of no consequence where nobody else takes any.
        self._group_size = group_size if world_size * num_workers > 1 else 1
        self._fingerprint = self._source.fingerprint()
        self.starts_document = False
        self._move_to(epoch=0, part=0, block=0, sentence=0, before=0)

    # The position is: the epoch, where the buffer begins (the part in the order of the epoch, and the block of the
    # part), the sentence in the order of the buffer, and for the counting the epoch's sentences before the buffer.

    def _move_to(self, epoch: int, part: int, block: int, sentence: int, before: int) -> None:
        self.epoch = epoch
        self._part, self._block, self._sentence, self._before = part, block, sentence, before
        self._part_order = self._permutation(len(self._source), epoch)
        self._next = (part, block)  # what comes after the buffer
        self._blocks: Iterator[_Block] | None = None
        self._buffer: _Buffer | None = None
        self._to_skip = (self._worker * self._world_size + self._rank) * self._group_size
        self._taken = 0

    @property
    def files(self) -> list[Path]:
        """The files that are read, none for a data set."""
        return self._source.files if isinstance(self._source, _TextSource) else []

    @property
    def undecodable(self) -> dict[str, Undecodable]:
        """For each file the lines that are not UTF-8, as far as they have been met."""
        return self._source.undecodable

    @property
    def sentences_read(self) -> int:
        """Sentences of this epoch before the position, those of other processes and workers included."""
        return self._before + self._sentence

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        if self._taken == 0:
            self._skip(self._to_skip)
            self._to_skip = 0
        buffer = self._settle()
        if buffer is None:
            self._taken = 0
            raise StopIteration
        number = int(self._order[self._sentence])
        words = buffer.words(number)
        self.starts_document = number == 0 or bool(buffer.documents[number] != buffer.documents[number - 1])
        self._sentence += 1
        self._taken += 1
        if self._taken == self._group_size:
            self._taken = 0
            self._skip((self._world_size - 1 - self._rank) * self._group_size)
            others = (self._num_workers - 1) * self._world_size
            self._to_skip = (others + self._rank) * self._group_size
        return words

    def _skip(self, count: int) -> None:
        while count > 0 and (buffer := self._settle()) is not None:
            step = min(count, len(buffer) - self._sentence)
            self._sentence += step
            count -= step

    def _settle(self) -> _Buffer | None:
        """The buffer of the next sentence; the position is moved on to it. `None` at the end of the last epoch."""
        while self._epochs is None or self.epoch < self._epochs:
            buffer = self._current_buffer()
            if self._sentence < len(buffer):
                return buffer
            self._before += self._sentence
            self._sentence = 0
            self._buffer = None
            (self._part, self._block) = self._next
            if self._part >= len(self._source):
                if self._before == 0:
                    raise ValueError("There is no sentence in the corpus: all files are empty or hold white space.")
                self._move_to_epoch(self.epoch + 1)
        return None

    def _move_to_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._part = self._block = self._before = 0
        self._next = (0, 0)
        self._part_order = self._permutation(len(self._source), epoch)

    def _current_buffer(self) -> _Buffer:
        if self._buffer is None:
            blocks: list[_Block] = []
            room = self._order_settings["buffer_bytes"]
            while room > 0 and (block := self._next_block()) is not None:
                blocks.append(block)
                room -= block.size
            self._buffer = _Buffer(blocks)
            self._order = self._order_of(self._buffer)
        return self._buffer

    def _next_block(self) -> _Block | None:
        """The block after the buffer, `None` at the end of the epoch."""
        part, number = self._next
        while part < len(self._source):
            if self._blocks is None:
                self._blocks = self._source.blocks(int(self._part_order[part]))
                for _ in range(number):
                    next(self._blocks, None)
            block = next(self._blocks, None)
            if block is not None:
                self._next = (part, number + 1)
                return block
            part, number, self._blocks = part + 1, 0, None
        self._next = (part, number)
        return None

    def _order_of(self, buffer: _Buffer) -> np.ndarray:
        numbers = (self.epoch, self._part, self._block)
        if not self._order_settings["keep_documents"]:
            return self._permutation(len(buffer), *numbers)
        _, documents = np.unique(buffer.documents, return_inverse=True)
        count = int(documents[-1]) + 1 if len(documents) else 0
        places = np.empty(count, dtype=np.int64)
        places[self._permutation(count, *numbers)] = np.arange(count)
        return np.argsort(places[documents], kind="stable")

    def _permutation(self, count: int, *numbers: int) -> np.ndarray:
        """An order of `count` things that the seed and these numbers determine."""
        if not self._order_settings["shuffle"]:
            return np.arange(count)
        # Of numpy's random numbers, only the raw ones are promised to be the same in all versions.
        raw = np.random.PCG64([self._seed, len(numbers), *numbers]).random_raw(count)
        return np.argsort(raw, kind="stable")

    def state_dict(self) -> dict[str, Any]:
        """The position, as something that JSON can hold."""
        if self._taken:
            raise ValueError(
                f"{self._taken} sentences of a group of {self._group_size} have been taken. With several processes or "
                "workers, there is a position between groups only: take the state then."
            )
        is_over = self._epochs is not None and self.epoch >= self._epochs
        return {
            "version": STATE_VERSION,
            **self._order_settings,
            "epoch": self.epoch,
            "part": self._part,
            "block": self._block,
            "sentence": self._sentence,
            "before": self._before,
            "checksum": None if is_over else self._current_buffer().checksum,
            "files": self._fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state_dict` gave, for the same text and settings."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"The state has version {state.get('version')!r}; this program reads version {STATE_VERSION}. Go on "
                "with the version of hf-elmo that saved it, or begin a new run."
            )
        for name, value in self._order_settings.items():
            if state[name] != value:
                raise ValueError(
                    f"The state was saved with {name}={state[name]!r}, but the reader has {name}={value!r}: the order "
                    "of sentences would be another. Use the same."
                )
        self._check_files(state["files"])
        self._move_to(
            *(state[name] for name in ("epoch", "part", "block", "sentence", "before")),
        )
        if state["checksum"] is not None and self._current_buffer().checksum != state["checksum"]:
            raise ValueError(f"The corpus has changed since the state was saved: the text is another. {RESTORE}")

    def _check_files(self, saved: list[list[Any]]) -> None:
        before, now = ({name: tuple(rest) for name, *rest in files} for files in (saved, self._fingerprint))
        for name in sorted({*before, *now}):
            if name not in now:
                raise ValueError(f"{name} was in the corpus when the state was saved and is missing now. {RESTORE}")
            if name not in before:
                raise ValueError(f"{name} was not in the corpus when the state was saved. {RESTORE}")
            if before[name] != now[name]:
                raise ValueError(
                    f"{name} has changed since the state was saved: it had {before[name][0]} bytes or rows and has "
                    f"{'as many, but other ones' if before[name][0] == now[name][0] else now[name][0]}. {RESTORE}"
                )


def _is_paths(source: Any) -> bool:
    if isinstance(source, (str, os.PathLike)):
        return True
    return isinstance(source, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in source)


__all__ = ["CorpusReader", "Undecodable", "find_files"]
