# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences drawn from the forward language model, word by word.

Each word is read once, with the state that the words before it left, so the time is linear in the length.

Shapes are written with these letters: B sentences that still go on, L layers, P projection, H cell, V words that can
be predicted.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .scoring import Text, check_count, check_tokenizer, encode, log_probabilities, reading, words_of

# Log-probabilities of all words are computed for so many sentences at a time that there are at most this many.
SCORES_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Sample:
    """A sentence that a language model made.

    Args:
        prompt: The words that it was to begin with.
        words: Those that were drawn after them.
        log_probabilities: Of the words drawn, and of `</S>` if it was drawn, in nats: as the model gives them, without
            temperature or a choice of words.
        ended: Whether `</S>` was drawn; otherwise the sentence has as many words as were allowed.
    """

    prompt: list[str]
    words: list[str]
    log_probabilities: list[float]
    ended: bool

    @property
    def text(self) -> str:
        """All words, with spaces between them."""
        return " ".join([*self.prompt, *self.words])

    def to_dict(self) -> dict[str, Any]:
        """All of it, as something that JSON can hold."""
        return {"text": self.text, **asdict(self)}


class _Choice(NamedTuple):
    """How a word is drawn."""

    temperature: float
    top_k: int | None
    top_p: float | None
    forbidden: Tensor  # (V,)


class _Progress(NamedTuple):
    """Where the forward direction is in each sentence, and what it predicts the next word from."""

    top: Tensor  # (B, P)
    hidden: Tensor  # (L, B, P)
    cell: Tensor  # (L, B, H)

    def of(self, rows: list[int]) -> "_Progress":
        return _Progress(top=self.top[rows], hidden=self.hidden[:, rows], cell=self.cell[:, rows])


def draw_samples(
    model: Any,
    tokenizer: Any,
    prompt: Text = "",
    *,
    num_samples: int = 1,
    max_words: int = 50,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    allow_unknown: bool = False,
) -> list[Sample]:
    """Sentences as `ElmoForPreTraining.sample` gives them."""
    check_tokenizer(model, tokenizer)
    check_count("num_samples", num_samples)
    check_count("max_words", max_words)
    choice = _choice(tokenizer, model.softmax.num_words, temperature, top_k, top_p, allow_unknown)
    generator = torch.Generator().manual_seed(seed)
    # A number for each word: so a sample does not depend on how many there are, or which of them have ended.
    numbers = torch.rand(num_samples, max_words, generator=generator, dtype=torch.float64)
    words = words_of(tokenizer, prompt)
    rows = max(SCORES_AT_A_TIME // model.softmax.num_words, 1)
    with reading(model):
        start = _read_prompt(model, tokenizer, words)
        return [
            sample for some in numbers.split(rows) for sample in _draw(model, tokenizer, words, start, some, choice)
        ]


def _choice(
    tokenizer: Any,
    num_words: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    allow_unknown: bool,
) -> _Choice:
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(
            f"temperature={temperature} is not possible: it must be a positive number. For the best word each time, "
            "set top_k=1."
        )
    if top_k is not None:
        check_count("top_k", top_k)
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} is not possible: it must be above 0 and at most 1.")
    forbidden = torch.zeros(num_words, dtype=torch.bool)
    forbidden[tokenizer.bos_token_id] = True  # what the forward direction never predicts
    forbidden[tokenizer.unk_token_id] = not allow_unknown
    return _Choice(temperature, top_k, top_p, forbidden)


def _read_prompt(model: Any, tokenizer: Any, prompt: list[str]) -> _Progress:
    """Where the forward direction is after `<S>` and the prompt, for one sentence."""
    inputs = {name: value[:, :-1] for name, value in encode(tokenizer, [prompt], model.device).items()}
    outputs = model.elmo(**inputs, output_hidden_states=True, output_state=True, return_dict=True)
    return _Progress(
        top=outputs.hidden_states[-1][:, -1].chunk(2, dim=1)[0],
        hidden=outputs.state.hidden.chunk(2, dim=2)[0],
        cell=outputs.state.cell.chunk(2, dim=2)[0],
    )


def _draw(
    model: Any, tokenizer: Any, prompt: list[str], start: _Progress, numbers: Tensor, choice: _Choice
) -> list[Sample]:
    """A sentence for each row of numbers (B, words)."""
    drawn: list[list[str]] = [[] for _ in numbers]
    log_probabilities_: list[list[float]] = [[] for _ in numbers]
    going = list(range(len(numbers)))  # the sentences that have not ended
    progress = start.of([0] * len(numbers))
    for step in range(numbers.shape[1]):
        scores = log_probabilities(model, progress.top)  # (B, V)
        ids = draw_words(scores, numbers[going, step], choice)  # (B,)
        for sentence, score in zip(going, scores.gather(1, ids.unsqueeze(1)).squeeze(1).tolist(), strict=True):
            log_probabilities_[sentence].append(score)
        stay = (ids != tokenizer.eos_token_id).nonzero().squeeze(1).tolist()
        going = [going[row] for row in stay]
        if not going:
            break
        words = tokenizer.convert_ids_to_tokens(ids[stay].tolist())
        for sentence, word in zip(going, words, strict=True):
            drawn[sentence].append(word)
        progress = _read_words(model, tokenizer, words, progress.of(stay))
    return [
        Sample(prompt, words, scores, ended=number not in going)
        for number, (words, scores) in enumerate(zip(drawn, log_probabilities_, strict=True))
    ]


def draw_words(scores: Tensor, numbers: Tensor, choice: _Choice) -> Tensor:
    """The word id (B,) that each number (B,) from 0 to 1 stands for, by the log-probabilities (B, V).

    They are divided by the temperature; then the `top_k` best words are left, and of them as few of the best as have
    the share `top_p` of the probability together.
    """
    scores = (scores / choice.temperature).masked_fill(choice.forbidden, -math.inf)
    ids: Tensor | None = None
    if choice.top_k is not None or choice.top_p is not None:
        count = scores.shape[1] if choice.top_k is None else min(choice.top_k, scores.shape[1])
        scores, ids = scores.topk(count, dim=1)  # best first
    probabilities = scores.softmax(dim=1)
    if choice.top_p is not None:
        before = probabilities.cumsum(dim=1) - probabilities  # of the better words
        probabilities = probabilities.masked_fill(before >= choice.top_p, 0)
    cumulative = probabilities.cumsum(dim=1)
    places = torch.searchsorted(cumulative, numbers.unsqueeze(1) * cumulative[:, -1:], right=True)  # (B, 1)
    places = places.clamp(max=scores.shape[1] - 1)
    return (places if ids is None else ids.gather(1, places)).squeeze(1)


def _read_words(model: Any, tokenizer: Any, words: list[str], progress: _Progress) -> _Progress:
    """Where the forward direction is after one word more of each sentence."""
    inputs = {name: value[:, 1] for name, value in encode(tokenizer, [[word] for word in words], model.device).items()}
    vectors = model.elmo.character_encoder(inputs["character_ids"], inputs["input_ids"])  # (B, P)
    bilstm = model.elmo.bilstm
    layers, hidden, cell = bilstm.read(bilstm.forward_layers, vectors, [len(words)], progress.hidden, progress.cell)
    return _Progress(top=layers[-1], hidden=hidden, cell=cell)


__all__ = ["Sample", "draw_samples"]
