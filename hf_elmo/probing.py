# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Linear probes: what a linear classifier can read from the vectors of a layer, which stay as they are.

Shapes are written with these letters: N words, D numbers of a vector, K labels, L LSTM layers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .configuration_elmo import ElmoConfig
from .embedder import ElmoEmbedder, Progress
from .modeling_elmo import ElmoModel
from .tokenization_elmo import ElmoTokenizer
from .word_vectors import UNKNOWN_ID, WordVectors

EPOCHS = 10
BATCH_SIZE = 256
LEARNING_RATE = 5e-3
PREDICTED_AT_ONCE = 2**14  # words


@dataclass(frozen=True)
class LinearProbe:
    """A multinomial logistic regression on vectors that are shifted and scaled to mean 0 and deviation 1.

    Args:
        weight: (D, K).
        bias: (K,).
        mean: (D,) of the vectors it was trained on.
        deviation: (D,) of them.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    deviation: Tensor

    @torch.no_grad()
    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """The labels (N,) of vectors (N, D)."""
        parts = [
            self._logits(torch.from_numpy(vectors[start : start + PREDICTED_AT_ONCE])).argmax(dim=1)
            for start in range(0, len(vectors), PREDICTED_AT_ONCE)
        ]
        return torch.cat(parts).numpy() if parts else np.zeros(0, dtype=np.int64)

    def _logits(self, vectors: Tensor) -> Tensor:
        return ((vectors.float() - self.mean) / self.deviation) @ self.weight + self.bias  # (N, K)


def train_probe(
    vectors: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    num_labels: int,
    seed: int,
    *,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = LEARNING_RATE,
    progress: Progress | None = None,
) -> LinearProbe:
    """Trains a linear probe with Adam; the learning rate falls to zero, so that it ends near the only optimum.

    Args:
        vectors: (N, D), float32 or float16.
        labels: (N,), from 0 to `num_labels` - 1.
        num_labels: K.
        seed: Of the order of the words.
        epochs: How often all words are read.
        batch_size: Words of a step.
        learning_rate: Of the first step.
        progress: A bar that is moved on by the words that were read.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("num_labels", num_labels)):
        if value < 1:
            raise ValueError(f"{name}={value} is not possible: it must be 1 or more.")
    targets = torch.as_tensor(np.asarray(labels), dtype=torch.int64)
    if vectors.ndim != 2 or len(vectors) != len(targets) or not len(vectors):
        raise ValueError(
            f"Vectors {vectors.shape} do not go with {len(targets)} labels: give as many, and at least 1."
        )
    if not 0 <= int(targets.min()) <= int(targets.max()) < num_labels:
        raise ValueError(f"labels are {targets.min()} to {targets.max()}, but must be 0 to {num_labels - 1}.")
    generator = torch.Generator().manual_seed(seed)
    rows = torch.from_numpy(vectors)
    mean = torch.from_numpy(vectors.mean(axis=0, dtype=np.float64)).float()
    spread = torch.from_numpy(vectors.std(axis=0, dtype=np.float64)).float()
    probe = LinearProbe(
        weight=torch.zeros(vectors.shape[1], num_labels, requires_grad=True),
        bias=torch.zeros(num_labels, requires_grad=True),
        mean=mean,
        deviation=spread.clamp_min(1e-6),  # a number that never changes says nothing
    )
    optimizer = torch.optim.Adam([probe.weight, probe.bias], lr=learning_rate)
    steps = epochs * -(-len(targets) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets), generator=generator).split(batch_size):
            loss = functional.cross_entropy(probe._logits(rows[chosen]), targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if progress is not None:
                progress.update(len(chosen))
    return LinearProbe(probe.weight.detach(), probe.bias.detach(), mean, probe.deviation)


# --- Vectors ---------------------------------------------------------------------------------------------------------


def layer_vectors(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], show_progress: bool | Progress | None = None
) -> np.ndarray:
    """The vectors of all words of sentences in all layers (L + 1, N, D), in half precision to save memory."""
    config = embedder.model.config
    count = sum(map(len, sentences))
    vectors = np.empty((config.num_hidden_layers + 1, count, 2 * config.projection_size), dtype=np.float16)
    place = 0
    for of_sentence in embedder.encode_stream(
        map(list, sentences), layers="all", dtype="float16", is_split_into_words=True, show_progress=show_progress
    ):
        vectors[:, place : place + of_sentence.shape[1]] = of_sentence
        place += of_sentence.shape[1]
    return vectors


def static_vectors(vectors: WordVectors, sentences: Iterable[Sequence[str]]) -> np.ndarray:
    """The static vectors of all words of sentences (N, D): of the word, of its lower case, or the mean of all."""
    return vectors.embedding_matrix()[static_ids(vectors, (word for sentence in sentences for word in sentence))]


def static_ids(vectors: WordVectors, words: Iterable[str]) -> np.ndarray:
    """The rows (N,) of words in `vectors.embedding_matrix()`."""
    ids = vectors.vocabulary()
    return np.array([ids.get(word) or ids.get(word.lower(), UNKNOWN_ID) for word in words], dtype=np.int64)


def random_embedder(config: ElmoConfig, tokenizer: ElmoTokenizer, seed: int, device: Any = "cpu") -> ElmoEmbedder:
    """An embedder with a model of this shape and fresh, random weights: what the shape gives without training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = ElmoModel(config)
    return ElmoEmbedder(model.eval(), tokenizer, device=device)


__all__ = ["LinearProbe", "layer_vectors", "random_embedder", "static_vectors", "train_probe"]
