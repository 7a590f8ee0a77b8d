# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The language model that only knows how frequent words are: what a trained one has to be better than."""

import math
from collections import Counter
from collections.abc import Collection, Iterable

from .text_files import ErrorPolicy, PathLike
from .vocabulary import WordCounts, count_words

UNKNOWN, SENTENCE_END = "<UNK>", "</S>"


def unigram_perplexity(
    text: PathLike | Iterable[PathLike] | WordCounts,
    heldout: PathLike | Iterable[PathLike],
    vocabulary: Collection[str],
    errors: ErrorPolicy = "replace",
    processes: int | None = None,
) -> float:
    """The perplexity of held-out text if every word has its share in the training text as its probability.

    What is predicted are the words of the vocabulary, `<UNK>` for the others, and the end of each sentence, as many
    predictions as a direction of a biLM makes. Every word is counted once more than it occurs.

    Args:
        text: Files, folders and patterns of the training text, or its words if they have been counted.
        heldout: Of the held-out text.
        vocabulary: Words that can be predicted, `<UNK>` and `</S>` among them.
        errors: What to do with lines that are not UTF-8.
        processes: That count at the same time; by default one for each processor.
    """
    words = set(vocabulary)
    for special in (UNKNOWN, SENTENCE_END):
        if special not in words:
            raise ValueError(f"The vocabulary has no {special}, which is among what is predicted.")
    counts = text if isinstance(text, WordCounts) else count_words(text, processes, errors)
    seen, asked = (_predictions(each, words) for each in (counts, count_words(heldout, processes, errors)))
    if not asked.total():
        raise ValueError("There is no word in the held-out text.")
    total = math.log(seen.total() + len(words))
    loss = sum(count * (total - math.log(seen[word] + 1)) for word, count in asked.items())
    return math.exp(loss / asked.total())


def _predictions(counts: WordCounts, words: set[str]) -> Counter[str]:
    predicted = Counter({word: count for word, count in counts.counts.items() if word in words})
    predicted[UNKNOWN] += counts.tokens - predicted.total()
    predicted[SENTENCE_END] += counts.sentences
    return predicted


__all__ = ["unigram_perplexity"]
