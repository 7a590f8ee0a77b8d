"""The model that comes with the package: how it is written, loaded and refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import random_model, tiny_config
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, load_mini, shipped_model
from hf_elmo.conversion.verify import load_exactly
from hf_elmo.hub import verify_checksums
from hf_elmo.pretraining_settings import PretrainingSettings
from hf_elmo.scripts import ship_model as script
from hf_elmo.scripts.mini_card import EVIDENCE, RESULTS, PretrainingRun, mini_card
from hf_elmo.scripts.mini_card import main as write_card
from hf_elmo.scripts.ship_model import LARGEST_FOLDER, ship_model

ROOT = Path(__file__).parents[1]
WORDS = ["<S>", "</S>", "<UNK>", "the", "bank", "river", "."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model with its softmax as the pretraining script leaves it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    tokenizer = ElmoTokenizer(folder / "vocab.txt")
    config = tiny_config(vocab_size=len(tokenizer))
    random_model(config, scale=0.5, model_class=ElmoForPreTraining).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def shipped(trained, tmp_path_factory):
    return ship_model(trained, tmp_path_factory.mktemp("shipped") / "mini").folder


@pytest.fixture
def installed(shipped, monkeypatch):
    monkeypatch.setattr(shipped_model, "ELMO_MINI", shipped)


def test_the_folder_of_the_package():
    assert hf_elmo.ELMO_MINI.name == "mini"
    assert hf_elmo.ELMO_MINI.parent.name == "hf_elmo"


@pytest.mark.promise("S7")
def test_the_model_of_this_checkout():
    """Whole, small enough and exactly what the classes need."""
    folder = hf_elmo.ELMO_MINI
    verify_checksums(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LARGEST_FOLDER
    load_exactly(folder, torch.float32, ElmoForPreTraining)
    model, tokenizer = load_mini()
    assert model.config.vocab_size == len(tokenizer)


def test_the_card_of_this_checkout_says_what_was_measured():
    """Every figure comes from a file in results/, and the figures are those of the model beside the card."""
    assert (hf_elmo.ELMO_MINI / "README.md").read_text(encoding="utf-8") == mini_card(ROOT / RESULTS, ROOT / EVIDENCE)


def test_what_is_shipped(trained, shipped):
    names = {path.name for path in shipped.iterdir()}
    assert names == {*shipped_model.MINI_FILES, "SHA256SUMS"}
    verify_checksums(shipped)
    stored, original = load_file(shipped / "model.safetensors"), load_file(trained / "model.safetensors")
    assert stored.keys() == original.keys()
    for name, weight in stored.items():
        assert weight.dtype == torch.float16
        assert torch.equal(weight, original[name].half())
    for name in ("config.json", "tokenizer_config.json"):
        assert "auto_map" not in json.loads((shipped / name).read_text())


def test_it_is_loaded_in_single_precision(shipped, installed):
    model, tokenizer = load_mini()
    assert type(model) is ElmoModel
    assert (model.dtype, model.training) == (torch.float32, False)
    batch = tokenizer("the river bank .", return_tensors="pt")
    vectors = model(**batch).last_hidden_state
    assert vectors.shape == (1, 6, 12)
    other = AutoModel.from_pretrained(shipped)
    assert other.dtype == torch.float32
    assert torch.equal(
        other(**AutoTokenizer.from_pretrained(shipped)("the river bank .", return_tensors="pt"))[0], vectors
    )


def test_it_is_loaded_as_what_is_asked_for(trained, shipped, installed):
    language_model, tokenizer = load_mini(ElmoForPreTraining)
    original = ElmoForPreTraining.from_pretrained(trained).eval()
    batch = tokenizer("the river bank .", return_tensors="pt")
    batch["labels"] = batch["input_ids"]
    loss = language_model(**batch).loss.detach()
    assert loss.item() == pytest.approx(original(**batch).loss.item(), rel=1e-3)
    assert torch.equal(AutoModelForPreTraining.from_pretrained(shipped)(**batch).loss, loss)
    tagger, _ = load_mini(ElmoForTokenClassification, num_labels=7)
    assert tagger.config.num_labels == 7
    assert load_mini(dtype=torch.float64)[0].dtype == torch.float64


def test_commands_know_it_by_name(shipped, installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shipped_model.model_folder("elmo-mini") == shipped
    assert shipped_model.model_folder("other/elmo-mini") == Path("other/elmo-mini")
    Path("elmo-mini").mkdir()
    assert shipped_model.model_folder("elmo-mini") == Path("elmo-mini")


def test_loading_says_nothing(shipped, capfd, installed):
    load_mini()
    assert capfd.readouterr() == ("", "")


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped_model, "ELMO_MINI", tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"lacks model\.safetensors, tokenizer\.json, tokenizer_config\.json"):
        load_mini()


def test_damaged_weights_are_refused(shipped, tmp_path, monkeypatch):
    for name in shipped_model.MINI_FILES:
        (tmp_path / name).write_bytes((shipped / name).read_bytes()[: 100 if name == "model.safetensors" else None])
    monkeypatch.setattr(shipped_model, "ELMO_MINI", tmp_path)
    with pytest.raises(ValueError, match="cannot be read; install hf-elmo again"):
        load_mini()


@pytest.mark.parametrize("model_class", ["ElmoModel", torch.nn.Linear, None])
def test_another_class_is_refused(model_class):
    with pytest.raises(ValueError, match="is not possible: give a class of hf_elmo, such as ElmoModel"):
        load_mini(model_class)


def test_a_folder_that_is_too_large_is_not_written(trained, tmp_path):
    with pytest.raises(ValueError, match=r"would have [\d,]+ bytes, but at most 5,000 are shipped"):
        ship_model(trained, tmp_path / "mini", largest=5_000)
    assert not list(tmp_path.iterdir())


def test_weights_that_do_not_fit_are_refused(trained, tmp_path):
    model = ElmoForPreTraining.from_pretrained(trained)
    with torch.no_grad():
        model.softmax.weight[0, 0] = 1e6
    model.save_pretrained(tmp_path / "large")
    ElmoTokenizer.from_pretrained(trained).save_pretrained(tmp_path / "large")
    with pytest.raises(ValueError, match=r"softmax\.weight has a value of 1e\+06, which half precision"):
        ship_model(tmp_path / "large", tmp_path / "mini")
    assert not (tmp_path / "mini").exists()


def test_vectors_that_change_are_refused(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "LARGEST_DIFFERENCE", 1e-9)
    with pytest.raises(ValueError, match=r"differ by [\d.e-]+; up to 1e-09 is rounding"):
        ship_model(trained, tmp_path / "mini")


def test_an_encoder_alone_is_refused(trained, tmp_path):
    ElmoModel.from_pretrained(trained).save_pretrained(tmp_path / "encoder")
    ElmoTokenizer.from_pretrained(trained).save_pretrained(tmp_path / "encoder")
    with pytest.raises(ValueError, match="an encoder without a softmax"):
        ship_model(tmp_path / "encoder", tmp_path / "mini")


def test_the_script(trained, tmp_path, capsys):
    (tmp_path / "card.md").write_text("# elmo-mini\n")
    arguments = [str(trained), "--output", str(tmp_path / "mini"), "--card", str(tmp_path / "card.md")]
    assert script.main(arguments) == 0
    assert "weights in half precision, 0.0" in capsys.readouterr().out
    assert script.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("ship_model: error: ")
    assert "exists and is not empty" in error
    assert script.main([*arguments, "--overwrite"]) == 0
    assert (tmp_path / "mini" / "README.md").read_text() == "# elmo-mini\n"


# --- The card --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run of two processes that was stopped, and a measurement."""
    folder = tmp_path / "results" / "1-first"
    folder.mkdir(parents=True)
    settings = PretrainingSettings(
        text=["train"], heldout=["valid.txt"], vocab="vocab.txt", output="first", batch_size=3, max_steps=50
    )
    (folder / "settings.json").write_text(json.dumps(settings.to_dict()))
    facts = {"start": None, "tokens": 1000, "sentences": 90, "unknown_share": 0.0625}
    (folder / "facts.json").write_text(json.dumps(facts))
    rows = [
        {"step": 10, "words": 1200, "seconds": 1.0},
        {"step": 20, "words": 2400, "seconds": 2.0},
        {"step": 20, "heldout": {"perplexity": 123.456}},
    ]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    figures = {"command": "hf-elmo perplexity elmo-mini other.txt", "model": "elmo-mini", "text": ["other.txt"]}
    figures |= {"mode": "stream", "rows": 32, "steps": 20, "words": 900, "unknown_share": 0.1, "softmax": "full"}
    figures |= {"forward": 210.0, "backward": 190.0, "both": 199.75}
    (folder.parent / "other.json").write_text(json.dumps(figures))
    return folder


def test_the_card_tells_the_runs(run):
    card = mini_card(run.parent)
    for part in (
        "| Steps | 20 in the log, stopped by hand soon after |",
        "| Words read | 2,400 |",
        "| Words a second | 1,200 |",
        "| Perplexity of valid.txt at step 20 | 123.46 |",
        "1,000 words of English in 90 sentences, 6.25% of the words not in the vocabulary. Training read 2,400 words",
        "torchrun --nproc_per_node 2 -m hf_elmo.scripts.pretrain_elmo --text train",
        "199.75 (10.00% of 900 words unknown)",
        "hf-elmo perplexity elmo-mini other.txt",
    ):
        assert part in card
    assert "    - type: perplexity\n      value: 199.75" in card


def test_the_card_tells_what_the_layers_know(run, tmp_path):
    layers = [{"mean": mean, "standard_deviation": 0.001, "values": [mean]} for mean in (0.8, 0.95, 0.93)]
    probe = {"command": "hf-elmo probe pos elmo-mini", "probe": "pos", "metric": "accuracy", "model": "elmo-mini"}
    probe |= {"dev": "dev.conllu: 5 words", "systems": {"model": layers}}
    assert "linear classifier" not in mini_card(run.parent, tmp_path)
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "probe.json").write_text(json.dumps(probe))
    card = mini_card(run.parent, tmp_path)
    assert "| Parts of speech by a linear classifier | `dev.conllu` | Accuracy of layer 1 | 95.00 ± 0.10 |" in card
    assert "`pos/probe.json`:\n\n```bash\nhf-elmo probe pos elmo-mini\n```" in card
    assert "    - type: accuracy\n      value: 0.95" in card


def test_a_run_of_one_process_that_came_to_its_end(run):
    settings = json.loads((run / "settings.json").read_text()) | {"batch_size": 6, "max_steps": 20}
    (run / "settings.json").write_text(json.dumps(settings))
    found = PretrainingRun.read(run)
    assert (found.processes, found.was_stopped) == (1, False)
    assert found.command.startswith("hf-elmo pretrain --text train")


def test_the_script_of_the_card(run, tmp_path, monkeypatch, capsys):
    mini = tmp_path / "mini"
    shutil.copytree(hf_elmo.ELMO_MINI, mini)
    monkeypatch.setattr("hf_elmo.scripts.mini_card.ELMO_MINI", mini)
    assert write_card(["--results", str(run.parent), "--check"]) == 1
    assert "not up to date" in capsys.readouterr().err
    assert write_card(["--results", str(run.parent)]) == 0
    assert write_card(["--results", str(run.parent), "--check"]) == 0
    assert (mini / "README.md").read_text(encoding="utf-8") == mini_card(run.parent)
    verify_checksums(mini)
    assert write_card(["--results", str(tmp_path)]) == 1
    assert "lacks the folder of a run" in capsys.readouterr().err
