# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of tagging and classification: entities, tokens, classes, and their spread over seeds.

All are fractions between 0 and 1; a fraction of nothing is 0.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from .task_data import Scheme, split_label

Entity: TypeAlias = tuple[str, int, int]


def entities(labels: Sequence[str], scheme: Scheme = "BIO", strict: bool = False) -> list[Entity]:
    """The entities in the labels of a sentence: type, first word, and the word after the last.

    Args:
        labels: The labels.
        scheme: `"BIO"` or `"BIOES"`.
        strict: What to do with labels that do not follow the scheme, such as an I- without a B- before it. `False`
            takes them for an entity, as conlleval does and as published results of CoNLL-2003 are made; `True` counts
            only complete entities, as seqeval does in its strict mode.

    Example:
        >>> entities(["B-PER", "I-PER", "O", "I-LOC"])
        [('PER', 0, 2), ('LOC', 3, 4)]
        >>> entities(["B-PER", "I-PER", "O", "I-LOC"], strict=True)
        [('PER', 0, 2)]
    """
    parts = [split_label(label, scheme, position) for position, label in enumerate(labels)]
    found = []
    start = 0
    for position, (prefix, type_) in enumerate(parts):
        if type_ is None:
            continue
        before = parts[position - 1] if position else ("O", None)
        if prefix in ("B", "S") or before[0] in ("E", "S") or before[1] != type_:
            start = position
        after = parts[position + 1] if position + 1 < len(parts) else ("O", None)
        ends = prefix in ("E", "S") or after[0] in ("O", "B", "S") or after[1] != type_
        if ends and (not strict or _is_complete([prefix for prefix, _ in parts[start : position + 1]], scheme)):
            found.append((type_, start, position + 1))
    return found


def _is_complete(prefixes: list[str], scheme: Scheme) -> bool:
    """Whether these are the prefixes of an entity as the scheme writes it."""
    if scheme == "BIOES" and len(prefixes) == 1:
        return prefixes == ["S"]
    return prefixes[0] == "B" and (scheme == "BIO" or prefixes[-1] == "E")


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme = "BIO", strict: bool = False
) -> dict[str, Any]:
    """Precision, recall and F1 of entities, which are right if type, begin and end are.

    Args:
        gold: The true labels of each sentence.
        predicted: The predicted labels of each sentence.
        scheme: The scheme of both.
        strict: As in `entities`.

    Returns:
        `precision`, `recall`, `f1` over all entities, the counts `gold`, `predicted` and `correct`, and all of that
        for each type in `by_type`.
    """
    _check_lengths(gold, predicted)
    counts: dict[str, Counter[str]] = {"gold": Counter(), "predicted": Counter(), "correct": Counter()}
    for true_labels, labels in zip(gold, predicted, strict=True):
        true, found = set(entities(true_labels, scheme, strict)), set(entities(labels, scheme, strict))
        for name, some in (("gold", true), ("predicted", found), ("correct", true & found)):
            counts[name].update(type_ for type_, _, _ in some)
    types = sorted({*counts["gold"], *counts["predicted"]})
    by_type = {type_: _scores(*(counts[name][type_] for name in counts)) for type_ in types}
    return {**_scores(*(counter.total() for counter in counts.values())), "by_type": by_type}


def _scores(gold: int, predicted: int, correct: int) -> dict[str, float | int]:
    return {
        "precision": _fraction(correct, predicted),
        "recall": _fraction(correct, gold),
        "f1": _fraction(2 * correct, predicted + gold),
        "gold": gold,
        "predicted": predicted,
        "correct": correct,
    }


def token_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The fraction of words that have the right label."""
    _check_lengths(gold, predicted)
    return accuracy(
        [label for labels in gold for label in labels], [label for labels in predicted for label in labels]
    )


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The fraction of labels that are right."""
    _check_count(gold, predicted)
    return _fraction(sum(true == label for true, label in zip(gold, predicted, strict=True)), len(gold))


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean of the F1 of each label that is in either list."""
    _check_count(gold, predicted)
    true, found = Counter(gold), Counter(predicted)
    right = Counter(label for label, other in zip(gold, predicted, strict=True) if label == other)
    labels = {*true, *found}
    return _fraction(sum(_fraction(2 * right[label], true[label] + found[label]) for label in labels), len(labels))


def mean_and_deviation(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation (n - 1) of one score over several seeds.

    Returns:
        `mean`, `standard_deviation` (`None` for a single value, which has none) and the `values`.
    """
    if not values:
        raise ValueError("There is no value to take the mean of: give the score of at least one seed.")
    return {
        "mean": statistics.fmean(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "values": list(values),
    }


def shown(score: dict[str, Any], factor: float = 100) -> str:
    """A mean with its standard deviation, if it has one, as a reader sees it: shares in percent."""
    deviation = score.get("standard_deviation")
    return f"{factor * score['mean']:.2f}" + ("" if deviation is None else f" ± {factor * deviation:.2f}")


def _fraction(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _check_lengths(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"There are {len(gold)} sentences with true labels, but {len(predicted)} with predictions.")
    for number, (true, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(found):
            raise ValueError(
                f"Sentence {number} has {len(true)} true labels, but {len(found)} predictions. Was it cut in between?"
            )


def _check_count(gold: Sequence[str], predicted: Sequence[str]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"There are {len(gold)} true labels, but {len(predicted)} predictions.")
