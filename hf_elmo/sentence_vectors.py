# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of sentences, and how similar they are.

The vector of a sentence is the mean of the vectors of its words, in one layer or over all of them. All vectors of a
layer share a large part, whatever the sentence is about, so their cosines are all high; taking away the mean of many
sentences ("centring") makes the differences show.

ELMo was not trained to compare sentences. Take its means as a simple baseline, or as features of a classifier. To find
sentences that mean the same, take a model that was trained for it.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from .embedder import BATCH_TOKENS, ElmoEmbedder, Progress, Text


class SentenceVectors:
    """Computes vectors of sentences, centred if `fit` was called.

    Args:
        embedder: Gives the vectors of words.
        layers: Whose means to take: the number of a layer, `"average"` over all of them, `"top"` or `"mix"`.
        pooling: How words become a sentence: `"mean"`, `"max"`, `"mean_max"` or `"boundary"`.

    Example:
        >>> from hf_elmo import ELMO_MINI
        >>> vectors = SentenceVectors(ElmoEmbedder.from_pretrained(ELMO_MINI), layers=1)
        >>> vectors = vectors.fit(["The boat was near the shore.", "The bank lent money.", "It rained."])
        >>> vectors.similarity(["A river bank."], ["The shore of a lake.", "A savings bank."]).shape
        (1, 2)
    """

    def __init__(self, embedder: ElmoEmbedder, layers: Any = "average", pooling: Any = "mean"):
        if layers == "all":
            raise ValueError("layers='all' gives several vectors a sentence: choose one layer, 'average' or 'mix'.")
        if pooling is None:
            raise ValueError("pooling=None gives a vector for each word; a sentence needs one, such as 'mean'.")
        next(embedder.encode_stream([["."]], layers, pooling))  # refuses what is not possible
        self.embedder = embedder
        self.layers = layers
        self.pooling = pooling
        self.mean: np.ndarray | None = None  # (D,), that is taken away

    def fit(
        self,
        texts: Iterable[Text],
        *,
        batch_tokens: int = BATCH_TOKENS,
        show_progress: bool | Progress | None = None,
    ) -> "SentenceVectors":
        """Learns the mean of these sentences, of which there may be very many; later vectors are without it.

        Take sentences like those that will be compared, some hundreds at least.
        """
        total: np.ndarray | None = None
        count = 0
        for vector in self._stream(texts, batch_tokens, show_progress):
            total = vector.astype(np.float64) if total is None else total + vector
            count += 1
        if total is None:
            raise ValueError("There is no sentence to learn the mean from.")
        self.mean = (total / count).astype(np.float32)
        return self

    def encode(
        self,
        texts: Iterable[Text],
        *,
        batch_tokens: int = BATCH_TOKENS,
        show_progress: bool | Progress | None = None,
    ) -> np.ndarray:
        """The vectors (texts, D) of sentences; twice as wide with `pooling="mean_max"`."""
        vectors = [vector.astype(np.float32) for vector in self._stream(texts, batch_tokens, show_progress)]
        if not vectors:
            raise ValueError("There is no sentence to encode.")
        stacked = np.stack(vectors)
        return stacked if self.mean is None else stacked - self.mean

    def similarity(self, first: Iterable[Text], second: Iterable[Text]) -> np.ndarray:
        """The cosines (first, second) of all pairs of sentences."""
        one, other = (_normalized(self.encode(texts)) for texts in (first, second))
        return one @ other.T

    def _stream(
        self, texts: Iterable[Text], batch_tokens: int, show_progress: bool | Progress | None
    ) -> Iterable[Any]:
        if isinstance(texts, (str, os.PathLike)):
            raise ValueError(f"texts is {texts!r:.60}, but must be several sentences: give a list.")
        return self.embedder.encode_stream(
            texts, self.layers, self.pooling, batch_tokens=batch_tokens, dtype="float32", show_progress=show_progress
        )


def _normalized(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


__all__ = ["SentenceVectors"]
