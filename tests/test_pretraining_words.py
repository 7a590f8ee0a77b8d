"""What pretraining reads of a word is what the tokenizer gives: bytes, code points, word ids, in both modes."""

import pickle
import tempfile
import unicodedata
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import random_model, tiny_config
from torch.testing import assert_close

from hf_elmo import ElmoCharacters, ElmoForPreTraining, ElmoTokenizer
from hf_elmo.corpus import CorpusReader
from hf_elmo.pretraining_data import PretrainingData, predicted_words
from hf_elmo.tokenization_elmo import word_tokenizer

WIDTH = 9  # so that words of more than 7 bytes or code points are cut
KNOWN = [
    "a",
    "word",
    "Ça",
    "한국어",
    "e\u0301",
    "seven77",
    "eight888",
    "한국어한국어한",
    "🙂",
    "<S",
    "\ufffd",
    "\ue000",
]
FILTERS = [[1, 4], [2, 5]]
TABLE = {"word_embedding_size": 5}


def byte_tokenizer(names=("<S>", "</S>", "<UNK>", "<PAD>")) -> ElmoTokenizer:
    bos, eos, unknown, padding = names
    return ElmoTokenizer(
        tokenizer_object=word_tokenizer([bos, eos, unknown, *KNOWN], unknown, padding),
        max_characters_per_token=WIDTH,
        bos_token=bos,
        eos_token=eos,
        unk_token=unknown,
        pad_token=padding,
        add_bos_token=True,
        add_eos_token=True,
    )


def code_point_tokenizer() -> ElmoTokenizer:
    """As that of a model of ELMoForManyLangs, but with padding at the end, as a language model has it."""
    names = ("<oov>", "<bos>", "<eos>", *KNOWN, "<S>")  # the last is a word as any other
    tokenizer = ElmoTokenizer(
        tokenizer_object=word_tokenizer(names, "<oov>", "<pad>"),
        word_splitting="whitespace",
        unicode_normalization="NFC",
        max_characters_per_token=WIDTH,
        **{"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<oov>", "pad_token": "<pad>"},
        add_bos_token=True,
        add_eos_token=True,
    )
    characters = (*"abdeghinorsvw78<>/SÇ한국어\u0301\ufffd", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
    numbers = {name: number for number, name in enumerate(characters, start=1)}
    tokenizer.set_characters(
        ElmoCharacters(
            characters,
            begin_sentence=numbers["<bos>"],
            end_sentence=numbers["<eos>"],
            begin_word=numbers["<eow>"],
            end_word=numbers["<bow>"],
            pad_word=numbers["<pad>"],
            unknown=numbers["<oov>"],
        )
    )
    return tokenizer


TOKENIZERS = {
    "bytes": byte_tokenizer(),
    "bytes, other names": byte_tokenizer(("<bos>", "<eos>", "<oov>", "<pad>")),
    "code points": code_point_tokenizer(),
}
BOUNDARIES = {
    "bytes": {"<S>", "</S>", "<PAD>"},
    "bytes, other names": {"<S>", "</S>", "<bos>", "<eos>", "<pad>"},
    "code points": {"<bos>", "<eos>", "<pad>"},
}


def model_of(tokenizer: ElmoTokenizer, word_input: str) -> ElmoForPreTraining:
    options = {} if word_input == "characters" else dict(TABLE)
    if tokenizer.characters is not None:
        options |= {"char_vocab_size": len(tokenizer.characters.characters) + 1}
        options |= {"character_markers": tokenizer.characters.markers}
    config = tiny_config(
        word_input=word_input,
        vocab_size=len(tokenizer),
        max_characters_per_token=WIDTH,
        char_cnn_filters=FILTERS,
        **options,
    )
    return random_model(config, scale=0.5, model_class=ElmoForPreTraining)


# --- Ids -------------------------------------------------------------------------------------------------------------

# Words as they come, of characters that the models know or not, near the length where they are cut.
WORDS = st.one_of(
    st.sampled_from(
        [*KNOWN, "<UNK>", "<oov>", "<S>x", "x" * 7, "x" * 8, "seven77s", "한국어한국어한국", "é", "e\u0301e"]
    ),
    st.text(st.sampled_from("abé한국어🙂<>/S\u0301\ue000\x00"), min_size=1, max_size=12),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
).filter(lambda word: not any(map(str.isspace, word)))
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=9), min_size=1, max_size=6)


def batches_of(path: Path, tokenizer: ElmoTokenizer, **options) -> list[dict[str, torch.Tensor]]:
    data = PretrainingData(path, tokenizer, shuffle=False, epochs=1, complete=True, **options)
    return [batch.inputs for batch in data]


def assert_ids_of_the_tokenizer(name: str, sentences: list[list[str]]) -> None:
    tokenizer = TOKENIZERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_bytes("".join(f"{' '.join(words)}\n" for words in sentences).encode("utf-8"))
        read = list(CorpusReader(path, shuffle=False, epochs=1))
        side_by_side = batches_of(path, tokenizer, mode="sentences", rows=2)
        (stream,) = batches_of(path, tokenizer, rows=1, steps=100, word_ids=True)

    assert sum(map(len, read)) == sum(map(len, sentences))
    for number, inputs in enumerate(side_by_side):
        expected = tokenizer(
            read[2 * number : 2 * number + 2], is_split_into_words=True, padding=True, return_tensors="pt"
        )
        assert all(torch.equal(inputs[key], expected[key]) for key in expected)

    alone = [tokenizer(words, is_split_into_words=True, return_tensors="pt") for words in read]
    ids, characters = ([encoded[key][0] for encoded in alone] for key in ("input_ids", "character_ids"))
    count = int((stream["forward_labels"] != -100).sum())
    expected = {
        "forward_ids": torch.cat([rows[:-1] for rows in characters]),
        "forward_word_ids": torch.cat([row[:-1] for row in ids]),
        "forward_labels": torch.cat([row[1:] for row in ids]),
        "backward_ids": torch.cat([rows.flip(0)[:-1] for rows in characters]),
        "backward_word_ids": torch.cat([row.flip(0)[:-1] for row in ids]),
        "backward_labels": torch.cat([row.flip(0)[1:] for row in ids]),
    }
    assert stream.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(stream[key][0, :count], value), key
        assert stream[key].dtype == torch.int64


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_of_chosen_words(name):
    words = [*KNOWN, "seven77s", "eight888", "한국어한국어한국", unicodedata.normalize("NFD", "한국어"), "x" * 300]
    assert_ids_of_the_tokenizer(name, [words, ["a"], ["word", "<UNK>", "<oov>", "<S>s"], ["한국어"]])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(sentences=SENTENCES)
def test_ids_are_those_of_the_tokenizer(name, sentences):
    kept = [[word for word in words if cut(name, word) not in BOUNDARIES[name]] for words in sentences]
    assert_ids_of_the_tokenizer(name, [words for words in kept if words] or [["a"]])


def cut(name: str, word: str) -> str:
    return word[: WIDTH - 2] if name == "code points" else word


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_cannot_make_boundaries(name, tmp_path):
    """The one thing that is not as with the tokenizer: boundaries and padding in the text are words, unknown ones."""
    tokenizer = TOKENIZERS[name]
    words = sorted(BOUNDARIES[name])
    (tmp_path / "text.txt").write_text(" ".join(words))
    (inputs,) = batches_of(tmp_path / "text.txt", tokenizer, mode="sentences", rows=1)
    assert (inputs["input_ids"][0, 1:-1] == tokenizer.unk_token_id).all()
    assert (inputs["labels"][0, 1:-1] == tokenizer.unk_token_id).all()
    # Each word has as many characters as its name and two markers, and a boundary has one and two markers.
    padding = 261 if tokenizer.characters is None else tokenizer.characters.pad_word
    lengths = (inputs["character_ids"][0] != padding).sum(dim=1).tolist()
    assert lengths == [3, *(len(word) + 2 for word in words), 3]


def test_a_word_that_is_longer_than_what_is_read_is_never_found(tmp_path):
    """The vocabulary has "eight888", but a model of code points is asked for "eight88"."""
    (tmp_path / "text.txt").write_text("eight888 seven77 seven77s")
    ids = {}
    for name in ("bytes", "code points"):
        (inputs,) = batches_of(tmp_path / "text.txt", TOKENIZERS[name], mode="sentences", rows=1)
        ids[name] = TOKENIZERS[name].convert_ids_to_tokens(inputs["input_ids"][0, 1:-1])
    assert ids == {"bytes": ["eight888", "seven77", "<UNK>"], "code points": ["<oov>", "seven77", "seven77"]}


def test_word_ids_are_given_on_request(tmp_path):
    (tmp_path / "text.txt").write_text("a word\n" * 9)
    without = batches_of(tmp_path / "text.txt", TOKENIZERS["bytes"], rows=2, steps=4)
    with_ids = batches_of(tmp_path / "text.txt", TOKENIZERS["bytes"], rows=2, steps=4, word_ids=True)
    for inputs, more in zip(without, with_ids, strict=True):
        assert list(more) == [*inputs, "forward_word_ids", "backward_word_ids"]
        assert all(torch.equal(inputs[key], more[key]) for key in inputs)


def test_workers_get_the_same_spellings(tmp_path):
    """What is handed over to a worker that is not forked."""
    (tmp_path / "text.txt").write_text("한국어 seven77s <bos> <S>", encoding="utf-8")
    data = PretrainingData(tmp_path / "text.txt", TOKENIZERS["code points"], rows=1, steps=5, epochs=1, word_ids=True)
    data._batches.speller = pickle.loads(pickle.dumps(data._batches.speller))
    (found,) = (batch.inputs for batch in data)
    (expected,) = batches_of(tmp_path / "text.txt", TOKENIZERS["code points"], rows=1, steps=5, word_ids=True)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_words_that_can_be_predicted_have_the_usual_names():
    assert predicted_words(TOKENIZERS["bytes"]) == {"<S>", "</S>", "<UNK>", *KNOWN}
    assert predicted_words(TOKENIZERS["code points"]) == {"<S>", "</S>", "<UNK>", *KNOWN}


# --- Streams of words ------------------------------------------------------------------------------------------------

MODELS = [("bytes", "words"), ("bytes", "both"), ("code points", "characters"), ("code points", "both")]


@pytest.mark.parametrize(("name", "word_input"), [*MODELS, ("bytes", "characters")])
def test_a_stream_of_one_sentence_is_the_sentence(name, word_input, tmp_path):
    tokenizer = TOKENIZERS[name]
    model = model_of(tokenizer, word_input)
    (tmp_path / "text.txt").write_text("a Ça unknown 한국어 word seven77s", encoding="utf-8")
    (window,) = batches_of(tmp_path / "text.txt", tokenizer, rows=1, steps=7, word_ids=True)
    (batch,) = batches_of(tmp_path / "text.txt", tokenizer, mode="sentences", rows=1)
    streamed, whole = model.forward_stream(**window), model(**batch)
    assert_close(streamed.forward_loss, whole.forward_loss)
    assert_close(streamed.backward_loss, whole.backward_loss)
    assert abs(whole.forward_loss - whole.backward_loss) > 1e-3


@pytest.mark.parametrize(("name", "word_input"), MODELS)
def test_a_stream_in_windows_is_the_stream_in_one(name, word_input, tmp_path):
    tokenizer = TOKENIZERS[name]
    model = model_of(tokenizer, word_input)
    (tmp_path / "text.txt").write_text("a Ça unknown 한국어\nword seven77s a\nword\n" * 5, encoding="utf-8")
    windows = batches_of(tmp_path / "text.txt", tokenizer, rows=2, steps=4, word_ids=True)[:-1]
    state, losses = None, []
    for window in windows:
        outputs = model.forward_stream(**window, initial_state=state)
        state = outputs.state
        losses.append(torch.stack([outputs.forward_loss, outputs.backward_loss]))
    whole = model.forward_stream(**{key: torch.cat([one[key] for one in windows], dim=1) for key in windows[0]})
    assert_close(torch.stack(losses).mean(dim=0), torch.stack([whole.forward_loss, whole.backward_loss]))
    assert_close(state.hidden, whole.state.hidden)


def test_a_model_reads_what_it_reads_and_nothing_else(tmp_path):
    tokenizer = TOKENIZERS["bytes"]
    (tmp_path / "text.txt").write_text("a Ça word seven77", encoding="utf-8")
    (window,) = batches_of(tmp_path / "text.txt", tokenizer, rows=1, steps=5, word_ids=True)
    other_words = {key: torch.zeros_like(window[key]) for key in ("forward_word_ids", "backward_word_ids")}
    other_characters = {key: torch.ones_like(window[key]) for key in ("forward_ids", "backward_ids")}
    for word_input, ignored, read in (
        ("characters", other_words, other_characters),
        ("words", other_characters, other_words),
    ):
        model = model_of(tokenizer, word_input)
        loss = model.forward_stream(**window).loss
        assert torch.equal(model.forward_stream(**{**window, **ignored}).loss, loss)
        assert not torch.equal(model.forward_stream(**{**window, **read}).loss, loss)
    both = model_of(tokenizer, "both")
    losses = [both.forward_stream(**{**window, **other}).loss for other in ({}, other_words, other_characters)]
    assert len({loss.item() for loss in losses}) == 3


def test_the_table_learns_from_a_stream(tmp_path):
    (tmp_path / "text.txt").write_text("a word Ça a", encoding="utf-8")
    tokenizer = TOKENIZERS["bytes"]
    (window,) = batches_of(tmp_path / "text.txt", tokenizer, rows=1, steps=5, word_ids=True)
    model = model_of(tokenizer, "both").train()
    model.forward_stream(**window).loss.backward()
    gradient = model.elmo.character_encoder.word_embedding.weight.grad
    read = tokenizer.convert_tokens_to_ids(["<S>", "</S>", "a", "word", "Ça"])
    assert sorted(gradient.abs().sum(dim=1).nonzero().flatten().tolist()) == sorted(read)


def test_mistakes_are_told(tmp_path):
    tokenizer = TOKENIZERS["bytes"]
    (tmp_path / "text.txt").write_text("a word")
    (window,) = batches_of(tmp_path / "text.txt", tokenizer, rows=1, steps=3, word_ids=True)
    model = model_of(tokenizer, "both")
    for key in ("forward_word_ids", "backward_word_ids"):
        with pytest.raises(ValueError, match=r"word_input='both' words are looked up.*Give forward_word_ids and"):
            model.forward_stream(**{**window, key: None})
        with pytest.raises(ValueError, match=rf"{key} has the shape \(1, 2\), but the window is \(1, 3\)"):
            model.forward_stream(**{**window, key: window[key][:, :2]})
