"""What the documents say is run: examples in docstrings, and the blocks of the README."""

import doctest
import functools
import importlib
import re
import shlex
import shutil
from pathlib import Path

import pytest
from pretraining_corpus import sentences
from tiny import tiny_config

from hf_elmo import cli
from hf_elmo.pretraining_settings import PRESETS
from hf_elmo.scripts.original_wheels import allennlp_fixtures
from hf_elmo.scripts.results_table import with_tables

ROOT = Path(__file__).parents[1]
PRETRAINING = ["vocab", "pretrain", "pretrain", "perplexity", "pretrain"]
LANGUAGE_MODEL = ["score", "substitutes", "sample", "warm-state"]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", ["configuration_elmo", "modeling_elmo", "tokenization_elmo", "word_splitting"])
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(f"hf_elmo.{name}")).failed == 0


def test_blocks_of_the_readme(tmp_path, monkeypatch):
    """With AllenNLP's fixtures as the reader's weights."""
    source = allennlp_fixtures() / "elmo"
    shutil.copy(source / "options.json", tmp_path / "options.json")
    shutil.copy(source / "lm_weights.hdf5", tmp_path / "weights.hdf5")
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text("John I-PER\nlives O\nin O\nLondon I-LOC\n. O\n\nMary I-PER\nsleeps O\n")
    (tmp_path / "glove.txt").write_text("john 1 0\nlives 0 1\nlondon 1 1\n")
    for seed, name in enumerate(("text/a.txt", "text/b.txt", "heldout.txt", "news.txt", "news-heldout.txt")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(sentences(800, seed)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Words as few as here cannot be sampled from, and the small model would take minutes.
    monkeypatch.setitem(PRESETS, "small", functools.partial(tiny_config, softmax="full"))
    ran, names = [], {}
    for language, block in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if language == "python":
            exec(block, names)
            ran.append("python")
        elif language == "bash":
            for line in block.replace("\\\n", " ").splitlines():
                command = shlex.split(line, comments=True)
                if command[0] == "hf-elmo":
                    assert cli.main(command[1:]) == 0
                    ran.append(command[1])
                else:
                    assert command[0] in {"make", "pip"}, f"the README has a command that no test runs: {line}"
    assert ran == ["convert", "export", "python", "python", "finetune", "python", *PRETRAINING, *LANGUAGE_MODEL]
    assert names["vectors"].shape == (1, 5, 32)


def test_the_readme_is_short_and_names_existing_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    for path in re.findall(r"`(tests/\w+\.py)`|\]\((?!http)([^)]+)\)", text):
        assert (ROOT / next(filter(None, path))).is_file(), path


def test_figures_of_the_readme_are_those_of_the_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_tables(text, ROOT / "results") == text, "run: python scripts/results_table.py README.md results"
    assert (
        with_tables(text.replace(" seeds)", " seats)").replace("e-06 apart", "e-07 apart"), ROOT / "results") == text
    )
    with pytest.raises(ValueError, match="no place for the table: write <!-- results -->"):
        with_tables("Nothing here.", ROOT / "results")
    with pytest.raises(ValueError, match="no place for the table: write <!-- speed -->"):
        with_tables(text.replace("<!-- end of speed -->", ""), ROOT / "results")


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"make (\w+)", (ROOT / document).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document} names `make {target}`"
