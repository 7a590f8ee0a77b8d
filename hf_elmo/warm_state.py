# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The state that a sentence of running text starts from, on average: computed once, and stored with the weights.

A model that was trained on a stream of sentences meets the first words of a sentence with what the sentence before
left in its LSTMs. Reading every sentence from zeros is a cold start, which it has hardly seen. The mean of the states
that sentences leave is a start that it knows, and the same one for every sentence.

The text is read as in training: the forward direction `<S> w1 .. wn <S> ..`, the backward one `</S> wn .. w1 </S> ..`,
each sentence from the state that the one before left. What is averaged, for each layer and direction, is the state
after the last word that a direction reads of a sentence, wn or w1. Right after it comes the boundary that begins the
next sentence, `<S>` or `</S>`; it is also the first thing that `ElmoModel` reads of a sentence.

Shapes are written with these letters: B rows that are read at a time, P projection, H cell, L LSTM layers.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .configuration_elmo import ElmoConfig
from .fast_paths import WordCache, with_word_cache
from .feature_cache import _evaluating
from .modeling_elmo import WARM_STATE, ElmoModel, ElmoPreTrainedModel
from .packing import ElmoState, PackedWords
from .tokenization_elmo import ElmoTokenizer

MAX_SENTENCES = 10_000
LONGEST_SENTENCE = 400  # bounds the memory; longer lines are no sentences, and are cut
ROWS, SENTENCES_PER_ROW = 32, 20  # at most, at least
UNCOUNTED = 4  # the first sentences of a row still know of the zeros that it began with
REMEMBERED_WORDS = 2**15

Model = TypeVar("Model", bound=ElmoPreTrainedModel)


@dataclass(frozen=True)
class WarmState:
    """The mean state after a sentence.

    Args:
        hidden: The projected outputs (L, 2P), the forward half first.
        cell: The LSTM cells (L, 2H), the forward half first.
        report: What it was made of.
    """

    hidden: Tensor
    cell: Tensor
    report: "WarmStateReport"


@dataclass(frozen=True)
class WarmStateReport:
    """What a mean state was made of.

    Args:
        sentences: That were read.
        counted: Sentences whose state counts: all but the first ones of each row.
        words: That were read.
        rows: Places of the text that were read side by side.
        spread: Mean over all values of their standard deviation from sentence to sentence, for each layer: of the
            projected outputs.
        seconds: That it took.
        words_per_second: How fast that is.
    """

    sentences: int
    counted: int
    words: int
    rows: int
    spread: list[float]
    seconds: float
    words_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        spread = ", ".join(f"{value:.4f}" for value in self.spread)
        return (
            f"warm state: mean of the states after {self.counted:,} sentences, of {self.sentences:,} with "
            f"{self.words:,} words\nspread of the outputs around it, by layer: {spread}\n"
            f"time: {self.seconds:.1f} s, {self.words_per_second:,.0f} words/s"
        )


def warm_state(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Iterable[Sequence[str]],
    *,
    max_sentences: int = MAX_SENTENCES,
    show_progress: bool = True,
) -> WarmState:
    """The mean state that the sentences of a text leave, when they are read as in training.

    The same model, text and machine give the same state. It is computed in the precision of the model and added up in
    float64; what is held in memory are the sentences, and a batch.

    Args:
        model: The encoder. How its own sentences start does not matter.
        tokenizer: Its tokenizer.
        sentences: Lists of words, in the order of the text. Those without words are left out.
        max_sentences: How many are read at most, the first ones.
        show_progress: Whether to show a progress bar.
    """
    if max_sentences < 1:
        raise ValueError(f"max_sentences is {max_sentences}; it must be 1 or more.")
    chosen = list(islice(cut_long(sentences), max_sentences))
    if len(chosen) <= UNCOUNTED:
        raise ValueError(
            f"The text has {len(chosen)} sentences: a mean state needs more than {UNCOUNTED}, and some thousand to be "
            "good."
        )
    rows = rows_for(len(chosen))
    means = _Means()
    start, words = time.perf_counter(), 0
    state: ElmoState | None = None
    progress = logging.tqdm(desc="warm state", unit=" words", unit_scale=True, disable=not show_progress)
    with progress as bar, _reading(model, WordCache(REMEMBERED_WORDS)):
        for number, batch in enumerate(side_by_side(chosen, rows)):
            state = _read(model, tokenizer, batch, state)
            if number >= UNCOUNTED:
                means.add(state)
            read = sum(map(len, batch))
            words += read
            bar.update(read)
    seconds = time.perf_counter() - start
    report = WarmStateReport(
        sentences=len(chosen),
        counted=means.count,
        words=words,
        rows=rows,
        spread=means.spread(),
        seconds=seconds,
        words_per_second=words / max(seconds, 1e-9),
    )
    return WarmState(means.hidden(), means.cell(), report)


def with_warm_state(model: Model, state: WarmState) -> Model:
    """A model whose sentences start from this state; it shares all weights with the one given.

    Args:
        model: The encoder, or a model with a head.
        state: The state, which is stored in the precision of the model.
    """
    prefix = "" if isinstance(model, ElmoModel) else f"{model.base_model_prefix}."
    weights = model.state_dict()
    for name, value in zip(WARM_STATE, (state.hidden, state.cell), strict=True):
        weights[prefix + name] = value.to(model.device, model.dtype)
    with torch.device("meta"):
        warm = type(model)(ElmoConfig.from_dict(model.config.to_dict() | {"initial_state": "warm"}))
    cast(Any, warm).load_state_dict(weights, strict=True, assign=True)
    return warm.eval()


# --- Text ------------------------------------------------------------------------------------------------------------


def cut_long(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Sentences with words; long ones in pieces."""
    for sentence in sentences:
        for start in range(0, len(sentence), LONGEST_SENTENCE):
            yield list(sentence[start : start + LONGEST_SENTENCE])


def rows_for(sentences: int) -> int:
    """How many parts of a text to read side by side; each has a cold start, so few enough for that to be rare."""
    return max(min(ROWS, sentences // SENTENCES_PER_ROW), 1)


def side_by_side(sentences: list[list[str]], rows: int) -> Iterator[list[list[str]]]:
    """Batches of `rows` sentences, in which each row reads a part of the text of its own, from its beginning on.

    The parts have the same number of sentences or, the first ones, one more: the last batch may be smaller.
    """
    longer = len(sentences) % rows
    starts = [row * (len(sentences) // rows) + min(row, longer) for row in range(rows + 1)]
    for number in range(starts[1]):
        yield [sentences[starts[row] + number] for row in range(rows) if starts[row] + number < starts[row + 1]]


# --- States ----------------------------------------------------------------------------------------------------------


class _Means:
    """Sums of states, and of their squares, over sentences."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: list[Tensor] = []  # of the outputs (L, 2P), of the cells (L, 2H), of the squared outputs (L, 2P)

    def add(self, state: ElmoState) -> None:
        hidden, cell = (part.double() for part in state)
        self.count += hidden.shape[1]
        sums = [hidden.sum(dim=1), cell.sum(dim=1), hidden.square().sum(dim=1)]
        self._sums = [old + new for old, new in zip(self._sums, sums, strict=True)] if self._sums else sums

    def hidden(self) -> Tensor:
        return self._sums[0] / self.count

    def cell(self) -> Tensor:
        return self._sums[1] / self.count

    def spread(self) -> list[float]:
        """For each layer."""
        variance = self._sums[2] / self.count - self.hidden().square()
        return variance.clamp(min=0).sqrt().mean(dim=1).tolist()


@contextmanager
def _reading(model: ElmoModel, cache: WordCache) -> Iterator[None]:
    """Makes the model ready for reading, and afterwards as it was."""
    with (
        _evaluating(model),
        torch.no_grad(),
        torch.autocast(model.device.type, enabled=False),
        with_word_cache(cache),
    ):
        yield


def _read(model: ElmoModel, tokenizer: ElmoTokenizer, batch: list[list[str]], before: ElmoState | None) -> ElmoState:
    """The state after each sentence of a batch, from that of its row before; a smaller batch has the first rows."""
    encoded = tokenizer(batch, is_split_into_words=True, padding=True, padding_side="right", return_tensors="pt")
    names = ("input_ids", "character_ids", "attention_mask")
    inputs: dict[str, Tensor] = {name: encoded[name].to(model.device) for name in names}
    mask = inputs["attention_mask"].bool()
    rows = len(batch)
    if before is None:
        before = ElmoState.zeros(cast(ElmoConfig, model.config), rows, next(model.parameters()).detach())
    hidden, cell = (part[:, :rows].chunk(2, dim=2) for part in before)
    bilstm = model.bilstm
    from_left = _read_direction(model, bilstm.forward_layers, inputs, _without_last(mask), (hidden[0], cell[0]), False)
    from_right = _read_direction(
        model, bilstm.backward_layers, inputs, _without_first(mask), (hidden[1], cell[1]), True
    )
    return ElmoState(*(torch.cat(halves, dim=2) for halves in zip(from_left, from_right, strict=True)))


def _read_direction(
    model: ElmoModel,
    stack: nn.ModuleList,
    inputs: dict[str, Tensor],
    mask: Tensor,
    before: tuple[Tensor, Tensor],
    is_backward: bool,
) -> tuple[Tensor, Tensor]:
    """The state (L, B, P), (L, B, H) of a direction after the words of the mask (B, T)."""
    packing = PackedWords.from_mask(mask)
    words = model._encode_words(inputs["input_ids"], inputs["character_ids"], packing)  # (N, P)
    words = words[packing.reverse] if is_backward else words
    hidden, cell = (part[:, packing.row_order] for part in before)
    _, hidden, cell = model.bilstm.read(stack, words, packing.batch_sizes, hidden, cell)
    back = packing.row_order.argsort()
    return hidden[:, back], cell[:, back]


def _without_last(mask: Tensor) -> Tensor:
    """(B, T) without the last position of each row, whose padding is on the right."""
    return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1)


def _without_first(mask: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(mask[:, :1]), mask[:, 1:]], dim=1)


__all__ = ["WarmState", "WarmStateReport", "cut_long", "rows_for", "side_by_side", "warm_state", "with_warm_state"]
