# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of modeling_elmo.py with less work: the same numbers up to rounding, forward and backward.

- A word that stands in a batch many times is spelled once (`different_rows`), or not at all if it was spelled before
  and the user asked for a cache (`WordCache`).
- A word is read only as far as it goes (`groups_of_similar_length`), and all convolutions are one matrix product
  (`highest_scores`).
- A product of a few words with large weights is one for each block of the weights (`linear`): torch gives each thread
  some of them, and cuts up a single one badly.
- Both directions are read at once, and so are both halves of many words (`threads.side_by_side`). Those of a few
  short rows go in step (`read_in_step`), as there most of the time is taken by calls.
- The LSTM loops write into memory that is already there (`read_without_gradient`), with large weights in blocks
  (`_read_in_blocks`), or keep only what the gradient needs (`DifferentiableLstm`).

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

from .threads import lock_of

# A product over windows of characters has about this many rows, so that its result stays in the processor's cache.
WINDOWS_PER_PRODUCT = 256
# Words are read together if the longest has at most this many characters more than the shortest.
LENGTHS_PER_GROUP = 2
# Joint convolutions multiply narrow filters by zeros; more than this many times the work does not pay.
MOST_WASTE = 2.0
# The gates of the inputs are computed for about this many words at a time, so that they are still in the processor's
# cache when their step comes.
WORDS_PER_PIECE = 256
# From so many values on, a tanh by way of the sigmoid is faster on a CPU: twice as fast for the rows of a large batch.
FEWEST_FOR_SIGMOID = 2**14
# Two directions go in step if each step of one has fewer multiplications than this: eight words in a small model. With
# fewer, calls take most of the time; with more, the products do, and two threads share them out.
FEWEST_FOR_TWO_DIRECTIONS = 2**22
# Weights are put in blocks of about this many values, which stay in the processor's cache during a product with them.
VALUES_PER_BLOCK = 2**18
# Columns of a block of a linear layer, and the values of weights from which on blocks pay.
COLUMNS_PER_BLOCK = 256
FEWEST_VALUES_FOR_LINEAR_BLOCKS = 2**20
# To put weights of an LSTM in blocks takes as long as a few steps. It pays for weights that are larger than a cache,
# and not for a few rows.
FEWEST_VALUES_FOR_BLOCKS = 2**21
FEWEST_WORDS_FOR_BLOCKS = 80
FEWEST_ROWS_FOR_BLOCKS = 4
# The outputs before the projection are summed in parts of so many values, which round less than one long sum.
VALUES_PER_SUM = 512
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
    """Words of about the same length."""

    words: Tensor  # their places among all
    length: int  # characters of the longest


def groups_of_similar_length(characters: Tensor, padding: int) -> list[Group]:
    """Groups the words (N, C) by the characters they have before their `padding` begins."""
    positions = torch.arange(1, characters.shape[1] + 1, device=characters.device)
    lengths, order = ((characters != padding) * positions).amax(dim=1).sort(stable=True)
    sizes: list[int] = lengths.tolist()
    groups, start = [], 0
    while start < len(sizes):
        end = bisect_right(sizes, sizes[start] + LENGTHS_PER_GROUP)
        end = min(end, start + max(WINDOWS_PER_PRODUCT // (sizes[start] + 1), 1))
        groups.append(Group(words=order[start:end], length=sizes[end - 1]))
        start = end
    return groups


def joint_filters(weights: Sequence[Tensor]) -> Tensor:
    """Convolutions (filters, E, width) as one matrix (K, F) for windows of the widest one."""
    widest = max(weight.shape[2] for weight in weights)
    columns = [
        torch.nn.functional.pad(weight, (0, widest - weight.shape[2])).permute(2, 1, 0).flatten(0, 1)
        for weight in weights
    ]
    return torch.cat(columns, dim=1)


def joint_filters_pay(weights: Sequence[Tensor]) -> bool:
    """Whether one product for all filters is not much more work than one for each width."""
    widest, filters = max(weight.shape[2] for weight in weights), sum(weight.shape[0] for weight in weights)
    return widest * filters <= MOST_WASTE * sum(weight.shape[0] * weight.shape[2] for weight in weights)


def highest_scores(characters: Tensor, filters: Tensor) -> Tensor:
    """Embedded characters (U, C, E) and joint filters (K, F) to the maximum of each filter over all windows (U, F)."""
    if needs_gradient((characters, filters)):
        return _HighestScores.apply(characters, filters)
    windows = _windows(characters, filters)  # (U, S, K)
    scores = windows.flatten(0, 1) @ filters
    return scores.unflatten(0, windows.shape[:2]).amax(dim=1)


def _windows(characters: Tensor, filters: Tensor) -> Tensor:
    return characters.flatten(1).unfold(1, len(filters), characters.shape[2])


class _HighestScores(torch.autograd.Function):
    """As above, with a gradient that remembers which window won, and not the scores of all of them."""

    @staticmethod
    def forward(ctx: Any, characters: Tensor, filters: Tensor) -> Tensor:
        windows = _windows(characters, filters)  # (U, S, K)
        scores = (windows.flatten(0, 1) @ filters).unflatten(0, windows.shape[:2])  # (U, S, F)
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
            of_windows = (of_scores @ filters.T).view(windows.shape)
            size = characters.shape[2]
            of_characters = torch.zeros_like(characters)
            for offset, part in enumerate(of_windows.split(size, dim=2)):
                of_characters[:, offset : offset + windows.shape[1]] += part
        of_filters = windows.flatten(0, 1).T @ of_scores if ctx.needs_input_grad[1] else None
        return of_characters, of_filters


# --- Linear layers ---------------------------------------------------------------------------------------------------


def linear(layer: torch.nn.Linear, inputs: Tensor) -> Tensor:
    """What a linear layer makes of inputs (N, I): (N, O)."""
    if not _linear_blocks_pay(layer, inputs):
        return layer(inputs)
    blocks = layer.weight.unflatten(0, (-1, COLUMNS_PER_BLOCK))  # (O / columns, columns, I), in place
    bias = layer.bias.view(len(blocks), 1, -1)
    outputs = torch.baddbmm(bias, inputs.expand(len(blocks), -1, -1), blocks.transpose(1, 2))
    return outputs.transpose(0, 1).flatten(1)


def _linear_blocks_pay(layer: torch.nn.Linear, inputs: Tensor) -> bool:
    return (
        type(layer).forward is torch.nn.Linear.forward  # and not something that was put in its place
        and is_as_made(layer)
        and is_fast(inputs)
        and inputs.device.type == "cpu"
        and layer.bias is not None
        and layer.weight.numel() >= FEWEST_VALUES_FOR_LINEAR_BLOCKS
        and len(layer.weight) % COLUMNS_PER_BLOCK == 0
        and not needs_gradient((inputs, layer.weight, layer.bias))
    )


def is_as_made(module: torch.nn.Module) -> bool:
    """Whether nothing wants to see the calls of a module, and nothing was put in their place."""
    return (
        "forward" not in vars(module)  # where Accelerate puts what brings weights from elsewhere
        and not (module._forward_hooks or module._forward_pre_hooks)
    )


# --- The recurrence --------------------------------------------------------------------------------------------------


class LstmWeights(NamedTuple):
    """What one layer of one direction computes with; the bias has the forget bias in it."""

    input_weight: Tensor  # (P, 4H)
    recurrent_weight: Tensor  # (P, 4H)
    bias: Tensor  # (4H,)
    projection_weight: Tensor | None  # (H, P)
    cell_clip: float | None
    projection_clip: float | None

    @property
    def cell_size(self) -> int:
        return len(self.bias) // 4


class LstmResult(NamedTuple):
    outputs: Tensor  # (N, P)
    hidden: Tensor  # (B, P) after the last word
    cell: Tensor  # (B, H) after the last word


def read_without_gradient(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    """One layer of one direction over packed words (N, P), in place: only the outputs of all steps are kept."""
    read = _read_in_blocks if _blocks_pay(layer, inputs, batch_sizes) else _read_in_rows
    return read(layer, inputs, batch_sizes, hidden, cell)


def _blocks_pay(layer: LstmWeights, inputs: Tensor, batch_sizes: list[int]) -> bool:
    return (
        inputs.device.type == "cpu"
        and layer.recurrent_weight.numel() >= FEWEST_VALUES_FOR_BLOCKS
        and len(inputs) >= FEWEST_WORDS_FOR_BLOCKS
        and batch_sizes[0] >= FEWEST_ROWS_FOR_BLOCKS
    )


def _read_in_rows(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    outputs = torch.empty_like(inputs)
    last_hidden, last_cell = hidden.clone(), cell.clone()
    hidden, cell = last_hidden, last_cell  # the cell is overwritten step by step, so that it ends as the last one
    values = torch.empty_like(cell)
    pieces = _pieces(batch_sizes)
    buffer = inputs.new_empty(max(map(sum, pieces), default=0), len(layer.bias))
    start = 0
    for steps in pieces:
        end = start + sum(steps)
        gates = torch.addmm(layer.bias, inputs[start:end], layer.input_weight, out=buffer[: end - start])
        for gate, output in _steps(steps, gates, outputs[start:end]):
            rows = len(gate)
            if rows < len(hidden):  # the shortest sentences have ended
                last_hidden[rows : len(hidden)] = hidden[rows:]
            _step(layer, gate, hidden[:rows], cell[:rows], cell[:rows], values[:rows], output)
            hidden = output
        start = end
    last_hidden[: len(hidden)] = hidden
    return LstmResult(outputs, last_hidden, last_cell)


def _read_in_blocks(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    """The same with columns in blocks: (rows, columns) is (blocks, rows, width), for weights, gates and cells.

    A large matrix has its rows far apart in memory, and a product with a few rows waits for it most of the time.
    """
    width = _width_of_blocks(layer)
    input_weight, recurrent_weight = (
        _in_blocks(weight, width).contiguous() for weight in (layer.input_weight, layer.recurrent_weight)
    )
    bias = _in_blocks(layer.bias.unsqueeze(0), width)
    blocks = len(bias)

    outputs = torch.empty_like(inputs)
    hidden = last_hidden = hidden.clone()
    cell = _in_blocks(cell, width).clone(memory_format=torch.contiguous_format)  # overwritten step by step
    values = torch.empty_like(cell)
    pieces = _pieces(batch_sizes)
    buffer = inputs.new_empty(blocks, max(map(sum, pieces)), width)
    start = 0
    for steps in pieces:
        end = start + sum(steps)
        words = inputs[start:end].expand(blocks, -1, -1)
        gates = torch.baddbmm(bias, words, input_weight, out=buffer[:, : end - start])
        for gate, output in zip(gates.split(steps, dim=1), outputs[start:end].split(steps), strict=True):
            rows = len(output)
            if rows < len(hidden):  # the shortest sentences have ended
                last_hidden[rows : len(hidden)] = hidden[rows:]
            gate.baddbmm_(hidden[:rows].expand(blocks, -1, -1), recurrent_weight)
            _step_in_blocks(layer, gate, cell[:, :rows], values[:, :rows], output)
            hidden = output
        start = end
    last_hidden[: len(hidden)] = hidden
    return LstmResult(outputs, last_hidden, cell.transpose(0, 1).flatten(1))


def _step_in_blocks(layer: LstmWeights, gates: Tensor, cell: Tensor, values: Tensor, output: Tensor) -> None:
    """Activates the gates (blocks, rows, width); overwrites `cell` and `values`, both (blocks / 4, rows, width).

    The `output` (rows, P) has no blocks.
    """
    input_gate, forget_gate, output_gate, candidate = gates.chunk(4)
    gates[: 3 * len(cell)].sigmoid_()
    _tanh(candidate, out=candidate)
    cell.mul_(forget_gate).add_(torch.mul(input_gate, candidate, out=values))
    if layer.cell_clip is not None:
        cell.clamp_(-layer.cell_clip, layer.cell_clip)
    _tanh(cell, out=values).mul_(output_gate)
    if layer.projection_weight is None:
        output.unflatten(1, (len(values), -1)).copy_(values.transpose(0, 1))
        return
    _sum_of_products(values, layer.projection_weight, out=output)
    if layer.projection_clip is not None:
        output.clamp_(-layer.projection_clip, layer.projection_clip)


def _sum_of_products(parts: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Parts of the rows (parts, rows, width) times those of the weight (parts x width, P), summed to (rows, P)."""
    return torch.sum(torch.bmm(parts, weight.unflatten(0, (len(parts), -1))), dim=0, out=out)


def _width_of_blocks(layer: LstmWeights) -> int:
    """The columns of a block: as many as divide the gates, and are not too many."""
    most = max(VALUES_PER_BLOCK // len(layer.recurrent_weight), 1)
    parts = -(-layer.cell_size // most)
    return layer.cell_size // parts if layer.cell_size % parts == 0 else layer.cell_size


def _in_blocks(matrix: Tensor, width: int) -> Tensor:
    """(rows, columns) as (blocks, rows, width)."""
    return matrix.unflatten(1, (-1, width)).transpose(0, 1)


def read_in_step(
    layers: Sequence[LstmWeights], inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer of both directions over packed words, step by step together.

    All that a step does is one call for both; in products, each direction has a thread of the processor. For that, the
    weights of both are put together anew each time, which takes less than a few steps: kept ones could be out of date.

    Args:
        layers: The weights of both directions.
        inputs: The words (2, N, P), in the order of each direction.
        batch_sizes: The words of each step, the same for both.
        hidden: The state to start from (2, B, P).
        cell: The state to start from (2, B, H).

    Returns:
        The outputs (2, N, P), and the states (2, B, P), (2, B, H) after the last word.
    """
    outputs = torch.empty_like(inputs)
    hidden, cell = hidden.clone(), cell.clone()  # overwritten step by step, so that they end as the last ones
    weights = _WeightsOfBoth.of(layers)
    start, rows, step = 0, -1, None
    for sizes in _pieces(batch_sizes):
        end = start + sum(sizes)
        gates_of_inputs = cell.new_empty(2, end - start, 4 * cell.shape[2])
        for layer, words, gates in zip(layers, inputs[:, start:end], gates_of_inputs, strict=True):
            torch.addmm(layer.bias, words, layer.input_weight, out=gates)
        for gates_of_input, output in zip(
            gates_of_inputs.split(sizes, dim=1), outputs[:, start:end].split(sizes, dim=1), strict=True
        ):
            if step is None or gates_of_input.shape[1] < rows:  # the shortest sentences have ended
                rows = gates_of_input.shape[1]
                step = _StepOfBoth(weights, hidden[:, :rows], cell[:, :rows])
            step.go(gates_of_input)
            output.copy_(step.hidden)
        start = end
    return outputs, hidden, cell


class _WeightsOfBoth(NamedTuple):
    """What the steps of both directions compute with."""

    recurrent_weight: Tensor  # (2, P, 4H)
    projection_weight: Tensor | None  # (2, H, P)
    cell_clip: float | None
    projection_clip: float | None

    @classmethod
    def of(cls, layers: Sequence[LstmWeights]) -> "_WeightsOfBoth":
        projections = [layer.projection_weight for layer in layers if layer.projection_weight is not None]
        return cls(
            recurrent_weight=torch.stack([layer.recurrent_weight for layer in layers]),
            projection_weight=torch.stack(projections) if projections else None,
            cell_clip=layers[0].cell_clip,
            projection_clip=layers[0].projection_clip,
        )


class _StepOfBoth:
    """A step of both directions, with all its views made once: a view costs as much as a small operation.

    Args:
        weights: Those of both directions.
        hidden: (2, rows, P), which a step overwrites.
        cell: (2, rows, H), which a step overwrites.
    """

    def __init__(self, weights: _WeightsOfBoth, hidden: Tensor, cell: Tensor):
        self.weights, self.hidden, self.cell = weights, hidden, cell
        self.gates = cell.new_empty(*cell.shape[:2], 4 * cell.shape[2])
        self.sigmoids = self.gates[:, :, : 3 * cell.shape[2]]
        self.input_gate, self.forget_gate, self.output_gate, self.candidate = self.gates.chunk(4, dim=2)
        self.values = torch.empty_like(cell)

    def go(self, gates_of_input: Tensor) -> None:
        """Takes what the words give to the gates (2, rows, 4H)."""
        weights, cell, values = self.weights, self.cell, self.values
        torch.baddbmm(gates_of_input, self.hidden, weights.recurrent_weight, out=self.gates)
        self.sigmoids.sigmoid_()
        torch.mul(self.input_gate, self.candidate.tanh_(), out=values)
        cell.mul_(self.forget_gate).add_(values)
        if weights.cell_clip is not None:
            cell.clamp_(-weights.cell_clip, weights.cell_clip)
        torch.tanh(cell, out=values).mul_(self.output_gate)
        if weights.projection_weight is None:
            self.hidden.copy_(values)
            return
        torch.bmm(values, weights.projection_weight, out=self.hidden)
        if weights.projection_clip is not None:
            self.hidden.clamp_(-weights.projection_clip, weights.projection_clip)


def _pieces(batch_sizes: list[int]) -> list[list[int]]:
    """Cuts the steps into runs of about `WORDS_PER_PIECE` words."""
    pieces: list[list[int]] = []
    room = 0
    for size in batch_sizes:
        room -= size
        if room < 0:
            pieces.append([])
            room = WORDS_PER_PIECE - size
        pieces[-1].append(size)
    return pieces


def _steps(batch_sizes: list[int], *packed: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each step of several packed tensors (N, *)."""
    return list(zip(*(tensor.split(batch_sizes) for tensor in packed), strict=True))


def _step(
    layer: LstmWeights, gates: Tensor, hidden: Tensor, cell: Tensor, new_cell: Tensor, values: Tensor, output: Tensor
) -> None:
    """Activates the gates (rows, 4H), which come with the input in them; fills `new_cell`, `values` and `output`.

    `new_cell` may be the same memory as `cell`. There is no addcmul here: it is slower than its two parts.
    """
    cell_size = cell.shape[1]
    gates.addmm_(hidden, layer.recurrent_weight)
    gates[:, : 3 * cell_size].sigmoid_()
    input_gate, forget_gate, output_gate, candidate = gates.chunk(4, dim=1)
    _tanh(candidate, out=candidate)
    torch.mul(forget_gate, cell, out=new_cell).add_(torch.mul(input_gate, candidate, out=values))
    if layer.cell_clip is not None:
        new_cell.clamp_(-layer.cell_clip, layer.cell_clip)
    if layer.projection_weight is None:
        _tanh(new_cell, out=output).mul_(output_gate)
        return
    _tanh(new_cell, out=values).mul_(output_gate)
    if cell_size > VALUES_PER_SUM and cell_size % VALUES_PER_SUM == 0:
        _sum_of_products(_in_blocks(values, VALUES_PER_SUM), layer.projection_weight, out=output)
    else:
        torch.mm(values, layer.projection_weight, out=output)
    if layer.projection_clip is not None:
        output.clamp_(-layer.projection_clip, layer.projection_clip)


def _tanh(values: Tensor, out: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2x) - 1, to the precision of numbers near 1."""
    if values.device.type != "cpu" or values.numel() < FEWEST_FOR_SIGMOID:
        return torch.tanh(values, out=out)
    return torch.mul(values, 2, out=out).sigmoid_().mul_(2).sub_(1)


def read_with_gradient(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    """One layer of one direction, whose gradient is computed by hand."""
    return LstmResult(*DifferentiableLstm.apply(inputs, hidden, cell, *layer, batch_sizes))


class DifferentiableLstm(torch.autograd.Function):
    """Keeps the gates, cells and outputs of all steps; the gradients of the weights are one product each."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        cell: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection_weight: Tensor | None,
        cell_clip: float | None,
        projection_clip: float | None,
        batch_sizes: list[int],
    ) -> tuple[Tensor, Tensor, Tensor]:
        layer = LstmWeights(input_weight, recurrent_weight, bias, projection_weight, cell_clip, projection_clip)
        gates = torch.addmm(bias, inputs, input_weight)  # (N, 4H), activated in place below
        cells = inputs.new_empty(len(inputs), layer.cell_size)
        outputs = torch.empty_like(inputs)
        values = torch.empty_like(cell)
        first = hidden, cell
        last_hidden, last_cell = hidden.clone(), cell.clone()
        for gate, new_cell, output in _steps(batch_sizes, gates, cells, outputs):
            rows = len(gate)
            if rows < len(hidden):  # the shortest sentences have ended
                last_hidden[rows : len(hidden)], last_cell[rows : len(hidden)] = hidden[rows:], cell[rows:]
            _step(layer, gate, hidden[:rows], cell[:rows], new_cell, values[:rows], output)
            hidden, cell = output, new_cell
        last_hidden[: len(hidden)], last_cell[: len(hidden)] = hidden, cell
        weights = (input_weight, recurrent_weight, projection_weight)
        ctx.save_for_backward(inputs, *first, *weights, gates, cells, outputs)
        ctx.settings = batch_sizes, cell_clip, projection_clip
        return outputs, last_hidden, last_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_outputs: Tensor, of_hidden: Tensor, of_cell: Tensor) -> tuple[Tensor | None, ...]:
        """Each tensor `of_x` is the gradient of the loss by x; running ones hold it for the step at hand."""
        inputs, hidden, cell, input_weight, recurrent_weight, projection_weight, gates, cells, outputs = (
            ctx.saved_tensors
        )
        batch_sizes, cell_clip, projection_clip = ctx.settings
        cell_size = cells.shape[1]
        of_gates = torch.empty_like(gates)  # by the sums before sigmoid and tanh
        of_projections = torch.empty_like(outputs)  # by the products before their clip
        values = torch.empty_like(cells)  # the outputs before they are projected
        of_hidden, of_cell = of_hidden.clone(), of_cell.clone()  # rows that end early keep what comes from the end
        cells_before = _before(cell, cells, batch_sizes)
        scratch = torch.empty_like(cell)

        steps = _steps(batch_sizes, gates, cells, outputs, values, of_gates, of_projections, of_outputs)
        for before, (gate, new_cell, output, value, of_gate, of_projection, of_output) in zip(
            reversed(cells_before), reversed(steps), strict=True
        ):
            rows = len(gate)
            input_gate, forget_gate, output_gate, candidate = gate.chunk(4, dim=1)
            of_input_gate, of_forget_gate, of_output_gate, of_candidate = of_gate.chunk(4, dim=1)
            this_of_hidden = of_hidden[:rows].add_(of_output)
            of_value = this_of_hidden
            if projection_weight is not None:
                _through_clip(this_of_hidden, output, projection_clip, of_projection)
                of_value = torch.mm(of_projection, projection_weight.T, out=scratch[:rows])

            tanh = _tanh(new_cell, out=torch.empty_like(new_cell))
            torch.mul(tanh, output_gate, out=value)
            torch.mul(of_value, tanh, out=of_output_gate)
            of_tanh = torch.mul(of_value, output_gate, out=of_candidate)
            this_of_cell = of_cell[:rows].add_(_through_tanh(of_tanh, tanh))
            _through_clip(this_of_cell, new_cell, cell_clip, this_of_cell)
            torch.mul(this_of_cell, candidate, out=of_input_gate)
            torch.mul(this_of_cell, before, out=of_forget_gate)
            torch.mul(this_of_cell, input_gate, out=of_candidate)
            this_of_cell.mul_(forget_gate)
            _through_sigmoid(of_gate[:, : 3 * cell_size], gate[:, : 3 * cell_size])
            _through_tanh(of_candidate, candidate)
            torch.mm(of_gate, recurrent_weight.T, out=this_of_hidden)

        needed = ctx.needs_input_grad
        hidden_before = torch.cat([outputs[:0], *_before(hidden, outputs, batch_sizes)])
        return (
            of_gates @ input_weight.T if needed[0] else None,
            of_hidden,
            of_cell,
            inputs.T @ of_gates if needed[3] else None,
            hidden_before.T @ of_gates if needed[4] else None,
            of_gates.sum(dim=0) if needed[5] else None,
            values.T @ of_projections if needed[6] else None,
            None,
            None,
            None,
        )


def _before(first: Tensor, packed: Tensor, batch_sizes: list[int]) -> list[Tensor]:
    """For each step what the step before had for the sentences that go on; `first` for the first step."""
    if not batch_sizes:
        return []
    states = [first, *packed.split(batch_sizes)[:-1]]
    return [state[:rows] for state, rows in zip(states, batch_sizes, strict=True)]


def _through_clip(gradient: Tensor, clipped: Tensor, clip: float | None, out: Tensor) -> None:
    """Passes on the gradient where the result is not at the clip."""
    if clip is not None:
        torch.ops.aten.hardtanh_backward.grad_input(gradient, clipped, -clip, clip, grad_input=out)
    elif out is not gradient:
        out.copy_(gradient)


def _through_sigmoid(gradient: Tensor, result: Tensor) -> Tensor:
    return torch.ops.aten.sigmoid_backward.grad_input(gradient, result, grad_input=gradient)


def _through_tanh(gradient: Tensor, result: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)


__all__ = ["plain_path"]
