"""hf-elmo export onnx: the same numbers as torch at any shape, smaller weights, and the command."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tiny import SENTENCES, random_model, tiny_config, words_of

from hf_elmo import ElmoModel, ElmoTokenizer, quantize
from hf_elmo.cli import main
from hf_elmo.conversion import onnx_export, onnx_heads
from hf_elmo.conversion.onnx_export import MODELS, TASKS, build, export_onnx, largest_of, random_arrays, torch_outputs
from hf_elmo.conversion.onnx_graph import OPSET
from hf_elmo.elmo_onnx import ElmoOnnx
from hf_elmo.hub import verify_checksums
from hf_elmo.scripts import bench_onnx

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
TASK_PARTS = {
    "word_vector_size": 3,
    "word_vector_vocab_size": 9,
    "task_lstm_size": 5,
    "task_lstm_layers": 2,
    "elmo_at_output": True,
}
WORDS = {"word_input": "words", "word_embedding_size": 3, "vocab_size": 20}
BOTH = {"word_input": "both", "word_embedding_size": 3, "vocab_size": 20}
CASES = [
    ("features", {}),
    ("features", {**BOTH, "mix_layer_norm": "token", "num_output_representations": 2, "use_alignment": True}),
    ("features", {**WORDS, "mix_layer_norm": "batch"}),
    ("features", {"layer_combination": "average", "char_cnn_activation": "tanh", "use_skip_connections": False}),
    ("features", {"layer_combination": "top", "cell_clip": None, "projection_clip": None}),
    (
        "features",
        {
            "layer_combination": 1,
            "project_cells": False,
            "project_words": False,
            "projection_size": 16,
            "cell_size": 16,
        },
    ),
    ("features", {"initial_state": "warm", "num_hidden_layers": 3}),
    ("lm", {"vocab_size": 30}),
    ("lm", {"vocab_size": 30, "softmax": "adaptive", "softmax_cutoffs": [10]}),
    ("token-classification", {"id2label": LABELS}),
    ("token-classification", {"id2label": LABELS, "use_crf": True, "crf_scheme": "BIO", **TASK_PARTS}),
    ("token-classification", {"id2label": LABELS, "use_crf": True, "predicate_embedding_size": 2, **WORDS}),
    ("token-classification", {"use_elmo": False, "word_vector_size": 3, "word_vector_vocab_size": 9}),
    ("question-answering", {"num_sentences": 2, **TASK_PARTS}),
    ("multiple-choice", {"pooling": "boundary"}),
    ("multiple-choice", {"num_sentences": 2, **TASK_PARTS}),
    *(
        ("sequence-classification", {"pooling": pooling, "num_labels": 3, **parts})
        for pooling in ("mean", "max", "mean_max", "boundary")
        for parts in ({}, {"num_sentences": 2, **TASK_PARTS})
    ),
]


def model_for(task, **settings):
    model = random_model(tiny_config(**settings), model_class=MODELS[task][0])
    if settings.get("initial_state") == "warm":
        model.warm_hidden.normal_()
        model.warm_cell.normal_()
    if settings.get("use_alignment"):
        model.alignment.matrix.normal_(std=0.3)
    return model


def session_of(exported):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(exported.SerializeToString(), options)


def exported(task, model, **options):
    return build(model, task, ElmoTokenizer(), **options)


def random_shapes(seed, count=20):
    generator = np.random.default_rng(seed)
    return [(int(generator.integers(1, 9)), int(generator.integers(1, 31))) for _ in range(count)]


def batch_of(config, shape, generator):
    """A batch with padding on either side, holes, rows without words, and fewer characters, by chance."""
    arrays = random_arrays(config, *shape, generator)
    mask = arrays["attention_mask"]
    if config.num_sentences == 1:
        kind = generator.integers(4)
        if kind == 1:
            arrays = {name: array[:, ::-1].copy() for name, array in arrays.items()}  # padded on the left
        elif kind == 2:
            arrays["attention_mask"] = mask * generator.integers(0, 2, mask.shape)
        elif kind == 3:
            arrays["character_ids"][generator.random(mask.shape) < 0.3] = 0
    return arrays


def largest_difference(session, task, model, shapes, seed=1):
    """Over batches of these shapes, of any value, relative to the largest if it is above 1."""
    generator = np.random.default_rng(seed)
    names = [value.name for value in session.get_inputs()]
    worst = 0.0
    for shape in shapes:
        arrays = batch_of(model.config, shape, generator)
        expected = torch_outputs(model, task, arrays)
        found = session.run(list(expected), {name: arrays[name] for name in names})
        for array, (name, right) in zip(found, expected.items(), strict=True):
            assert array.shape == right.shape, f"{name} has the shape {array.shape}, not {right.shape}"
            scale = max(1.0, largest_of(right))
            worst = max(worst, float(np.abs(array - right).max(initial=0)) / scale)
    return worst


# --- The same numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "settings"), CASES)
def test_equals_torch_at_any_shape(task, settings):
    model = model_for(task, **settings)
    model_proto = exported(task, model)
    onnx.checker.check_model(model_proto, full_check=True)
    assert largest_difference(session_of(model_proto), task, model, random_shapes(seed=7)) <= 1e-5


def test_the_batches_have_all_kinds_of_padding():
    generator = np.random.default_rng(1)
    seen = set()
    for shape in random_shapes(seed=7):
        arrays = batch_of(tiny_config(), shape, generator)
        mask = arrays["attention_mask"].astype(bool)
        steps = np.diff(np.pad(mask.astype(int), ((0, 0), (1, 1))), axis=1)
        seen |= {"empty"} if not mask.any(axis=1).all() else set()
        seen |= {"left"} if (~mask[:, 0] & mask[:, -1]).any() else set()
        seen |= {"right"} if (mask[:, 0] & ~mask[:, -1]).any() else set()
        seen |= {"hole"} if ((steps == 1).sum(axis=1) > 1).any() else set()
        seen |= {"no characters"} if (mask & ~arrays["character_ids"].any(axis=2)).any() else set()
    assert seen == {"empty", "left", "right", "hole", "no characters"}


FROZEN = 7
# What onnxruntime raises when a node cannot go on; older ones raise the second.
REFUSED = (
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
)


class SilentlyFrozen(onnx_heads.Inputs):
    """Reads the first words of each sentence only, as a loop that was unrolled would."""

    def __init__(self, graph, config):
        super().__init__(graph, config)
        length = graph("Slice", self.attended.sizes, graph.integers(0), graph.integers(1))
        numbers = graph("Range", graph.integer(0), graph("Squeeze", length), graph.integer(1))
        early = graph("Unsqueeze", graph("Less", numbers, graph.integer(FROZEN)), graph.integers(1))
        self.attended.mask = graph("And", self.attended.mask, early)


class FrozenShape(onnx_heads.Inputs):
    """Takes the shape of the batch that it was made with for that of all batches."""

    def __init__(self, graph, config):
        super().__init__(graph, config)
        self.attended.sizes = graph.integers(FROZEN, 3)


def test_a_frozen_length_would_be_seen(monkeypatch):
    model = model_for("features")
    for frozen in (SilentlyFrozen, FrozenShape):
        monkeypatch.setattr(onnx_heads, "Inputs", frozen)
        session = session_of(exported("features", model))
        assert largest_difference(session, "features", model, [(3, FROZEN)]) <= 1e-5
        if frozen is SilentlyFrozen:
            assert largest_difference(session, "features", model, random_shapes(seed=7)) > 1e-2
        else:
            with pytest.raises(REFUSED, match="Reshape"):
                largest_difference(session, "features", model, random_shapes(seed=7))


def test_a_frozen_export_is_refused(monkeypatch, tmp_path):
    folder = save(tmp_path, "features")
    monkeypatch.setattr(onnx_heads, "Inputs", SilentlyFrozen)
    with pytest.raises(ValueError, match=r"differs from torch by .*nothing was written"):
        export_onnx(folder, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize("task", ["features", "lm"])
def test_state_goes_in_and_comes_out(task):
    model = model_for(task, vocab_size=30)
    session = session_of(exported(task, model))
    generator = np.random.default_rng(3)
    state = None
    for columns in (4, 9, 1):
        arrays = random_arrays(model.config, 5, columns, generator)
        expected = torch_outputs(model, task, arrays, state)
        feeds = {name: arrays[name] for name in ("character_ids", "attention_mask")}
        if state is not None:
            feeds |= {"initial_hidden": state[0], "initial_cell": state[1]}
        found = dict(zip(expected, session.run(list(expected), feeds), strict=True))
        for name, right in expected.items():
            np.testing.assert_allclose(found[name], right, atol=1e-5, rtol=0)
        state = found["final_hidden"], found["final_cell"]
    assert np.abs(state[1]).max() > 0.1


def test_rounding_is_not_larger_than_that_of_torch():
    """Sums of the published sizes round more than those of tiny models; double precision tells how much is right."""
    config = tiny_config(cell_size=2048, projection_size=256, cell_clip=3.0, projection_clip=3.0)
    model = random_model(config)
    session = session_of(exported("features", model))
    arrays = random_arrays(config, 3, 25, np.random.default_rng(2))
    feeds = {name: arrays[name] for name in ("character_ids", "attention_mask")}
    of_torch = torch_outputs(model, "features", arrays)
    found = dict(zip(of_torch, session.run(list(of_torch), feeds), strict=True))
    exact = torch_outputs(model.double(), "features", arrays)
    for name, right in exact.items():
        assert right.dtype == np.float64
        ours, theirs = (np.abs(values[name] - right) for values in (found, of_torch))
        assert ours.max() <= 1e-5 * max(1.0, largest_of(right))
        assert ours.max() <= 2 * theirs.max()
        assert ours.mean() <= 1.2 * theirs.mean()


def test_words_may_have_fewer_characters():
    model = model_for("features")
    session = session_of(exported("features", model))
    inputs = ElmoTokenizer()(["A cat sat", "Hi"], padding=True, return_tensors="np")
    feeds = {name: inputs[name] for name in ("character_ids", "attention_mask")}
    whole = session.run(["last_hidden_state"], feeds)[0]
    feeds["character_ids"] = feeds["character_ids"][:, :, :5]
    np.testing.assert_allclose(session.run(["last_hidden_state"], feeds)[0], whole, atol=1e-6, rtol=0)
    feeds["character_ids"] = np.ones((2, 5, 51), dtype=np.int64)
    with pytest.raises(REFUSED, match="50 by 51"):
        session.run(["last_hidden_state"], feeds)


# --- Smaller weights -------------------------------------------------------------------------------------------------


def arrays_of(sentences):
    return dict(ElmoTokenizer()(words_of(sentences), is_split_into_words=True, padding=True, return_tensors="np"))


def layers_of(model, arrays):
    with torch.no_grad():
        outputs = model(**{name: torch.from_numpy(array) for name, array in arrays.items()}, output_hidden_states=True)
    return torch.stack(outputs.hidden_states).numpy()


def test_int8_is_that_of_torch():
    model = random_model(tiny_config(cell_size=64, projection_size=32))
    arrays = arrays_of(SENTENCES)
    exact = layers_of(model, arrays)
    proto = exported("features", model, int8=True)
    feeds = {name: arrays[name] for name in ("character_ids", "attention_mask")}
    found = session_of(proto).run(["hidden_states"], feeds)[0]
    packed = layers_of(quantize(model, "int8"), arrays)
    apart = np.abs(packed - exact).max()
    assert 1e-3 < apart < 0.1
    assert np.abs(found - exact).max() < 1.5 * apart
    assert np.abs(found - packed).mean() < 0.5 * np.abs(packed - exact).mean()  # both make the same mistakes


def test_int8_vectors_do_not_depend_on_the_batch():
    model = random_model()
    session = session_of(exported("features", model, int8=True))

    def read(sentences):
        arrays = arrays_of(sentences)
        feeds = {name: arrays[name] for name in ("character_ids", "attention_mask")}
        return session.run(["last_hidden_state"], feeds)[0]

    together, alone = read(SENTENCES), read(SENTENCES[1:2])
    np.testing.assert_allclose(together[1, : alone.shape[1]], alone[0], atol=1e-6, rtol=0)


def test_half_precision_is_only_stored():
    model = random_model(tiny_config(cell_size=64, projection_size=32))
    arrays = arrays_of(SENTENCES)
    feeds = {name: arrays[name] for name in ("character_ids", "attention_mask")}
    proto = exported("features", model, float16=True)
    found = session_of(proto).run(["hidden_states"], feeds)[0]
    assert found.dtype == np.float32
    assert 1e-6 < np.abs(found - layers_of(model, arrays)).max() < 5e-3
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.half())
    np.testing.assert_allclose(found, layers_of(model, arrays), atol=1e-5, rtol=0)


def test_sizes():
    model = random_model(tiny_config(cell_size=256, projection_size=64))
    sizes = {
        name: exported("features", model, **options).ByteSize()
        for name, options in {"float32": {}, "float16": {"float16": True}, "int8": {"int8": True}}.items()
    }
    assert sizes["float16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < 0.32 * sizes["float32"]


# --- Folders and the command -----------------------------------------------------------------------------------------


def save(folder, task, **settings):
    model = model_for(task, **settings)
    model.save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    return folder / "model"


@pytest.mark.parametrize("task", TASKS)
def test_folder(tmp_path, task):
    folder = save(tmp_path, task, id2label=LABELS, vocab_size=4)
    report = export_onnx(folder, tmp_path / "onnx")
    assert report.task == task
    assert report.difference <= 1e-5
    files = {path.name for path in (tmp_path / "onnx").iterdir()}
    expected = {
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenization_elmo.py",
        "word_splitting.py",
        "README.md",
        "SHA256SUMS",
        "config.json",
        "elmo_onnx.py",
        "elmo_server.py",
        "elmo_batches.py",
        "model.onnx",
    }
    assert files == expected
    verify_checksums(tmp_path / "onnx")
    model = onnx.load(tmp_path / "onnx" / "model.onnx")
    assert {opset.domain: opset.version for opset in model.opset_import} == {"": OPSET}
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["hf_elmo_task"] == task
    assert json.loads(metadata["config"])["projection_size"] == 6
    assert json.loads(metadata["labels"]) == (list(LABELS.values()) if task.endswith("classification") else [])
    assert str(tmp_path) not in str(metadata) + (tmp_path / "onnx" / "README.md").read_text()
    assert not any("Loop" in node.op_type or node.op_type == "LSTM" for node in model.graph.node)


def test_vectors_of_a_model_with_a_head(tmp_path):
    folder = save(tmp_path, "token-classification", id2label=LABELS)
    assert export_onnx(folder, tmp_path / "onnx", "features").task == "features"
    expected = layers_of(ElmoModel.from_pretrained(folder), arrays_of(SENTENCES))
    found = ElmoOnnx(tmp_path / "onnx").run(arrays_of(SENTENCES), ["hidden_states"])["hidden_states"]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_weights_that_one_file_cannot_hold(tmp_path, monkeypatch):
    folder = save(tmp_path, "features")
    monkeypatch.setattr(onnx_export, "LARGEST_FILE", 1000)
    report = export_onnx(folder, tmp_path / "onnx")
    weights = tmp_path / "onnx" / "model.onnx.data"
    assert report.num_bytes == weights.stat().st_size + (tmp_path / "onnx" / "model.onnx").stat().st_size
    assert report.difference <= 1e-5


def test_command(tmp_path, capsys):
    folder = save(tmp_path, "features")
    arguments = ["export", "onnx", str(folder), "--output", str(tmp_path / "onnx"), "--quiet"]
    assert main([*arguments, "--int8", "--fp16-storage"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("parity: max |difference| ")
    assert first.endswith(" in 4 batches")
    assert second.startswith("features, int8 and float16, 0.")
    assert second.endswith(f" MB: {tmp_path / 'onnx' / 'model.onnx'}")
    assert main(arguments) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    assert "features, float32, " in capsys.readouterr().out


def test_tasks_that_a_folder_does_not_have(tmp_path):
    folder = save(tmp_path, "features")
    with pytest.raises(ValueError, match=r"holds a ElmoModel, which has no weights for --task lm"):
        export_onnx(folder, tmp_path / "onnx", "lm")
    with pytest.raises(ValueError, match=r"task='tagging' is not possible: it is one of features, token-class"):
        export_onnx(folder, tmp_path / "onnx", "tagging")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["ElmoForParsing"]}))
    with pytest.raises(ValueError, match=r"holds a ElmoForParsing.*choose --task features"):
        export_onnx(folder, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["bench", "--quick", "--threads", "1", "--output", str(tmp_path / "bench_onnx.json")]
    )
    bench_onnx.main()
    figures = json.loads((tmp_path / "bench_onnx.json").read_text())
    assert figures["command"] == "python -m hf_elmo.scripts.bench_onnx --quick --threads 1 --output bench_onnx.json"
    assert figures["bytes"]["tiny"]["onnx_int8"] < figures["bytes"]["tiny"]["onnx"]
    assert [result["words"] for result in figures["results"]] == [20, 1120, 2560]
    for result in figures["results"]:
        assert result["apart"]["onnx"] < 1e-5
        assert 0 < result["apart_from_float64"]["onnx"] < 1e-5 < result["apart_from_float64"]["onnx_int8"]
        assert 0 < result["apart_from_float64"]["torch"] < 1e-5
        assert set(result["seconds"]) == {"torch", "torch_int8", "onnx", "onnx_int8"}


def test_benchmark_of_a_model(tmp_path, monkeypatch, capsys):
    folder = save(tmp_path, "token-classification", id2label=LABELS)
    monkeypatch.setattr(bench_onnx, "works_of", lambda words: {"two words": [["A", "cat"]]})
    monkeypatch.setattr("sys.argv", ["bench", "--rounds", "1", "--threads", "1", "--model", str(folder)])
    bench_onnx.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("model     two words")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_package_is_named(capsys, monkeypatch, package):
    for name in ("onnx_export", "onnx_graph", "onnx_heads", "onnx_layers"):
        monkeypatch.delitem(sys.modules, f"hf_elmo.conversion.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", "onnx", "model", "--output", "onnx"]) == 1
    expected = f'This command needs {package}, which is not installed: pip install "hf-elmo[onnx]"'
    assert capsys.readouterr().err == f"hf-elmo: error: {expected}\n"
