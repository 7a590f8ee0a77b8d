"""The fine-tuning command, from files to figures and to a model that a pipeline loads."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import random_model, tiny_config
from transformers import pipeline

from hf_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.verify import check_folder

TAGGED = """-DOCSTART- -X- O O

John I-PER
Smith I-PER
lives O
in O
London I-LOC
. O

The O
bank O
of O
London I-LOC
lends O

Mary I-PER
sleeps O
"""
TREES = """(4 (2 Very) (4 good))
(0 (0 Bad) (2 film))
(2 (2 A) (2 film))
(3 (2 Rather) (3 good))
(1 (1 weak) (2 .))
"""
PAIRS = """premise\thypothesis\tlabel
A cat .\tIt sleeps .\tneutral
He won .\tHe lost .\tno
She ran .\tShe moved .\tyes
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, word vectors and an ELMo model, all tiny."""
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "tagged.txt").write_text(TAGGED)
    (folder / "trees.txt").write_text(TREES)
    (folder / "pairs.tsv").write_text(PAIRS)
    (folder / "vectors.txt").write_text("london 1 0 0\nthe 0 1 0\nfilm 0 0 1\ngood 1 1 0\ncat 0 1 1\n")
    random_model(tiny_config()).save_pretrained(folder / "elmo")
    ElmoTokenizer().save_pretrained(folder / "elmo")
    return folder


def run(kind: str, folder, output, *options: str) -> dict:
    data = {"tag": "tagged.txt", "sst": "trees.txt", "pairs": "pairs.tsv"}[kind]
    command = ["finetune", "tag" if kind == "tag" else "classify", "--train", folder / data, "--dev", folder / data]
    command += {
        "tag": ["--scheme", "BIOES", "--crf"],
        "sst": ["--format", "sst"],
        "pairs": ["--text-column", "premise", "--pair-column", "hypothesis"],
    }[kind]
    command += ["--output", output, "--task-lstm", "8", "--elmo-dropout", "0", "--task-dropout", "0", *options]
    assert main([str(word) for word in command]) == 0
    return json.loads((output / "results.json").read_text())


FEW = ["--seeds", "1", "2", "--epochs", "2"]


@pytest.mark.slow
def test_a_tagger_learns_and_serves(folder, tmp_path):
    options = ["--elmo", str(folder / "elmo"), "--word-vectors", str(folder / "vectors.txt"), "--elmo-at-output"]
    options += ["--seeds", "1", "2", "--epochs", "25", "--patience", "25", "--learning-rate", "0.05"]
    results = run("tag", folder, tmp_path / "out", *options)
    assert results["metric"] == "f1"
    assert results["summary"]["f1"]["mean"] == 1.0
    assert results["summary"]["f1"]["standard_deviation"] == 0.0
    assert set(results["seeds"]) == {"1", "2"}
    weights = results["seeds"]["1"]["layer_weights"]
    assert len(weights) == 2  # one mix at the input, one at the output
    assert sum(weights[0]) == pytest.approx(1, abs=1e-3)
    assert "--elmo elmo --word-vectors vectors.txt" in results["command"]
    assert str(tmp_path) not in json.dumps(results)

    tag = pipeline("token-classification", model=str(tmp_path / "out/model"), aggregation_strategy="simple")
    found = [(entity["entity_group"], entity["word"]) for entity in tag("Mary sleeps")]
    assert [word for _, word in found] == ["Mary"]
    assert tag.model.config.crf_scheme == "BIOES"

    warnings = [check.name for check in check_folder(tmp_path / "out/model").checks if check.status != "ok"]
    assert warnings == ["files"]  # has no card


def test_a_model_that_somebody_else_put_there_is_kept(folder, tmp_path, capsys):
    kept = tmp_path / "out/model/notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    command = ["finetune", "tag", "--train", folder / "tagged.txt", "--dev", folder / "tagged.txt", "--overwrite"]
    command += ["--word-vectors", folder / "vectors.txt", "--output", tmp_path / "out"]
    assert main([str(word) for word in command]) == 1
    assert "holds 'notes.txt', which was not written by hf-elmo" in capsys.readouterr().err
    assert kept.read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sst", "pairs"])
def test_classifiers_learn_and_serve(folder, tmp_path, kind):
    options = ["--word-vectors", str(folder / "vectors.txt"), "--all-word-vectors", "--elmo", str(folder / "elmo")]
    options += ["--seeds", "1", "--epochs", "25", "--patience", "25", "--learning-rate", "0.05"]
    results = run(kind, folder, tmp_path / "out", *options)
    assert results["summary"]["accuracy"]["mean"] == 1.0
    assert results["summary"]["accuracy"]["standard_deviation"] is None
    classify = pipeline("text-classification", model=str(tmp_path / "out/model"))
    if kind == "pairs":
        assert classify({"text": "She ran .", "text_pair": "She moved ."})["label"] == "yes"
    else:
        assert "negative" not in classify("Very good")[0]["label"]
    assert len(classify.tokenizer.word_vector_words) == 5


@pytest.mark.slow
def test_a_cache_changes_nothing_but_the_time(folder, tmp_path):
    elmo = ["--elmo", str(folder / "elmo"), *FEW]
    plain = run("tag", folder, tmp_path / "plain", *elmo)
    cached = run("tag", folder, tmp_path / "cached", *elmo, "--cache", str(tmp_path / "cache"))
    assert any((tmp_path / "cache").iterdir())
    for seed in ("1", "2"):
        assert cached["seeds"][seed]["loss"] == pytest.approx(plain["seeds"][seed]["loss"], abs=1e-5)
        assert cached["seeds"][seed]["f1"] == plain["seeds"][seed]["f1"]


@pytest.mark.slow
def test_the_bilm_learns_only_if_asked(folder, tmp_path):
    trained = {}
    for options in ([], ["--train-bilm"]):
        output = tmp_path / f"run{len(options)}"
        results = run("tag", folder, output, "--elmo", str(folder / "elmo"), "--seeds", "1", "--epochs", "3", *options)
        trained[len(options)] = results["trained_parameters"]
        model = ElmoForTokenClassification.from_pretrained(output / "model")
        assert model.config.freeze_bilm is (not options)
    before = ElmoModel.from_pretrained(folder / "elmo")
    frozen = ElmoForTokenClassification.from_pretrained(tmp_path / "run0/model").elmo
    assert torch.equal(frozen.bilstm.forward_layers[1].bias, before.bilstm.forward_layers[1].bias)
    lstm = sum(parameter.numel() for parameter in before.bilstm.parameters())
    assert trained[1] == trained[0] + lstm  # two layers have thawed in three epochs


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give --elmo, --word-vectors or both"),
        (["--word-vectors", "VECTORS", "--share", "0"], "--share 0.0 is not possible"),
        (["--word-vectors", "VECTORS", "--label-column", "x"], "column 'x' of a CoNLL file must be a number"),
        (["--word-vectors", "VECTORS", "--elmo-at-output"], "--elmo-at-output has no effect without --elmo"),
        (["--word-vectors", "VECTORS", "--cache", "c", "--mix-l2", "1"], "--mix-l2, --cache has no effect without"),
        (["--elmo", "x", "--train-word-vectors"], "--train-word-vectors has no effect without --word-vectors"),
        (["--elmo", "x", "--cache", "c", "--train-bilm"], "give one of them"),
        (["--word-vectors", "VECTORS", "--task-lstm", "-1"], "task_lstm_size=-1 is not possible"),
        (["--word-vectors", "no-such-file.txt"], "no-such-file.txt"),
        (["--word-vectors", "VECTORS", "--format", "conllu"], "--scheme is for entities"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, tmp_path, capsys, options, says):
    options = [str(folder / "vectors.txt") if option == "VECTORS" else option for option in options]
    command = ["finetune", "tag", "--train", folder / "tagged.txt", "--dev", folder / "tagged.txt", "--scheme", "BIO"]
    command += ["--output", tmp_path / "out", "--epochs", "1", "--seeds", "1", *options]
    assert main([str(word) for word in command]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_a_fresh_head_is_no_news(folder, tmp_path, capfd):
    """Nor is the softmax of a language model that is left out."""
    random_model(tiny_config(), model_class=ElmoForPreTraining).save_pretrained(tmp_path / "elmo")
    ElmoTokenizer().save_pretrained(tmp_path / "elmo")
    run("tag", folder, tmp_path / "out", "--elmo", str(tmp_path / "elmo"), "--seeds", "1", "--epochs", "1")
    said = capfd.readouterr()
    assert "seed 1: f1 " in said.err
    assert re.search(r"epoch 1: loss \d+\.\d{4} in training, f1 [01]\.\d{4} on dev\n", said.err)
    assert re.fullmatch(r"f1: [01]\.\d{4} over 1 seed; .*results.json\n", said.out)
    assert not any(word in said.out + said.err for word in ("REPORT", "MISSING", "UNEXPECTED"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda weights: weights.pop("bilstm.forward_layers.1.bias"), "lacks weights of the biLM: elmo.bilstm.forw"),
        (lambda weights: weights.update({"bilstm.other": torch.zeros(1)}), "has unknown weights of the biLM: "),
        (
            lambda weights: weights.update({"bilstm.forward_layers.1.bias": torch.zeros(3)}),
            "has weights of another shape than this model needs: elmo.bilstm.forward_layers.1.bias (3,), not (40,)",
        ),
        (
            lambda weights: weights.update({"classifier.bias": torch.zeros(77)}),
            "classifier.bias (77,), not (5,). Give the folder of the biLM",
        ),
    ],
)
def test_a_bilm_that_is_not_whole_is_refused(folder, tmp_path, capsys, change, says):
    shutil.copytree(folder / "elmo", tmp_path / "elmo")
    weights = load_file(tmp_path / "elmo" / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "elmo" / "model.safetensors", metadata={"format": "pt"})
    command = ["finetune", "tag", "--train", folder / "tagged.txt", "--dev", folder / "tagged.txt"]
    command += ["--scheme", "BIOES", "--elmo", tmp_path / "elmo", "--output", tmp_path / "out", "--seeds", "1"]
    assert main([str(word) for word in command]) == 1
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_earlier_results_are_not_lost(folder, tmp_path, capsys):
    (tmp_path / "results.json").write_text("{}")
    command = ["finetune", "tag", "--train", folder / "tagged.txt", "--dev", folder / "tagged.txt", "--scheme", "BIO"]
    command += ["--word-vectors", folder / "vectors.txt", "--output", tmp_path]
    assert main([str(word) for word in command]) == 1
    assert "results.json exists" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == "{}"
