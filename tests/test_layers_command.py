"""`hf-elmo layers`: the weights that trained models give to their layers."""

import json

import pytest
import torch
from tiny import random_model, tiny_config

from hf_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel
from hf_elmo.cli import main


def save(folder, model_class=ElmoForTokenClassification, **settings):
    model = random_model(tiny_config(**settings), model_class=model_class)
    model.save_pretrained(folder)
    return model


def run(capsys, *argv):
    code = main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_weights_of_models(capsys, tmp_path):
    tagger = save(tmp_path / "ner" / "model")
    two = save(tmp_path / "srl" / "model", task_lstm_size=3, elmo_at_output=True)
    outputs = ["--json", tmp_path / "layers.json", "--plot", tmp_path / "layers.png"]
    code, out, err = run(capsys, "layers", tmp_path / "ner" / "model", tmp_path / "srl" / "model", *outputs)
    assert (code, err) == (0, "")
    weights = tagger.elmo.layer_weights().weights.tolist()
    lines = out.splitlines()
    assert lines[1].split() == ["ner", *(f"{weight:.3f}" for weight in weights), "1.500"]
    assert [line.split()[:3] for line in lines[2:4]] == [["srl,", "mix", "1"], ["srl,", "mix", "2"]]
    record = json.loads((tmp_path / "layers.json").read_text())
    assert record["mixes"][0]["weights"] == pytest.approx(weights, abs=1e-6)
    assert record["mixes"][2]["weights"] == pytest.approx(two.elmo.layer_weights(1).weights.tolist(), abs=1e-6)
    assert all(mix["learned"] for mix in record["mixes"])
    assert (tmp_path / "layers.png").read_bytes()[:4] == b"\x89PNG"
    code, _, err = run(capsys, "layers", tmp_path / "ner" / "model", *outputs)
    assert (code, "give --overwrite" in err) == (1, True)


def test_models_that_mix_nothing(capsys, tmp_path):
    save(tmp_path / "top", ElmoModel, layer_combination="top")
    code, out, _ = run(capsys, "layers", tmp_path / "top")
    assert code == 0
    assert out.splitlines()[1].split() == ["top", "0.000", "0.000", "1.000", "1.000", "(not", "learned)"]


def test_a_model_without_a_task(capsys, tmp_path):
    ElmoForPreTraining(tiny_config()).save_pretrained(tmp_path / "pretrained")
    code, out, _ = run(capsys, "layers", tmp_path / "pretrained")
    assert code == 0
    assert out.splitlines()[1].split()[1:] == ["0.333", "0.333", "0.333", "1.000", "(not", "learned)"]


def test_the_model_of_the_package(capsys):
    code, out, _ = run(capsys, "layers", "elmo-mini")
    assert code == 0
    assert out.splitlines()[1].split() == ["elmo-mini", "0.333", "0.333", "0.333", "1.000", "(not", "learned)"]


def test_models_of_the_same_name(capsys, tmp_path):
    for parent in ("a", "b"):
        save(tmp_path / parent / "ner")
    _, out, _ = run(capsys, "layers", tmp_path / "a" / "ner", tmp_path / "b" / "ner")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [str(tmp_path / parent / "ner") for parent in "ab"]


def test_mistakes_are_one_line(capsys, tmp_path):
    save(tmp_path / "without", use_elmo=False, word_vector_size=3, word_vector_vocab_size=5)
    save(tmp_path / "two")
    save(tmp_path / "three", num_hidden_layers=3)
    damaged = tmp_path / "damaged"
    save(damaged)
    (damaged / "model.safetensors").write_bytes(b"nothing")
    for arguments, message in [
        ([tmp_path / "nowhere"], "is no model folder"),
        ([tmp_path / "without"], "holds a model without ELMo"),
        ([damaged], "cannot be read; get the folder again"),
        ([tmp_path / "two", tmp_path / "three", "--plot", tmp_path / "p.png"], "mixes of the same number of layers"),
    ]:
        code, out, err = run(capsys, "layers", *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err
    code, out, _ = run(capsys, "layers", tmp_path / "two", tmp_path / "three")
    assert code == 0
    assert torch.tensor([len(line) for line in out.splitlines()]).unique().numel() == 1
