"""A small corpus that a language model can learn something from, and the settings of tiny runs on it."""

import random
from pathlib import Path
from typing import Any

from hf_elmo.pretraining_settings import PretrainingSettings

SUBJECTS = ["the cat", "a dog", "my old aunt", "Anna", "every child", "the small bird", "nobody"]
VERBS = ["sees", "likes", "wants", "does n't know", "will forget", "asks for"]
OBJECTS = ["the red house", "an apple", "it", "some water", "the way home", "you", "a café"]
ENDS = [".", "?", "now .", "at night ."]

TINY_MODEL = (
    "projection_size=6,cell_size=10,num_highway_layers=1,char_embedding_size=4,char_cnn_filters=[[1,4],[2,6]],"
    "max_characters_per_token=16"
)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences, some very short, whose words depend on their neighbours."""
    choose = random.Random(seed).choice
    parts = [[choose(SUBJECTS), choose(VERBS), choose(OBJECTS), choose(ENDS)] for _ in range(count)]
    return [" ".join(words if number % 7 else words[-1:]) for number, words in enumerate(parts)]


def write_corpus(folder: Path, count: int = 300) -> None:
    """train.txt, heldout.txt and vocab.txt."""
    train, heldout = sentences(count), sentences(40, seed=1)
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in train), encoding="utf-8")
    (folder / "heldout.txt").write_text("".join(f"{line}\n" for line in heldout), encoding="utf-8")
    words = sorted({word for line in train for word in line.split()} - {"café", "night"})
    (folder / "vocab.txt").write_text("".join(f"{w}\n" for w in ["<S>", "</S>", "<UNK>", *words]), encoding="utf-8")


def tiny_settings(folder: Path, output: str = "run", **values: Any) -> PretrainingSettings:
    """Settings of a run on `write_corpus(folder)`."""
    defaults = {
        "text": [str(folder / "train.txt")],
        "vocab": str(folder / "vocab.txt"),
        "output": str(folder / output),
        "config_overrides": None if "init_from" in values or "model" in values else TINY_MODEL,
        "softmax": None if "init_from" in values else "full",
        "batch_size": 4,
        "unroll_steps": 5,
        "max_steps": None if "epochs" in values else 10,
        "log_steps": 1,
        "check_corpus": False,
        "unigram_baseline": False,
        "quiet": True,
    }
    return PretrainingSettings(**{**defaults, **values})
