# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMoForManyLangs computed directly from its dictionaries and tensors, in numpy, one sentence at a time, in float64.

A second, independent computation for checking a converted model: no shifted ids, no rearranged or negated gates, no
batches, no padding.

Shape letters: T tokens with both boundaries, M characters per token, E character dimension, F filters in all, W word
dimension, P projection, C cell, L layers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .reference import State, _clip, _relu, _sigmoid

Tensors = Mapping[str, np.ndarray]


def manylangs_ids(
    words: Sequence[str],
    word_lexicon: Mapping[str, int] | None,
    character_lexicon: Mapping[str, int] | None,
    max_characters: int,
) -> np.ndarray:
    """What the original program looks up for a sentence: (T, 1 + M), the word id and then the character ids.

    A word of more than `max_characters` - 2 code points is cut, for both. The marker before a word is that of its end
    and the other way round, as in the original. Without a lexicon the ids are 0.
    """
    tokens = ["<bos>", *(word[: max_characters - 2] for word in words), "<eos>"]
    ids = np.zeros((len(tokens), 1 + max_characters), np.int64)
    if word_lexicon is not None:
        ids[:, 0] = [word_lexicon.get(token, word_lexicon["<oov>"]) for token in tokens]
    if character_lexicon is not None:
        get, unknown = character_lexicon.get, character_lexicon["<oov>"]
        ids[:, 1:] = character_lexicon["<pad>"]
        for row, token in zip(ids[:, 1:], tokens, strict=True):
            spelling = [token] if token in ("<bos>", "<eos>") else token
            found = [get(character, unknown) for character in spelling]
            row[: len(found) + 2] = [character_lexicon["<eow>"], *found, character_lexicon["<bow>"]]
    return ids


def manylangs_forward(
    architecture: Mapping[str, Any], embedder: Tensors, encoder: Tensors, ids: np.ndarray, state: State | None = None
) -> tuple[np.ndarray, State]:
    """Computes all layers of the model for one sentence.

    Token vector x = [word vector ; y] W^T + b, where y are the characters after convolutions and highway layers:

        y_i = activation(max over positions of the convolution i)
        a, z = y W^T + b                                           these two lines n_highway times
        y = sigmoid(z) * y + (1 - sigmoid(z)) * relu(a)

    LSTM step, for each direction and layer on its own:

        i, f, g, o = x_t W_input^T + h W_state^T + b_state
        c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g), cell_clip)
        h = clip((sigmoid(o) * tanh(c)) W_projection^T, proj_clip)

    A layer above the first adds its input to its output, but not to the h of the next step.

    Args:
        architecture: Content of the architecture file.
        embedder: Tensors of token_embedder.pkl.
        encoder: Tensors of encoder.pkl.
        ids: What `manylangs_ids` gives.
        state: Final state of the previous sentence, as returned; zeros if None.

    Returns:
        The layers (L+1, T, 2P), where layer 0 is the token vector twice; and the final state h (L, 2P), c (L, 2C).
    """
    sizes = architecture["encoder"]
    layers, projection, cell = sizes["n_layers"], sizes["projection_dim"], sizes["dim"]
    if state is None:
        state = np.zeros((layers, 2 * projection)), np.zeros((layers, 2 * cell))
    last_h, last_c = state[0].reshape(layers, 2, projection).copy(), state[1].reshape(layers, 2, cell).copy()

    tokens = _token_vectors(architecture["token_embedder"], embedder, ids)  # (T, P)
    outputs = np.empty((layers + 1, len(tokens), 2, projection))
    outputs[0] = tokens[:, None]  # both halves
    for direction, name in enumerate(("forward", "backward")):
        order = slice(None, None, 1 if direction == 0 else -1)
        sequence = tokens[order]
        for layer in range(layers):
            tensors = {key: encoder[f"{name}_layer_{layer}.{key}"].astype(np.float64) for key in LSTM_TENSORS}
            hidden, last_h[layer, direction], last_c[layer, direction] = _lstm_layer(
                sizes, tensors, sequence, last_h[layer, direction], last_c[layer, direction]
            )
            sequence = hidden + sequence if layer > 0 else hidden
            outputs[layer + 1, :, direction] = sequence[order]
    final = last_h.reshape(layers, 2 * projection), last_c.reshape(layers, 2 * cell)
    return outputs.reshape(layers + 1, len(tokens), 2 * projection), final


LSTM_TENSORS = ("input_linearity.weight", "state_linearity.weight", "state_linearity.bias", "state_projection.weight")


def _token_vectors(settings: Mapping[str, Any], embedder: Tensors, ids: np.ndarray) -> np.ndarray:
    """(T, 1 + M) ids to (T, P) token vectors."""
    parts = []
    if settings["word_dim"]:
        parts.append(embedder["word_emb_layer.embedding.weight"].astype(np.float64)[ids[:, 0]])  # (T, W)
    if settings["char_dim"]:
        parts.append(_spelled(settings, embedder, ids[:, 1:]))  # (T, F)
    return _linear(embedder, "projection", np.concatenate(parts, axis=1))


def _spelled(settings: Mapping[str, Any], embedder: Tensors, ids: np.ndarray) -> np.ndarray:
    characters = embedder["char_emb_layer.embedding.weight"].astype(np.float64)[ids]  # (T, M, E)
    features = []
    for i, (width, _) in enumerate(settings["filters"]):
        kernel = embedder[f"convolutions.{i}.weight"].astype(np.float64)  # (count, E, width)
        windows = np.lib.stride_tricks.sliding_window_view(characters, width, axis=1)  # (T, positions, E, width)
        convolved = np.einsum("tpew,cew->tpc", windows, kernel) + embedder[f"convolutions.{i}.bias"]
        features.append(convolved.max(axis=1))
    y = np.concatenate(features, axis=1)  # (T, F)
    y = _relu(y) if settings["activation"] == "relu" else np.tanh(y)
    for k in range(settings["n_highway"]):
        changed, gate = np.split(_linear(embedder, f"highways._layers.{k}", y), 2, axis=1)
        y = _sigmoid(gate) * y + (1 - _sigmoid(gate)) * _relu(changed)
    return y


def _linear(tensors: Tensors, name: str, x: np.ndarray) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors[f"{name}.bias"]


def _lstm_layer(
    sizes: Mapping[str, Any], tensors: Tensors, sequence: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden vectors (T, P) of one layer over `sequence` (T, P), and its final h (P,) and c (C,)."""
    from_input = sequence @ tensors["input_linearity.weight"].T + tensors["state_linearity.bias"]  # (T, 4C)
    hidden = np.empty_like(sequence)
    for t in range(len(sequence)):
        i, f, g, o = np.split(from_input[t] + h @ tensors["state_linearity.weight"].T, 4)  # (C,) each
        c = _clip(_sigmoid(f) * c + _sigmoid(i) * np.tanh(g), sizes["cell_clip"])
        h = _clip((_sigmoid(o) * np.tanh(c)) @ tensors["state_projection.weight"].T, sizes["proj_clip"])  # (P,)
        hidden[t] = h
    return hidden, h, c
