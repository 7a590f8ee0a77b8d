# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Whole models as operators of ONNX: ELMo itself, the language model, labels, answers and choices.

Shapes as in onnx_layers.py; moreover K labels, V words that can be predicted, X width of what the classifier sees.
"""

from typing import Any, cast

import numpy as np

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.modeling_elmo_heads import (
    TIE_BREAK,
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoPooler,
    ElmoTaskModel,
)
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining

from .onnx_graph import SMALLEST, Graph, Matrix
from .onnx_layers import (
    BOOL,
    FLOAT,
    INT64,
    Batch,
    Contexts,
    LstmNumbers,
    array_of,
    combine_layers,
    contexts,
    full_width,
    read_lstm,
    word_vectors,
)

LOWEST = float(np.finfo(np.float32).min)


# --- What goes in ----------------------------------------------------------------------------------------------------


class Inputs:
    """The inputs of a model, each of which exists once it is asked for."""

    def __init__(self, graph: Graph, config: ElmoConfig):
        self.graph = graph
        self.config = config
        self._steps: dict[str, str] = {}
        self.attention_mask = graph.input("attention_mask", INT64, ("batch", "words"))
        attended = graph("Cast", graph("Transpose", self.attention_mask, perm=[1, 0]), to=BOOL)  # (T, B)
        self.attended = Batch(graph, graph("Shape", attended), attended)

    def of_words(self, name: str) -> str:
        """(N,) ids."""
        return self.graph.reshape(self.ids(name), -1)

    def ids(self, name: str) -> str:
        """(T, B) ids."""
        if name not in self._steps:
            given = self.graph.input(name, INT64, ("batch", "words"))
            self._steps[name] = self.graph("Transpose", given, perm=[1, 0])
        return self._steps[name]

    def characters(self) -> str:
        """(T, B, C) ids."""
        if "character_ids" not in self._steps:
            given = self.graph.input("character_ids", INT64, ("batch", "words", "characters"))
            self._steps["character_ids"] = self.graph("Transpose", given, perm=[1, 0, 2])
        return self._steps["character_ids"]

    def state(self, model: ElmoModel) -> list[str]:
        """The states to start from, (L, B, 2P) and (L, B, 2H): by default what the model starts from."""
        stored = model.first_state(1)
        states = []
        for name, default in zip(("initial_hidden", "initial_cell"), stored, strict=True):
            layers, _, width = default.shape
            states.append(self.graph.input(name, FLOAT, (layers, "state_batch", width), array_of(default)))
        return [self.attended.repeated(state) for state in states]


def read(inputs: Inputs, model: ElmoModel, state: list[str]) -> tuple[Batch, Contexts]:
    """Reads a batch with ELMo; a position is a word if it is attended and has characters."""
    graph, config, batch = inputs.graph, inputs.config, inputs.attended
    characters = word_ids = ""
    if config.word_input != "words":
        characters = batch.rows(inputs.characters())  # (N, C)
        present = graph("Greater", graph("ReduceMax", characters, graph.integers(1)), graph.integer(0))  # (N, 1)
        present = graph("Reshape", present, batch.sizes, allowzero=1)
        batch = Batch(graph, batch.sizes, graph("And", batch.mask, present))
        characters = full_width(graph, characters, config)
    if config.word_input != "characters":
        word_ids = inputs.of_words("input_ids")
    words = word_vectors(graph, model.character_encoder, config, characters, word_ids)
    return batch, contexts(batch, model, words, *state)


# --- ELMo itself and the language model ------------------------------------------------------------------------------


def add_features(graph: Graph, model: ElmoModel) -> None:
    """`last_hidden_state`, `hidden_states`, `elmo_representations` if there are several, and the final state."""
    config: Any = model.config
    inputs = Inputs(graph, config)
    batch, found = read(inputs, model, inputs.state(model))
    width = config.hidden_size
    vectors = [batch.padded(mixed, width) for mixed in combine_layers(batch, model, found.layers)]
    shape = ("batch", "words", width)
    graph.output("last_hidden_state", vectors[0], FLOAT, shape)
    layers = [batch.padded(layer, width) for layer in found.layers]
    graph.output("hidden_states", _stacked(graph, layers), FLOAT, (len(layers), *shape))
    if len(vectors) > 1:
        graph.output("elmo_representations", _stacked(graph, vectors), FLOAT, (len(vectors), *shape))
    _add_final_state(graph, config, found)


def add_language_model(graph: Graph, model: ElmoForPreTraining) -> None:
    """`forward_logits` and `backward_logits` (B, T, V), and the final state."""
    config: Any = model.config
    inputs = Inputs(graph, config)
    batch, found = read(inputs, model.elmo, inputs.state(model.elmo))
    top = graph("Where", batch.rows_mask, found.layers[-1], graph.number(0))  # (N, D)
    count = model.softmax.num_words
    score = _word_scores(graph, model.softmax)
    for name, half in zip(("forward", "backward"), graph.several("Split", 2, top, axis=1, num_outputs=2), strict=True):
        by_steps = batch.by_steps(score(half), count)
        scores = graph("Transpose", by_steps, perm=[1, 0, 2])
        graph.output(f"{name}_logits", scores, FLOAT, ("batch", "words", count))
    _add_final_state(graph, config, found)


def _word_scores(graph: Graph, softmax: Any) -> Any:
    """A function of (N, P) that gives the scores of all words (N, V)."""
    if softmax.kind != "adaptive":
        matrix = Matrix(graph, "softmax", array_of(softmax.weight).T)
        bias = graph.weight("softmax.bias", array_of(softmax.bias))
        return lambda hidden: graph.product(matrix, hidden, bias)
    adaptive = softmax.adaptive
    head = graph.weight("softmax.head", array_of(adaptive.head.weight).T)
    groups = [
        [graph.weight(f"softmax.group.{number}", array_of(linear.weight).T) for linear in group]
        for number, group in enumerate(adaptive.tail)
    ]

    def score(hidden: str) -> str:
        of_head = graph("LogSoftmax", graph("MatMul", hidden, head), axis=1)
        shortlist = adaptive.shortlist_size
        parts = [graph.slice(of_head, 0, shortlist, 1)]
        for number, (projection, output) in enumerate(groups):
            scores = graph("LogSoftmax", graph("MatMul", graph("MatMul", hidden, projection), output), axis=1)
            of_group = graph.slice(of_head, shortlist + number, shortlist + number + 1, 1)
            parts.append(graph("Add", scores, of_group))
        return graph("Concat", *parts, axis=1)

    return score


def _stacked(graph: Graph, values: list[str]) -> str:
    return graph("Concat", *(graph("Unsqueeze", value, graph.integers(0)) for value in values), axis=0)


def _add_final_state(graph: Graph, config: ElmoConfig, found: Contexts) -> None:
    layers = config.num_hidden_layers
    graph.output("final_hidden", found.hidden, FLOAT, (layers, "batch", 2 * config.projection_size))
    graph.output("final_cell", found.cell, FLOAT, (layers, "batch", 2 * config.cell_size))


# --- What the tasks share --------------------------------------------------------------------------------------------


def _task_words(inputs: Inputs, model: ElmoTaskModel) -> str:
    """What the classifier sees of the words (N, X), zero where there is none."""
    graph, config, batch = inputs.graph, inputs.config, inputs.attended
    parts, representations = [], []
    if config.word_vector_size:
        table = graph.weight("word_vectors", array_of(model.word_vectors.weight))
        parts.append(graph("Gather", table, inputs.of_words("word_vector_ids")))
    if config.use_elmo:
        state = [batch.repeated(graph.constant(array_of(part), np.float32)) for part in model.elmo.first_state(1)]
        words, found = read(inputs, model.elmo, state)
        mask, zero = words.rows_mask, graph.number(0)
        representations = [
            graph("Where", mask, mixed, zero) for mixed in combine_layers(words, model.elmo, found.layers)
        ]
        parts.append(representations[0])
    if config.predicate_embedding_size:
        table = graph.weight("predicates", array_of(model.predicate_embedding.weight))
        parts.append(graph("Gather", table, inputs.of_words("predicate_ids")))
    words_of_task = graph("Concat", *parts, axis=1)
    for number in range(config.task_lstm_layers if config.task_lstm_size else 0):
        words_of_task = _task_layer(batch, model, number, words_of_task)
    if config.elmo_at_output:
        words_of_task = graph("Concat", words_of_task, representations[-1], axis=1)
    return graph("Where", batch.rows_mask, words_of_task, graph.number(0))


def _task_layer(batch: Batch, model: ElmoTaskModel, number: int, words: str) -> str:
    """(N, X) to (N, 2 x task_lstm_size): one layer of the task's own LSTM in both directions."""
    size = model.config.task_lstm_size
    nothing = batch.graph(
        "Gather", batch.repeated(batch.graph.constant(np.zeros((1, 1, size)), np.float32)), batch.graph.integer(0)
    )
    outputs = []
    for reverse in (False, True):
        numbers = LstmNumbers.of_torch(model.task_lstm, number, reverse)
        name = f"task.{'backward' if reverse else 'forward'}.{number}"
        outputs.append(read_lstm(batch, name, numbers, words, nothing, nothing, reverse)[0])
    return batch.graph("Concat", *outputs, axis=1)


def _classify(graph: Graph, classifier: Any, values: str) -> str:
    """(rows, X) to (rows, K); never in whole numbers, which would save little."""
    weight = graph.weight("classifier", array_of(classifier.weight).T)
    return graph("Gemm", values, weight, graph.weight("classifier.bias", array_of(classifier.bias)))


def _boundaries(inputs: Inputs) -> tuple[str, str]:
    """Where a sentence begins and where one ends, (T, B) each."""
    graph, config, mask = inputs.graph, inputs.config, inputs.attended.mask
    begin_id: int | None
    end_id: int | None
    if config.word_input != "words":
        ids = graph("Gather", inputs.characters(), graph.integer(1), axis=2)
        begin_id, end_id = config.character_markers[:2]
    else:
        ids = inputs.ids("input_ids")
        begin_id, end_id = config.bos_token_id, config.eos_token_id

    def with_id(index: int | None) -> str:
        if index is None:
            return graph("And", mask, graph("Not", mask))
        return graph("And", mask, graph("Equal", ids, graph.integer(index)))

    def shifted(places: str, pads: tuple[int, ...]) -> str:
        return graph("Cast", graph("Pad", graph("Cast", places, to=INT64), graph.integers(*pads)), to=BOOL)

    begin, end = with_id(begin_id), with_id(end_id)
    counted = graph("Cast", mask, to=INT64)
    ends = []
    for backwards in (0, 1):
        number = graph("CumSum", counted, graph.integer(0), reverse=backwards)
        ends.append(graph("And", mask, graph("Equal", number, graph.integer(1))))
    after_end = shifted(end, (1, 0, -1, 0))
    before_begin = shifted(begin, (-1, 0, 1, 0))
    return (
        graph("And", begin, graph("Or", ends[0], after_end)),
        graph("And", end, graph("Or", ends[1], before_begin)),
    )


# --- Labels of words -------------------------------------------------------------------------------------------------


def add_token_classification(graph: Graph, model: ElmoForTokenClassification) -> None:
    """`logits` (B, T, K), which with a conditional random field are those of its best path."""
    config: Any = model.config
    inputs = Inputs(graph, config)
    logits = inputs.attended.by_steps(
        _classify(graph, model.classifier, _task_words(inputs, model)), model.num_labels
    )  # (T, B, K)
    if config.use_crf:
        begin, end = _boundaries(inputs)
        inside = graph("And", inputs.attended.mask, graph("Not", graph("Or", begin, end)))
        logits = _Crf(Batch(graph, inputs.attended.sizes, inside), model.crf).logits(logits)
    graph.output("logits", graph("Transpose", logits, perm=[1, 0, 2]), FLOAT, ("batch", "words", model.num_labels))


class _Crf:
    """The conditional random field of crf.py, for batches by steps (T, B, K)."""

    def __init__(self, batch: Batch, crf: Any):
        self.batch = batch
        self.graph = batch.graph
        self.labels = len(crf.labels)
        self.transitions, self.start, self.end = (
            self.graph.constant(array_of(weight), np.float32) for weight in crf._masked_weights(crf.start.dtype)
        )

    def logits(self, emissions: str) -> str:
        """Log-probabilities whose largest entry is the label on the best path, as `_decoded_logits`."""
        graph = self.graph
        scores = graph("Add", self._forward_scores(emissions), self._backward_scores(emissions))
        probabilities = graph("Softmax", scores, axis=2)
        logits = graph("Log", graph("Max", probabilities, graph.number(SMALLEST)))
        path = self._path(emissions)  # (T, B, 1)
        largest = graph("ReduceMax", logits, graph.integers(2))
        most_probable = graph("ArgMax", logits, axis=2)
        of_path = graph("GatherElements", logits, path, axis=2)
        logits = graph("ScatterElements", logits, most_probable, of_path, axis=2)
        larger = graph("Add", largest, graph.number(TIE_BREAK))
        logits = graph("ScatterElements", logits, path, larger, axis=2)
        return graph("Where", self.batch.steps_mask, logits, emissions)

    def _states(self, *values: tuple[Any, Any, int]) -> list[tuple[str, int, tuple[str, int]]]:
        """States before the first step: each (X,) for all rows."""
        states = []
        for value, dtype, kind in values:
            array = np.asarray(value)
            constant = self.graph.constant(array.reshape(1, 1, -1), dtype)
            state = self.graph("Gather", self.batch.repeated(constant), self.graph.integer(0))
            states.append((state, kind, ("batch", array.size)))
        return states

    def _scan(self, body: Any, states: list[Any], sequences: list[Any], results: list[Any], reverse: bool) -> str:
        _, (found,) = self.graph.scan(body, states, sequences, results, reverse)
        return found

    def _sequences(self, emissions: str) -> list[tuple[str, int, tuple[str, int]]]:
        return [(emissions, FLOAT, ("batch", self.labels)), (self.batch.steps_mask, BOOL, ("batch", 1))]

    def _forward_scores(self, emissions: str) -> str:
        def step(body: Graph, state: list[str], elements: list[str]) -> tuple[list[str], list[str]]:
            (scores, begun), (emission, present) = state, elements
            steps = body("Add", body("Unsqueeze", scores, body.integers(2)), self.transitions)  # (B, from, to)
            reached = _levelled(body, body("Add", _log_sum(body, steps, 1), emission))
            reached = body("Where", begun, reached, body("Add", self.start, emission))
            scores = body("Where", present, reached, scores)
            return [scores, body("Or", begun, present)], [scores]

        states = self._states((np.zeros(self.labels), np.float32, FLOAT), ([False], np.bool_, BOOL))
        results = [(FLOAT, ("batch", self.labels))]
        return self._scan(step, states, self._sequences(emissions), results, reverse=False)

    def _backward_scores(self, emissions: str) -> str:
        def step(body: Graph, state: list[str], elements: list[str]) -> tuple[list[str], list[str]]:
            (scores,), (emission, present) = state, elements
            ahead = body("Unsqueeze", body("Add", emission, scores), body.integers(1))  # (B, 1, to)
            reached = _levelled(body, _log_sum(body, body("Add", self.transitions, ahead), 2))
            return [body("Where", present, reached, scores)], [scores]

        end = self.batch.repeated(self.graph.reshape(self.end, 1, 1, -1))
        states = [(self.graph("Gather", end, self.graph.integer(0)), FLOAT, ("batch", self.labels))]
        results = [(FLOAT, ("batch", self.labels))]
        return self._scan(step, states, self._sequences(emissions), results, reverse=True)

    def _path(self, emissions: str) -> str:
        """The most probable labels (T, B, 1) by Viterbi's algorithm; any where the mask is false."""
        unchanged = self.graph.constant(np.arange(self.labels).reshape(1, -1), np.int64)

        def step(body: Graph, state: list[str], elements: list[str]) -> tuple[list[str], list[str]]:
            (scores, begun), (emission, present) = state, elements
            steps = body("Add", body("Unsqueeze", scores, body.integers(2)), self.transitions)  # (B, from, to)
            best = body("ReduceMax", steps, body.integers(1), keepdims=0)
            reached = _levelled(body, body("Add", best, emission))
            reached = body("Where", begun, reached, body("Add", self.start, emission))
            goes_on = body("And", begun, present)
            pointer = body("Where", goes_on, body("ArgMax", steps, axis=1, keepdims=0), unchanged)
            return [body("Where", present, reached, scores), body("Or", begun, present)], [pointer]

        def step_back(body: Graph, state: list[str], elements: list[str]) -> tuple[list[str], list[str]]:
            (label,), (pointer,) = state, elements
            return [body("GatherElements", pointer, label, axis=1)], [label]

        states = self._states((np.zeros(self.labels), np.float32, FLOAT), ([False], np.bool_, BOOL))
        results = [(INT64, ("batch", self.labels))]
        (scores, _), (pointers,) = self.graph.scan(step, states, self._sequences(emissions), results)
        last = self.graph("ArgMax", self.graph("Add", scores, self.end), axis=1)  # (B, 1)
        sequences = [(pointers, INT64, ("batch", self.labels))]
        return self._scan(step_back, [(last, INT64, ("batch", 1))], sequences, [(INT64, ("batch", 1))], reverse=True)


def _log_sum(graph: Graph, scores: str, axis: int) -> str:
    """The logarithm of the sum of the exponentials over an axis, which goes."""
    largest = graph("ReduceMax", scores, graph.integers(axis))
    total = graph("ReduceSum", graph("Exp", graph("Sub", scores, largest)), graph.integers(axis), keepdims=0)
    return graph("Add", graph("Log", total), graph("Squeeze", largest, graph.integers(axis)))


def _levelled(graph: Graph, scores: str) -> str:
    return graph("Sub", scores, graph("ReduceMax", scores, graph.integers(1)))


# --- Answers and choices ---------------------------------------------------------------------------------------------


def add_question_answering(graph: Graph, model: ElmoForQuestionAnswering) -> None:
    """`start_logits` and `end_logits` (B, T), lowest at padding."""
    inputs = Inputs(graph, cast(Any, model.config))
    scores = _classify(graph, model.qa_outputs, _task_words(inputs, model))  # (N, 2)
    scores = graph("Where", inputs.attended.rows_mask, scores, graph.number(LOWEST))
    parts = graph.several("Split", 2, inputs.attended.by_steps(scores, 2), axis=2, num_outputs=2)
    for name, part in zip(("start_logits", "end_logits"), parts, strict=True):
        of_rows = graph("Transpose", graph("Squeeze", part, graph.integers(2)), perm=[1, 0])
        graph.output(name, of_rows, FLOAT, ("batch", "words"))


def add_multiple_choice(graph: Graph, model: ElmoForMultipleChoice) -> None:
    """`logits` (B,), where each choice is a row of the batch."""
    scores = _classify(graph, model.classifier, _pooled_sentences(graph, model))  # (B, 1)
    graph.output("logits", graph("Squeeze", scores, graph.integers(1)), FLOAT, ("batch",))


# --- Labels of sentences and pairs -----------------------------------------------------------------------------------


def add_sequence_classification(graph: Graph, model: ElmoForSequenceClassification) -> None:
    """`logits` (B, K)."""
    scores = _classify(graph, model.classifier, _pooled_sentences(graph, model))
    graph.output("logits", scores, FLOAT, ("batch", model.num_labels))


def _pooled_sentences(graph: Graph, model: ElmoForSequenceClassification | ElmoForMultipleChoice) -> str:
    """What the classifier sees of each sentence or pair, (B, X) or more than one X."""
    config: Any = model.config
    inputs = Inputs(graph, config)
    width = config.task_hidden_size
    words = inputs.attended.padded(_task_words(inputs, model), width)  # (B, T, X)
    begin, end = _boundaries(inputs)
    begin, end, mask = (graph("Transpose", places, perm=[1, 0]) for places in (begin, end, inputs.attended.mask))
    boundary = graph("Or", begin, end)
    if config.num_sentences == 1:
        return _pool(graph, model.pooler, words, mask, boundary)
    number = graph("CumSum", graph("Cast", begin, to=INT64), graph.integer(1))
    second = graph("And", mask, graph("Equal", number, graph.integer(2)))
    first = graph("And", mask, graph("Not", second))
    u, v = (_pool(graph, model.pooler, words, sentence, boundary) for sentence in (first, second))
    return graph("Concat", u, v, graph("Abs", graph("Sub", u, v)), graph("Mul", u, v), axis=1)


def _pool(graph: Graph, pooler: ElmoPooler, words: str, sentence: str, boundary: str) -> str:
    """(B, T, X) to (B, X) or (B, 2X), of one sentence (B, T) a row; zeros if there is none."""
    if pooler.pooling == "boundary":
        return _first_and_last(graph, words, sentence)
    inner = graph("And", sentence, graph("Not", boundary))
    found = graph("Cast", inner, to=INT64)
    empty = graph("Not", _any(graph, found))
    inner = graph("Or", inner, graph("And", empty, sentence))  # an empty sentence is its boundaries
    found = graph("Cast", inner, to=INT64)
    chosen = graph("Unsqueeze", inner, graph.integers(2))
    pooled = []
    if pooler.pooling in ("mean", "mean_max"):
        total = graph("ReduceSum", graph("Where", chosen, words, graph.number(0)), graph.integers(1), keepdims=0)
        count = graph("Max", graph("ReduceSum", found, graph.integers(1)), graph.integer(1))
        pooled.append(graph("Div", total, graph("Cast", count, to=FLOAT)))
    if pooler.pooling in ("max", "mean_max"):
        largest = graph(
            "ReduceMax", graph("Where", chosen, words, graph.number(LOWEST)), graph.integers(1), keepdims=0
        )
        pooled.append(graph("Where", _any(graph, found), largest, graph.number(0)))
    return graph("Concat", *pooled, axis=1)


def _any(graph: Graph, places: str) -> str:
    """(B, T) zeros and ones to (B, 1), true if there is a one."""
    return graph("Greater", graph("ReduceSum", places, graph.integers(1)), graph.integer(0))


def _first_and_last(graph: Graph, words: str, sentence: str) -> str:
    """The vectors at the last and at the first word (B, 2X)."""
    steps = graph("Shape", sentence, start=1)
    length = graph("Squeeze", steps, graph.integers(0))
    columns = graph("Range", graph.integer(0), length, graph.integer(1))
    outside = graph("Sub", length, graph.integer(1))
    first = graph("ReduceMin", graph("Where", sentence, columns, outside), graph.integers(1))  # (B, 1)
    last = graph("ReduceMax", graph("Where", sentence, columns, graph.integer(0)), graph.integers(1))
    vectors = []
    for column in (last, first):
        found = graph("GatherND", words, column, batch_dims=1)  # (B, X)
        vectors.append(found)
    return graph("Concat", *vectors, axis=1)
