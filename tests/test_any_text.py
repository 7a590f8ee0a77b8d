"""Whatever a text holds: strange words by hand, every code point, random texts, and as much of it as may come."""

import random
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import original_character_mapper
from promises import trials

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import character_row

BEGIN, END, PAD = 259, 260, 261
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", ",", ".", "'s", "bank", "é", "한국", "🙂", "\ufffd", "a", "b", '"']


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> ElmoTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    path.write_text("".join(f"{word}\n" for word in VOCABULARY), encoding="utf-8")
    return ElmoTokenizer(path)


# --- Words by hand ---------------------------------------------------------------------------------------------------

GOLDEN = {  # the bytes of each word, as they stand between the marks of its begin and end
    "": b"",
    " ": b" ",
    "\x00": b"\x00",
    "\t": b"\t",
    "\n": b"\n",
    "\r\n": b"\r\n",
    "\x7f": b"\x7f",
    "\x85": b"\xc2\x85",
    "\xa0": b"\xc2\xa0",
    "\ufeff": b"\xef\xbb\xbf",
    "\u200b": b"\xe2\x80\x8b",
    "\u200d": b"\xe2\x80\x8d",
    "\u2028": b"\xe2\x80\xa8",
    "\u202e": b"\xe2\x80\xae",
    "\u3000": b"\xe3\x80\x80",
    "\ue000": b"\xee\x80\x80",
    "\ufffd": b"\xef\xbf\xbd",
    "\ufffe": b"\xef\xbf\xbe",
    "\U0010ffff": b"\xf4\x8f\xbf\xbf",
    chr(0xD800): b"",  # lone surrogates have no bytes
    chr(0xDFFF): b"",
    "\ud83d\ude42": b"",
    "a\ud800b": b"ab",
    "é": b"\xc3\xa9",
    "e\u0301": b"e\xcc\x81",
    "z\u0300\u0301\u0302": b"z\xcc\x80\xcc\x81\xcc\x82",
    "İ": b"\xc4\xb0",
    "ﷺ": b"\xef\xb7\xba",
    "שלום": b"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
    "مرحبا": b"\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7",
    "한": b"\xed\x95\x9c",
    "ก็": b"\xe0\xb8\x81\xe0\xb9\x87",
    "न्ते": b"\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87",
    "🙂": b"\xf0\x9f\x99\x82",
    "👍🏽": b"\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd",
    "👩\u200d👧": b"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
    "🇺🇸": b"\xf0\x9f\x87\xba\xf0\x9f\x87\xb8",
    "<s>": b"<s>",
    "<UNK>": b"<UNK>",
    "<PAD>": b"<PAD>",
    "<S> ": b"<S> ",
    "<S></S>": b"<S></S>",
    "a" * 48: b"a" * 48,
    "a" * 49: b"a" * 48,
    "é" * 25: b"\xc3\xa9" * 24,
    "a" + "é" * 24: b"a" + b"\xc3\xa9" * 23 + b"\xc3",  # cut within a character
    "a" * 47 + "🙂": b"a" * 47 + b"\xf0",
    "x" * 1_000_000: b"x" * 48,
    "\u0301" * 100_000: b"\xcc\x81" * 24,
}
BOUNDARIES = {"<S>": 257, "</S>": 258}  # these are one character


def golden_row(word: str) -> list[int]:
    inner = [BOUNDARIES[word]] if word in BOUNDARIES else [byte + 1 for byte in GOLDEN[word]]
    return [BEGIN, *inner, END] + [PAD] * (48 - len(inner))


@pytest.mark.promise("T2", n=len(GOLDEN) + len(BOUNDARIES))
def test_strange_words_have_the_rows_of_the_original(tokenizer):
    words = [*GOLDEN, *BOUNDARIES]
    rows = [golden_row(word) for word in words]
    assert tokenizer(words, is_split_into_words=True, add_special_tokens=False)["character_ids"] == rows
    original = original_character_mapper()()
    for word, row in zip(words, rows, strict=True):
        assert tokenizer([word], is_split_into_words=True)["character_ids"][1:-1] == [row]
        assert original.convert_word_to_char_ids(word) == row


TEXTS = {  # the words of raw text
    "": [],
    " \t\r\n": [],
    "\x00": [],
    "a\x00b": ["a", "b"],
    "\ufeff": ["\ufeff"],
    "\u3000": [],
    "\ud800": ["\ud800"],
    "a \udfff b": ["a", "\udfff", "b"],
    "\u0301" * 100_000: ["\u0301" * 100_000],
    "x" * 1_000_000: ["x" * 1_000_000],
    "<S>": ["<", "S", ">"],
    "🙂": ["🙂"],
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:20])
def test_strange_texts_are_cut_into_words(tokenizer, text):
    assert tokenizer.tokenize(text) == TEXTS[text]
    assert len(tokenizer(text)["input_ids"]) == len(TEXTS[text]) + 2


# --- Every code point, and random ones -------------------------------------------------------------------------------

CODE_POINTS = 0x110000
RANDOM_TEXTS = trials(20_000, 1_000_000)
CODE_POINTS_PER_CALL, TEXTS_PER_CALL = 2**16, 500


def rows_of_code_points(codes: np.ndarray) -> np.ndarray:
    """The characters (codes, 50) of words of one code point: UTF-8, written down bit by bit."""
    lengths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    lengths[(codes >= 0xD800) & (codes < 0xE000)] = 0
    rows = np.full((len(codes), 50), PAD)
    rows[:, 0] = BEGIN
    for length, first in ((1, 0), (2, 0xC0), (3, 0xE0), (4, 0xF0)):
        chosen = np.flatnonzero(lengths == length)
        for place in range(length):
            bits = codes[chosen] >> 6 * (length - 1 - place)
            rows[chosen, 1 + place] = 1 + (bits & 0x3F | 0x80 if place else bits | first)
    rows[np.arange(len(codes)), 1 + lengths] = END
    return rows


@pytest.mark.slow
@pytest.mark.promise("T1", n=CODE_POINTS)
def test_every_code_point_is_a_word():
    tokenizer = ElmoTokenizer()
    for start in range(0, CODE_POINTS, CODE_POINTS_PER_CALL):
        codes = np.arange(start, start + CODE_POINTS_PER_CALL)
        words = list(map(chr, codes))
        encoded = tokenizer(words, is_split_into_words=True, add_special_tokens=False, return_tensors="np")
        assert np.array_equal(encoded["character_ids"][0], rows_of_code_points(codes))
        assert (encoded["input_ids"] == tokenizer.unk_token_id).all()


POOLS = [
    lambda draw: chr(draw.randrange(CODE_POINTS)),
    lambda draw: chr(draw.randrange(0x20, 0x7F)),
    lambda draw: chr(draw.randrange(0xD800, 0xE000)),  # surrogates
    lambda draw: draw.choice("\x00\x01\x1b\x1f\x7f\x80\x85\x9f\t\n\r\x0b\x0c\u2028"),
    lambda draw: draw.choice("אבשلامر\u200e\u200f\u202a\u202b\u202e\u2066\u2069\u061c"),  # right to left
    lambda draw: draw.choice("\u200b\u200c\u200d\u2060\ufe0e\ufe0f\ufeff\u00ad👩🏽❤"),  # joiners
    lambda draw: draw.choice("e\u0300\u0301\u0327\u034f\u0489\u064b\u0e47\u093f\u094d\u20e3"),  # combining
]


def random_text(draw: random.Random) -> str:
    """Up to 40 code points of some of the kinds."""
    pools = draw.choices(POOLS, k=2)
    return "".join([draw.choice(pools)(draw) for _ in range(draw.randrange(40))])


@pytest.mark.slow
@pytest.mark.promise("T1", n=RANDOM_TEXTS)
def test_random_texts():
    draw, tokenizer = random.Random(0), ElmoTokenizer()
    for _ in range(0, RANDOM_TEXTS, TEXTS_PER_CALL):
        texts = [random_text(draw) for _ in range(TEXTS_PER_CALL)]
        encoded = tokenizer(texts, padding=True, return_tensors="np")
        characters, attended = encoded["character_ids"], encoded["attention_mask"].astype(bool)
        assert characters.shape == (*encoded["input_ids"].shape, 50)
        words = characters[attended]
        assert 1 <= words.min() <= words.max() <= PAD
        assert (words[:, 0] == BEGIN).all()
        assert ((words == END).sum(axis=1) == 1).all()
        assert not characters[~attended].any()


# --- One way or another ----------------------------------------------------------------------------------------------

TEXTS_EITHER_WAY = 1000


def mixed_text(draw: random.Random) -> str:
    """Words of the vocabulary among everything else."""
    others = (" ", "it's", "“", "”", "’s")
    pieces = [draw.choice([draw.choice(VOCABULARY), random_text(draw)[:8], draw.choice(others)]) for _ in range(12)]
    return draw.choice(["", " "]).join(pieces)


def same(found, expected, names=("input_ids", "character_ids", "attention_mask")) -> bool:
    return all(found[name] == expected[name] for name in names)


@pytest.mark.promise("T4", n=TEXTS_EITHER_WAY)
def test_batches_words_and_copies_make_no_difference(tokenizer, tmp_path):
    draw = random.Random(4)
    texts = [mixed_text(draw) for _ in range(TEXTS_EITHER_WAY)]
    batch = tokenizer(texts)
    words = [tokenizer.tokenize(text) for text in texts]
    assert len({tuple(ids) for ids in batch["input_ids"]}) > 0.8 * TEXTS_EITHER_WAY
    for number, text in enumerate(texts):
        one_by_one = {name: batch[name][number] for name in tokenizer.model_input_names}
        assert same(tokenizer(text), one_by_one), ascii(text)
        assert same(tokenizer(words[number], is_split_into_words=True), one_by_one), ascii(text)
    assert same(tokenizer(words, is_split_into_words=True), batch)
    tokenizer.save_pretrained(tmp_path)
    loaded = ElmoTokenizer.from_pretrained(tmp_path)
    assert same(loaded(texts), batch)
    assert [loaded.tokenize(text) for text in texts] == words


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=8))
def test_any_short_words_can_be_read_back(tokenizer, words):
    ids = tokenizer(words, is_split_into_words=True)["character_ids"]
    assert tokenizer.decode_characters(ids) == ["<S>", *words, "</S>"]


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(), max_size=30), min_size=1, max_size=4),
    length=st.integers(2, 30),
    side=st.sampled_from(["left", "right"]),
)
def test_any_padding_and_truncation_keep_the_words_in_place(tokenizer, texts, length, side):
    whole = [ids[1:-1] for ids in tokenizer(texts)["character_ids"]]
    cut = tokenizer(texts, truncation=True, max_length=length, padding="max_length", padding_side=side)
    begin, end = (np.frombuffer(character_row(word), np.uint16).tolist() for word in BOUNDARIES)
    for rows, words, attended in zip(cut["character_ids"], whole, cut["attention_mask"], strict=True):
        kept = [begin, *words[: length - 2], end]
        padding = [[0] * 50] * (length - len(kept))
        assert rows == (padding + kept if side == "left" else kept + padding)
        assert attended == [int(any(row)) for row in rows]


# --- Much text -------------------------------------------------------------------------------------------------------

MANY_WORDS = 1_000_000


@pytest.mark.slow
@pytest.mark.promise("T5")
def test_a_million_words_in_one_call(tokenizer):
    """Twice the text takes at most 2.5 times as long; other programs only add time, so the best of each counts."""
    draw = random.Random(0)
    known = ["".join(draw.choices("abcdefghijklmno", k=draw.randint(1, 9))) for _ in range(5000)]
    text = " ".join(draw.choices(known, k=MANY_WORDS))
    half = text[: text.index(" ", len(text) // 2)]

    def seconds(text: str, words: int) -> float:
        start = time.process_time()
        encoded = tokenizer(text, return_tensors="np")
        spent = time.process_time() - start
        assert encoded["character_ids"].shape == (1, words + 2, 50)
        return spent

    of_half, of_all = partial(seconds, half, half.count(" ") + 1), partial(seconds, text, MANY_WORDS)
    halves, wholes = [of_half()], [of_all()]
    while min(wholes) > 2.5 * min(halves) and len(wholes) < 3:
        halves.append(of_half())
        wholes.append(of_all())
    assert min(wholes) <= 2.5 * min(halves), (halves, wholes)
