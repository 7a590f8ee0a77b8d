# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs of ONNX, written operator by operator: values are names, weights are stored as asked for.

A graph is built by calling it: `graph("Add", a, b)` adds an operator and returns the name of its result. The body of a
loop is a graph of its own, which sees all values of the graph around it; weights are always stored in the outermost.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The version of the operators: what onnxruntime 1.23, the last one for Python 3.10, knows.
OPSET = 23
IR_VERSION = 11

# Whole numbers that stand for weights and inputs, as in `hf_elmo.quantization`: the sums of two products of these fit
# the 16 bits that processors without VNNI have for them.
LARGEST_WEIGHT = 127
LARGEST_INPUT = 127  # of inputs that are never negative; others go from -63 to 63
LARGEST_FLOAT16 = 65504.0
SMALLEST = float(np.finfo(np.float32).tiny)

Shape = Sequence[int | str | None]


class Graph:
    """Operators, inputs and outputs; of the outermost graph also the weights.

    Args:
        around: The graph that this is the body of a loop of.
        int8: Whether the matrices of products are stored as whole numbers, and multiplied as such.
        float16: Whether all other weights of two dimensions or more are stored in half precision.
    """

    def __init__(self, around: "Graph | None" = None, int8: bool = False, float16: bool = False):
        self.outermost: Graph = self if around is None else around.outermost
        self.int8 = int8
        self.float16 = float16
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._names = 0

    # --- Values ------------------------------------------------------------------------------------------------------

    def input(self, name: str, kind: int, shape: Shape, default: np.ndarray | None = None) -> str:
        """A value from outside; one with a default may be left out."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        if default is not None:
            self.weights.append(numpy_helper.from_array(default, name))
        return name

    def output(self, name: str, value: str, kind: int, shape: Shape) -> None:
        """Gives a value to the outside under this name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, list(shape)))

    def __call__(self, operator: str, *values: str, **attributes: Any) -> str:
        """Adds an operator with one result."""
        (result,) = self.several(operator, 1, *values, **attributes)
        return result

    def several(self, operator: str, count: int, *values: str, **attributes: Any) -> list[str]:
        """Adds an operator with several results."""
        results = [self._name(operator) for _ in range(count)]
        self.nodes.append(helper.make_node(operator, values, results, **attributes))
        return results

    def constant(self, value: Any, dtype: Any) -> str:
        """A small value that is part of the formulas; the same value has the same name."""
        array = np.asarray(value, dtype=dtype)
        key = (array.tobytes(), array.dtype.str, array.shape)
        root = self.outermost
        if key not in root._constants:
            root._constants[key] = root._store("constant", array)
        return root._constants[key]

    def integers(self, *values: int) -> str:
        """A list of whole numbers (len,), as shapes and axes are."""
        return self.constant(values, np.int64)

    def integer(self, value: int) -> str:
        return self.constant(value, np.int64)

    def number(self, value: float) -> str:
        return self.constant(value, np.float32)

    def weight(self, name: str, array: np.ndarray) -> str:
        """A weight of the model, in half precision if so asked, which is single precision again when it is read."""
        root = self.outermost
        array = np.ascontiguousarray(array, dtype=np.float32)
        if not root.float16 or array.ndim < 2:
            return root._store(name, array)
        halves = np.clip(array, -LARGEST_FLOAT16, LARGEST_FLOAT16).astype(np.float16)
        return root("Cast", root._store(f"{name}.float16", halves), to=TensorProto.FLOAT)

    def _store(self, name: str, array: np.ndarray) -> str:
        name = self._name(name)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def _name(self, beginning: str) -> str:
        self.outermost._names += 1
        return f"{beginning}.{self.outermost._names}"

    # --- Formulas that are needed often ------------------------------------------------------------------------------

    def product(self, matrix: "Matrix", values: str, added: str | None = None) -> str:
        """(N, in) times the matrix (in, out), plus (N, out) or (out,)."""
        if not self.outermost.int8:
            return self("Gemm", values, matrix.values, *([] if added is None else [added]))
        result = self._product_of_integers(matrix, values)
        return result if added is None else self("Add", result, added)

    def _product_of_integers(self, matrix: "Matrix", values: str) -> str:
        """Each row (N, in) is divided by its largest value and rounded, so that it does not depend on the others."""
        zero = 0 if matrix.never_negative else LARGEST_INPUT // 2 + 1
        largest = self("ReduceMax", self("Abs", values), self.integers(1))  # (N, 1)
        scale = self("Max", largest, self.number(SMALLEST))
        steps = self("Mul", self("Div", values, scale), self.number(LARGEST_INPUT - zero))
        rounded = self("Add", self("Round", steps), self.number(zero))
        whole = self("Cast", rounded, to=TensorProto.UINT8)
        summed = self("MatMulInteger", whole, matrix.values, self.constant(zero, np.uint8))
        step = self("Div", scale, self.number(LARGEST_INPUT - zero))
        return self("Mul", self("Mul", self("Cast", summed, to=TensorProto.FLOAT), matrix.scales), step)

    def reshape(self, value: str, *sizes: int) -> str:
        """0 keeps a size, -1 is what is left."""
        return self("Reshape", value, self.integers(*sizes))

    def slice(self, value: str, start: int, end: int, axis: int) -> str:
        return self("Slice", value, self.integers(start), self.integers(end), self.integers(axis))

    def clip(self, value: str, limit: float | None) -> str:
        """To plus or minus the limit, if there is one."""
        if limit is None:
            return value
        return self("Clip", value, self.number(-limit), self.number(limit))

    def scan(
        self,
        body: Callable[["Graph", list[str], list[str]], tuple[list[str], list[str]]],
        states: Sequence[tuple[str, int, Shape]],
        sequences: Sequence[tuple[str, int, Shape]],
        results: Sequence[tuple[int, Shape]],
        reverse: bool = False,
    ) -> tuple[list[str], list[str]]:
        """A loop over the first axis of sequences, forwards or backwards.

        Args:
            body: Given the graph of a step, its states and its elements of the sequences, the new states and what the
                step adds to the results.
            states: Values before the first step, with type and shape.
            sequences: Values (T, ...) to go through, with the type and shape of an element.
            results: Type and shape of what a step adds to each result.
            reverse: Whether to begin with the last step. Results stand in the order of the sequences all the same.

        Returns:
            The states after the last step, and the results (T, ...).
        """
        step = Graph(around=self)
        before = [step.input(step._name("state"), kind, shape) for _, kind, shape in states]
        elements = [step.input(step._name("element"), kind, shape) for _, kind, shape in sequences]
        after, added = body(step, before, elements)
        kinds = [*((kind, shape) for _, kind, shape in states), *results]
        for value, (kind, shape) in zip([*after, *added], kinds, strict=True):
            step.output(step._name("result"), value, kind, shape)
        found = self.several(
            "Scan",
            len(kinds),
            *(value for value, _, _ in states),
            *(value for value, _, _ in sequences),
            body=step.proto("step"),
            num_scan_inputs=len(sequences),
            scan_input_directions=[int(reverse)] * len(sequences),
            scan_output_directions=[int(reverse)] * len(results),
        )
        return found[: len(states)], found[len(states) :]

    # --- The whole ---------------------------------------------------------------------------------------------------

    def proto(self, name: str) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)

    def model(self, name: str, version: str, metadata: dict[str, str]) -> onnx.ModelProto:
        """The graph as what a file holds."""
        model = helper.make_model(
            self.proto(name),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="hf-elmo",
            producer_version=version,
        )
        helper.set_model_props(model, metadata)
        return model


class Matrix:
    """A matrix (in, out) to multiply with, stored as its graph says.

    Whole numbers have a scale for each column.

    Args:
        graph: Where it is stored.
        name: What the stored values are called.
        array: The matrix.
        never_negative: Whether what is multiplied with it is never negative, which leaves more steps for it.
    """

    def __init__(self, graph: Graph, name: str, array: np.ndarray, never_negative: bool = False):
        self.never_negative = never_negative
        root = graph.outermost
        if not root.int8:
            self.values = root.weight(name, array)
            return
        array = np.asarray(array, dtype=np.float32)
        scales = np.maximum(np.abs(array).max(axis=0), SMALLEST) / LARGEST_WEIGHT  # (out,)
        self.values = root._store(f"{name}.int8", np.rint(array / scales).astype(np.int8))
        self.scales = root._store(f"{name}.scales", scales.astype(np.float32))
