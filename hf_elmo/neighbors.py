# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Nearest contexts of a word: where in a text is a word used as it is in this sentence?

Every word of the text is compared with the word of the query by the cosine of their vectors, in each layer for itself.
Layer 0 has the words without their context, as static word vectors do: there all occurrences of a word are one and the
same, so it is listed once and its occurrences are counted.

Shapes are written with these letters: L LSTM layers, T words of a sentence, D numbers of a vector.
"""

import heapq
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from .embedder import BATCH_TOKENS, ElmoEmbedder, Progress, Text

WITHOUT_CONTEXT = 0  # the layer
ROUNDING = 1e-6  # cosines that differ by less are equal
SHOWN_WIDTH = 100  # columns of a line


@dataclass(frozen=True)
class Context:
    """A word in its sentence.

    Args:
        words: The words of the sentence.
        position: Which of them it is, from 0.
        sentence: The number of the sentence in the text, from 0; `None` for a query.
    """

    words: tuple[str, ...]
    position: int
    sentence: int | None = None

    @property
    def word(self) -> str:
        """The word by itself."""
        return self.words[self.position]

    def sides(self) -> tuple[str, str]:
        """What stands before and after the word."""
        return " ".join(self.words[: self.position]), " ".join(self.words[self.position + 1 :])

    def __str__(self) -> str:
        before, after = self.sides()
        return " ".join(filter(None, (before, f"[{self.word}]", after)))


@dataclass(frozen=True)
class Neighbor:
    """A context that is near the query.

    Args:
        context: The context; the first one of those that are equal.
        cosine: Of its vector and the query's.
        occurrences: How many equal contexts the text has: the same sentence, or in layer 0 the same word.
    """

    context: Context
    cosine: float
    occurrences: int


@dataclass(frozen=True)
class Neighbors:
    """What was found for a query.

    Args:
        query: The word in its sentence.
        by_layer: The nearest contexts of each layer that was asked for, the nearest first.
        same_word: Whether only occurrences of the same word were compared.
        sentences: How many sentences the text has.
        contexts: How many words of them were compared.
        left_out: How many sentences were left out because they are the query's own.
    """

    query: Context
    by_layer: dict[int, list[Neighbor]]
    same_word: bool
    sentences: int
    contexts: int
    left_out: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, as something that JSON can hold."""
        return {
            "query": {"words": list(self.query.words), "position": self.query.position, "word": self.query.word},
            "same_word": self.same_word,
            "sentences": self.sentences,
            "contexts": self.contexts,
            "left_out": self.left_out,
            "layers": {
                str(layer): [
                    {
                        "cosine": neighbor.cosine,
                        "occurrences": neighbor.occurrences,
                        "sentence": neighbor.context.sentence,
                        "position": neighbor.context.position,
                        "words": list(neighbor.context.words),
                    }
                    for neighbor in neighbors
                ]
                for layer, neighbors in self.by_layer.items()
            },
        }

    def table(self, width: int = SHOWN_WIDTH) -> str:
        """The neighbours of each layer as lines of so many columns, each word between its neighbours in the text."""
        compared = f"occurrences of {self.query.word!r}" if self.same_word else "words"
        lines = [f"query: {self.query}", f"text: {self.sentences:,} sentences, {self.contexts:,} {compared} compared"]
        if self.left_out:
            lines.append(f"left out: the query's own sentence, {self.left_out:,} times in the text")
        for layer, neighbors in self.by_layer.items():
            lines += ["", layer_name(layer)]
            if layer == WITHOUT_CONTEXT:
                lines += [_word_line(neighbor) for neighbor in neighbors]
            else:
                lines += context_lines(neighbors, width)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


def layer_name(layer: int) -> str:
    """What a layer is called in tables and pictures."""
    return "layer 0: without context, as a static vector" if layer == WITHOUT_CONTEXT else f"layer {layer}: in context"


def nearest_contexts(
    embedder: ElmoEmbedder,
    query: Text,
    word: str | int,
    texts: Iterable[Text],
    *,
    layers: Sequence[int] | None = None,
    top_k: int = 10,
    same_word: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    show_progress: bool | Progress | None = None,
) -> Neighbors:
    """Finds the words of a text that are used most alike a word in its sentence.

    The text is read once, as it comes, and only the nearest contexts are kept. A sentence that is the query's own is
    left out, and equal contexts count as one.

    Args:
        embedder: Gives the vectors.
        query: The sentence of the word: a string or a list of words.
        word: The word, or its position among the words of the sentence, from 0. Of a word that is there more than
            once, the first one is taken; upper and lower case are different if both are there.
        texts: The sentences of the text, which may be endlessly many: strings or lists of words.
        layers: Numbers of the layers to compare in; by default all, from 0, which is without context.
        top_k: How many contexts to give for each layer.
        same_word: Whether to compare only with the same word, in upper or lower case. It is faster, as only sentences
            with the word are read.
        batch_tokens: As in `ElmoEmbedder.encode`.
        show_progress: As in `ElmoEmbedder.encode`.

    Example:
        >>> from hf_elmo import ELMO_MINI
        >>> embedder = ElmoEmbedder.from_pretrained(ELMO_MINI)
        >>> text = ["They stood on the bank of the Danube .", "It rained all day ."]  # or an open file
        >>> found = nearest_contexts(embedder, "A river bank .", "bank", text, same_word=True)
        >>> print(found.by_layer[2][0].context)
        They stood on the [bank] of the Danube .
    """
    chosen = _checked_layers(embedder, layers)
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"top_k={top_k!r} is not possible: it must be a whole number from 1 on.")
    if isinstance(texts, str):
        raise ValueError("texts is a single string: give an iterable of sentences.")
    words = tuple(embedder.words(query))
    context = Context(words, _position(words, word))
    of_query = embedder.encode([list(words)], layers="all", is_split_into_words=True)[0]  # (L + 1, T, D)
    target = _normalized(of_query[:, context.position])  # (L + 1, D)
    reader = _Reader(embedder, texts, context, same_word)
    best = {layer: _Best(top_k, by_word=layer == WITHOUT_CONTEXT) for layer in chosen}
    stream = embedder.encode_stream(
        reader, layers="all", batch_tokens=batch_tokens, is_split_into_words=True, show_progress=show_progress
    )
    compared = 0
    for of_sentence in stream:
        number, sentence = reader.read.popleft()
        positions = reader.positions(sentence)
        cosines = np.einsum(
            "ltd,ld->lt", _normalized(cast(np.ndarray, of_sentence)[:, positions]), target
        )  # (L + 1, positions)
        for layer, kept in best.items():
            kept.add(cosines[layer], sentence, positions, number)
        compared += len(positions)
    if not compared:
        what = f"the word {context.word!r}" if same_word else "a word"
        raise ValueError(f"None of the {reader.sentences:,} sentences of the text has {what} to compare with.")
    by_layer = {layer: kept.neighbors() for layer, kept in best.items()}
    return Neighbors(context, by_layer, same_word, reader.sentences, compared, reader.left_out)


def _checked_layers(embedder: ElmoEmbedder, layers: Sequence[int] | None) -> list[int]:
    count = embedder.model.config.num_hidden_layers
    if layers is None:
        return list(range(count + 1))
    wrong = [layer for layer in layers if isinstance(layer, bool) or layer not in range(count + 1)]
    if wrong or not layers:
        asked = f"There is no layer {wrong[0]!r}" if wrong else "No layer is asked for"
        raise ValueError(f"{asked}: this model has the layers 0 to {count}.")
    return sorted(set(layers))


def _position(words: tuple[str, ...], word: str | int) -> int:
    if isinstance(word, int) and not isinstance(word, bool):
        if not 0 <= word < len(words):
            raise ValueError(f"There is no word {word}: the query has {len(words)} words, from 0.")
        return word
    if word in words:
        return words.index(word)
    folded = [other.casefold() for other in words]
    if str(word).casefold() not in folded:
        raise ValueError(f"The word {word!r} is not in the query, whose words are: {' '.join(words)}")
    return folded.index(str(word).casefold())


def _normalized(vectors: np.ndarray) -> np.ndarray:
    """The vectors with the length 1; a vector of zeros stays what it is."""
    vectors = vectors.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


class _Reader:
    """Gives the embedder sentences, and keeps the words of those whose vectors have not come back yet."""

    def __init__(self, embedder: ElmoEmbedder, texts: Iterable[Text], query: Context, same_word: bool):
        self.read: deque[tuple[int, tuple[str, ...]]] = deque()
        self.sentences = self.left_out = 0
        self._embedder = embedder
        self._texts = texts
        self._query = query
        self._word = query.word.casefold() if same_word else None

    def __iter__(self) -> Iterator[list[str]]:
        for number, text in enumerate(self._texts):
            words = tuple(self._embedder.words(text))
            self.sentences += bool(words)
            if words == self._query.words:
                self.left_out += 1
            elif self.positions(words):
                self.read.append((number, words))
                yield list(words)

    def positions(self, words: tuple[str, ...]) -> list[int]:
        """Which words of a sentence are compared."""
        if self._word is None:
            return list(range(len(words)))
        return [position for position, word in enumerate(words) if word.casefold() == self._word]


class _Best:
    """The nearest contexts so far, in one layer."""

    def __init__(self, count: int, by_word: bool):
        self._count = count
        self._by_word = by_word
        self._heap: list[tuple[float, int, Any]] = []  # cosine, minus the order in which they came, key
        self._found: dict[Any, tuple[Context, float, int]] = {}
        self._order = 0

    def add(self, cosines: np.ndarray, words: tuple[str, ...], positions: list[int], sentence: int) -> None:
        """Takes the cosines (positions,) of words of a sentence."""
        least = self._heap[0][0] - ROUNDING if len(self._heap) == self._count else -np.inf
        for index in np.flatnonzero(cosines >= least).tolist():
            self._add_one(float(cosines[index]), Context(words, positions[index], sentence))

    def _add_one(self, cosine: float, context: Context) -> None:
        # A context that fell out of the heap, or never was in it, is no candidate when it comes again.
        key = context.word if self._by_word else (context.words, context.position)
        if key in self._found:
            first, value, count = self._found[key]
            self._found[key] = (first, value, count + 1)
            return
        self._order += 1
        entry = (cosine, -self._order, key)
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, entry)
        elif entry > self._heap[0]:
            _, _, dropped = heapq.heappushpop(self._heap, entry)
            del self._found[dropped]
        else:
            return
        self._found[key] = (context, cosine, 1)

    def neighbors(self) -> list[Neighbor]:
        return [Neighbor(*self._found[key]) for _, _, key in sorted(self._heap, reverse=True)]


# --- Lines of text ---------------------------------------------------------------------------------------------------


def _word_line(neighbor: Neighbor) -> str:
    times = "" if neighbor.occurrences == 1 else f"   {neighbor.occurrences:,} times, all of them equal"
    return f"  {neighbor.cosine:6.3f}  {neighbor.context.word}{times}"


def context_lines(neighbors: Sequence[Neighbor], width: int = SHOWN_WIDTH, labels: Sequence[str] = ()) -> list[str]:
    """A line for each context, with the words below each other, and a label before it if there are labels."""
    marked = [f"[{neighbor.context.word}]" for neighbor in neighbors]
    widest_label = max(map(display_width, labels), default=0)
    before_text = 10 + (widest_label + 2 if labels else 0)  # the cosine and the label
    room = max(width - before_text - max(map(display_width, marked), default=0) - 2, 20)
    longest = max((display_width(neighbor.context.sides()[0]) for neighbor in neighbors), default=0)
    left_room = min(longest, room // 2)
    lines = []
    for number, neighbor in enumerate(neighbors):
        before, after = neighbor.context.sides()
        left = fit(before, left_room, keep_end=True)
        label = f"{pad(labels[number], widest_label)}  " if labels else ""
        times = f" ({neighbor.occurrences:,} times)" if neighbor.occurrences > 1 else ""
        right = fit(after, room - left_room - display_width(times)).rstrip()
        lines.append(f"  {neighbor.cosine:6.3f}  {label}{left} {marked[number]} {right}{times}".rstrip())
    return lines


def fit(text: str, width: int, keep_end: bool = False) -> str:
    """The text in exactly so many columns: cut with dots, or filled with spaces, at its end or at its begin."""
    if display_width(text) > width:
        characters = list(reversed(text)) if keep_end else list(text)
        kept, used = [], 0
        for character in characters:
            used += display_width(character)
            if used > width - 3:
                break
            kept.append(character)
        text = "..." + "".join(reversed(kept)) if keep_end else "".join(kept) + "..."
    return pad(text, width, at_begin=keep_end)


def pad(text: str, width: int, at_begin: bool = False) -> str:
    """The text with spaces up to so many columns of a terminal."""
    spaces = " " * (width - display_width(text))
    return spaces + text if at_begin else text + spaces


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for a Korean or Chinese character, none for an accent."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


__all__ = ["Context", "Neighbor", "Neighbors", "nearest_contexts"]
