"""AllenNLP and bilm-tf weights become Hub folders that compute the same, and come back bit-equal."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from originals import (
    elmo_options,
    original_elmo_module,
    random_weights,
    read_weights,
    write_random_weights,
    write_weights,
)
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoConfig, ElmoModel
from hf_elmo.cli import main
from hf_elmo.conversion import allennlp, convert_allennlp, export_allennlp, verify, writing
from hf_elmo.conversion.reference import reference_forward
from hf_elmo.hub import verify_checksums
from hf_elmo.scripts.original_wheels import allennlp_fixtures

SENTENCES = [
    "Deep contextualized representations , computed character by character .".split(),
    ["Naïve", "한국어", "x" * 60],
    ["Hi"],
]


@pytest.fixture(scope="module")
def fixture_files():
    folder = allennlp_fixtures() / "elmo"
    return folder / "options.json", folder / "lm_weights.hdf5"


@pytest.fixture(scope="module")
def fixture_folder(fixture_files, tmp_path_factory):
    """The AllenNLP fixture, converted through the command."""
    output = tmp_path_factory.mktemp("converted") / "elmo-fixture"
    options, weights = map(str, fixture_files)
    assert main(["convert", "allennlp", "--options", options, "--weights", weights, "--output", str(output)]) == 0
    return output


@pytest.fixture
def tiny_files(tmp_path):
    return write_random_weights(tmp_path / "source", elmo_options())


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# --- Conversion ------------------------------------------------------------------------------------------------------


def test_folder_is_complete(fixture_folder):
    expected = {
        "README.md",
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "configuration_elmo.py",
        "modeling_elmo.py",
        "tokenization_elmo.py",
    }
    assert expected <= set(names_in(fixture_folder))
    assert names_in(fixture_folder.parent) == [fixture_folder.name]
    verify_checksums(fixture_folder)


def test_converted_folder_gives_the_numbers_of_the_source(fixture_files, fixture_folder):
    """Through the Auto classes, in float32, all layers of a padded batch."""
    tokenizer, model = AutoTokenizer.from_pretrained(fixture_folder), AutoModel.from_pretrained(fixture_folder)
    batch = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states, dim=1).numpy()
    options, weights = json.loads(fixture_files[0].read_text()), read_weights(fixture_files[1])
    for found, ids, mask in zip(layers, batch["character_ids"].numpy(), batch["attention_mask"].bool(), strict=True):
        expected, _ = reference_forward(options, weights, ids[mask.numpy()])
        np.testing.assert_allclose(found[:, mask], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.promise("S7")
def test_every_weight_is_taken_over_and_no_other(fixture_files, fixture_folder):
    """Counted by value: the multiset of all numbers of the file is that of the folder, the mixes apart."""
    state = load_file(fixture_folder / "model.safetensors")
    ours = np.sort(np.concatenate([weight.numpy().ravel() for name, weight in state.items() if "mixes" not in name]))
    theirs = np.sort(np.concatenate([array.ravel() for array in read_weights(fixture_files[1]).values()]))
    np.testing.assert_array_equal(ours, theirs)
    assert torch.equal(state["mixes.0.weight"], torch.zeros(3))
    assert torch.equal(state["mixes.0.gamma"], torch.ones(1))


def test_report(tiny_files, tmp_path):
    told = []
    report = convert_allennlp(*tiny_files, tmp_path / "out", progress=told.append)
    assert report.folder == tmp_path / "out"
    assert report.num_parameters == sum(array.size for array in read_weights(tiny_files[1]).values())
    assert report.parity.float32 < 1e-5
    assert report.parity.float64 < 1e-12
    assert re.match(
        r"parity: max \|difference\| \d\.\de-\d\d in float32, \d\.\de-\d\d in float64 \(limit 1e-09\) over 3 layers, "
        r"6 sentences, 74 tokens, .* against an independent float64 computation\n",
        str(report),
    )
    assert [line.split()[0] for line in told] == ["reading", "reading", "writing", "verifying"]


VARIANTS = {
    "no skip connections": {"skip": False},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "no highway": {"highway": 0},
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "eight layers": {"layers": 8},
    "tanh": {"activation": "tanh"},
    "one filter": {"filters": [[2, 5]]},
    "as many filters as the projection": {"projection": 20},
    "cells as wide as the projection": {"projection": 12},
}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_goes_there_and_back(tmp_path, variant):
    options = elmo_options(**VARIANTS[variant])
    source = write_random_weights(tmp_path / "source", options, seed=3)
    convert_allennlp(*source, tmp_path / "out")  # verifies against the reference
    if options["lstm"]["use_skip_connections"]:
        report = export_allennlp(tmp_path / "out", tmp_path / "back")
    else:
        with pytest.warns(UserWarning, match="AllenNLP refuses models without skip connections"):
            report = export_allennlp(tmp_path / "out", tmp_path / "back")
    assert json.loads(report.options.read_text()) == options
    assert_same_weights(read_weights(report.weights), read_weights(source[1]))


def assert_same_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    ("sizes", "absent"),
    [
        ({"projection": 20}, {"project_words": False}),
        ({"projection": 12, "layers": 3}, {"project_cells": False}),
        ({"projection": 20, "cell": 20, "highway": 0}, {"project_words": False, "project_cells": False}),
    ],
    ids=str,
)
def test_projections_that_bilm_tf_leaves_out_between_equal_sizes(tmp_path, sizes, absent):
    options = elmo_options(**sizes, projection_clip=0.01)  # which has no effect without the projection
    source = write_random_weights(tmp_path / "source", options, bilm_tf=True)
    convert_allennlp(*source, tmp_path / "out")  # verifies against the reference
    config = ElmoConfig.from_pretrained(tmp_path / "out")
    assert {name: getattr(config, name) for name in ("project_words", "project_cells")} == {
        "project_words": True,
        "project_cells": True,
        **absent,
    }
    with pytest.warns(UserWarning, match="AllenNLP refuses models without projections between equal sizes"):
        report = export_allennlp(tmp_path / "out", tmp_path / "back")
    assert json.loads(report.options.read_text()) == options
    assert_same_weights(read_weights(report.weights), read_weights(source[1]))


@pytest.mark.parametrize("sizes", [{}, {"projection": 12}])
def test_one_layer_in_the_names_of_bilm_tf(tmp_path, sizes):
    """They leave out the number of the layer, and the options may do so, too."""
    options = elmo_options(layers=1, **sizes)
    weights = random_weights(options, bilm_tf=True)
    theirs = {name.replace("/MultiRNNCell/Cell0", ""): array for name, array in weights.items()}
    assert "RNN_0/RNN/LSTMCell/W_0" in theirs
    del options["lstm"]["n_layers"]
    source = write_weights(tmp_path / "source", options, theirs)
    report = convert_allennlp(*source, tmp_path / "out")
    assert report.parity.float64 < 1e-12
    usual = write_weights(tmp_path / "usual", elmo_options(layers=1, **sizes), weights)
    convert_allennlp(*usual, tmp_path / "same")
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "same"))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("n_characters", [261, 262])
def test_both_numbers_of_characters_are_accepted(tmp_path, n_characters):
    options = elmo_options()
    options["char_cnn"]["n_characters"] = n_characters
    report = convert_allennlp(*write_random_weights(tmp_path / "source", options), tmp_path / "out")
    assert ElmoConfig.from_pretrained(report.folder).char_vocab_size == 262


def test_other_word_lengths_are_read(tmp_path):
    options = elmo_options()
    options["char_cnn"]["max_characters_per_token"] = 20
    report = convert_allennlp(*write_random_weights(tmp_path / "source", options), tmp_path / "out")
    assert AutoTokenizer.from_pretrained(report.folder)("word", return_tensors="pt")["character_ids"].shape == (
        1,
        3,
        20,
    )
    with pytest.warns(UserWarning, match="AllenNLP reads words of 50 characters only, this model reads 20"):
        export_allennlp(report.folder, tmp_path / "back")


def test_vocabulary_gives_word_ids(tiny_files, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<S>\n</S>\n<UNK>\nthe\nriver\n", encoding="utf-8")
    report = convert_allennlp(*tiny_files, tmp_path / "out", vocabulary=vocabulary)
    config = ElmoConfig.from_pretrained(report.folder)
    assert (config.vocab_size, config.pad_token_id) == (6, 5)
    assert AutoTokenizer.from_pretrained(report.folder)("the old river")["input_ids"] == [0, 3, 2, 4, 1]


def test_without_a_vocabulary_there_are_four_word_ids(fixture_folder):
    config = ElmoConfig.from_pretrained(fixture_folder)
    assert (config.vocab_size, config.pad_token_id, config.bos_token_id, config.eos_token_id) == (4, 3, 0, 1)
    assert AutoTokenizer.from_pretrained(fixture_folder).pad_token_id == 3


# --- Models of words -------------------------------------------------------------------------------------------------

# Not in the order of frequency, with boundaries inside, as bilm-tf allows, and with what the tokenizer stands in with.
WORDS = ["the", "</S>", "river", "<UNK>", "was", "<S>", "a\u2028b", "é", "\ufffd", "Buffalo", ","]


def write_words(folder, words=WORDS, options=None, **changes):
    """The files of a word-level model of bilm-tf."""
    options = options or elmo_options(characters=False)
    arrays = random_weights(options, bilm_tf=True, words=len(WORDS))
    files = write_weights(folder, options, arrays | changes)
    return *files, write_vocabulary(folder, words)


def write_vocabulary(folder, words):
    (folder / "vocab.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
    return folder / "vocab.txt"


def convert_words(files, output, **settings):
    return convert_allennlp(*files[:2], output, vocabulary=files[2], **settings)


@pytest.mark.promise("S7")
@pytest.mark.parametrize("sizes", [{}, {"layers": 1}, {"layers": 8}, {"cell": 8}, {"cell_clip": None}], ids=str)
def test_word_models_of_bilm_tf_go_there_and_back(tmp_path, sizes):
    files = write_words(tmp_path / "source", options=elmo_options(characters=False, **sizes))
    report = convert_words(files, tmp_path / "out")  # verifies against the reference
    assert report.num_parameters == sum(array.size for array in read_weights(files[1]).values())
    config = ElmoConfig.from_pretrained(report.folder)
    assert (config.word_input, config.vocab_size, config.pad_token_id) == ("words", 12, 11)
    assert (config.bos_token_id, config.eos_token_id) == (5, 1)
    assert not load_file(report.folder / "model.safetensors")["character_encoder.word_embedding.weight"][-1].any()
    with pytest.warns(UserWarning, match="AllenNLP refuses models of words") as caught:
        exported = export_allennlp(report.folder, tmp_path / "back")
    assert len(caught) == 1
    assert json.loads(exported.options.read_text()) == json.loads(files[0].read_text())
    assert_same_weights(read_weights(exported.weights), read_weights(files[1]))


def test_word_model_and_the_lstm_of_the_original_program(tmp_path):
    """AllenNLP reads no table of words, but its LSTM reads the weights and goes over the rows."""
    files = write_words(tmp_path / "source")
    folder = convert_words(files, tmp_path / "out").folder
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    sentence = ["the", "river", "was", "elsewhere", "", "é", "a\u2028b", "\ufffd", "Buffalo"]
    batch = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
    assert batch["input_ids"][0].tolist() == [5, 0, 2, 4, 3, 3, 7, 6, 8, 9, 1]
    original = original_elmo_module().ElmoLstm(
        8, 8, 12, 2, memory_cell_clip_value=3, state_projection_clip_value=3, requires_grad=False
    )
    original.load_weights(str(files[1]))
    rows = torch.from_numpy(read_weights(files[1])["embedding"])[batch["input_ids"]]
    with torch.no_grad():
        expected = original(rows, torch.ones(rows.shape[:2], dtype=torch.bool))
        layers = model(**batch, output_hidden_states=True).hidden_states
    torch.testing.assert_close(torch.stack(layers[1:]), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(layers[0], torch.cat([rows, rows], dim=2), atol=0, rtol=0)


def test_token_embeddings_give_the_vectors_of_tensorflow(fixture_files, tmp_path):
    """The fixture's words in their table, compared with what TensorFlow computed from characters, with its state."""
    folder = fixture_files[0].parent
    table = folder / "elmo_token_embeddings.hdf5"
    report = convert_allennlp(
        *fixture_files, tmp_path / "out", vocabulary=folder / "vocab_test.txt", token_embeddings=table
    )
    tokenizer, model = AutoTokenizer.from_pretrained(report.folder), AutoModel.from_pretrained(report.folder)
    assert model.config.word_input == "words"
    columns = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    expected = [read_weights(folder / f"lm_embeddings_{row}.hdf5") for row in range(3)]
    state = None
    for number, sentences in enumerate(zip(*columns, strict=True)):
        words = [sentence.split() for sentence in sentences]
        batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
        assert not (batch["input_ids"] == tokenizer.unk_token_id).any()
        with torch.no_grad():
            outputs = model(**batch, initial_state=state, output_hidden_states=True, output_state=True)
        state = outputs.state
        for row, sentence in enumerate(words):
            top = np.concatenate(expected[row][str(number)], axis=-1)  # (T, 2P)
            found = outputs.hidden_states[-1][row, 1 : len(sentence) + 1].numpy()
            np.testing.assert_allclose(found, top, rtol=1e-5, atol=1e-6)
    card = (report.folder / "README.md").read_text(encoding="utf-8")
    assert "elmo_token_embeddings.hdf5" in card
    assert "vocab_test.txt" in card


def test_words_need_their_vocabulary(tmp_path, fixture_files):
    files = write_words(tmp_path / "source")
    with pytest.raises(ValueError, match=r"options\.json has no char_cnn, so .* table of words: give the vocabulary"):
        convert_allennlp(*files[:2], tmp_path / "out")
    table = fixture_files[0].parent / "elmo_token_embeddings.hdf5"
    with pytest.raises(ValueError, match=r"elmo_token_embeddings\.hdf5 is a table of words: give the vocabulary"):
        convert_allennlp(*fixture_files, tmp_path / "out", token_embeddings=table)
    with pytest.raises(ValueError, match=r"have a table of words already; leave out the token embeddings"):
        convert_words(files, tmp_path / "out", token_embeddings=table)
    write_vocabulary(tmp_path / "source", [*WORDS, "more"])
    with pytest.raises(ValueError, match=r"'embedding' has shape \(11, 8\); the options ask for \(12, 8\)"):
        convert_words(files, tmp_path / "out")
    write_vocabulary(tmp_path / "source", [*WORDS[:-1], "<PAD>"])
    with pytest.raises(ValueError, match=r"vocab\.txt has the word <PAD>.* the last word id, after the 11 words"):
        convert_words(files, tmp_path / "out")
    assert names_in(tmp_path) == ["source"]


def test_arrays_of_another_kind_of_model_are_refused(tmp_path, tiny_files):
    options, weights = tiny_files
    vocabulary = write_vocabulary(tmp_path, WORDS)
    options.write_text(json.dumps(elmo_options(characters=False)))
    with pytest.raises(ValueError, match=r"has no dataset 'embedding', but has 'CNN'"):
        convert_allennlp(options, weights, tmp_path / "out", vocabulary=vocabulary)
    files = write_words(tmp_path / "words", char_embed=np.zeros((261, 4), np.float32))
    with pytest.raises(ValueError, match=r"holds 'char_embed', which is no part of a model with these options"):
        convert_words(files, tmp_path / "out")


def test_token_embeddings_of_something_else_are_refused(fixture_files, tmp_path):
    folder = fixture_files[0].parent
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = write_vocabulary(tmp_path, words[1:] + words[:1])
    settings = {"vocabulary": vocabulary, "token_embeddings": folder / "elmo_token_embeddings.hdf5"}
    with pytest.raises(ValueError, match=r"the row of the word '.*' is not what the weights make of its characters"):
        convert_allennlp(*fixture_files, tmp_path / "out", **settings)
    settings["token_embeddings"] = fixture_files[1]
    with pytest.raises(ValueError, match=r"has no dataset 'embedding'"):
        convert_allennlp(*fixture_files, tmp_path / "out", **settings)


def test_words_in_another_order_are_noticed(tmp_path, monkeypatch):
    read = allennlp.words_of_lines
    monkeypatch.setattr(allennlp, "words_of_lines", lambda path: [*read(path)[:-2], *read(path)[:-3:-1]])
    with pytest.raises(ValueError, match="does not compute what its source does"):
        convert_words(write_words(tmp_path / "source"), tmp_path / "out")


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_options_of_another_model_are_refused(tiny_files, tmp_path):
    options, weights = tiny_files
    content = json.loads(options.read_text())
    content["lstm"]["projection_dim"] = 7
    options.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"weights\.hdf5: the dataset 'CNN_proj/W_proj' has shape \(20, 8\); .* \(20, 7\)"
    ):
        convert_allennlp(options, weights, tmp_path / "out")
    assert names_in(tmp_path) == ["source"]


def test_broken_options_name_file_and_value(tiny_files, tmp_path):
    options, weights = tiny_files
    options.write_text(options.read_text().replace('"n_layers": 2', '"n_layers": "2"'))
    with pytest.raises(ValueError, match=r'options\.json: lstm\.n_layers is "2" in the options'):
        convert_allennlp(options, weights, tmp_path / "out")


def wrong_gates(monkeypatch):
    monkeypatch.setattr(allennlp, "GATES_TO_OURS", (0, 1, 2, 3))


def swapped(monkeypatch, first, second):
    """Exchanges two parts of the names of our weights in the table."""

    def exchange(name):
        return name.replace(first, "?").replace(second, first).replace("?", second)

    def rows(config, original=allennlp._rows):
        for row in original(config):
            yield row._replace(weights=tuple(map(exchange, row.weights)))

    monkeypatch.setattr(allennlp, "_rows", rows)


def swapped_directions(monkeypatch):
    swapped(monkeypatch, "forward_layers", "backward_layers")


def swapped_biases(monkeypatch):
    swapped(monkeypatch, "carry.bias", "transform.bias")


def lower_precision(monkeypatch):
    original = writing.save_model_files
    monkeypatch.setattr(writing, "save_model_files", lambda model, *rest: original(model.bfloat16(), *rest))


def other_clip(monkeypatch):
    original = allennlp.config_from_options

    def config_from_options(options):
        config = original(options)
        config.cell_clip = 2.999999
        return config

    monkeypatch.setattr(allennlp, "config_from_options", config_from_options)


@pytest.mark.parametrize("defect", [wrong_gates, swapped_directions, swapped_biases, lower_precision, other_clip])
def test_model_that_computes_something_else_is_not_kept(tiny_files, tmp_path, monkeypatch, defect):
    defect(monkeypatch)
    with pytest.raises(ValueError, match=r"does not compute what its source does, so it was not kept: max \|diff"):
        convert_allennlp(*tiny_files, tmp_path / "out")
    assert names_in(tmp_path) == ["source"]


def test_tokenizer_that_spells_differently_is_noticed(tiny_files, tmp_path, monkeypatch):
    def one_character_less(words, width, original=verify.character_rows):
        return original([word[:-1] if len(word) == 5 else word for word in words], width)

    monkeypatch.setattr(verify, "character_rows", one_character_less)
    with pytest.raises(ValueError, match="does not compute what its source does"):
        convert_allennlp(*tiny_files, tmp_path / "out")


def test_leftover_and_unknown_arrays_are_errors():
    config = allennlp.config_from_options(elmo_options())
    arrays = random_weights(elmo_options())
    with pytest.raises(ValueError, match="These arrays have no place in the model: surplus"):
        allennlp.state_dict_from_arrays(config, {**arrays, "surplus": np.zeros(3)})
    weights = allennlp.state_dict_from_arrays(config, arrays)
    with pytest.raises(ValueError, match="These weights have no place in an AllenNLP file: head"):
        allennlp.arrays_from_state_dict(config, {**weights, "head.weight": torch.zeros(3)})


def test_table_names_every_weight_of_the_model_once():
    config = allennlp.config_from_options(elmo_options(), vocab_size=4)
    with torch.device("meta"):
        state = ElmoModel(config).state_dict()
    named = [name for row in allennlp.name_table(config) for name in row.weights]
    assert len(named) == len(set(named))
    assert set(named) == {name for name in state if not name.startswith("mixes.")}


# --- What is there already -------------------------------------------------------------------------------------------


def test_existing_folder_is_not_touched(tiny_files, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        convert_allennlp(*tiny_files, output)
    with pytest.raises(FileExistsError, match=r"holds 'mine\.txt', which was not written by hf-elmo"):
        convert_allennlp(*tiny_files, output, overwrite=True)
    assert names_in(output) == ["mine.txt"]


def test_source_inside_the_output_is_not_lost(tiny_files):
    source = tiny_files[0].parent
    with pytest.raises(FileExistsError, match=r"holds 'options\.json', which was not written by hf-elmo"):
        convert_allennlp(*tiny_files, source, overwrite=True)
    assert names_in(source) == ["options.json", "weights.hdf5"]


def test_overwriting_replaces_the_folder(tiny_files, fixture_folder, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(fixture_folder, output)
    convert_allennlp(*tiny_files, output, overwrite=True)
    assert ElmoConfig.from_pretrained(output).projection_size == 8
    verify_checksums(output)
    assert names_in(tmp_path) == ["out", "source"]


def test_failed_overwriting_keeps_the_old_folder(tiny_files, fixture_folder, tmp_path, monkeypatch):
    output = tmp_path / "out"
    shutil.copytree(fixture_folder, output)
    wrong_gates(monkeypatch)
    with pytest.raises(ValueError, match="does not compute what its source does"):
        convert_allennlp(*tiny_files, output, overwrite=True)
    verify_checksums(output)
    assert ElmoConfig.from_pretrained(output).projection_size == 16
    assert names_in(tmp_path) == ["out", "source"]


# --- Export ----------------------------------------------------------------------------------------------------------


def test_fixture_comes_back_bit_equal(fixture_files, fixture_folder, tmp_path):
    report = export_allennlp(fixture_folder, tmp_path)
    assert_same_weights(read_weights(report.weights), read_weights(fixture_files[1]))
    assert json.loads(report.options.read_text()) == json.loads(fixture_files[0].read_text())
    assert names_in(tmp_path) == ["options.json", "weights.hdf5"]


def test_original_program_reads_the_export(fixture_folder, tmp_path):
    """A fresh model, never an AllenNLP one before, in the real Elmo module of AllenNLP 2.10.1."""
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig.from_pretrained(fixture_folder, num_highway_layers=1, cell_clip=None))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
        model.mixes[0].weight.zero_()
        model.mixes[0].gamma.fill_(1)
    model.save_pretrained(tmp_path / "model")
    report = export_allennlp(tmp_path / "model", tmp_path / "exported")

    module = original_elmo_module()
    original = module.Elmo(str(report.options), str(report.weights), 1, dropout=0.0).eval()
    ids = module.batch_to_ids(SENTENCES)
    with torch.no_grad():
        expected = original(ids)["elmo_representations"][0]
        found = model.eval()(ids).last_hidden_state
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"forget_bias": 0.0}, "forget_bias=0.0 cannot be exported"),
        ({"char_vocab_size": 300}, "char_vocab_size=300 cannot"),
        ({"character_markers": [1, 2, 3, 4, 5]}, r"character_markers=\[1, 2, 3, 4, 5\] cannot be exported"),
        ({"word_input": "both", "word_embedding_size": 3}, "word_input='both' cannot be exported"),
        ({"word_input": "words", "word_embedding_size": 3}, "project_words=True cannot be exported"),
        (
            {"word_input": "words", "word_embedding_size": 8, "project_words": False, "pad_token_id": 2},
            "pad_token_id=2 cannot be exported.* last word id, 3",
        ),
    ],
)
def test_models_the_format_cannot_express_are_refused(tmp_path, fields, reason):
    config = allennlp.config_from_options(elmo_options(), vocab_size=4, **fields)
    ElmoModel(config).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=reason):
        export_allennlp(tmp_path / "model", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_more_layers_than_bilm_tf_reads_are_told(tmp_path):
    config = allennlp.config_from_options(elmo_options(layers=9), vocab_size=4)
    ElmoModel(config).save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match="bilm-tf reads at most 8 layers, this model has 9; AllenNLP reads it"):
        export_allennlp(tmp_path / "model", tmp_path / "exported")


def test_learned_mixes_are_not_lost_silently(fixture_folder, tmp_path):
    model = ElmoModel.from_pretrained(fixture_folder)
    with torch.no_grad():
        model.mixes[0].weight[1] = 0.5
    model.save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match=r"learned weights of the layers \(mixes\.0\) are left out"):
        export_allennlp(tmp_path / "model", tmp_path / "exported")


def test_export_replaces_files_only_when_told(fixture_folder, tmp_path):
    (tmp_path / "options.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"options\.json exists"):
        export_allennlp(fixture_folder, tmp_path)
    assert (tmp_path / "options.json").read_text() == "mine"
    assert names_in(tmp_path) == ["options.json"]
    export_allennlp(fixture_folder, tmp_path, overwrite=True)
    assert json.loads((tmp_path / "options.json").read_text())["lstm"]["dim"] == 64


def spoiled(folder, change):
    """A folder whose weights were changed."""
    path = folder / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})


def test_folders_that_are_not_whole_are_refused(fixture_folder, tmp_path):
    name = "bilstm.forward_layers.0.bias"
    changes = {
        f"missing keys in the weights: {name}": lambda state: state.pop(name),
        "unexpected keys in the weights: surplus": lambda state: state.update(surplus=torch.zeros(2)),
        f"mismatched keys in the weights: .*{name}": lambda state: state.update({name: torch.zeros(7)}),
        f"the weights {name} hold NaN": lambda state: state[name].fill_(float("nan")),
    }
    for number, (reason, change) in enumerate(changes.items()):
        folder = tmp_path / str(number)
        shutil.copytree(fixture_folder, folder)
        spoiled(folder, change)
        with pytest.raises(ValueError, match=reason):
            export_allennlp(folder, tmp_path / "exported")


def test_folders_of_something_else_are_refused(fixture_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="is no model folder"):
        export_allennlp(tmp_path, tmp_path / "exported")
    folder = tmp_path / "model"
    shutil.copytree(fixture_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    with pytest.raises(ValueError, match="says model_type 'bert'"):
        export_allennlp(folder, tmp_path / "exported")
    (folder / "config.json").write_text(json.dumps(config | {"cell_size": "64"}))
    with pytest.raises(ValueError, match=r"(?s)is not the config of an ELMo model: .*cell_size"):
        export_allennlp(folder, tmp_path / "exported")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"The weights of .* cannot be read"):
        export_allennlp(folder, tmp_path / "exported")


def test_without_h5py_nothing_is_read_or_made(fixture_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.setattr(allennlp, "_load_encoder", None)
    with pytest.raises(ImportError, match=r'HDF5 weight files need h5py.*pip install "hf-elmo\[convert\]"'):
        export_allennlp(fixture_folder, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
