import importlib
import json
import os
import time

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from tiny import tiny_config
from transformers import AutoConfig

from hf_elmo import ElmoConfig, ElmoModel


@pytest.mark.parametrize(
    ("name", "parameters", "hidden_size"),
    [("small", 13_593_296, 256), ("medium", 28_027_728, 512), ("original", 93_600_848, 1024)],
)
def test_the_published_sizes(name, parameters, hidden_size):
    config = getattr(ElmoConfig, name)()
    with torch.device("meta"):
        model = ElmoModel(config)
    counted = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("mixes."))
    assert counted == parameters
    assert config.hidden_size == hidden_size
    assert config.num_hidden_layers == 2


def test_defaults_are_the_original():
    assert ElmoConfig().to_dict() == ElmoConfig.original().to_dict()


def test_presets_take_overrides():
    config = ElmoConfig.small(cell_size=64, layer_combination="top")
    assert (config.cell_size, config.projection_size, config.layer_combination) == (64, 128, "top")


def test_padding_is_the_last_word_id():
    assert ElmoConfig(vocab_size=100).pad_token_id == 99
    assert ElmoConfig(vocab_size=100, pad_token_id=7).pad_token_id == 7


@pytest.mark.parametrize("combination", ["mix", "top", "average", 0, 2])
def test_saved_and_loaded(tmp_path, combination):
    config = tiny_config(layer_combination=combination, cell_clip=None, projection_clip=2, vocab_size=50)
    config.save_pretrained(tmp_path)
    for loaded in (ElmoConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is ElmoConfig
        ignored = {"auto_map", "transformers_version", "_name_or_path"}
        assert {k: v for k, v in loaded.to_dict().items() if k not in ignored} == {
            k: v for k, v in config.to_dict().items() if k not in ignored
        }
        assert loaded.hidden_size == 12


def test_saved_config_names_the_code_of_every_auto_class(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModelForTokenClassification"] == "modeling_elmo_heads.ElmoForTokenClassification"
    for place in auto_map.values():
        module, _, name = (place[0] if isinstance(place, list) else place).partition(".")
        assert (tmp_path / f"{module}.py").is_file()
        assert hasattr(importlib.import_module(f"hf_elmo.{module}"), name)


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("projection_size", 0, "projection_size=0 .* between 1 and"),
        ("projection_size", -3, "projection_size=-3"),
        ("projection_size", "512", "projection_size.* expected int"),
        ("projection_size", True, "projection_size.* expected int, got bool"),
        ("cell_size", 10**12, "cell_size=1000000000000 .* between 1 and"),
        ("num_hidden_layers", 0, "num_hidden_layers=0"),
        ("num_highway_layers", -1, "num_highway_layers=-1"),
        ("char_vocab_size", 1, "char_vocab_size=1"),
        ("max_characters_per_token", 2, "max_characters_per_token=2"),
        ("vocab_size", 3, "vocab_size=3"),
        ("num_output_representations", 0, "num_output_representations=0"),
        ("char_cnn_filters", [], "char_cnn_filters is empty"),
        ("char_cnn_filters", [[1, 2, 3]], r"char_cnn_filters has the entry \[1, 2, 3\]"),
        ("char_cnn_filters", [[51, 4]], "char_cnn_filters has a width of 51.*between 1 and.*50"),
        ("char_cnn_filters", [[1, 0]], "char_cnn_filters has a count of 0"),
        ("char_cnn_activation", "gelu", "char_cnn_activation.*relu.*tanh"),
        ("cell_clip", 0.0, "cell_clip=0.0 .*None for no clip"),
        ("cell_clip", float("nan"), "cell_clip=nan"),
        ("projection_clip", -1.0, "projection_clip=-1.0"),
        ("projection_clip", float("inf"), "projection_clip=inf"),
        ("forget_bias", float("inf"), "forget_bias=inf"),
        ("dropout", 1.0, "dropout=1.0.*below 1"),
        ("dropout", -0.1, "dropout=-0.1"),
        ("layer_combination", "sum", "layer_combination.*mix.*top.*average"),
        ("layer_combination", 3, r"layer_combination=3 names no layer.* 2 \(the top\)"),
        ("layer_combination", -1, "layer_combination=-1 names no layer"),
        ("mix_layer_norm", "layer", "mix_layer_norm.*token.*batch"),
        ("hidden_size", 10, "hidden_size=10 cannot be set.*Set projection_size"),
    ],
)
def test_impossible_values_are_refused_by_name(field, value, says):
    with pytest.raises((StrictDataclassError, ValueError), match=f"(?s){says}"):
        ElmoConfig(**{field: value})


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"elmo_dropout": 1.5}, "elmo_dropout=1.5"),
        ({"task_dropout": -0.1}, "task_dropout=-0.1"),
        ({"mix_l2": -1.0}, "mix_l2=-1.0"),
        ({"word_vector_size": 50}, "word_vector_size=50 and word_vector_vocab_size=0"),
        ({"use_elmo": False}, "use_elmo=False leaves nothing to read"),
        ({"elmo_at_output": True}, "elmo_at_output=True needs a task LSTM"),
        ({"crf_scheme": "BIO"}, "crf_scheme='BIO' needs use_crf=True"),
        ({"pooling": "sum"}, "pooling.*mean.*max.*boundary"),
        ({"num_sentences": 3}, "num_sentences.*1, 2"),
        ({"task_lstm_layers": 0}, "task_lstm_layers=0"),
        (
            {"use_elmo": False, "elmo_at_output": True, "word_vector_size": 5, "word_vector_vocab_size": 9},
            "elmo_at_output=True needs use_elmo=True",
        ),
    ],
)
def test_impossible_tasks_are_refused(overrides, says):
    with pytest.raises(StrictDataclassError, match=f"(?s){says}"):
        ElmoConfig(**overrides)


def test_elmo_at_the_output_has_a_mix_of_its_own():
    assert ElmoConfig(elmo_at_output=True, task_lstm_size=8).num_output_representations == 2
    assert ElmoConfig(elmo_at_output=True, task_lstm_size=8, layer_combination="top").num_output_representations == 1


@pytest.mark.parametrize("overrides", [{"num_output_representations": 2}, {"mix_layer_norm": "token"}])
def test_choices_of_the_mix_need_a_mix(overrides):
    with pytest.raises(StrictDataclassError, match=f"{next(iter(overrides))}=.*needs layer_combination='mix'"):
        ElmoConfig(layer_combination="top", **overrides)


# --- Files -----------------------------------------------------------------------------------------------------------

BROKEN_FILES = {
    "empty": (b"", "is not valid JSON"),
    "cut": (b'{"cell_size": ', "is not valid JSON"),
    "two objects": (b"{}{}", "is not valid JSON"),
    "not UTF-8": (b'{"\xff": 1}', "is not valid JSON"),
    "key twice": (b'{"cell_size": 4, "cell_size": 5}', "the key 'cell_size' appears twice"),
    "key twice, inside": (b'{"id2label": {"0": "O", "0": "B"}}', "the key '0' appears twice"),
    "long number": (b'{"cell_size": ' + b"9" * 10_000 + b"}", "is not valid JSON: Exceeds the limit"),
    "deep lists": (b"[" * 200_000, "is nested too deeply"),
    "deep objects": (b'{"a":' * 150_000 + b"1" + b"}" * 150_000, "is nested too deeply"),
    "list": (b"[1, 2]", "must hold one JSON object, not a list"),
    "null": (b"null", "must hold one JSON object, not a NoneType"),
}


@pytest.mark.promise("S3")
@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_broken_files_are_refused_by_name(tmp_path, kind):
    content, says = BROKEN_FILES[kind]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=f"^{path} .*{says}"):
        ElmoConfig.from_pretrained(tmp_path)
    assert time.perf_counter() - start < 1


@pytest.mark.promise("S3")
def test_huge_files_are_not_read(tmp_path):
    (tmp_path / "config.json").touch()
    os.truncate(tmp_path / "config.json", 100 * 2**20)
    with pytest.raises(ValueError, match=r"config\.json has 104,857,600 bytes .* it may have 16,777,216"):
        ElmoConfig.from_pretrained(tmp_path)


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("cell_size", -1, "cell_size=-1"),
        ("cell_size", 0, "cell_size=0"),
        ("cell_size", 10**12, "cell_size=1000000000000"),
        ("cell_size", "12", "cell_size.* expected int, got str"),
        ("cell_size", True, "cell_size.* expected int, got bool"),
        ("cell_size", None, "cell_size.* expected int, got NoneType"),
        ("cell_clip", float("nan"), "cell_clip=nan"),
        ("char_cnn_filters", [[1, 2**40]], "char_cnn_filters has a count of"),
    ],
)
def test_impossible_values_in_files_allocate_nothing(tmp_path, field, value, says):
    tiny_config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(StrictDataclassError, match=f"(?s){says}"):
        ElmoModel.from_pretrained(tmp_path)  # there are no weights; the config is looked at first
