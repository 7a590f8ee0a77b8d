# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Products of rows with weights, by the faster of two libraries that torch has; their gradients are not recorded.

torch leaves products of single precision to MKL, which uses AVX-512 on Intel's processors only. On AMD's that have it,
oneDNN takes half of the time.

Shapes: n rows, I inputs, O outputs.
"""

import platform
from pathlib import Path

import torch
from torch import Tensor

# Of fewer rows, MKL's product is done before oneDNN's begins; NEVER is a number that rows do not reach.
FEWEST_ROWS_FOR_ONEDNN = 3
NEVER = 2**62
# One row is multiplied by about so many columns of a weight at a time: sums of more leave the processor's first cache.
COLUMNS_PER_PART = 2048


def _maker_of_processor() -> str:
    """Such as GenuineIntel or AuthenticAMD, perhaps with more; nothing if the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
HAS_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
MKL_IS_BEHIND = HAS_AVX512 and "AMD" in _maker_of_processor()


def rows_for_onednn(tensor: Tensor) -> int:
    """From how many rows on oneDNN multiplies what is like this tensor; `NEVER` if it is not faster, or cannot."""
    if (
        MKL_IS_BEHIND
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and torch._C._get_mkldnn_enabled()
        and HAS_ONEDNN
        and torch._C._len_torch_dispatch_stack() == 0  # such as counters of operations, which do not know this one
    ):
        return FEWEST_ROWS_FOR_ONEDNN
    return NEVER


def packed(weight: Tensor) -> Tensor:
    """A copy of a weight (I, O) in an order that is oneDNN's own: for products of a few rows, it reorders any other.

    Only `add_product` knows what it is. It takes as long as what it saves in twenty products or so.
    """
    return torch.ops.mkldnn._reorder_linear_weight(weight.t())


# --- Also run without Python, so that all they need is handed over ---------------------------------------------------


def product(rows: Tensor, weight: Tensor, bias: Tensor | None, fewest_for_onednn: int) -> Tensor:
    """Rows (n, I) times a weight (I, O), plus a bias (O,): (n, O)."""
    if rows.shape[0] >= fewest_for_onednn:
        return _by_onednn(rows, weight.t(), bias)
    return torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)


def parts_for_one_row(columns: int) -> int:
    """In how many equal parts the columns of a weight are multiplied by one row: an even number, or 1.

    Each thread may have some of them: by itself, MKL reads weights for a single row with one.
    """
    parts = 2 * max(columns // (2 * COLUMNS_PER_PART), 1)
    return next(number for number in (parts, 2, 1) if columns % number == 0)


def add_product(
    sums: Tensor, rows: Tensor, weight: Tensor, packed_weight: Tensor | None, fewest_for_onednn: int, parts: int
) -> None:
    """Adds rows (n, I) times a weight (I, O) to the sums (n, O); one row by so many `parts` of the columns.

    The weight may also be given `packed`, for the rows that oneDNN multiplies.
    """
    if rows.shape[0] >= fewest_for_onednn:
        sums.add_(_by_onednn(rows, weight.t() if packed_weight is None else packed_weight, None))
    elif parts > 1 and rows.shape[0] == 1:
        _in_parts(sums, parts).baddbmm_(rows.expand(parts, -1, -1), _in_parts(weight, parts))
    else:
        sums.addmm_(rows, weight)


def sum_of_products(rows: Tensor, weights: Tensor) -> Tensor:
    """Rows (n, I) times a weight in parts (parts, I / parts, O), by oneDNN: (n, O).

    A sum for each part, and the sum of these, are rounded less than one long sum.
    """
    count = rows.shape[0]
    parts = _with_more(rows).split(weights.shape[1], dim=1)
    sums = _linear(parts[0], weights[0].t(), None)
    for number in range(1, weights.shape[0]):
        sums = _linear_plus(sums, parts[number], weights[number].t())
    return sums[:count]


def inner_product(left: Tensor, right: Tensor, fewest_for_onednn: int) -> Tensor:
    """Rows (n, I) and rows (n, O): the sums over all n of their products (I, O), such as the gradient of a weight."""
    if left.shape[1] > right.shape[1]:  # oneDNN is faster the other way round
        return inner_product(right, left, fewest_for_onednn).t()
    count = left.shape[0]
    together = 16 if count <= 512 else 256  # not a program for each number, as in `_with_more`
    whole = count - count % together if left.shape[1] >= fewest_for_onednn else 0
    if whole == 0:
        return torch.mm(left.t(), right)
    # oneDNN does not take rows that overlap in memory, such as the windows of a single word
    sums = _linear(left[:whole].t(), right[:whole].contiguous().t(), None)
    return sums if whole == count else sums.addmm_(left[whole:].t(), right[whole:])


def _in_parts(matrix: Tensor, parts: int) -> Tensor:
    """(n, columns) as (parts, n, columns / parts), in place."""
    return matrix.unflatten(1, [parts, -1]).transpose(0, 1)


def _by_onednn(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Rows (n, I) times a weight (O, I), plus a bias (O,): (n, O)."""
    count = rows.shape[0]
    return _linear(_with_more(rows), weight, bias).resize_([count, weight.shape[0]])  # not a view of more rows


def _with_more(rows: Tensor) -> Tensor:
    """Adds rows, as oneDNN writes a program for each number of them, which it keeps.

    That takes a millisecond and half a megabyte, so there should not be hundreds.
    """
    count = rows.shape[0]
    together = 4 if count <= 32 else 16
    if count % together == 0:
        return rows
    return torch.cat([rows, rows[:1].expand(together - count % together, -1)])


if HAS_ONEDNN:

    def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")

    def _linear_plus(sums: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, sums, weight, None, "add")

else:  # torch was built without it

    def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise RuntimeError("This torch has no oneDNN, which `rows_for_onednn` says.")

    def _linear_plus(sums: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        return _linear(rows, weight, None)


__all__ = [
    "add_product",
    "inner_product",
    "packed",
    "parts_for_one_row",
    "product",
    "rows_for_onednn",
    "sum_of_products",
]
