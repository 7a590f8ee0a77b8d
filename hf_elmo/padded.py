# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo for `torch.export`: the formulas of modeling_elmo.py for padded batches, with loops of any length.

Packing words needs to know how many there are, which a graph for all batches does not. So padding stays where it is:
the LSTMs go over it without changing their state, and what they give there is replaced by zeros in the end. It is
slower than packing, and has the same results.

Shapes are written with the letters of modeling_elmo.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .packing import ElmoState

LAYER_NORM_EPSILON = 1e-12


def read_padded(
    model: Any, input_ids: Tensor | None, character_ids: Tensor | None, mask: Tensor, state: ElmoState
) -> tuple[list[Tensor], list[Tensor], ElmoState]:
    """The layers, the ELMo vectors of each representation, all (B, T, D), and the state after the last word.

    Args:
        model: An `ElmoModel`.
        input_ids: Word ids (B, T), if the model reads them.
        character_ids: Character ids (B, T, C), if the model reads them.
        mask: (B, T), true where there is a word.
        state: The state to start from, a row for each sentence.
    """
    words = _word_vectors(model, input_ids, character_ids).transpose(0, 1)  # (T, B, P)
    by_steps = mask.T.unsqueeze(2)  # (T, B, 1)
    halves, hidden, cell = [], [], []
    for direction, stack in enumerate((model.bilstm.forward_layers, model.bilstm.backward_layers)):
        of_direction = [part.chunk(2, dim=2)[direction].to(words) for part in state]  # (L, B, P), (L, B, H)
        layers, *last = _read_stack(model, stack, words, by_steps, of_direction, reverse=direction == 1)
        halves.append(layers)
        hidden.append(last[0])
        cell.append(last[1])
    joined = [torch.cat([words, words], dim=2)]
    joined += [torch.cat(pair, dim=2) for pair in zip(*halves, strict=True)]
    padded = [layer.transpose(0, 1).masked_fill(~mask.unsqueeze(2), 0) for layer in joined]  # (B, T, D)
    vectors = [mixed.masked_fill(~mask.unsqueeze(2), 0) for mixed in _combine(model, padded, mask)]
    return padded, vectors, ElmoState(hidden=torch.cat(hidden, dim=2), cell=torch.cat(cell, dim=2))


class PaddedWords:
    """In the place of `PackedWords`: words stay where they are, (B, T, ...), where `mask` (B, T) is true."""

    def __init__(self, mask: Tensor):
        self.mask = mask

    def pack(self, padded: Tensor) -> Tensor:
        return padded

    def unpack(self, words: Tensor, rows: int, columns: int) -> Tensor:
        """(B, T, X) with zeros at padding."""
        return words.masked_fill(~self.mask.unsqueeze(2), 0)


def read_task_lstm(lstm: nn.LSTM, words: Tensor, mask: Tensor) -> Tensor:
    """What torch's own LSTM, in both directions, makes of words (B, T, X): (B, T, 2 x its size)."""
    inputs, by_steps = words.transpose(0, 1), mask.T.unsqueeze(2)  # (T, B, X), (T, B, 1)
    hidden, cell = (words.new_zeros(words.shape[0], lstm.hidden_size) for _ in range(2))
    for number in range(lstm.num_layers):
        halves = []
        for end in ("", "_reverse"):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            of_input, of_hidden, *biases = (getattr(lstm, f"{name}_l{number}{end}") for name in names)
            gates = inputs @ of_input.T + (biases[0] + biases[1])  # (T, B, 4H)
            outputs, _, _ = _scan(_step_of_torch(of_hidden), gates, by_steps, hidden, cell, reverse=end != "")
            halves.append(outputs)
        inputs = torch.cat(halves, dim=2)
    return inputs.transpose(0, 1)


def read_labels(crf: Any, emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Each label's probability given the whole sentence (B, T, K), and the labels of the best path (B, T).

    Args:
        crf: An `ElmoCrf`.
        emissions: The score of each label at each position (B, T, K).
        mask: (B, T), false at positions to leave out, where the results mean nothing.
    """
    emissions = emissions.to(torch.promote_types(emissions.dtype, torch.float32))
    weights = crf._masked_weights(emissions.dtype)
    by_steps = emissions.masked_fill(~mask.unsqueeze(2), 0).transpose(0, 1).contiguous()  # (T, B, K)
    present = mask.T.unsqueeze(2).contiguous()  # (T, B, 1)
    scores = _label_scores(weights, by_steps, present) + _label_scores_ahead(weights, by_steps, present)
    return scores.softmax(dim=2).transpose(0, 1), _best_path(weights, by_steps, present).transpose(0, 1)


def _label_scores(weights: list[Tensor], emissions: Tensor, present: Tensor) -> Tensor:
    """(T, B, K): log of the sum over all paths up to a position and label, its emission included; levelled."""
    from torch._higher_order_ops.scan import scan

    transitions, start, _ = weights

    def step(state: tuple[Tensor, Tensor], elements: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (scores, begun), (emission, is_word) = state, elements
        reached = torch.logsumexp(scores.unsqueeze(2) + transitions, dim=1)  # (B, from, to) to (B, to)
        reached = torch.where(begun, _levelled(reached + emission), start + emission)
        scores = torch.where(is_word, reached, scores)
        return (scores, begun | is_word), scores.clone()

    return scan(step, _before_the_first(emissions), (emissions, present))[1]


def _label_scores_ahead(weights: list[Tensor], emissions: Tensor, present: Tensor) -> Tensor:
    """(T, B, K): log of the sum over all ways to go on from a position and label to the end; levelled."""
    from torch._higher_order_ops.scan import scan

    transitions, _, end = weights

    def step(scores: Tensor, elements: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        emission, is_word = elements
        ahead = (emission + scores).unsqueeze(1)  # (B, 1, to)
        reached = _levelled(torch.logsumexp(transitions + ahead, dim=2))  # (B, from, to) to (B, from)
        return torch.where(is_word, reached, scores), scores.clone()

    at_the_end = torch.zeros_like(emissions[0]) + end  # (B, K)
    return scan(step, at_the_end, (emissions, present), reverse=True)[1]


def _best_path(weights: list[Tensor], emissions: Tensor, present: Tensor) -> Tensor:
    """(T, B): the most probable labels by Viterbi's algorithm."""
    from torch._higher_order_ops.scan import scan

    transitions, start, end = weights
    unchanged = torch.arange(len(start), device=emissions.device)  # (K,)

    def step(state: tuple[Tensor, Tensor], elements: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (scores, begun), (emission, is_word) = state, elements
        best, pointer = (scores.unsqueeze(2) + transitions).max(dim=1)  # (B, from, to) to (B, to)
        reached = torch.where(begun, _levelled(best + emission), start + emission)
        pointer = torch.where(begun & is_word, pointer, unchanged)
        return (torch.where(is_word, reached, scores), begun | is_word), pointer

    def step_back(label: Tensor, pointer: Tensor) -> tuple[Tensor, Tensor]:
        return pointer.gather(1, label), label.clone()

    (scores, _), pointers = scan(step, _before_the_first(emissions), (emissions, present))  # (T, B, K)
    last = (scores + end).argmax(dim=1, keepdim=True)  # (B, 1)
    return scan(step_back, last, pointers, reverse=True)[1].squeeze(2)


def _before_the_first(emissions: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (B, K), and that no sentence has begun (B, 1)."""
    scores = torch.zeros_like(emissions[0])
    return scores, torch.zeros_like(scores[:, :1], dtype=torch.bool)


def _levelled(scores: Tensor) -> Tensor:
    return scores - scores.amax(dim=1, keepdim=True)


def _step_of_torch(weight: Tensor) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """One step of torch's own LSTM with the recurrent weight (4H, H)."""

    def step(gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        into, forget, candidate, out = torch.addmm(gates, hidden, weight.T).chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(candidate)
        return torch.sigmoid(out) * torch.tanh(cell), cell

    return step


def _word_vectors(model: Any, input_ids: Tensor | None, character_ids: Tensor | None) -> Tensor:
    """(B, T, P), of padding, too."""
    encoder, reads = model.character_encoder, model.config.word_input
    if reads == "words":
        return encoder.projection(encoder.word_embedding(input_ids))
    assert character_ids is not None  # the model has checked it
    ids = character_ids.long()
    if reads == "both":
        assert input_ids is not None
        ids = torch.cat([input_ids.unsqueeze(2), ids], dim=2)
    return encoder._encode(ids.flatten(0, 1), encoder._convolve).unflatten(0, ids.shape[:2])


def _read_stack(
    model: Any, stack: nn.ModuleList, words: Tensor, mask: Tensor, state: list[Tensor], reverse: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """One direction: (T, B, P) words to L layers (T, B, P) and the final state (L, B, P), (L, B, H)."""
    layers, hidden, cell = [], [], []
    inputs = words
    for number, layer in enumerate(stack):
        outputs, last_hidden, last_cell = _read_layer(layer, inputs, mask, state[0][number], state[1][number], reverse)
        if model.bilstm.use_skip_connections and number > 0:
            outputs = outputs + inputs
        layers.append(outputs)
        hidden.append(last_hidden)
        cell.append(last_cell)
        inputs = outputs
    return layers, torch.stack(hidden), torch.stack(cell)


def _read_layer(
    layer: Any, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(T, B, P) words from the state (B, P), (B, H) to outputs (T, B, P) and the final state."""
    gates = inputs @ layer.input_weight + layer.weights().bias  # (T, B, 4H)
    projection = None if layer.projection_weight is None else layer.projection_weight.T  # (P, H)

    def step(gates_of_input: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return layer._step(gates_of_input, hidden, cell, projection)

    return _scan(step, gates, mask, hidden, cell, reverse)


def _scan(
    step: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    gates: Tensor,
    mask: Tensor,
    hidden: Tensor,
    cell: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Goes over (T, B, 4H) step by step, where the mask (T, B, 1) is true; returns outputs and the final state."""
    from torch._higher_order_ops.scan import scan  # here, as versions of torch that cannot export it lack it

    def masked(state: tuple[Tensor, Tensor], elements: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (hidden, cell), (gates_of_input, is_word) = state, elements
        new_hidden, new_cell = step(gates_of_input, hidden, cell)
        hidden, cell = torch.where(is_word, new_hidden, hidden), torch.where(is_word, new_cell, cell)
        return (hidden, cell), hidden.clone()

    state = (hidden.contiguous(), cell.contiguous())
    (hidden, cell), outputs = scan(masked, state, (gates, mask), reverse=reverse)
    return outputs, hidden, cell


def _combine(model: Any, layers: list[Tensor], mask: Tensor) -> list[Tensor]:
    """As the model does it, except that a mean over all words of the batch leaves out padding."""
    if model.config.mix_layer_norm != "batch":
        return model._combine(layers)
    chosen = mask.unsqueeze(2)
    count = (mask.sum() * layers[0].shape[2]).clamp(min=1)
    normalised = []
    for layer in layers:
        centred = (layer - layer.sum() / count).masked_fill(~chosen, 0)
        variance = centred.pow(2).sum() / count
        normalised.append(centred * torch.rsqrt(variance + LAYER_NORM_EPSILON))
    mixed = []
    for mix in model.mixes:
        weights, gamma = mix.layer_weights()
        mixed.append(gamma * sum(weight * layer for weight, layer in zip(weights, normalised, strict=True)))
    return [model.alignment(vectors) for vectors in mixed] if model.config.use_alignment else mixed


__all__ = ["PaddedWords", "read_labels", "read_padded", "read_task_lstm"]
