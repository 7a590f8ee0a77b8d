"""Our numbers beside those of the original programs."""

import json
import random
import string

import h5py
import numpy as np
import pytest
import torch
from originals import elmo_options, original_character_mapper, original_elmo_module, read_weights, write_random_weights
from tiny import SENTENCES, words_of
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoModel, ElmoTokenizer, batch_to_ids
from hf_elmo.conversion import convert_allennlp
from hf_elmo.conversion.reference import reference_forward
from hf_elmo.scripts.original_wheels import allennlp_fixtures
from hf_elmo.tokenization_elmo import character_row

STORED_SENTENCES, STORED_WORDS = 30, 458
ALLENNLP_TOLERANCE = {"atol": 1e-6, "rtol": 1e-5}  # what AllenNLP's own tests ask for


@pytest.fixture(scope="module")
def fixture_folder(tmp_path_factory):
    """The real small weights of AllenNLP's tests, converted."""
    folder = tmp_path_factory.mktemp("fixture") / "elmo"
    source = allennlp_fixtures() / "elmo"
    convert_allennlp(source / "options.json", source / "lm_weights.hdf5", folder)
    return folder


@pytest.mark.promise("N1", n=STORED_SENTENCES)
@torch.no_grad()
def test_stored_vectors_of_the_tensorflow_program(fixture_folder):
    """30 sentences in 10 batches of 3, the state carried from batch to batch; top layer, both directions."""
    model, tokenizer = AutoModel.from_pretrained(fixture_folder), AutoTokenizer.from_pretrained(fixture_folder)
    fixtures = allennlp_fixtures() / "elmo"
    lists = json.loads((fixtures / "sentences.json").read_text())
    stored = [h5py.File(fixtures / f"lm_embeddings_{number}.hdf5", "r") for number in range(3)]

    state, compared = None, 0
    for index, sentences in enumerate(zip(*lists, strict=True)):
        batch = tokenizer(words_of(list(sentences)), is_split_into_words=True, padding=True, return_tensors="pt")
        outputs = model(**batch, initial_state=state, output_state=True, output_hidden_states=True)
        state = outputs.state
        for row, file in enumerate(stored):
            forward, backward = file[str(index)][...]  # (T, P) each
            found = outputs.hidden_states[-1][row, 1 : len(forward) + 1].numpy()
            np.testing.assert_allclose(found, np.concatenate([forward, backward], axis=1), **ALLENNLP_TOLERANCE)
            compared += 1
    assert compared == STORED_SENTENCES


@pytest.mark.promise("N1", n=STORED_WORDS)
@torch.no_grad()
def test_stored_token_vectors_of_the_tensorflow_program(fixture_folder):
    """458 words, the two boundaries among them, without context."""
    fixtures = allennlp_fixtures() / "elmo"
    words = (fixtures / "vocab_test.txt").read_text().split("\n")
    with h5py.File(fixtures / "elmo_token_embeddings.hdf5", "r") as file:
        stored = file["embedding"][...]
    words = words[: len(stored)]
    assert len(words) == len(stored) == STORED_WORDS
    model = AutoModel.from_pretrained(fixture_folder, layer_combination=0)
    one_word_each = [[word] for word in words]
    batch = ElmoTokenizer()(one_word_each, is_split_into_words=True, add_special_tokens=False, return_tensors="pt")
    found = model(**batch).last_hidden_state[:, 0, :16].numpy()
    np.testing.assert_allclose(found, stored, **ALLENNLP_TOLERANCE)


def original_layers(options, weights, sentences: list[list[str]], stateful: bool = False) -> list[torch.Tensor]:
    """All layers of each sentence (L + 1, T + 2, D) by the original module, boundaries included."""
    module = original_elmo_module()
    bilm = module._ElmoBiLm(str(options), str(weights))
    bilm._elmo_lstm.stateful = stateful
    with torch.no_grad():
        outputs = bilm(module.batch_to_ids(sentences))
    layers = torch.stack(outputs["activations"])
    return [layers[:, row, : len(sentence) + 2] for row, sentence in enumerate(sentences)]


@pytest.mark.promise("N1")
@pytest.mark.slow
@torch.no_grad()
def test_the_small_model_against_the_original_module(tmp_path):
    """Random weights of the published small size, ragged real sentences, all three layers."""
    small = elmo_options(
        projection=128,
        cell=1024,
        highway=1,
        character_dim=16,
        filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
    )
    options, weights = write_random_weights(tmp_path, small)
    sentences = words_of(
        [text for texts in json.loads((allennlp_fixtures() / "elmo/sentences.json").read_text()) for text in texts]
    )
    assert len({len(sentence) for sentence in sentences}) > 10
    expected = original_layers(options, weights, sentences)

    convert_allennlp(options, weights, tmp_path / "converted")
    model = ElmoModel.from_pretrained(tmp_path / "converted")
    batch = ElmoTokenizer()(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states)
    for row, layer in enumerate(expected):
        torch.testing.assert_close(layers[:, row, : layer.shape[1]], layer, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory):
    """Random weights, whose clips are active, in the original format and converted."""
    folder = tmp_path_factory.mktemp("random")
    options, weights = write_random_weights(folder, elmo_options())
    convert_allennlp(options, weights, folder / "converted")
    return options, weights, folder / "converted"


@pytest.mark.promise("N1")
@torch.no_grad()
def test_carried_state_as_the_original_over_batches_of_other_sizes(random_folder):
    """Batches of 2, 1, 3 and 2 sentences: rows that a smaller batch does not have keep their state."""
    options, weights, folder = random_folder
    module = original_elmo_module()
    bilm = module._ElmoBiLm(str(options), str(weights))
    model = ElmoModel.from_pretrained(folder)
    sentences = words_of(SENTENCES + SENTENCES[:3])
    state = None
    for start, end in ((0, 2), (2, 3), (3, 6), (6, 8)):
        batch = sentences[start:end]
        expected = torch.stack(bilm(module.batch_to_ids(batch))["activations"])
        encoded = ElmoTokenizer()(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        carried = None if state is None else state.for_batch(len(batch))
        outputs = model(**encoded, initial_state=carried, output_state=True, output_hidden_states=True)
        state = outputs.state if state is None else state.updated(outputs.state)
        torch.testing.assert_close(torch.stack(outputs.hidden_states), expected, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_elmo_module_with_two_mixes(random_folder, layer_norm):
    """Characters in, boundaries added and removed, two mixes of their own, normalised over the batch or not."""
    options, weights, folder = random_folder
    module = original_elmo_module()
    theirs = module.Elmo(str(options), str(weights), 2, do_layer_norm=layer_norm, dropout=0.0).eval()
    theirs._elmo_lstm._elmo_lstm.stateful = False
    ours = ElmoModel.from_pretrained(
        folder, num_output_representations=2, mix_layer_norm="batch" if layer_norm else None
    )
    for number in range(2):
        mix = getattr(theirs, f"scalar_mix_{number}")
        for layer, parameter in enumerate(mix.scalar_parameters):
            parameter.fill_(0.7 * number - 0.4 * layer)
        mix.gamma.fill_(1.5 - number)
        ours.mixes[number].weight.copy_(torch.cat(list(mix.scalar_parameters)))
        ours.mixes[number].gamma.copy_(mix.gamma)
    sentences = words_of(SENTENCES)
    expected = theirs(module.batch_to_ids(sentences))["elmo_representations"]
    found = ours(batch_to_ids(sentences)).elmo_representations
    for number in range(2):
        torch.testing.assert_close(found[number], expected[number], atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"skip": False},
        {"skip": False, "layers": 3},
        {"activation": "tanh"},
        {"highway": 0},
        {"cell_clip": None, "projection_clip": None},
        {"layers": 1},
    ],
    ids=str,
)
def test_other_arithmetic_against_the_float64_reference(tmp_path, settings):
    """bilm-tf models without skip connections, and what else the options can say."""
    options = elmo_options(**settings)
    options_file, weights_file = write_random_weights(tmp_path, options)
    convert_allennlp(options_file, weights_file, tmp_path / "converted")
    model = ElmoModel.from_pretrained(tmp_path / "converted")
    weights = read_weights(weights_file)
    tokenizer = ElmoTokenizer()
    state, ours = None, None
    for sentence in words_of(SENTENCES):
        encoded = tokenizer(sentence, is_split_into_words=True, return_tensors="pt")
        expected, state = reference_forward(options, weights, encoded["character_ids"][0].numpy(), state)
        outputs = model(**encoded, initial_state=ours, output_state=True, output_hidden_states=True)
        ours = outputs.state
        np.testing.assert_allclose(torch.cat(outputs.hidden_states).numpy(), expected, atol=1e-5, rtol=0)


# --- Characters ------------------------------------------------------------------------------------------------------


def varied_words(count: int) -> list[str]:
    """Words of all scripts and lengths, with surrogates, controls, joiners and what else a text may hold."""
    generator = random.Random(0)
    ranges = [(0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0xD800, 0xDFFF), (0x10000, 0x10FFFF), (0xAC00, 0xD7A3)]
    words = [
        "",
        "<S>",
        "</S>",
        "<UNK>",
        "<s>",
        "a" * 48,
        "a" * 49,
        "é" * 24,
        "é" * 25,
        "a" + "é" * 30,
        "\x00",
        "\ud800",
    ]
    while len(words) < count:
        length = generator.choice([1, 2, 3, 5, 8, 13, 30, 47, 48, 49, 50, 51, 80])
        if generator.random() < 0.5:
            words.append("".join(generator.choices(string.printable, k=length)))
        else:
            low, high = generator.choice(ranges)
            words.append("".join(chr(generator.randint(low, high)) for _ in range(length)))
    return words


def test_character_rows_of_100_000_words_equal_the_original_mapper():
    mapper = original_character_mapper()()
    words = varied_words(100_000)
    for word in words:
        assert np.frombuffer(character_row(word), dtype=np.uint16).tolist() == mapper.convert_word_to_char_ids(word), (
            word
        )
    assert len(set(words)) > 90_000


def test_rows_from_the_tokenizer_equal_the_original_mapper():
    mapper = original_character_mapper()()
    words = varied_words(2_000)
    encoded = ElmoTokenizer()(words, is_split_into_words=True, add_special_tokens=False)
    assert encoded["character_ids"] == [mapper.convert_word_to_char_ids(word) for word in words]


def test_batch_to_ids_equals_the_original():
    sentences = [["Hello", "world"], [], ["Ça", "<S>", "x" * 80, ""]]
    expected = original_elmo_module().batch_to_ids(sentences)
    found = batch_to_ids(sentences)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)
