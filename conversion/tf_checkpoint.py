# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints, read without TensorFlow and without trusting them.

A checkpoint `model.ckpt-7` is an index, `model.ckpt-7.index`, and one or more files of bare numbers, such as
`model.ckpt-7.data-00000-of-00001`. The index is a sorted table in the format of LevelDB, in blocks, each with a
checksum:

    block, block, ...       entries (name, protobuf message); the empty name comes first and has the header
    an empty block
    a block                 where each of the blocks above begins and ends
    footer                  where the last two blocks are, and a magic number

The message of a tensor says its type and shape, and in which file its bytes are, from where to where, with their
checksum. Everything is checked before a byte of a tensor is read, and the checksum before the tensor is given out.
"""

import functools
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

import numpy as np

LARGEST_INDEX = 2**20  # bytes, also when unpacked; the index of a published model has about 6,000
LARGEST_COUNT = 10_000  # tensors; a published model has 80
LONGEST_NAME = 1_000  # bytes
LARGEST_STATE = 2**20  # bytes of the text file `checkpoint`
LARGEST_RANK = 254  # dimensions of a tensor, in TensorFlow

FORMAT_VERSION = 1  # the only one there is

# Name and size of the types of TensorFlow; strings have no fixed size.
FLOAT32 = 1
TYPES: dict[int, tuple[str, int | None]] = {
    FLOAT32: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    7: ("string", None),
    8: ("complex64", 8),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    17: ("uint16", 2),
    18: ("complex128", 16),
    19: ("float16", 2),
    22: ("uint32", 4),
    23: ("uint64", 8),
}


class _Entry(NamedTuple):
    """What the index says about one tensor."""

    type: int
    shape: tuple[int, ...]
    file: Path
    offset: int
    size: int
    checksum: int


class TensorFlowCheckpoint:
    """The tensors of a checkpoint, by name.

    ```python
    checkpoint = TensorFlowCheckpoint("model.ckpt-935588")
    bias = checkpoint.read("lm/CNN_proj/b_proj", (512,))
    ```

    Args:
        path: The name of the checkpoint, such as `model.ckpt-7`, any of its files, or a folder whose text file
            `checkpoint` names it. The files may come from anyone.

    Raises:
        ValueError: If anything about the checkpoint is not as it must be; names the file and the tensor.
        FileNotFoundError: If there is no such checkpoint, or one of its files is missing.
    """

    def __init__(self, path: str | os.PathLike[str]):
        prefix = _prefix(Path(path))
        self.index = prefix.with_name(f"{prefix.name}.index")
        self._entries = _read_index(self.index, prefix)
        _check_places(self.index, self._entries)

    def names(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor, by its name: `{"lm/char_embed": ("float32", (261, 16)), ...}`."""
        return {name: (_type_name(entry.type), entry.shape) for name, entry in self._entries.items()}

    def files(self) -> list[Path]:
        """The index and the files that hold tensors."""
        return [self.index, *sorted({entry.file for entry in self._entries.values()})]

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Reads one float32 tensor, after a check of its shape, and with a check of its bytes.

        Args:
            name: Name of the tensor.
            shape: The shape it must have.

        Returns:
            The values, all finite.

        Raises:
            ValueError: If there is no such tensor, or it is not as it must be; names the file and the tensor.
        """
        if name not in self._entries:
            raise ValueError(f"{self.index} has no tensor {_quoted(name)}. Does it belong to these options?")
        entry = self._entries[name]
        if entry.type != FLOAT32:
            what = f"holds values of type {_type_name(entry.type)}; only float32 is read, which rounds nothing."
            raise _refused(self.index, name, what)
        if entry.shape != tuple(shape):
            raise _refused(self.index, name, f"has shape {entry.shape}; the options ask for {tuple(shape)}.")

        array = np.empty(entry.shape, "<f4")
        content = array.reshape(-1).view(np.uint8)
        with open(entry.file, "rb") as file:
            file.seek(entry.offset)
            if file.readinto(content.data) != entry.size:
                raise _refused(entry.file, name, "is not all in the file. Is the file complete?")
        if _masked(crc32c(content)) != entry.checksum:
            raise _refused(entry.file, name, "is damaged: its checksum is wrong. Get the file again.")
        broken = array.size - int(np.isfinite(array).sum())
        if broken:
            raise _refused(entry.file, name, f"has {broken:,} of {array.size:,} values that are NaN or infinite.")
        return array.astype(np.float32, copy=False)


# --- Which files -----------------------------------------------------------------------------------------------------


def _prefix(path: Path) -> Path:
    """The path that all files of the checkpoint begin with."""
    if path.is_dir():
        return path / _name_in_state(path / "checkpoint")
    prefix = path.with_name(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name))
    if prefix == path and path.is_file() and not path.with_name(f"{path.name}.index").exists():
        raise ValueError(
            f"{path} has no {path.name}.index beside it: it is a checkpoint of TensorFlow's first format, in one "
            "file, or none at all. Save such a checkpoint again with TensorFlow: tf.train.Saver(write_version=2)."
        )
    return prefix


def _name_in_state(path: Path) -> str:
    """The name of the newest checkpoint, from the text file that TensorFlow keeps beside the checkpoints."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.parent} has no file 'checkpoint' that names the newest one. Give the path of an index file, such "
            "as model.ckpt-7.index."
        )
    text = _read_small_file(path, LARGEST_STATE)
    line = rb'^[ \t]*model_checkpoint_path[ \t]*:[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*\r?$'
    found = re.findall(line, text, re.MULTILINE)
    if len(found) != 1:
        raise ValueError(
            f'{path} has {len(found)} lines such as model_checkpoint_path: "model.ckpt-7"; it must have one.'
        )
    octets = re.sub(rb"\\([0-7]{1,3}|.)", _unescaped, found[0])
    try:
        value = octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} names a checkpoint that is not UTF-8: {octets[:200]!r}.") from error
    # A whole path is one of the computer where the model was trained; its files have moved here.
    whole = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    name = re.split(r"[/\\]", value)[-1] if whole else value
    if not name.strip(". ") or re.search(r"[/\\:\x00-\x1f]", name):
        raise ValueError(f"{path} names the checkpoint {_quoted(value)}; it must be one in the same folder.")
    return name


def _unescaped(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return bytes([int(escape, 8) & 0xFF]) if escape.isdigit() else escape


def _read_small_file(path: Path, limit: int) -> bytes:
    if _size_of_regular_file(path) > limit:
        raise ValueError(f"{path} has more than {limit:,} bytes and so is no part of a checkpoint of an ELMo model.")
    with open(path, "rb") as file:
        return file.read(limit)


def _size_of_regular_file(path: Path) -> int:
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file. Give the path of a TensorFlow checkpoint.")
    return status.st_size


# --- The index -------------------------------------------------------------------------------------------------------


def _read_index(path: Path, prefix: Path) -> dict[str, _Entry]:
    try:
        table = dict(_read_table(_read_small_file(path, LARGEST_INDEX)))
        if b"" not in table:
            raise _DamagedError("it has no header")
        num_shards = _read_header(table.pop(b""))
    except _DamagedError as error:
        raise ValueError(f"{path} is no index of a TensorFlow checkpoint, or a damaged one: {error}.") from error

    entries = {}
    for key, message in table.items():
        name = key.decode("utf-8", errors="backslashreplace")
        try:
            entries[name] = _read_entry(key, message, prefix, num_shards)
        except _DamagedError as error:
            raise _refused(path, name, f"cannot be read: {error}.") from error
    return entries


def _read_header(message: bytes) -> int:
    """The number of files that hold tensors."""
    header = _Message(message, {1: VARINT, 2: VARINT, 3: OCTETS})
    num_shards, big_endian = header.integer(1), header.integer(2)
    version = _Message(header.message(3), {1: VARINT, 2: VARINT})
    if big_endian:
        raise _DamagedError("it was written on a computer with the other order of bytes (big endian)")
    if not 1 <= num_shards < 100_000:
        raise _DamagedError(f"it counts {num_shards} files")
    if version.integer(1) != FORMAT_VERSION or version.integer(2) > FORMAT_VERSION:
        raise _DamagedError(
            f"it has version {version.integer(1)} of the format and needs a reader for {version.integer(2)}; only "
            f"{FORMAT_VERSION} is known"
        )
    return num_shards


def _read_entry(key: bytes, message: bytes, prefix: Path, num_shards: int) -> _Entry:
    kinds = {1: VARINT, 2: OCTETS, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: OCTETS}
    fields = _Message(message, kinds, repeated=7)
    if 7 in fields.octets or key.startswith(b"\0"):  # pieces have names of their own, which begin like this
        raise _DamagedError("it is a partitioned variable, saved in pieces; save it in one piece")
    try:
        key.decode("utf-8")
    except UnicodeDecodeError:
        raise _DamagedError("its name is not UTF-8") from None
    shard, offset, size = fields.integer(3), fields.integer(4), fields.integer(5)
    if not 0 <= shard < num_shards:
        raise _DamagedError(f"it is in file {shard} of {num_shards}")
    if offset < 0 or size < 0:
        raise _DamagedError(f"it has {size} bytes from {offset} on")

    shape = _read_shape(fields.message(2))
    kind = fields.integer(1)
    width = TYPES.get(kind, ("", None))[1]
    needed = None if width is None else _product(shape) * width
    if needed is not None and needed != size:
        raise _DamagedError(f"{_type_name(kind)} of shape {shape} needs {needed:,} bytes, but it has {size:,}")
    file = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")
    return _Entry(kind, shape, file, offset, size, fields.integer(6))


def _read_shape(message: bytes) -> tuple[int, ...]:
    shape = _Message(message, {2: OCTETS, 3: VARINT}, repeated=2)
    dimensions = shape.octets.get(2, [])
    if shape.integer(3):
        raise _DamagedError("its shape is unknown")
    if len(dimensions) > LARGEST_RANK:
        raise _DamagedError(f"it has {len(dimensions)} dimensions")
    sizes = tuple(_Message(one, {1: VARINT, 2: OCTETS}).integer(1) for one in dimensions)
    if any(size < 0 for size in sizes):
        raise _DamagedError(f"it has shape {sizes}")
    return sizes


def _check_places(index: Path, entries: Mapping[str, _Entry]) -> None:
    """Refuses tensors that are not wholly in their files, or share bytes."""
    sizes = {file: _size_of_regular_file(file) for file in sorted({entry.file for entry in entries.values()})}
    ends = dict.fromkeys(sizes, 0)
    before = dict.fromkeys(sizes, "")
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].size)):
        end = entry.offset + entry.size
        if end > sizes[entry.file]:
            raise _refused(
                entry.file,
                name,
                f"ends at byte {end:,}, but the file has {sizes[entry.file]:,}. Is the file complete, and does it "
                f"belong to {index.name}?",
            )
        if entry.offset < ends[entry.file]:
            raise _refused(
                entry.file, name, f"shares bytes with {_quoted(before[entry.file])}. Each must have its own data."
            )
        ends[entry.file], before[entry.file] = end, name


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def _type_name(kind: int) -> str:
    return TYPES.get(kind, (f"number {kind}", None))[0]


# --- The table: sorted pairs of bytes, in blocks ---------------------------------------------------------------------

FOOTER = 48
MAGIC = bytes.fromhex("57fb808b247547db")
TRAILER = 5  # bytes after each block: how it is compressed, and a checksum
PLAIN, SNAPPY = 0, 1


class _DamagedError(Exception):
    """Says what is wrong with the bytes that are being read, in words that go after "it is damaged:"."""


def _read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The pairs, in order, from blocks that follow one another and fill the file."""
    if len(content) < FOOTER or not content.endswith(MAGIC):
        raise _DamagedError(f"it has {len(content):,} bytes and does not end as one does")
    footer = _Bytes(content[-FOOTER : -len(MAGIC)])
    empty, index = footer.place(), footer.place()
    if footer.rest().strip(b"\0"):
        raise _DamagedError("its last bytes are not as they must be")
    places = []
    left = LARGEST_INDEX  # bytes that blocks may still unpack to
    block = _read_block(content, index, left)
    left -= len(block)
    for _, value in _read_pairs(block):
        described = _Bytes(value)
        places.append(described.place())
        if described.rest():
            raise _DamagedError("its list of blocks is not as it must be")
    position = 0
    for offset, size in [*places, empty, index]:
        if offset != position:
            raise _DamagedError(f"a block begins at byte {offset:,} instead of {position:,}")
        position += size + TRAILER
    if position != len(content) - FOOTER:
        raise _DamagedError(f"its blocks end at byte {position:,} instead of {len(content) - FOOTER:,}")
    if any(_read_pairs(_read_block(content, empty, left))):
        raise _DamagedError("the block before the last one is not empty")

    count, previous = 0, None
    for place in places:
        block = _read_block(content, place, left)
        left -= len(block)
        for key, value in _read_pairs(block):
            if previous is not None and key <= previous:
                raise _DamagedError(f"the name {_shown(key)} appears twice, or after {_shown(previous)}")
            count, previous = count + 1, key
            if count > LARGEST_COUNT:
                raise _DamagedError(f"it names more than {LARGEST_COUNT:,} tensors")
            yield key, value


def _read_block(content: bytes, place: tuple[int, int], limit: int) -> bytes:
    """The bytes of one block, at most `limit`, after a check of their checksum."""
    offset, size = place
    end = offset + size
    if end + TRAILER > len(content) - FOOTER:
        raise _DamagedError(f"a block of {size:,} bytes at byte {offset:,} is not all in the file")
    if _masked(crc32c(content[offset : end + 1])) != int.from_bytes(content[end + 1 : end + TRAILER], "little"):
        raise _DamagedError(f"the checksum of the block at byte {offset:,} is wrong")
    block, compression = content[offset:end], content[end]
    if compression == SNAPPY:
        block = _unpack_snappy(block, limit)
    elif compression != PLAIN:
        raise _DamagedError(f"the block at byte {offset:,} is compressed in way {compression}, which is unknown")
    if len(block) > limit:
        raise _DamagedError(f"its blocks hold more than {LARGEST_INDEX:,} bytes")
    return block


def _read_pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a block. A key is written as what it has in common with the one before, and the rest."""
    number = int.from_bytes(block[-4:], "little")  # of the places where nothing is in common, for those who search
    end = len(block) - 4 - 4 * number
    if len(block) < 4 or end < 0:
        raise _DamagedError("a block is not as it must be")
    entries, key = _Bytes(block[:end]), b""
    while not entries.at_end():
        shared, others, size = entries.varint(), entries.varint(), entries.varint()
        if shared > len(key) or shared + others > LONGEST_NAME:
            raise _DamagedError(f"a name shares {shared:,} bytes with one of {len(key):,} and has {others:,} more")
        key = key[:shared] + entries.take(others)
        yield key, entries.take(size)


def _unpack_snappy(block: bytes, limit: int) -> bytes:
    """The content of a block that was compressed by Snappy: bytes as they are, and repetitions of earlier ones."""
    source, unpacked = _Bytes(block), bytearray()
    length = source.varint()
    if length > limit:
        raise _DamagedError(f"its blocks hold more than {LARGEST_INDEX:,} bytes")
    while not source.at_end():
        tag = source.take(1)[0]
        kind, value = tag & 3, tag >> 2
        if kind == 0:
            size = value + 1 if value < 60 else source.fixed(value - 59) + 1
            unpacked += source.take(size)
        else:
            size = 4 + (value & 7) if kind == 1 else value + 1
            distance = (value >> 3) << 8 | source.fixed(1) if kind == 1 else source.fixed(2 if kind == 2 else 4)
            if not 1 <= distance <= len(unpacked):
                raise _DamagedError("a compressed block repeats what is not there")
            start = len(unpacked) - distance
            earlier = bytes(unpacked[start : start + size])
            unpacked += (earlier * (size // len(earlier) + 1))[:size]
        if len(unpacked) > length:
            break
    if len(unpacked) != length:
        raise _DamagedError("a compressed block does not have the length it says")
    return bytes(unpacked)


class _Bytes:
    """Bytes that are taken from the front, never more than there are."""

    def __init__(self, content: bytes):
        self.content = content
        self.position = 0

    def at_end(self) -> bool:
        return self.position == len(self.content)

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.position:
            raise _DamagedError("something in it ends too early")
        self.position += size
        return self.content[self.position - size : self.position]

    def rest(self) -> bytes:
        return self.take(len(self.content) - self.position)

    def fixed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def varint(self) -> int:
        """A number from 0 to 2**64 - 1, seven bits a byte, the lowest first; all bytes but the last are over 127."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or value >= 2**64:
            raise _DamagedError("it has a number that is too large")
        return value

    def place(self) -> tuple[int, int]:
        """Offset and size of a block."""
        return self.varint(), self.varint()


# --- Protobuf messages -----------------------------------------------------------------------------------------------

VARINT, OCTETS, FIXED32 = 0, 2, 5


class _Message:
    """The fields of a protobuf message, by number, when all are known, of the right kind, and there once.

    Args:
        content: The bytes of the message.
        kinds: Kind of each field that may be there.
        repeated: Number of the one that may be there more than once.
    """

    def __init__(self, content: bytes, kinds: Mapping[int, int], repeated: int | None = None):
        self.numbers: dict[int, int] = {}
        self.octets: dict[int, list[bytes]] = {}
        source = _Bytes(content)
        while not source.at_end():
            tag = source.varint()
            number, kind = tag >> 3, tag & 7
            if kinds.get(number) != kind:
                raise _DamagedError(f"it has a field {number} of kind {kind}, which is unknown")
            if number != repeated and (number in self.numbers or number in self.octets):
                raise _DamagedError(f"it has the field {number} twice")
            if kind == OCTETS:
                self.octets.setdefault(number, []).append(source.take(source.varint()))
            else:
                self.numbers[number] = source.varint() if kind == VARINT else source.fixed(4)

    def integer(self, number: int) -> int:
        """A field that is a number with a sign, 0 if it is absent."""
        value = self.numbers.get(number, 0)
        return value - 2**64 if value >= 2**63 else value

    def message(self, number: int) -> bytes:
        """A field that is a message of its own, an empty one if it is absent."""
        return self.octets.get(number, [b""])[0]


# --- Checksums -------------------------------------------------------------------------------------------------------

POLYNOMIAL = 0x82F63B78  # of CRC-32C, the bit of the highest power last
LANES = 2**14  # words of 32 bits that are divided side by side


def crc32c(data: bytes | np.ndarray) -> int:
    """The CRC-32C of some bytes.

    It is the remainder of a division of polynomials over two elements. There, bytes far from the end can be moved
    nearer to it if they are multiplied for that. So rows of many words are added up, from the first to the last, each
    sum being multiplied to stand where the next row does; then halves of the row that is left, down to one word.
    """
    octets = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    lanes = min(LANES, 1 << (max(1, -(-len(octets) // 4)) - 1).bit_length())
    row = 4 * lanes
    head = len(octets) % row
    words = np.zeros(row, np.uint8)
    words[row - head :] = octets[:head]  # zeros in front change nothing
    words = words.view("<u4")
    if len(octets) > head:
        low, high = _tables(row.bit_length() - 1)
        for following in octets[head:].reshape(-1, row):
            halves = words.view("<u2")
            words = low.take(halves[0::2], mode="clip") ^ high.take(halves[1::2], mode="clip")
            words ^= following.view("<u4")
    while lanes > 1:
        lanes //= 2
        words = _multiply(_advance((4 * lanes).bit_length() - 1), words[:lanes]) ^ words[lanes:]

    remainder = _multiply(_advance(2), words)
    return int(remainder[0]) ^ _of_zeros(len(octets))


def _masked(checksum: int) -> int:
    """The checksum as the files have it: turned and shifted, because checksums of checksums are weak."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(10_000)
def _of_zeros(length: int) -> int:
    """The checksum of zeros, which is not 0 because ones stand before the first byte and are added at the end."""
    ones = np.array([0xFFFFFFFF], "<u4")
    for power in range(length.bit_length()):
        if length >> power & 1:
            ones = _multiply(_advance(power), ones)
    return int(ones[0]) ^ 0xFFFFFFFF


@functools.cache
def _advance(power: int) -> np.ndarray:
    """What each of the 32 bits becomes when 2**power bytes follow."""
    if power:
        before = _advance(power - 1)
        return _multiply(before, before)
    columns = 1 << np.arange(32, dtype="<u4")
    for _ in range(8):
        columns = columns >> 1 ^ (columns & 1) * np.uint32(POLYNOMIAL)
    return columns


@functools.cache
def _tables(power: int) -> tuple[np.ndarray, np.ndarray]:
    """What the lower and the upper half of a word become when 2**power bytes follow."""
    halves = np.arange(2**16, dtype="<u4")
    return _multiply(_advance(power), halves), _multiply(_advance(power), halves << 16)


def _multiply(columns: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The sum of the columns where a word has a bit, for each word."""
    bits = words[:, None] >> np.arange(32, dtype="<u4") & 1  # (words, 32)
    return np.bitwise_xor.reduce(bits * columns, axis=1)


# --- Words of errors -------------------------------------------------------------------------------------------------


def _shown(key: bytes) -> str:
    return _quoted(key.decode("utf-8", errors="backslashreplace"))


def _quoted(name: str) -> str:
    """The name as a short literal: names in a file can be long and hold anything."""
    return repr(name if len(name) <= 200 else f"{name[:200]}...")


def _refused(path: Path, name: str, what: str) -> ValueError:
    return ValueError(f"{path}: the tensor {_quoted(name)} {what}")
