"""Weights that are stored in half precision: what is written, what is loaded, and how far the vectors move."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import SENTENCES, random_model, tiny_config, words_of
from transformers import AutoModel

from hf_elmo import ElmoEmbedder, ElmoForTokenClassification, ElmoTokenizer, cli
from hf_elmo.half_storage import shrink
from hf_elmo.hub import save_hub_folder, verify_checksums

CARD = "---\nlicense: mit\n---\n# A model\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_hub_folder(random_model(), ElmoTokenizer(), tmp_path_factory.mktemp("model") / "elmo", CARD)


@pytest.mark.parametrize(("dtype", "most"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_a_folder_of_half_the_size(folder, tmp_path, dtype, most):
    report = shrink(folder, tmp_path / "half", dtype)
    stored, before = (load_file(place / "model.safetensors") for place in (tmp_path / "half", folder))
    assert stored.keys() == before.keys()
    for name, weight in stored.items():
        assert weight.dtype == getattr(torch, dtype)
        torch.testing.assert_close(weight.float(), before[name], rtol=most, atol=1e-6)
    assert report.bytes_after < 0.8 * report.bytes_before  # the names take some, too
    assert 0 < report.mean_error <= report.max_error < most
    verify_checksums(tmp_path / "half")
    card = (tmp_path / "half" / "README.md").read_text()
    assert card.startswith(CARD)
    assert f"stored in {dtype}" in card
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "half").iterdir()}


def test_it_is_computed_with_in_single_precision(folder, tmp_path):
    shrink(folder, tmp_path / "half")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "float32"
    assert AutoModel.from_pretrained(tmp_path / "half").dtype == torch.float32
    assert AutoModel.from_pretrained(tmp_path / "half", dtype=torch.float16).dtype == torch.float16
    texts = words_of(SENTENCES)
    exact, found = (ElmoEmbedder.from_pretrained(place).encode(texts) for place in (folder, tmp_path / "half"))
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == np.float32
        assert 0 < np.linalg.norm(one - other) / np.linalg.norm(other) < 2e-3


def test_a_model_with_a_head(tmp_path):
    model = random_model(tiny_config(num_labels=3), model_class=ElmoForTokenClassification)
    save_hub_folder(model, ElmoTokenizer(), tmp_path / "task", CARD)
    shrink(tmp_path / "task", tmp_path / "half")
    again = ElmoForTokenClassification.from_pretrained(tmp_path / "half")
    torch.testing.assert_close(again.classifier.weight, model.classifier.weight, rtol=1e-3, atol=1e-6)


def test_what_does_not_fit(folder, tmp_path):
    model = random_model()
    model.bilstm.forward_layers[0].bias.data[0] = 70_000
    save_hub_folder(model, ElmoTokenizer(), tmp_path / "large", CARD)
    with pytest.raises(ValueError, match=r"forward_layers.0.bias has the value 70000, which does not fit.*bfloat16"):
        shrink(tmp_path / "large", tmp_path / "half")
    assert not (tmp_path / "half").exists()
    with pytest.raises(ValueError, match=r"dtype='int8' is not possible: it is 'float16', 'bfloat16'"):
        shrink(folder, tmp_path / "half", "int8")
    with pytest.raises(FileNotFoundError, match=r"has no config.json: give the folder of a model"):
        shrink(tmp_path, tmp_path / "half")
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        shrink(folder, tmp_path / "large")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="holds a model of the kind 'bert', not ELMo"):
        shrink(other, tmp_path / "half")
    (other / "config.json").write_text('{"model_type": "elmo"}')
    with pytest.raises(FileNotFoundError, match="has no weights"):
        shrink(other, tmp_path / "half")


def test_the_command(folder, tmp_path, capsys):
    command = ["shrink", str(folder), "--output", str(tmp_path / "half"), "--quiet"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith("weights: 0.0 MB before, 0.0 MB now\nvectors: relative error ")
    assert cli.main(command) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert cli.main([*command, "--overwrite", "--dtype", "bfloat16"]) == 0
