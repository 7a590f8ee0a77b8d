# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps of an LSTM layer, fast: the arithmetic of `ElmoLstmLayer`, forward and backward.

Without a gradient, the loop writes into memory that is already there, and torch runs it without Python; large weights
are put as products with them read them fastest (`_arranged`). With a gradient, only what that needs is kept
(`DifferentiableLstm`).

Shapes as in modeling_elmo.py; moreover n words of a piece, and rows: the sentences that a step reads.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .products import (
    HAS_AVX512,
    MKL_IS_BEHIND,
    NEVER,
    add_product,
    inner_product,
    packed,
    parts_for_one_row,
    product,
    rows_for_onednn,
    sum_of_products,
)
from .threads import WithoutPython

# The gates of the inputs are computed for about this many words at a time, so that they are still in the processor's
# cache when their step comes.
WORDS_PER_PIECE = 256
# With a gradient, the gates of about this many words are in one piece of memory: more takes longer to get.
WORDS_PER_GRADIENT = 512
# From so many values on, a tanh by way of the sigmoid is faster on a CPU: torch leaves the tanh to MKL.
FEWEST_FOR_SIGMOID = (2**12 if MKL_IS_BEHIND else NEVER) if HAS_AVX512 else 2**14
# Weights are put in blocks of about this many values, which stay in the processor's cache during a product with them.
VALUES_PER_BLOCK = 2**18
# To put weights in another order takes as long as a few steps. In blocks, it pays for weights that are larger than a
# cache, and not for a few rows; packed, for so many steps.
FEWEST_VALUES_FOR_BLOCKS = 2**21
FEWEST_WORDS_FOR_BLOCKS = 80
FEWEST_ROWS_FOR_BLOCKS = 4
FEWEST_STEPS_TO_PACK = 24
# The inputs of a few words are multiplied by so many rows of such weights at a time: more stand so far apart that the
# processor does not fetch them ahead.
ROWS_AT_ONCE = 64
MOST_WORDS_FOR_SOME_ROWS = 64
# The outputs before the projection are summed in parts of so many values, which round less than one long sum. It pays
# for more than four of them: the sums of a small model round little, if MKL makes them; oneDNN's round twice as much.
VALUES_PER_SUM = 256


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


# --- Without a gradient ----------------------------------------------------------------------------------------------


def read_without_gradient(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    """One layer of one direction over packed words (N, P); only the outputs of all steps are kept."""
    fewest_for_onednn = rows_for_onednn(inputs)
    weights = _arranged(layer, inputs, batch_sizes, fewest_for_onednn)
    width = weights.input_weight.shape[-1] if weights.input_weight.dim() == 3 else None
    cells = cell.clone() if width is None else _columns_in_blocks(cell, width)
    outputs = torch.empty_like(inputs)
    clips, rows_at_once = (layer.cell_clip, layer.projection_clip), _rows_at_once(layer, inputs)
    has_threads = inputs.device.type == "cpu" and torch.get_num_threads() > 1
    parts = parts_for_one_row(4 * layer.cell_size) if has_threads else 1
    ways = rows_at_once, FEWEST_FOR_SIGMOID, fewest_for_onednn, parts
    _go_through(inputs, _pieces(batch_sizes, WORDS_PER_PIECE), hidden, cells, outputs, *weights, *clips, *ways)
    places = torch.tensor(_last_places(batch_sizes), dtype=torch.int64, device=outputs.device)
    return LstmResult(
        outputs=outputs,
        hidden=torch.cat([outputs[places], hidden[len(places) :]]),
        cell=cells if width is None else cells.transpose(0, 1).flatten(1),
    )


def _rows_at_once(layer: LstmWeights, inputs: Tensor) -> int:
    is_large = inputs.device.type == "cpu" and layer.input_weight.numel() >= FEWEST_VALUES_FOR_BLOCKS
    return ROWS_AT_ONCE if is_large and len(inputs) <= MOST_WORDS_FOR_SOME_ROWS else len(layer.input_weight)


def _pieces(batch_sizes: list[int], words: int) -> list[list[int]]:
    """Cuts the steps into runs of about so many words."""
    pieces: list[list[int]] = []
    room = 0
    for size in batch_sizes:
        room -= size
        if room < 0:
            pieces.append([])
            room = words - size
        pieces[-1].append(size)
    return pieces


def _last_places(batch_sizes: list[int]) -> list[int]:
    """Where the last word of each row stands among all packed words, the first row first."""
    places: list[int] = []
    start = sum(batch_sizes)
    for size in reversed(batch_sizes):
        start -= size
        places.extend(range(start + len(places), start + size))
    return places


class _Weights(NamedTuple):
    """The weights of a layer as `_go_through` reads them; see `_arranged`."""

    input_weight: Tensor  # (P, 4H) or (blocks, P, width)
    recurrent_weight: Tensor  # (P, 4H) or (blocks, P, width)
    packed_weight: Tensor | None  # the recurrent one as `products.packed` gives it
    bias: Tensor  # (4H,) or (blocks, 1, width)
    projection: Tensor | None  # (parts, width, P)


def _arranged(layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], fewest_for_onednn: int) -> _Weights:
    """In the order in which products with a few rows read them fastest, if what that takes is less than what it gains.

    As they are stored, parts of a weight that are read one after another are far apart in memory.
    """
    if fewest_for_onednn < NEVER:
        steps = sum(rows >= fewest_for_onednn for rows in batch_sizes)
        return _as_stored(layer, packed(layer.recurrent_weight) if steps >= FEWEST_STEPS_TO_PACK else None)
    return _in_blocks(layer, _width_of_blocks(layer)) if _blocks_pay(layer, inputs, batch_sizes) else _as_stored(layer)


def _as_stored(layer: LstmWeights, packed_weight: Tensor | None = None) -> _Weights:
    return _Weights(
        input_weight=layer.input_weight,
        recurrent_weight=layer.recurrent_weight,
        packed_weight=packed_weight,
        bias=layer.bias,
        projection=_in_parts(layer.projection_weight),
    )


def _in_parts(projection: Tensor | None) -> Tensor | None:
    """(H, P) as (parts, width, P), without a copy; of a few values there is one part."""
    if projection is None:
        return None
    size = len(projection)
    width = VALUES_PER_SUM if size > 4 * VALUES_PER_SUM and size % VALUES_PER_SUM == 0 else size
    return projection.unflatten(0, (-1, width))


def _blocks_pay(layer: LstmWeights, inputs: Tensor, batch_sizes: list[int]) -> bool:
    return (
        inputs.device.type == "cpu"
        and layer.recurrent_weight.numel() >= FEWEST_VALUES_FOR_BLOCKS
        and len(inputs) >= FEWEST_WORDS_FOR_BLOCKS
        and batch_sizes[0] >= FEWEST_ROWS_FOR_BLOCKS
    )


def _in_blocks(layer: LstmWeights, width: int) -> _Weights:
    """With columns in blocks: (rows, columns) is (blocks, rows, width), for weights, gates and cells."""
    projection = layer.projection_weight
    return _Weights(
        input_weight=_columns_in_blocks(layer.input_weight, width),
        recurrent_weight=_columns_in_blocks(layer.recurrent_weight, width),
        packed_weight=None,
        bias=_columns_in_blocks(layer.bias.unsqueeze(0), width),
        projection=None if projection is None else projection.unflatten(0, (-1, width)),
    )


def _width_of_blocks(layer: LstmWeights) -> int:
    """The columns of a block: as many as divide the gates, and are not too many."""
    most = max(VALUES_PER_BLOCK // len(layer.recurrent_weight), 1)
    parts = -(-layer.cell_size // most)
    return layer.cell_size // parts if layer.cell_size % parts == 0 else layer.cell_size


def _columns_in_blocks(matrix: Tensor, width: int) -> Tensor:
    """(rows, columns) as (blocks, rows, width), a copy."""
    return matrix.unflatten(1, (-1, width)).transpose(0, 1).clone(memory_format=torch.contiguous_format)


# --- Steps that torch runs without Python ----------------------------------------------------------------------------


@WithoutPython
def _go_through(
    inputs: Tensor,
    pieces: list[list[int]],
    hidden: Tensor,
    cells: Tensor,
    outputs: Tensor,
    input_weight: Tensor,
    recurrent_weight: Tensor,
    packed_weight: Tensor | None,
    bias: Tensor,
    projection: Tensor | None,
    cell_clip: float | None,
    projection_clip: float | None,
    rows_at_once: int,
    fewest_for_sigmoid: int,
    fewest_for_onednn: int,
    parts: int,
) -> None:
    """All steps of packed words (N, P), piece by piece, from the state `hidden` (B, P) and `cells` (*, B, *).

    The weights are those of `_Weights`. Overwrites the cells, and fills the `outputs` (N, P).
    """
    in_blocks = input_weight.dim() == 3
    shape = list(input_weight.shape)
    shape[-2] = max([0] + [sum(sizes) for sizes in pieces])
    room = inputs.new_empty(shape)  # for the gates of a piece
    cell, value = cells, torch.empty_like(cells)
    goes_on = bool(hidden.any())  # from zeros, nothing is to be multiplied in the first step
    start = 0
    for sizes in pieces:
        end = start + sum(sizes)
        words = inputs[start:end]
        gates = room.narrow(-2, 0, words.shape[0])  # (n, 4H) or (blocks, n, width)
        if words.shape[0] >= fewest_for_onednn:
            gates = product(words, input_weight, bias, fewest_for_onednn)
        elif in_blocks:
            torch.baddbmm(bias, words.expand(gates.shape[0], -1, -1), input_weight, out=gates)
        else:
            torch.addmm(bias, words[:, :rows_at_once], input_weight[:rows_at_once], out=gates)
            for first in range(rows_at_once, input_weight.shape[0], rows_at_once):
                last = first + rows_at_once
                gates.addmm_(words[:, first:last], input_weight[first:last])
        by_step = _views_by_step(gates, 0 if in_blocks else 1, sizes)
        for step, output in enumerate(outputs[start:end].split(sizes)):
            rows = sizes[step]
            if rows < cell.shape[-2]:  # the shortest sentences have ended
                cell, value, hidden = cell.narrow(-2, 0, rows), value.narrow(-2, 0, rows), hidden[:rows]
            if goes_on:
                if in_blocks:
                    by_step[0][step].baddbmm_(hidden.expand(gates.shape[0], -1, -1), recurrent_weight)
                else:
                    add_product(by_step[0][step], hidden, recurrent_weight, packed_weight, fewest_for_onednn, parts)
            _activate(by_step, step, cell, cell, value, cell_clip, fewest_for_sigmoid)
            _project(value, projection, projection_clip, fewest_for_onednn, output)
            hidden, goes_on = output, True
        start = end


def _views_by_step(gates: Tensor, dim: int, sizes: list[int]) -> list[list[Tensor]]:
    """Views of the gates (*, n, *) of each step, all made at once: one by one, they take as long as small operations.

    First come those of all gates, and of the three that share the sigmoid; then the four that stand side by side in a
    dimension: input, forget and output gate, and the candidate.
    """
    views = [gates, gates.narrow(dim, 0, gates.shape[dim] // 4 * 3)]
    return [view.split(sizes, -2) for view in views + list(gates.chunk(4, dim))]


def _activate(
    gates: list[list[Tensor]],
    step: int,
    cell: Tensor,
    new_cell: Tensor,
    values: Tensor,
    clip: float | None,
    fewest_for_sigmoid: int,
) -> None:
    """Activates the gates of a step; fills `new_cell` and, with the outputs before they are projected, `values`.

    `new_cell` may be `cell` itself. There is no addcmul here: it is slower than its two parts.
    """
    candidate = gates[5][step]
    gates[1][step].sigmoid_()
    _tanh(candidate, candidate, fewest_for_sigmoid)
    torch.mul(gates[2][step], candidate, out=values)
    torch.mul(gates[3][step], cell, out=new_cell).add_(values)
    _clip(new_cell, clip)
    _tanh(new_cell, values, fewest_for_sigmoid).mul_(gates[4][step])


def _tanh(values: Tensor, out: Tensor, fewest_for_sigmoid: int) -> Tensor:
    """tanh(x) = 2 sigmoid(2x) - 1, to the precision of numbers near 1."""
    if values.numel() < fewest_for_sigmoid or values.device.type != "cpu":
        return torch.tanh(values, out=out)
    return torch.mul(values, 2, out=out).sigmoid_().mul_(2).sub_(1)


def _project(
    values: Tensor, projection: Tensor | None, clip: float | None, fewest_for_onednn: int, out: Tensor
) -> None:
    """Values (rows, H) or (blocks, rows, width) and the projection (parts, width, P) to outputs (rows, P).

    There are as many parts as blocks.
    """
    if projection is None:
        out.copy_(values if values.dim() == 2 else values.transpose(0, 1).flatten(1))
        return
    if projection.shape[0] > 1 and values.shape[0] >= fewest_for_onednn:  # and not in blocks
        out.copy_(sum_of_products(values, projection))
    elif values.dim() == 2 and projection.shape[0] == 1:
        torch.mm(values, projection[0], out=out)
    else:
        if values.dim() == 2:
            values = values.unflatten(1, [projection.shape[0], -1]).transpose(0, 1)
        torch.sum(torch.bmm(values, projection), dim=0, out=out)
    _clip(out, clip)


def _clip(values: Tensor, clip: float | None) -> None:
    if clip is not None:
        values.clamp_(-clip, clip)


# --- With a gradient -------------------------------------------------------------------------------------------------


def read_with_gradient(
    layer: LstmWeights, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
) -> LstmResult:
    """One layer of one direction, whose gradient is computed by hand."""
    return LstmResult(*DifferentiableLstm.apply(inputs, hidden, cell, *layer, batch_sizes))


class DifferentiableLstm(torch.autograd.Function):
    """Keeps the gates, cells and outputs of all steps; the gradients of the weights are one product for each piece."""

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
        fewest_for_onednn = rows_for_onednn(inputs)
        pieces = _pieces(batch_sizes, WORDS_PER_GRADIENT) or [[]]
        gates: list[Tensor] = []  # of each piece (n, 4H)
        cells = inputs.new_empty(len(inputs), len(bias) // 4)
        outputs = torch.empty_like(inputs)
        values = torch.empty_like(cell)
        projection = _in_parts(projection_weight)
        first = hidden, cell
        last_hidden, last_cell = hidden.clone(), cell.clone()
        start = 0
        for sizes in pieces:
            here = slice(start, start + sum(sizes))
            start = here.stop
            gates.append(product(inputs[here], input_weight, bias, fewest_for_onednn))  # activated in place below
            by_step = _views_by_step(gates[-1], 1, sizes)
            for step, (gate, new_cell, output) in enumerate(_steps(sizes, gates[-1], cells[here], outputs[here])):
                rows = len(gate)
                if rows < len(hidden):  # the shortest sentences have ended
                    last_hidden[rows : len(hidden)], last_cell[rows : len(hidden)] = hidden[rows:], cell[rows:]
                value = values[:rows]
                add_product(gate, hidden[:rows], recurrent_weight, None, fewest_for_onednn, parts=1)
                _activate(by_step, step, cell[:rows], new_cell, value, cell_clip, FEWEST_FOR_SIGMOID)
                _project(value, projection, projection_clip, fewest_for_onednn, output)
                hidden, cell = output, new_cell
        last_hidden[: len(hidden)], last_cell[: len(hidden)] = hidden, cell
        weights = (input_weight, recurrent_weight, projection_weight)
        ctx.save_for_backward(inputs, *first, *weights, cells, outputs, *gates)
        ctx.settings = batch_sizes, pieces, cell_clip, projection_clip
        return outputs, last_hidden, last_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_outputs: Tensor, of_hidden: Tensor, of_cell: Tensor) -> tuple[Tensor | None, ...]:
        """Each tensor `of_x` is the gradient of the loss by x; running ones hold it for the step at hand."""
        inputs, hidden, cell, input_weight, recurrent_weight, projection_weight, cells, outputs, *gates_of_pieces = (
            ctx.saved_tensors
        )
        batch_sizes, pieces, cell_clip, projection_clip = ctx.settings
        fewest_for_onednn = rows_for_onednn(inputs)
        cell_size = cells.shape[1]
        needed = ctx.needs_input_grad
        of_hidden, of_cell = of_hidden.clone(), of_cell.clone()  # rows that end early keep what comes from the end
        of_inputs = torch.empty_like(inputs)
        of_input_weight = of_recurrent_weight = of_bias = of_projection_weight = None
        cells_before = _before(cell, cells, batch_sizes)
        hidden_before = torch.cat([outputs[:0], *_before(hidden, outputs, batch_sizes)])
        most = max(len(gates) for gates in gates_of_pieces)
        room = (
            inputs.new_empty(most, 4 * cell_size),
            inputs.new_empty(most, inputs.shape[1]),
            inputs.new_empty(most, cell_size),
        )

        end = len(inputs)
        for sizes, gates in zip(reversed(pieces), reversed(gates_of_pieces), strict=True):
            here = slice(end - len(gates), end)
            end = here.start
            # By the sums before sigmoid and tanh, by the products before their clip, and what is projected
            of_gates, of_projections, values = (memory[: len(gates)] for memory in room)
            steps = _steps(
                sizes, gates, cells[here], outputs[here], values, of_gates, of_projections, of_outputs[here]
            )
            for gate, new_cell, output, value, of_gate, of_projection, of_output in reversed(steps):
                rows = len(gate)
                before = cells_before.pop()
                input_gate, forget_gate, output_gate, candidate = gate.chunk(4, dim=1)
                of_input_gate, of_forget_gate, of_output_gate, of_candidate = of_gate.chunk(4, dim=1)
                this_of_hidden = of_hidden[:rows].add_(of_output)
                of_value = this_of_hidden
                if projection_weight is not None:
                    _through_clip(this_of_hidden, output, projection_clip, of_projection)
                    of_value = product(of_projection, projection_weight.T, None, fewest_for_onednn)

                tanh = _tanh(new_cell, torch.empty_like(new_cell), FEWEST_FOR_SIGMOID)
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
                this_of_hidden.copy_(product(of_gate, recurrent_weight.T, None, fewest_for_onednn))

            if needed[0]:
                of_inputs[here] = product(of_gates, input_weight.T, None, fewest_for_onednn)
            if needed[3]:
                of_input_weight = _plus(of_input_weight, inner_product(inputs[here], of_gates, fewest_for_onednn))
            if needed[4]:
                part = inner_product(hidden_before[here], of_gates, fewest_for_onednn)
                of_recurrent_weight = _plus(of_recurrent_weight, part)
            if needed[5]:
                of_bias = _plus(of_bias, of_gates.sum(dim=0))
            if needed[6]:
                of_projection_weight = _plus(
                    of_projection_weight, inner_product(values, of_projections, fewest_for_onednn)
                )
        of_weights = of_input_weight, of_recurrent_weight, of_bias, of_projection_weight
        return (of_inputs if needed[0] else None, of_hidden, of_cell, *of_weights, None, None, None)


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)


def _steps(batch_sizes: list[int], *packed: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each step of several packed tensors (N, *)."""
    return list(zip(*(tensor.split(batch_sizes) for tensor in packed), strict=True))


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


__all__ = ["LstmWeights", "read_with_gradient", "read_without_gradient"]
