"""`hf-elmo coverage`: what a model does not know of a text, and when that is a reason to warn."""

import gzip
import json

import pytest
from test_manylangs import write_source
from tiny import random_model, tiny_config

from hf_elmo import ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.conversion import convert_manylangs
from hf_elmo.scripts.coverage import BATCH, UNKNOWN_LANGUAGE, UNKNOWN_SCRIPT, measure_coverage

WORDS = ["the", "river", "was", "muddy", ".", ",", "naïve", "1990"]


def save_model(folder, words=None):
    """A model that reads bytes, with these words or none."""
    vocabulary = None
    if words is not None:
        vocabulary = folder.with_suffix(".txt")
        vocabulary.write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *words]), encoding="utf-8")
    tokenizer = ElmoTokenizer(vocabulary)
    random_model(tiny_config(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("coverage") / "model", WORDS)


@pytest.fixture(scope="module")
def manylangs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manylangs")
    return convert_manylangs(write_source(folder / "source"), folder / "model").folder


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def run(capsys, *argv):
    code = main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_figures_of_a_byte_model(capsys, model, tmp_path):
    text = write(tmp_path / "text.txt", f"The river was muddy.\n\n  the {'x' * 49} é ,\n")
    code, out, err = run(capsys, "coverage", model, text, "--json", tmp_path / "figures.json", "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"model: {model}",
        "text: 2 sentences, 9 words, 71 characters",
        "cut words: 1 of 9 (11.111%) have more than 48 bytes, and the model does not read the rest",
        "unknown characters: 51 of 71 (71.831%)",  # T, x and é; the vocabulary has ï
        "unknown words: 3 of 9 (33.333%)",
        "warning: this text's script is unknown to the model: it does not know 71.8% of the characters (10% or more "
        "mean that), so its vectors say little",
    ]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["model"] == str(model)
    assert (figures["words"], figures["cut_words"], figures["unknown_words"]) == (9, 1, 3)
    assert figures["unknown_character_share"] == pytest.approx(51 / 71)
    assert len(figures["warnings"]) == 1


def test_known_text_gives_no_warning(capsys, model, tmp_path):
    text = write(tmp_path / "text.txt", "the river was muddy .\n" * 50)
    code, out, _ = run(capsys, "coverage", model, text, "--quiet")
    assert code == 0
    assert "unknown characters: 0 of 850 (0.000%)" in out
    assert "warning" not in out


@pytest.mark.parametrize(("unknown", "warned"), [(99, False), (100, True)])
def test_threshold_of_scripts(model, tmp_path, unknown, warned):
    text = write(tmp_path / "text.txt", f"{'한' * unknown} {'r' * (1000 - unknown)}\n")
    report = measure_coverage(ElmoTokenizer.from_pretrained(model), text, show_progress=False)
    assert report.coverage.unknown_character_share == unknown / 1000
    assert UNKNOWN_SCRIPT == 0.10
    assert any("this text's script is unknown to the model" in warning for warning in report.warnings()) == warned


@pytest.mark.parametrize(("unknown", "warned"), [(49, False), (50, True)])
def test_threshold_of_words(model, tmp_path, unknown, warned):
    text = write(tmp_path / "text.txt", "viver " * unknown + "river " * (100 - unknown))
    report = measure_coverage(ElmoTokenizer.from_pretrained(model), text, show_progress=False)
    assert UNKNOWN_LANGUAGE == 0.50
    warnings = [warning for warning in report.warnings() if "of the words are not in the vocabulary" in warning]
    assert len(warnings) == len(report.warnings()) == warned


def test_model_without_a_vocabulary_knows_nothing(capsys, tmp_path):
    model = save_model(tmp_path / "model")
    text = write(tmp_path / "text.txt", "조용한 강둑\n" * 3)
    code, out, _ = run(capsys, "coverage", model, text, "--quiet")
    assert code == 0
    for name in ("characters", "words"):
        assert f"unknown {name}: not known, as the model reads bytes and came without a vocabulary" in out
    assert "warning" not in out


def test_model_that_reads_code_points(capsys, manylangs, tmp_path):
    """Its characters are a list, and words are cut by characters."""
    korean, russian = write(tmp_path / "ko", "한국어 " + "어" * 11), write(tmp_path / "ru", "Тихий берег реки")
    code, out, _ = run(capsys, "coverage", manylangs, korean, "--quiet")
    assert code == 0
    assert "cut words: 1 of 2 (50.000%) have more than 10 characters" in out
    assert "unknown characters: 0 of 14" in out
    code, out, _ = run(capsys, "coverage", manylangs, russian, "--quiet")
    assert "unknown characters: 14 of 14" in out
    assert "warning: this text's script is unknown to the model" in out


def test_words_that_are_split_already(model, tmp_path):
    text = write(tmp_path / "text.txt", "river,was muddy.\n")
    tokenizer = ElmoTokenizer.from_pretrained(model)
    assert measure_coverage(tokenizer, text, show_progress=False).coverage.words == 5
    assert measure_coverage(tokenizer, text, split_words=True, show_progress=False).coverage.words == 2


def test_many_lines_and_files(model, tmp_path):
    """As many as one by one, also beyond a batch and from a compressed file."""
    lines = [f"the river {number}" for number in range(BATCH + 7)]
    write(tmp_path / "a.txt", "\n".join(lines))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("naïve river\n".encode()))
    tokenizer = ElmoTokenizer.from_pretrained(model)
    report = measure_coverage(tokenizer, tmp_path, show_progress=False)
    assert report.sentences == len(lines) + 1
    assert report.coverage == tokenizer.coverage([*lines, "naïve river"])


def test_lines_that_are_not_utf8(capsys, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"the river\nna\xefve\n")
    tokenizer = ElmoTokenizer.from_pretrained(model)
    words = {
        errors: measure_coverage(tokenizer, text, errors=errors, show_progress=False).coverage.words
        for errors in ("replace", "skip")
    }
    assert words == {"replace": 5, "skip": 2}  # na, U+FFFD, ve
    code, out, _ = run(capsys, "coverage", model, text, "--quiet")
    assert code == 0
    assert "warning: 1 lines are not UTF-8: is the text in another encoding?" in out
    code, _, err = run(capsys, "coverage", model, text, "--quiet", "--errors", "stop")
    assert (code, err.count("\n")) == (1, 1)
    assert "text.txt has a line that is not UTF-8" in err


def test_mistakes_are_one_line(capsys, model, tmp_path):
    text, empty = write(tmp_path / "text.txt", "the river\n"), write(tmp_path / "empty.txt", "\n\n")
    no_tokenizer = tmp_path / "model"
    tiny_config().save_pretrained(no_tokenizer)
    for arguments, message in [
        ([tmp_path / "nowhere", text], "is no model folder: there is no such folder"),
        ([no_tokenizer, text], "has no tokenizer.json"),
        ([model, tmp_path / "nowhere"], "does not exist"),
        ([model, empty], "There are no words in the text"),
        ([model, text, "--json", text], "text.txt"),
    ]:
        code, out, err = run(capsys, "coverage", *arguments, "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("hf-elmo: error: ")
        assert message in err
