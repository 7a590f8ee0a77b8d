"""MIGRATING.md: its blocks and calls run, its commands exist, its figures are those that were measured."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from measure_migration import (
    DOCUMENT,
    FIXTURES,
    OPTIONS,
    PROGRAMS,
    RESULTS,
    VOCABULARY,
    WEIGHTS,
    difference,
    fixture_sentences,
    layers_of,
    with_figures,
)
from test_conversion_allennlp_archive import original_elmo, state_of, write_model
from test_conversion_bilm_tf import write_training
from test_manylangs import write_source

from hf_elmo import cli

PARTS = re.compile(r"^```(\w+)\n(.*?)^```$|^\|([^\n]*)\|$", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r" (\d\.\de[+-]\d\d|0) ")
WITHOUT_TENSORFLOW = ("AllenNLP", "flair", "ELMoForManyLangs")


@pytest.fixture
def weights_of_a_reader(tmp_path, monkeypatch):
    """A folder with the files that the document names, the current one."""
    for name in ("elmo-files", "."):
        (tmp_path / name).mkdir(exist_ok=True)
        shutil.copy(OPTIONS, tmp_path / name / "options.json")
        shutil.copy(WEIGHTS, tmp_path / name / "weights.hdf5")
    shutil.copy(FIXTURES / "elmo_token_embeddings.hdf5", tmp_path)
    shutil.copy(VOCABULARY, tmp_path / "words.txt")
    shutil.make_archive(str(tmp_path / "161"), "zip", write_source(tmp_path / "manylangs"))
    training, vocabulary = write_training(tmp_path / "training")
    shutil.move(vocabulary, tmp_path / "vocab.txt")
    options = json.loads((training / "options.json").read_text())
    write_model(tmp_path / "trained", state_of(original_elmo(tmp_path / "random", options)), options=options)
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "trained", ".")
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text("John I-PER\nlives O\nin O\nLondon I-LOC\n. O\n\nMary I-PER\nsleeps O\n")
    (tmp_path / "glove.txt").write_text("john 1 0\nlives 0 1\nlondon 1 1\n")
    shutil.copy(FIXTURES.parent / "elmo_multilingual" / "es" / "align.pth", tmp_path / "es_best_mapping.pth")
    (tmp_path / "en-es.txt").write_text("cat gato\nriver río\nit ello\n")
    (tmp_path / "english.txt").write_text("the cat sat .\na river , and it was high .\n")
    (tmp_path / "spanish.txt").write_text("el gato .\nel río era ello .\n")
    (tmp_path / "sentences.txt").write_text("The cat sat .\nIt rained .\n" * 6)
    (tmp_path / "heldout.txt").write_text("the river was , .\nit was é\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_blocks_and_calls(weights_of_a_reader):
    """In the order of the document: blocks of Python, commands, and in tables what stands alone in `our` cell."""
    ran, names = [], {}
    for language, block, row in PARTS.findall(DOCUMENT.read_text(encoding="utf-8")):
        if language == "python":
            exec(block, names)
        elif language == "bash":
            for command in commands(block):
                assert cli.main(command) == 0, command
                ran.append(" ".join(command[:2]))
        elif row:
            cells = row.split("|")
            call = re.fullmatch(r" `([^`]+)` ", cells[1])
            assert call or len(cells) == 2 or not FIGURE.fullmatch(cells[2]), f"a figure without a call: {row}"
            if call and call[1].startswith("hf-elmo "):
                cli.parse(call[1].split()[1:])
            elif call:
                eval(call[1], names)
        else:
            assert language == "text"
    assert ran[:4] == ["convert elmo-files", "convert model.tar.gz", "convert 161.zip", "convert training"]
    assert {"finetune tag", "convert allennlp", "perplexity elmo-lm", "export allennlp"} < set(ran)
    assert {"convert aligned", "align elmo"} < set(ran)
    assert (weights_of_a_reader / "vectors.hdf5").is_file()
    check_functions(names, Path("elmo"))
    assert len(names["substitutes"]) == 7
    with pytest.raises(ValueError, match="list of words"):
        names["tokenizer"]("a string", is_split_into_words=True)


def check_functions(names: dict, folder: Path) -> None:
    """The document's functions give what was measured: without and with state, in several batches."""
    sentences = fixture_sentences()
    assert difference(names["embed"](sentences), layers_of(folder, sentences)[0]) == 0
    in_turn, state = names["embed_in_turn"](sentences, 7)
    measured, measured_state = layers_of(folder, sentences, 7)
    assert difference(in_turn, measured) == 0
    again, _ = names["embed_in_turn"](sentences, 7, state)
    assert difference(again, layers_of(folder, sentences, 7, measured_state)[0]) == 0
    assert difference(again, in_turn) > 1e-3
    assert names["embed"]([[]])[0].shape == (3, 0, 32)


def commands(block: str) -> list[list[str]]:
    """The arguments of each `hf-elmo` of a block, which has nothing else."""
    lines = [line.split("#")[0].split() for line in block.replace("\\\n", " ").splitlines()]
    assert all(line[0] == "hf-elmo" for line in lines)
    return [line[1:] for line in lines]


def test_figures_are_those_of_the_file():
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_figures(text, content["figures"]) == text, f"run: {content['command']}"
    assert f"`{content['command']}`" in text
    assert set(content["figures"]) == set(PROGRAMS)
    figures = [value for rows in content["figures"].values() for value in rows.values()]
    assert max(figures) < 1e-5
    assert len(figures) == len(re.findall(rf"\|{FIGURE.pattern}\|$", text, re.MULTILINE)), "a figure from elsewhere"
    with pytest.raises(ValueError, match="has 0 rows for 'nothing'"):
        with_figures(text, {"a program": {"nothing": 1.0}})


def test_the_document_is_short_and_names_existing_files():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 280
    for path in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (DOCUMENT.parent / path).is_file(), path


@pytest.mark.parametrize("program", WITHOUT_TENSORFLOW)
def test_numbers_of_the_original_program(tmp_path, program):
    """Measured again; those that need TensorFlow are in test_simple_elmo.py."""
    figures = PROGRAMS[program](tmp_path)
    assert figures.keys() == json.loads(RESULTS.read_text(encoding="utf-8"))["figures"][program].keys()
    assert max(figures.values()) < 1e-5, figures
