# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of vectors: safetensors, HDF5 as the old `allennlp elmo` command wrote it, Parquet and npz.

The first line of a text has the number 0. What the formats hold:

- safetensors: a tensor for each sentence, named by its number; in the metadata `words` and `texts`, JSON lists.
- HDF5: a dataset for each sentence, named by its number; `sentence_to_index`, a JSON object from sentence to number.
- Parquet: a row for each sentence, with the columns `index`, `text`, `words` and `vectors`, or `layer_0` and so on.
- npz: an array for each sentence, named by its number; `words`, a JSON list.

Vectors are (words, D), or (layers, words, D) for all layers, or (D,) and (layers, D) if they are pooled. Writers take
one sentence after the other and keep no vectors in memory. A file has its name only when it is complete.
"""

import importlib
import json
import os
import shutil
import struct
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from .hub import hidden_sibling

PathLike = str | os.PathLike[str]

SAFETENSORS_DTYPES = {"float16": "F16", "float32": "F32"}
LARGEST_HEADER = 100_000_000  # bytes; what readers of safetensors take
ROWS_OF_PARQUET = 1000  # sentences that are written at once


class EmbeddedSentence(NamedTuple):
    """A sentence and its vectors.

    Args:
        number: From 0.
        text: As it was given; words with spaces between if it was given as words.
        words: What the vectors are for.
        vectors: (words, D), (layers, words, D), or pooled (D,), (layers, D); float32 or float16.
    """

    number: int
    text: str
    words: list[str]
    vectors: np.ndarray


class _Writer(ABC):
    """Writes sentences into a new file. Made with `open_writer`."""

    def __init__(self, path: Path, options: "WriterOptions"):
        self.path = path
        self.options = options

    @abstractmethod
    def add(self, sentence: EmbeddedSentence) -> None:
        """Writes a sentence."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what comes last."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the file, complete or not."""


class WriterOptions(NamedTuple):
    """What changes the content of a file.

    Args:
        pooled: Whether a sentence has one vector, or one for each layer.
        forget_sentences: Whether an HDF5 file has no `sentence_to_index`.
    """

    pooled: bool = False
    forget_sentences: bool = False


class _SafetensorsWriter(_Writer):
    """The header, which has all words and the places of the vectors, comes first in the file, but is known last.

    So its parts and the vectors go to files without names, and are put together in the end.
    """

    def __init__(self, path: Path, options: WriterOptions):
        super().__init__(path, options)
        self.files = ExitStack()
        self.texts, self.words, self.entries, self.data = (
            self.files.enter_context(tempfile.TemporaryFile(dir=path.parent))  # noqa: SIM115
            for _ in range(4)
        )
        self.count = 0

    def add(self, sentence: EmbeddedSentence) -> None:
        content = np.ascontiguousarray(sentence.vectors).astype(sentence.vectors.dtype.newbyteorder("<"), copy=False)
        start = self.data.tell()
        entry = {
            "dtype": SAFETENSORS_DTYPES[sentence.vectors.dtype.name],
            "shape": list(content.shape),
            "data_offsets": [start, start + content.nbytes],
        }
        self.data.write(content.tobytes())
        self.entries.write(f',"{sentence.number}":{json.dumps(entry, separators=(",", ":"))}'.encode())
        for file, value in ((self.texts, sentence.text), (self.words, sentence.words)):
            inside = json.dumps(json.dumps(value))[1:-1]  # the lists are strings of the metadata
            file.write(f"{', ' if self.count else ''}{inside}".encode())
        self.count += 1

    def finish(self) -> None:
        parts: list[bytes | IO[bytes]] = [
            b'{"__metadata__":{"format":"pt","texts":"[',
            self.texts,
            b']","words":"[',
            self.words,
            b']"}',
            self.entries,
            b"}",
        ]
        size = sum(len(part) if isinstance(part, bytes) else part.tell() for part in parts)
        padding = b" " * (-size % 8)
        if size + len(padding) > LARGEST_HEADER:
            raise ValueError(
                f"{self.count:,} sentences are too many for one file of safetensors: write shards of them, or "
                "another format."
            )
        with open(self.path, "xb") as file:
            file.write(struct.pack("<Q", size + len(padding)))
            for part in (*parts, padding, self.data):
                if isinstance(part, bytes):
                    file.write(part)
                else:
                    part.seek(0)
                    shutil.copyfileobj(part, file, 2**20)

    def close(self) -> None:
        self.files.close()


class _Hdf5Writer(_Writer):
    def __init__(self, path: Path, options: WriterOptions):
        super().__init__(path, options)
        h5py = import_extra("h5py", "convert")
        self.string = h5py.string_dtype()
        self.file = h5py.File(path, "w-")
        self.numbers: dict[str, str] = {}

    def add(self, sentence: EmbeddedSentence) -> None:
        self.file.create_dataset(str(sentence.number), data=sentence.vectors)
        if not self.options.forget_sentences:
            self.numbers[sentence.text.strip()] = str(sentence.number)  # of equal ones, the last

    def finish(self) -> None:
        if not self.options.forget_sentences:
            content = self.file.create_dataset("sentence_to_index", (1,), dtype=self.string)
            content[0] = json.dumps(self.numbers)

    def close(self) -> None:
        self.file.close()


class _ParquetWriter(_Writer):
    def __init__(self, path: Path, options: WriterOptions):
        super().__init__(path, options)
        self.arrow = import_extra("pyarrow", "train")
        self.parquet = import_extra("pyarrow.parquet", "train")
        self.rows: list[EmbeddedSentence] = []
        self.file: Any = None
        self.values = 0

    def add(self, sentence: EmbeddedSentence) -> None:
        self.rows.append(sentence)
        self.values += sentence.vectors.size
        if len(self.rows) >= ROWS_OF_PARQUET or self.values >= 2**24:
            self._write()

    def finish(self) -> None:
        if self.rows or self.file is None:
            self._write()
        self.file.close()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _write(self) -> None:
        arrow, rows = self.arrow, self.rows
        columns = {
            "index": arrow.array([row.number for row in rows], arrow.int64()),
            "text": arrow.array([_valid(row.text) for row in rows], arrow.string()),
            "words": arrow.array([[_valid(word) for word in row.words] for row in rows], arrow.list_(arrow.string())),
            **self._vectors(rows),
        }
        table = arrow.table(columns)
        if self.file is None:
            # Dictionaries and statistics of vectors would only take time and space.
            plain = {"use_dictionary": ["text", "words.list.element"], "write_statistics": ["index"]}
            self.file = self.parquet.ParquetWriter(self.path, table.schema, compression="zstd", **plain)
        self.file.write_table(table)
        self.rows, self.values = [], 0

    def _vectors(self, rows: list[EmbeddedSentence]) -> dict[str, Any]:
        """The column of the vectors, or one for each layer."""
        if not rows:
            return {}
        layered = rows[0].vectors.ndim == (2 if self.options.pooled else 3)
        if not layered:
            return {"vectors": self._column([row.vectors for row in rows])}
        layers = range(rows[0].vectors.shape[0])
        return {f"layer_{number}": self._column([row.vectors[number] for row in rows]) for number in layers}

    def _column(self, arrays: list[np.ndarray]) -> Any:
        arrow, size = self.arrow, arrays[0].shape[-1]
        values = arrow.array(np.concatenate([array.reshape(-1) for array in arrays]))
        vectors = arrow.FixedSizeListArray.from_arrays(values, size)
        if self.options.pooled:
            return vectors
        offsets = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int32)
        return arrow.ListArray.from_arrays(arrow.array(offsets), vectors)


class _NpzWriter(_Writer):
    def __init__(self, path: Path, options: WriterOptions):
        super().__init__(path, options)
        self.file = zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True)
        self.words: list[list[str]] = []

    def add(self, sentence: EmbeddedSentence) -> None:
        self._write(str(sentence.number), sentence.vectors)
        self.words.append(sentence.words)

    def finish(self) -> None:
        self._write("words", np.array(json.dumps(self.words)))

    def close(self) -> None:
        self.file.close()

    def _write(self, name: str, array: np.ndarray) -> None:
        # An entry made by name would have the time of day in it, and no two files would be the same.
        with self.file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
            np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)


WRITERS: dict[str, type[_Writer]] = {
    "safetensors": _SafetensorsWriter,
    "hdf5": _Hdf5Writer,
    "parquet": _ParquetWriter,
    "npz": _NpzWriter,
}
FORMATS = tuple(WRITERS)
EXTENSIONS = {
    ".safetensors": "safetensors",
    ".hdf5": "hdf5",
    ".h5": "hdf5",
    ".parquet": "parquet",
    ".npz": "npz",
}
EXTRAS = {"hdf5": ("h5py", "convert"), "parquet": ("pyarrow", "train")}


def check_format(name: str) -> None:
    """Raises if there is no such format, or what it needs is not installed."""
    if name not in WRITERS:
        raise ValueError(f"There is no format {name!r} for vectors: choose {', '.join(FORMATS)}.")
    if name in EXTRAS:
        import_extra(*EXTRAS[name])


@contextmanager
def open_writer(path: PathLike, format: str, options: WriterOptions | None = None) -> Iterator[_Writer]:
    """A writer for a new file, which gets its name when the block is left without an error.

    Args:
        path: The file; what is there is replaced.
        format: One of `FORMATS`.
        options: What changes the content.
    """
    check_format(format)
    path = Path(path)
    temporary = hidden_sibling(path, "partial")
    try:
        writer = WRITERS[format](temporary, options or WriterOptions())
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Gives a complete file its name, once it is on the disk."""
    with open(temporary, "rb+") as written:
        os.fsync(written.fileno())
    os.replace(temporary, path)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON; the file has its name when it is complete."""
    temporary = hidden_sibling(path, "partial")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_safetensors(path: PathLike) -> Iterator[EmbeddedSentence]:
    """The sentences of a file of safetensors that a writer wrote, in their order."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            texts, words = json.loads(metadata["texts"]), json.loads(metadata["words"])
            names = sorted(file.keys(), key=int)
            for name, text, words_of_text in zip(names, texts, words, strict=True):
                yield EmbeddedSentence(int(name), text, words_of_text, file.get_tensor(name))
    except (KeyError, SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is not a file of vectors, or it is damaged: {error}") from error


def import_extra(name: str, extra: str) -> Any:
    """A package that comes with an extra of hf-elmo."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f'This format needs {name}, which is not installed: pip install "hf-elmo[{extra}]"'
        ) from error


def _valid(text: str) -> str:
    """Without lone surrogates, which are no text in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


__all__ = ["FORMATS", "EmbeddedSentence", "WriterOptions", "check_format", "open_writer", "read_safetensors"]
