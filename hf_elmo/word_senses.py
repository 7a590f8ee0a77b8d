# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Word senses by the nearest neighbour, as in Peters et al. 2018, section 5.3.

The vector of a sense is the mean of the vectors of the words that have it in the training data. A word gets the sense
of its lemma and part of speech whose vector is nearest, by cosine. If the training data does not have the lemma, it
gets the first sense of WordNet, if that is at hand, and none otherwise.

Senses are WordNet's sense keys, such as `bank%1:14:00::`.
"""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

import numpy as np

from .text_files import COMPRESSED, open_text

PathLike: TypeAlias = str | os.PathLike[str]

SENSE_KEY = re.compile(r"([^%\s]+)%([1-5]):\d\d:\d\d:[^:\s]*:(?:\d\d)?")
SATELLITE, ADJECTIVE = "5", "3"  # how sense keys number the parts of speech; these two are adjectives
XML_PARTS_OF_SPEECH = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}
NAME = "NNP"  # names have the sense of person, group or location, which is not that of the word
DATA, GOLD = ".data.xml", ".gold.key.txt"
JSON_LINES = (".jsonl", *(f".jsonl{suffix}" for suffix in COMPRESSED))


@dataclass(frozen=True)
class Target:
    """A word with a sense.

    Args:
        positions: Which words of the sentence it is: one, or several of a multiword.
        entry: Its lemma and part of speech: what its senses are looked up by, as `bank%1`.
        senses: The keys of its senses; usually one.
    """

    positions: tuple[int, ...]
    entry: str
    senses: tuple[str, ...]


@dataclass(frozen=True)
class SenseData:
    """Sentences with words whose senses are known.

    Args:
        source: Where they come from, for messages.
        sentences: The words of each sentence.
        targets: The words with senses of each sentence.
    """

    source: str
    sentences: list[list[str]]
    targets: list[list[Target]]

    def describe(self) -> str:
        """One line of counts."""
        count = sum(map(len, self.targets))
        return f"{self.source}: {len(self.sentences):,} sentences, {count:,} words with a sense"

    def entries(self) -> set[str]:
        """The lemmas and parts of speech of all words with a sense."""
        return {target.entry for targets in self.targets for target in targets}

    def restrict(self, entries: set[str]) -> "SenseData":
        """The words of these entries, and the sentences that have one."""
        kept = [[target for target in targets if target.entry in entries] for targets in self.targets]
        pairs = [(words, targets) for words, targets in zip(self.sentences, kept, strict=True) if targets]
        return SenseData(self.source, [words for words, _ in pairs], [targets for _, targets in pairs])


def entry_of(key: str) -> str:
    """The lemma and part of speech that a sense key belongs to.

    Example:
        >>> entry_of("bank%1:14:00::"), entry_of("recent%5:00:00:past:00")
        ('bank%1', 'recent%3')
    """
    match = SENSE_KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"{key!r} is not a sense key of WordNet, such as 'bank%1:14:00::'.")
    return f"{match[1].lower()}%{ADJECTIVE if match[2] == SATELLITE else match[2]}"


# --- Files -----------------------------------------------------------------------------------------------------------


def read_senses(path: PathLike) -> SenseData:
    """Reads sentences with senses.

    Args:
        path: One of these:

            - JSON lines (`.jsonl`, also compressed), a sentence each: `tokens`, with multiwords joined by `_`, and
              `senses`, a list of `[number of the token, lemma, part of speech, [sense keys]]`. Names (`NNP`) are
              left out.
            - a file `NAME.data.xml` of Raganato et al. 2017, with `NAME.gold.key.txt` beside it, or their folder.
    """
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob(f"*{DATA}"))
        if len(found) != 1:
            raise FileNotFoundError(f"{path} has {len(found)} files *{DATA}, but one is needed. Name the file itself.")
        path = found[0]
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.name.endswith(DATA):
        data = _read_xml(path)
    elif path.name.endswith(JSON_LINES):
        data = _read_json_lines(path)
    else:
        raise ValueError(f"{path} is neither *{DATA} nor {', '.join(f'*{name}' for name in JSON_LINES)}.")
    if not data.entries():
        raise ValueError(f"{path} has no word with a sense.")
    return data


def _read_json_lines(path: Path) -> SenseData:
    data = SenseData(path.name, [], [])
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                content = json.loads(line)
                words, targets = _from_tokens(content["tokens"], content["senses"])
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{path}: line {number} is not a sentence with senses: {problem}") from error
            data.sentences.append(words)
            data.targets.append(targets)
    return data


def _from_tokens(tokens: list[str], senses: list[Any]) -> tuple[list[str], list[Target]]:
    """The words of tokens, some of which are several words, and the targets among them."""
    words: list[str] = []
    places: list[tuple[int, ...]] = []
    for token in tokens:
        parts = [part for part in token.split("_") if part] or [token]
        places.append(tuple(range(len(words), len(words) + len(parts))))
        words += parts
    targets = []
    for index, _, part_of_speech, keys in senses:
        if not 0 <= index < len(tokens):
            raise ValueError(f"there is no token {index}, only 0 to {len(tokens) - 1}.")
        if part_of_speech != NAME and keys:
            senses_of_word = tuple(sense for key in keys for sense in _separate(key))
            targets.append(Target(places[index], entry_of(senses_of_word[0]), senses_of_word))
    return words, targets


def _separate(key: str) -> list[str]:
    """The keys of a word with several senses, which SemCor writes as one: `year%1:28:02::;1:28:01::`."""
    lemma, percent, rest = key.partition("%")
    return [f"{lemma}{percent}{part}" for part in rest.split(";")]


def _read_xml(path: Path) -> SenseData:
    gold_path = path.with_name(path.name.removesuffix(DATA) + GOLD)
    if not gold_path.is_file():
        raise FileNotFoundError(f"{path} needs the file {gold_path.name} with its senses beside it.")
    gold_text = gold_path.read_text("utf-8", errors="replace")  # what is no text is no sense that an instance has
    gold = {fields[0]: fields[1:] for fields in map(str.split, gold_text.splitlines()) if fields}
    data = SenseData(path.name, [], [])
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not XML: {error}") from error
    for sentence in root.iter("sentence"):
        words: list[str] = []
        targets: list[Target] = []
        for element in sentence:
            parts = (element.text or "").split()
            if element.tag == "instance":
                positions = tuple(range(len(words), len(words) + len(parts)))
                targets.append(_from_instance(element, positions, gold, path))
            words += parts
        data.sentences.append(words)
        data.targets.append(targets)
    return data


def _from_instance(
    element: ElementTree.Element, positions: tuple[int, ...], gold: dict[str, list[str]], path: Path
) -> Target:
    name = element.get("id", "")
    part_of_speech = XML_PARTS_OF_SPEECH.get(element.get("pos", ""))
    if part_of_speech is None or not element.get("lemma") or not positions:
        raise ValueError(f"{path}: the instance {name!r} lacks a word, a lemma or a part of speech that has senses.")
    if not gold.get(name):
        raise ValueError(f"{path}: the instance {name!r} has no sense in the file of senses beside it.")
    return Target(positions, f"{element.get('lemma', '').lower()}%{part_of_speech}", tuple(gold[name]))


def read_first_senses(path: PathLike) -> dict[str, str]:
    """The first sense of each lemma and part of speech, from the file `index.sense` of WordNet."""
    numbered: dict[str, tuple[int, str]] = {}
    with open(path, encoding="utf-8", errors="replace") as file:  # what is no text is refused below
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if len(fields) != 4 or not fields[2].isdecimal() or SENSE_KEY.fullmatch(fields[0]) is None:
                raise ValueError(f"{path}: line {number} is not one of WordNet's index.sense: {line.strip()!r:.80}")
            entry, sense = entry_of(fields[0]), (int(fields[2]), fields[0])
            numbered[entry] = min(numbered.get(entry, sense), sense)
    if not numbered:
        raise ValueError(f"{path} is empty; give the file index.sense of WordNet.")
    return {entry: key for entry, (_, key) in numbered.items()}


# --- Senses by neighbours --------------------------------------------------------------------------------------------


@dataclass
class SenseVectors:
    """The mean vectors of senses in some layers, and how often each sense was seen.

    Filled by `add`, then asked by `nearest`.
    """

    sums: dict[str, np.ndarray] = field(default_factory=dict)  # (layers, D) by sense
    counts: Counter[str] = field(default_factory=Counter)
    senses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # of each entry

    def add(self, target: Target, vectors: np.ndarray) -> None:
        """Takes a word with its vectors (layers, D)."""
        for sense in target.senses:
            if sense in self.sums:
                self.sums[sense] += vectors
            else:
                self.sums[sense] = vectors.astype(np.float64)
            self.counts[sense] += 1
            self.senses[target.entry].add(sense)

    def most_frequent(self, entry: str) -> str | None:
        """The sense that was seen most often, or `None` if the entry was not seen."""
        ordered = self._ordered(entry)
        return ordered[0] if ordered else None

    def nearest(self, entry: str, vectors: np.ndarray) -> list[str] | None:
        """The sense whose vector is nearest to the word's (layers, D), in each layer; `None` for an unseen entry.

        Of senses that are equally near, as without context, the most frequent one is taken.
        """
        ordered = self._ordered(entry)
        if not ordered:
            return None
        known = np.stack([self.sums[sense] for sense in ordered])  # (senses, layers, D)
        cosines = np.einsum("sld,ld->ls", _normalized(known), _normalized(vectors.astype(np.float64)))
        return [ordered[index] for index in np.round(cosines, 6).argmax(axis=1)]

    def _ordered(self, entry: str) -> list[str]:
        return sorted(self.senses.get(entry, ()), key=lambda sense: (-self.counts[sense], sense))


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def target_vectors(vectors: np.ndarray, target: Target) -> np.ndarray:
    """The vectors (layers, D) of a word in a sentence of vectors (layers, T, D); of a multiword, their mean."""
    return vectors[:, list(target.positions)].mean(axis=1, dtype=np.float64)


def collect_senses(data: SenseData, vectors: Iterable[np.ndarray]) -> SenseVectors:
    """The vectors of the senses in training data, from those of its sentences, each (layers, T, D)."""
    collected = SenseVectors()
    for targets, of_sentence in zip(data.targets, vectors, strict=True):
        for target in targets:
            collected.add(target, target_vectors(of_sentence, target))
    return collected


def predict_senses(
    data: SenseData, vectors: Iterable[np.ndarray], known: SenseVectors, first_senses: dict[str, str] | None = None
) -> list[list[str | None]]:
    """The senses of all words with one: for each layer a list in the order of the data; `None` is no answer."""
    answers: list[list[str | None]] = []
    for targets, of_sentence in zip(data.targets, vectors, strict=True):
        for target in targets:
            found = known.nearest(target.entry, target_vectors(of_sentence, target))
            back_off = (first_senses or {}).get(target.entry)
            answers.append([back_off] * len(of_sentence) if found is None else list(found))
    return [list(layer) for layer in zip(*answers, strict=True)]


def sense_scores(data: SenseData, answers: Sequence[str | None]) -> dict[str, float]:
    """Precision, recall and F1 of answers in the order of the data. A word with several senses may get any of them."""
    targets = [target for targets in data.targets for target in targets]
    right = sum(answer in target.senses for answer, target in zip(answers, targets, strict=True))
    answered = sum(answer is not None for answer in answers)
    return {
        "precision": right / max(answered, 1),
        "recall": right / max(len(targets), 1),
        "f1": 2 * right / max(answered + len(targets), 1),
    }


__all__ = [
    "SenseData",
    "SenseVectors",
    "Target",
    "collect_senses",
    "predict_senses",
    "read_first_senses",
    "read_senses",
    "sense_scores",
]
