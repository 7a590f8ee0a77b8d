"""The language model of word frequencies."""

import math

import pytest

from hf_elmo.unigram import unigram_perplexity
from hf_elmo.vocabulary import count_words

VOCABULARY = ["<S>", "</S>", "<UNK>", "a", "b"]


def test_by_hand(tmp_path):
    (tmp_path / "train.txt").write_text("a a b\n\na c\n")  # a 3, b 1, </S> 2, <UNK> 1, <S> 0
    (tmp_path / "heldout.txt").write_text("a d\nb\n")  # a, <UNK>, </S>, b, </S>
    shares = [4, 2, 3, 2, 3]  # each one more than its count, of 7 + 5
    expected = math.exp(-sum(math.log(share / 12) for share in shares) / 5)
    result = unigram_perplexity(tmp_path / "train.txt", tmp_path / "heldout.txt", VOCABULARY, processes=1)
    assert result == pytest.approx(expected, rel=1e-12)
    counts = count_words(tmp_path / "train.txt", 1)
    assert unigram_perplexity(counts, tmp_path / "heldout.txt", VOCABULARY, processes=1) == result


def test_markers_in_the_text_are_unknown_words(tmp_path):
    (tmp_path / "train.txt").write_text("a\n")
    for text in ("</S> a", "x a"):
        (tmp_path / f"{len(text)}.txt").write_text(text + "\n")
    first, second = (
        unigram_perplexity(tmp_path / "train.txt", tmp_path / f"{length}.txt", VOCABULARY, processes=1)
        for length in (6, 3)
    )
    assert first == second


def test_mistakes(tmp_path):
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="no word in the held-out text"):
        unigram_perplexity(tmp_path / "train.txt", tmp_path / "empty.txt", VOCABULARY, processes=1)
    with pytest.raises(ValueError, match="vocabulary has no <UNK>"):
        unigram_perplexity(tmp_path / "train.txt", tmp_path / "train.txt", ["</S>", "a"], processes=1)
