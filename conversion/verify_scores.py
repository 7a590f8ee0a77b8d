# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the language model of a finished folder with an independent computation: layers, scores and losses.

Shape letters: B sentences, T tokens with both boundaries, L layers, P projection, V words that can be predicted.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .verify import (
    LIMIT,
    SENTENCES,
    Parity,
    Reference,
    ReferenceIds,
    bytes_of,
    largest_difference,
    layers_twice,
    load_exactly,
    numbers_of,
    sentence_of,
)

WORDS_PER_BLOCK = 2**16  # words whose weights are float64 at the same time


@dataclass(frozen=True)
class LanguageModelParity(Parity):
    """How far a language model is from its source.

    Args:
        scores_float32: Largest absolute difference of any score of any word, computed in float32.
        scores_float64: The same, computed in float64.
        losses_float64: Largest difference of a sentence's loss in a direction, computed in float64.
        words: Number of words that have scores.
    """

    scores_float32: float
    scores_float64: float
    losses_float64: float
    words: int

    def __str__(self) -> str:
        return (
            f"{super().__str__()}; the scores of {self.words:,} words: {self.scores_float32:.1e} in float32, "
            f"{self.scores_float64:.1e} in float64, and the losses: {self.losses_float64:.1e} in float64"
        )


def verify_language_model(
    folder: str | os.PathLike[str],
    reference: Reference,
    weight: np.ndarray,
    bias: np.ndarray,
    words: Sequence[str],
    reference_ids: ReferenceIds | None = None,
) -> LanguageModelParity:
    """Loads the folder as its users will and compares layers, scores and losses with the reference.

    All layers are compared for the sentences as one padded batch, from zeros and from the state that is left then;
    scores and losses for each sentence by itself. The loss of a sentence w_0 .. w_T, boundaries included, where h_t is
    the top layer of a direction:

        forward   mean over t of  -log softmax(W h_t + b)[w_t+1]
        backward  mean over t of  -log softmax(W h_t+1 + b)[w_t]

    Args:
        folder: Folder with the `ElmoForPreTraining` and the tokenizer.
        reference: The independent computation of the layers.
        weight: W, (V, P).
        bias: b, (V,).
        words: The words by id.
        reference_ids: The ids that the reference reads, as in `verify_folder`.

    Raises:
        ValueError: If the weights of the folder are not exactly those the model needs, or a difference is too large.
    """
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    sentences = [*SENTENCES, sentence_of(words, length=12)]
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    rows = list(map(reference_ids or bytes_of(tokenizer), sentences))
    labels = list(map(numbers_of(words), sentences))
    first = [reference(ids, None) for ids in rows]
    second = [reference(ids, state)[0] for ids, (_, state) in zip(rows, first, strict=True)]
    expected = [layers for layers, _ in first]

    apart: dict[torch.dtype, float] = {}
    scores_apart: dict[torch.dtype, float] = {}
    losses_apart = 0.0
    for dtype in (torch.float32, torch.float64):
        model = load_exactly(folder, dtype, ElmoForPreTraining)
        passes = zip(layers_twice(model.elmo, batch), (expected, second), strict=True)
        apart[dtype] = max(largest_difference(found, theirs) for found, theirs in passes)
        scores_apart[dtype] = 0.0
        for sentence, layers, ids in zip(sentences, expected, labels, strict=True):
            scores, losses = _expected_scores(layers[-1], weight, bias, ids)
            found_scores, found_losses = _found_scores(model, tokenizer, sentence)
            scores_apart[dtype] = max(scores_apart[dtype], largest_difference(found_scores, scores))
            if dtype == torch.float64:
                losses_apart = max(losses_apart, largest_difference([found_losses], [losses]))

    parity = LanguageModelParity(
        float32=apart[torch.float32],
        float64=apart[torch.float64],
        layers=len(expected[0]),
        sentences=len(rows),
        tokens=sum(map(len, rows)),
        scores_float32=scores_apart[torch.float32],
        scores_float64=scores_apart[torch.float64],
        losses_float64=losses_apart,
        words=len(weight),
    )
    exact = max(parity.float64, parity.scores_float64, parity.losses_float64) <= LIMIT
    if not (exact and np.isfinite(max(parity.float32, parity.scores_float32))):
        raise ValueError(f"The converted model does not compute what its source does, so it was not kept: {parity}.")
    return parity


@torch.no_grad()
def _found_scores(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, sentence: list[str]
) -> tuple[list[np.ndarray], np.ndarray]:
    """The scores (T, V) of both directions, and their losses (2,)."""
    batch = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
    outputs = model(**batch, labels=batch["input_ids"], output_logits=True)
    scores = [logits[0].numpy() for logits in (outputs.forward_logits, outputs.backward_logits)]
    return scores, np.array([float(outputs.forward_loss), float(outputs.backward_loss)])


def _expected_scores(
    top: np.ndarray, weight: np.ndarray, bias: np.ndarray, labels: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """The same, computed from the top layer (T, 2P) of the reference and the ids (T,) of the words."""
    forward, backward = (_scores(half, weight, bias) for half in np.split(top, 2, axis=1))
    return [forward, backward], np.array([_loss(forward[:-1], labels[1:]), _loss(backward[1:], labels[:-1])])


def _scores(top: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The scores (T, V) of all words, from the top layer of one direction (T, P)."""
    scores = np.empty((len(top), len(weight)))
    for start in range(0, len(weight), WORDS_PER_BLOCK):
        block = slice(start, start + WORDS_PER_BLOCK)
        scores[:, block] = top @ weight[block].T.astype(np.float64) + bias[block]
    return scores


def _loss(scores: np.ndarray, labels: np.ndarray) -> float:
    highest = scores.max(axis=1)
    normalizers = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
    return float((normalizers - scores[np.arange(len(labels)), labels]).mean())
