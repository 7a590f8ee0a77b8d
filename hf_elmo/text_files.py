# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files, plain or compressed, to parts, blocks and lines; and many parts at once to results.

A plain file is cut at line ends into parts of bounded size, a compressed one is a part as a whole. A part is read in
blocks: one for a plain part, as many as it takes for a compressed one. Lines end at the byte `\\n`. Text is UTF-8; a
byte order mark at the begin of a file is no text.
"""

import codecs
import glob
import gzip
import importlib
import io
import lzma
import multiprocessing
import os
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from transformers.utils import logging

PathLike: TypeAlias = str | os.PathLike
ErrorPolicy: TypeAlias = Literal["replace", "skip", "stop"]
ERROR_POLICIES = ("replace", "skip", "stop")

COMPRESSED = (".gz", ".xz", ".zst")
BYTE_ORDER_MARK = codecs.BOM_UTF8
BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")

LONGEST_LINE = 2**24  # bytes; more is no sentence but a file of another kind
WORTH_A_PROCESS = 2**24  # bytes that take longer to read than a process to start
STEP = 2**20  # bytes that are read, counted or decoded at once


# --- Files -----------------------------------------------------------------------------------------------------------


def find_files(inputs: PathLike | Iterable[PathLike]) -> list[Path]:
    """The files that paths, folders and glob patterns name, sorted and each one once.

    Args:
        inputs: Files, folders (all files in them and below, without hidden ones) or patterns such as `text/*.gz`;
            `**` matches folders, too.
    """
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    if not given:
        raise ValueError("There is no text: name at least one file, folder or pattern.")
    found: dict[Path, Path] = {}
    for item in given:
        for path in _files_of(os.fspath(item)):
            found.setdefault(path.resolve(), path)
    return sorted(found.values())


def _files_of(item: str) -> list[Path]:
    path = Path(item)
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(path))]
        if not files:
            raise FileNotFoundError(f"{item}: there is no file in this folder.")
        return files
    if path.is_file():
        return [path]
    if path.exists():
        raise ValueError(f"{item} is neither a file nor a folder. Text is read more than once: write it to a file.")
    if not glob.has_magic(item):
        raise FileNotFoundError(f"{item} does not exist. Give a file, a folder or a pattern such as 'text/*.txt'.")
    files = [Path(match) for match in glob.glob(item, recursive=True) if os.path.isfile(match)]
    if not files:
        raise FileNotFoundError(f"{item}: no file matches this pattern.")
    return files


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def is_compressed(path: PathLike) -> bool:
    """Whether the extension says that the file is compressed."""
    return Path(path).suffix in COMPRESSED


@contextmanager
def open_text(path: PathLike) -> Iterator[BinaryIO]:
    """Opens a file for reading its bytes, decompressed as the extension says: `.gz`, `.xz` or `.zst`."""
    suffix = Path(path).suffix
    if suffix not in COMPRESSED:
        with open(path, "rb") as file:
            yield file
        return
    damages: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
    with open(path, "rb") as raw:
        content: Any
        if suffix == ".gz":
            content = gzip.GzipFile(fileobj=raw)
        elif suffix == ".xz":
            content = lzma.LZMAFile(raw)  # noqa: SIM115  # closed below, as the others are
        else:
            zstandard = _zstandard(path)
            damages = (*damages, zstandard.ZstdError)
            content = io.BufferedReader(_ZstandardFile(raw, zstandard))
        try:
            with content:
                yield content
        except damages as error:
            raise ValueError(f"{path} cannot be decompressed: {error}. Get or make it again.") from error


class _ZstandardFile(io.RawIOBase):
    """The content of a Zstandard file. The reader of the package takes a file that is cut short for complete."""

    def __init__(self, raw: BinaryIO, zstandard: Any):
        self._raw = raw
        self._zstandard = zstandard
        self._frame: Any = None
        self._input = self._output = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            self._input = self._input or self._raw.read(2**14)
            if not self._input:
                if self._frame is not None:
                    raise EOFError("the file ends within a frame")
                return 0
            self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
            self._output = self._frame.decompress(self._input)
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count


def _zstandard(path: PathLike) -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise ImportError(f'{path}: .zst files need the package zstandard: pip install "hf-elmo[train]".') from error


class Part(NamedTuple):
    """Text that is read at a time: bytes of a plain file, moved to the ends of lines, or all of a compressed one."""

    path: Path
    start: int
    end: int  # of the file as it is on disk
    size: int  # of the whole file, on disk

    @property
    def bytes_on_disk(self) -> int:
        return self.end - self.start


def cut_into_parts(files: Iterable[Path], part_bytes: int) -> list[Part]:
    """The parts of files: at most `part_bytes` of a plain one and what is left of its last line, else the whole."""
    parts = []
    for path in files:
        size = os.path.getsize(path)
        step = max(size, 1) if is_compressed(path) else part_bytes
        parts += [Part(path, start, min(start + step, size), size) for start in range(0, size, step)]
    return parts


def read_blocks(part: Part, block_bytes: int, keep_documents: bool = False) -> Iterator[bytes]:
    """The text of a part in blocks that end where a line ends, or a document if these are to be kept together."""
    if not is_compressed(part.path):
        yield _read_plain(part, keep_documents)
        return
    with open_text(part.path) as file:
        rest = _read_up_to(file, block_bytes + len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
        while data := _read_up_to(file, block_bytes):
            cut = _last_end(rest, keep_documents)
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
            elif not keep_documents:
                _check_line(part.path, len(rest))
            rest += data
    if rest:
        yield rest


def _read_up_to(file: BinaryIO, count: int) -> bytes:
    """That many bytes, less at the end of the file only."""
    pieces = []
    while count > 0 and (piece := file.read(min(count, STEP))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _last_end(data: bytes, keep_documents: bool) -> int:
    if not keep_documents:
        return data.rfind(b"\n") + 1
    end = 0
    # The last blank line is near the end; look there first.
    for begin in (max(len(data) - STEP, 0), 0):
        for match in BLANK_LINE.finditer(data, begin):
            end = match.end()
        if end:
            break
    return end


def _read_plain(part: Part, keep_documents: bool) -> bytes:
    with open(part.path, "rb") as file:
        start = _next_end(file, part, part.start, keep_documents)
        end = _next_end(file, part, part.end, keep_documents)
        file.seek(start)
        data = file.read(end - start)
    return data.removeprefix(BYTE_ORDER_MARK) if start == 0 else data


def _next_end(file: BinaryIO, part: Part, position: int, keep_documents: bool) -> int:
    """Where the first line, or document, begins that does not begin before this position."""
    if position in (0, part.size):
        return position
    base = position - 1
    file.seek(base)
    data = b""
    while piece := file.read(2**16):
        data += piece
        if keep_documents:
            match = BLANK_LINE.search(data)
            if match:
                return base + match.end()
            # Only a line end with nothing but white space behind it can become a match.
            last = data.rfind(b"\n")
            cut = len(data) if last < 0 or data[last:].strip() else last
            base, data = base + cut, data[cut:]
        else:
            newline = data.find(b"\n")
            if newline >= 0:
                return base + newline + 1
            _check_line(part.path, len(data))
    return part.size


def _check_line(path: Path, length: int) -> None:
    if length > LONGEST_LINE:
        raise ValueError(
            f"{path} has a line of more than {LONGEST_LINE:,} bytes. Text must have one sentence a line; is this text?"
        )


def count_lines_before(part: Part, keep_documents: bool = False) -> int:
    """Lines of the file before the part."""
    count = 0
    with open(part.path, "rb") as file:
        left = _next_end(file, part, part.start, keep_documents)
        file.seek(0)
        while left > 0 and (piece := file.read(min(left, STEP))):
            count += piece.count(b"\n")
            left -= len(piece)
    return count


# --- Lines -----------------------------------------------------------------------------------------------------------


def cut_at_lines(data: bytes, size: int) -> Iterator[bytes]:
    """The text in pieces of about this size that end where a line ends."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + size - 1) + 1 or len(data)
        yield data[start:end]
        start = end


class Lines(NamedTuple):
    """Where the lines of a block are, and which of them are not what they should be."""

    starts: np.ndarray
    ends: np.ndarray
    blank: np.ndarray  # of booleans: white space only
    undecodable: np.ndarray  # numbers of the lines that are not UTF-8, from 0


def find_lines(data: bytes) -> Lines:
    """The lines of a block."""
    characters = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(characters == ord("\n"))
    if len(characters) and characters[-1] != ord("\n"):
        newlines = np.append(newlines, len(characters))
    starts = np.append(0, newlines[:-1] + 1) if len(newlines) else newlines
    blank = newlines == starts
    # A line that begins with an ASCII sign has a word; only others need to be looked at one by one.
    first = characters[np.minimum(starts, max(len(characters) - 1, 0))] if len(starts) else characters
    for number in np.flatnonzero(~blank & ((first <= ord(" ")) | (first >= 127))):
        line = data[starts[number] : newlines[number]]
        blank[number] = not line.decode("utf-8", errors="replace").split()
    return Lines(starts, newlines, blank, _undecodable_lines(data, starts, newlines))


def without_lines(data: bytes, numbers: Iterable[int]) -> bytes:
    """The text with these lines, counted from 0, made empty."""
    left_out = set(map(int, numbers))
    return b"\n".join(b"" if number in left_out else line for number, line in enumerate(data.split(b"\n")))


def _undecodable_lines(data: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    if is_utf8(data):
        return np.empty(0, dtype=np.int64)
    pairs = enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
    return np.array([number for number, (start, end) in pairs if not is_utf8(data[start:end])], dtype=np.int64)


def check_error_policy(errors: str) -> None:
    """Raises if there is no such way to treat lines that are not UTF-8."""
    if errors not in ERROR_POLICIES:
        raise ValueError(f"errors is {errors!r}; choose one of {', '.join(map(repr, ERROR_POLICIES))}.")


def is_utf8(data: bytes) -> bool:
    """Whether these bytes are UTF-8; takes little memory for long ones."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), STEP):
            decoder.decode(data[start : start + STEP])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


# --- Many parts at once ----------------------------------------------------------------------------------------------


class Measured(Protocol):
    """Something to work at, of a known size."""

    @property
    def bytes_on_disk(self) -> int: ...


PartLike = TypeVar("PartLike", bound=Measured)
Result = TypeVar("Result")


def map_parts(
    function: Callable[[PartLike], Result],
    parts: Sequence[PartLike],
    processes: int | None = None,
    description: str = "",
    prepare: Callable[..., None] | None = None,
    prepare_with: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Results of a function for all parts, in their order, with a progress bar.

    Args:
        function: What a process does with a part. It must be importable, and so must what it returns.
        parts: Of files, or other work of known size.
        processes: How many to use; by default one for each processor, if there is much to read.
        description: For the progress bar.
        prepare: Called once in each process, before anything else.
        prepare_with: Arguments of `prepare`.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"The number of processes is {processes}; it must be 1 or more.")
    size = sum(part.bytes_on_disk for part in parts)
    if processes is None:
        processes = min(available_processors(), 1 + size // WORTH_A_PROCESS)
    processes = min(processes, len(parts))
    # The pool is made before the bar, whose thread would make forking unsafe.
    results: Iterator[Result]
    if processes > 1:
        method = multiprocessing.get_context(start_method())
        pool = ProcessPoolExecutor(processes, method, prepare, prepare_with)
        results = _in_processes(function, parts, processes, pool)
    else:
        if prepare is not None:
            prepare(*prepare_with)
        results = map(function, parts)
    with logging.tqdm(total=size, desc=description, unit="B", unit_scale=True, delay=1) as bar:
        for part, result in zip(parts, results, strict=True):
            yield result
            bar.update(part.bytes_on_disk)


def available_processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(
    function: Callable[[PartLike], Result], parts: Sequence[PartLike], processes: int, pool: ProcessPoolExecutor
) -> Iterator[Result]:
    todo = iter(parts)
    # A few more than are being worked at, so that nobody waits; not all, as results would pile up.
    waiting = deque(pool.submit(function, part) for part in islice(todo, 2 * processes))
    return _results(function, todo, waiting, pool)


def _results(
    function: Callable[[PartLike], Result],
    todo: Iterator[PartLike],
    waiting: deque[Future[Result]],
    pool: ProcessPoolExecutor,
) -> Iterator[Result]:
    try:
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(function, part) for part in islice(todo, 1))
    except BrokenProcessPool as error:
        raise OSError("A process that read text was killed, maybe for want of memory. Use fewer processes.") from error
    finally:
        pool.shutdown(cancel_futures=True)


def start_method() -> str:
    """Forking saves seconds of imports, and is safe while the process has one thread only."""
    tasks = "/proc/self/task"
    return "fork" if sys.platform == "linux" and os.path.isdir(tasks) and len(os.listdir(tasks)) == 1 else "spawn"
