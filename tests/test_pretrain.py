"""The pretraining program: from text to a Hub folder, in both modes, in one process and in two."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from pretraining_corpus import TINY_MODEL, tiny_settings, write_corpus
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from hf_elmo import ElmoForPreTraining, ElmoModel, corpus_check
from hf_elmo.cli import main
from hf_elmo.hub import verify_checksums
from hf_elmo.scripts.pretrain_elmo import pretrain, read_settings


@pytest.fixture
def folder(tmp_path):
    write_corpus(tmp_path)
    return tmp_path


def rows_of(run, kind: str = "loss") -> list[dict]:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [row for row in rows if kind in row]


def losses_of(run) -> torch.Tensor:
    names = ("forward_loss", "backward_loss", "gradient_norm")
    return torch.tensor([[row[name] for name in names] for row in rows_of(run)], dtype=torch.float64)


def weights_of(run) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


# --- From text to a folder -------------------------------------------------------------------------------------------


def test_command_from_text_to_hub_folder(folder, capsys):
    run = folder / "run"
    options = ["--text", folder / "train.txt", "--heldout", folder / "heldout.txt", "--vocab", folder / "vocab.txt"]
    options += ["--output", run, "--config_overrides", TINY_MODEL, "--softmax", "full", "--batch_size", 8]
    options += ["--max_steps", 150, "--eval_steps", 50, "--save_steps", 50, "--log_steps", 10, "--license", "cc0-1.0"]
    assert main(["pretrain", *map(str, options)]) == 0
    err = capsys.readouterr().err
    for text in (
        "batch_size                  8",
        "tokens",
        "steps an epoch",
        "hours an epoch",
        "full softmax",
        "words/s",
    ):
        assert text in err
    heldout = [row["heldout"] for row in rows_of(run, "heldout")]
    facts = json.loads((run / "facts.json").read_text())
    assert [row["step"] for row in rows_of(run, "heldout")] == [50, 100, 150]
    assert heldout[-1]["perplexity"] < facts["unigram_perplexity"] / 2
    assert heldout[-1]["perplexity"] == pytest.approx(
        math.sqrt(heldout[-1]["forward_perplexity"] * heldout[-1]["backward_perplexity"])
    )

    verify_checksums(run / "model")
    card = (run / "model" / "README.md").read_text()
    assert f"{heldout[-1]['perplexity']:.2f}" in card or f"{heldout[-1]['perplexity']:.1f}" in card
    assert "hf-elmo pretrain" in card
    for plot in ("training_loss.png", "heldout_perplexity.png"):
        assert plot in card
        assert (run / "model" / plot).read_bytes().startswith(b"\x89PNG")
    assert isinstance(AutoModelForPreTraining.from_pretrained(run / "model"), ElmoForPreTraining)
    assert isinstance(AutoModel.from_pretrained(run / "model"), ElmoModel)
    assert AutoTokenizer.from_pretrained(run / "model").tokenize("the cat sees it .") == "the cat sees it .".split()

    capsys.readouterr()
    assert (
        main(["perplexity", str(run / "model"), str(folder / "heldout.txt"), "--mode", "stream", "--rows", "32"]) == 0
    )
    assert f"both {heldout[-1]['perplexity']:.4f}" in capsys.readouterr().out


def test_best_weights_are_the_result(folder):
    """A learning rate that destroys the model at the end: the folder has the weights from before."""
    run = folder / "run"
    values = {"heldout": [str(folder / "heldout.txt")], "eval_steps": 5, "optimizer": "sgd", "max_gradient_norm": 0.0}
    pretrain(tiny_settings(folder, max_steps=20, schedule="linear", warmup_steps=19, learning_rate=60.0, **values))
    perplexities = [row["heldout"]["perplexity"] for row in rows_of(run, "heldout")]
    best = perplexities.index(min(perplexities))
    assert best < len(perplexities) - 1
    (kept,) = run.glob("best-*")
    assert weights_of(run)["softmax.bias"].equal(load_file(kept / "model.safetensors")["softmax.bias"])
    card = (run / "model" / "README.md").read_text()
    assert f"| Weights of step | {5 * (best + 1)} |" in card
    assert str(folder) not in card


def test_early_stopping(folder):
    run = folder / "run"
    values = {"heldout": [str(folder / "heldout.txt")], "eval_steps": 2, "early_stopping": 2, "learning_rate": 0.0}
    pretrain(tiny_settings(folder, max_steps=30, **values))
    assert rows_of(run)[-1]["step"] == 6  # one measurement to compare with, and two without gain
    pretrain(tiny_settings(folder, max_steps=30, **values), resume=True)
    assert rows_of(run)[-1]["step"] == 6


@pytest.mark.parametrize("mode", ["stream", "sentences"])
def test_epochs_end(folder, mode):
    pretrain(tiny_settings(folder, epochs=2, mode=mode, gradient_accumulation_steps=2, batch_size=16))
    words = sum(len(line.split()) + 1 for line in (folder / "train.txt").read_text().splitlines())
    rows = rows_of(folder / "run")
    assert rows[-1]["epoch"] == 2 if mode == "sentences" else rows[-1]["epoch"] >= 1
    lost = 16 * (5 + 15) if mode == "stream" else 0  # the last window is not complete, and rows have begun sentences
    assert 2 * words - lost <= rows[-1]["words"] <= 2 * words


RATES = {"adagrad": None, "adam": 0.02, "adamw": 0.02, "sgd": None}


@pytest.mark.parametrize("optimizer", RATES)
def test_optimizers_learn(folder, optimizer):
    pretrain(tiny_settings(folder, max_steps=40, optimizer=optimizer, batch_size=16, learning_rate=RATES[optimizer]))
    losses = [row["loss"] for row in rows_of(folder / "run")]
    assert sum(losses[-5:]) / 5 < losses[0] - 0.2


def test_state_is_reset_by_chance(folder):
    for name, state_reset in (("never", 0.0), ("sometimes", 0.5), ("always", 1.0)):
        pretrain(tiny_settings(folder, name, state_reset=state_reset, dropout=0.0, max_steps=2))
    never, sometimes, always = (losses_of(folder / name) for name in ("never", "sometimes", "always"))
    assert never[0].equal(sometimes[0])  # the first step begins from zero in any case
    assert never[0].equal(always[0])
    assert len({tuple(losses[1].tolist()) for losses in (never, sometimes, always)}) == 3


def test_schedule(folder):
    pretrain(tiny_settings(folder, max_steps=10, schedule="linear", warmup_steps=4, learning_rate=1.0))
    rates = [row["learning_rate"] for row in rows_of(folder / "run")]  # of the step after
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


def test_accumulated_sentences_are_one_batch(folder):
    pretrain(tiny_settings(folder, "one", mode="sentences", batch_size=12, dropout=0.0, max_steps=4))
    pretrain(
        tiny_settings(
            folder, "three", mode="sentences", batch_size=4, gradient_accumulation_steps=3, dropout=0.0, max_steps=4
        )
    )
    assert_close(losses_of(folder / "one"), losses_of(folder / "three"), atol=1e-5, rtol=1e-5)


def test_workers_change_nothing(folder):
    for number in (0, 2):
        pretrain(tiny_settings(folder, f"workers-{number}", num_workers=number, max_steps=6))
    assert losses_of(folder / "workers-0").equal(losses_of(folder / "workers-2"))


def write_data_set(folder, rows) -> str:
    (folder / "data").mkdir()
    lines = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    (folder / "data" / "train.jsonl").write_text(lines, encoding="utf-8")
    return str(folder / "data")


def lines_of(folder) -> list[str]:
    return (folder / "train.txt").read_text(encoding="utf-8").splitlines()


def facts_of(run) -> dict:
    return json.loads((run / "facts.json").read_text(encoding="utf-8"))


CHECKED = {"check_corpus": True, "unigram_baseline": True}


@pytest.mark.parametrize("streaming", [False, True])
def test_data_set(folder, capsys, streaming):
    """Checked, and compared with word frequencies, as files are; what is found is kept and not looked for again."""
    values = {"epochs": 1, "batch_size": 32, "mode": "sentences", "heldout": [str(folder / "heldout.txt")], **CHECKED}
    pretrain(tiny_settings(folder, "file", **values))
    values |= {"text": [], "dataset": write_data_set(folder, lines_of(folder)), "streaming": streaming}
    values["schedule"] = "constant" if streaming else "linear"
    pretrain(tiny_settings(folder, **values))
    expected, found = facts_of(folder / "file"), facts_of(folder / "run")
    for name in ("sentences", "tokens", "unknown_share", "steps_per_epoch", "unigram_perplexity"):
        assert found[name] == expected[name]
    assert (found["rows"], found["complete"]) == (300, True)
    assert len(rows_of(folder / "run")) == found["steps_per_epoch"]
    card = (folder / "run" / "model" / "README.md").read_text()
    assert f"300 sentences, {found['tokens']:,} words" in card
    said = capsys.readouterr().err
    assert "rows                  300\n" in said
    assert "held-out perplexity of word frequencies alone: " in said
    pretrain(tiny_settings(folder, **values), resume=True)
    assert "rows                  300\n" not in capsys.readouterr().err
    assert facts_of(folder / "run") == found


def test_the_first_rows_of_a_streamed_data_set(folder, capsys, monkeypatch):
    monkeypatch.setattr(corpus_check, "STREAMED_BYTES", 1)  # so that one block of rows is enough
    values = {"text": [], "dataset": write_data_set(folder, lines_of(folder)), "streaming": True, **CHECKED}
    pretrain(tiny_settings(folder, heldout=[str(folder / "heldout.txt")], max_steps=3, **values))
    said, facts = capsys.readouterr().err, facts_of(folder / "run")
    assert "the first 256; the others are not looked at" in said
    assert "steps an epoch        unknown" in said
    assert "A step takes" in said
    assert "word frequencies alone (counted in the first 256 rows): " in said
    assert (facts["complete"], facts["steps_per_epoch"], facts["unigram_rows"]) == (False, None, 256)
    card = (folder / "run" / "model" / "README.md").read_text()
    assert "| Text |" not in card
    assert "| Epochs | 0 |" in card
    with pytest.raises(ValueError, match="schedule cosine has to know how many steps there are"):
        pretrain(tiny_settings(folder, "other", mode="sentences", epochs=1, schedule="cosine", **values))


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_data_set_stops_before_step_1(folder, capsys, streaming):
    name = write_data_set(folder, [*map(str.split, lines_of(folder)), ["a", None]])
    values = {"text": [], "dataset": name, "streaming": streaming, "check_corpus": True, "max_steps": 1}
    with pytest.raises(ValueError, match=r"cannot be trained on\. 1 rows have neither .*, row 300: a list with None"):
        pretrain(tiny_settings(folder, **values))
    assert f"data set {name}, row 300: a list with None" in capsys.readouterr().err
    assert not (folder / "run" / "log.jsonl").exists()
    pretrain(tiny_settings(folder, "skipped", errors="skip", **values))
    with pytest.raises(ValueError, match="no column 'content'; it has 'text'"):
        pretrain(tiny_settings(folder, "column", column="content", **values))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_number_among_texts_stops_before_step_1(folder, streaming):
    """Old versions of `datasets` do not read such a file; new ones do, and the row is found."""
    name = write_data_set(folder, [*lines_of(folder), 7])
    values = {"text": [], "dataset": name, "streaming": streaming, "check_corpus": True, "max_steps": 1}
    with pytest.raises(ValueError, match=r"row 300: int 7|JSON parse error: .* from string to number in row 300"):
        pretrain(tiny_settings(folder, **values))
    assert not (folder / "run" / "log.jsonl").exists()


def test_unchecked_data_set(folder, capsys):
    values = {"text": [], "dataset": write_data_set(folder, lines_of(folder)), "unigram_baseline": True}
    pretrain(tiny_settings(folder, heldout=[str(folder / "heldout.txt")], max_steps=1, **values))
    assert "tokens" not in facts_of(folder / "run")
    assert facts_of(folder / "run")["unigram_perplexity"] > 1
    assert "The text is not checked. A step takes" in capsys.readouterr().err


def test_tracker(folder):
    pretrain(tiny_settings(folder, report_to=["tensorboard"], max_steps=2))
    assert any(path.name.startswith("events.out") for path in (folder / "run").rglob("*"))


@pytest.mark.slow
def test_mixed_precision(folder):
    pretrain(tiny_settings(folder, "float32", max_steps=5, dropout=0.0))
    settings = tiny_settings(folder, "bfloat16", max_steps=5, dropout=0.0, mixed_precision="bf16")
    script = os.path.join(os.path.dirname(__file__), "run_in_each_process.py")
    # Some virtual machines advertise instructions for bfloat16 that they do not have.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    command = [sys.executable, script, json.dumps(settings.to_dict())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    precise, rough = losses_of(folder / "float32"), losses_of(folder / "bfloat16")
    assert_close(rough, precise, atol=0.05, rtol=0.05)
    assert not rough.equal(precise)
    assert all(weight.dtype == torch.float32 for weight in weights_of(folder / "bfloat16").values())


# --- Continuing another model ----------------------------------------------------------------------------------------


def test_init_from_with_new_words_and_warm_up(folder):
    pretrain(tiny_settings(folder, "first", max_steps=20))
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "new.txt").write_text("".join(f"{word}\n" for word in [*words[:10], "night", *words[12:]]))
    first = folder / "first" / "model"
    values = {"init_from": str(first), "vocab": str(folder / "new.txt"), "softmax_warmup_steps": 3}
    pretrain(tiny_settings(folder, "warm", max_steps=3, **values))
    before, after = load_file(first / "model.safetensors"), weights_of(folder / "warm")
    for name, weight in after.items():
        changed = name.startswith("softmax.")
        assert weight.shape != before[name].shape or weight.equal(before[name]) is not changed, name
    pretrain(tiny_settings(folder, "warm", max_steps=4, **values), resume=True)
    name = "elmo.character_encoder.projection.weight"
    assert not weights_of(folder / "warm")[name].equal(before[name])
    card = (folder / "warm" / "model" / "README.md").read_text()
    assert "1 new" in card or "new" in card
    assert read_settings(folder / "warm").softmax_warmup_steps == 3


# --- Mistakes --------------------------------------------------------------------------------------------------------


WORD_MODEL = "word_input=words,word_embedding_size=6,project_words=false"


@pytest.mark.parametrize("mode", ["stream", "sentences"])
def test_words_as_input(folder, mode):
    values = {"config_overrides": f"{TINY_MODEL},{WORD_MODEL}", "mode": mode, "max_steps": 12, "batch_size": 16}
    pretrain(tiny_settings(folder, heldout=[str(folder / "heldout.txt")], **values))
    losses = losses_of(folder / "run")
    assert losses[-1, 0] < losses[0, 0] - 0.1
    assert main(["perplexity", str(folder / "run" / "model"), str(folder / "heldout.txt"), "--mode", mode]) == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": ["nowhere.txt"]}, "nowhere.txt"),
        ({"vocab": "nowhere.txt"}, "nowhere.txt"),
        ({"softmax": "sampled"}, "num_sampled=8192 words, but the vocabulary has only"),
        ({"batch_size": 1000, "epochs": 1}, "does not fill a single batch of 1000 rows"),
        ({"init_from": "nowhere", "softmax": None}, "nowhere"),
        ({"schedule": "cosine", "epochs": 1}, "schedule cosine has to know how many steps there are"),
        ({"learning_rate": 1e30, "max_gradient_norm": 0.0, "optimizer": "sgd"}, "are not finite"),
    ],
)
def test_mistakes(folder, values, message):
    with pytest.raises((ValueError, OSError), match=message):
        pretrain(tiny_settings(folder, **values))


def test_fatal_corpus_stops_before_step_1(folder, capsys):
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nelephant\n")
    with pytest.raises(ValueError, match="cannot be trained on"):
        pretrain(tiny_settings(folder, check_corpus=True))
    assert not (folder / "run" / "log.jsonl").exists()
    assert "train.txt" in capsys.readouterr().err


# --- Two processes ---------------------------------------------------------------------------------------------------


def launch(settings, *options: str) -> None:
    script = os.path.join(os.path.dirname(__file__), "run_in_each_process.py")
    accelerate = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    accelerate += "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
    accelerate += ["--main_process_port", "0"]
    command = [*accelerate, script, json.dumps(settings.to_dict()), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["stream", "sentences"])
def test_two_processes_are_one_with_the_whole_batch(folder, mode):
    """Half of the rows each: the same losses to 1e-5, and the same parameters in both."""
    values = {"mode": mode, "softmax": "sampled", "num_sampled": 12, "dropout": 0.0, "max_steps": 20, "save_steps": 10}
    values["heldout"] = [str(folder / "heldout.txt")]
    pretrain(tiny_settings(folder, "one", batch_size=8, **values))
    launch(tiny_settings(folder, "two", batch_size=4, **values))
    one, two = folder / "one", folder / "two"
    assert_close(losses_of(two), losses_of(one), atol=1e-5, rtol=1e-5)
    ranks = [load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for name, weight in ranks[0].items():
        assert weight.equal(ranks[1][name]), name
    heldout = [[row["heldout"]["perplexity"] for row in rows_of(run, "heldout")] for run in (one, two)]
    assert heldout[0] == pytest.approx(heldout[1], rel=1e-5)


@pytest.mark.slow
def test_two_processes_resume_to_the_last_bit(folder):
    values = {"softmax": "sampled", "num_sampled": 12, "batch_size": 4}
    launch(tiny_settings(folder, "whole", max_steps=12, report_to=["tensorboard"], **values))
    assert list((folder / "whole").rglob("events.out.tfevents.*"))
    launch(tiny_settings(folder, "parts", max_steps=5, **values))
    launch(tiny_settings(folder, "parts", max_steps=12, **values), "--resume")
    assert losses_of(folder / "parts").equal(losses_of(folder / "whole"))
    whole, parts = (load_file(folder / name / "rank-1.safetensors") for name in ("whole", "parts"))
    for name, weight in whole.items():
        assert weight.equal(parts[name]), name
