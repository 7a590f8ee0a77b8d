"""Folders that are not whole: refused by `load_checked`, and told by `hf-elmo verify`."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import random_model, tiny_config

import hf_elmo
from hf_elmo import (
    ELMO_MINI,
    ElmoCharacters,
    ElmoForMultipleChoice,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    cli,
    is_quantized,
    load_checked,
)
from hf_elmo.configuration_elmo import CODE_FILES
from hf_elmo.half_storage import shrink
from hf_elmo.hub import finish_folder, save_hub_folder
from hf_elmo.verify import CHECKS, check_folder

BIAS = "bilstm.forward_layers.0.bias"
CLASSES = {
    "encoder": (ElmoModel, {}),
    "warm": (ElmoModel, {"initial_state": "warm"}),
    "words": (ElmoModel, {"word_input": "words", "word_embedding_size": 5}),
    "several mixes, aligned": (ElmoModel, {"num_output_representations": 2, "use_alignment": True}),
    "language model": (ElmoForPreTraining, {}),
    "language model, adaptive": (ElmoForPreTraining, {"softmax": "adaptive", "softmax_cutoffs": [1]}),
    "tagger": (
        ElmoForTokenClassification,
        {"num_labels": 3, "use_crf": True, "task_lstm_size": 4, "predicate_embedding_size": 2},
    ),
    "classifier": (ElmoForSequenceClassification, {"num_labels": 5, "pooling": "mean_max"}),
    "classifier of pairs": (ElmoForSequenceClassification, {"num_sentences": 2}),
    "question answering": (ElmoForQuestionAnswering, {}),
    "multiple choice": (ElmoForMultipleChoice, {}),
}


def save(folder, model_class=ElmoModel, tokenizer=None, **settings):
    model = random_model(tiny_config(**settings), model_class=model_class)
    return save_hub_folder(model, tokenizer or ElmoTokenizer(), folder, "# A card\n")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save(tmp_path_factory.mktemp("whole") / "elmo")


@pytest.fixture
def folder(whole, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(whole, tmp_path / "elmo")


def change_weights(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    finish_folder(folder)


def change_json(folder, name="config.json", **values):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    finish_folder(folder)


def statuses(folder):
    return {check.name: check.status for check in check_folder(folder).checks}


def the_check(folder, name):
    return next(check for check in check_folder(folder).checks if check.name == name)


# --- load_checked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_whole_folders_of_every_class_are_loaded_and_pass(kind, tmp_path):
    model_class, settings = CLASSES[kind]
    folder = save(tmp_path / "elmo", model_class, **settings)
    model = load_checked(folder, checksums=True)
    assert type(model) is model_class
    assert not model.training
    for name, weight in random_model(tiny_config(**settings), model_class=model_class).state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    report = check_folder(folder)
    assert {check.status for check in report.checks} == {"ok"}, str(report)
    assert report.passed


BROKEN_WEIGHTS = {
    rf"1 missing \({BIAS}\)": lambda state: state.pop(BIAS),
    r"1 unexpected \(surplus\)": lambda state: state.update(surplus=torch.zeros(2)),
    rf"1 of another shape \({BIAS}: \(7,\), not \(40,\)\)": lambda state: state.update({BIAS: torch.zeros(7)}),
    rf"1 not floating \({BIAS}: I64\)": lambda state: state.update({BIAS: torch.zeros(40, dtype=torch.long)}),
    rf"1 not finite \({BIAS}\)": lambda state: state[BIAS][-1:].fill_(float("nan")),
    r"1 not finite \(mixes.0.gamma\)": lambda state: state["mixes.0.gamma"].fill_(float("-inf")),
}


@pytest.mark.parametrize("reason", BROKEN_WEIGHTS)
def test_weights_that_are_not_whole_are_refused_and_named(folder, reason):
    change_weights(folder, BROKEN_WEIGHTS[reason])
    if "floating" not in reason and "another shape" not in reason:
        ElmoModel.from_pretrained(folder)  # takes them as they are
    with pytest.raises(ValueError, match=rf"The weights of .*elmo are not those of its ElmoModel: {reason}\."):
        load_checked(folder)
    checks = {check.name: check for check in check_folder(folder).checks}
    assert (checks["weights"].status, checks["weights"].advice) == ("FAILED", "get the folder again")
    assert checks["reading"].status == "not done"


def test_several_problems_are_told_at_once_and_long_lists_are_cut(folder):
    def change(state):
        for name in [name for name in state if name.startswith("character_encoder")]:
            state[f"other.{name}"] = state.pop(name)

    change_weights(folder, change)
    with pytest.raises(ValueError, match=r"17 missing \(.*and 12 more\); 17 unexpected \(.*and 12 more\)\."):
        load_checked(folder)


def test_an_encoder_can_be_taken_out_of_a_model_with_a_head_but_no_head_is_made_up(tmp_path):
    tagger = save(tmp_path / "tagger", ElmoForTokenClassification, num_labels=3)
    encoder = load_checked(tagger, ElmoModel)
    assert torch.equal(encoder.state_dict()[BIAS], load_file(tagger / "model.safetensors")[f"elmo.{BIAS}"])
    message = r"holds a ElmoForTokenClassification; loaded as {} .* no weights for {}"
    with pytest.raises(ValueError, match=message.format("ElmoForPreTraining", "softmax.bias, softmax.weight")):
        load_checked(tagger, ElmoForPreTraining)
    with pytest.raises(ValueError, match=message.format("ElmoForTokenClassification", "classifier.bias, classifier")):
        load_checked(tagger, num_labels=4)


def test_fields_of_the_config_may_be_changed_if_no_weight_is_made_up(tmp_path):
    folder = save(tmp_path / "warm", initial_state="warm")
    assert load_checked(folder, initial_state="zero").config.initial_state == "zero"
    assert load_checked(folder, layer_combination="top").config.layer_combination == "top"
    change_json(folder, initial_state="zero")
    load_checked(folder)  # the stored state is left where it is, as by from_pretrained


def test_other_precisions(whole, tmp_path):
    shrink(whole, tmp_path / "half")
    assert load_checked(tmp_path / "half", checksums=True).dtype == torch.float32
    assert load_checked(tmp_path / "half", dtype=torch.float16).dtype == torch.float16
    assert "stored in float16" in the_check(tmp_path / "half", "weights").found
    model = load_checked(tmp_path / "half", quantize="int8")
    assert is_quantized(model)
    with torch.no_grad():
        batch = ElmoTokenizer()("A sentence.", return_tensors="pt")
        assert model(**batch).last_hidden_state.isfinite().all()


def test_numbers_that_the_precision_does_not_hold_are_refused(folder):
    change_weights(folder, lambda state: state[BIAS][-1:].fill_(1e6))
    load_checked(folder)
    with pytest.raises(ValueError, match=rf"{BIAS} of .* do not fit torch.float16: choose dtype=torch.float32"):
        load_checked(folder, dtype=torch.float16)


def test_checksums_on_request(folder):
    (folder / "README.md").write_text("changed")
    load_checked(folder)
    with pytest.raises(ValueError, match=r"README\.md has the SHA-256 .*, but SHA256SUMS says"):
        load_checked(folder, checksums=True)


def cut_in_two(folder):
    """Stores the weights in two files with an index, as transformers does with large ones."""
    model = ElmoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size=3000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    finish_folder(folder)


def test_weights_in_several_files(folder):
    cut_in_two(folder)
    load_checked(folder, checksums=True)
    assert set(statuses(folder).values()) == {"ok"}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    first = index["weight_map"][BIAS]
    other = next(file for file in index["weight_map"].values() if file != first)
    broken = {
        "differ. Get the folder again": index["weight_map"] | {BIAS: other},
        r"is said to be in '\.\./model\.safetensors', which is not a file": {BIAS: "../model.safetensors"},
        "is not an index of weights": ["nothing"],
        r"nowhere\.safetensors is missing, but": index["weight_map"] | {"a": "nowhere.safetensors"},
    }
    for reason, places in broken.items():
        change_json(folder, "model.safetensors.index.json", weight_map=places)
        with pytest.raises((ValueError, FileNotFoundError), match=reason):
            load_checked(folder)
        assert the_check(folder, "weights").status == "FAILED"


def test_pickles_and_damaged_files_are_not_read(folder):
    content = (folder / "model.safetensors").read_bytes()
    for damaged in (content[:-4], b"", content[:8] + b"x" + content[9:]):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"model\.safetensors cannot be read as safetensors .* Get the file again"
        ):
            load_checked(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"has neither .* not read: pickles can run code"):
        load_checked(folder)
    finish_folder(folder)
    assert the_check(folder, "weights").status == "FAILED"
    check = the_check(folder, "files")
    assert check.status == "warning"
    assert "pytorch_model.bin may be pickles" in check.found


def test_what_is_no_folder_of_elmo_is_refused(folder, tmp_path):
    for place in (tmp_path / "nowhere", "./nowhere", "a/b/c"):
        with pytest.raises(FileNotFoundError, match="There is no folder"):
            load_checked(place)
    change_json(folder, architectures=["BertModel"])
    with pytest.raises(ValueError, match=r"its model is a 'BertModel'; hf_elmo has ElmoModel, ElmoForPreTraining"):
        load_checked(folder)

    class BertModel(ElmoModel):
        """A class of one's own."""

    assert type(load_checked(folder, BertModel)) is BertModel
    change_json(folder, model_type="bert")
    with pytest.raises(ValueError, match="says model_type 'bert'"):
        load_checked(folder)


def test_repositories_on_the_hub_are_fetched_first(whole, monkeypatch):
    asked = []

    def fetch(name, allow_patterns, **options):
        asked.append((name, allow_patterns, options))
        return str(whole)

    monkeypatch.setattr("hf_elmo.checked_loading.snapshot_download", fetch)
    load_checked("someone/elmo", revision="main")
    load_checked("elmo", checksums=True)
    assert asked == [("someone/elmo", ["*.json", "*.safetensors"], {"revision": "main"}), ("elmo", None, {})]


# --- hf-elmo verify --------------------------------------------------------------------------------------------------


def test_the_model_of_the_package_is_whole():
    report = check_folder(ELMO_MINI)
    assert {check.name for check in report.checks} == set(CHECKS)
    assert {check.status for check in report.checks} == {"ok"}, str(report)


def run(capsys, *argv):
    code = cli.main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(folder, capsys, tmp_path):
    code, out, err = run(capsys, "verify", folder, "--quiet", "--json", tmp_path / "report.json")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"folder: {folder}"
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[name, "ok"] for name in CHECKS]
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["passed"] is True
    assert [check["status"] for check in record["checks"]] == ["ok"] * len(CHECKS)
    assert record["hf_elmo"] == hf_elmo.__version__

    change_weights(folder, lambda state: state.pop(BIAS))
    code, out, err = run(capsys, "verify", folder, "--quiet", "--json", tmp_path / "report.json")
    assert (code, out) == (1, "")
    assert "exists. Choose another name, or give --overwrite" in err
    code, out, err = run(capsys, "verify", folder, "--quiet", "--json", tmp_path / "report.json", "--overwrite")
    assert code == 1
    assert "FAILED    they are not those of the ElmoModel that config.json describes: 1 missing" in out
    assert "-> get the folder again" in out
    assert err == f"hf-elmo: error: {folder} is not whole: 1 of {len(CHECKS)} checks failed.\n"
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is False
    code, _, err = run(capsys, "verify", tmp_path / "nowhere")
    assert (code, err) == (1, f"hf-elmo: error: There is no folder {tmp_path / 'nowhere'}.\n")


def test_warnings_do_not_fail(folder, capsys):
    (folder / "SHA256SUMS").unlink()
    (folder / "README.md").unlink()
    code, out, _ = run(capsys, "verify", folder, "--quiet")
    assert code == 0
    assert "checksums  warning   no checksums: there is no SHA256SUMS" in out
    assert "files      warning   there is no model card, README.md" in out


def test_a_changed_byte_is_found(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    found = statuses(folder)
    assert (found.pop("checksums"), set(found.values())) == ("FAILED", {"ok"})


BROKEN_CONFIGS = {
    "not valid JSON": "{",
    "appears twice": '{"model_type": "elmo", "model_type": "elmo"}',
    "NaN is not a JSON number": '{"model_type": "elmo", "cell_clip": NaN}',
    "must hold one JSON object": "[]",
    "more than 16,777,216 bytes": '{"a": "' + "x" * 2**24 + '"}',
    "nested too deeply": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "says model_type None": "{}",
    "cell_size=-1 is not possible": '{"model_type": "elmo", "cell_size": -1}',
    "cell_size=1000000000000 is not possible": '{"model_type": "elmo", "cell_size": 1000000000000}',
    "num_labels=1000000000000 is not possible": '{"model_type": "elmo", "num_labels": 1000000000000}',
    "id2label={'a': 'b'} is not possible": '{"model_type": "elmo", "id2label": {"a": "b"}}',
    "dtype='load' is not possible": '{"model_type": "elmo", "dtype": "load"}',
    "num_hidden_layers=1001 is not possible": '{"model_type": "elmo", "num_hidden_layers": 1001}',
    "char_cnn_filters has 1,001 entries": '{"model_type": "elmo", "char_cnn_filters": ['
    + "[1, 1], " * 1000
    + "[1, 1]]}",
    "Field 'cell_size' expected int, got str": '{"model_type": "elmo", "cell_size": "64"}',
    "says architectures 'ElmoModel'; it must be a list": '{"model_type": "elmo", "architectures": "ElmoModel"}',
    "its model is a 'Other'": '{"model_type": "elmo", "architectures": ["Other"]}',
}


@pytest.mark.parametrize("reason", BROKEN_CONFIGS)
def test_broken_configs_are_told_before_anything_is_made(folder, reason):
    (folder / "config.json").write_text(BROKEN_CONFIGS[reason])
    finish_folder(folder)
    report = check_folder(folder)
    checks = {check.name: check for check in report.checks}
    assert checks["config"].status == "FAILED"
    assert reason in checks["config"].found
    assert "\n" not in checks["config"].found
    assert checks["weights"].status == "not done"
    assert not report.passed


def test_misspelled_fields_are_told(folder):
    change_json(folder, cell_clipp=3.0)
    check = the_check(folder, "config")
    assert (check.status, check.found) == ("warning", "config.json has cell_clipp, which no ELMo model reads")


def code_is_foreign(folder, what):
    finish_folder(folder)
    check = the_check(folder, "code")
    assert check.status == "FAILED"
    assert what in check.found
    assert "trust_remote_code" in check.found + check.advice


def test_code_that_is_not_the_packages_is_found(folder):
    path = folder / "modeling_elmo.py"
    own = path.read_bytes()
    path.write_bytes(own + b"\n")
    code_is_foreign(folder, f"modeling_elmo.py differ from hf-elmo {hf_elmo.__version__}")
    path.write_bytes(own)
    (folder / "helper.py").write_text("import os")
    code_is_foreign(folder, "helper.py is code that is not hf-elmo's")
    (folder / "helper.py").unlink()
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    change_json(folder, auto_map=auto_map | {"AutoModel": "someone/else--modeling.Model"})
    code_is_foreign(folder, "someone/else--modeling.Model is code")
    change_json(folder, auto_map=auto_map)
    change_json(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": ["other.Tokenizer", None]})
    code_is_foreign(folder, "other.Tokenizer is code")
    change_json(folder, "tokenizer_config.json", auto_map=7, custom_pipelines=[{"a": {"impl": "pipe.Line"}}])
    code_is_foreign(folder, "7, pipe.Line is code")


def test_missing_code_is_told(folder):
    (folder / "crf.py").unlink()
    finish_folder(folder)
    check = the_check(folder, "code")
    assert (check.status, check.found) == ("FAILED", "crf.py are missing beside the other code")
    for name in CODE_FILES:
        (folder / name).unlink(missing_ok=True)
    finish_folder(folder)
    assert the_check(folder, "code").found == "auto_map names code that is not in the folder"


def test_code_of_the_folder_is_not_run(folder, tmp_path):
    """Every code file of the folder would leave a trace; so would a pickle."""
    trace = tmp_path / "trace"
    for name in CODE_FILES:
        (folder / name).write_text(f"open({str(trace)!r}, 'w').write('ran')\n")
    finish_folder(folder)
    assert statuses(folder)["code"] == "FAILED"
    load_checked(folder, checksums=True)
    assert not trace.exists()
    subprocess.run([sys.executable, folder / "crf.py"], check=True)
    assert trace.exists()


def test_tokenizers_that_do_not_fit_are_told(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\nbank\n")
    words = ElmoTokenizer(tmp_path / "vocab.txt")
    cases = {
        "vocab_size is 6 in the tokenizer and 9 in the config": (ElmoForPreTraining, words, {"vocab_size": 9}),
        "pad_token_id is 5 in the tokenizer and 2 in the config": (
            ElmoModel,
            words,
            {"vocab_size": 6, "pad_token_id": 2, "word_input": "words", "word_embedding_size": 5},
        ),
        "max_characters_per_token is 20 in the tokenizer and 50 in the config": (
            ElmoModel,
            ElmoTokenizer(max_characters_per_token=20),
            {},
        ),
        "word_vector_vocab_size is 0 in the tokenizer and 7 in the config": (
            ElmoForTokenClassification,
            None,
            {"word_vector_size": 2, "word_vector_vocab_size": 7},
        ),
    }
    for number, (reason, (model_class, tokenizer, settings)) in enumerate(cases.items()):
        folder = save(tmp_path / str(number), model_class, tokenizer, **settings)
        check = the_check(folder, "tokenizer")
        assert (check.status, reason in check.found) == ("FAILED", True), check
        assert check.advice == "give the folder the tokenizer that the model came with"


def test_code_points_must_fit(tmp_path):
    characters = ElmoCharacters((*"abcde", "<bos>", "<eos>", "<bow>", "<eow>", "<pad>", "<unk>"), 6, 7, 8, 9, 10, 11)
    tokenizer = ElmoTokenizer(max_characters_per_token=12)
    tokenizer.set_characters(characters)
    settings = {"char_vocab_size": 12, "character_markers": [6, 7, 8, 9, 10], "max_characters_per_token": 12}
    assert the_check(save(tmp_path / "fits", ElmoModel, tokenizer, **settings), "tokenizer").status == "ok"
    wrong = settings | {"char_vocab_size": 13, "character_markers": [7, 6, 8, 9, 10]}
    check = the_check(save(tmp_path / "not", ElmoModel, tokenizer, **wrong), "tokenizer")
    assert "char_vocab_size is 12 in the tokenizer and 13 in the config; character_markers is [6, 7" in check.found


def test_vocabularies_of_models_that_do_not_read_them_are_a_warning(tmp_path):
    check = the_check(save(tmp_path / "elmo", vocab_size=9), "tokenizer")
    assert check.status == "warning"
    assert "vocab_size is 4 in the tokenizer and 9 in the config" in check.found


def test_missing_and_broken_tokenizers_are_told(folder):
    change_json(folder, "tokenizer_config.json", tokenizer_class="BertTokenizer")
    assert "tokenizer_class 'BertTokenizer', not 'ElmoTokenizer'" in the_check(folder, "tokenizer").found
    (folder / "tokenizer.json").write_text("{}")
    finish_folder(folder)
    check = the_check(folder, "tokenizer")
    assert check.status == "FAILED"
    assert "the tokenizer cannot be loaded" in check.found
    (folder / "tokenizer.json").unlink()
    finish_folder(folder)
    found = statuses(folder)
    assert (found["tokenizer"], found["reading"]) == ("warning", "not done")
    assert check_folder(folder).passed


def test_weights_that_say_nothing_are_told(folder):
    change_weights(folder, lambda state: [weight.zero_() for weight in state.values()])
    check = the_check(folder, "reading")
    assert (check.status, check.found) == ("warning", "all words have the same vector")


def test_numbers_that_overflow_are_told(folder):
    change_weights(folder, lambda state: state["mixes.0.gamma"].fill_(3e38))
    change_weights(folder, lambda state: state["character_encoder.projection.bias"].fill_(3e38))
    check = the_check(folder, "reading")
    assert check.status == "FAILED"
    assert "vectors of some sentences holds NaN or infinite values" in check.found


def test_answers_that_change_are_told(folder, monkeypatch):
    forward = ElmoModel.forward

    def noisy(self, *args, **kwargs):
        outputs = forward(self, *args, **kwargs)
        outputs.last_hidden_state = outputs.last_hidden_state + torch.randn(())
        return outputs

    monkeypatch.setattr(ElmoModel, "forward", noisy)
    assert "differs from call to call" in the_check(folder, "reading").found


def test_weights_that_are_not_read_are_told(folder):
    shutil.copy(folder / "model.safetensors", folder / "other.safetensors")
    finish_folder(folder)
    check = the_check(folder, "weights")
    assert check.status == "warning"
    assert "other.safetensors is not read" in check.found
