"""`hf-elmo convert` finds out what it is given: folders, files and archives of every dialect, and refuses all else."""

import gzip
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import PurePosixPath

import numpy as np
import pytest
import torch
from originals import elmo_options, write_random_weights
from test_cli import run
from test_conversion_allennlp_archive import PREFIX, original_elmo, state_of, write_model
from test_conversion_bilm_tf import write_training
from test_manylangs import write_source as write_manylangs

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, cli
from hf_elmo.conversion.allennlp import convert_allennlp
from hf_elmo.conversion.detection import DIALECTS, VARIANTS, detect, is_wanted
from hf_elmo.hub import verify_checksums
from hf_elmo.scripts.original_wheels import allennlp_fixtures

WORDS = ["<S>", "</S>", "<UNK>", "the", "river", "é"]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made, so that one sees what is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def pack(folder, path, top=""):
    """The folder as an archive of the kind that the name of the path says, with a folder at its top or none."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, PurePosixPath(top, file.relative_to(folder)))
    else:
        with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w:") as archive:
            for file in files:
                archive.add(file, str(PurePosixPath(top, file.relative_to(folder))))
    return path


# --- Sources ---------------------------------------------------------------------------------------------------------


def allennlp(folder):
    return write_random_weights(folder, elmo_options())[0].parent


def simple_elmo(folder):
    write_random_weights(folder, elmo_options())[1].rename(folder / "model.hdf5")
    (folder / "vocab.txt.gz").write_bytes(gzip.compress("".join(f"{word}\n" for word in WORDS).encode()))
    (folder / "meta.json").write_text('{"id": 210}')
    (folder / "README").write_text("NLPL")
    return folder


def aligned(folder):
    allennlp(folder)
    torch.save(torch.eye(16), folder / "align.pth")
    return folder


def allennlp_archive(folder):
    write_model(folder, state_of(original_elmo(folder.parent)), options=elmo_options())
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "tokens.txt").write_text("the\n")
    return folder


def manylangs(folder):
    return write_manylangs(folder)


def bilm_tf(folder):
    return write_training(folder)[0]


SOURCES = {
    "allennlp": allennlp,
    "aligned": aligned,
    "allennlp-archive": allennlp_archive,
    "manylangs": manylangs,
    "bilm-tf": bilm_tf,
}


def test_every_dialect_is_here():
    assert SOURCES.keys() == DIALECTS.keys()


@pytest.mark.parametrize("dialect", SOURCES)
def test_folders_and_archives_of_every_dialect(capsys, tmp_path, temporary, dialect):
    """A folder, and an archive in which all is below a folder: the same weights come out, with the parity line."""
    folder = SOURCES[dialect](tmp_path / "source")
    archive = pack(folder, tmp_path / ("source.tar.gz" if "allennlp" in dialect else "source.zip"), "a/b")
    weights = []
    for number, source in enumerate((folder, archive)):
        output = tmp_path / f"out{number}"
        code, out, err = run(capsys, "convert", source, "--output", output)
        assert code == 0, err
        assert out.startswith("parity: max |difference| ")
        assert out.endswith(f" weights converted: {output}\n")
        assert f"hf-elmo: format: {dialect}\n" in err
        assert str(temporary) not in err
        verify_checksums(output)
        weights.append((output / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert not any(temporary.iterdir())
    if dialect == "bilm-tf":
        assert ElmoConfig.from_pretrained(output).architectures == [ElmoForPreTraining.__name__]
    else:
        ElmoModel.from_pretrained(output)


@pytest.mark.parametrize("dialect", SOURCES)
def test_dialect_as_the_first_word(capsys, tmp_path, dialect):
    folder = SOURCES[dialect](tmp_path / "source")
    assert detect(folder, dialect).dialect == dialect
    code, out, err = run(capsys, "convert", dialect, folder, "--output", tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("parity: ")


@pytest.mark.parametrize("dialect", SOURCES)
def test_dialect_that_it_is_not(capsys, tmp_path, dialect):
    folder = SOURCES[dialect](tmp_path / "source")
    for other in SOURCES.keys() - {dialect}:
        if (other, dialect) == ("allennlp", "aligned"):  # without the matrix, it is that
            continue
        code, _, err = run(capsys, "convert", other, folder, "--output", tmp_path / "out", "--quiet")
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith(f"hf-elmo: error: {folder} is not recognised. Found: ")
        assert f"{other} needs " in err


def test_list(capsys):
    code, out, err = run(capsys, "convert", "--list")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    for dialect in [*DIALECTS.values(), *VARIANTS["allennlp"]]:
        assert f"{dialect.name} needs {dialect.needs} gives {dialect.result} example {dialect.example}" in text
        cli.parse(dialect.example.split()[1:])
    for name in ("simple_elmo", "NLPL", "SeqVec"):
        assert name in out


# --- Files and names -------------------------------------------------------------------------------------------------


def test_any_file_of_a_model(tmp_path):
    folder = allennlp(tmp_path / "hdf5")
    for name in ("options.json", "weights.hdf5"):
        source = detect(folder / name)
        assert (source.dialect, source.options, source.weights) == (
            "allennlp",
            folder / "options.json",
            folder / "weights.hdf5",
        )
    folder = bilm_tf(tmp_path / "training")
    for name in ("model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.data-00001-of-00002", "options.json"):
        source = detect(folder / name)
        assert (source.dialect, source.weights) == ("bilm-tf", folder / "model.ckpt-7.index")
        assert (source.options, source.vocabulary) == (folder / "options.json", folder / "vocab.txt")
    folder = allennlp_archive(tmp_path / "archive")
    for name in ("config.json", "weights.th"):
        source = detect(folder / name)
        assert (source.dialect, source.weights) == ("allennlp-archive", folder / "weights.th")
        assert source.config == folder / "config.json"
    folder = manylangs(tmp_path / "manylangs")
    for name in ("config.json", "encoder.pkl", "token_embedder.pkl"):
        source = detect(folder / name)
        assert (source.dialect, source.weights) == ("manylangs", folder)


def test_names_do_not_matter_if_the_content_is_clear(tmp_path):
    folder = allennlp(tmp_path / "source")
    (folder / "options.json").rename(folder / "settings.txt")
    (folder / "weights.hdf5").rename(folder / "model.bin")
    (folder / "notes.json").write_text("not JSON")
    source = detect(folder)
    assert (source.options, source.weights) == (folder / "settings.txt", folder / "model.bin")


def test_names_decide_between_files_of_a_kind(tmp_path):
    folder = tmp_path / "source"
    for name in ("elmo_2x1024", "elmo_2x4096"):
        options, weights = write_random_weights(folder, elmo_options())
        options.rename(folder / f"{name}_options.json")
        weights.rename(folder / f"{name}_weights.hdf5")
    with pytest.raises(
        ValueError, match=r"has 2 files of options .* and 2 of weights .*Say which: hf-elmo convert all"
    ):
        detect(folder)
    source = detect(folder / "elmo_2x1024_weights.hdf5")
    assert source.options == folder / "elmo_2x1024_options.json"


def test_other_hdf5_files_are_told_from_weights():
    """The fixtures of AllenNLP: weights, vectors and token embeddings, all of them HDF5."""
    folder = allennlp_fixtures() / "elmo"
    assert len(list(folder.glob("*.hdf5"))) > 1
    assert detect(folder).weights.name == "lm_weights.hdf5"


def test_options_from_elsewhere(capsys, tmp_path):
    folder = allennlp(tmp_path / "source")
    options = (folder / "options.json").rename(tmp_path / "elsewhere.json")
    code, _, err = run(capsys, "convert", folder, "--output", tmp_path / "out", "--quiet")
    assert code == 1
    assert "Found: HDF5 weights (weights.hdf5). allennlp needs options.json and" in err
    for source in (folder, folder / "weights.hdf5"):
        arguments = ["--options", options, "--output", tmp_path / f"out-{source.name}", "--quiet"]
        assert run(capsys, "convert", source, *arguments)[0] == 0


def test_more_than_one_format_is_an_error(capsys, tmp_path):
    """Archives of NLPL can have the HDF5 file and the checkpoint."""
    folder = bilm_tf(tmp_path / "source")
    write_random_weights(tmp_path / "other", elmo_options())[1].rename(folder / "model.hdf5")
    code, _, err = run(capsys, "convert", folder, "--output", tmp_path / "out")
    assert (code, err.count("\n")) == (1, 1)
    assert (
        "holds weights in more than one format: HDF5 weights (model.hdf5); index of a checkpoint (model.ckpt-7" in err
    )
    assert f"Say which: hf-elmo convert allennlp {folder} or hf-elmo convert bilm-tf {folder}\n" in err
    assert detect(folder, "bilm-tf").dialect == "bilm-tf"


def test_several_of_a_kind_are_an_error(tmp_path):
    folder = bilm_tf(tmp_path / "training")
    (folder / "checkpoint").unlink(missing_ok=True)
    shutil.copy(folder / "model.ckpt-7.index", folder / "model.ckpt-8.index")
    with pytest.raises(ValueError, match=r"has 2 checkpoints .* and no file 'checkpoint' that names the newest"):
        detect(folder)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    assert detect(folder).weights == folder

    folder = aligned(tmp_path / "aligned")
    shutil.copy(folder / "align.pth", folder / "align_zero.pth")
    with pytest.raises(ValueError, match=r"has 2 matrices \(align\.pth, align_zero\.pth\)\. Say which"):
        detect(folder)

    folder = simple_elmo(tmp_path / "simple")
    (folder / "vocab.txt.gz").rename(folder / "vocab_a.txt.gz")
    (folder / "vocab_b.txt").write_text("the\n")
    with pytest.raises(
        ValueError, match=r"has 2 vocabularies \(vocab_a\.txt\.gz, vocab_b\.txt\)\. Say which with --vo"
    ):
        detect(folder)


def test_what_is_converted_already(capsys, tmp_path):
    convert_allennlp(*write_random_weights(tmp_path / "source", elmo_options()), tmp_path / "model")
    code, _, err = run(capsys, "convert", tmp_path / "model", "--output", tmp_path / "out")
    assert code == 1
    assert "is a model folder already; AutoModel.from_pretrained loads it" in err


@pytest.mark.parametrize("dialect", ["allennlp", "manylangs", "bilm-tf"])
def test_options_without_effect_are_refused(capsys, tmp_path, dialect):
    folder = SOURCES[dialect](tmp_path / "source")
    code, _, err = run(capsys, "convert", folder, "--output", tmp_path / "out", "--prefix", "_elmo.")
    assert (code, err) == (1, f"hf-elmo: error: --prefix has no effect: {folder} is in the format {dialect}.\n")


def test_incomplete_or_double_arguments(capsys, tmp_path):
    folder = allennlp(tmp_path / "source")
    output = ["--output", tmp_path / "out"]
    code, _, err = run(capsys, "convert", "allennlp", "--options", folder / "options.json", *output)
    assert (code, err) == (1, "hf-elmo: error: Give a SOURCE, or all of --options, --weights.\n")
    code, _, err = run(capsys, "convert", "allennlp", folder, "--weights", folder / "weights.hdf5", *output)
    assert (code, err) == (1, "hf-elmo: error: Give a SOURCE or --weights, not both.\n")


def test_wanted_members():
    wanted = [
        "options.json",
        "210/model.hdf5",
        "vocab.txt.gz",
        "weights.th",
        "fta/model.text_field_embedder.token_embedders.elmo.options_file",
        "char.dic",
        "encoder.pkl",
        "configs/cnn_50_100_512_4096_sample.json",
        "checkpoint",
        "model.ckpt-7.index",
        "model.ckpt-7.data-00000-of-00001",
    ]
    for name in wanted:
        assert is_wanted(PurePosixPath(name)), name
    others = ["README", "__MACOSX/._options.json", ".hidden.json", "vocabulary/tokens.txt", "model.ckpt-7.meta"]
    for name in [
        *others,
        "fta/model.text_field_embedder.token_embedders.elmo.weight_file",
        "run.sh",
        "training_state.sav",
    ]:
        assert not is_wanted(PurePosixPath(name)), name


# --- simple_elmo and NLPL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_archives_of_simple_elmo_bring_their_vocabulary(capsys, tmp_path, temporary, packed):
    source = simple_elmo(tmp_path / "source")
    source = pack(source, tmp_path / "210.zip") if packed else source
    assert run(capsys, "convert", source, "--output", tmp_path / "out", "--quiet")[0] == 0
    assert ElmoConfig.from_pretrained(tmp_path / "out").vocab_size == len(WORDS) + 1
    assert ElmoTokenizer.from_pretrained(tmp_path / "out")("the old river")["input_ids"] == [0, 3, 2, 4, 1]
    assert not any(temporary.iterdir())


def test_a_vocabulary_that_is_none_is_left_out(capsys, tmp_path):
    """The vectors of a model that reads characters do not need it; one that the user gives must be one."""
    source = simple_elmo(tmp_path / "source")
    (source / "vocab.txt.gz").unlink()
    (source / "vocab.txt").write_text("the\t100\nriver\t20\n")
    code, _, err = run(capsys, "convert", source, "--output", tmp_path / "out")
    assert code == 0
    assert "vocab.txt is left out, as the vectors do not need it: " in err
    assert "<S>, </S>, <UNK> must be among the words" in err
    arguments = ["--vocab", source / "vocab.txt", "--output", tmp_path / "other", "--quiet"]
    code, _, err = run(capsys, "convert", source, *arguments)
    assert code == 1
    assert "must be among the words" in err


def test_vocabulary_in_gzip_form_for_every_dialect_that_reads_one(capsys, tmp_path):
    folder = bilm_tf(tmp_path / "training")
    vocabulary = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt").unlink()
    code, _, err = run(capsys, "convert", folder, "--output", tmp_path / "out", "--quiet")
    assert code == 1
    assert "is a language model, which needs the vocabulary of its training: give --vocab." in err
    (tmp_path / "words.gz").write_bytes(gzip.compress(vocabulary))
    arguments = ["--vocab", tmp_path / "words.gz", "--output", tmp_path / "out", "--quiet"]
    assert run(capsys, "convert", folder, *arguments)[0] == 0


def test_letters_of_proteins(capsys, tmp_path):
    """A letter is a word, whether a sequence is given as a list or with spaces."""
    source = allennlp(tmp_path / "source")
    (source / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nM\nK\nT\n")
    code, _, err = run(capsys, "convert", source, "--output", tmp_path / "out")
    assert code == 0
    assert "all words are single letters: give the model a list of letters, or letters with spaces" in err
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "out")
    sequence = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVXBZUO"
    given = tokenizer([list(sequence)], is_split_into_words=True, return_tensors="pt")["character_ids"]
    spaced = tokenizer([" ".join(sequence)], return_tensors="pt")["character_ids"]
    assert given.shape[1] == len(sequence) + 2
    assert torch.equal(given, spaced)


# --- Hostile and broken sources --------------------------------------------------------------------------------------


def truncate(name):
    def change(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return change


def replace_by(name, content):
    return lambda folder: (folder / name).write_bytes(content)


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch canary",)


def evil_pickle(name):
    return lambda folder: torch.save({"x": Evil(), "y": torch.zeros(10_000)}, folder / name)


def no_numbers(name):
    """Puts NaN for the first tensor of the pickle."""

    def change(folder):
        state = torch.load(folder / name)
        first = next(name for name in state if state[name].is_floating_point() and (PREFIX in name or "." in name))
        state[first] = torch.full_like(state[first], np.nan)
        torch.save(state, folder / name)

    return change


DEEP = b'{"lstm": ' + b"[" * 100_000
BROKEN = {
    "allennlp, cut weights": (allennlp, truncate("weights.hdf5"), "weights.hdf5"),
    "allennlp, cut options": (allennlp, truncate("options.json"), "options.json is not valid JSON"),
    "allennlp, deep options": (allennlp, replace_by("options.json", DEEP), "options.json"),
    "allennlp, huge options": (
        allennlp,
        replace_by("options.json", b"{" + b" " * 2**21),
        "has more than 1,048,576 bytes",
    ),
    "allennlp, odd options": (allennlp, replace_by("options.json", b'{"lstm": {"dim": -3}}'), "lstm.projection_dim"),
    "simple_elmo, bomb": (
        simple_elmo,
        replace_by("vocab.txt.gz", gzip.compress(bytes(2**28 + 2))),
        "vocab.txt.gz holds",
    ),
    "aligned, evil": (aligned, evil_pickle("align.pth"), "align.pth cannot be read as weights that torch.save wrote"),
    "archive, evil": (allennlp_archive, evil_pickle("weights.th"), "weights.th cannot be read as weights"),
    "archive, cut": (allennlp_archive, truncate("weights.th"), "weights.th cannot be read as weights"),
    "archive, nan": (allennlp_archive, no_numbers("weights.th"), "NaN or infinite"),
    "manylangs, evil": (manylangs, evil_pickle("encoder.pkl"), "encoder.pkl cannot be read as weights"),
    "manylangs, cut": (manylangs, truncate("token_embedder.pkl"), "token_embedder.pkl has 17,"),
    "manylangs, nan": (manylangs, no_numbers("encoder.pkl"), "NaN or infinite"),
    "manylangs, words": (manylangs, replace_by("word.dic", b"one\tword\n"), "word.dic: line 1 must be an entry"),
    "bilm-tf, cut": (bilm_tf, truncate("model.ckpt-7.data-00000-of-00002"), "model.ckpt-7"),
    "bilm-tf, no data": (
        bilm_tf,
        lambda folder: (folder / "model.ckpt-7.data-00001-of-00002").unlink(),
        "model.ckpt-7",
    ),
    "allennlp, a page": (
        allennlp,
        replace_by("weights.hdf5", b"<html>404 Not Found</html>"),
        "weights.hdf5 is no HDF5 file, whatever its name says: it begins with b'<html>404 Not Found<'. Get it again. "
        "Beside it, there is: options (options.json)",
    ),
    "allennlp, a page for options": (
        allennlp,
        replace_by("options.json", b"<html>"),
        "options.json is no JSON file, whatever its name says: it begins with b'<html>'. Get it again.",
    ),
    "bilm-tf, odd index": (bilm_tf, replace_by("model.ckpt-7.index", b"x" * 200), "is not recognised"),
    "bilm-tf, words": (bilm_tf, replace_by("vocab.txt", b"the\n"), "must be among the words"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
def test_hostile_sources_are_one_line(capsys, tmp_path, temporary, monkeypatch, kind, packed):
    make, change, message = BROKEN[kind]
    source = make(tmp_path / "source")
    change(source)
    if packed:
        source = pack(source, tmp_path / "source.zip", "model")
    monkeypatch.chdir(temporary)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, "convert", source, "--output", tmp_path / "out", "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("hf-elmo: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert str(source) in err
    assert str(temporary) not in err
    assert sorted(tmp_path.rglob("*")) == before


def hostile_tar(path):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("../options.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))


def hostile_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("options.json", bytes(2**26))


PLACES = {
    "nothing": (lambda path: None, "There is no file or folder"),
    "an empty folder": (
        lambda path: path.mkdir(),
        "is not recognised. Found: no file. 'hf-elmo convert --list' shows",
    ),
    "an empty file": (lambda path: path.write_bytes(b""), "is not recognised. Found: 1 other file (source). "),
    "some text": (lambda path: path.write_text("Hello"), "what each of them needs"),
    "gzip": (
        lambda path: path.write_bytes(gzip.compress(b"Hello")),
        "is a gzip file, but a damaged one, or no archive",
    ),
    "half a zip": (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(50)), "is damaged or incomplete"),
    "hostile tar": (hostile_tar, "the member '../options.json' has '..' in its name"),
    "hostile zip": (hostile_zip, "the member 'options.json' makes the files more than"),
    "an evil pickle": (lambda path: torch.save(Evil(), path), "cannot be read as weights that torch.save wrote"),
    "another model": (lambda path: torch.save({"weight": torch.ones(2)}, path), "has no Elmo module"),
    "a list": (lambda path: torch.save([torch.ones(2)], path), "does not hold tensors by name"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_anything_else_is_one_line(capsys, tmp_path, temporary, monkeypatch, kind):
    make, message = PLACES[kind]
    source = tmp_path / "source"
    make(source)
    monkeypatch.chdir(temporary)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, "convert", source, "--output", tmp_path / "out", "--quiet")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"hf-elmo: error: {'' if 'There is' in message else source}")
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_taken_place_is_refused_before_anything_is_unpacked(capsys, tmp_path, monkeypatch):
    source = pack(allennlp(tmp_path / "source"), tmp_path / "source.zip")
    monkeypatch.setattr("hf_elmo.conversion.command.unpacked_archive", None)
    code, _, err = run(capsys, "convert", source, "--output", tmp_path / "source")
    assert code == 1
    assert "exists and is not empty" in err


def test_large_folders_are_refused(tmp_path):
    for number in range(1_001):
        (tmp_path / f"{number}.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match=r"has more than 1,000 files\. Give the folder of one model"):
        detect(tmp_path)


@pytest.mark.parametrize("dialect", ["allennlp", "aligned", "allennlp-archive", "bilm-tf"])
def test_another_segmenter_than_moses(dialect, tmp_path, capsys):
    source = SOURCES[dialect](tmp_path / "source")
    options = ["--vocab", tmp_path / "source" / "vocab.txt"] if dialect == "bilm-tf" else []
    for name, segmenter in (("moses", []), ("other", ["--segmenter", "UDPipe"])):
        output = ["--output", tmp_path / name, "--quiet"]
        code, _, err = run(capsys, "convert", source, *options, *output, *segmenter)
        assert (code, err) == (0, "")
    moses, other = (ElmoTokenizer.from_pretrained(tmp_path / name) for name in ("moses", "other"))
    assert (moses.word_splitting, moses.segmenter) == ("moses", None)
    assert (other.word_splitting, other.segmenter) == ("whitespace", "UDPipe")
    assert "UDPipe" in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")
