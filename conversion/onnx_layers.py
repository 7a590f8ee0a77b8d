# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo as operators of ONNX: the formulas of modeling_elmo.py for padded batches.

Shapes are written with the letters of modeling_elmo.py, but N = T x B: padding stays where it is, all first positions
of the batch come first, then all second ones. The LSTMs go over it without changing their state, so that it may be on
either side of a sentence or in between, and what they give there is replaced by zeros in the end.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import nn

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.modeling_elmo import LAYER_NORM_EPSILON, ElmoModel
from hf_elmo.modeling_elmo_words import ElmoWordEncoder

from .onnx_graph import Graph, Matrix

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def array_of(weight: Any) -> np.ndarray:
    """A weight of the model as numbers of single precision."""
    return weight.detach().cpu().float().numpy()


# --- Padded batches --------------------------------------------------------------------------------------------------


@dataclass
class Batch:
    """The positions of a batch, and which of them are words."""

    graph: Graph
    sizes: str  # (2,), T and B
    mask: str  # (T, B), true at words

    @property
    def rows_mask(self) -> str:
        """(N, 1)"""
        return self.graph.reshape(self.mask, -1, 1)

    @property
    def steps_mask(self) -> str:
        """(T, B, 1)"""
        return self.graph("Unsqueeze", self.mask, self.graph.integers(2))

    def by_steps(self, rows: str, width: int) -> str:
        """(N, X) to (T, B, X)."""
        shape = self.graph("Concat", self.sizes, self.graph.integers(width), axis=0)
        return self.graph("Reshape", rows, shape, allowzero=1)

    def rows(self, steps: str) -> str:
        """(T, B, X) to (N, X)."""
        shape = self.graph("Shape", steps, start=2)
        count = self.graph("ReduceProd", self.sizes)
        return self.graph("Reshape", steps, self.graph("Concat", count, shape, axis=0), allowzero=1)

    def padded(self, rows: str, width: int) -> str:
        """(N, X) to (B, T, X), with zeros where there is no word."""
        zeroed = self.graph("Where", self.rows_mask, rows, self.graph.number(0))
        return self.graph("Transpose", self.by_steps(zeroed, width), perm=[1, 0, 2])

    def repeated(self, state: str) -> str:
        """(L, 1, X) or (L, B, X) to (L, B, X)."""
        one = self.graph.integers(1)
        shape = self.graph("Concat", one, self.graph.slice(self.sizes, 1, 2, 0), one, axis=0)
        return self.graph("Expand", state, shape)


# --- Characters to words ---------------------------------------------------------------------------------------------


def full_width(graph: Graph, characters: str, config: ElmoConfig) -> str:
    """(N, fewer) character ids to (N, C), with what pads a word; more than C are refused when it runs."""
    width = graph.integers(config.max_characters_per_token)
    given = graph("Shape", characters, start=1)
    missing = graph("Max", graph("Sub", width, given), graph.integers(0))
    places = graph("Concat", graph.integers(0, 0, 0), missing, axis=0)
    padded = graph("Pad", characters, places, graph.integer(config.character_markers[-1]))
    return graph("Max", padded, graph.constant(np.zeros((1, config.max_characters_per_token)), np.int64))


def word_vectors(graph: Graph, encoder: ElmoWordEncoder, config: ElmoConfig, characters: str, word_ids: str) -> str:
    """(N, C) character ids and (N,) word ids, as far as the model reads them, to (N, P) word vectors.

    Each different word is spelled once.
    """
    if config.word_input == "words":
        return _project(graph, encoder, config, _row_of_table(graph, encoder, word_ids))
    ids = characters
    if config.word_input == "both":
        ids = graph("Concat", graph("Unsqueeze", word_ids, graph.integers(1)), ids, axis=1)
    columns = config.max_characters_per_token + (config.word_input == "both")
    nothing = graph.constant(np.zeros((1, columns)), np.int64)  # so that there is always a row
    different, _, places, _ = graph.several("Unique", 4, graph("Concat", nothing, ids, axis=0), axis=0, sorted=0)
    vectors = _encode(graph, encoder, config, different)
    return graph("Gather", vectors, graph("Slice", places, graph.integers(1), graph.integers(2**62)))


def _encode(graph: Graph, encoder: ElmoWordEncoder, config: ElmoConfig, ids: str) -> str:
    """(U, C) or (U, 1 + C) ids of different words to their vectors (U, P)."""
    both = config.word_input == "both"
    characters = graph.slice(ids, 1, 2**62, 1) if both else ids
    words = graph(
        "Relu" if config.char_cnn_activation == "relu" else "Tanh", _convolve(graph, encoder, config, characters)
    )
    never_negative = config.char_cnn_activation == "relu"  # a highway layer keeps it so
    for number, highway in enumerate(encoder.highways):
        name = f"highway.{number}"
        carried = _linear(graph, f"{name}.carry", highway.carry, words, never_negative)
        transformed = graph("Relu", _linear(graph, f"{name}.transform", highway.transform, words, never_negative))
        change = graph("Mul", graph("Sigmoid", carried), graph("Sub", transformed, words))
        words = graph("Add", words, change)
    if both:
        word_ids = graph.reshape(graph.slice(ids, 0, 1, 1), -1)
        words = graph("Concat", _row_of_table(graph, encoder, word_ids), words, axis=1)
    return _project(graph, encoder, config, words)


def _convolve(graph: Graph, encoder: ElmoWordEncoder, config: ElmoConfig, characters: str) -> str:
    """(U, C) character ids to the maximum of each filter over the word (U, F).

    Of the padding of the longest word one window of the widest filter is read: all such windows are the same.
    """
    widest = max(width for width, _ in config.char_cnn_filters)
    width = config.max_characters_per_token
    is_word = graph("Greater", graph("ReduceMax", characters, graph.integers(1)), graph.integer(0))  # (U, 1)
    is_padding = graph("Equal", characters, graph.integer(config.character_markers[-1]))
    is_spelling = graph("And", is_word, graph("Not", is_padding))
    numbers = graph.constant(np.arange(1, width + 1), np.int64)
    longest = graph("ReduceMax", graph("Where", is_spelling, numbers, graph.integer(0)), keepdims=0)
    columns = graph("Min", graph("Add", longest, graph.integer(widest)), graph.integer(width))
    ends = graph("Unsqueeze", columns, graph.integers(0))
    read = graph("Slice", characters, graph.integers(0), ends, graph.integers(1))

    table = np.pad(array_of(encoder.embedding.weight), ((1, 0), (0, 0)))
    embedded = graph("Gather", graph.weight("characters", table), read)  # (U, C, E)
    embedded = graph("Transpose", embedded, perm=[0, 2, 1])
    features = []
    for number, convolution in enumerate(encoder.convolutions):
        weight = graph.weight(f"convolution.{number}", array_of(convolution.weight))
        bias = graph.weight(f"convolution.{number}.bias", array_of(convolution.bias))
        features.append(graph("ReduceMax", graph("Conv", embedded, weight, bias), graph.integers(2), keepdims=0))
    return graph("Concat", *features, axis=1)


def _row_of_table(graph: Graph, encoder: ElmoWordEncoder, word_ids: str) -> str:
    return graph("Gather", graph.weight("words", array_of(encoder.word_embedding.weight)), word_ids)


def _project(graph: Graph, encoder: ElmoWordEncoder, config: ElmoConfig, words: str) -> str:
    if not config.project_words:
        return words
    never_negative = config.char_cnn_activation == "relu" and config.word_input == "characters"
    return _linear(graph, "projection", encoder.projection, words, never_negative)


def _linear(graph: Graph, name: str, linear: Any, values: str, never_negative: bool) -> str:
    matrix = Matrix(graph, name, array_of(linear.weight).T, never_negative)
    return graph.product(matrix, values, graph.weight(f"{name}.bias", array_of(linear.bias)))


# --- Words to contexts -----------------------------------------------------------------------------------------------


@dataclass
class LstmNumbers:
    """The weights of one layer of one direction, with its gates in the order input, forget, output, candidate."""

    input_weight: np.ndarray  # (X, 4H)
    recurrent_weight: np.ndarray  # (P, 4H)
    bias: np.ndarray  # (4H,)
    projection_weight: np.ndarray | None  # (H, P)
    cell_clip: float | None
    projection_clip: float | None

    @property
    def sizes(self) -> tuple[int, int]:
        """P and H."""
        return self.recurrent_weight.shape[0], self.recurrent_weight.shape[1] // 4

    @classmethod
    def of_layer(cls, layer: Any) -> "LstmNumbers":
        """What an `ElmoLstmLayer` has."""
        weights = layer.weights()
        projection = weights.projection_weight
        return cls(
            input_weight=array_of(weights.input_weight),
            recurrent_weight=array_of(weights.recurrent_weight),
            bias=array_of(weights.bias),
            projection_weight=None if projection is None else array_of(projection),
            cell_clip=weights.cell_clip,
            projection_clip=weights.projection_clip if projection is not None else None,
        )

    @classmethod
    def of_torch(cls, lstm: nn.LSTM, layer: int, reverse: bool) -> "LstmNumbers":
        """What one layer of one direction of torch's own LSTM has; its order is input, forget, candidate, output."""
        end = f"l{layer}{'_reverse' if reverse else ''}"

        def ordered(name: str) -> np.ndarray:
            into, forget, candidate, out = np.split(array_of(getattr(lstm, f"{name}_{end}")), 4)
            return np.concatenate([into, forget, out, candidate])

        return cls(
            input_weight=ordered("weight_ih").T,
            recurrent_weight=ordered("weight_hh").T,
            bias=ordered("bias_ih") + ordered("bias_hh"),
            projection_weight=None,
            cell_clip=None,
            projection_clip=None,
        )


def read_lstm(
    batch: Batch, name: str, numbers: LstmNumbers, inputs: str, hidden: str, cell: str, reverse: bool
) -> tuple[str, str, str]:
    """Reads (N, X) from the state (B, P), (B, H) in one direction; returns outputs (N, P) and the final state.

    The product with the inputs is made for all steps at once, the rest step by step.
    """
    graph = batch.graph
    size, cell_size = numbers.sizes
    from_input = Matrix(graph, f"{name}.input", numbers.input_weight)
    from_hidden = Matrix(graph, f"{name}.recurrent", numbers.recurrent_weight)
    projection = None
    if numbers.projection_weight is not None:
        projection = Matrix(graph, f"{name}.projection", numbers.projection_weight)
    gates_of_inputs = graph.product(from_input, inputs, graph.weight(f"{name}.bias", numbers.bias))  # (N, 4H)

    def step(body: Graph, state: list[str], elements: list[str]) -> tuple[list[str], list[str]]:
        (hidden, cell), (gates_of_input, is_word) = state, elements
        gates = body.product(from_hidden, hidden, gates_of_input)  # (B, 4H)
        sizes = body.integers(3 * cell_size, cell_size)
        sigmoids, candidate = body.several("Split", 2, gates, sizes, axis=1)
        into, forget, out = body.several("Split", 3, body("Sigmoid", sigmoids), axis=1, num_outputs=3)
        new_cell = body("Add", body("Mul", forget, cell), body("Mul", into, body("Tanh", candidate)))
        new_cell = body.clip(new_cell, numbers.cell_clip)
        new_hidden = body("Mul", out, body("Tanh", new_cell))
        if projection is not None:
            new_hidden = body.clip(body.product(projection, new_hidden), numbers.projection_clip)
        hidden, cell = body("Where", is_word, new_hidden, hidden), body("Where", is_word, new_cell, cell)
        return [hidden, cell], [hidden]

    (hidden, cell), (outputs,) = graph.scan(
        step,
        states=[(hidden, FLOAT, ("batch", size)), (cell, FLOAT, ("batch", cell_size))],
        sequences=[
            (batch.by_steps(gates_of_inputs, 4 * cell_size), FLOAT, ("batch", 4 * cell_size)),
            (batch.steps_mask, BOOL, ("batch", 1)),
        ],
        results=[(FLOAT, ("batch", size))],
        reverse=reverse,
    )
    return batch.rows(outputs), hidden, cell


@dataclass
class Contexts:
    """What the LSTMs make of the words."""

    layers: list[str]  # L + 1 of (N, D): the words, then each LSTM layer
    hidden: str  # (L, B, 2P), the state after the last word
    cell: str  # (L, B, 2H)


def contexts(batch: Batch, model: ElmoModel, words: str, hidden: str, cell: str) -> Contexts:
    """(N, P) word vectors, read from the state (L, B, 2P), (L, B, 2H), to all layers."""
    graph = batch.graph
    count = model.config.num_hidden_layers
    directions = [_split_state(graph, state, count) for state in (hidden, cell)]
    outputs, hiddens, cells = [], [], []
    for direction, stack in enumerate((model.bilstm.forward_layers, model.bilstm.backward_layers)):
        inputs = words
        for number, layer in enumerate(stack):
            read, last_hidden, last_cell = read_lstm(
                batch,
                f"{'backward' if direction else 'forward'}.{number}",
                LstmNumbers.of_layer(layer),
                inputs,
                directions[0][direction][number],
                directions[1][direction][number],
                reverse=bool(direction),
            )
            if model.config.use_skip_connections and number > 0:
                read = graph("Add", read, inputs)
            inputs = read
            outputs.append(read)
            hiddens.append(last_hidden)
            cells.append(last_cell)
    pairs = [graph("Concat", outputs[layer], outputs[count + layer], axis=1) for layer in range(count)]
    return Contexts(
        layers=[graph("Concat", words, words, axis=1), *pairs],
        hidden=_join_state(graph, hiddens, count),
        cell=_join_state(graph, cells, count),
    )


def _split_state(graph: Graph, state: str, count: int) -> list[list[str]]:
    """(L, B, 2X) to (B, X), by direction and layer."""
    halves = graph.several("Split", 2, state, axis=2, num_outputs=2)
    return [[graph("Gather", half, graph.integer(number), axis=0) for number in range(count)] for half in halves]


def _join_state(graph: Graph, states: list[str], count: int) -> str:
    """(B, X) of each layer forwards, then of each backwards, to (L, B, 2X)."""
    stacked = [graph("Unsqueeze", state, graph.integers(0)) for state in states]
    halves = [graph("Concat", *half, axis=0) for half in (stacked[:count], stacked[count:])]
    return graph("Concat", *halves, axis=2)


# --- Layers to one vector --------------------------------------------------------------------------------------------


def combine_layers(batch: Batch, model: ElmoModel, layers: list[str]) -> list[str]:
    """L + 1 layers (N, D) to the ELMo vectors (N, D), one for each representation."""
    combined = _combine_unaligned(batch, model, layers)
    if not model.config.use_alignment:
        return combined
    matrix = batch.graph.weight("alignment", array_of(model.alignment.matrix).T)
    return [batch.graph("MatMul", vectors, matrix) for vectors in combined]


def _combine_unaligned(batch: Batch, model: ElmoModel, layers: list[str]) -> list[str]:
    combination = model.config.layer_combination
    if combination == "mix":
        return [_mix(batch, mix, layers) for mix in model.mixes]
    if combination == "average":
        return [batch.graph("Mean", *layers)]
    return [layers[model.config.num_hidden_layers if combination == "top" else combination]]


def _mix(batch: Batch, mix: Any, layers: list[str]) -> str:
    graph = batch.graph
    with torch.no_grad():
        weights, gamma = mix.layer_weights()
        factors = array_of(gamma.float() * weights.float())
    if mix.layer_norm is not None:
        layers = [_normalised(batch, layer, mix.layer_norm) for layer in layers]
    weighted = [graph("Mul", layer, graph.number(factor)) for layer, factor in zip(layers, factors, strict=True)]
    return graph("Sum", *weighted)


def _normalised(batch: Batch, layer: str, kind: str) -> str:
    """(N, D), each row with a mean and variance of its own, or with those of all words of the batch."""
    graph = batch.graph
    if kind == "token":
        mean = graph("ReduceMean", layer, graph.integers(1))
        centred = graph("Sub", layer, mean)
        variance = graph("ReduceMean", graph("Mul", centred, centred), graph.integers(1))
    else:
        mask = batch.rows_mask
        zero = graph.number(0)
        width = graph("Cast", graph("Shape", layer, start=1), to=FLOAT)
        values = graph("Mul", graph("ReduceSum", graph("Cast", mask, to=FLOAT)), width)  # (1, 1), how many there are
        mean = graph("Div", graph("ReduceSum", graph("Where", mask, layer, zero)), values)
        centred = graph("Sub", layer, mean)
        squares = graph("Where", mask, graph("Mul", centred, centred), zero)
        variance = graph("Div", graph("ReduceSum", squares), values)
    spread = graph("Sqrt", graph("Add", variance, graph.number(LAYER_NORM_EPSILON)))
    return graph("Div", centred, spread)
