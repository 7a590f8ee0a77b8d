# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Which words the language model expects at a place of a text.

The forward direction knows the words before the place, the backward one those after it; neither reads the word that
stands there. The combined log-probability is the mean of the two, as in scoring.py.

Shapes are written with these letters: K places, P projection, V words that can be predicted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .scoring import (
    BATCH_TOKENS,
    DIRECTIONS,
    Text,
    check_count,
    check_tokenizer,
    encode,
    log_probabilities,
    reading,
    top_layers,
    words_of,
)

# The position of a word, from 1 as <S> is 0, or the word itself if it is there once.
Place: TypeAlias = int | str

# Log-probabilities of all words are computed for so many places at a time that there are at most this many.
SCORES_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Substitute:
    """A word that can stand at a place, and its log-probabilities there, in nats."""

    word: str
    forward: float
    backward: float
    combined: float


@dataclass(frozen=True)
class Substitutes:
    """The best words for a place of a text.

    Args:
        position: Of the word in the sentence, from 1: `<S>` is 0.
        word: That stands there. It was not read.
        known: Whether it is in the vocabulary.
        scores: Its own log-probabilities; those of `<UNK>` if it is not in the vocabulary.
        ranks: Its rank among all words by `"forward"`, `"backward"` and `"combined"`, 1 for the best; `None` if it is
            not in the vocabulary.
        forward: The best words for what stands before the place, best first.
        backward: The best words for what stands after it.
        combined: The best words for both.
    """

    position: int
    word: str
    known: bool
    scores: Substitute
    ranks: dict[str, int] | None
    forward: list[Substitute]
    backward: list[Substitute]
    combined: list[Substitute]

    def to_dict(self) -> dict[str, Any]:
        """All of it, as something that JSON can hold."""
        return asdict(self)


def find_substitutes(
    model: Any,
    tokenizer: Any,
    text: Text,
    places: Place | Sequence[Place] | None = None,
    *,
    top_k: int = 10,
    is_split_into_words: bool | None = None,
) -> list[Substitutes]:
    """The best words for places of a text, as `ElmoForPreTraining.substitutes` gives them, always as a list."""
    check_tokenizer(model, tokenizer)
    check_count("top_k", top_k)
    words = words_of(tokenizer, text, 0, is_split_into_words)
    positions = find_positions(words, places)
    suggested = _suggested_words(tokenizer, model.softmax.num_words)  # (V,)
    if top_k > int(suggested.sum()):
        raise ValueError(f"top_k={top_k} is not possible: the vocabulary has {int(suggested.sum())} words to suggest.")
    with reading(model):
        inputs = encode(tokenizer, [words], model.device)
        ids = inputs["input_ids"][0].tolist()
        found = []
        for position, scores in zip(positions, _scores(model, inputs, positions), strict=True):
            word_id = ids[position]
            is_known = word_id < len(suggested) and bool(suggested[word_id])
            own = word_id if is_known else tokenizer.unk_token_id
            found.append(_best(tokenizer, scores, suggested, position, words[position - 1], own, is_known, top_k))
    return found


def find_positions(words: list[str], places: Place | Sequence[Place] | None) -> list[int]:
    """The positions of words, given by position or as words; all of them for `None`."""
    if places is None:
        return list(range(1, len(words) + 1))
    if isinstance(places, (int, str)):
        places = [places]
    return [_find_position(words, place) for place in places]


def _find_position(words: list[str], place: Any) -> int:
    if isinstance(place, str):
        positions = [position for position, word in enumerate(words, start=1) if word == place]
        if len(positions) == 1:
            return positions[0]
        if not positions:
            raise ValueError(f"The text has no word {place!r}. Its words are: {_listed(words)}")
        raise ValueError(
            f"The word {place!r} is in the text {len(positions)} times: give one of the positions "
            f"{', '.join(map(str, positions))} instead."
        )
    if isinstance(place, bool) or not isinstance(place, int) or not 1 <= place <= len(words):
        raise ValueError(
            f"word={place!r} is not possible: the text has {len(words)} words, so it is one of them or a position "
            f"from 1 to {len(words)}."
        )
    return place


def _listed(words: Iterable[str]) -> str:
    return ", ".join(repr(word) for word in list(words)[:50])


def _suggested_words(tokenizer: Any, num_words: int) -> Tensor:
    """(V,), false for `<S>`, `</S>` and `<UNK>`."""
    suggested = torch.ones(num_words, dtype=torch.bool)
    suggested[[tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]] = False
    return suggested


def _scores(model: Any, inputs: dict[str, Tensor], positions: list[int]) -> Iterator[Tensor]:
    """Of each position the log-probabilities (3, V) of all words: forward, backward, combined."""
    size = model.config.projection_size
    forward, backward = (torch.empty(len(positions), size, dtype=model.dtype, device=model.device) for _ in range(2))
    for start, *halves in top_layers(model, inputs, BATCH_TOKENS):
        # The forward direction predicts a word from the position before it, the backward one from that after it.
        for known, half, step in zip((forward, backward), halves, (-1, +1), strict=True):
            for row, position in enumerate(positions):
                if half is not None and start <= position + step < start + half.shape[1]:
                    known[row] = half[0, position + step - start]
    rows = max(SCORES_AT_A_TIME // model.softmax.num_words, 1)
    for begin in range(0, len(positions), rows):
        both = [log_probabilities(model, known[begin : begin + rows]) for known in (forward, backward)]
        for forward_scores, backward_scores in zip(*both, strict=True):
            yield torch.stack([forward_scores, backward_scores, (forward_scores + backward_scores) / 2])


def _best(
    tokenizer: Any,
    scores: Tensor,
    suggested: Tensor,
    position: int,
    word: str,
    own: int,
    is_known: bool,
    top_k: int,
) -> Substitutes:
    own_scores = scores[:, own]
    candidates = scores.masked_fill(~suggested, float("-inf"))
    above = (candidates > own_scores.unsqueeze(1)).sum(dim=1).tolist()
    tops = candidates.topk(top_k, dim=1).indices  # (3, top_k)
    best = {
        direction: [
            Substitute(name, *values)
            for name, values in zip(
                tokenizer.convert_ids_to_tokens(ids.tolist()), scores[:, ids].T.tolist(), strict=True
            )
        ]
        for direction, ids in zip(DIRECTIONS, tops, strict=True)
    }
    return Substitutes(
        position=position,
        word=word,
        known=is_known,
        scores=Substitute(tokenizer.convert_ids_to_tokens(own), *own_scores.tolist()),
        ranks={name: 1 + count for name, count in zip(DIRECTIONS, above, strict=True)} if is_known else None,
        **best,
    )


__all__ = ["Substitute", "Substitutes", "find_substitutes"]
