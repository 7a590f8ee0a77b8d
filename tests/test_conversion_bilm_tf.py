"""Checkpoints of bilm-tf's training become language models that score as the source does."""

import json
import math

import numpy as np
import pytest
import torch
from originals import elmo_options, random_weights
from safetensors.torch import load_file, save_file
from tf_checkpoint_writer import write_checkpoint
from transformers import AutoModelForPreTraining, AutoTokenizer

from hf_elmo import ElmoForPreTraining, ElmoModel
from hf_elmo.conversion import bilm_tf, writing
from hf_elmo.conversion.bilm_tf import convert_bilm_tf
from hf_elmo.conversion.reference import reference_forward
from hf_elmo.conversion.verify import character_rows, load_exactly
from hf_elmo.hub import verify_checksums

# Not in the order of frequency or of the alphabet, so that another order shows.
WORDS = ["<S>", "</S>", "<UNK>", "the", "river", "Buffalo", ",", ".", "buffalo", "it", "a\u2028b", "was", "é"]
TRAINING = {"sample_softmax": True, "n_negative_samples_batch": 5, "dropout": 0.2, "n_tokens_vocab": len(WORDS)}

# Names in the HDF5 file and in a checkpoint, of a model with two layers and of one with one layer.
LAYER = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"
NAMES = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}


def variables_of(options, words=WORDS):
    """Everything that a checkpoint has."""
    layers = options["lstm"]["n_layers"]
    generator = np.random.default_rng(1)
    weights = random_weights(options, bilm_tf=True, words=len(words))
    variables = {}
    for direction in range(2):
        for layer in range(layers):
            cell = f"multi_rnn_cell/cell_{layer}/" if layers > 1 else ""
            for theirs, ours in NAMES.items():
                array = weights.pop(f"{LAYER.format(direction, layer)}/{theirs}", None)
                if array is not None:
                    variables[f"lm/RNN_{direction}/rnn/{cell}lstm_cell/{ours}"] = array
    variables |= {f"lm/{name}": array for name, array in weights.items()}
    width = options["lstm"]["projection_dim"]
    if not options.get("share_embedding_softmax"):
        variables["lm/softmax/W"] = generator.standard_normal((len(words), width)).astype(np.float32)
    variables["lm/softmax/b"] = generator.standard_normal(len(words)).astype(np.float32)
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items()}
    scalars = {"global_step": np.array(7, np.float32), "train_perplexity": np.array(30, np.float32)}
    return variables | slots | scalars


def write_training(folder, options=None, change=None, words=WORDS):
    """The folder that bilm-tf leaves, and the vocabulary."""
    folder.mkdir(exist_ok=True)
    options = options or elmo_options() | TRAINING
    if "char_cnn" in options:
        options["char_cnn"]["n_characters"] = 261
    variables = variables_of(options, words)
    if change is not None:
        change(variables)
    write_checkpoint(folder / "model.ckpt-7", variables, shards=2)
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
    return folder, folder / "vocab.txt"


@pytest.fixture
def training(tmp_path):
    return write_training(tmp_path / "training")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bilm_tf")
    source, vocabulary = write_training(folder / "training")
    return source, convert_bilm_tf(source, vocabulary, folder / "out")


def test_scores_and_perplexity_of_the_source(converted):
    """Through the Auto classes, from the arrays of the source, without the verification's code."""
    source, report = converted
    options = json.loads((source / "options.json").read_text())
    variables = variables_of(options)
    tokenizer = AutoTokenizer.from_pretrained(report.folder)
    model = AutoModelForPreTraining.from_pretrained(report.folder)
    sentence = ["the", "river", "was", "somewhere", ",", "é", "a\u2028b", "Buffalo", "."]
    batch = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
    assert batch["input_ids"][0].tolist() == [0, 3, 4, 11, 2, 6, 12, 10, 5, 7, 1]
    with torch.no_grad():
        outputs = model(**batch, labels=batch["input_ids"], output_logits=True)

    layers, _ = reference_forward(options, random_weights(options), character_rows(["<S>", *sentence, "</S>"], 50))
    weight, bias = variables["lm/softmax/W"], variables["lm/softmax/b"]
    losses = []
    for logits, half, shift in ((outputs.forward_logits, 0, 1), (outputs.backward_logits, 1, -1)):
        expected = np.split(layers[-1], 2, axis=1)[half] @ weight.T + bias
        np.testing.assert_allclose(logits[0].numpy(), expected, atol=1e-5)
        labels = torch.roll(batch["input_ids"][0], -shift)
        inside = slice(0, -1) if shift == 1 else slice(1, None)
        losses.append(torch.nn.functional.cross_entropy(torch.tensor(expected)[inside], labels[inside]).item())
    assert outputs.forward_loss.item() == pytest.approx(losses[0], abs=1e-5)
    assert outputs.backward_loss.item() == pytest.approx(losses[1], abs=1e-5)
    assert math.exp(outputs.loss.item()) == pytest.approx(math.exp(sum(losses) / 2), rel=1e-5)


@pytest.mark.promise("S7")
def test_every_weight_is_taken_over_and_no_other(converted):
    source, report = converted
    variables = variables_of(json.loads((source / "options.json").read_text()))
    theirs = [array.ravel() for name, array in variables.items() if name.startswith("lm/") and "Adagrad" not in name]
    state = load_file(report.folder / "model.safetensors")
    ours = [weight.numpy().ravel() for name, weight in state.items() if "mixes" not in name]
    np.testing.assert_array_equal(np.sort(np.concatenate(ours)), np.sort(np.concatenate(theirs)))
    assert report.num_parameters == sum(array.size for array in theirs)


def test_folder_and_report(converted):
    _, report = converted
    verify_checksums(report.folder)
    config = load_exactly(report.folder, torch.float32, ElmoForPreTraining).config
    assert (config.softmax, config.num_sampled, config.dropout) == ("sampled", 5, 0.2)
    assert (config.vocab_size, config.pad_token_id) == (len(WORDS) + 1, len(WORDS))
    card = (report.folder / "README.md").read_text()
    for name in ("model.ckpt-7.index", "model.ckpt-7.data-00001-of-00002", "options.json", "vocab.txt"):
        assert name in card
    assert "`AutoModelForPreTraining` loads the language model" in card
    assert report.parity.scores_float64 < 1e-12
    assert report.parity.losses_float64 < 1e-12
    assert report.parity.scores_float32 < 1e-4
    assert "the scores of 13 words" in str(report)
    assert ElmoModel.from_pretrained(report.folder).config.num_hidden_layers == 2


VARIANTS = {
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "tanh": {"activation": "tanh"},
    "no skip connections": {"skip": False},
    "no highway": {"highway": 0},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "filters as many as the projection": {"projection": 20},
    "cells as wide as the projection": {"projection": 12, "layers": 1},
    "words": {"characters": False},
    "words, one layer, cells as wide as the projection": {"characters": False, "layers": 1, "cell": 8},
}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(tmp_path, variant):
    source, vocabulary = write_training(tmp_path / "training", elmo_options(**VARIANTS[variant]))
    report = convert_bilm_tf(source / "model.ckpt-7.index", vocabulary, tmp_path / "out")
    assert report.parity.float64 < 1e-12
    assert (
        load_exactly(report.folder, torch.float32, ElmoForPreTraining).config.softmax == "full"
    )  # 8192 are more than there are


@pytest.mark.parametrize("shared", [False, True])
def test_word_models_score_as_the_source(tmp_path, shared):
    """By hand, from the arrays of the source; the softmax may share its weights with the table of words."""
    options = elmo_options(characters=False) | {"share_embedding_softmax": shared}
    source, vocabulary = write_training(tmp_path / "training", options)
    report = convert_bilm_tf(source, vocabulary, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(report.folder)
    model = AutoModelForPreTraining.from_pretrained(report.folder)
    batch = tokenizer([["the", "river", "elsewhere", "é"]], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**batch, labels=batch["input_ids"], output_logits=True)
        alone = model(input_ids=batch["input_ids"], labels=batch["input_ids"])  # the characters are not read
    ids = [0, 3, 4, 2, 12, 1]
    assert batch["input_ids"][0].tolist() == ids
    layers, _ = reference_forward(options, random_weights(options, words=len(WORDS)), np.array(ids))
    variables = variables_of(options)
    weight = variables["lm/embedding" if shared else "lm/softmax/W"]
    expected = [half @ weight.T + variables["lm/softmax/b"] for half in np.split(layers[-1], 2, axis=1)]
    np.testing.assert_allclose(outputs.forward_logits[0].numpy(), expected[0], atol=1e-5)
    np.testing.assert_allclose(outputs.backward_logits[0].numpy(), expected[1], atol=1e-5)
    loss = torch.nn.functional.cross_entropy(torch.tensor(expected[0][:-1]), torch.tensor(ids[1:])).item()
    assert outputs.forward_loss.item() == pytest.approx(loss, abs=1e-5)
    assert alone.loss.item() == outputs.loss.item()
    theirs = [array.size for name, array in variables.items() if name.startswith("lm/") and "Adagrad" not in name]
    assert report.num_parameters == sum(theirs)


# --- What is refused -------------------------------------------------------------------------------------------------


def without(name):
    return lambda variables: variables.pop(name)


def with_more(name, array=None):
    array = np.zeros(3, np.float32) if array is None else array
    return lambda variables: variables.update({name: array})


def transposed(name):
    return lambda variables: variables.update({name: np.ascontiguousarray(variables[name].T)})


CHANGES = {
    "no softmax": (without("lm/softmax/W"), "no tensor 'lm/softmax/W' and so is no checkpoint of bilm-tf's training"),
    "no bias": (without("lm/softmax/b"), "has no tensor 'lm/softmax/b'"),
    "no embedding": (without("lm/char_embed"), "has no tensor 'lm/char_embed'"),
    "another variable": (with_more("lm/embedding"), "holds 'lm/embedding', which is no part of a model"),
    "slot of nothing": (with_more("lm/other/Adagrad"), "holds 'lm/other/Adagrad', which is no part"),
    "another shape": (transposed("lm/char_embed"), r"'lm/char_embed' has shape \(4, 261\); the options ask for"),
    "NaN": (with_more("lm/softmax/b", np.full(len(WORDS), np.nan, np.float32)), "13 of 13 values that are NaN"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_checkpoint_that_does_not_fit_is_refused(tmp_path, kind):
    change, reason = CHANGES[kind]
    source, vocabulary = write_training(tmp_path / "training", change=change)
    with pytest.raises(ValueError, match=reason) as caught:
        convert_bilm_tf(source, vocabulary, tmp_path / "out")
    assert "model.ckpt-7" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_slots_of_adam_are_left_out(tmp_path):
    def change(variables):
        variables |= {f"lm/softmax/b/{slot}": variables["lm/softmax/b"] for slot in ("Adam", "Adam_1")}
        variables |= {f"beta{number}_power": np.array(0.9, np.float32) for number in (1, 2)}

    source, vocabulary = write_training(tmp_path / "training", change=change)
    convert_bilm_tf(source, vocabulary, tmp_path / "out")


def test_another_vocabulary_is_refused(training, tmp_path):
    source, vocabulary = training
    vocabulary.write_text("\n".join(["<S>", "</S>", "<UNK>", "the"]))
    with pytest.raises(ValueError, match=r"'lm/softmax/W' has shape \(13, 8\), but .*vocab.txt has 4 words"):
        convert_bilm_tf(source, vocabulary, tmp_path / "out")
    vocabulary.write_text("the\nriver\n")
    with pytest.raises(ValueError, match=r"^\S*vocab.txt: <S>, </S>, <UNK> must be among the words"):
        convert_bilm_tf(source, vocabulary, tmp_path / "out")


def test_a_word_for_padding_is_refused(tmp_path):
    source, vocabulary = write_training(tmp_path / "training", words=[*WORDS, "<PAD>"])
    with pytest.raises(ValueError, match=r"vocab\.txt has the word <PAD>.* the last word id, after the 14 words"):
        convert_bilm_tf(source, vocabulary, tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("dropout", 1.5, "dropout is 1.5 in the options; it must be a number from 0 to below 1"),
        ("dropout", True, "dropout is True"),
        ("sample_softmax", "yes", "sample_softmax is 'yes' in the options; it must be true or false"),
        ("n_negative_samples_batch", 0, "n_negative_samples_batch is 0 in the options; it must be a whole number"),
        ("n_negative_samples_batch", 2.5, "n_negative_samples_batch is 2.5"),
        ("bidirectional", False, "bidirectional is false"),
        ("share_embedding_softmax", True, "share_embedding_softmax is True .* only a model of words"),
        ("share_embedding_softmax", 1, "share_embedding_softmax is 1 "),
    ],
)
def test_wrong_options_are_refused(training, tmp_path, key, value, reason):
    source, vocabulary = training
    options = json.loads((source / "options.json").read_text()) | {key: value}
    other = tmp_path / "other.json"
    other.write_text(json.dumps(options))
    with pytest.raises(ValueError, match=rf"other.json: {reason}"):
        convert_bilm_tf(source, vocabulary, tmp_path / "out", options=other)


def test_missing_options_are_named(training, tmp_path):
    source, vocabulary = training
    (source / "options.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"training/options.json"):
        convert_bilm_tf(source, vocabulary, tmp_path / "out")


# --- The verification can fail ---------------------------------------------------------------------------------------


def swapped(words):
    return [*words[:3], words[4], words[3], *words[5:]]


def spoil_weights(name):
    """Changes one number of the weights that were written, by more than rounding."""

    def spoil(monkeypatch):
        save = writing.save_model_files

        def save_and_spoil(model, tokenizer, folder):
            save(model, tokenizer, folder)
            state = load_file(folder / "model.safetensors")
            state[name].view(-1)[0] += 1e-3
            save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

        monkeypatch.setattr(writing, "save_model_files", save_and_spoil)

    return spoil


def spoil_words(monkeypatch):
    read = bilm_tf.words_of_lines
    monkeypatch.setattr(bilm_tf, "words_of_lines", lambda vocabulary: swapped(read(vocabulary)))


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_weights("softmax.weight"),
        spoil_weights("softmax.bias"),
        spoil_weights("elmo.bilstm.forward_layers.0.bias"),
        spoil_words,
    ],
    ids=["softmax.weight", "softmax.bias", "bilstm", "words"],
)
def test_a_wrong_result_is_not_kept(training, tmp_path, monkeypatch, spoil):
    spoil(monkeypatch)
    with pytest.raises(ValueError, match=r"does not compute what its source does, so it was not kept"):
        convert_bilm_tf(*training, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_all_weights_is_refused(converted, tmp_path):
    load_exactly(converted[1].folder, torch.float32, ElmoForPreTraining).elmo.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"missing keys in the weights: softmax\.bias, softmax\.weight"):
        load_exactly(tmp_path, torch.float32, ElmoForPreTraining)
