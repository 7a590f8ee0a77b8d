"""The numpy reference agrees with the original program, for every kind of model that the formats can hold."""

import json

import numpy as np
import pytest
import torch
from originals import (
    elmo_options,
    original_character_mapper,
    original_elmo_module,
    random_weights,
    read_weights,
    write_weights,
)

from hf_elmo.conversion.reference import reference_forward
from hf_elmo.scripts.original_wheels import allennlp_fixtures

TOLERANCE = 1e-5
SENTENCES = [
    "Deep contextualized representations , computed character by character , are compared here .".split(),
    ["Naïve", "한국어", "x" * 60, "<UNK>", "?"],
    [],
]


def character_rows(tokens):
    mapper = original_character_mapper()()
    return np.array([mapper.convert_word_to_char_ids(token) for token in ["<S>", *tokens, "</S>"]])


def original_bilm(folder, options, weights):
    options_file, weight_file = write_weights(folder, options, weights)
    return original_elmo_module()._ElmoBiLm(str(options_file), str(weight_file))


def original_layers(bilm, tokens):
    """All layers (L+1, T, 2P) of the original for one sentence; it carries its state to the next call."""
    character_ids = torch.from_numpy(character_rows(tokens)[1:-1].reshape(1, -1, 50))
    with torch.no_grad():
        return torch.stack(bilm(character_ids)["activations"])[:, 0].numpy()


MODELS = {
    "default": {},
    "large": {"projection": 64, "cell": 256, "character_dim": 16, "filters": [[1, 32], [2, 32], [5, 64], [7, 96]]},
    "tanh": {"activation": "tanh"},
    "no cell clip": {"cell_clip": None},
    "no projection clip": {"projection_clip": 0},
    "unequal clips": {"cell_clip": 1.5, "projection_clip": 0.75},
    "no highway": {"highway": 0},
    "one highway": {"highway": 1},
    "one layer": {"layers": 1},
    "four layers": {"layers": 4},
    "cell equals projection": {"projection": 12, "cell": 12},
    "filters equal projection": {"projection": 20},
}


@pytest.mark.parametrize("model", MODELS)
def test_all_layers_and_state_over_sentences(tmp_path, model):
    options = elmo_options(**MODELS[model])
    weights = random_weights(options, seed=3)
    bilm = original_bilm(tmp_path, options, weights)
    state = None
    for tokens in SENTENCES:
        layers, state = reference_forward(options, weights, character_rows(tokens), state)
        assert layers.dtype == np.float64
        assert layers.shape == (
            options["lstm"]["n_layers"] + 1,
            len(tokens) + 2,
            2 * options["lstm"]["projection_dim"],
        )
        np.testing.assert_allclose(layers, original_layers(bilm, tokens), rtol=0, atol=TOLERANCE)
        for mine, original in zip(state, bilm._elmo_lstm._states, strict=True):
            np.testing.assert_allclose(mine, original[:, 0], rtol=0, atol=TOLERANCE)


def test_state_matters(tmp_path):
    options = elmo_options()
    weights = random_weights(options, seed=3)
    rows = character_rows(SENTENCES[1])
    first, state = reference_forward(options, weights, rows)
    second, _ = reference_forward(options, weights, rows, state)
    np.testing.assert_array_equal(first[0], second[0])
    assert np.abs(first - second)[1:].max(axis=(1, 2)).min() > 1e-2


def test_fixture_against_tensorflow():
    folder = allennlp_fixtures() / "elmo"
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    weights = read_weights(folder / "lm_weights.hdf5")
    columns = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    for row, column in enumerate(columns):
        expected, state = read_weights(folder / f"lm_embeddings_{row}.hdf5"), None
        for i, sentence in enumerate(column):
            layers, state = reference_forward(options, weights, character_rows(sentence.split()), state)
            top = np.concatenate(expected[str(i)], axis=-1)  # (T, 2P)
            np.testing.assert_allclose(layers[-1, 1:-1], top, rtol=1e-5, atol=1e-6)


def test_token_layer_against_tensorflow():
    folder = allennlp_fixtures() / "elmo"
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    expected = read_weights(folder / "elmo_token_embeddings.hdf5")["embedding"]  # (words, P)
    rows = character_rows(words[: len(expected)])[1:-1]
    layers, _ = reference_forward(options, read_weights(folder / "lm_weights.hdf5"), rows)
    for half in np.split(layers[0], 2, axis=-1):
        np.testing.assert_allclose(half, expected, rtol=1e-5, atol=1e-6)


def test_without_skip_connections(tmp_path):
    """AllenNLP refuses such models, so its layers are chained here by hand."""
    options = elmo_options(layers=3)
    weights = random_weights(options, seed=4)
    bilm = original_bilm(tmp_path, options, weights)
    rows = character_rows(SENTENCES[0])
    with torch.no_grad():
        tokens = bilm._token_embedder(torch.from_numpy(rows[None, 1:-1]))["token_embedding"]
        halves = []
        for stack in (bilm._elmo_lstm.forward_layers, bilm._elmo_lstm.backward_layers):
            halves.append([tokens])
            for layer in stack:
                halves[-1].append(layer(halves[-1][-1], [tokens.shape[1]])[0])
    expected = np.concatenate([torch.cat(half).numpy() for half in halves], axis=-1)

    options["lstm"]["use_skip_connections"] = False
    layers, _ = reference_forward(options, weights, rows)
    np.testing.assert_allclose(layers, expected, rtol=0, atol=TOLERANCE)
    del options["lstm"]["use_skip_connections"]  # bilm-tf: absent means none
    np.testing.assert_array_equal(reference_forward(options, weights, rows)[0], layers)


def test_absent_projections_are_identities(tmp_path):
    """bilm-tf writes no projection between equal sizes, and then proj_clip has no effect."""
    options = elmo_options(projection=20, cell=20, projection_clip=0.01)
    weights = random_weights(options, seed=5, bilm_tf=True)
    complete = weights | {"CNN_proj/W_proj": np.eye(20), "CNN_proj/b_proj": np.zeros(20)}
    for name in [name for name in weights if name.endswith("/W_0")]:
        complete[name.removesuffix("W_0") + "W_P_0"] = np.eye(20)
    without_clip = elmo_options(projection=20, cell=20, projection_clip=None)
    bilm = original_bilm(tmp_path, without_clip, complete)
    layers, _ = reference_forward(options, weights, character_rows(SENTENCES[0]))
    np.testing.assert_allclose(layers, original_layers(bilm, SENTENCES[0]), rtol=0, atol=TOLERANCE)
    assert np.abs(layers[1]).max() > 0.1


@pytest.mark.parametrize("layers", [1, 3])
def test_words_of_a_table(tmp_path, layers):
    """AllenNLP's own LSTM over the rows of the table."""
    options = elmo_options(characters=False, layers=layers)
    weights = random_weights(options, seed=6, words=7)
    _, weight_file = write_weights(tmp_path, options, weights)
    original = original_elmo_module().ElmoLstm(
        8, 8, 12, layers, memory_cell_clip_value=3, state_projection_clip_value=3, requires_grad=False
    )
    original.load_weights(str(weight_file))
    ids, state = np.array([5, 1, 1, 6, 0]), None
    rows = torch.from_numpy(weights["embedding"][ids])[None]
    for _ in range(2):  # the original keeps its state
        with torch.no_grad():
            expected = original(rows, torch.ones(1, len(ids), dtype=torch.bool))[:, 0].numpy()
        found, state = reference_forward(options, weights, ids, state)
        np.testing.assert_array_equal(found[0], np.concatenate([rows[0], rows[0]], axis=1))
        np.testing.assert_allclose(found[1:], expected, rtol=0, atol=TOLERANCE)
    for wrong in (np.array([7]), np.array([-1]), np.array([], dtype=int)):
        with pytest.raises(ValueError, match=r"are not all from 0 to 6, the rows of 'embedding'"):
            reference_forward(options, weights, wrong)
    with pytest.raises(ValueError, match=r"embedding has shape \(1, 3\); the options ask for \(1, 8\)"):
        reference_forward(options, weights | {"embedding": np.zeros((7, 3))}, ids[:1])


def test_dtype_argument():
    options = elmo_options()
    weights, rows = random_weights(options), character_rows(SENTENCES[0])
    single, (hidden, memory) = reference_forward(options, weights, rows, dtype=np.float32)
    assert single.dtype == hidden.dtype == memory.dtype == np.float32
    double, _ = reference_forward(options, weights, rows)
    assert 0 < np.abs(single - double).max() < TOLERANCE


def test_inputs_are_not_changed():
    options = elmo_options()
    weights, rows = random_weights(options), character_rows(SENTENCES[0])
    _, state = reference_forward(options, weights, rows)
    kept = [array.copy() for array in (*weights.values(), rows, *state)]
    reference_forward(options, weights, rows, state)
    for before, after in zip(kept, (*weights.values(), rows, *state), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o, w, r: o["char_cnn"].update(activation="gelu"), "activation is 'gelu'.*'relu' or 'tanh'"),
        (lambda o, w, r: w.pop("CNN_proj/W_proj"), "no array 'CNN_proj/W_proj'.*shape \\(20, 8\\)"),
        (lambda o, w, r: w.pop("RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"), "no array 'RNN_1.*W_P_0'"),
        (lambda o, w, r: w.update(char_embed=np.zeros((262, 4))), "char_embed has shape \\(262, 4\\).*\\(261, 4\\)"),
        (lambda o, w, r: r.__setitem__((1, 0), 262), "from .* to 262; allowed is 1 to 261"),
        (lambda o, w, r: r.__setitem__(1, 0), "from 0 to .*; allowed is 1 to 261. Leave out padding"),
    ],
)
def test_errors(change, message):
    options = elmo_options()
    weights, rows = random_weights(options), character_rows(["word"])
    change(options, weights, rows)
    with pytest.raises(ValueError, match=message):
        reference_forward(options, weights, rows)


def test_errors_of_shapes():
    options = elmo_options()
    weights, rows = random_weights(options), character_rows(["word"])
    with pytest.raises(ValueError, match=r"shape \(1, 3, 50\); give one sentence"):
        reference_forward(options, weights, rows[None])
    with pytest.raises(ValueError, match=r"state\[0\] has shape \(2, 8\); the options ask for \(2, 16\)"):
        reference_forward(options, weights, rows, (np.zeros((2, 8)), np.zeros((2, 24))))
