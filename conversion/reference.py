"""The biLM computed directly from the arrays of an AllenNLP or bilm-tf weight file, in numpy, one sentence at a time.

A second, independent computation for checking a converted model: no rearranged gates, no negated gates, no batches,
no padding, float64.

Shape letters: T tokens with both boundaries, W characters per token, E character dimension, F filters in all,
P projection, C cell, L layers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

State = tuple[np.ndarray, np.ndarray]

CHARACTER_ROWS = 261  # 256 bytes, begin and end of sentence, begin and end of word, padding inside a word


def reference_forward(
    options: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    ids: np.ndarray,
    state: State | None = None,
    dtype: DTypeLike = np.float64,
) -> tuple[np.ndarray, State]:
    """Computes all layers of the biLM for one sentence.

    Token vector x, from the embedded characters e (W, E) of a token:

        y_i = activation(max over positions p of (sum(e[p : p + width_i] * W_cnn_i) + b_cnn_i))
        x = [y_0 ; y_1 ; ...]
        c = sigmoid(x W_carry + b_carry)                           these two lines n_highway times
        x = c * relu(x W_transform + b_transform) + (1 - c) * x
        x = x W_proj + b_proj                                      not if F = P and there is no W_proj

    A model of words has x = embedding[id] instead.

    LSTM step, for each direction and layer on its own; the backward direction reads the sentence from its end:

        i, j, f, o = [x_t ; h] W_0 + B
        c = clip(sigmoid(f + 1) * c + sigmoid(i) * tanh(j), cell_clip)
        h = clip((sigmoid(o) * tanh(c)) W_P_0, proj_clip)
        h = sigmoid(o) * tanh(c)                                   instead, if P = C and there is no W_P_0

    The output of layer 0 is h. With `use_skip_connections` that of a higher layer is h + x_t, where x_t, its input, is
    the output of the layer below; the h of the next step is without x_t. A clip of 0 or None cuts nothing.

    Args:
        options: Content of options.json.
        weights: Arrays by dataset name, such as `CNN/W_cnn_0`, in the shapes of the file.
        ids: (T, W) character ids as fed to the model: 1 to 261, the rows of `char_embed` plus one; or (T,) word ids,
            the rows of `embedding`. The first and the last are the sentence boundaries.
        state: Final state of the previous sentence, as returned; zeros if None.
        dtype: Type to compute in.

    Returns:
        The layers (L+1, T, 2P), forward half first, where layer 0 is the token vector twice; and the final state
        h (L, 2P), c (L, 2C).

    Raises:
        ValueError: If an id is out of range, the options name an unknown activation, or an array is missing or has
            another shape than the options say.
    """
    arrays = _Arrays(weights, dtype)
    lstm = options["lstm"]
    layers, projection, cell = lstm.get("n_layers", 1), lstm["projection_dim"], lstm["dim"]
    if state is None:
        state = np.zeros((layers, 2 * projection), dtype), np.zeros((layers, 2 * cell), dtype)
    initial_h = _checked("state[0]", state[0], (layers, 2 * projection), dtype).reshape(layers, 2, projection)
    initial_c = _checked("state[1]", state[1], (layers, 2 * cell), dtype).reshape(layers, 2, cell)
    final_h, final_c = np.empty_like(initial_h), np.empty_like(initial_c)

    ids = np.asarray(ids)
    is_words = ids.ndim == 1
    tokens = arrays.rows("embedding", projection, ids) if is_words else _token_vectors(options, arrays, ids)  # (T, P)
    outputs = np.empty((layers + 1, len(tokens), 2, projection), dtype)
    outputs[0] = tokens[:, None]  # both halves
    for direction in range(2):
        sequence = tokens if direction == 0 else tokens[::-1]  # (T, P) in the order of reading
        for layer in range(layers):
            hidden, final_h[layer, direction], final_c[layer, direction] = _lstm_layer(
                lstm, arrays, direction, layer, sequence, initial_h[layer, direction], initial_c[layer, direction]
            )
            skip = layer > 0 and lstm.get("use_skip_connections", False)
            sequence = hidden + sequence if skip else hidden
            outputs[layer + 1, :, direction] = sequence if direction == 0 else sequence[::-1]
    return (
        outputs.reshape(layers + 1, len(tokens), 2 * projection),
        (final_h.reshape(layers, 2 * projection), final_c.reshape(layers, 2 * cell)),
    )


def _token_vectors(options: Mapping[str, Any], arrays: "_Arrays", character_ids: np.ndarray) -> np.ndarray:
    """Token vectors (T, P) of the character ids (T, W)."""
    cnn, projection = options["char_cnn"], options["lstm"]["projection_dim"]
    if cnn["activation"] not in ("relu", "tanh"):
        raise ValueError(f"char_cnn.activation is {cnn['activation']!r}; ELMo models have 'relu' or 'tanh'.")
    activation = _relu if cnn["activation"] == "relu" else np.tanh
    if character_ids.ndim != 2 or not character_ids.size:
        raise ValueError(
            f"The ids have shape {character_ids.shape}; give one sentence as (tokens, characters) or (tokens,)."
        )
    lowest, highest = character_ids.min(), character_ids.max()
    if lowest < 1 or highest > CHARACTER_ROWS:
        raise ValueError(
            f"character_ids reach from {lowest} to {highest}; allowed is 1 to {CHARACTER_ROWS}. "
            "Leave out padding tokens, whose ids are 0."
        )

    dimension = cnn["embedding"]["dim"]
    embedded = arrays.get("char_embed", (CHARACTER_ROWS, dimension))[character_ids - 1]  # (T, W, E)
    features = []
    for i, (width, count) in enumerate(cnn["filters"]):
        kernel = arrays.get(f"CNN/W_cnn_{i}", (1, width, dimension, count)).reshape(width * dimension, count)
        bias = arrays.get(f"CNN/b_cnn_{i}", (count,))
        positions = range(embedded.shape[1] - width + 1)
        windows = np.stack([embedded[:, p : p + width] for p in positions], axis=1)  # (T, positions, width, E)
        convolved = windows.reshape(len(embedded), len(positions), width * dimension) @ kernel + bias
        features.append(activation(convolved.max(axis=1)))  # (T, count)
    x = np.concatenate(features, axis=1)  # (T, F)

    size = x.shape[1]
    for k in range(cnn.get("n_highway") or 0):
        name = f"CNN_high_{k}"
        carry = _sigmoid(x @ arrays.get(f"{name}/W_carry", (size, size)) + arrays.get(f"{name}/b_carry", (size,)))
        changed = _relu(
            x @ arrays.get(f"{name}/W_transform", (size, size)) + arrays.get(f"{name}/b_transform", (size,))
        )
        x = carry * changed + (1 - carry) * x
    if size == projection and "CNN_proj/W_proj" not in arrays:
        return x
    return x @ arrays.get("CNN_proj/W_proj", (size, projection)) + arrays.get("CNN_proj/b_proj", (projection,))


def _lstm_layer(
    lstm: Mapping[str, Any],
    arrays: "_Arrays",
    direction: int,
    layer: int,
    sequence: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden vectors (T, P) of one layer over `sequence` (T, P), and its final h (P,) and c (C,)."""
    projection, cell = lstm["projection_dim"], lstm["dim"]
    name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    kernel = arrays.get(f"{name}/W_0", (2 * projection, 4 * cell))
    from_input = sequence @ kernel[:projection] + arrays.get(f"{name}/B", (4 * cell,))  # (T, 4C)
    from_hidden = kernel[projection:]  # (P, 4C)
    has_projection = projection != cell or f"{name}/W_P_0" in arrays
    to_hidden = arrays.get(f"{name}/W_P_0", (cell, projection)) if has_projection else None

    hidden = np.empty_like(sequence)
    for t in range(len(sequence)):
        i, j, f, o = np.split(from_input[t] + h @ from_hidden, 4)  # (C,) each
        c = _clip(_sigmoid(f + 1) * c + _sigmoid(i) * np.tanh(j), lstm.get("cell_clip"))
        h = _sigmoid(o) * np.tanh(c)
        if to_hidden is not None:
            h = _clip(h @ to_hidden, lstm.get("proj_clip"))  # (P,)
        hidden[t] = h
    return hidden, h, c


class _Arrays:
    """The arrays of the weight file, each checked for its shape and cast when it is asked for."""

    def __init__(self, weights: Mapping[str, np.ndarray], dtype: DTypeLike):
        self.weights = weights
        self.dtype = dtype

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def get(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in self.weights:
            raise ValueError(f"The weights have no array {name!r}; the options ask for one of shape {shape}.")
        return _checked(name, self.weights[name], shape, self.dtype)

    def rows(self, name: str, width: int, ids: np.ndarray) -> np.ndarray:
        """Some rows of a table, which is not cast as a whole."""
        table = self.weights[name] if name in self.weights else np.empty((0, width))
        if not ids.size or ids.min() < 0 or ids.max() >= len(table):
            raise ValueError(f"The ids {ids} are not all from 0 to {len(table) - 1}, the rows of {name!r}.")
        return _checked(name, table[ids], (len(ids), width), self.dtype)


def _checked(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    array = np.asarray(array)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; the options ask for {shape}.")
    return array.astype(dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (np.tanh(x / 2) + 1) / 2  # the same as 1 / (1 + exp(-x)), and never overflows


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def _clip(x: np.ndarray, limit: float | None) -> np.ndarray:
    return np.clip(x, -limit, limit) if limit else x
