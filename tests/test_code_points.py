"""The tokenizer of models that read code points; what a text has that a model does not know."""

import json
import multiprocessing
import pickle
import random
import unicodedata

import numpy as np
import pytest
import torch
from tiny import random_model, tiny_config
from transformers import AutoTokenizer

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.tokenization_elmo import Coverage, ElmoCharacters, word_tokenizer

# Characters that end lines or are white space somewhere are characters here.
CHARACTERS = ElmoCharacters(
    characters=(*"ab한국어é\u3000\r\n\u2028\x00\t\ue000", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"),
    begin_sentence=14,
    end_sentence=15,
    unknown=16,
    pad_word=17,
    begin_word=19,
    end_word=18,
)
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "한국어", "ab", "é", "aaaaa", "\ufffd", "\ue000", "\ue000b", "a"]


def make_tokenizer(words=WORDS, **overrides) -> ElmoTokenizer:
    options = {"word_splitting": "whitespace", "unicode_normalization": "NFC", "max_characters_per_token": 7}
    specials = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<oov>", "pad_token": "<pad>"}
    tokenizer = ElmoTokenizer(
        tokenizer_object=word_tokenizer(words, "<oov>", "<pad>"),
        segmenter="UDPipe",
        add_bos_token=True,
        add_eos_token=True,
        **{**options, **specials, **overrides},
    )
    tokenizer.set_characters(CHARACTERS)
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return make_tokenizer()


def test_rows_by_hand(tokenizer):
    encoded = tokenizer([["ab", "한국x", "", "<eos>", "aaaaab"]], is_split_into_words=True)
    assert encoded["character_ids"][0] == [
        [19, 14, 18, 17, 17, 17, 17],  # <bos>
        [19, 1, 2, 18, 17, 17, 17],
        [19, 3, 4, 16, 18, 17, 17],  # the last character is unknown
        [19, 18, 17, 17, 17, 17, 17],
        [19, 15, 18, 17, 17, 17, 17],
        [19, 1, 1, 1, 1, 1, 18],  # cut
        [19, 15, 18, 17, 17, 17, 17],  # <eos>
    ]
    assert encoded["input_ids"] == [[1, 5, 0, 0, 2, 7, 2]]  # the vocabulary is asked for the cut word


def test_decomposed_text_is_composed_and_offsets_address_it(tokenizer):
    text = f"a {unicodedata.normalize('NFD', '한국어 é')} ab"
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert encoded["input_ids"] == [1, 11, 4, 6, 5, 2]
    assert encoded["input_ids"] == tokenizer(unicodedata.normalize("NFC", text))["input_ids"]
    assert tokenizer.tokenize(text) == ["a", "한국어", "é", "ab"]
    pieces = [text[start:end] for start, end in encoded["offset_mapping"][1:-1]]
    assert pieces == text.split(" ")
    assert encoded["character_ids"][2][:5] == [19, 3, 4, 5, 18]


def test_given_words_are_taken_as_they_are(tokenizer):
    decomposed = unicodedata.normalize("NFD", "é")
    assert tokenizer([decomposed], is_split_into_words=True)["input_ids"] == [1, 0, 2]


def test_offsets_of_cut_words_are_of_the_whole_word(tokenizer):
    encoded = tokenizer("b aaaaaaaa ab", return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (2, 10), (11, 13), (0, 0)]
    assert encoded["input_ids"] == [1, 0, 7, 5, 2]
    batch = tokenizer(["aaaaaaaa"], is_split_into_words=True, return_offsets_mapping=True, return_tensors="pt")
    assert batch["offset_mapping"].tolist()[0][1] == [0, 8]
    assert batch["input_ids"].tolist() == [[1, 7, 2]]


def test_a_vocabulary_with_the_prefix_in_it_has_no_pieces():
    """`a` and `\\ue000b` are words; `ab` of them would be pieces if the prefix were U+E000 only."""
    other = make_tokenizer([*WORDS[:5], "a", "\ue000b", "\ue000\ue000b"])
    assert other(["ab", "a", "\ue000b", "abb"], is_split_into_words=True)["input_ids"] == [1, 0, 5, 6, 0, 2]


def test_padding_batches_and_boundaries(tokenizer):
    batch = tokenizer(["ab", "a 한국어 b"], padding=True, return_tensors="pt")
    assert batch["input_ids"].tolist() == [[1, 5, 2, 3, 3], [1, 11, 4, 0, 2]]
    assert (batch["character_ids"][0, 3:] == 0).all()
    padded = tokenizer.pad([tokenizer("ab"), tokenizer("a 한국어 b")], return_tensors="pt")
    assert all(torch.equal(padded[name], batch[name]) for name in batch)
    assert tokenizer.decode_characters(batch["character_ids"]) == [
        ["<bos>", "ab", "<eos>"],
        ["<bos>", "a", "한국어", "b", "<eos>"],
    ]
    assert tokenizer.decode_characters(batch["character_ids"][1], skip_special_tokens=True) == ["a", "한국어", "b"]
    assert tokenizer.decode_characters(tokenizer("xa")["character_ids"]) == ["<bos>", "\ufffda", "<eos>"]


def test_pairs_and_word_vectors():
    tokenizer = make_tokenizer()
    tokenizer.set_word_vectors(["ab"])
    encoded = tokenizer("ab a", "b")
    assert encoded["word_vector_ids"] == [0, 2, 1, 0, 0, 1, 0]
    assert tokenizer.decode_characters(encoded["character_ids"]) == [
        "<bos>",
        "ab",
        "a",
        "<eos>",
        "<bos>",
        "b",
        "<eos>",
    ]


def test_saved_and_loaded(tokenizer, tmp_path):
    files = tokenizer.save_pretrained(tmp_path)
    assert any(file.endswith("characters.json") for file in files)
    tiny_config().save_pretrained(tmp_path)
    text = ["한국어 \ue000 ab aaaaaaaa", unicodedata.normalize("NFD", "é 국")]
    for loaded in (ElmoTokenizer.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert loaded.characters == CHARACTERS
        assert (loaded.segmenter, loaded.unicode_normalization) == ("UDPipe", "NFC")
        assert loaded(text).data == tokenizer(text).data
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again(text).data == tokenizer(text).data


def custom_code_ids(folder, text):
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text).data


@pytest.mark.slow
def test_custom_code_finds_the_characters(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    tiny_config().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(custom_code_ids, (tmp_path / "model", "한국어 x")) == tokenizer("한국어 x").data


def test_tokenizers_without_these_settings_are_saved_as_before(tmp_path):
    ElmoTokenizer().save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert not {"segmenter", "unicode_normalization", "characters_file"} & set(settings)
    assert not (tmp_path / "characters.json").exists()


def test_random_words_have_rows_of_the_right_kind(tokenizer):
    generator = random.Random(0)
    ranges = [(0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0xD800, 0xDFFF), (0x10000, 0x10FFFF), (0xAC00, 0xD7A3)]
    words = [
        "".join(
            chr(generator.randint(*generator.choice(ranges))) for _ in range(generator.choice([0, 1, 3, 5, 6, 40]))
        )
        for _ in range(5_000)
    ]
    encoded = tokenizer(words, is_split_into_words=True, add_special_tokens=False)
    rows = np.array(encoded["character_ids"])
    assert rows.shape == (5_000, 7)
    assert rows.min() >= 1
    assert rows.max() <= len(CHARACTERS.characters)
    assert {len(row.nonzero()[0]) for row in rows == 18} == {1}  # one end of word each
    for word, row in zip(words[:500], rows.tolist(), strict=False):
        assert tokenizer([word], is_split_into_words=True, add_special_tokens=False)["character_ids"] == [row]
    for text in words:
        tokenizer(text)


def test_the_model_sets_these_boundaries(tokenizer):
    """Character ids alone: with the markers of the config instead of those of bytes."""
    config = tiny_config(char_vocab_size=20, character_markers=CHARACTERS.markers, max_characters_per_token=7)
    model: ElmoModel = random_model(config)
    batch = tokenizer(["ab 한국어", "a"], padding=True, return_tensors="pt")
    bare = tokenizer(["ab 한국어", "a"], padding=True, return_tensors="pt", add_special_tokens=False)
    expected = model(**batch).last_hidden_state[:, 1:-1]
    found = model(bare["character_ids"]).last_hidden_state
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1, :1], expected[1, :1])
    with_boundaries = model(batch["character_ids"]).last_hidden_state
    assert torch.equal(with_boundaries, model(**batch).last_hidden_state)


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "is not a list of characters"),
        ("{", "is not a list of characters"),
        ("{}", "is not a list of characters"),
        ('{"characters": "ab"}', "must be a list of strings"),
        ('{"characters": [1]}', "must be a list of strings"),
        ('{"characters": ["a"], "unknown": 1}', "missing 5 required"),
        ("[" * 10**5, "is not a list of characters"),
    ],
)
def test_broken_files_of_characters_are_refused(tmp_path, content, says):
    path = tmp_path / "characters.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"characters\.json .*{says}"):
        ElmoTokenizer(characters_file=path)


@pytest.mark.parametrize("value", [0, 20, "1", True, None])
def test_impossible_markers_are_refused(tmp_path, value):
    path = tmp_path / "characters.json"
    CHARACTERS.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"end_word": value}))
    with pytest.raises(ValueError, match=r"end_word=.* is not possible: it must be from 1 to 19"):
        ElmoCharacters.load(path)


def test_repeated_characters_and_other_normal_forms_are_refused():
    with pytest.raises(ValueError, match="more than once"):
        ElmoCharacters(("a", "a"), 1, 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="unicode_normalization='NFKC' is not possible"):
        ElmoTokenizer(unicode_normalization="NFKC")


# --- What the model does not know ------------------------------------------------------------------------------------


def test_coverage_of_code_points(tokenizer):
    found = tokenizer.coverage(["ab aaaaaa 한국어", "xyz 말"])
    assert found == Coverage(words=5, cut_words=1, characters=15, unknown_characters=4, unknown_words=2)
    assert found.unknown_word_share == 0.4
    assert found.unknown_character_share == pytest.approx(4 / 15)
    assert tokenizer.coverage([["ab", "xyz"]], is_split_into_words=True).unknown_words == 1
    assert tokenizer.coverage(["ab"]) + tokenizer.coverage(["aaaaaa 한국어", "xyz 말"]) == found


def test_coverage_of_bytes(tmp_path):
    """Bytes are all known; what scripts a model has seen is told by its vocabulary."""
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\nriver\n", encoding="utf-8")
    found = ElmoTokenizer(path).coverage(["the river", "한국", "가" * 17])
    assert found == Coverage(words=4, cut_words=1, characters=27, unknown_characters=19, unknown_words=2)
    bare = ElmoTokenizer().coverage(["the river", ""])
    assert bare == Coverage(words=2, cut_words=0, characters=8, unknown_characters=None, unknown_words=None)
    assert (bare.unknown_word_share, bare.unknown_character_share) == (None, None)
    assert (bare + bare).words == 4
    assert ElmoTokenizer(path).coverage([]).unknown_word_share == 0
