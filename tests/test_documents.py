"""What the documents say is run: examples in docstrings, and the blocks of the README."""

import doctest
import functools
import importlib
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest
from document_blocks import WIDTH, is_said, renewed, run_page
from pretraining_corpus import sentences
from tiny import tiny_config

import hf_elmo
from hf_elmo import cli
from hf_elmo.pretraining_settings import PRESETS
from hf_elmo.scripts.original_wheels import allennlp_fixtures
from hf_elmo.scripts.results_table import with_tables

ROOT = Path(__file__).parents[1]
PRETRAINING = ["vocab", "pretrain", "pretrain", "perplexity", "pretrain"]
LANGUAGE_MODEL = ["score", "substitutes", "sample", "warm-state"]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def modules_with_examples() -> list[str]:
    """Modules of the library and of its programs that have an example which is run."""
    return [
        f"hf_elmo.{path.stem}" if folder == "hf_elmo" else f"hf_elmo.{folder}.{path.stem}"
        for folder in ("hf_elmo", "conversion", "scripts")
        for path in sorted((ROOT / folder).glob("*.py"))
        if re.search(r">>> (?!.*doctest: \+SKIP)", path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert results.attempted > 0


def test_public_classes_with_a_model_have_examples():
    for name in ("ElmoConfig", "ElmoEmbedder", "ElmoTokenizer", "ElmoModel", "ElmoForPreTraining", "load_mini"):
        assert ">>> " in getattr(hf_elmo, name).__doc__, name
    for name in (name for name in hf_elmo.__all__ if re.fullmatch("ElmoFor(?!PreTrainingOutput).*", name)):
        assert ">>> " in getattr(hf_elmo, name).__doc__, name


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
    assert ran == ["python", "convert", "finetune", "python", *PRETRAINING, *LANGUAGE_MODEL]
    assert names["outputs"].last_hidden_state.shape == (2, 8, names["model"].config.hidden_size)


def test_outputs_that_the_readme_shows(tmp_path, monkeypatch):
    """The Korean one has the same, which another test compares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    shown = list(run_page(ROOT / "README.md"))
    assert len(shown) == 1
    for block, printed in shown:
        assert is_said(printed, block.body), (
            f"README.md:{block.line} says\n{block.body}\nbut this is printed:\n{printed}\nIf that is right: "
            "python tests/document_blocks.py README.md README.ko.md"
        )
    assert (tmp_path / "demo.png").is_file()


def test_parts_of_an_output_are_renewed():
    printed = "1. Begin\na 1\nb 2\n2. End\nc 3\nd 4\n"
    assert renewed("...\n1. Begin\na 0\n...\n2. End\nc 0\n", printed) == "...\n1. Begin\na 1\n...\n2. End\nc 3\n"
    assert renewed("anything\n", printed) == printed
    with pytest.raises(AssertionError, match=r"no longer printed, .*: 3\. Other"):
        renewed("...\n3. Other\n", printed)


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
    more = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert with_tables(more, ROOT / "results") == more, "run: python scripts/results_table.py docs/results.md results"
    assert with_tables(more.replace("onnxruntime beside", "onnxruntime below"), ROOT / "results") == more
    with pytest.raises(ValueError, match="no place for the table: write <!-- results -->"):
        with_tables("Nothing here.", ROOT / "results")
    with pytest.raises(ValueError, match="no place for the table: write <!-- speed -->"):
        with_tables(text.replace("<!-- end of speed -->", ""), ROOT / "results")


def test_the_korean_readme_has_the_code_and_the_figures_of_the_english_one():
    english, korean = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ko.md"))
    assert code_of(korean) == code_of(english)
    assert with_tables(korean, ROOT / "results") == korean, "run: python scripts/results_table.py README.ko.md results"
    assert figures_of(korean) == figures_of(english)
    assert len(re.findall("^## ", korean, re.MULTILINE)) == len(re.findall("^## ", english, re.MULTILINE))
    assert figures_of(korean.replace("458", "459")) != figures_of(english)
    assert code_of(korean.replace("--crf", "")) != code_of(english)
    for path in re.findall(r"`(tests/\w+\.py)`|\]\((?!http)([^)]+)\)", korean):
        assert (ROOT / next(filter(None, path))).is_file(), path


def code_of(text: str) -> list[list[str]]:
    """The lines of each block, without comments, which may be translated."""
    return [[line.partition("  #")[0].rstrip() for line in block.splitlines()] for _, block in BLOCK.findall(text)]


def figures_of(text: str) -> Counter[str]:
    """All numbers outside of blocks."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*(?:e-\d+)?", BLOCK.sub("", text)))


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"make (\w+)", (ROOT / document).read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document} names `make {target}`"
