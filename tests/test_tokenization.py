"""Text to word ids and characters, the way transformers expects of a tokenizer."""

import itertools
import json
import multiprocessing
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_elmo import ElmoTokenizer, batch_to_ids
from hf_elmo.tokenization_elmo import character_row, spell

BOS, EOS, UNK, PAD = 0, 1, 2, 3
TEXTS = [
    "It's a river bank, isn't it?",
    "",
    "Mr. O'Neill won't pay $1,000.50 in the U.S. today.",
    "“Ça va?” — 조용한 강둑 🙂👍🏽",
    "<S> <PAD> </S> <UNK>",
    "x" * 1000,
]


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer()


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\n,\nbank\n.\nriver\n", encoding="utf-8")
    return path


def row(word: str) -> list[int]:
    return np.frombuffer(character_row(word), dtype=np.uint16).tolist()


# --- Characters ------------------------------------------------------------------------------------------------------


def test_rows_by_hand():
    assert row("ab") == [259, 98, 99, 260] + [261] * 46
    assert row("") == [259, 260] + [261] * 48
    assert row("<S>") == [259, 257, 260] + [261] * 47
    assert row("</S>") == [259, 258, 260] + [261] * 47
    assert row("é") == [259, 0xC3 + 1, 0xA9 + 1, 260] + [261] * 46
    assert row("a" * 48) == [259] + [98] * 48 + [260]
    assert row("b" * 49) == [259] + [99] * 48 + [260]
    assert row("a" + "é" * 24) == [259, 98] + [0xC4, 0xAA] * 23 + [0xC4, 260]  # cut within a character
    assert row("\ud800") == row("")


def test_narrower_rows():
    assert np.frombuffer(character_row("abcd", 5), dtype=np.uint16).tolist() == [259, 98, 99, 100, 260]
    encoded = ElmoTokenizer(max_characters_per_token=5)("abcd", return_tensors="pt")
    assert encoded["character_ids"].shape == (1, 3, 5)
    assert encoded["character_ids"][0, 1].tolist() == [259, 98, 99, 100, 260]


def test_spell_has_zeros_for_padding():
    assert spell(["a", None]).tolist() == [row("a"), [0] * 50]


def test_batch_to_ids_refuses_strings():
    with pytest.raises(ValueError, match=r"is a list of words, but 'Hello world' is a str"):
        batch_to_ids(["Hello world"])
    with pytest.raises(ValueError, match=r"A word must be a string, but 3 is a int"):
        batch_to_ids([["Hello", 3]])


# --- Encoding --------------------------------------------------------------------------------------------------------


def test_words_ids_characters_and_offsets(tokenizer):
    text = "It's a “river” bank."
    encoded = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    words = ["<S>", "It", "'s", "a", '"', "river", '"', "bank", ".", "</S>"]
    assert encoded["input_ids"] == [BOS, *[UNK] * 8, EOS]
    assert encoded["character_ids"] == [row(word) for word in words]
    assert encoded["attention_mask"] == [1] * 10
    assert encoded["special_tokens_mask"] == [1, *[0] * 8, 1]
    assert [text[start:end] for start, end in encoded["offset_mapping"]] == [
        *["", "It", "'s", "a", "“", "river", "”", "bank", ".", ""]
    ]
    assert encoded.word_ids() == [None, *range(8), None]
    assert encoded.char_to_token(text.index("river")) == 5
    assert tokenizer.tokenize(text) == words[1:-1]


def test_padding_on_either_side(tokenizer):
    for side in ("right", "left"):
        encoded = tokenizer(["a b c", "d"], padding=True, padding_side=side, return_tensors="pt")
        short = [BOS, UNK, EOS]
        rows = [row("<S>"), row("d"), row("</S>")]
        zeros = [[0] * 50] * 2
        if side == "right":
            expected, characters, mask = [*short, PAD, PAD], [*rows, *zeros], [1, 1, 1, 0, 0]
        else:
            expected, characters, mask = [PAD, PAD, *short], [*zeros, *rows], [0, 0, 1, 1, 1]
        assert encoded["input_ids"][1].tolist() == expected
        assert encoded["character_ids"][1].tolist() == characters
        assert encoded["attention_mask"][1].tolist() == mask
        assert {value.dtype for value in encoded.values()} == {torch.int64}


@pytest.mark.parametrize("side", ["right", "left"])
def test_pad_is_the_same_as_padding_at_once(tokenizer, side):
    expected = tokenizer(TEXTS, padding="max_length", max_length=40, padding_side=side, return_tensors="pt")
    separate = [tokenizer(text) for text in TEXTS]
    found = tokenizer.pad(separate, padding="max_length", max_length=40, padding_side=side, return_tensors="pt")
    for name in tokenizer.model_input_names:
        assert torch.equal(found[name], expected[name])
    as_arrays = [{name: np.array(value) for name, value in one.items()} for one in separate]
    found = tokenizer.pad(as_arrays, padding="max_length", max_length=40, padding_side=side)
    assert np.array_equal(found["character_ids"], expected["character_ids"].numpy())


def test_truncation_and_stride(tokenizer):
    encoded = tokenizer("a b c d e f g", truncation=True, max_length=5)
    assert tokenizer.decode_characters(encoded["character_ids"]) == ["<S>", "a", "b", "c", "</S>"]
    encoded = tokenizer(
        ["a b c d e f g", "x"], truncation=True, max_length=5, stride=1, return_overflowing_tokens=True, padding=True
    )
    assert encoded["overflow_to_sample_mapping"] == [0, 0, 0, 1]
    assert [tokenizer.decode_characters(rows) for rows in encoded["character_ids"]] == [
        ["<S>", "a", "b", "c", "</S>"],
        ["<S>", "c", "d", "e", "</S>"],
        ["<S>", "e", "f", "g", "</S>"],
        ["<S>", "x", "</S>"],
    ]


def test_pairs(tokenizer):
    encoded = tokenizer("a b", "c", return_token_type_ids=True)
    assert tokenizer.decode_characters(encoded["character_ids"]) == ["<S>", "a", "b", "</S>", "<S>", "c", "</S>"]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]
    assert encoded.sequence_ids() == [None, 0, 0, None, None, 1, None]
    batch = tokenizer(["a b", "d"], ["c", "e f"], padding=True)
    assert tokenizer.decode_characters(batch["character_ids"][1]) == ["<S>", "d", "</S>", "<S>", "e", "f", "</S>"]
    assert tokenizer([("a b", "c"), ("d", "e f")], padding=True)["character_ids"] == batch["character_ids"]
    split = tokenizer([["a", "b"], ["d"]], [["c"], ["e", "f"]], is_split_into_words=True, padding=True)
    assert split["character_ids"] == batch["character_ids"]
    assert tokenizer.num_special_tokens_to_add(pair=True) == 4


def test_given_words_stay_whole(tokenizer):
    words = ["U.S.", "New York", "won't", "", "\ud800", "<S>", "“", "\t", "x" * 100, "\x00"]
    encoded = tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)
    assert encoded.word_ids() == [None, *range(len(words)), None]
    assert encoded["character_ids"] == [row("<S>"), *map(row, words), row("</S>")]
    assert encoded["offset_mapping"] == [(0, 0), *[(0, len(word)) for word in words], (0, 0)]
    assert tokenizer.tokenize(words, is_split_into_words=True) == words


def test_given_words_are_the_words_of_the_text(tokenizer):
    for text in TEXTS:
        words = tokenizer.tokenize(text)
        assert tokenizer(words, is_split_into_words=True)["character_ids"] == tokenizer(text)["character_ids"]


def test_a_batch_is_its_sentences_one_by_one(tokenizer):
    batch = tokenizer(TEXTS)
    for number, text in enumerate(TEXTS):
        single = tokenizer(text)
        for name in tokenizer.model_input_names:
            assert batch[name][number] == single[name]


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_tensors_of_nothing(tokenizer, kind):
    assert tokenizer("", return_tensors=kind)["character_ids"].shape == (1, 2, 50)
    bare = tokenizer(["", ""], add_special_tokens=False, return_tensors=kind)
    assert bare["input_ids"].shape == (2, 0)
    assert bare["character_ids"].shape == (2, 0, 50)
    assert tokenizer([], return_tensors=kind)["character_ids"].shape == (0, 0, 50)
    assert tokenizer([[], ["a"]], is_split_into_words=True, padding=True, return_tensors=kind)[
        "character_ids"
    ].shape == (2, 3, 50)
    assert tokenizer([], is_split_into_words=True, return_tensors=kind)["input_ids"].shape == (1, 2)


def test_sentences_of_different_lengths_need_padding(tokenizer):
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer(["a b", "c"], return_tensors="pt")


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("Hello world",), {"is_split_into_words": True}, r"list of words, but 'Hello world' is a str"),
        ((["Hello", 3],), {"is_split_into_words": True}, "A word must be a string, but 3 is a int"),
        ((["Hello", None],), {}, "A text must be a string, but None is a NoneType"),
        (([["Hello"]],), {}, "set is_split_into_words=True"),
        ((["a", "b"], ["c"]), {}, "batch of 2 texts needs as many second texts, but text_pair is 1 texts"),
        ((["a", "b"], "c"), {}, "text_pair is a single string"),
        (([("a", "b"), "c"],), {}, "Some texts of the batch have a second text"),
    ],
)
def test_what_is_no_text_is_refused(tokenizer, arguments, options, says):
    with pytest.raises(ValueError, match=says):
        tokenizer(*arguments, **options)


def test_special_tokens_in_text_are_text_unless_asked_otherwise(tokenizer):
    assert tokenizer.tokenize("a <S> b") == ["a", "<", "S", ">", "b"]
    asked = tokenizer("a <S> b", split_special_tokens=False)
    assert asked["input_ids"] == [BOS, UNK, BOS, UNK, EOS]
    assert asked["character_ids"][2] == row("<S>")
    assert tokenizer.tokenize("a <S> b") == ["a", "<", "S", ">", "b"]


def test_without_boundaries(tokenizer):
    bare = tokenizer("a b", add_special_tokens=False)
    assert bare["character_ids"] == [row("a"), row("b")]
    only_end = ElmoTokenizer(add_bos_token=False)
    assert only_end("a")["character_ids"] == [row("a"), row("</S>")]


def test_other_names_of_the_boundaries_have_the_same_characters():
    tokenizer = ElmoTokenizer(bos_token="[BOS]", eos_token="[EOS]", pad_token="[EOS]")
    encoded = tokenizer(["a", "b c"], padding=True)
    assert encoded["character_ids"][0] == [row("<S>"), row("a"), row("</S>"), [0] * 50]


# --- Vocabulary ------------------------------------------------------------------------------------------------------


def test_word_ids_are_the_lines_of_the_vocabulary(vocabulary):
    tokenizer = ElmoTokenizer(vocabulary)
    assert len(tokenizer) == 9
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer.pad_token_id == 8
    encoded = tokenizer(["the river, unknown.", "bank"], padding=True)
    assert encoded["input_ids"] == [[0, 3, 7, 4, 2, 6, 1], [0, 5, 1, 8, 8, 8, 8]]
    assert tokenizer.decode(encoded["input_ids"][0]) == "<S> the river , <UNK> . </S>"
    assert tokenizer.decode(encoded["input_ids"][0], skip_special_tokens=True) == "the river , ."
    assert tokenizer.convert_tokens_to_ids(["bank", "banks"]) == [5, 2]
    assert tokenizer.get_special_tokens_mask(encoded["input_ids"][0], already_has_special_tokens=True)[0] == 1


def test_no_word_of_the_vocabulary_is_found_inside_another(vocabulary):
    tokenizer = ElmoTokenizer(vocabulary, word_splitting="whitespace")
    assert tokenizer("thebank the,river riverbank bank,", add_special_tokens=False)["input_ids"] == [2] * 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<S>\n</S>\nthe\n", "words.txt: <UNK> must be among the words"),
        ("<S>\n</S>\n<UNK>\nthe\nthe\n", "'the' is on line 4 and again on line 5"),
        ("<S>\n</S>\n<UNK>\n\nthe\n", "line 4 is ''"),
        ("<S>\n</S>\n<UNK>\nthe \n", "line 4 is 'the '"),
    ],
)
def test_broken_vocabularies_are_refused(vocabulary, content, says):
    vocabulary.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        ElmoTokenizer(vocabulary)


def test_vocabulary_as_bilm_tf_reads_it(vocabulary):
    vocabulary.write_text("<S>\r\n</S>\r\n<UNK>\r\n!!!MAXTERMID\r\nthe", encoding="utf-8")
    assert ElmoTokenizer(vocabulary).convert_tokens_to_ids("the") == 3


# --- Saving, sending, sharing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["moses", "whitespace"])
@pytest.mark.parametrize("boundary", [True, False])
def test_saved_and_loaded(tmp_path, vocabulary, scheme, boundary):
    saved = ElmoTokenizer(
        vocabulary, word_splitting=scheme, add_bos_token=boundary, max_characters_per_token=20, padding_side="left"
    )
    saved.save_pretrained(tmp_path / "saved")
    for load in (ElmoTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        loaded = load(tmp_path / "saved")
        assert type(loaded) is ElmoTokenizer
        assert loaded(TEXTS, padding=True).data == saved(TEXTS, padding=True).data
        assert (loaded.add_bos_token, loaded.add_eos_token) == (boundary, True)
        assert loaded.backend_tokenizer.to_str() == saved.backend_tokenizer.to_str()
    settings_file = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert settings_file["word_splitting"] == scheme
    assert "vocab_file" not in settings_file


def test_a_setting_can_be_changed_on_loading(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path)
    assert ElmoTokenizer.from_pretrained(tmp_path, word_splitting="whitespace").tokenize("It's.") == ["It's."]
    assert ElmoTokenizer.from_pretrained(tmp_path, add_eos_token=False, add_bos_token=True)("a").input_ids == [
        BOS,
        UNK,
    ]


def test_folder_with_a_vocabulary_only(tmp_path, vocabulary):
    folder = tmp_path / "folder"
    folder.mkdir()
    vocabulary.rename(folder / "vocab.txt")
    assert ElmoTokenizer.from_pretrained(folder)("the bank")["input_ids"] == [0, 3, 5, 1]


def test_unknown_schemes_are_refused():
    with pytest.raises(ValueError, match=r"'spacy'.*'moses'.*'whitespace'"):
        ElmoTokenizer(word_splitting="spacy")
    with pytest.raises(ValueError, match="max_characters_per_token=2 leaves no character"):
        ElmoTokenizer(max_characters_per_token=2)


def test_added_tokens_are_found_in_text(tmp_path):
    tokenizer = ElmoTokenizer()
    tokenizer.add_tokens(["@user@"])
    assert tokenizer("hello @user@ !")["input_ids"] == [BOS, UNK, 4, UNK, EOS]
    tokenizer.save_pretrained(tmp_path)
    assert ElmoTokenizer.from_pretrained(tmp_path)("hello @user@ !")["input_ids"] == [BOS, UNK, 4, UNK, EOS]


def test_pickled(tokenizer):
    restored = pickle.loads(pickle.dumps(tokenizer))
    assert restored(TEXTS, padding=True).data == tokenizer(TEXTS, padding=True).data


def encode_in_worker(tokenizer: ElmoTokenizer) -> dict:
    return dict(tokenizer(TEXTS, padding=True).data)


def test_in_a_spawned_process(tokenizer):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(encode_in_worker, (tokenizer,)) == encode_in_worker(tokenizer)


def test_threads_with_different_settings_do_not_disturb_each_other(tokenizer):
    """The Rust backend keeps padding and truncation; a shared one mixes them up between threads."""
    calls = [
        {"padding": "max_length", "max_length": length, "truncation": True, "padding_side": side}
        for length in (4, 7, 12, 25)
        for side in ("left", "right")
    ]
    expected = [tokenizer(TEXTS, **options).data for options in calls]

    def many_times(number: int) -> bool:
        return all(tokenizer(TEXTS, **calls[number]).data == expected[number] for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(many_times, range(len(calls))))


def test_stock_collators(tokenizer):
    features = [tokenizer(text) for text in TEXTS]
    batch = DataCollatorWithPadding(tokenizer)(features)
    expected = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert all(torch.equal(batch[name], expected[name]) for name in tokenizer.model_input_names)
    labelled = [{**tokenizer(text), "labels": [0] * len(tokenizer(text)["input_ids"])} for text in TEXTS]
    batch = DataCollatorForTokenClassification(tokenizer)(labelled)
    assert torch.equal(batch["character_ids"], expected["character_ids"])
    assert batch["labels"].shape == expected["input_ids"].shape


# --- Ids to text -----------------------------------------------------------------------------------------------------


def test_words_are_read_back_from_their_characters(tokenizer):
    batch = tokenizer(TEXTS[:4], padding=True, return_tensors="pt")
    words = tokenizer.decode_characters(batch["character_ids"], skip_special_tokens=True)
    assert words == [tokenizer.tokenize(text) for text in TEXTS[:4]]
    assert tokenizer.decode_characters(batch["character_ids"])[1] == ["<S>", "</S>"]
    cut = tokenizer(["a" + "é" * 30], is_split_into_words=True)["character_ids"]
    assert tokenizer.decode_characters(cut)[1] == "a" + "é" * 23 + "\ufffd"
    with pytest.raises(ValueError, match="1 dimensions"):
        tokenizer.decode_characters([259, 98, 260])


# --- Any text at all -------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(), max_size=80))
def test_any_text(text):
    tokenizer = ElmoTokenizer()
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="np")
    characters, offsets = encoded["character_ids"][0], encoded["offset_mapping"][0].tolist()
    assert characters.shape == (len(offsets), 50)
    assert 1 <= characters.min() <= characters.max() <= 261
    words = tokenizer.tokenize(text)
    assert len(words) == len(offsets) - 2
    assert all(0 <= start < end <= len(text) for start, end in offsets[1:-1])
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(offsets[1:-1]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=60), max_size=12))
def test_any_words(words):
    encoded = ElmoTokenizer()(words, is_split_into_words=True)
    assert encoded["character_ids"] == [row("<S>"), *map(row, words), row("</S>")]
    assert encoded.word_ids() == [None, *range(len(words)), None]


@pytest.mark.parametrize("word", ["a", "é", "1", ".", "'", "\u0301", "🙂", "a,"])
def test_time_grows_with_the_text(word, vocabulary):
    """One word, or one run of signs, of up to 100,000 characters."""
    tokenizer = ElmoTokenizer(vocabulary)

    def seconds(length: int) -> float:
        start = time.process_time()
        tokenizer(word * length)
        return time.process_time() - start

    seconds(1000)
    short, long = min(seconds(10_000) for _ in range(3)), min(seconds(100_000) for _ in range(3))
    assert long < 40 * short + 0.1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_after_a_fork(tokenizer):
    """datasets.map forks; the tokenizer must work on both sides."""
    expected = encode_in_worker(tokenizer)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(encode_in_worker, [tokenizer] * 4) == [expected] * 4
    assert encode_in_worker(tokenizer) == expected


@pytest.mark.parametrize("word", ["", "\ud800"])
def test_words_that_rust_cannot_take_are_unknown(tmp_path, word):
    """Also if the vocabulary has the character that stands in for them."""
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\n\ufffd\na\n", encoding="utf-8")
    tokenizer = ElmoTokenizer(path)
    assert tokenizer([[word, "\ufffd", "a"]], is_split_into_words=True)["input_ids"] == [[0, 2, 3, 4, 1]]
    assert tokenizer("\ufffd a")["input_ids"] == [0, 3, 4, 1]
