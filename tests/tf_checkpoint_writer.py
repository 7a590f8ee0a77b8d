"""Writes TensorFlow checkpoints, also wrong ones, with code that shares nothing with the reader.

`write_checkpoint` writes a right one; the functions below it make the parts, for tests that spoil them.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

TYPE_NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10, "float16": 19}
MAGIC = 0xDB4775248B80FB57


def write_checkpoint(
    prefix: Path,
    tensors: Mapping[str, np.ndarray],
    shards: int = 1,
    block_size: int = 10,
    compressed: bool = False,
    state: bool = True,
) -> Path:
    """Writes the files of a checkpoint and, beside them, the text file `checkpoint`; returns the index file.

    Args:
        prefix: What the names of the files begin with.
        tensors: Arrays by name.
        shards: Number of data files, which take turns.
        block_size: Number of entries in each block of the index.
        compressed: Whether to compress the blocks with Snappy.
        state: Whether to write the text file.
    """
    pairs, data = bundle(tensors, shards)
    for number, content in enumerate(data):
        shard_file(prefix, number, shards).write_bytes(content)
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(table(pairs, block_size, compressed))
    if state:
        line = f'model_checkpoint_path: "{prefix.name}"\n'
        (prefix.parent / "checkpoint").write_text(f"{line}all_{line}", encoding="utf-8")
    return index


def shard_file(prefix: Path, number: int = 0, shards: int = 1) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}")


def bundle(tensors: Mapping[str, np.ndarray], shards: int = 1) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The entries of the index and the contents of the data files."""
    data = [b""] * shards
    pairs = {b"": header(shards)}
    for number, (name, array) in enumerate(sorted(tensors.items())):
        content = array.tobytes()
        shard = number % shards
        pairs[name.encode()] = entry(
            TYPE_NUMBERS[array.dtype.name], array.shape, len(data[shard]), len(content), masked(content), shard
        )
        data[shard] += content
    return pairs, data


# --- Messages --------------------------------------------------------------------------------------------------------


def header(shards: int = 1, big_endian: int = 0, version: int = 1) -> bytes:
    return number_field(1, shards) + number_field(2, big_endian) + octets_field(3, number_field(1, version))


def entry(
    kind: int, shape: Sequence[int], offset: int, size: int, checksum: int, shard: int = 0, more: bytes = b""
) -> bytes:
    dimensions = b"".join(octets_field(2, number_field(1, length)) for length in shape)
    message = number_field(1, kind) + octets_field(2, dimensions) + number_field(3, shard)
    message += number_field(4, offset) + number_field(5, size)
    return message + varint(6 << 3 | 5) + struct.pack("<I", checksum) + more


def number_field(field: int, value: int) -> bytes:
    """A number; left out if it is 0, as always."""
    return varint(field << 3) + varint(value % 2**64) if value else b""


def octets_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value])


# --- The table -------------------------------------------------------------------------------------------------------


Pairs = Sequence[tuple[bytes, bytes]]


def table(pairs: Mapping[bytes, bytes] | Pairs, block_size: int = 10, compressed: bool = False) -> bytes:
    """A table of these pairs, in this order."""
    items = list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs)
    blocks = [items[start : start + block_size] for start in range(0, len(items), block_size)]
    return table_of_blocks([(items[-1][0], block(items)) for items in blocks], compressed)


def table_of_blocks(blocks: Pairs, compressed: bool = False) -> bytes:
    """A table of blocks, each given with its last key."""
    content, places = b"", []
    for key, raw in blocks:
        stored = trailed(raw, compressed)
        places.append((key, place(len(content), len(stored) - 5)))
        content += stored
    return finished(content, block(places), compressed)


def finished(content: bytes, index: bytes, compressed: bool = False) -> bytes:
    """The blocks, followed by the empty one, the one that names them, and the footer."""
    stored = trailed(block([])), trailed(index, compressed)
    offsets = len(content), len(content) + len(stored[0])
    footer = b"".join(place(offset, len(one) - 5) for offset, one in zip(offsets, stored, strict=True))
    return content + b"".join(stored) + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def place(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def block(pairs: Pairs, restart: int = 16) -> bytes:
    content, restarts, before = b"", [0], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        elif number:
            restarts.append(len(content))
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def trailed(raw: bytes, compressed: bool = False) -> bytes:
    """A block with its trailer."""
    stored = (snappy(raw) if compressed else raw) + bytes([compressed])
    return stored + struct.pack("<I", masked(stored))


def snappy(raw: bytes) -> bytes:
    """Compresses simply: repetitions of 4 to 60 bytes, in all the ways to write them, and what lies between."""
    packed, literal, position, seen, turn = varint(len(raw)), b"", 0, {}, 0
    while position < len(raw):
        earlier = seen.get(raw[position : position + 4])
        seen[raw[position : position + 4]] = position
        length = 0
        if earlier is not None and position + 4 <= len(raw):
            while length < 60 and position + length < len(raw) and raw[earlier + length] == raw[position + length]:
                length += 1
        if length < 4:
            literal += raw[position : position + 1]
            position += 1
            continue
        packed += snappy_literal(literal) + snappy_copy(position - earlier, length, turn)
        literal, position, turn = b"", position + length, turn + 1
    return packed + snappy_literal(literal)


def snappy_literal(literal: bytes) -> bytes:
    if not literal:
        return b""
    if len(literal) <= 60:
        return bytes([len(literal) - 1 << 2]) + literal
    return bytes([61 << 2]) + struct.pack("<H", len(literal) - 1) + literal


def snappy_copy(distance: int, length: int, turn: int) -> bytes:
    if turn % 3 == 0 and length <= 11 and distance < 2048:
        return bytes([1 | length - 4 << 2 | distance >> 8 << 5, distance & 255])
    if turn % 3 == 1 and distance < 65536:
        return bytes([2 | length - 1 << 2]) + struct.pack("<H", distance)
    return bytes([3 | length - 1 << 2]) + struct.pack("<I", distance)


# --- Checksums -------------------------------------------------------------------------------------------------------


def crc32c_by_bytes(content: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = checksum >> 8 ^ _TABLE[(checksum ^ byte) & 255]
    return checksum ^ 0xFFFFFFFF


def _table() -> list[int]:
    values = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        values.append(byte)
    return values


_TABLE = _table()


def masked(content: bytes) -> int:
    checksum = crc32c_by_bytes(content)
    return ((checksum >> 15 | checksum << 17) % 2**32 + 0xA282EAD8) % 2**32
