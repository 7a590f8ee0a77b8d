"""The demonstration: neighbours and purity against plain computations, and the whole of it on a random model."""

import numpy as np
import pytest
from tiny import random_model

from hf_elmo import ELMO_MINI, ElmoEmbedder, ElmoTokenizer
from hf_elmo.neighbors import Context
from hf_elmo.scripts.demo import WordInContexts, main, neighbors_text, read_contexts
from hf_elmo.scripts.demo_contexts import CONTEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "model"
    random_model().save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


def word_in_contexts(vectors, senses):
    contexts = [Context(("the", "bank", str(number)), 1, number) for number in range(len(senses))]
    return WordInContexts("bank", contexts, senses, np.array(vectors, dtype=np.float32))


def test_sentences_have_the_word_once_and_senses_are_even():
    tokenizer = ElmoTokenizer()
    for word, by_sense in CONTEXTS.items():
        assert [len(sentences) for sentences in by_sense.values()] == [10, 10]
        sentences = [sentence for sentences in by_sense.values() for sentence in sentences]
        assert len(set(sentences)) == 20
        for sentence in sentences:
            assert tokenizer.tokenize(sentence).count(word) == 1


def test_purity():
    senses = ["river", "river", "money", "money"]
    apart = [[1, 0], [1, 0.1], [0, 1], [0.1, 1]]
    crossed = [[1, 0], [0, 1], [1, 0.1], [0.1, 1]]
    equal = [[1, 1]] * 4
    found = word_in_contexts([equal, apart, crossed], senses)
    assert found.purity(1, count=1) == 1
    assert found.purity(2, count=1) == 0
    for count in (1, 2, 3):  # of three others, one has the same sense
        assert found.purity(0, count) == pytest.approx(1 / 3)
    assert found.purity(1, count=3) == pytest.approx(1 / 3)
    assert found.purity(1, count=2) == pytest.approx(1 / 2)


def test_neighbours_are_shown_with_their_senses():
    found = word_in_contexts(
        [[[1, 1]] * 4, [[1, 0], [1, 0.1], [0, 1], [0.1, 1]]], ["river", "river", "money", "money"]
    )
    lines = neighbors_text(found, 80).splitlines()
    assert lines[0] == "  the [bank] 0   <- river"
    assert lines[1] == "    static vector: 1.000 with all 3 other sentences, whatever the sense"
    assert lines[3] == "       0.995  river  the [bank] 1"
    assert lines[4] == "       0.100  money  the [bank] 3"


def test_vectors_are_those_of_the_word():
    embedder = ElmoEmbedder(random_model(), ElmoTokenizer())
    found = read_contexts(embedder, "bank", {"river": ["A bank here."], "money": ["The big bank failed."]})
    assert found.senses == ["river", "money"]
    alone = embedder.encode("The big bank failed.", layers="all")
    np.testing.assert_allclose(found.vectors[:, 1], alone[:, 2], atol=1e-6)
    np.testing.assert_allclose(found.vectors[0, 0], found.vectors[0, 1], atol=1e-6)
    with pytest.raises(ValueError, match="must have 'bank' once, but has it 0 times: A Bank"):
        read_contexts(embedder, "bank", {"river": ["A Bank here."]})


def test_the_whole_of_it(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(folder)]) == 0
    out = capsys.readouterr().out
    assert "Nearest to 'play' in a sentence, among 19 others: cosine and sense" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith(("  play ", "  bank "))}
    assert [rows[word][0] for word in ("play", "bank")] == ["47%", "47%"]
    assert len(rows["play"]) == 3
    assert out.splitlines()[-1].endswith(str(tmp_path / "demo.png"))
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"


def test_the_model_of_the_package_tells_senses_apart():
    """Better than a static vector, for both words."""
    embedder = ElmoEmbedder.from_pretrained(ELMO_MINI)
    for word, by_sense in CONTEXTS.items():
        found = read_contexts(embedder, word, by_sense)
        assert max(found.purity(layer) for layer in range(1, len(found.vectors))) > found.purity(0) + 0.1


def test_the_picture_goes_where_it_is_asked_for(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(folder), "--output", "other.png"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["other.png"]


def test_a_missing_model_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hf_elmo.shipped_model.ELMO_MINI", tmp_path / "mini")
    assert main([]) == 1
    assert "demo: error: The model of the package is not complete" in capsys.readouterr().err
    assert main(["nowhere"]) == 1
    assert "is no model folder" in capsys.readouterr().err
