"""Vectors of sentences: means of words, with or without a mean that is taken away."""

import numpy as np
import pytest
from tiny import random_model

from hf_elmo import ElmoEmbedder, ElmoTokenizer
from hf_elmo.sentence_vectors import SentenceVectors

TEXTS = ["A river bank.", "The shore of a lake.", "A savings bank.", "The bank lent them money."]


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(random_model(), ElmoTokenizer())


@pytest.mark.parametrize("layers", [0, 2, "average", "mix"])
def test_means_of_words(embedder, layers):
    vectors = SentenceVectors(embedder, layers).encode(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((4, 12), np.float32)
    for vector, text in zip(vectors, TEXTS, strict=True):
        np.testing.assert_allclose(vector, embedder.encode(text, layers=layers).mean(axis=0), atol=1e-5)


def test_centring(embedder):
    plain = SentenceVectors(embedder, 1)
    centred = SentenceVectors(embedder, 1).fit(iter(TEXTS), batch_tokens=8)
    np.testing.assert_allclose(centred.mean, plain.encode(TEXTS).mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(centred.encode(TEXTS).mean(axis=0), 0, atol=1e-5)
    others = ["Boats.", "They paid."]
    np.testing.assert_allclose(centred.encode(others), plain.encode(others) - centred.mean, atol=1e-6)


def test_similarity(embedder):
    vectors = SentenceVectors(embedder, 2).fit(TEXTS)
    cosines = vectors.similarity(TEXTS[:2], TEXTS)
    assert cosines.shape == (2, 4)
    np.testing.assert_allclose(np.diagonal(cosines), 1, atol=1e-5)
    one, other = vectors.encode(TEXTS[:1])[0], vectors.encode(TEXTS[3:])[0]
    assert cosines[0, 3] == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "all"}, "layers='all' gives several vectors"),
        ({"layers": 7}, "7"),
        ({"pooling": None}, "pooling=None gives a vector for each word"),
        ({"pooling": "median"}, "pooling='median' is not possible"),
    ],
)
def test_settings_that_give_no_sentence_vector(embedder, options, message):
    with pytest.raises(ValueError, match=message):
        SentenceVectors(embedder, **options)


def test_no_sentences(embedder):
    vectors = SentenceVectors(embedder)
    with pytest.raises(ValueError, match="no sentence to learn the mean from"):
        vectors.fit([])
    with pytest.raises(ValueError, match="no sentence to encode"):
        vectors.encode([])
    for wrong in (vectors.fit, vectors.encode):
        with pytest.raises(ValueError, match="texts is 'one', but must be several sentences"):
            wrong("one")
