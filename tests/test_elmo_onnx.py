"""The runner of exported models: the words, vectors and labels of torch, without torch."""

import json
import random

import numpy as np
import pytest
import torch
from test_onnx import LABELS, model_for
from tiny import SENTENCES, random_model, tiny_config, words_of
from torch_free_python import run_without_torch
from transformers import pipeline

from hf_elmo import ElmoCharacters, ElmoEmbedder, ElmoForTokenClassification, ElmoTokenizer
from hf_elmo.conversion.onnx_export import export_onnx, tokenizer_settings
from hf_elmo.elmo_onnx import ElmoOnnx, OnnxTokenizer

CHARACTERS = ElmoCharacters(
    characters=("<bos>", "<eos>", "<bow>", "<eow>", "<pad>", "<unk>", *"abcdehilostñéTH '.,"),
    begin_sentence=1,
    end_sentence=2,
    begin_word=3,
    end_word=4,
    pad_word=5,
    unknown=6,
)
TEXTS = [
    *SENTENCES,
    "",
    "   ",
    "It's a “river bank”—isn’t it? Mr. Smith paid $1,000.50 (see U.S. law).",
    "the <S> mark </S> and <UNK> and <PAD> in a text",
    "lone \ud800 surrogate, e\u0301 combining, \ufffd replacement, \x00 control",
    "🙂🏽 नमस्ते 世界 “„‚’ rock 'n'roll",
    "x" * 300 + " é" * 60,
]


# --- The same words --------------------------------------------------------------------------------------------------


def vocabulary(folder, words):
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in ("<S>", "</S>", "<UNK>", *words)))
    return folder / "vocab.txt"


def tokenizers(folder):
    """Tokenizers of all kinds."""
    words = vocabulary(folder, ["the", "cat", "é", "\ufffd", "Ça", "sat"])
    of_vectors = ElmoTokenizer(words)
    of_vectors.set_word_vectors(["the", "cat", "sat", "hi", "Ça"])
    of_characters = ElmoTokenizer(words, word_splitting="whitespace", max_characters_per_token=12)
    of_characters.set_characters(CHARACTERS)
    return {
        "bytes": ElmoTokenizer(),
        "vocabulary": ElmoTokenizer(words),
        "whitespace": ElmoTokenizer(words, word_splitting="whitespace", max_characters_per_token=7),
        "NFC": ElmoTokenizer(words, unicode_normalization="NFC"),
        "special": ElmoTokenizer(words, split_special_tokens=False),
        "no boundaries": ElmoTokenizer(words, add_bos_token=False, add_eos_token=False),
        "vectors": of_vectors,
        "characters": of_characters,
    }


KINDS = ("bytes", "vocabulary", "whitespace", "NFC", "special", "no boundaries", "vectors", "characters")


def of_folder(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return OnnxTokenizer(folder, json.loads(json.dumps(tokenizer_settings(tokenizer))))


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, array in found.items():
        assert array.dtype == np.int64
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def random_texts(count):
    generator = random.Random(0)
    pieces = [*"abcé’“—-.,'\"$% \t\n", "the ", "cat ", "<S>", "</S>", "e\u0301", "\ud83d", "🙂", "U.S. ", "1,000"]
    return ["".join(generator.choices(pieces, k=generator.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_of_the_tokenizer(tmp_path, kind):
    tokenizer = tokenizers(tmp_path)[kind]
    found = of_folder(tokenizer, tmp_path)
    texts = TEXTS + random_texts(200)
    options = {"padding": True, "return_tensors": "np"}
    assert_same(found(texts), tokenizer(texts, **options))
    lists = [text.split(" ") for text in texts]  # with empty words
    assert_same(found(lists), tokenizer(lists, is_split_into_words=True, **options))
    assert_same(found(texts, texts[::-1]), tokenizer(texts, texts[::-1], **options))
    for text in texts[:20]:
        assert found.words(text) == tokenizer.tokenize(text)


def test_mistakes_in_texts(tmp_path):
    tokenizer = of_folder(ElmoTokenizer(), tmp_path)
    with pytest.raises(ValueError, match="a single string was given: put it into a list"):
        tokenizer("A text")
    with pytest.raises(ValueError, match="Some texts are strings and some are lists of words"):
        tokenizer(["A text", ["A", "list"]])
    with pytest.raises(ValueError, match="must be a string or a list of words, but 7 is something else"):
        tokenizer([7])
    with pytest.raises(ValueError, match="There are 2 texts, but 1 second texts"):
        tokenizer(["a", "b"], ["c"])
    assert tokenizer([])["character_ids"].shape == (0, 0, 50)


# --- The same vectors ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of vectors, and what was exported of it."""
    folder = tmp_path_factory.mktemp("features")
    random_model().save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    export_onnx(folder / "model", folder / "onnx")
    return folder / "model", folder / "onnx"


def test_vectors(folders):
    embedder, model = ElmoEmbedder.from_pretrained(folders[0]), ElmoOnnx(folders[1], threads=1)
    for layers in ("mix", "top", "average", "all", 0, 2):
        for keep in (False, True):
            expected = embedder.encode(TEXTS, layers, keep_boundaries=keep)
            for batch_tokens in (1, 60, 10_000):
                found = model.encode(TEXTS, layers, batch_tokens=batch_tokens, keep_boundaries=keep)
                for ours, right in zip(found, expected, strict=True):
                    np.testing.assert_allclose(ours, right, atol=1e-5, rtol=0)
    for pooling in ("mean", "max", "mean_max", "boundary"):
        for layers in ("mix", "all"):
            for keep in (False, True):
                options = {"keep_boundaries": keep}
                found = model.encode(TEXTS, layers, pooling, **options)
                np.testing.assert_allclose(
                    found, embedder.encode(TEXTS, layers, pooling, **options), atol=1e-5, rtol=0
                )
    lists = words_of(SENTENCES)
    for ours, right in zip(model.encode(lists), embedder.encode(lists), strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-5, rtol=0)
    assert model.encode([]) == []


def test_a_batch_without_words(folders):
    model = ElmoOnnx(folders[1])
    arrays = {"character_ids": np.zeros((3, 0, 50)), "attention_mask": np.zeros((3, 0))}
    found = model.run(arrays)
    assert found["last_hidden_state"].shape == (3, 0, 12)
    assert found["hidden_states"].shape == (3, 3, 0, 12)
    assert not found["final_cell"].any()
    assert found["final_cell"].shape == (2, 3, 20)


def test_state(folders):
    model = ElmoOnnx(folders[1])
    arrays = model.tokenizer(SENTENCES)
    first = model.run(arrays)
    second = model.run(arrays, ["last_hidden_state"], state=(first["final_hidden"], first["final_cell"]))
    assert set(second) == {"last_hidden_state"}
    assert np.abs(second["last_hidden_state"] - first["last_hidden_state"]).max() > 1e-3
    with pytest.raises(ValueError, match=r"state for initial_cell has the shape \(2, 4, 20\).* needs \(2, 5, 20\)"):
        model.run(arrays, state=(first["final_hidden"], first["final_cell"][:, :4]))


def test_mistakes_in_arrays(folders, tmp_path):
    model = ElmoOnnx(folders[1])
    arrays = model.tokenizer(["A text"])
    with pytest.raises(ValueError, match="There is no output 'logits'; this model has last_hidden_state, hidden_st"):
        model.run(arrays, ["logits"])
    with pytest.raises(ValueError, match="character_ids is missing: this model reads attention_mask, character_ids"):
        model.run({"attention_mask": arrays["attention_mask"]})
    with pytest.raises(ValueError, match="character_ids has the value 262, but this model knows the ids 0 to 261"):
        model.run(arrays | {"character_ids": np.full((1, 4, 50), 262)})
    with pytest.raises(
        ValueError, match=r"character_ids has the shape \(1, 3, 50\), but attention_mask is .* \(1, 4\)"
    ):
        model.run(arrays | {"character_ids": arrays["character_ids"][:, :3]})
    with pytest.raises(ValueError, match="has 51 characters a word, but this model reads at most 50"):
        model.run(arrays | {"character_ids": np.ones((1, 4, 51))})
    with pytest.raises(ValueError, match=r"layers=3 is not possible: it is 'mix', 'top', .* or a number from 0 to 2"):
        model.encode(["A text"], 3)
    with pytest.raises(ValueError, match="pooling='sum' is not possible: it is 'mean', 'max', 'mean_max', 'boundary'"):
        model.encode(["A text"], pooling="sum")
    with pytest.raises(ValueError, match="There is no text: without one, pooled vectors cannot be put into one array"):
        model.encode([], pooling="mean")
    with pytest.raises(ValueError, match="classify is for models that were exported with --task token-classification"):
        model.classify(["A text"])
    with pytest.raises(ValueError, match="batch_tokens=0 is not possible"):
        model.encode(["A text"], batch_tokens=0)
    with pytest.raises(ValueError, match="threads=0 is not possible"):
        ElmoOnnx(folders[1], threads=0)
    with pytest.raises(FileNotFoundError, match=r"has no model.onnx: give a folder that hf-elmo export onnx wrote"):
        ElmoOnnx(tmp_path)


def test_mix_that_depends_on_the_batch_is_made_text_by_text(tmp_path):
    random_model(tiny_config(mix_layer_norm="batch")).save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    expected = ElmoEmbedder.from_pretrained(tmp_path / "model").encode(SENTENCES)
    for ours, right in zip(ElmoOnnx(tmp_path / "onnx").encode(SENTENCES), expected, strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-5, rtol=0)


# --- The same labels -------------------------------------------------------------------------------------------------


def exported_task(folder, task, **settings):
    model = model_for(task, **settings)
    model.save_pretrained(folder / "model")
    tokenizer = ElmoTokenizer()
    tokenizer.save_pretrained(folder / "model")
    export_onnx(folder / "model", folder / "onnx")
    return model, tokenizer, ElmoOnnx(folder / "onnx")


def test_labels_of_words(tmp_path):
    settings = {"id2label": LABELS, "use_crf": True, "crf_scheme": "BIO"}
    model, tokenizer, onnx_model = exported_task(tmp_path, "token-classification", **settings)
    assert isinstance(model, ElmoForTokenClassification)
    expected = pipeline("token-classification", model=model, tokenizer=tokenizer, ignore_labels=[])(SENTENCES[:3])
    found = onnx_model.classify(SENTENCES[:3], batch_tokens=12)
    for ours, right in zip(found, expected, strict=True):
        assert [entry["label"] for entry in ours] == [entry["entity"] for entry in right]
        np.testing.assert_allclose([e["score"] for e in ours], [e["score"] for e in right], atol=1e-5)
    assert [entry["word"] for entry in found[0]] == SENTENCES[0].split()
    with pytest.raises(ValueError, match="This model reads single texts, but pairs are given"):
        onnx_model.classify(["A"], ["B"])
    with pytest.raises(ValueError, match="A model for token-classification takes no state"):
        onnx_model.run(onnx_model.tokenizer(["A"]), state=(np.zeros(1), np.zeros(1)))


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_labels_of_pairs(tmp_path, problem):
    count = 1 if problem == "regression" else 3
    settings = {"num_labels": count, "num_sentences": 2, "problem_type": problem}
    model, tokenizer, onnx_model = exported_task(tmp_path, "sequence-classification", **settings)
    pairs = SENTENCES[::-1]
    with torch.no_grad():
        logits = model(**tokenizer(SENTENCES, pairs, padding=True, return_tensors="pt")).logits
    found = onnx_model.classify(SENTENCES, pairs, batch_tokens=30)
    if problem == "regression":
        np.testing.assert_allclose(found, logits[:, 0].numpy(), atol=1e-5)
    elif problem == "multi_label_classification":
        scores = [[entry["score"] for entry in entries] for entries in found]
        np.testing.assert_allclose(scores, logits.sigmoid().numpy(), atol=1e-5)
    else:
        scores, labels = logits.softmax(dim=1).max(dim=1)
        assert [entry["label"] for entry in found] == [model.config.id2label[label] for label in labels.tolist()]
        np.testing.assert_allclose([entry["score"] for entry in found], scores.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="This model reads pairs of texts, but pairs are missing"):
        onnx_model.classify(SENTENCES)


# --- Without torch ---------------------------------------------------------------------------------------------------

PROGRAM = """
import importlib.util, json, sys
folder, texts, output = sys.argv[1:]
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("transformers") is None
sys.path.insert(0, folder)
from elmo_onnx import ElmoOnnx
import numpy as np
model = ElmoOnnx(folder, threads=1)
vectors = model.encode(json.load(open(texts)), "all")
np.savez(output, *vectors)
print(len(vectors))
"""


@pytest.mark.slow
def test_without_torch(folders, tmp_path):
    texts = [text for text in TEXTS if "\ud800" not in text]  # which json would write, and utf-8 refuse
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    printed = run_without_torch(PROGRAM, folders[1], tmp_path / "texts.json", tmp_path / "vectors.npz")
    assert printed == f"{len(texts)}\n"
    expected = ElmoEmbedder.from_pretrained(folders[0]).encode(texts, "all")
    found = np.load(tmp_path / "vectors.npz")
    for number, right in enumerate(expected):
        np.testing.assert_allclose(found[f"arr_{number}"], right, atol=1e-5, rtol=0)
