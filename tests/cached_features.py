"""Features of sentences, out of a cache and without one."""

import io
import os
import random
import signal
import subprocess
import sys
from functools import cache as remembered
from pathlib import Path

import torch
from tiny import SENTENCES, encode, random_model, tiny_config
from torch.testing import assert_close

from hf_elmo import ElmoModel
from hf_elmo.feature_cache import MAGIC, FeatureCache

LAYERS = 3
HEADER_SIZE = len(MAGIC) + 32


def frozen_model(seed: int = 0, scale: float = 1.0, **overrides) -> ElmoModel:
    return random_model(tiny_config(**overrides), seed, scale).requires_grad_(False)


@remembered
def batch_of(*sentences: str, **options) -> dict[str, torch.Tensor]:
    return encode(list(sentences), **options)


def read(cache: FeatureCache, model: ElmoModel, sentences: list[str], **options) -> list[list[torch.Tensor]]:
    """The layers of each sentence, without padding."""
    batch = batch_of(*sentences, **options)
    layers = cache.layers(model, batch["character_ids"], batch["attention_mask"].bool())
    return by_sentence(layers, batch["attention_mask"])


def computed(model: ElmoModel, sentences: list[str]) -> list[list[torch.Tensor]]:
    """The same without a cache, in one batch."""
    batch = batch_of(*sentences)
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
    return by_sentence(outputs.hidden_states, batch["attention_mask"])


def by_sentence(layers, mask) -> list[list[torch.Tensor]]:
    return [[layer[row][mask[row].bool()] for layer in layers] for row in range(len(mask))]


def assert_equal(actual, expected, **tolerances) -> None:
    assert_close(actual, expected, **(tolerances or {"rtol": 0, "atol": 0}))


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*/*{suffix}"))


def many_sentences(count: int, seed: int = 0) -> list[str]:
    chooser = random.Random(seed)
    words = " ".join(SENTENCES).split()
    return [f"{number} " + " ".join(chooser.choices(words, k=chooser.randint(1, 9))) for number in range(count)]


class DeadlyFile(io.FileIO):
    """A file that takes few bytes at a time, as any file may, and kills the process after some of them."""

    writes_left = 0

    def write(self, content):
        if DeadlyFile.writes_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        DeadlyFile.writes_left -= 1
        return super().write(content[:50])


def open_deadly(path, mode, buffering=-1):
    return DeadlyFile(path, mode) if "a" in mode else open(path, mode, buffering)


PREAMBLE = f"""
import io, json, os, random, shutil, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import conftest
from cached_features import *
from hf_elmo import feature_cache
from hf_elmo.feature_cache import ENTRY_SIZE, FeatureCache
from tiny import *
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs a program that may use all of this, in a process of its own."""
    return subprocess.run([sys.executable, "-c", PREAMBLE + program, *arguments], text=True, capture_output=True)
