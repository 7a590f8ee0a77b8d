"""The stock pipelines with our heads: what they say about a text, and where in the text it stands."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_config
from transformers import BertConfig, BertForTokenClassification, pipeline

from hf_elmo import ElmoForSequenceClassification, ElmoForTokenClassification, ElmoTokenizer

AGGREGATIONS = ["simple", "first", "average", "max"]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]

# The tagger below has learned these words, and that all others are O.
LABEL_OF_WORD = {
    "John": "B-PER",
    "O": "I-PER",
    "'Brien": "I-PER",
    "New": "B-LOC",
    "York": "I-LOC",
    "Zürich": "B-LOC",
    "Paris": "B-LOC",
    "U.S.": "B-LOC",
    "🙂": "B-PER",
}
OTHER_WORDS = "It 's of , or . < / S > PAD UNK <S> </S> <PAD> <UNK> went to and \" -".split()

TEXT = "It's John O'Brien of New York, or Zürich."
ENTITIES = [("PER", "John O 'Brien", "John O'Brien"), ("LOC", "New York", "New York"), ("LOC", "Zürich", "Zürich")]


def word_config(**overrides):
    """A model whose vector of a word is the word's own, wide enough to tell all words here apart."""
    sizes = {"projection_size": 48, "char_cnn_filters": [[1, 24], [2, 24], [3, 24]], "layer_combination": 0}
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: number for number, label in enumerate(LABELS)}}
    return tiny_config(**{**sizes, **labels, **overrides})


@torch.no_grad()
def tagger_of_words(label_of_word=LABEL_OF_WORD, **overrides) -> ElmoForTokenClassification:
    """A tagger that gives each word its label, with a clear margin."""
    model = ElmoForTokenClassification(word_config(**overrides)).eval()
    words = [*label_of_word, *OTHER_WORDS, ""]
    encoded = ElmoTokenizer()([[word] for word in words], is_split_into_words=True, return_tensors="pt")
    vectors = model.elmo(**encoded).last_hidden_state[:, 1]  # between <S> and </S>
    wanted = torch.zeros(len(words), model.num_labels)
    for row, word in enumerate(words):
        wanted[row, model.config.label2id[label_of_word.get(word, "O")]] = 8.0
    model.classifier.weight.copy_(torch.linalg.lstsq(vectors.double(), wanted.double(), driver="gelsd").solution.T)
    model.classifier.bias.zero_()
    return model


@pytest.fixture(scope="module")
def tagger() -> ElmoForTokenClassification:
    return tagger_of_words()


@pytest.fixture(scope="module", params=["no vocabulary", "vocabulary"])
def tokenizer(request, tmp_path_factory) -> ElmoTokenizer:
    """Words that are in the vocabulary take another way through the pipeline than those that are not."""
    if request.param == "no vocabulary":
        return ElmoTokenizer()
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = ["<S>", "</S>", "<UNK>", *"It of John New York Zü Zür rich U.S. 🙂 'Brien , to".split()]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return ElmoTokenizer(path)


def found(entities: list[dict]) -> list[tuple[str, str, int, int]]:
    assert all(entity["score"] > 0.9 for entity in entities)
    return [(entity["entity_group"], entity["word"], entity["start"], entity["end"]) for entity in entities]


def expected(text: str, entities: list[tuple[str, str, str]] = ENTITIES) -> list[tuple[str, str, int, int]]:
    """(type, words, start, end) of (type, words, the same in the text)."""
    places = [(type_, words, text.index(surface), surface) for type_, words, surface in entities]
    return [(type_, words, start, start + len(surface)) for type_, words, start, surface in places]


# --- Labels of words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_entities_of_raw_text(tagger, tokenizer, aggregation):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    assert found(tag(TEXT)) == expected(TEXT)
    assert found(tag("John Paris New York New York")) == [
        ("PER", "John", 0, 4),
        ("LOC", "Paris", 5, 10),
        ("LOC", "New York", 11, 19),
        ("LOC", "New York", 20, 28),
    ]


BIOES = "O B-PER I-PER E-PER S-PER B-LOC I-LOC E-LOC S-LOC".split()


def test_entities_by_bioes_labels(tmp_path):
    """The stock pipeline takes E- and S- for types of their own, and cuts entities of several words."""
    label_of_word = {"John": "B-PER", "O": "I-PER", "'Brien": "E-PER", "New": "B-LOC", "York": "E-LOC"}
    label_of_word |= {"Zürich": "S-LOC", "Paris": "S-LOC"}
    labels = {"id2label": dict(enumerate(BIOES)), "label2id": {label: number for number, label in enumerate(BIOES)}}
    model = tagger_of_words(label_of_word, **labels)
    model.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    for task in ("token-classification", "ner"):
        tag = pipeline(task, model=str(tmp_path), aggregation_strategy="simple")
        assert found(tag(TEXT)) == expected(TEXT)
        assert found(tag("Paris Zürich New York")) == [
            ("LOC", "Paris", 0, 5),
            ("LOC", "Zürich", 6, 12),
            ("LOC", "New York", 13, 21),
        ]
    words = pipeline("token-classification", model=str(tmp_path))("New York")
    assert [word["entity"] for word in words] == ["B-LOC", "E-LOC"]


def test_labels_that_only_look_like_bioes():
    model = tagger_of_words({"John": "E-mail"}, id2label={0: "O", 1: "E-mail"}, label2id={"O": 0, "E-mail": 1})
    tag = pipeline("token-classification", model=model, tokenizer=ElmoTokenizer(), aggregation_strategy="simple")
    assert tag.get_tag("E-mail") == ("I", "E-mail")


def test_pipelines_of_other_models_are_left_alone():
    config = BertConfig(
        vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, num_labels=9
    )
    config.id2label = dict(enumerate(BIOES))
    model = BertForTokenClassification(config)
    tag = pipeline("token-classification", model=model, tokenizer=ElmoTokenizer())
    assert tag.get_tag("E-PER") == ("I", "E-PER")


def test_every_word_of_raw_text(tagger, tokenizer):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, ignore_labels=[])
    words = "It 's John O 'Brien of New York , or Zürich .".split()
    labels = [LABEL_OF_WORD.get(word, "O") for word in words]
    starts = [0, 2, 5, 10, 11, 18, 21, 25, 29, 31, 34, 40]
    entities = tag(TEXT)
    assert [entity["word"] for entity in entities] == words
    assert [entity["entity"] for entity in entities] == labels
    assert [entity["index"] for entity in entities] == list(range(1, len(words) + 1))  # <S> is number 0
    assert [(entity["start"], entity["end"]) for entity in entities] == [
        (start, start + len(word)) for start, word in zip(starts, words, strict=True)
    ]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_typographic_signs_are_cut_out_of_the_text_as_they_stand(tagger, aggregation):
    tag = pipeline("token-classification", model=tagger, tokenizer=ElmoTokenizer(), aggregation_strategy=aggregation)
    text = "of “John O’Brien”—Paris"
    assert [text[start:end] for _, _, start, end in found(tag(text))] == ["John O’Brien", "Paris"]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_words_that_are_given(tagger, tokenizer, aggregation):
    """Each word is one position, and places are those in the words joined by spaces."""
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    words = ["John", "went", "to", "U.S.", "and", "", "New", "York"]
    one = [("PER", "John", 0, 4), ("LOC", "U.S.", 13, 17), ("LOC", "New York", 23, 31)]
    assert " ".join(words)[23:31] == "New York"
    assert [found(entities) for entities in tag(words, is_split_into_words=True)] == [one]
    several = tag([words, ["Paris"], words[3:4]], is_split_into_words=True, batch_size=3)
    assert [found(entities) for entities in several] == [one, [("LOC", "Paris", 0, 5)], [("LOC", "U.S.", 0, 4)]]
    slashes = tag(words, is_split_into_words=True, delimiter=" / ")
    assert found(slashes[0])[1] == ("LOC", "U.S.", len("John / went / to / "), len("John / went / to / U.S."))


@pytest.mark.parametrize("batch_size", [1, 2, 4])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_batches(tagger, tokenizer, aggregation, batch_size):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    texts = ["Paris", TEXT, "", "of John"]
    alone = [tag(text) for text in texts]
    together = tag(texts, batch_size=batch_size)
    assert [found(entities) for entities in together] == [
        [("LOC", "Paris", 0, 5)],
        expected(TEXT),
        [],
        [("PER", "John", 3, 7)],
    ]
    for one, among_others in zip(alone, together, strict=True):
        np.testing.assert_allclose([e["score"] for e in among_others], [e["score"] for e in one], rtol=1e-5)


@pytest.mark.parametrize("aggregation", ["none", *AGGREGATIONS])
@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_text_without_words(tagger, tokenizer, aggregation, text):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    assert tag(text) == []
    assert tag([text, text], batch_size=2) == [[], []]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_emoji(tagger, tokenizer, aggregation):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    assert found(tag("🙂 went to Zürich 🙂")) == [
        ("PER", "🙂", 0, 1),
        ("LOC", "Zürich", 10, 16),
        ("PER", "🙂", 17, 18),
    ]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_text_that_looks_like_markers(tagger, tokenizer, aggregation):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation)
    text = "<S> John </S> <PAD> Paris <UNK> New York <S>"
    assert found(tag(text)) == expected(
        text, [("PER", "John", "John"), ("LOC", "Paris", "Paris"), ("LOC", "New York", "New York")]
    )


def test_markers_among_words_that_are_given(tagger, tokenizer):
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, ignore_labels=[])
    (entities,) = tag(["<S>", "John", "</S>", "<UNK>"], is_split_into_words=True)
    assert [(entity["word"], entity["entity"]) for entity in entities] == [
        ("<S>", "O"),
        ("John", "B-PER"),
        ("</S>", "O"),
        ("<UNK>", "O"),
    ]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_long_text_in_overlapping_parts(tagger, aggregation):
    tokenizer = ElmoTokenizer(model_max_length=8)
    tag = pipeline(
        "token-classification", model=tagger, tokenizer=tokenizer, aggregation_strategy=aggregation, stride=2
    )
    text = "of John went to Paris and to Zürich , and of Paris went to New York ."
    entities = [("PER", "John"), ("LOC", "Paris"), ("LOC", "Zürich"), ("LOC", "Paris"), ("LOC", "New York")]
    assert [entity[:2] for entity in found(tag(text))] == entities
    assert all(text[start:end] == words for _, words, start, end in found(tag(text)))


@torch.no_grad()
def test_conditional_random_field_decides_what_the_pipeline_says():
    """`York` is I-LOC to the tagger, which the scheme does not allow at the beginning of a place."""
    plain = tagger_of_words()
    with_field = tagger_of_words(use_crf=True, crf_scheme="BIO")
    with_field.load_state_dict(plain.state_dict(), strict=False)
    for weights in with_field.crf.parameters():
        weights.zero_()
    outputs = {}
    for name, model in (("plain", plain), ("field", with_field)):
        tag = pipeline("token-classification", model=model, tokenizer=ElmoTokenizer(), ignore_labels=[])
        outputs[name] = tag(["York", "New York"], batch_size=2)
    labels = {name: [[word["entity"] for word in text] for text in texts] for name, texts in outputs.items()}
    assert labels["plain"] == [["I-LOC"], ["B-LOC", "I-LOC"]]
    assert labels["field"][0] != ["I-LOC"]
    assert labels["field"][1] == ["B-LOC", "I-LOC"]
    scores = [word["score"] for text in outputs["field"] for word in text]
    assert all(0 < score <= 1 for score in scores)
    assert min(scores[1:]) > 0.9 > scores[0]  # what is forbidden leaves the probability to the others


@torch.no_grad()
def test_markers_among_words_are_on_the_path_of_a_conditional_random_field():
    """A word `<S>` of the text is a word: what follows it must fit its label."""
    model = tagger_of_words(use_crf=True, crf_scheme="BIO")
    words = ["John", "<S>", "O"]
    encoded = ElmoTokenizer()(words, is_split_into_words=True, return_tensors="pt")
    labels = torch.tensor([[-100, LABELS.index("O"), LABELS.index("B-PER"), LABELS.index("I-PER"), -100]])
    assert torch.isfinite(model(**encoded, labels=labels).loss)
    assert model(**encoded).logits.argmax(dim=2)[0, 3] != LABELS.index("I-PER")  # as <S> is O


def test_saved_tagger(tagger, tokenizer, tmp_path):
    tagger.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tag = pipeline("token-classification", model=str(tmp_path), aggregation_strategy="first")
    assert found(tag(TEXT)) == expected(TEXT)


# --- Labels of texts -------------------------------------------------------------------------------------------------

TEXTS = ["The cat sat on the mat.", "", "🙂", "One <S> more </S>.", "Not at all!"]


def classifier(labels: list[str], **overrides) -> ElmoForSequenceClassification:
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    torch.manual_seed(3)
    return ElmoForSequenceClassification(tiny_config(**{**names, **overrides})).eval()


@torch.no_grad()
def logits_of(model: ElmoForSequenceClassification, *texts: str) -> np.ndarray:
    """Of a single text or a pair, without any padding."""
    return model(**ElmoTokenizer()(*texts, return_tensors="pt")).logits[0].double().numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("pooling", ["mean", "max", "mean_max", "boundary"])
def test_text_classification(pooling, batch_size):
    labels = ["bad", "so-so", "good"]
    model = classifier(labels, pooling=pooling)
    classify = pipeline("text-classification", model=model, tokenizer=ElmoTokenizer())
    for text, scores in zip(TEXTS, classify(TEXTS, batch_size=batch_size, top_k=None), strict=True):
        wanted = softmax(logits_of(model, text))
        by_label = {score["label"]: score["score"] for score in scores}
        np.testing.assert_allclose([by_label[label] for label in labels], wanted, rtol=1e-5)
        assert classify(text)[0]["label"] == labels[wanted.argmax()]


def test_markers_in_a_text_that_is_cut_at_spaces():
    """A word `<S>` of the text is not the beginning of a second text."""
    model = classifier(["bad", "good"])
    classify = pipeline("text-classification", model=model, tokenizer=ElmoTokenizer(word_splitting="whitespace"))
    for text in ("One <S> more </S> .", "<S>", "</S>"):
        assert 0 < classify(text)[0]["score"] < 1


def test_text_with_several_labels():
    model = classifier(["short", "sad", "loud"], problem_type="multi_label_classification")
    classify = pipeline("text-classification", model=model, tokenizer=ElmoTokenizer(), top_k=None)
    for text, scores in zip(TEXTS, classify(TEXTS, batch_size=5), strict=True):
        wanted = 1 / (1 + np.exp(-logits_of(model, text)))
        np.testing.assert_allclose(sorted(score["score"] for score in scores), sorted(wanted), rtol=1e-5)


def test_number_for_a_text():
    model = classifier(["score"], problem_type="regression")
    score = pipeline("text-classification", model=model, tokenizer=ElmoTokenizer())
    for text, answer in zip(TEXTS, score(TEXTS, batch_size=5), strict=True):
        np.testing.assert_allclose(answer["score"], logits_of(model, text)[0], rtol=1e-4, atol=1e-6)


def test_pairs_of_texts():
    model = classifier(["no", "maybe", "yes"], num_sentences=2)
    classify = pipeline("text-classification", model=model, tokenizer=ElmoTokenizer(), top_k=None)
    pairs = [{"text": text, "text_pair": "It is so."} for text in TEXTS]
    for pair, scores in zip(pairs, classify(pairs, batch_size=5), strict=True):
        wanted = softmax(logits_of(model, pair["text"], pair["text_pair"]))
        np.testing.assert_allclose(sorted(score["score"] for score in scores), sorted(wanted), rtol=1e-5)


# --- Labels that are made up on the spot -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[["contradiction", "neutral", "entailment"], ["ENTAILMENT", "not_entailment"]])
def inference(request) -> ElmoForSequenceClassification:
    """A model with the labels of natural language inference, in the orders of two well-known corpora."""
    return classifier(request.param, num_sentences=2)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_zero_shot_classification(inference, batch_size):
    classify = pipeline("zero-shot-classification", model=inference, tokenizer=ElmoTokenizer())
    entails = next(number for number, label in inference.config.id2label.items() if label.lower() == "entailment")
    contradicts = -1 if entails == 0 else 0
    candidates, texts = ["politics", "public health", "🙂"], ["Who are you voting for?", "One <S> more </S>."]
    for multi_label in (False, True):
        answers = classify(texts, candidates, multi_label=multi_label, batch_size=batch_size)
        for text, answer in zip(texts, answers, strict=True):
            logits = np.array(
                [logits_of(inference, text, f"This example is {candidate}.") for candidate in candidates]
            )
            wanted = softmax(logits[:, [contradicts, entails]])[:, 1] if multi_label else softmax(logits[:, entails])
            by_label = dict(zip(answer["labels"], answer["scores"], strict=True))
            np.testing.assert_allclose([by_label[candidate] for candidate in candidates], wanted, rtol=1e-4)


def test_zero_shot_classification_from_a_folder(inference, tmp_path: Path):
    inference.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    answers = [
        pipeline("zero-shot-classification", **what)("Who are you voting for?", ["politics", "health"])
        for what in ({"model": str(tmp_path)}, {"model": inference, "tokenizer": ElmoTokenizer()})
    ]
    assert answers[0]["labels"] == answers[1]["labels"]
    np.testing.assert_allclose(answers[0]["scores"], answers[1]["scores"], rtol=1e-6)
