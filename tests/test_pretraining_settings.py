"""What a pretraining run can be told: defaults, files, the command line, and what is refused."""

import json

import pytest

from hf_elmo.cli import parse
from hf_elmo.pretraining_settings import (
    CHANGEABLE,
    PretrainingSettings,
    command_of,
    given_settings,
    public_settings,
)

GIVEN = {"text": ["train.txt"], "vocab": "vocab.txt", "output": "run"}


def settings(**values) -> PretrainingSettings:
    return PretrainingSettings(**{**GIVEN, **values})


def from_command_line(*argv) -> PretrainingSettings:
    return PretrainingSettings(**given_settings(parse(["pretrain", *map(str, argv)])))


def test_defaults_are_the_original_recipe():
    original = settings()
    assert (original.mode, original.batch_size, original.unroll_steps) == ("stream", 128, 20)
    assert (original.optimizer, original.rate, original.max_gradient_norm, original.factor) == ("adagrad", 0.2, 10, 20)
    assert (original.num_epochs, original.schedule) == (10, "constant")
    config = original.model_config(vocab_size=793_472)
    assert (config.cell_size, config.softmax, config.num_sampled, config.dropout) == (4096, "sampled", 8192, 0.1)


def test_what_depends_on_other_options():
    assert settings(unroll_steps=7).factor == 7
    assert settings(optimizer="adam").factor == 1
    assert settings(optimizer="adam", loss_factor=3).factor == 3
    assert settings(optimizer="adam").rate == 1e-3
    assert settings(max_steps=5).num_epochs is None
    assert settings(epochs=2).num_epochs == 2


def test_command_line():
    found = from_command_line(
        *("--text", "a.txt", "b.txt", "--vocab", "v.txt", "--output", "run", "--no-shuffle", "--max_steps", 3),
        *("--softmax", "adaptive", "--softmax_cutoffs", 10, 20, "--learning_rate", "1e-2", "--keep-documents"),
    )
    assert found == PretrainingSettings(
        text=["a.txt", "b.txt"],
        vocab="v.txt",
        output="run",
        shuffle=False,
        max_steps=3,
        softmax="adaptive",
        softmax_cutoffs=[10, 20],
        learning_rate=0.01,
        keep_documents=True,
    )


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_file_and_command_line(tmp_path, ending):
    file = tmp_path / f"run.{ending}"
    if ending == "json":
        file.write_text(json.dumps({**GIVEN, "batch_size": 4, "seed": 1}))
    else:
        file.write_text("text: [train.txt]\nvocab: vocab.txt\noutput: run\nbatch_size: 4\nseed: 1\n")
    assert from_command_line("--config", file, "--seed", 2) == settings(batch_size=4, seed=2)


def test_saved_settings_come_back():
    original = settings(softmax="adaptive", softmax_cutoffs=[5], dropout=0, loss_factor=2)
    assert PretrainingSettings.from_dict(json.loads(json.dumps(original.to_dict())), "a file") == original


def test_model_config(tmp_path):
    overrides = (
        "projection_size=8, cell_size=16,char_cnn_filters=[[1,4],[2,8]],char_cnn_activation=tanh,cell_clip=null"
    )
    config = settings(model="small", config_overrides=overrides, dropout=0.5).model_config(100)
    assert (config.projection_size, config.cell_size, config.num_highway_layers) == (8, 16, 1)
    assert (config.char_cnn_filters, config.char_cnn_activation) == ([[1, 4], [2, 8]], "tanh")
    assert (config.cell_clip, config.dropout, config.vocab_size) == (None, 0.5, 100)
    (tmp_path / "config.json").write_text('{"projection_size": 4, "cell_size": 6}')
    config = settings(model=str(tmp_path / "config.json"), config_overrides="cell_size=5").model_config(10)
    assert (config.projection_size, config.cell_size) == (4, 5)


MISTAKES = [
    ({"text": []}, "either text .* or dataset"),
    ({"dataset": "wikitext"}, "either text .* or dataset"),
    ({"streaming": True}, "streaming is for a dataset"),
    ({"vocab": None}, "hf-elmo vocab"),
    ({"output": ""}, "output is missing"),
    ({"early_stopping": 3}, "early_stopping needs heldout"),
    ({"init_from": "folder", "model": "small"}, "model must not be given"),
    ({"init_from": "folder", "config_overrides": "a=1"}, "config_overrides must not be given"),
    ({"softmax_warmup_steps": 3}, "is for init_from"),
    ({"softmax": "full", "num_sampled": 10}, "num_sampled is for the sampled softmax"),
    ({"softmax": "full", "softmax_cutoffs": [10]}, "softmax_cutoffs is for the adaptive softmax"),
    ({"max_sentence_words": 10}, "is for mode sentences"),
    ({"epochs": 1, "max_steps": 1}, "either epochs or max_steps"),
    ({"warmup_steps": 10}, "warmup_steps needs a schedule"),
    ({"batch_size": 0}, "batch_size is 0, but it must be 1 or more"),
    ({"state_reset": 1.5}, "state_reset is 1.5, but it is a probability"),
    ({"learning_rate": -1.0}, "learning_rate is -1.0, but it must be 0 or more"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"batch_size": "8"}, "batch_size is '8', but it must be int"),
    ({"batch_size": True}, "batch_size is True, but it must be int"),
    ({"optimizer": "lion"}, "'adagrad' or 'adam' or 'adamw' or 'sgd'"),
    ({"text": "train.txt"}, "a list of str"),
    ({"config_overrides": "nonsense=1"}, "'nonsense' is not a config value"),
    ({"config_overrides": "vocab_size=10"}, "'vocab_size' is not a config value"),
    ({"config_overrides": "projection_size"}, "must be name=value"),
    ({"model": "nowhere.json"}, "There is no file nowhere.json"),
]


@pytest.mark.parametrize(("values", "message"), MISTAKES)
def test_mistakes(values, message):
    with pytest.raises((ValueError, OSError), match=message):
        settings(**values)


def test_public_settings_have_no_folders_but_names_of_data_sets(tmp_path):
    (tmp_path / "rows").mkdir()
    for dataset, shown in (("owner/poems", "owner/poems"), (str(tmp_path / "rows"), "rows")):
        given = settings(text=[], dataset=dataset, heldout=[str(tmp_path / "*.txt")], check_corpus=False)
        assert public_settings(given)["dataset"] == shown
        command = command_of(given)
        assert f"--dataset {shown} --heldout '*.txt'" in command
        assert "--no-check_corpus" in command
        assert str(tmp_path) not in command


def test_a_value_is_not_given_twice():
    with pytest.raises(ValueError, match="dropout is given twice"):
        settings(dropout=0.1, config_overrides="dropout=0.2").model_config(10)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"batchsize": 3}', "no option 'batchsize'"),
        ("a.json", '{"seed": 1, "seed": 2}', "'seed' is there twice"),
        ("a.json", "{", "cannot be read"),
        ("a.yaml", "a: [", "cannot be read"),
        ("a.yaml", "- 1", "must hold an object"),
    ],
)
def test_mistakes_in_a_file(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        from_command_line("--config", tmp_path / name)


def test_what_may_change_when_a_run_is_resumed():
    saved = settings(max_steps=10)
    settings(max_steps=20, log_steps=1, num_workers=2).check_resumable(saved)
    with pytest.raises(ValueError, match="begun with batch_size=128, but batch_size=64"):
        settings(max_steps=10, batch_size=64).check_resumable(saved)
    assert set(saved.to_dict()) >= CHANGEABLE
