# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Which of two sentences a language model finds more probable: minimal pairs, as in BLiMP.

Of each pair the total log-probabilities of both sentences are compared, boundaries included, without regard to their
lengths. The model is right if the good sentence has the larger one. A difference of at most a millionth of the scores
is rounding: a tie, which does not count as right.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .scoring import BATCH_TOKENS, DIRECTIONS, SentenceScore
from .text_files import BYTE_ORDER_MARK, open_text

# What BLiMP says of a pair, from coarse to fine: its field, its phenomenon, and the kind of its sentences.
GROUPS = ("field", "linguistics_term", "UID")
COLUMNS = {("good", "bad"), ("sentence_good", "sentence_bad")}  # what the first line of a table may be
TIE = 1e-6


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences of which one is right, and the groups that they belong to, by the kind of the group."""

    good: str
    bad: str
    groups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredPair:
    """A pair, the scores of both sentences, and what the model says by each direction."""

    pair: MinimalPair
    good: SentenceScore
    bad: SentenceScore

    def verdict(self, direction: Any) -> str:
        """`"right"`, `"wrong"` or `"tie"`."""
        good, bad = self.good.total(direction), self.bad.total(direction)
        if abs(good - bad) <= TIE * max(abs(good), abs(bad)):
            return "tie"
        return "right" if good > bad else "wrong"

    @property
    def has_unknown_words(self) -> bool:
        """Whether a word of them is not in the vocabulary."""
        return self.good.unknown_words + self.bad.unknown_words > 0


@dataclass
class PairCounts:
    """How often a model was right, for some pairs."""

    pairs: int = 0
    pairs_with_unknown_words: int = 0
    verdicts: dict[str, dict[str, int]] = field(
        default_factory=lambda: {direction: {"right": 0, "wrong": 0, "tie": 0} for direction in DIRECTIONS}
    )

    def add(self, scored: ScoredPair) -> None:
        """Counts one pair more."""
        self.pairs += 1
        self.pairs_with_unknown_words += scored.has_unknown_words
        for direction in DIRECTIONS:
            self.verdicts[direction][scored.verdict(direction)] += 1

    def accuracy(self, direction: str) -> float:
        """Share of the pairs in which the good sentence is the more probable one; a tie is not."""
        return self.verdicts[direction]["right"] / max(self.pairs, 1)

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold."""
        return {
            "pairs": self.pairs,
            "pairs_with_unknown_words": self.pairs_with_unknown_words,
            **{
                direction: {"accuracy": self.accuracy(direction), **self.verdicts[direction]}
                for direction in DIRECTIONS
            },
        }


@dataclass
class PairResults:
    """How often a model was right: of all pairs, of those without unknown words, and of each group."""

    all: PairCounts = field(default_factory=PairCounts)
    all_words_known: PairCounts = field(default_factory=PairCounts)
    groups: dict[str, dict[str, PairCounts]] = field(default_factory=dict)

    def add(self, scored: ScoredPair) -> None:
        """Counts one pair more."""
        self.all.add(scored)
        if not scored.has_unknown_words:
            self.all_words_known.add(scored)
        for kind, name in scored.pair.groups.items():
            self.groups.setdefault(kind, {}).setdefault(name, PairCounts()).add(scored)

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold."""
        return {
            **self.all.to_dict(),
            "all_words_known": self.all_words_known.to_dict(),
            "groups": {
                kind: {name: counts.to_dict() for name, counts in sorted(groups.items())}
                for kind, groups in self.groups.items()
            },
        }


def score_pairs(
    model: Any,
    tokenizer: Any,
    pairs: Iterable[MinimalPair],
    *,
    split_words: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[ScoredPair]:
    """Scores pairs one by one, in their order.

    Args:
        model: An `ElmoForPreTraining`.
        tokenizer: Of the model.
        pairs: Any number of them.
        split_words: Whether words are what stands between spaces; otherwise the tokenizer finds them.
        batch_tokens: As of `ElmoForPreTraining.score`.
    """
    waiting: deque[MinimalPair] = deque()

    def sentences() -> Iterator[Any]:
        for pair in pairs:
            waiting.append(pair)
            for text in (pair.good, pair.bad):
                yield text.split() if split_words else text

    scores = model.score_stream(sentences(), tokenizer, batch_tokens=batch_tokens)
    for good in scores:
        yield ScoredPair(waiting.popleft(), good, next(scores))


# --- Files -----------------------------------------------------------------------------------------------------------


def read_pairs(path: Path) -> Iterator[MinimalPair]:
    """The pairs of a file: two columns with a tab between them, or JSON lines in BLiMP's format.

    A table may begin with the line `good<TAB>bad` or `sentence_good<TAB>sentence_bad`. A file whose first character is
    a brace holds JSON: objects with `sentence_good` and `sentence_bad`, and maybe `field`, `linguistics_term` and
    `UID`, by which pairs are grouped.
    """
    is_json: bool | None = None
    for number, line in _lines(path):
        place = f"{path}: line {number}"
        if is_json is None:
            is_json = line.startswith("{")
            if tuple(line.split("\t")) in COLUMNS:
                continue
        yield _pair_of_json(line, place) if is_json else _pair_of_columns(line, place)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, numbered from 1."""
    with open_text(path) as file:
        for number, content in enumerate(file, start=1):
            try:
                line = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: line {number} is not UTF-8. Convert the file.") from error
            if line.strip():
                yield number, line


def _pair_of_columns(line: str, place: str) -> MinimalPair:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != 2 or not all(columns):
        raise ValueError(
            f"{place} has {len(columns)} columns{'' if all(columns) else ', an empty one among them'}, but a pair is "
            "the good sentence, a tab, and the bad one."
        )
    good, bad = columns
    return MinimalPair(good, bad)


def _pair_of_json(line: str, place: str) -> MinimalPair:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place} is not JSON: {error}") from error
    sentences = [
        content.get(name) if isinstance(content, dict) else None for name in ("sentence_good", "sentence_bad")
    ]
    if not all(isinstance(sentence, str) and sentence.strip() for sentence in sentences):
        raise ValueError(f"{place} must have the texts 'sentence_good' and 'sentence_bad', as BLiMP's files have.")
    groups = {kind: str(content[kind]) for kind in GROUPS if content.get(kind) is not None}
    return MinimalPair(content["sentence_good"], content["sentence_bad"], groups)


__all__ = ["MinimalPair", "PairCounts", "PairResults", "ScoredPair", "read_pairs", "score_pairs"]
