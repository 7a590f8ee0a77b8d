# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of modeling_elmo.py with less work: the same numbers up to rounding, forward and backward.

- A word that stands in a batch many times is spelled once (`different_rows`), or not at all if it was spelled before
  and the user asked for a cache (`WordCache`).
- A word is read only as far as it goes (`groups_of_similar_length`), and all convolutions are one matrix product
  (`highest_scores`), or, of many words, sums of what each character adds (`highest_sums`).
- Products are made by the library that is faster on this processor (products.py). Where that is MKL, one of a few
  words with large weights is one for each block of the weights, with the words as columns (`linear`): torch gives each
  thread some of them, and cuts up a single one badly.
- Both directions of several sentences are read at once, and both halves of many words (`threads.side_by_side`). Those
  of one sentence are read one after the other, as the weights of one have more room in a cache.
- The LSTM's steps are in recurrence.py.

`with plain_path():` goes without all of this.

Shapes as in modeling_elmo.py; moreover U different words, K characters times their width in a window of the widest
filter, S windows of a word.
"""

import random
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .products import NEVER, inner_product, product, rows_for_onednn
from .threads import WithoutPython, lock_of

# A product over windows of characters has about this many rows, so that its result stays in the processor's cache.
WINDOWS_PER_PRODUCT = 256
# Words are read together if the longest has at most this many characters more than the shortest.
LENGTHS_PER_GROUP = 2
# What each character adds to the scores of a window is computed once if there are so many words, and if the words have
# so many places for characters, padding included, for each such score.
FEWEST_WORDS_FOR_CHARACTER_SCORES = 96
CHARACTERS_PER_SCORE = 16
# Joint convolutions multiply narrow filters by zeros; more than this many times the work does not pay.
MOST_WASTE = 2.0
# Two directions are read at once if each step of one has so many multiplications: eight words in a small model. With
# fewer, both threads wait for the weights most of the time, and half of them are in a cache if the threads share them.
FEWEST_FOR_TWO_DIRECTIONS = 2**22
# Rows of a block of the weights of a linear layer, and with how many values and words blocks pay.
ROWS_PER_BLOCK = 256
FEWEST_VALUES_FOR_LINEAR_BLOCKS = 2**20
WORDS_FOR_LINEAR_BLOCKS = range(6, 96)
# Two halves of the words are spelled at once if there are so many: for fewer, reading the weights twice takes longer.
FEWEST_FOR_TWO_HALVES = 128
# How many values of each weight a cache of words looks at, to see changes that torch does not count.
WATCHED_VALUES = 16

_plain_path: ContextVar[bool] = ContextVar("plain_path", default=False)


@contextmanager
def plain_path() -> Iterator[None]:
    """Within this context all models compute step by step as their formulas say, without short cuts.

    The results differ by rounding only. It is for comparisons, and for what the fast path's own gradient cannot do:
    second derivatives and `torch.func` transforms.
    """
    token = _plain_path.set(True)
    try:
        yield
    finally:
        _plain_path.reset(token)


def is_fast(tensor: Tensor) -> bool:
    """Whether the fast path can be taken with this tensor: single or double precision, and not below autocast.

    Weights on the meta device are kept elsewhere, and brought for the calls of modules, which it passes by.
    """
    return (
        not _plain_path.get()
        and tensor.device.type != "meta"
        and tensor.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled(tensor.device.type)
    )


def needs_gradient(tensors: Iterable[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


# --- Each word once --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _multipliers(width: int, device: torch.device) -> Tensor:
    numbers = random.Random(width)
    return torch.tensor([numbers.getrandbits(63) | 1 for _ in range(width)], device=device)


def different_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Where each different row of whole numbers (N, C) stands first (U,), and which of these each row equals (N,)."""
    keys = (rows * _multipliers(rows.shape[1], rows.device)).sum(dim=1)
    found, places = keys.unique(return_inverse=True)
    first = _first_places(places, len(found))
    if torch.equal(rows[first][places], rows):
        return first, places
    found, places = rows.unique(dim=0, return_inverse=True)  # two rows have the same key, which hardly happens
    return _first_places(places, len(found)), places


def _first_places(places: Tensor, count: int) -> Tensor:
    numbers = torch.arange(len(places), device=places.device)
    return numbers.new_full((count,), len(places)).scatter_reduce_(0, places, numbers, reduce="amin")


class WordCache:
    """Vectors of the words that were read last, at most `size` of them, for as long as the weights stay the same.

    Threads may share it. A copy of a cache, with a copy of the model, begins empty.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"A cache of {size} words is not possible: it must be at least 1. None means no cache.")
        self.size = size
        self._lock = lock_of(self)
        self._weights: tuple[Any, ...] = ()
        self._vectors: OrderedDict[bytes, Tensor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def __reduce__(self) -> tuple[Any, ...]:
        return WordCache, (self.size,)

    def get(self, keys: Sequence[bytes], weights: tuple[Any, ...]) -> list[Tensor | None]:
        """The vector of each word, or None where it is not known with these weights."""
        with self._lock:
            if weights != self._weights:
                self._vectors.clear()
                self._weights = weights
            for key in keys:
                if key in self._vectors:
                    self._vectors.move_to_end(key)
            return [self._vectors.get(key) for key in keys]

    def put(self, keys: Sequence[bytes], vectors: Tensor, weights: tuple[Any, ...]) -> None:
        """Keeps vectors (U, P), unless the weights have changed meanwhile; forgets those not read for longest."""
        with self._lock:
            if weights != self._weights:
                return
            for key, vector in zip(keys, vectors, strict=True):
                self._vectors[key] = vector.clone()  # not a view, which would keep all others alive
            while len(self._vectors) > self.size:
                self._vectors.popitem(last=False)


_shared_cache: ContextVar[WordCache | None] = ContextVar("shared_cache", default=None)


@contextmanager
def with_word_cache(cache: WordCache) -> Iterator[None]:
    """Within this context, in this thread, models that have no cache of their own use this one."""
    token = _shared_cache.set(cache)
    try:
        yield
    finally:
        _shared_cache.reset(token)


def shared_word_cache() -> WordCache | None:
    """The cache of `with_word_cache`, or None outside of it."""
    return _shared_cache.get()


def fingerprint(parameters: Iterable[Tensor]) -> tuple[Any, ...]:
    """Something that changes with the weights: where they are, torch's count of their changes, and a few values."""
    return tuple(
        (
            weight.data_ptr(),
            weight.dtype,
            0 if weight.is_inference() else weight._version,
            *weight.detach().flatten()[:: max(weight.numel() // WATCHED_VALUES, 1)].tolist(),
        )
        for weight in parameters
    )


def row_keys(rows: Tensor) -> list[bytes]:
    """A key for each row of whole numbers (N, C)."""
    data = rows.to("cpu", torch.int32).contiguous().numpy().tobytes()
    width = 4 * rows.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]


# --- Characters to features ------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Words of about the same length that stand side by side."""

    start: int
    end: int
    length: int  # characters of the longest


def lengths_of(characters: Tensor, padding: int) -> Tensor:
    """How many characters the words (N, C) have before their `padding` begins (N,)."""
    positions = torch.arange(1, characters.shape[1] + 1, device=characters.device)
    return ((characters != padding) * positions).amax(dim=1)


def groups_of_similar_length(lengths: list[int]) -> list[Group]:
    """Groups words that stand by their lengths, the shortest first."""
    groups, start = [], 0
    while start < len(lengths):
        end = bisect_right(lengths, lengths[start] + LENGTHS_PER_GROUP)
        end = min(end, start + max(WINDOWS_PER_PRODUCT // (lengths[start] + 1), 1))
        groups.append(Group(start, end, lengths[end - 1]))
        start = end
    return groups


def joint_filters(weights: Sequence[Tensor]) -> Tensor:
    """Convolutions (filters, E, width) as one matrix (K, F) for windows of the widest one."""
    widest, count = max(weight.shape[2] for weight in weights), sum(len(weight) for weight in weights)
    joint = weights[0].new_zeros(widest, weights[0].shape[1], count)
    start = 0
    for weight in weights:
        end = start + len(weight)
        joint[: weight.shape[2], :, start:end] = weight.permute(2, 1, 0)
        start = end
    return joint.flatten(0, 1)


def joint_filters_pay(weights: Sequence[Tensor]) -> bool:
    """Whether one product for all filters is not much more work than one for each width."""
    widest, count = max(weight.shape[2] for weight in weights), sum(len(weight) for weight in weights)
    return widest * count <= MOST_WASTE * sum(weight.shape[0] * weight.shape[2] for weight in weights)


def highest_scores(characters: Tensor, filters: Tensor) -> Tensor:
    """Embedded characters (U, C, E) and joint filters (K, F) to the maximum of each filter over all windows (U, F)."""
    if needs_gradient((characters, filters)):
        return _HighestScores.apply(characters, filters)
    windows = _windows(characters, filters)  # (U, S, K)
    rows = windows.flatten(0, 1)
    scores = product(rows, filters, None, rows_for_onednn(rows))
    return scores.unflatten(0, windows.shape[:2]).amax(dim=1)


def _windows(characters: Tensor, filters: Tensor) -> Tensor:
    return characters.flatten(1).unfold(1, len(filters), characters.shape[2])


def few_characters(characters: Tensor, places: int) -> Tensor | None:
    """The different ids (V,) among the characters of words (U, C), if these are so many that `character_scores` pay.

    A window has so many `places`.
    """
    if characters.device.type != "cpu" or len(characters) < FEWEST_WORDS_FOR_CHARACTER_SCORES:
        return None
    different = characters.flatten().bincount().nonzero().flatten()
    return different if len(different) * places <= characters.numel() // CHARACTERS_PER_SCORE else None


def character_scores(characters: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """What each embedded character (V, E) adds to the scores of a window, by its place there: (places, V, F).

    The bias (F,) is in what the first one adds.
    """
    scores = torch.matmul(characters, filters.unflatten(0, (-1, characters.shape[1])))
    scores[0] += bias
    return scores


@WithoutPython
def highest_sums(characters: Tensor, groups: list[tuple[int, int, int]], scores: Tensor) -> Tensor:
    """As `highest_scores`, with sums for products: words (U, C) whose characters are rows of `character_scores`.

    The words are in groups, one after another: start, end, and how many columns of them are read.
    """
    places, count, filters = scores.shape
    rows, first_rows = scores.flatten(0, 1), count * torch.arange(places)
    features = scores.new_empty([groups[-1][1], filters])
    for start, end, columns in groups:
        windows = characters[start:end, :columns].unfold(1, places, 1) + first_rows  # (n, S, places)
        sums = torch.nn.functional.embedding_bag(windows.flatten(0, 1), rows, mode="sum")
        torch.amax(sums.unflatten(0, [end - start, -1]), 1, out=features[start:end])
    return features


class _HighestScores(torch.autograd.Function):
    """As above, with a gradient that remembers which window won, and not the scores of all of them."""

    @staticmethod
    def forward(ctx: Any, characters: Tensor, filters: Tensor) -> Tensor:
        windows = _windows(characters, filters)  # (U, S, K)
        rows = windows.flatten(0, 1)
        scores = product(rows, filters, None, rows_for_onednn(rows)).unflatten(0, windows.shape[:2])  # (U, S, F)
        best = scores.amax(dim=1)
        # The last window that has it. Windows with the same score are the same windows, so it matters not which.
        dtype = torch.uint8 if windows.shape[1] <= 256 else torch.int32
        numbers = torch.arange(windows.shape[1], dtype=dtype, device=scores.device).unsqueeze(1)
        winners = (scores == best.unsqueeze(1)).to(dtype).mul_(numbers).amax(dim=1)
        ctx.save_for_backward(characters, filters, winners)
        return best

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        characters, filters, winners = ctx.saved_tensors
        windows = _windows(characters, filters)
        shape = (*windows.shape[:2], filters.shape[1])  # (U, S, F)
        of_scores = gradient.new_zeros(shape).scatter_(1, winners.long().unsqueeze(1), gradient.unsqueeze(1))
        of_scores = of_scores.flatten(0, 1)
        of_characters = None
        if ctx.needs_input_grad[0]:
            of_windows = product(of_scores, filters.T, None, rows_for_onednn(of_scores)).view(windows.shape)
            size = characters.shape[2]
            of_characters = torch.zeros_like(characters)
            for offset, part in enumerate(of_windows.split(size, dim=2)):
                of_characters[:, offset : offset + windows.shape[1]] += part
        of_filters = None
        if ctx.needs_input_grad[1]:
            of_filters = inner_product(windows.flatten(0, 1), of_scores, rows_for_onednn(of_scores))
        return of_characters, of_filters


# --- Linear layers ---------------------------------------------------------------------------------------------------


def linear(layer: torch.nn.Linear, inputs: Tensor) -> Tensor:
    """What a linear layer makes of inputs (N, I): (N, O), in memory column by column if that is faster."""
    if not _may_be_passed_by(layer, inputs):
        return layer(inputs)
    fewest_for_onednn = rows_for_onednn(inputs)
    with_gradient = needs_gradient((inputs, layer.weight, layer.bias))
    if fewest_for_onednn < NEVER:
        way = _Linear.apply if with_gradient else product
        return way(inputs, layer.weight.T, layer.bias, fewest_for_onednn)
    if with_gradient or not _linear_blocks_pay(layer, len(inputs)):
        return layer(inputs)
    blocks = layer.weight.unflatten(0, (-1, ROWS_PER_BLOCK))  # (O / rows, rows, I), in place
    bias = layer.bias.view(len(blocks), -1, 1)
    words = inputs.T.contiguous()
    columns = torch.baddbmm(bias, blocks, words.expand(len(blocks), -1, -1))  # (O / rows, rows, N)
    return columns.flatten(0, 1).T


def _may_be_passed_by(layer: torch.nn.Linear, inputs: Tensor) -> bool:
    """Whether nobody sees the difference if the weights of a layer are multiplied without a call of it."""
    return (
        not torch.compiler.is_compiling()
        and type(layer).forward is torch.nn.Linear.forward  # and not something that was put in its place
        and is_as_made(layer)
        and is_fast(inputs)
        and inputs.device.type == "cpu"
        and layer.bias is not None
    )


def _linear_blocks_pay(layer: torch.nn.Linear, words: int) -> bool:
    return (
        layer.weight.numel() >= FEWEST_VALUES_FOR_LINEAR_BLOCKS
        and len(layer.weight) % ROWS_PER_BLOCK == 0
        and words in WORDS_FOR_LINEAR_BLOCKS
    )


class _Linear(torch.autograd.Function):
    """As `products.product`, with a gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, fewest_for_onednn: int) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias, fewest_for_onednn)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        fewest_for_onednn = rows_for_onednn(gradient)
        of_rows, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            product(gradient, weight.T, None, fewest_for_onednn) if of_rows else None,
            inner_product(rows, gradient, fewest_for_onednn) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
            None,
        )


def is_as_made(module: torch.nn.Module) -> bool:
    """Whether nothing wants to see the calls of a module, and nothing was put in their place."""
    return (
        "forward" not in vars(module)  # where Accelerate puts what brings weights from elsewhere
        and not (module._forward_hooks or module._forward_pre_hooks)
    )


__all__ = ["plain_path"]
