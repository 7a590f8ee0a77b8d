"""Nearest contexts: the same as by comparing everything with everything, in any number of batches."""

import json
import sys

import numpy as np
import pytest
from tiny import SENTENCES, random_model, tiny_config

from hf_elmo import ElmoEmbedder, ElmoTokenizer, neighbors
from hf_elmo.cli import main
from hf_elmo.neighbors import Context, Neighbor, context_lines, display_width, fit, nearest_contexts

TEXT = [
    "The boat lay at the bank , where the river was calm .",
    "The bank raised its rates .",
    "He did not trust the bank with his savings .",
    "The muddy bank was covered with reeds .",
    "A Bank lent them money at the bank .",
    "Nothing of that kind here .",
]
QUERY = "She sat on the bank of the river ."


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(random_model(), ElmoTokenizer())


@pytest.fixture(scope="module")
def folder(embedder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("neighbors")
    embedder.model.save_pretrained(folder / "model")
    embedder.tokenizer.save_pretrained(folder / "model")
    (folder / "text.txt").write_text("\n\n".join(TEXT) + "\n", encoding="utf-8")
    return folder


def all_cosines(embedder, layer, word="bank", query=QUERY):
    """Cosines of the query with every word of every sentence, computed one by one."""
    words = query.split()
    target = embedder.encode([words], layers=layer)[0][words.index(word)].astype(np.float64)
    for number, sentence in enumerate(TEXT):
        for position, vector in enumerate(embedder.encode([sentence.split()], layers=layer)[0].astype(np.float64)):
            cosine = vector @ target / np.linalg.norm(vector) / np.linalg.norm(target)
            yield cosine, number, position, sentence.split()[position]


@pytest.mark.parametrize("same_word", [False, True])
def test_nearest_contexts_are_those_of_all_comparisons(embedder, same_word):
    found = nearest_contexts(embedder, QUERY.split(), "bank", map(str.split, TEXT), top_k=4, same_word=same_word)
    assert list(found.by_layer) == [0, 1, 2]
    for layer in (1, 2):
        every = sorted(all_cosines(embedder, layer), reverse=True)
        best = [entry for entry in every if not same_word or entry[3].lower() == "bank"][:4]
        for neighbor, (cosine, number, position, word) in zip(found.by_layer[layer], best, strict=True):
            context = neighbor.context
            assert (context.sentence, context.position, context.word) == (number, position, word)
            assert neighbor.cosine == pytest.approx(cosine, abs=1e-5)
            assert neighbor.occurrences == 1
    assert found.contexts == (6 if same_word else sum(len(sentence.split()) for sentence in TEXT))
    assert found.sentences == 6


def test_without_context_all_occurrences_are_one(embedder):
    found = nearest_contexts(embedder, QUERY.split(), "bank", map(str.split, TEXT), top_k=3)
    first = found.by_layer[0][0]
    assert (first.context.word, first.occurrences) == ("bank", 5)
    assert first.cosine == pytest.approx(1, abs=1e-6)
    words = [neighbor.context.word for neighbor in found.by_layer[0]]
    assert len(set(words)) == len(words) == 3
    by_word = {word: cosine for cosine, _, _, word in all_cosines(embedder, 0)}
    assert words == sorted(by_word, key=by_word.get, reverse=True)[:3]


def test_words_without_context_are_counted_however_late_they_come(embedder):
    """Also if the place among the nearest is full when they come first."""
    text = [["bank"], ["Bank"], ["the"], ["bank"], ["tank"], ["bank", "Bank"], ["tank"]]
    found = nearest_contexts(embedder, ["bank", "."], "bank", text, layers=[0], top_k=2, batch_tokens=4)
    counts = {neighbor.context.word: neighbor.occurrences for neighbor in found.by_layer[0]}
    assert counts.pop("bank") == 3
    assert counts in ({"Bank": 2}, {"tank": 2}, {"the": 1})


def test_equal_sentences_are_one_context(embedder):
    found = nearest_contexts(embedder, QUERY, "bank", TEXT * 3, layers=[2], top_k=4, same_word=True, batch_tokens=20)
    assert [neighbor.occurrences for neighbor in found.by_layer[2]] == [3] * 4
    assert len({neighbor.context.words for neighbor in found.by_layer[2]}) >= 3
    once = nearest_contexts(embedder, QUERY, "bank", TEXT, layers=[2], top_k=4, same_word=True)
    assert [n.context for n in found.by_layer[2]] == [n.context for n in once.by_layer[2]]


def test_the_own_sentence_is_left_out(embedder):
    found = nearest_contexts(embedder, QUERY, "bank", [*TEXT, QUERY, QUERY])
    assert found.left_out == 2
    assert all(neighbor.context.words != found.query.words for layer in found.by_layer.values() for neighbor in layer)
    assert "left out: the query's own sentence, 2 times in the text" in str(found)


def test_batches_change_nothing(embedder):
    text = [*TEXT, *SENTENCES]
    many, one = (nearest_contexts(embedder, QUERY, "bank", text, top_k=8, batch_tokens=size) for size in (10, 4096))
    for layer in one.by_layer:
        assert [n.context for n in many.by_layer[layer]] == [n.context for n in one.by_layer[layer]]


def test_the_word_may_be_a_position_or_of_other_case(embedder):
    for word, position in ((4, 4), ("BANK", 4), ("the", 3)):
        assert nearest_contexts(embedder, QUERY, word, TEXT, layers=[1]).query.position == position


def test_only_some_sentences_are_kept_at_a_time(embedder, monkeypatch):
    taken = []
    ahead = []
    add = neighbors._Best.add

    def text():
        for number in range(600):
            taken.append(number)
            yield [f"word{number % 7}", "bank", f"word{number % 11}"]

    def watched(self, cosines, words, positions, sentence):
        ahead.append(len(taken) - sentence)
        assert len(self._found) == len(self._heap) <= 3
        add(self, cosines, words, positions, sentence)

    monkeypatch.setattr(neighbors._Best, "add", watched)
    nearest_contexts(embedder, QUERY, "bank", text(), layers=[1], top_k=3, batch_tokens=50)
    assert len(ahead) == 600
    assert max(ahead) < 100  # eight batches of ten sentences are read ahead


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"word": "river bank"}, "'river bank' is not in the query, whose words are: She sat on the bank"),
        ({"word": 9}, "There is no word 9: the query has 9 words, from 0"),
        ({"word": -1}, "There is no word -1"),
        ({"layers": [3]}, "There is no layer 3: this model has the layers 0 to 2"),
        ({"layers": []}, "No layer is asked for"),
        ({"layers": [True]}, "There is no layer True"),
        ({"top_k": 0}, "top_k=0 is not possible"),
        ({"texts": "one string"}, "texts is a single string"),
        ({"texts": []}, "None of the 0 sentences of the text has a word"),
        ({"word": "sat", "same_word": True}, "None of the 6 sentences of the text has the word 'sat'"),
    ],
)
def test_mistakes_are_named(embedder, options, message):
    with pytest.raises(ValueError, match=message):
        nearest_contexts(embedder, **{"query": QUERY, "word": "bank", "texts": TEXT, **options})


def test_lines_have_the_words_below_each_other():
    contexts = [
        Context(("A", "very", "long", "beginning", "of", "a", "sentence", "with", "a", "bank", "in", "it"), 9),
        Context(("조용한", "강둑", "bank", "조용한"), 2),
        Context(("bank",), 0),
    ]
    lines = context_lines([Neighbor(context, 0.5, 1 + number) for number, context in enumerate(contexts)], width=50)
    columns = {display_width(line.split("[")[0]) for line in lines}
    assert len(columns) == 1
    assert all(display_width(line) <= 50 for line in lines)
    assert lines[0].split("[")[0].rstrip().endswith("...ntence with a")
    assert lines[2].endswith("[bank]  (3 times)")
    labelled = context_lines([Neighbor(contexts[2], 0.25, 1)], 50, ["river"])
    assert labelled == ["   0.250  river   [bank]"]


@pytest.mark.parametrize("keep_end", [False, True])
@pytest.mark.parametrize("text", ["", "short", "조용한 강둑", "é" * 30, "e\u0301" * 30, "강" * 30])
def test_fitted_text_has_the_width(text, keep_end):
    fitted = fit(text, 12, keep_end)
    assert display_width(fitted) == 12
    assert ("..." in fitted) == (display_width(text) > 12)


def run(capsys, *argv):
    code = main([str(argument) for argument in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(capsys, folder, tmp_path):
    arguments = [folder / "model", "--text", folder / "text.txt", "--query", QUERY, "--word", "bank", "--quiet"]
    outputs = ["--json", tmp_path / "found.json", "--plot", tmp_path / "found.png"]
    code, out, err = run(capsys, "neighbors", *arguments, "--same-word", "--top-k", 2, *outputs)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [
        f"model: {folder / 'model'}",
        "query: She sat on the [bank] of the river .",
        "text: 6 sentences, 6 occurrences of 'bank' compared",
    ]
    assert "layer 0: without context, as a static vector" in lines
    assert "   1.000  bank   5 times, all of them equal" in lines
    assert lines[-1] == f"picture: {tmp_path / 'found.png'}"
    record = json.loads((tmp_path / "found.json").read_text())
    assert record["command"].startswith("hf-elmo")
    assert [len(layer) for layer in record["layers"].values()] == [2, 2, 2]
    assert record["layers"]["0"][0]["occurrences"] == 5
    assert (tmp_path / "found.png").read_bytes()[:4] == b"\x89PNG"
    code, _, err = run(capsys, "neighbors", *arguments, *outputs)
    assert (code, err.count("\n")) == (1, 1)
    assert "exists. Choose another name, or give --overwrite" in err


def test_the_command_splits_words_or_not(capsys, folder, tmp_path):
    (tmp_path / "text.txt").write_text("A bank, that is it.\n", encoding="utf-8")
    counts = []
    for more in ([], ["--split-words"]):
        arguments = [folder / "model", "--text", tmp_path / "text.txt", "--query", "a bank .", "--word", "bank"]
        code, out, _ = run(capsys, "neighbors", *arguments, "--quiet", "--layers", 1, 2, *more)
        assert code == 0
        assert "layer 0" not in out
        counts.append(next(line for line in out.splitlines() if line.startswith("text:")))
    assert counts == ["text: 1 sentences, 7 words compared", "text: 1 sentences, 5 words compared"]


def test_mistakes_of_the_command_are_one_line(capsys, folder, tmp_path, monkeypatch):
    (tmp_path / "latin.txt").write_bytes(b"na\xefve bank\n")
    usual = {"model": folder / "model", "--text": folder / "text.txt", "--query": QUERY, "--word": "bank"}
    monkeypatch.setattr("hf_elmo.shipped_model.ELMO_MINI", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    for changes, message in [
        ({"model": tmp_path / "nowhere"}, "is no model folder: there is no such folder"),
        ({"model": "elmo-mini"}, "The model of the package is not complete"),
        ({"--text": tmp_path / "nowhere"}, "does not exist"),
        ({"--word": "tank"}, "The word 'tank' is not in the query"),
        ({"--layers": 7}, "There is no layer 7"),
        ({"--top-k": 0}, "top_k=0 is not possible"),
        ({"--text": tmp_path / "latin.txt", "--errors": "stop"}, "line 1 is not UTF-8"),
    ]:
        options = {**usual, **changes}
        argv = [options.pop("model"), *(part for pair in options.items() for part in pair)]
        code, out, err = run(capsys, "neighbors", *argv, "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert message in err


def test_a_picture_needs_matplotlib(capsys, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = [folder / "model", "--text", folder / "text.txt", "--query", QUERY, "--word", "bank"]
    code, _, err = run(capsys, "neighbors", *arguments, "--plot", tmp_path / "found.png")
    assert code == 1
    assert 'pip install "hf-elmo[plot]"' in err


def test_more_layers_than_two(tmp_path):
    embedder = ElmoEmbedder(random_model(tiny_config(num_hidden_layers=3)), ElmoTokenizer())
    assert list(nearest_contexts(embedder, QUERY, "bank", TEXT).by_layer) == [0, 1, 2, 3]
