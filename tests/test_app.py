"""The page of hf-elmo app: what it shows is what the model says, and what a visitor types cannot harm it."""

import base64
import re
import socket
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from command_runs import run
from huggingface_hub import SpaceCardData
from language_models import small_model, small_tokenizer
from tiny import random_model, tiny_config

from hf_elmo import ElmoEmbedder, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from hf_elmo.neighbors import nearest_contexts
from hf_elmo.playground import Choice, Playground, first_choice, load_tagger
from hf_elmo.scripts.app import EXAMPLES, START, Handlers

ROOT = Path(__file__).parents[1]
TEXT = "The cat sat on the mat .\n\n  on the mat , too .\nHi cat"
SCRIPT = "<script>alert(1)</script>"
LABELS = ["O", "B-PER", "I-PER", "B-LOC"]


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    tokenizer = small_tokenizer(tmp_path_factory.mktemp("vocabulary"))
    model = small_model(tokenizer).eval()
    return Playground(ElmoEmbedder(model, tokenizer), model, name="tiny")


@pytest.fixture(scope="module")
def tagger_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    config = tiny_config(num_labels=4, id2label=dict(enumerate(LABELS)), label2id={"O": 0})
    random_model(config, seed=3, model_class=ElmoForTokenClassification).save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


def text_of(html):
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_lines_are_sentences(playground):
    assert playground.read(TEXT) == ["The cat sat on the mat .".split(), "on the mat , too .".split(), ["Hi", "cat"]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "There is nothing to read yet"),
        (" \n\t\n", "There is nothing to read yet"),
        ("x" * 10_001, "The text has 10,001 characters; this page reads up to 10,000"),
        ("a\n" * 41, "These are 41 sentences; this page reads up to 40"),
        ("a\n" + "b " * 61, "Sentence 2 has 61 words; this page reads up to 60. Cut it into lines"),
    ],
)
def test_what_cannot_be_read_is_told(playground, text, says):
    with pytest.raises(ValueError, match=says):
        playground.read(text)
    message, *others = Handlers(playground, SimpleNamespace()).show(text, 0, 0, True, "occurrences")
    assert says in text_of(message)
    assert 'class="elmo-problem"' in message
    assert others == ["", "", "", ""]


def test_neighbors_are_those_of_the_library(playground):
    sentences = playground.read(TEXT)
    html = playground.neighbors(sentences, Choice(0, 1), ["A cat ran ."])
    found = nearest_contexts(playground.embedder, sentences[0], 1, [*sentences, "A cat ran ."], top_k=5)
    for layer, neighbors in found.by_layer.items():
        table = html.split(f"layer {layer}: ")[1].split("</table>")[0]
        cosines = [float(cosine) for cosine in re.findall(r"<tr><td>(-?[\d.]+)</td>", table)]
        np.testing.assert_allclose(cosines, [neighbor.cosine for neighbor in neighbors], atol=0.006)
        words = [unescape(word) for word in re.findall(r"<b>(.*?)</b>", table)]
        assert words == [neighbor.context.word for neighbor in neighbors]
    assert html.index("layer 2") < html.index("layer 1") < html.index("layer 0")
    assert f"Compared with {found.contexts} words of 4 sentences" in html
    with pytest.raises(ValueError, match="nothing to compare with: type a second sentence"):
        playground.neighbors(sentences[:1], Choice(0, 1))


def cells_of(html):
    """The figures of the heat maps, layer by layer."""
    tables = re.findall(r"<table class=\"elmo-heat.*?</table>", html)
    rows = [[re.findall(r'title="[^"]*: (-?[\d.]+)"', row) for row in table.split("<tr>")[2:]] for table in tables]
    return np.array(rows, dtype=float)


def test_heat_maps_have_the_cosines_of_each_layer(playground):
    sentences = playground.read(TEXT)
    vectors = playground.embedder.encode(sentences, layers="all", is_split_into_words=True)
    cats = np.stack([vectors[0][:, 1], vectors[2][:, 1]], axis=1)
    words = vectors[0]
    for comparison, chosen in (("occurrences", cats), ("words", words)):
        unit = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
        cells = cells_of(playground.heat_map(sentences, Choice(0, 1), comparison))
        np.testing.assert_allclose(cells, unit @ unit.transpose(0, 2, 1), atol=0.0006)
    np.testing.assert_allclose(
        cells_of(playground.heat_map(sentences, Choice(0, 1)))[0], 1
    )  # no context, no difference
    with pytest.raises(ValueError, match="The word 'sat' is there only once"):
        playground.heat_map(sentences, Choice(0, 2))
    with pytest.raises(ValueError, match="comparison='letters' is not possible; choose one of occurrences, words"):
        playground.heat_map(sentences, Choice(0, 2), "letters")


def test_surprisal_is_that_of_the_language_model(playground):
    sentence = playground.read(TEXT)[0]
    html = playground.surprisal(sentence)
    assert base64.b64decode(re.search(r"base64,([^\"]*)", html)[1]).startswith(b"\x89PNG")
    score = playground.language_model.score([sentence], playground.embedder.tokenizer)[0]
    row = re.search(r"<tr><th scope='row'>cat\*?</th>(.*?)</tr>", html)[1]
    shown = [float(figure) for figure in re.findall(r"<td>([\d.]+)</td>", row)]
    expected = [score.surprisals(direction)[1] for direction in ("forward", "backward", "combined")]
    np.testing.assert_allclose(shown, expected, atol=0.06)
    assert "boxes" not in html
    assert "The fonts here lack some characters" in playground.surprisal(["\U00010380", "cat"])
    encoder = Playground(ElmoEmbedder(random_model(), ElmoTokenizer()), name="small")
    with pytest.raises(ValueError, match="small is an encoder without a softmax"):
        encoder.surprisal(sentence)


def test_entities_are_marked_in_the_text(playground, tagger_folder):
    sentences = playground.read(TEXT)
    with pytest.raises(ValueError, match="No tagger was given"):
        playground.entities(sentences)
    tagger = load_tagger(tagger_folder)
    html = Playground(playground.embedder, tagger=tagger).entities(sentences)
    expected = [entity for words in sentences for entity in tagger(" ".join(words))]
    marks = re.findall(r"<mark [^>]*>(.*?) <b>(.*?)</b></mark>", html)
    assert expected
    assert marks == [(entity["word"], entity["entity_group"]) for entity in expected]
    lines = re.sub(r" <b>.*?</b>", "", html).split("</li>")[:-1]
    assert [text_of(line) for line in lines] == [" ".join(words) for words in sentences]
    silent = Playground(playground.embedder, tagger=lambda text: []).entities(sentences)
    assert "The tagger found nothing" in silent


def test_only_a_tagger_is_taken_for_one(tmp_path):
    random_model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a ElmoModel, which labels no words"):
        load_tagger(tmp_path)


def test_what_is_typed_is_never_markup(playground):
    tagger = lambda text: [{"start": 0, "end": 3, "entity_group": "<i>"}]  # noqa: E731
    open_to_all = Playground(playground.embedder, playground.language_model, tagger, name="tiny")
    sentences = [[SCRIPT, "cat", '"><img/src=x>'], [SCRIPT, "&amp;", "'"]]
    for comparison in ("occurrences", "words"):
        text = "\n".join(" ".join(words) for words in sentences)
        assert open_to_all.read(text)
        for part in (
            open_to_all.neighbors(sentences, Choice(0, 0)),
            open_to_all.heat_map(sentences, Choice(0, 0), comparison),
            open_to_all.surprisal(sentences[0]),
            open_to_all.entities(sentences),
        ):
            assert "<script" not in part
            assert "<img/src=x" not in part
            assert "<i>" not in part.replace(" <i>(", "")


def test_the_page_begins_with_a_word_of_several_sentences(playground):
    sentences = playground.read(START)
    choice = first_choice(sentences)
    assert sentences[choice.sentence][choice.word] == "bank"
    assert first_choice([["a", "longest", "b"]]) == Choice(0, 1)
    assert len(EXAMPLES) == len(set(EXAMPLES)) == 40


def test_what_is_picked_is_shown(playground):
    gradio = SimpleNamespace(update=lambda **changes: changes)
    handlers = Handlers(playground, gradio)
    sentence, word = handlers.read(TEXT)
    assert [value for _, value in sentence["choices"]] == [0, 1, 2]
    assert sentence["choices"][1] == ("2. on the mat , too .", 1)
    assert word["choices"][word["value"]] == ("The", 0)
    assert [name for name, _ in handlers.pick(TEXT, 2)["choices"]] == ["Hi", "cat"]
    assert handlers.pick(TEXT, 2)["value"] == 1
    assert handlers.pick(TEXT, 7) == handlers.pick("", 0) == {"choices": [], "value": None}
    assert handlers.read("") == ({"choices": [], "value": None},) * 2
    message, neighbors, heat_map, surprisal, entities = handlers.show(TEXT, 2, 1, True, "occurrences")
    assert message == ""
    assert "Hi <b>cat</b>" in neighbors
    assert "of 43 sentences" in neighbors  # with the examples
    assert "of 3 sentences" in handlers.show(TEXT, 2, 1, False, "occurrences")[1]
    assert len(cells_of(heat_map)) == 3
    assert "dark blue is 1, white the smallest of the layer" in heat_map
    assert "base64" in surprisal
    assert "No tagger was given" in entities
    for sentence, word, says in ((None, 0, "Pick a word"), (0, None, "Pick a word"), (9, 0, "were changed")):
        assert says in handlers.show(TEXT, sentence, word, True, "occurrences")[0]
    assert "were changed" in handlers.show(TEXT, 2, 5, True, "occurrences")[1]


def test_a_folder_is_loaded(tmp_path, tagger_folder, playground):
    playground.language_model.save_pretrained(tmp_path / "lm")
    playground.embedder.tokenizer.save_pretrained(tmp_path / "lm")
    loaded = Playground.from_pretrained(tmp_path / "lm", tagger_folder)
    assert loaded.name == "lm"
    sentences = loaded.read(TEXT)
    assert loaded.surprisal(sentences[0]) == playground.surprisal(sentences[0])
    assert loaded.tagger is not None
    encoder = Playground.from_pretrained(tagger_folder, name="tags")
    assert encoder.language_model is None
    assert isinstance(encoder.embedder.model, ElmoModel)
    assert encoder.name == "tags"


def test_missing_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    code, _, err = run(capsys, "app")
    assert code == 1
    assert 'pip install "hf-elmo[app]"' in err
    assert "Traceback" not in err


def test_impossible_port_is_refused(capsys):
    code, _, err = run(capsys, "app", "--port", "70000")
    assert (code, err) == (1, "hf-elmo: error: --port 70000 is not possible: it is a number from 1 to 65535.\n")


def test_a_port_that_is_in_use_is_told(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", SimpleNamespace())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run(capsys, "app", "--port", port)
    assert code == 1
    assert f"The page cannot be at 127.0.0.1:{port}: " in err
    assert "Give another --port or --host" in err


def test_the_space_is_complete():
    space = ROOT / "space"
    _, metadata, _ = (space / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    data = SpaceCardData(**yaml.safe_load(metadata))
    assert data.sdk == "gradio"
    assert len(data.to_dict()["short_description"]) <= 60
    assert (space / data.app_file).is_file()
    assert "hf-elmo[app]" in (space / "requirements.txt").read_text().splitlines()
    compile((space / data.app_file).read_text(encoding="utf-8"), "app.py", "exec")
