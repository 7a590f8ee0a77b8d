"""The benchmarks: they run, programs that are compared agree, and what is written is complete."""

import argparse
import importlib
import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorflow_python import needs_tensorflow

from hf_elmo import ELMO_MINI, ElmoEmbedder
from hf_elmo.scripts import (
    bench_all,
    bench_inference,
    bench_loading,
    bench_quantization,
    bench_scaling,
    bench_tokenizer,
    bench_training,
    measuring,
)
from hf_elmo.scripts.results_table import speed_table

CONLLU = "# text = Do n't go\n1-2\tDon't\t_\n1\tDo\tdo\n2\tn't\tnot\n2.1\tbe\t_\n3\tgo\tgo\n\n1\tHi\thi\n"


@pytest.fixture(autouse=True)
def threads():
    """The programs decide how many threads torch has in their process."""
    yield
    torch.set_num_threads(1)


def run_quickly(program, folder, *options) -> dict:
    """What a benchmark writes into the folder."""
    name = program.__name__.rpartition(".")[2]
    threads = [] if program is bench_tokenizer else ["--threads", "1"]
    output = folder / f"{name}.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "_only_trying", False)
        patch.setattr("sys.argv", ["bench", "--quick", *threads, *map(str, options), "--output", str(output)])
        program.main()
    figures = json.loads(output.read_text())
    words = [*threads, *(os.path.basename(option) for option in map(str, options)), "--output", output.name]
    assert figures["command"] == f"python -m hf_elmo.scripts.{name} --quick {' '.join(words)}"
    assert figures["quick"] is True
    assert figures["threads"] == 1
    assert figures["processor"] == measuring.processor_name()
    assert output.with_suffix(".png").read_bytes()[1:4] == b"PNG"
    return figures


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="module")
def figures(folder):
    """What all benchmarks but the slow one write, each run once."""
    (folder / "text.conllu").write_text(CONLLU)
    measuring.write_random_models("tiny", folder / "model")
    options = {bench_inference: ["--conllu", folder / "text.conllu"]}
    options[bench_quantization] = ["--model", folder / "model" / "converted"]
    programs = (bench_inference, bench_loading, bench_quantization, bench_scaling, bench_tokenizer)
    return {program: run_quickly(program, folder, *options.get(program, [])) for program in programs}


def test_inference(figures):
    found = figures[bench_inference]
    assert [result["words"] for result in found["results"]] == [20, 1120, 2560, 4]
    assert found["file"] == "text.conllu"
    for result in found["results"]:
        assert result["apart"] < 1e-5
        assert result.get("apart_from_plain", 0) < 1e-5
        assert set(result["apart_from_float64"]) == {"allennlp", "hf_elmo"}
        assert all(1e-9 < distance < 1e-5 for distance in result["apart_from_float64"].values())
        assert result["ratio"]["lowest"] > 0
        assert set(result["peak_bytes"]) == {"allennlp", "hf_elmo"}
        assert result["fraction_of_peak"] < 1


def test_inference_in_the_middle_of_a_text(figures):
    *batches, file = figures[bench_inference]["results"]
    assert "remembering" not in file
    for result in batches:
        found = result["remembering"]
        assert found["apart"] < 1e-5
        assert 0 < found["new_words"]["lowest"] <= found["new_words"]["highest"] < 1
        assert found["ratio"]["median"] > 0
        assert found["batches"] == 1


def test_random_weights_are_like_trained_ones(tmp_path):
    measuring.write_random_models("small", tmp_path)
    larger = sizes_of_layers(tmp_path / "converted") / sizes_of_layers(ELMO_MINI)
    assert larger.min() > 1
    assert larger.max() < 1.6


def sizes_of_layers(model):
    """The root of the mean square of each LSTM layer, for text that people wrote."""
    words = Path(__file__).parents[1].joinpath("LICENSE").read_text(encoding="utf-8").split()[:1000]
    sentences = measuring.cut_into_sentences(words, itertools.repeat(20))
    layers = ElmoEmbedder.from_pretrained(model).encode(sentences, "all", show_progress=False)
    return np.sqrt(np.square(np.concatenate(layers, axis=1)).mean(axis=(1, 2)))[1:]


def test_batches_of_the_same_shape():
    batches = bench_inference.batches_like([["a"], ["b", "c"]], "one two three four five six seven".split())
    assert list(batches) == [[["one"], ["two", "three"]], [["four"], ["five", "six"]]]


def test_a_text_too_short_to_be_in_the_middle_of(tmp_path):
    measuring.write_random_models("tiny", tmp_path)
    programs = bench_inference.Programs(tmp_path)
    with pytest.raises(ValueError, match=r"after its first 2 words, .* there are 1, and a batch has 3. Take a longer"):
        programs.measure_remembering([["a"] * 3], ["x", "y"], ["z"], rounds=1)


def test_words_for_the_file():
    sentences = bench_inference.read_file(None, quick=True)
    assert sum(map(len, sentences)) == 500
    assert len({len(words) for words in sentences}) > 5


@pytest.mark.slow
@needs_tensorflow
def test_simple_elmo_reads_the_same(tmp_path):
    measuring.write_random_models("tiny", tmp_path)
    sentences = [["The", "cat", "sat"], ["Hi"]]
    seconds, theirs = bench_inference.run_simple_elmo(tmp_path, sentences, rounds=2, batch_size=2)
    assert len(seconds) == 2
    model = bench_inference.ElmoModel.from_pretrained(tmp_path / "converted")
    ours = bench_inference.vectors_of(bench_inference.our_read(model, "batch", sentences)())
    assert bench_inference.apart(ours, theirs) < 1e-5


def test_loading(figures):
    (result,) = figures[bench_loading]["results"]
    assert result["apart"] < 1e-5
    assert result["ratio"]["median"] > 0
    assert result["file_bytes"]["hf_elmo"] > 10_000


def test_quantization(figures):
    results = figures[bench_quantization]["results"]
    assert [result["quantize"] for result in results] == ["int8", "float16"]
    assert {result["size"] for result in results} == {"converted"}
    for result, most in zip(results, (0.05, 0.002), strict=True):
        assert len(result["errors"]) == 3
        for error in result["errors"]:
            assert 0 < error["mean_relative_error"] <= error["max_relative_error"] < most
            assert 1 - most < error["min_cosine"] <= error["mean_cosine"] <= 1 + 1e-9


def test_scaling(figures):
    found = figures[bench_scaling]
    assert [result["kind"] for result in found["results"]] == ["sentences", "one document"]
    for result in found["results"]:
        assert [point["words"] for point in result["points"]] == [100, 400, 1600]
        assert result["exponent"] < 1.5


def test_the_line_of_least_squares():
    assert bench_scaling.line([1, 2, 4], [5.0, 7.0, 11.0]) == pytest.approx((2.0, 3.0))


def test_tokenizer(figures):
    found = figures[bench_tokenizer]
    assert found["results"][0]["variant"] == "raw text"
    assert found["lines"] == 200


@pytest.mark.slow
def test_training(tmp_path):
    figures = run_quickly(bench_training, tmp_path)
    assert figures["apart"] < 1e-5
    assert figures["first_losses"]["hf_elmo"] > 1


def test_memory_is_measured_in_a_process_of_its_own():
    process, grown = measuring.in_a_process(bytes_of_a_tensor, 50_000_000)
    assert process != os.getpid()
    assert 50_000_000 <= grown < 60_000_000


def bytes_of_a_tensor(size):
    with measuring.peak_memory() as found:
        torch.ones(size, dtype=torch.uint8)
    return os.getpid(), found[0]


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (bench_inference, ["--rounds", "0"], "--rounds 0 is not possible: it must be 1 or more"),
        (bench_inference, ["--scale", "0"], "--scale 0.0 is not possible: it must be above 0"),
        (bench_scaling, ["--words", "7"], "--words [7] is not possible: a fit needs two different numbers"),
    ],
)
def test_impossible_options(monkeypatch, capsys, program, options, message):
    monkeypatch.setattr("sys.argv", ["bench", *options])
    with pytest.raises(SystemExit):
        program.main()
    assert message in capsys.readouterr().err


def test_a_text_that_is_too_short(tmp_path):
    (tmp_path / "short.txt").write_text("only four words here")
    with pytest.raises(ValueError, match=r"short.txt has 4 words; at least 4000 are needed"):
        measuring.read_words(tmp_path / "short.txt")
    (tmp_path / "empty.conllu").write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"empty.conllu has no sentence"):
        bench_inference.read_file(tmp_path / "empty.conllu", quick=False)


# --- All of them -----------------------------------------------------------------------------------------------------


def test_all_commands_parse(monkeypatch, tmp_path):
    """Each program knows the options that `make bench` gives it."""
    commands = []
    monkeypatch.setattr(bench_all.subprocess, "run", lambda command, check: commands.append(command))
    text = ["--text", "news.txt", "--conllu", "dev.conllu", "--simple-elmo"]
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--output", str(tmp_path), *text])
    assert bench_all.main() == 0
    assert [command[2].rpartition("_")[2] for command in commands] == list(bench_all.BENCHMARKS)

    class Parsed(Exception):
        pass

    def stop(parser):
        raise Parsed(parse_args(parser))

    parse_args = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    for command in commands:
        monkeypatch.setattr("sys.argv", command[2:])
        with pytest.raises(Parsed) as parsed:
            importlib.import_module(command[2]).main()
        assert parsed.value.args[0].output == tmp_path / f"{command[2].rpartition('.')[2]}.json"
    assert {"--conllu", "--simple-elmo"} <= set(commands[2])


def test_quick_figures_do_not_replace_results(monkeypatch, tmp_path, capsys):
    (tmp_path / "bench_inference.json").write_text("{}")
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--output", str(tmp_path)])
    with pytest.raises(SystemExit):
        bench_all.main()
    assert "has results; with --quick, give another folder" in capsys.readouterr().err


def test_make_bench_runs_all_of_them():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert "-m hf_elmo.scripts.bench_all --output results/speed" in makefile
    programs = {path.stem for path in Path(bench_all.__file__).parent.glob("bench_*.py")}
    assert programs - {"bench_all"} == {f"bench_{name}" for name in bench_all.BENCHMARKS}


def test_the_table_has_a_line_for_each_work(figures, folder, tmp_path):
    with pytest.raises(ValueError, match=r"bench_inference.json was written with --quick, which measures nothing"):
        speed_table(folder)
    for path in folder.glob("bench_*.json"):
        content = json.loads(path.read_text()) | {"quick": False}
        (tmp_path / path.name).write_text(re.sub('"(tiny|converted)"', '"small"', json.dumps(content)))
    table = speed_table(tmp_path).splitlines()
    assert len(table) == 2 + 4 + 1 + 2 + 2 + 1
    assert {line.count("|") for line in table} == {5}
    assert all(re.search(r"\d(x|\.\d\d,| words/s)", line) for line in table[2:])


def test_simple_elmo_has_lines_where_it_was_measured(figures, tmp_path):
    content = figures[bench_inference] | {"quick": False}
    content["results"] = [result | {"size": "small"} for result in content["results"]]
    for result, ratio in zip(content["results"], (2.25, 3.5), strict=False):
        result["ratio_simple_elmo"] = {"median": ratio}
    (tmp_path / "bench_inference.json").write_text(json.dumps(content))
    beside = [line for line in speed_table(tmp_path).splitlines() if "simple_elmo" in line]
    assert [line.split(" | ")[1] for line in beside] == ["2.2x", "3.5x"]
