"""Memory: a long document, many calls, loading. Each is measured in a process of its own, by `measure_memory.py`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from promises import FULL, trials
from tiny import random_model

from hf_elmo import ElmoConfig

CALLS = 10_000

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux counts memory like this"
)


def measure(*arguments: object) -> dict[str, int]:
    command = [sys.executable, str(Path(__file__).with_name("measure_memory.py")), *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads(finished.stdout)


@pytest.mark.promise("M1", n=trials(1, 2))
@pytest.mark.slow
def test_a_document_of_100000_words_takes_less_than_4_gigabytes():
    """All layers of the original model, on top of its weights; reading all words, one after the other, takes long.

    So in an ordinary run the part that grows with the words is measured with a model as wide as the original, whose
    cells are few, as nothing that has the size of a cell is kept for a word; and the part that does not grow with the
    original.
    """
    short, long = (measure("document", "--size", "wide", "--words", words) for words in (4_200, 12_600))
    a_word = (long["peak"] - short["peak"]) / (long["words"] - short["words"])
    assert long["output"] == 12_600 * 3 * 1024 * 4
    assert a_word > 3 * 1024 * 4  # the vectors themselves
    beginning = measure("document", "--size", "original", "--words", 300)["peak"]
    assert short["peak"] + beginning + 100_000 * a_word < 4e9, (short, long, beginning)
    if FULL:
        assert measure("document", "--size", "original", "--words", 100_000)["peak"] < 4e9


@pytest.mark.promise("M2", n=CALLS)
@pytest.mark.slow
def test_memory_does_not_grow_with_calls():
    figures = measure("calls", "--count", CALLS)
    assert figures["after"] < 1.01 * figures["before"], figures
    assert figures["cached_words"] == 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    model = random_model(ElmoConfig.medium(vocab_size=4, softmax="full"))
    model.save_pretrained(place / "single")
    model.to(torch.float16).save_pretrained(place / "half")
    return place


@pytest.mark.promise("M3")
def test_loading_takes_little_more_than_the_file(folder):
    figures = measure("loading", "--folder", folder / "single")
    assert figures["weights"] < figures["file"] < 1.01 * figures["weights"]
    assert figures["weights"] <= figures["peak"] + 5e6
    assert figures["peak"] <= 1.3 * figures["file"], figures


@pytest.mark.promise("M3")
def test_weights_of_half_precision_are_loaded_as_single_ones(folder):
    """Both may be there at a time, and nothing more."""
    figures = measure("loading", "--folder", folder / "half", "--dtype", "float32")
    assert 1.99 < figures["weights"] / figures["file"] < 2.01
    assert figures["peak"] <= 1.1 * (figures["file"] + figures["weights"]), figures
