"""From converted weights to a trained folder: `hf-elmo pretrain --init_from` and `hf-elmo perplexity`."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from originals import elmo_options
from pretraining_corpus import sentences, tiny_settings, write_corpus
from safetensors.torch import load_file
from test_conversion_bilm_tf import write_training
from test_manylangs import changed, write_source
from test_pretrain import rows_of

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.conversion.bilm_tf import convert_bilm_tf
from hf_elmo.conversion.manylangs import convert_manylangs
from hf_elmo.hub import verify_checksums
from hf_elmo.scripts import pretrain_elmo
from hf_elmo.scripts.pretrain_elmo import pretrain

# Half of the corpus' words; the other half is new, or unknown.
WORDS = sorted({word for line in sentences(300) for word in line.split()})[::2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The corpus, and converted models."""
    folder = tmp_path_factory.mktemp("runs")
    write_corpus(folder)
    for name, characters in (("bilm-tf", True), ("bilm-tf, words", False)):
        options = elmo_options(characters=characters) | {"dropout": 0.1, "n_negative_samples_batch": 12}
        words = ["<S>", "</S>", "<UNK>", *WORDS]
        source, vocabulary = write_training(folder / f"source of {name}", options, words=words)
        convert_bilm_tf(source, vocabulary, folder / name)
    for name, changes in (
        ("ManyLangs", {}),
        ("ManyLangs, words", {"token_embedder__char_dim": 0}),
        ("ManyLangs, characters", {"token_embedder__word_dim": 0}),
    ):
        source = write_source(folder / f"source of {name}", changed(**changes))
        lines = (source / "word.dic").read_text(encoding="utf-8").splitlines()
        entries = [line.split("\t")[0] for line in lines]
        entries[10 : 10 + len(WORDS)] = WORDS  # so that the model knows something of the text
        dictionary = [f"{word}\t{number}\n" for number, word in enumerate(dict.fromkeys(entries))]
        assert len(dictionary) == len(lines)
        (source / "word.dic").write_text("".join(dictionary), encoding="utf-8")
        convert_manylangs(source, folder / name)
    return folder


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    """They take longer than the runs."""
    monkeypatch.setattr(pretrain_elmo, "plot_curves", lambda *arguments, **options: [])


def settings_of(folder: Path, kind: str, output: str, **values):
    """Settings of a run that goes on with a converted model, with its own words if it has some."""
    values = {"heldout": [str(folder / "heldout.txt")], "batch_size": 16, "vocab": None, **values}
    if not kind.startswith("bilm-tf"):
        values["softmax"] = "full"  # the folder has none, and the sampled one of the config is too large for its words
    if kind == "ManyLangs, characters":
        values["vocab"] = str(folder / "vocab.txt")
    return tiny_settings(folder, output, init_from=str(folder / kind), **values)


def window_of(encoded: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The sentences as a stream of one row, in one window."""
    window = {}
    for direction in ("forward", "backward"):
        for name, key, read in (
            ("ids", "character_ids", slice(0, -1)),
            ("word_ids", "input_ids", slice(0, -1)),
            ("labels", "input_ids", slice(1, None)),
        ):
            parts = [batch[key] if direction == "forward" else batch[key].flip(1) for batch in encoded]
            window[f"{direction}_{name}"] = torch.cat([part[:, read] for part in parts], dim=1)
    return window


@torch.no_grad()
def perplexity_by_hand(model_folder: Path, text: Path, mode: str) -> float:
    """From what the tokenizer of the folder makes of each sentence."""
    model = ElmoForPreTraining.from_pretrained(model_folder)
    tokenizer = ElmoTokenizer.from_pretrained(model_folder)
    lines = text.read_text(encoding="utf-8").splitlines()
    encoded = [tokenizer(line.split(), is_split_into_words=True, return_tensors="pt") for line in lines]
    if mode == "stream":
        return math.exp(model.forward_stream(**window_of(encoded)).loss.item())
    counts = [batch["input_ids"].shape[1] - 1 for batch in encoded]
    losses = [model(**batch, labels=batch["input_ids"]).loss.item() for batch in encoded]
    return math.exp(sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts))


def printed_perplexity(model_folder: Path, text: Path, mode: str, capsys, rows: int = 1) -> float:
    """What the command says."""
    capsys.readouterr()
    assert main(["perplexity", str(model_folder), str(text), "--mode", mode, "--rows", str(rows), "--quiet"]) == 0
    return float(re.search(r"both ([\d.]+)", capsys.readouterr().out).group(1))


# --- Scored as they are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["stream", "sentences"])
@pytest.mark.parametrize("kind", ["bilm-tf", "bilm-tf, words"])
def test_a_converted_checkpoint_is_scored(folder, kind, mode, capsys):
    expected = perplexity_by_hand(folder / kind, folder / "heldout.txt", mode)
    assert printed_perplexity(folder / kind, folder / "heldout.txt", mode, capsys) == pytest.approx(expected, rel=1e-4)


# --- Trained ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("bilm-tf", "stream"),
        *((kind, mode) for kind in ("bilm-tf, words", "ManyLangs") for mode in ("stream", "sentences")),
        ("ManyLangs, words", "stream"),
        ("ManyLangs, characters", "stream"),
    ],
)
def test_training_goes_on_and_learns(folder, kind, mode, capsys, tmp_path):
    settings = settings_of(folder, kind, str(tmp_path / "run"), mode=mode, max_steps=30, eval_steps=10, dropout=0.0)
    pretrain(settings)
    run = tmp_path / "run"
    losses = [row["loss"] for row in rows_of(run)]
    assert sum(losses[-5:]) / 5 < losses[0] - 0.1
    heldout = [row["heldout"]["perplexity"] for row in rows_of(run, "heldout")]
    assert heldout == sorted(heldout, reverse=True)
    assert heldout[-1] < heldout[0]

    result = run / "model"
    verify_checksums(result)
    capsys.readouterr()
    printed = printed_perplexity(result, folder / "heldout.txt", mode, capsys, rows=settings.eval_batch_size)
    assert printed == pytest.approx(heldout[-1], rel=1e-4)
    expected = perplexity_by_hand(result, folder / "heldout.txt", mode)
    assert printed_perplexity(result, folder / "heldout.txt", mode, capsys) == pytest.approx(expected, rel=1e-4)

    model, tokenizer = ElmoForPreTraining.from_pretrained(result), ElmoTokenizer.from_pretrained(result)
    old, old_tokenizer = ElmoModel.from_pretrained(folder / kind), ElmoTokenizer.from_pretrained(folder / kind)
    assert model.config.word_input == old.config.word_input
    assert tokenizer.characters == old_tokenizer.characters
    assert model.config.pad_token_id == tokenizer.pad_token_id == len(tokenizer) - 1


@pytest.mark.parametrize("kind", ["bilm-tf, words", "ManyLangs"])
def test_runs_resume_to_the_last_bit(folder, kind, tmp_path):
    values = {"dropout": 0.1, "heldout": []}
    pretrain(settings_of(folder, kind, str(tmp_path / "whole"), max_steps=8, **values))
    pretrain(settings_of(folder, kind, str(tmp_path / "cut"), max_steps=5, **values))
    pretrain(settings_of(folder, kind, str(tmp_path / "cut"), max_steps=8, **values), resume=True)
    names = ("step", "loss", "gradient_norm")
    whole, cut = ([[row[name] for name in names] for row in rows_of(tmp_path / run)] for run in ("whole", "cut"))
    assert whole == cut
    one, other = (
        load_file(sorted((tmp_path / run / "checkpoints").glob("*8"))[-1] / "model.safetensors")
        for run in ("whole", "cut")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_commands_from_text_to_a_model_of_new_words(folder, tmp_path, capsys):
    """With everything that is on by default, and a vocabulary as `hf-elmo vocab` makes it."""
    text, vocabulary, run = folder / "train.txt", tmp_path / "vocab.txt", tmp_path / "run"
    assert main(["vocab", str(text), "--output", str(vocabulary), "--min-count", "1"]) == 0
    options = ["--init_from", folder / "ManyLangs", "--text", text, "--heldout", folder / "heldout.txt"]
    options += ["--vocab", vocabulary, "--softmax", "full", "--max_steps", 3, "--batch_size", 8, "--output", run]
    assert main(["pretrain", *map(str, options)]) == 0
    said = capsys.readouterr().err
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    shared = 3 + len(set(words) & set(ElmoTokenizer.from_pretrained(folder / "ManyLangs").get_vocab()))
    assert 10 < shared < len(words) - 10
    assert "held-out perplexity of word frequencies alone" in said
    report = json.loads((run / "facts.json").read_text())["start"]
    assert f"table of words: {shared + 1} rows taken, {len(words) - shared} fresh" in report
    assert f"{len(words)} words, {shared} (" in report
    tokenizer = ElmoTokenizer.from_pretrained(run / "model")
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<bos>", "<eos>", "<oov>"]
    assert tokenizer.convert_ids_to_tokens(range(3, len(words))) == words[3:]
    assert "table of words" in (run / "model" / "README.md").read_text()
