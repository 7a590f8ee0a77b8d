"""Scores agree with counting by hand, and with seqeval where it is installed."""

import doctest
import random
import warnings

import pytest

from hf_elmo.scripts import task_metrics
from hf_elmo.scripts.task_metrics import (
    accuracy,
    entities,
    entity_scores,
    macro_f1,
    mean_and_deviation,
    token_accuracy,
)


def test_examples():
    assert doctest.testmod(task_metrics).failed == 0


@pytest.mark.parametrize(
    ("labels", "scheme", "lenient", "strict"),
    [
        ("", "BIO", [], []),
        ("O O", "BIO", [], []),
        ("B-X", "BIO", [("X", 0, 1)], [("X", 0, 1)]),
        ("B-X I-X O B-Y", "BIO", [("X", 0, 2), ("Y", 3, 4)], [("X", 0, 2), ("Y", 3, 4)]),
        ("B-X B-X I-X", "BIO", [("X", 0, 1), ("X", 1, 3)], [("X", 0, 1), ("X", 1, 3)]),
        ("I-X I-X", "BIO", [("X", 0, 2)], []),
        ("B-X I-Y I-Y", "BIO", [("X", 0, 1), ("Y", 1, 3)], [("X", 0, 1)]),
        ("O I-X B-X", "BIO", [("X", 1, 2), ("X", 2, 3)], [("X", 2, 3)]),
        ("B-X I-X E-X S-Y", "BIOES", [("X", 0, 3), ("Y", 3, 4)], [("X", 0, 3), ("Y", 3, 4)]),
        ("B-X E-X E-X", "BIOES", [("X", 0, 2), ("X", 2, 3)], [("X", 0, 2)]),
        ("B-X I-X O", "BIOES", [("X", 0, 2)], []),
        ("B-X", "BIOES", [("X", 0, 1)], []),
        ("I-X E-X S-X I-X", "BIOES", [("X", 0, 2), ("X", 2, 3), ("X", 3, 4)], [("X", 2, 3)]),
        ("B-X E-Y", "BIOES", [("X", 0, 1), ("Y", 1, 2)], []),
        ("B-A-B I-A-B", "BIO", [("A-B", 0, 2)], [("A-B", 0, 2)]),
    ],
)
def test_entities(labels, scheme, lenient, strict):
    assert entities(labels.split(), scheme) == lenient
    assert entities(labels.split(), scheme, strict=True) == strict


def test_entity_scores_by_hand():
    gold = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O"], ["O"]]
    predicted = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X"], ["B-Y"]]  # right: the first; wrong: type, end, invented
    scores = entity_scores(gold, predicted)
    by_type = scores.pop("by_type")
    assert scores == {
        "precision": 1 / 4, "recall": 1 / 3, "f1": pytest.approx(2 / 7), "gold": 3, "predicted": 4, "correct": 1,
    }  # fmt: skip
    assert by_type["X"] == {
        "precision": 1 / 3, "recall": 1 / 2, "f1": pytest.approx(0.4), "gold": 2, "predicted": 3, "correct": 1,
    }  # fmt: skip
    assert by_type["Y"] == {"precision": 0, "recall": 0, "f1": 0, "gold": 1, "predicted": 1, "correct": 0}
    assert entity_scores([["O"]], [["O"]])["f1"] == 0


def random_sentences(generator, prefixes):
    labels = ["O", "O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in "XY")]
    gold = [[generator.choice(labels) for _ in range(generator.randint(1, 8))] for _ in range(3)]
    predicted = [[label if generator.random() < 0.6 else generator.choice(labels) for label in s] for s in gold]
    return gold, predicted


@pytest.mark.parametrize(("scheme", "prefixes"), [("BIO", "BI"), ("BIOES", "BIES")])
def test_scores_are_those_of_seqeval(scheme, prefixes):
    seqeval_metrics = pytest.importorskip("seqeval.metrics")
    from seqeval.scheme import IOB2, IOBES

    modes = {False: {}, True: {"mode": "strict", "scheme": {"BIO": IOB2, "BIOES": IOBES}[scheme]}}
    generator = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy and sklearn, where there is nothing to divide by
        for _ in range(100):
            gold, predicted = random_sentences(generator, prefixes)
            assert token_accuracy(gold, predicted) == pytest.approx(seqeval_metrics.accuracy_score(gold, predicted))
            for strict, mode in modes.items():
                scores = entity_scores(gold, predicted, scheme, strict)
                for name in ("precision", "recall", "f1"):
                    theirs = getattr(seqeval_metrics, f"{name}_score")(gold, predicted, zero_division=0, **mode)
                    assert scores[name] == pytest.approx(theirs, abs=1e-12), (gold, predicted, strict, name)


def test_accuracy_and_macro_f1():
    gold, predicted = list("aaab"), list("aabc")
    assert accuracy(gold, predicted) == 0.5
    assert macro_f1(gold, predicted) == pytest.approx((2 * 2 / (3 + 2) + 0 + 0) / 3)
    assert macro_f1(gold, gold) == 1
    assert accuracy([], []) == macro_f1([], []) == 0
    assert token_accuracy([["a", "b"], ["c"]], [["a", "x"], ["c"]]) == pytest.approx(2 / 3)


def test_mean_and_deviation():
    assert mean_and_deviation([1.0, 2.0, 4.0]) == {
        "mean": pytest.approx(7 / 3), "standard_deviation": pytest.approx((7 / 3) ** 0.5), "values": [1.0, 2.0, 4.0],
    }  # fmt: skip
    assert mean_and_deviation([0.5]) == {"mean": 0.5, "standard_deviation": None, "values": [0.5]}
    with pytest.raises(ValueError, match="no value to take the mean of"):
        mean_and_deviation([])


def test_what_does_not_fit_together():
    with pytest.raises(ValueError, match="There are 1 sentences with true labels, but 2 with predictions"):
        entity_scores([["O"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match="Sentence 1 has 2 true labels, but 1 predictions"):
        token_accuracy([["O"], ["O", "O"]], [["O"], ["O"]])
    for score in (accuracy, macro_f1):
        with pytest.raises(ValueError, match="There are 1 true labels, but 2 predictions"):
            score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="'S-X' is not a label of BIO"):
        entity_scores([["S-X"]], [["O"]])
