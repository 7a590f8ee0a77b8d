# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers of a frozen biLM, kept on disk, so that training a task head computes each sentence once and not every epoch.

On disk a cache is a folder with one sub-folder for each model, named by a fingerprint of all that changes its numbers.
In it is one pair of files, a shard, for each process that had something to write:

    <cache>/<fingerprint>/<time>-<random>.features    the layers, sentence after sentence
    <cache>/<fingerprint>/<time>-<random>.index       a header; for each sentence its key, place, length and checksums

Files are only appended to, the index after the features, and no process writes into the shard of another. So a process
that is killed leaves at worst bytes that no index entry names, or the beginning of an entry, which readers ignore.
What a power failure leaves is found out by the checksums, which are compared when a process first reads a sentence.

Shapes are written with these letters: B batch, T words of the longest sentence, N words of the whole batch without
padding, C characters of a word, L LSTM layers, P projection, D = 2P, W = P + L * D what is stored of a word.
"""

import hashlib
import json
import logging
import mmap
import os
import secrets
import struct
import sys
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from .modeling_elmo import ElmoModel
from .threads import lock_of

logger = logging.getLogger(__name__)

DTYPES = ("float32", "float16")
DEFAULT_MAX_BYTES = 10 * 2**30

FORMAT_VERSION = 1
FEATURES_SUFFIX, INDEX_SUFFIX = ".features", ".index"
MAGIC = b"hf-elmo features"
ENTRY = struct.Struct("<16sQII")  # key, offset, words, checksum of the features; followed by the entry's own checksum
CHECKSUM = struct.Struct("<I")
ENTRY_SIZE = ENTRY.size + CHECKSUM.size

# What changes the layers besides the weights. Dropout is off in a frozen biLM, and the mix comes after the layers.
CONFIG_FIELDS = (
    "char_vocab_size",
    "char_embedding_size",
    "max_characters_per_token",
    "char_cnn_filters",
    "char_cnn_activation",
    "num_highway_layers",
    "projection_size",
    "cell_size",
    "num_hidden_layers",
    "cell_clip",
    "projection_clip",
    "use_skip_connections",
    "forget_bias",
    "initial_state",
)

# Values of each weight that are looked at in every call, to notice changes that PyTorch does not count.
SAMPLES_PER_WEIGHT = 16


class CacheStatistics(NamedTuple):
    """What a cache did and holds."""

    hits: int  # sentences that were read from disk
    misses: int  # sentences that were computed
    rows: int  # sentences known to be on disk for the model used last
    bytes: int  # size of the cache's files, those of other models included


class FeatureCache:
    """Gives the layers of a frozen `ElmoModel`, computed once for each sentence and from then on read from disk.

    A sentence is known by its characters, whatever the padding, the batch or the run. The layers belong to exactly one
    model: weights or settings that change any of them lead to features of their own, never to old ones.

    The result is what the model computes, to the last bit with `dtype="float32"`, for the batch in which the sentence
    was met first. Matrix products of other shapes round differently, so a model computes a sentence in another batch
    with differences around 1e-7; a cache keeps the first result. With `dtype="float16"` all layers are rounded, also
    those just computed, so that an epoch does not depend on what was read. Mixed precision (autocast) is off inside:
    layers have the precision of the model's weights.

    Any number of processes may use one folder at a time; each sees what the others have stored. A disk that is full, a
    folder that cannot be written, or the limit `max_bytes` end the storing with one warning, not the training.

        cache = FeatureCache("features")
        layers = cache.layers(model, batch["character_ids"], batch["attention_mask"])

    A copy or an unpickled cache is another cache on the same folder. Features are memory-mapped; what a cache holds in
    memory is the index, some 300 bytes a sentence, until it is closed.

    Args:
        folder: Where to keep the features; made when there is something to keep. It may be deleted at any time when
            no process uses it.
        dtype: `"float32"`, or `"float16"` for half the space. Sentences with values that do not fit are not kept.
        max_bytes: Size that the folder may have, features of other models included; then sentences are computed and
            not kept. Processes that store at the same time may exceed it by a batch each.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        dtype: Literal["float32", "float16"] = "float32",
        max_bytes: int = DEFAULT_MAX_BYTES,
    ):
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype!r} is not possible: it must be one of {', '.join(map(repr, DTYPES))}.")
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes <= 0:
            raise ValueError(f"max_bytes={max_bytes!r} is not possible: it must be a positive whole number of bytes.")
        self.folder = Path(folder).absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder} is a file, but a feature cache needs a folder: name another one.")
        self.dtype = dtype
        self.max_bytes = max_bytes
        self._torch_dtype: torch.dtype = getattr(torch, dtype)
        self._signature: bytes | None = None
        self._rows: _Rows | None = None
        self._hits = self._misses = 0
        self._storing = True
        self._warned: set[str] = set()
        self._closed = False
        self._lock = lock_of(self)

    @torch.compiler.disable
    def layers(self, model: ElmoModel, character_ids: Tensor, mask: Tensor) -> list[Tensor]:
        """The layers of a batch, those of known sentences from disk and those of all others in one call of the model.

        Args:
            model: The biLM, frozen: its weights, other than those of the mixes, do not ask for gradients.
            character_ids: Character ids (B, T, C); every position counts as it is, boundaries among them.
            mask: (B, T), false at positions to leave out.

        Returns:
            L+1 tensors (B, T, D) without gradient, zero at positions left out, with the dtype of the model and the
            device of `character_ids`: the words, then each LSTM layer.
        """
        if self._closed:
            raise ValueError(f"This feature cache on {self.folder} is closed: open another one.")
        _check_frozen(model)
        character_ids, mask = model._check_inputs(None, character_ids, mask)
        with self._lock, torch.no_grad():
            packed = self._packed_layers(model, character_ids, mask)  # (N, W)
            return _unpacked(packed, mask, model.config.num_hidden_layers)

    @property
    def statistics(self) -> CacheStatistics:
        """Hits and misses of this object, and what is on disk."""
        rows = 0 if self._rows is None else len(self._rows)
        return CacheStatistics(hits=self._hits, misses=self._misses, rows=rows, bytes=_size_on_disk(self.folder))

    def close(self) -> None:
        """Forgets the index and lets go of the files. What was stored stays."""
        self._closed = True
        self._rows = self._signature = None

    def __enter__(self) -> "FeatureCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["FeatureCache"], tuple[Any, ...]]:
        return FeatureCache, (self.folder, self.dtype, self.max_bytes)

    def __repr__(self) -> str:
        hits, misses, rows, size = self.statistics
        return (
            f"FeatureCache({str(self.folder)!r}, dtype={self.dtype!r}, max_bytes={self.max_bytes}: {hits} hits, "
            f"{misses} misses, {rows} rows, {size} bytes{', closed' if self._closed else ''})"
        )

    def _packed_layers(self, model: ElmoModel, character_ids: Tensor, mask: Tensor) -> Tensor:
        """What is stored of the words of a batch (N, W), sentence after sentence."""
        rows = self._rows_of(model)
        sentences = _sentences(character_ids, mask)
        if any(sentence.key not in rows for sentence in sentences):
            rows.refresh()  # another process may have computed them
        stored = np.empty((int(mask.sum()), rows.width), dtype=self.dtype)
        missing = [sentence for sentence in sentences if not rows.read(sentence.key, stored[sentence.words])]

        packed = torch.from_numpy(stored).to(model.dtype)
        if missing:
            computed = self._computed(model, character_ids, mask, missing, rows)
            for sentence in missing:
                packed[sentence.words] = computed[sentence.key]
            self._misses += len(computed)
        self._hits += len(sentences) - len(missing)
        return packed.to(character_ids.device)

    def _computed(
        self, model: ElmoModel, character_ids: Tensor, mask: Tensor, missing: list["_Sentence"], rows: "_Rows"
    ) -> dict[bytes, Tensor]:
        """Computes sentences, each once, and stores what can be stored."""
        unique = {sentence.key: sentence for sentence in missing}
        chosen = torch.tensor([sentence.row for sentence in unique.values()], device=mask.device)
        packed = _compute(model, character_ids[chosen], mask[chosen])  # (n, W)
        lengths = [sentence.words.stop - sentence.words.start for sentence in unique.values()]
        exact = dict(zip(unique, packed.split(lengths), strict=True))

        largest = torch.finfo(self._torch_dtype).max
        rounded = {
            key: features.to(self._torch_dtype)
            for key, features in exact.items()
            if not (features.abs() > largest).any()
        }
        if len(rounded) < len(exact):
            self._warn("range", f"Values above {largest:g} do not fit {self.dtype}: such sentences are not kept.")
        self._store(rows, {key: features.numpy() for key, features in rounded.items()})
        return exact | {key: features.to(packed.dtype) for key, features in rounded.items()}

    def _store(self, rows: "_Rows", features: dict[bytes, np.ndarray]) -> None:
        """Stores sentences as far as there is room; trouble with the disk ends the storing."""
        if not self._storing:
            return
        room = self.max_bytes - _size_on_disk(self.folder) - len(rows.header)
        fitting = {}
        for key, values in features.items():
            room -= values.nbytes + ENTRY_SIZE
            if room < 0:
                self._stop_storing(f"The folder has reached max_bytes={self.max_bytes}")
                break
            fitting[key] = values
        try:
            rows.append(fitting)
        except OSError as error:
            self._stop_storing(f"Features cannot be written ({error})")

    def _stop_storing(self, reason: str) -> None:
        self._storing = False
        self._warn("storing", f"{reason}: from now on, sentences that are not stored are computed every time.")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("Feature cache %s: %s", self.folder, message)

    def _rows_of(self, model: ElmoModel) -> "_Rows":
        """The stored sentences of this very model, as it is now."""
        signature = _signature(model)
        if self._rows is None or signature != self._signature:
            fingerprint = _fingerprint(model, self.dtype)
            if self._rows is None or fingerprint != self._rows.fingerprint:
                config = model.config
                width = config.projection_size + config.num_hidden_layers * config.hidden_size
                self._rows = _Rows(self.folder, fingerprint, width, np.dtype(self.dtype))
            self._signature = signature
        return self._rows


# --- Batches ---------------------------------------------------------------------------------------------------------


class _Sentence(NamedTuple):
    """A sentence of a batch that is not empty."""

    key: bytes
    row: int  # of the batch
    words: slice  # of the packed words


def _sentences(character_ids: Tensor, mask: Tensor) -> list[_Sentence]:
    """The sentences of a batch with their keys: hashes of the characters of their words, in order."""
    characters = character_ids[mask].to("cpu", torch.int32).numpy()  # (N, C)
    sentences, start = [], 0
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        words = slice(start, start + length)
        start += length
        if length:
            key = hashlib.blake2b(characters[words].data, digest_size=16).digest()
            sentences.append(_Sentence(key, row, words))
    return sentences


def _compute(model: ElmoModel, character_ids: Tensor, mask: Tensor) -> Tensor:
    """What is stored of the words of a batch (N, W), on the CPU."""
    with _evaluating(model), torch.autocast(character_ids.device.type, enabled=False):
        word_ids = torch.zeros_like(mask, dtype=torch.long)  # never read, but with them positions count as they are
        outputs = model(
            input_ids=word_ids,
            character_ids=character_ids,
            attention_mask=mask,
            output_hidden_states=True,
            return_dict=True,
        )
    words, *contexts = (layer[mask] for layer in outputs.hidden_states)  # (N, D) each
    # The lowest layer is the same word vector for both directions: one half is enough.
    return torch.cat([words[:, : model.config.projection_size], *contexts], dim=1).cpu()


def _unpacked(packed: Tensor, mask: Tensor, num_layers: int) -> list[Tensor]:
    """(N, W) to L+1 layers (B, T, D) with zeros at padding."""
    size = packed.shape[1] // (2 * num_layers + 1)  # P
    words, *contexts = packed.split([size] + [2 * size] * num_layers, dim=1)
    layers = [packed.new_zeros(*mask.shape, 2 * size) for _ in range(num_layers + 1)]
    for layer, features in zip(layers, [torch.cat([words, words], dim=1), *contexts], strict=True):
        layer[mask] = features
    return layers


class _Readers:
    """How many threads read each model at this moment, and what of it was in training mode before."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._counts: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._training: weakref.WeakKeyDictionary[nn.Module, list[nn.Module]] = weakref.WeakKeyDictionary()

    def enter(self, model: nn.Module) -> None:
        with self._lock:
            training = [module for module in model.modules() if module.training]
            self._training[model] = self._training.get(model, []) + training
            self._counts[model] = self._counts.get(model, 0) + 1
            model.eval()

    def leave(self, model: nn.Module) -> None:
        with self._lock:
            self._counts[model] -= 1
            if self._counts[model] == 0:
                for module in self._training.pop(model):
                    module.training = True


_readers = _Readers()


@contextmanager
def _evaluating(model: ElmoModel) -> Iterator[None]:
    """Switches dropout off, and on again where it was on when the last thread has read."""
    module = cast(nn.Module, model)
    _readers.enter(module)
    try:
        yield
    finally:
        _readers.leave(module)


# --- Models ----------------------------------------------------------------------------------------------------------


def _weights(model: ElmoModel) -> Iterator[tuple[str, Tensor]]:
    """All weights that change the layers."""
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            if not name.startswith(("mixes.", "alignment.")):
                yield name, tensor.detach()


def _check_frozen(model: ElmoModel) -> None:
    if not torch.is_grad_enabled():
        return
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.startswith("mixes."):
            raise ValueError(
                f"The biLM is not frozen: {name} asks for a gradient, which features from a cache cannot give. Call "
                "requires_grad_(False) on the biLM's weights, compute under torch.no_grad(), or use no cache."
            )


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).contiguous().cpu().view(torch.uint8).numpy().data


def _config_of(model: ElmoModel) -> dict[str, Any]:
    return {name: getattr(model.config, name) for name in CONFIG_FIELDS}


def _signature(model: ElmoModel) -> bytes:
    """A quick hash that changes when the model does, from where its weights are and some of their values.

    PyTorch's own count of changes is not enough: fused optimizers and `parameter.data` pass it by.
    """
    digest = hashlib.blake2b(repr(_config_of(model)).encode())
    for _, tensor in _weights(model):
        changes = 0 if tensor.is_inference() else tensor._version
        digest.update(f"{tensor.data_ptr()} {changes} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.reshape(-1)
        digest.update(_bytes_of(values[:: max(1, len(values) // SAMPLES_PER_WEIGHT)]))
    return digest.digest()


def _fingerprint(model: ElmoModel, dtype: str) -> bytes:
    """The hash of everything that changes what is stored for a sentence."""
    settings = {"format": FORMAT_VERSION, "dtype": dtype, "byteorder": sys.byteorder, "config": _config_of(model)}
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=32)
    for name, tensor in _weights(model):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes_of(tensor))
    return digest.digest()


# --- Files -----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where the features of a sentence are."""

    shard: "_Shard"
    offset: int
    words: int
    checksum: int | None  # None once it was found to be right


class _Rows:
    """The sentences that are on disk for one model.

    Args:
        folder: The folder of the cache.
        fingerprint: Of the model.
        width: Values for each word, W.
        dtype: Of the values.
    """

    def __init__(self, folder: Path, fingerprint: bytes, width: int, dtype: np.dtype):
        self.folder = folder / fingerprint.hex()[:32]
        self.fingerprint = fingerprint
        self.header = MAGIC + fingerprint
        self.width = width
        self.dtype = dtype
        self._places: dict[bytes, _Place] = {}
        self._shards: dict[str, _Shard] = {}
        self._damaged = False
        self._own: tuple[int, _Shard] | None = None  # the process that writes it, so that a fork begins another

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def refresh(self) -> None:
        """Learns what this and other processes have stored since the last time."""
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(INDEX_SUFFIX))
        except OSError:  # not made yet, or not ours to read
            return
        for name in names:  # by age: what was stored again after damage wins
            self._learn(self._shards.setdefault(name, _Shard(self.folder / name, self.header)))

    def read(self, key: bytes, target: np.ndarray) -> bool:
        """Copies the features of a sentence to `target` (words, W), if they are on disk and undamaged."""
        place = self._places.get(key)
        if place is None:
            return False
        content = place.shard.read(place.offset, target.nbytes) if place.words == len(target) else None
        if content is None or (place.checksum is not None and zlib.crc32(content) != place.checksum):
            if not self._damaged:
                logger.warning("Damaged features in %s are computed again.", place.shard.features_path)
            self._damaged = True
            del self._places[key]
            return False
        if place.checksum is not None:
            self._places[key] = place._replace(checksum=None)
        target[:] = np.frombuffer(content, dtype=self.dtype).reshape(target.shape)
        return True

    def append(self, features: dict[bytes, np.ndarray]) -> None:
        """Stores sentences, each (words, W)."""
        if not features:
            return
        if self._own is None or self._own[0] != os.getpid():
            self.folder.mkdir(parents=True, exist_ok=True)
            stem = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
            shard = _Shard(self.folder / (stem + INDEX_SUFFIX), self.header)
            self._own = os.getpid(), self._shards.setdefault(shard.index_path.name, shard)
        _, shard = self._own
        try:
            shard.append(features)
        except BaseException:  # also when interrupted: what is at the shard's end now is not known
            self._own = None
            raise
        self._learn(shard)

    def _learn(self, shard: "_Shard") -> None:
        for key, place in shard.new_entries():
            self._places[key] = place


class _Shard:
    """A file of features and its index, written by one process and read by all."""

    def __init__(self, index_path: Path, header: bytes):
        self.index_path = index_path
        self.features_path = index_path.with_suffix(FEATURES_SUFFIX)
        self._header = header
        self._index_end = 0  # how far the index was read
        self._map: mmap.mmap | None = None
        self._foreign = False

    def new_entries(self) -> Iterator[tuple[bytes, _Place]]:
        """The complete index entries that were not read yet."""
        try:
            if self._foreign or self.index_path.stat().st_size <= self._index_end:
                return
            with open(self.index_path, "rb") as file:
                file.seek(self._index_end)
                content = file.read()
        except OSError:  # deleted, or not ours to read
            return
        begin = 0
        if self._index_end == 0:
            begin = len(self._header)
            if len(content) < begin:
                return
            if content[:begin] != self._header:
                self._foreign = True
                logger.warning("%s is the index of another model or program and is not used.", self.index_path)
                return
            self._index_end = begin
        for start in range(begin, len(content) - ENTRY_SIZE + 1, ENTRY_SIZE):
            entry = content[start : start + ENTRY.size]
            if CHECKSUM.unpack_from(content, start + ENTRY.size) != (zlib.crc32(entry),):
                return  # not written to the end, or damaged
            self._index_end += ENTRY_SIZE
            key, offset, words, checksum = ENTRY.unpack(entry)
            yield key, _Place(self, offset, words, checksum)

    def read(self, offset: int, size: int) -> memoryview | None:
        """Bytes of the features, or None if the file does not have them."""
        if self._map is None or offset + size > len(self._map):
            try:
                with open(self.features_path, "rb") as file:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # deleted, or empty
                return None
        return memoryview(self._map)[offset : offset + size] if offset + size <= len(self._map) else None

    def append(self, features: dict[bytes, np.ndarray]) -> None:
        """Writes the features, and when they are there the index entries."""
        offset = _append(self.features_path, b"".join(values.data for values in features.values()))
        entries = []
        for key, values in features.items():
            entry = ENTRY.pack(key, offset, len(values), zlib.crc32(values.data))
            entries += [entry, CHECKSUM.pack(zlib.crc32(entry))]
            offset += values.nbytes
        _append(self.index_path, b"".join(entries), self._header)


def _append(path: Path, content: bytes, header: bytes = b"") -> int:
    """Adds bytes to the end of a file, all or none, after a header if it is new; returns where they begin."""
    with open(path, "ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        written, everything = 0, memoryview(content if end else header + content)
        try:
            while written < len(everything):
                written += file.write(everything[written:])
        except BaseException:
            with suppress(OSError):
                file.truncate(end)
            raise
    return end if end else len(header)


def _size_on_disk(folder: Path) -> int:
    """Size of all files of a cache, those of other models included."""
    size = 0
    for path in folder.glob("*/*"):
        if path.suffix in (FEATURES_SUFFIX, INDEX_SUFFIX):
            with suppress(OSError):
                size += path.stat().st_size
    return size


__all__ = ["CacheStatistics", "FeatureCache"]
