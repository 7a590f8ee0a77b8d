"""`hf-elmo embed`: texts of every kind to files of every format, whole, in shards, resumed, by several processes."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from originals import elmo_options, original_elmo_embedder, write_random_weights
from safetensors import safe_open
from tiny import random_model

from hf_elmo import ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.conversion import convert_allennlp
from hf_elmo.embedder import ElmoEmbedder
from hf_elmo.embedding_files import EmbeddedSentence, WriterOptions, open_writer, read_safetensors

LINES = ["The cat sat .", "", "It's raining, isn't it?", "Ça va ?", "The cat sat .", "   "]
EXTENSION = {"safetensors": "safetensors", "hdf5": "hdf5", "parquet": "parquet", "npz": "npz"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    random_model().save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def embedder(model) -> ElmoEmbedder:
    return ElmoEmbedder.from_pretrained(model)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def embed(model: Path, *arguments: object) -> None:
    """Runs the command as the program does, but lets errors out."""
    from hf_elmo import cli

    parsed = cli.parse(["embed", "--model", str(model), "--quiet", "--device", "cpu", *map(str, arguments)])
    parsed.run(parsed)


def read(path: Path) -> dict[int, np.ndarray]:
    """The vectors of a file of any format."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {int(name): file[name] for name in file.files if name != "words"}
    if path.suffix == ".hdf5":
        with h5py.File(path) as file:
            return {int(name): file[name][...] for name in file if name != "sentence_to_index"}
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            return {int(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    rows = pyarrow.parquet.read_table(path).to_pylist()
    layers = sorted(name for name in rows[0] if name.startswith("layer_"))
    if layers:
        return {row["index"]: np.array([np.reshape(row[name], (-1, 12)) for name in layers]) for row in rows}
    return {row["index"]: np.reshape(row["vectors"], (-1, 12)) for row in rows}


def read_all(output: Path) -> dict[int, np.ndarray]:
    """The vectors of a file, or of a folder in the order of its manifest."""
    if output.is_file():
        return read(output)
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["complete"]
    found: dict[int, np.ndarray] = {}
    for shard in manifest["shards"]:
        part = read(output / shard["file"])
        assert sorted(part) == list(range(shard["first"], shard["first"] + shard["sentences"]))
        assert shard["first"] == len(found)
        found |= part
    assert manifest["sentences"] == len(found)
    return found


def assert_vectors(found: dict[int, np.ndarray], expected: list[np.ndarray], atol: float = 1e-6) -> None:
    assert sorted(found) == list(range(len(expected)))
    for number, vectors in enumerate(expected):
        assert found[number].shape == vectors.shape, number
        np.testing.assert_allclose(found[number], vectors, atol=atol, rtol=0)


def write(path: Path, sentences: list[EmbeddedSentence]) -> None:
    with open_writer(path, path.suffix[1:]) as writer:
        for sentence in sentences:
            writer.add(sentence)


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# --- Formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", EXTENSION)
@pytest.mark.parametrize("layers", ["mix", "all"])
def test_one_file_and_shards_of_every_format(model, embedder, text, tmp_path, format, layers):
    expected = embedder.encode(LINES, int(layers) if layers.isdecimal() else layers)
    assert expected[1].shape == ((0, 12) if layers == "mix" else (3, 0, 12))
    file = tmp_path / f"vectors.{EXTENSION[format]}"
    embed(model, text, "--output", file, "--layers", layers, "--shard-words", 6)
    assert_vectors(read_all(file), expected)
    assert not (tmp_path / f"{file.name}.parts").exists()
    embed(model, text, "--output", tmp_path / "shards", "--format", format, "--layers", layers, "--shard-words", 6)
    assert_vectors(read_all(tmp_path / "shards"), expected)
    assert len(list((tmp_path / "shards").iterdir())) > 3
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", file.name, "shards"}  # nothing is left behind


@pytest.mark.parametrize("format", EXTENSION)
def test_half_precision_and_one_layer(model, embedder, text, tmp_path, format):
    file = tmp_path / f"vectors.{EXTENSION[format]}"
    embed(model, text, "--output", file, "--layers", 1, "--dtype", "float16")
    found = read(file)
    assert_vectors(found, embedder.encode(LINES, 1, dtype="float16"), atol=0)
    if format != "parquet":
        assert {array.dtype for array in found.values()} == {np.dtype("float16")}


def test_pooled(model, embedder, text, tmp_path):
    embed(model, text, "--output", tmp_path / "mean.npz", "--pooling", "mean")
    assert_vectors(read(tmp_path / "mean.npz"), list(embedder.encode(LINES, pooling="mean")))
    embed(model, text, "--output", tmp_path / "mean.parquet", "--pooling", "mean", "--layers", "all")
    table = pyarrow.parquet.read_table(tmp_path / "mean.parquet")
    assert table.column_names == ["index", "text", "words", "layer_0", "layer_1", "layer_2"]
    expected = embedder.encode(LINES, "all", pooling="mean")
    np.testing.assert_allclose(np.array(table["layer_2"].to_pylist()), expected[:, 2], atol=1e-6)


def test_words_and_texts_are_in_the_files(model, embedder, text, tmp_path):
    words = [embedder.words(line) for line in LINES]
    stripped = [line.strip() for line in LINES]
    for format in ("safetensors", "parquet", "npz"):
        embed(model, text, "--output", tmp_path / f"vectors.{format}")
    sentences = list(read_safetensors(tmp_path / "vectors.safetensors"))
    assert [sentence.words for sentence in sentences] == words
    assert [sentence.text for sentence in sentences] == stripped
    table = pyarrow.parquet.read_table(tmp_path / "vectors.parquet")
    assert table["words"].to_pylist() == words
    assert table["text"].to_pylist() == stripped
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as file:
        assert json.loads(str(file["words"])) == words
        assert {entry.date_time[0] for entry in file.zip.infolist()} == {1980}  # equal runs write equal files


def test_parquet_is_read_by_datasets(model, embedder, text, tmp_path):
    import datasets

    embed(model, text, "--output", tmp_path / "vectors.parquet")
    loaded = datasets.Dataset.from_parquet(str(tmp_path / "vectors.parquet"), cache_dir=str(tmp_path / "cache"))
    np.testing.assert_allclose(loaded[2]["vectors"], embedder.encode(LINES)[2], atol=1e-6)
    assert loaded[1]["vectors"] == []


def test_many_rows_of_parquet(tmp_path):
    count = 2500  # more than are written at once
    with open_writer(tmp_path / "many.parquet", "parquet") as writer:
        for number in range(count):
            vectors = np.full((number % 3, 4), number, np.float32)
            writer.add(EmbeddedSentence(number, "\ud800", ["\ud800"] * (number % 3), vectors))
    table = pyarrow.parquet.read_table(tmp_path / "many.parquet")
    assert table["index"].to_pylist() == list(range(count))
    assert table["vectors"][2].as_py() == [[2.0] * 4] * 2
    assert table["words"][1].as_py() == ["?"]


def test_hdf5_has_the_layout_of_the_old_command(model, text, tmp_path):
    embed(model, text, "--output", tmp_path / "vectors.hdf5", "--layers", "all", "--split-words")
    with h5py.File(tmp_path / "vectors.hdf5") as file:
        assert set(file) == {*map(str, range(len(LINES))), "sentence_to_index"}
        assert (file["0"].shape, file["0"].dtype) == ((3, 4, 12), np.dtype("float32"))
        numbers = file["sentence_to_index"]
        assert numbers.shape == (1,)
        assert h5py.check_string_dtype(numbers.dtype).length is None
        assert json.loads(numbers[0]) == {
            "The cat sat .": "4", "": "5", "It's raining, isn't it?": "2", "Ça va ?": "3"
        }  # fmt: skip
    embed(model, text, "--output", tmp_path / "forgotten.h5", "--forget-sentences")
    with h5py.File(tmp_path / "forgotten.h5") as file:
        assert set(file) == set(map(str, range(len(LINES))))


@pytest.mark.parametrize("layers", ["all", "top", "average"])
def test_hdf5_is_what_the_old_command_wrote(tmp_path, layers):
    """The old program carries its state from batch to batch; in its first batch it is zero, as ours always is."""
    options, weights = write_random_weights(tmp_path / "original", elmo_options())
    convert_allennlp(options, weights, tmp_path / "model")
    lines = ["The cat sat on the mat .", "Hi", "Ça va ? 조용한 강둑", "The cat sat on the mat .", "a b c d e f g h i"]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    with text.open(encoding="utf-8") as opened:
        original_elmo_embedder()(str(options), str(weights)).embed_file(opened, str(tmp_path / "old.hdf5"), layers, 64)
    embed(tmp_path / "model", text, "--output", tmp_path / "new.hdf5", "--layers", layers, "--split-words")
    with h5py.File(tmp_path / "old.hdf5") as old, h5py.File(tmp_path / "new.hdf5") as new:
        assert set(old) == set(new)
        for name in old:
            assert (old[name].shape, old[name].dtype) == (new[name].shape, new[name].dtype)
            if name == "sentence_to_index":
                assert json.loads(old[name][0]) == json.loads(new[name][0])
            else:
                np.testing.assert_allclose(new[name], old[name], atol=1e-6, rtol=1e-5)


# --- Inputs ----------------------------------------------------------------------------------------------------------


def test_inputs_of_every_kind_give_the_same(model, embedder, tmp_path):
    sentences = [["The", "cat", "sat"], ["Hi"], ["Ça", "va"]]
    expected = embedder.encode(sentences)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, sentences)))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"tokens": words}) + "\n" for words in sentences))
    with gzip.open(tmp_path / "c.txt.gz", "wb") as file:
        file.write(b"\xef\xbb\xbf" + "\r\n".join(map(" ".join, sentences)).encode())
    columns = "".join("".join(f"O {word} x\n" for word in words) + "\n" for words in sentences)
    (tmp_path / "d.conll").write_text("-DOCSTART- -X- O\n\n" + columns)
    rows = [[f"{number}\t{word}" + "\t_" * 8 for number, word in enumerate(words, 1)] for words in sentences]
    rows[0].insert(0, "1-2\tThecat" + "\t_" * 8)
    (tmp_path / "e.conllu").write_text("\n\n".join("# text\n" + "\n".join(lines) for lines in rows) + "\n")
    runs = [["a.jsonl"], ["b.jsonl", "--column", "tokens"], ["c.txt.gz", "--split-words"]]
    for number, (name, *options) in enumerate([*runs, ["d.conll", "--column", "1"], ["e.conllu"]]):
        output = tmp_path / f"{number}.npz"
        embed(model, tmp_path / name, *options, "--output", output)
        assert_vectors(read(output), expected)


def test_a_data_set(model, embedder, tmp_path):
    import datasets

    sentences = [["The", "cat", "sat"], []]
    table = {"tokens": sentences, "text": [" ".join(words) for words in sentences]}
    datasets.DatasetDict({"test": datasets.Dataset.from_dict(table)}).save_to_disk(str(tmp_path / "data"))
    options = ["--input-format", "dataset", "--split", "test", "--output"]
    for column in table:
        embed(model, tmp_path / "data", *options, tmp_path / f"{column}.npz", "--column", column)
        assert_vectors(read(tmp_path / f"{column}.npz"), embedder.encode(sentences))
    with pytest.raises(ValueError, match="--column is missing"):
        embed(model, tmp_path / "data", *options, tmp_path / "x.npz")
    with pytest.raises(ValueError, match="no column 'words', only 'tokens', 'text'"):
        embed(model, tmp_path / "data", *options, tmp_path / "x.npz", "--column", "words")


def test_files_are_read_in_the_order_in_which_they_are_given(model, embedder, tmp_path):
    for name in "ba":
        (tmp_path / f"{name}.txt").write_text(f"file {name}\n")
    embed(model, tmp_path / "b.txt", tmp_path / "a.txt", "--output", tmp_path / "vectors.npz")
    assert_vectors(read(tmp_path / "vectors.npz"), embedder.encode(["file b", "file a"]))


# --- Interruptions and processes -------------------------------------------------------------------------------------


def long_text(folder: Path, sentences: int = 120) -> Path:
    choose = random.Random(0)
    words = [f"word{number}" for number in range(40)]
    path = folder / "long.txt"
    path.write_text("".join(" ".join(choose.choices(words, k=choose.randrange(12))) + "\n" for _ in range(sentences)))
    return path


@pytest.mark.parametrize("output", ["shards", "one.safetensors", "one.npz", "one.parquet", "one.hdf5"])
def test_an_interrupted_run_continues_to_the_same_result(model, tmp_path, monkeypatch, output):
    from hf_elmo.scripts import embed as script

    text = long_text(tmp_path)
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    format = ["--format", "safetensors"] if output == "shards" else []
    whole, broken = ([text, "--output", tmp_path / run / output, *format, "--shard-words", 100] for run in
                     ("whole", "broken"))  # fmt: skip
    embed(model, *whole)
    written = []
    embedded = script._embedded

    def dying(arguments, embedder, shard, bar, carried):
        for number, sentence in enumerate(embedded(arguments, embedder, shard, bar, carried)):
            if shard.number == 3 and number == 2:
                raise KeyboardInterrupt
            yield sentence
        written.append(shard.number)

    monkeypatch.setattr(script, "_embedded", dying)
    with pytest.raises(KeyboardInterrupt):
        embed(model, *broken)
    assert written == [0, 1, 2]
    with pytest.raises(FileExistsError, match="--resume to continue that run"):
        embed(model, *broken)
    with pytest.raises(ValueError, match=r"cannot be continued, .*\(dtype: 'float32', now 'float16'\)"):
        embed(model, *broken, "--resume", "--dtype", "float16")

    written.clear()
    monkeypatch.setattr(script, "_embedded", lambda *given: written.append(given[2].number) or embedded(*given))
    embed(model, *broken, "--resume")
    assert written == list(range(3, 3 + len(written)))
    written.clear()
    embed(model, *broken, "--resume")  # there is nothing to do
    assert written == []
    if output == "shards":
        assert content(tmp_path / "whole" / output) == content(tmp_path / "broken" / output)
    else:
        assert content(tmp_path / "whole") == content(tmp_path / "broken")


def run_in_processes(model: Path, count: int, *arguments: object) -> subprocess.CompletedProcess:
    launcher = (
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"] if count > 1 else [sys.executable]
    )
    options = f"--multi_gpu --num_processes {count} --num_machines 1 --mixed_precision no --dynamo_backend no"
    launcher += [*options.split(), "--main_process_port", "0"] if count > 1 else []
    command = [*launcher, "-m", "hf_elmo", "embed", "--model", model, "--quiet", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_two_processes_write_what_one_writes(model, tmp_path):
    text = long_text(tmp_path)
    embed(model, text, "--shard-words", 60, "--output", tmp_path / "one", "--format", "npz")
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    launcher += "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
    launcher += ["--main_process_port", "0", "-m", "hf_elmo", "embed", text, "--model", model, "--quiet"]
    command = [*launcher, "--shard-words", 60, "--output", tmp_path / "two", "--format", "npz"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("vectors: ") == 1
    assert "one of 2 processes read" in done.stdout
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert len(content(tmp_path / "two")) > 5


@pytest.mark.slow
def test_a_run_that_is_killed_continues(model, tmp_path):
    text = long_text(tmp_path, sentences=800)
    output = tmp_path / "vectors.npz"
    arguments = [text, "--output", output, "--shard-words", 50, "--batch-tokens", 64]
    command = [sys.executable, "-m", "hf_elmo", "embed", "--model", model, "--quiet", *arguments]
    parts = tmp_path / "vectors.npz.parts"
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(parts.glob("part-*"))) < 5:
            time.sleep(0.01)
        process.kill()
    assert 5 <= len(list(parts.glob("part-*"))) < 80
    assert not output.exists()
    embed(model, *arguments, "--resume")
    embed(model, *arguments[:1], "--output", tmp_path / "whole.npz", *arguments[3:])
    with np.load(output) as found, np.load(tmp_path / "whole.npz") as whole:
        assert found.files == whole.files
        for name in whole.files:  # words kept from other batches differ by rounding on some processors
            if whole[name].dtype.kind == "f":
                np.testing.assert_allclose(found[name], whole[name], rtol=0, atol=1e-6)
            else:
                np.testing.assert_array_equal(found[name], whole[name])
    assert not parts.exists()


# --- Mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "vectors.xyz"], "names no format: give a file that ends with .safetensors, .hdf5"),
        (["--output", "vectors", "--format", "csv"], "no format 'csv' for vectors: choose safetensors, hdf5"),
        (["--output", "vectors.npz", "--format", "hdf5"], "--format hdf5 does not fit the name vectors.npz"),
        (["--output", "v.npz", "--layers", "9"], "layers=9 is not possible: .* from 0 to 2"),
        (["--output", "v.npz", "--layers", "bottom"], "layers='bottom' is not possible"),
        (["--output", "v.npz", "--shard-words", "0"], "--shard-words 0 is not possible"),
        (["--output", "v.npz", "--resume", "--overwrite"], "contradict each other"),
        (["--output", "v.npz", "--input-format", "jsonl"], "text.txt: line 1 is not JSON"),
        (["--output", "v.npz", "--input-format", "conll", "--column", "9"], "line 1 has 4 columns, so .* column 9"),
        (["--output", "v.npz", "--input-format", "conll", "--column", "word"], "--column word is not possible"),
    ],
)
def test_mistakes_are_explained(model, text, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        embed(model, text, *options)
    assert not list(tmp_path.glob("*.npz"))


def test_mistakes_in_the_input(model, tmp_path):
    bad = tmp_path / "bad.jsonl"
    for line, message in (
        ("7", "line 1 has 7, but a sentence is a list of words"),
        ('["a", 7]', r"line 1 has \['a', 7\]"),
        ('{"a": []}', "fields 'a': name the field with the words, --column NAME"),
    ):
        bad.write_text(line)
        with pytest.raises(ValueError, match=message):
            embed(model, bad, "--output", tmp_path / "v.npz", "--overwrite")
    with pytest.raises(ValueError, match="fields 'a': there is no 'b'"):
        embed(model, bad, "--output", tmp_path / "v.npz", "--overwrite", "--column", "b")
    (tmp_path / "latin.txt").write_bytes(b"ol\xe9\n")
    with pytest.raises(ValueError, match=r"latin.txt: line 1 is not UTF-8"):
        embed(model, tmp_path / "latin.txt", "--output", tmp_path / "l.npz", "--errors", "stop")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match="There is no sentence in"):
        embed(model, tmp_path / "empty.txt", "--output", tmp_path / "e.npz")


def test_output_that_exists_is_not_replaced_unless_asked(model, embedder, text, tmp_path):
    output = tmp_path / "vectors.npz"
    output.write_text("mine")
    with pytest.raises(FileExistsError, match=r"vectors.npz exists"):
        embed(model, text, "--output", output)
    embed(model, text, "--output", output, "--overwrite")
    assert_vectors(read(output), embedder.encode(LINES))

    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    for option in ([], ["--overwrite"], ["--resume"]):
        with pytest.raises(FileExistsError, match="is not a folder of vectors"):
            embed(model, text, "--output", folder, "--format", "npz", *option)
    assert (folder / "mine.txt").read_text() == "mine"

    again = tmp_path / "again"
    embed(model, text, "--output", again, "--format", "npz", "--shard-words", 3)
    with pytest.raises(FileExistsError, match="--overwrite to begin anew"):
        embed(model, text, "--output", again, "--format", "npz")
    embed(model, text, "--output", again, "--format", "safetensors", "--overwrite")
    assert {path.name for path in again.iterdir()} == {"manifest.json", "part-00000.safetensors"}


@pytest.mark.parametrize(
    ("format", "package", "extra"), [("hdf5", "h5py", "convert"), ("parquet", "pyarrow", "train")]
)
def test_what_is_not_installed_is_named(model, text, tmp_path, monkeypatch, capsys, format, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    output = tmp_path / f"vectors.{format}"
    assert main(["embed", str(text), "--model", str(model), "--output", str(output)]) == 1
    assert capsys.readouterr().err == (
        f'hf-elmo: error: This format needs {package}, which is not installed: pip install "hf-elmo[{extra}]"\n'
    )
    assert not list(tmp_path.glob("*.parts"))


def test_the_summary(model, text, tmp_path, capsys):
    embed(model, text, "--output", tmp_path / "vectors.npz")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("6 sentences; read 19 words in ")
    assert first.endswith(" words/s)")
    assert second == f"vectors: {tmp_path / 'vectors.npz'}"


def test_words_of_one_file_of_safetensors_take_no_memory(tmp_path):
    """Its header has them all, but nothing of it is kept: as objects of Python they took 86 bytes a word."""
    lists = ([f"w{number:04}{place:03}" for place in range(50)] for number in range(1000))
    vectors = np.zeros((50, 1), dtype=np.float16)
    with open_writer(tmp_path / "x.safetensors", "safetensors", WriterOptions()) as writer:
        tracemalloc.start()
        for number, words in enumerate(lists):
            writer.add(EmbeddedSentence(number, " ".join(words), words, vectors))
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert taken / 50_000 < 1
    read = list(read_safetensors(tmp_path / "x.safetensors"))
    assert len(read) == 1000
    assert read[-1].words[-1] == "w0999049"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_header_of_safetensors_is_json(tmp_path, count):
    """Put together of pieces, it is what JSON makes of the whole, whatever the words are."""
    words = [['"', "\\", "é\n", "\ud800"], [], ["a", "b"]][:count]
    vectors = np.ones((2, 3), dtype=np.float32)
    write(tmp_path / "x.safetensors", [EmbeddedSentence(n, " ".join(w), w, vectors) for n, w in enumerate(words)])
    content = (tmp_path / "x.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    metadata = {"format": "pt", "texts": json.dumps([" ".join(w) for w in words]), "words": json.dumps(words)}
    entries = {str(n): {"dtype": "F32", "shape": [2, 3], "data_offsets": [24 * n, 24 * n + 24]} for n in range(count)}
    assert size % 8 == 0
    assert content[8 : 8 + size].decode().rstrip() == json.dumps(
        {"__metadata__": metadata, **entries}, separators=(",", ":")
    )
    assert len(content) == 8 + size + 24 * count


def test_too_many_sentences_for_one_file_of_safetensors(tmp_path, monkeypatch):
    from hf_elmo import embedding_files

    monkeypatch.setattr(embedding_files, "LARGEST_HEADER", 500)
    sentences = [EmbeddedSentence(number, "a", ["a"], np.zeros((1, 2), np.float32)) for number in range(20)]
    with pytest.raises(ValueError, match="20 sentences are too many for one file of safetensors: write shards"):
        write(tmp_path / "x.safetensors", sentences)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_ours(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a file of vectors, or it is damaged"):
        list(read_safetensors(tmp_path / "x.safetensors"))
