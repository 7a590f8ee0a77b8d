# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Text to the two things ELMo reads: word ids (B, T) and each word's characters (B, T, 50).

Words are found by the Rust tokenizer, with offsets into the text as it was given; their characters are the bytes of
their UTF-8 spelling between two markers, as in the original programs, or code points that are in a list, as in
ELMoForManyLangs. A word is always one position.
"""

import copy
import json
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from transformers.tokenization_utils_base import BatchEncoding
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from .word_splitting import TYPOGRAPHIC_SIGNS, character_normalizer, word_splitter

# Character ids: 0 is padding, a byte b is b + 1, then come five markers. They are what the published weights were
# trained with, so nothing here is a choice.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD_WORD = 257, 258, 259, 260, 261
SENTENCE_BOUNDARIES = {"<S>": BEGIN_SENTENCE, "</S>": END_SENTENCE}

# A word is in the vocabulary as a whole or not at all. The Rust model that says so to all of transformers is WordPiece
# with a prefix that no piece has: the token-classification pipeline would take the tokens of another model for pieces
# of words, and glue neighbours together.
NO_PIECE_PREFIX = "\ue000"

# What stands for text that Rust cannot take: a lone surrogate, or an empty word in a list of words.
STAND_IN = "\ufffd"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

STRAIGHT_SIGNS = str.maketrans(TYPOGRAPHIC_SIGNS)
TYPOGRAPHIC_SIGN = re.compile(f"[{re.escape(''.join(TYPOGRAPHIC_SIGNS))}]")

# A text, or a list of words, and a second one or None.
Sample: TypeAlias = tuple[Any, Any]
# The spelling of a position; None is padding.
Word: TypeAlias = str | None

# Words with a static vector, in the folder of a model that has such vectors; ids below the first word's are taken.
WORD_VECTORS_FILE = "word_vectors.txt"
FIRST_WORD_VECTOR = 2

# The characters, in the folder of a model that reads code points.
CHARACTERS_FILE = "characters.json"

# What a batch may hold beside what the base class pads.
PADDED_WITH_ZEROS = ("character_ids", "word_vector_ids", "predicate_ids")

# Character rows of this many words are remembered; a row is 100 bytes.
REMEMBERED_WORDS = 2**16


@lru_cache(maxsize=REMEMBERED_WORDS)
def character_row(word: str, width: int = 50) -> bytes:
    """The character ids of a word as `width` unsigned 16-bit numbers.

    Begin of word, at most `width` - 2 bytes, end of word, padding. A code point may be cut in two, and lone surrogates
    have no bytes. `<S>` and `</S>` have one character of their own. All of this is what the original programs do.
    """
    boundary = SENTENCE_BOUNDARIES.get(word)
    if boundary is not None:
        spelling = [boundary]
    else:
        spelling = [byte + 1 for byte in word.encode("utf-8", errors="ignore")[: width - 2]]
    row = np.full(width, PAD_WORD, dtype=np.uint16)
    row[: len(spelling) + 2] = [BEGIN_WORD, *spelling, END_WORD]
    return row.tobytes()


def batch_to_ids(batch: Sequence[Sequence[str]], max_characters_per_token: int = 50) -> torch.Tensor:
    """Character ids (batch, words of the longest sentence, characters) of sentences given as lists of words.

    The namesake of AllenNLP's function, with the same result: no sentence boundaries, zeros as padding. `ElmoModel`
    takes it as its only argument and adds the boundaries.

    Example:
        >>> batch_to_ids([["Hello", "world"], ["Hi"]]).shape
        torch.Size([2, 2, 50])
    """
    for sentence in batch:
        _check_text(sentence, is_split_into_words=True)
    longest = max(map(len, batch), default=0)
    ids = np.zeros((len(batch), longest, max_characters_per_token), dtype=np.int64)
    for rows, sentence in zip(ids, batch, strict=True):
        rows[: len(sentence)] = spell(sentence, max_characters_per_token)
    return torch.from_numpy(ids)


def spell(words: Iterable[Word], width: int = 50) -> np.ndarray:
    """The character rows of words (words, width), unsigned 16-bit; zeros for `None`."""
    padding = bytes(2 * width)
    rows = b"".join([padding if word is None else character_row(word, width) for word in words])
    return np.frombuffer(rows, dtype=np.uint16).reshape(-1, width)


@dataclass(frozen=True)
class ElmoCharacters:
    """The characters of a model that reads code points; a character's id is its place in the list, from 1.

    Words are cut to the code points that fit between the two markers of a word.

    Args:
        characters: The character of each id; the ids of the markers have names of several characters.
        begin_sentence: Id of the character that the word at the begin of a sentence is.
        end_sentence: Id of the character that the word at the end of a sentence is.
        begin_word: Id before a word's first character.
        end_word: Id after a word's last character.
        pad_word: Id after that.
        unknown: Id of characters that are not in the list.
    """

    characters: tuple[str, ...]
    begin_sentence: int
    end_sentence: int
    begin_word: int
    end_word: int
    pad_word: int
    unknown: int

    def __post_init__(self) -> None:
        if len(set(self.characters)) < len(self.characters):
            raise ValueError("A character is in the list of characters more than once.")
        for name, index in asdict(self).items():
            if name != "characters" and not (type(index) is int and 1 <= index <= len(self.characters)):
                raise ValueError(f"{name}={index!r} is not possible: it must be from 1 to {len(self.characters)}.")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "ElmoCharacters":
        """Reads what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            characters = content.pop("characters")
            if not isinstance(characters, list) or not all(isinstance(character, str) for character in characters):
                raise ValueError("characters must be a list of strings.")
            return cls(characters=tuple(characters), **content)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a list of characters as the tokenizer saves it: {error}") from error

    def save(self, path: str | os.PathLike) -> None:
        """Writes the list as JSON, in which no character is lost or ends a line."""
        content = asdict(self) | {"characters": list(self.characters)}
        Path(path).write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")

    @property
    def markers(self) -> list[int]:
        """What a config has as `character_markers`."""
        return [self.begin_sentence, self.end_sentence, self.begin_word, self.end_word, self.pad_word]

    @cached_property
    def known(self) -> dict[str, bytes]:
        """The id of each character, markers left out, as an unsigned 32-bit number."""
        return {name: self._number(index) for index, name in enumerate(self.characters, start=1) if len(name) == 1}

    def row(self, spelling: str | int, width: int) -> bytes:
        """The character ids of a word, or of a boundary, as `width` unsigned 32-bit numbers."""
        unknown, get = self._number(self.unknown), self.known.get
        if isinstance(spelling, int):
            inner = self._number(spelling)
        else:
            inner = b"".join([get(character, unknown) for character in spelling[: width - 2]])
        row = self._number(self.begin_word) + inner + self._number(self.end_word)
        return row + self._number(self.pad_word) * (width - len(row) // 4)

    def read(self, spelling: list[int]) -> str:
        """The word of these ids; unknown characters come out as U+FFFD."""
        names = [self.characters[index - 1] for index in spelling if 1 <= index <= len(self.characters)]
        return "".join(name if len(name) == 1 else STAND_IN for name in names)

    @staticmethod
    def _number(index: int) -> bytes:
        return index.to_bytes(4, sys.byteorder)


@dataclass(frozen=True)
class Coverage:
    """How much of a text a model knows.

    Args:
        words: Number of words.
        cut_words: Words that are longer than the model reads.
        characters: Number of characters.
        unknown_characters: Characters that the model has no vector for, or if it reads bytes, that no word of the
            vocabulary has; `None` if there is no vocabulary to tell.
        unknown_words: Words that are not in the vocabulary; `None` if there is none.
    """

    words: int
    cut_words: int
    characters: int
    unknown_characters: int | None
    unknown_words: int | None

    def __add__(self, other: "Coverage") -> "Coverage":
        """The coverage of both texts."""
        sums: dict[str, Any] = {
            name: None if value is None else value + getattr(other, name) for name, value in asdict(self).items()
        }
        return Coverage(**sums)

    @property
    def unknown_character_share(self) -> float | None:
        """Unknown characters by characters; `None` if that is not known."""
        return None if self.unknown_characters is None else self.unknown_characters / max(self.characters, 1)

    @property
    def unknown_word_share(self) -> float | None:
        """Unknown words by words; `None` if that is not known."""
        return None if self.unknown_words is None else self.unknown_words / max(self.words, 1)


class ElmoTokenizer(TokenizersBackend):
    """Splits text into words and spells them.

    Returns `input_ids` (a word's number in the vocabulary, that of `<UNK>` if it is not there or there is none),
    `character_ids` (what a character model reads) and `attention_mask`. Each sentence is put between `<S>` and `</S>`.

    If the model has static word vectors beside ELMo, there are `word_vector_ids`: 0 at padding and boundaries, 1 at
    unknown words. Words are looked up as they are spelled and then in lower case.

    Args:
        vocab_file: Words, one a line, in bilm-tf's order: `<S>`, `</S>` and `<UNK>` among them, frequent words first.
            A word's id is its line, from 0; padding comes after the last. Character models need no vocabulary.
        characters_file: The characters of a model that reads code points; without it, a model reads bytes. See
            `set_characters`.
        word_vectors_file: Words that have a static vector, one a line; the first has the id 2. See `set_word_vectors`.
        word_splitting: How raw text becomes words: `"moses"` as the training text of the published English models,
            `"whitespace"` at white space only.
        segmenter: What cut the words the model was trained on, if `word_splitting` does not: "UDPipe", say. It is
            recorded for whoever prepares a text; the tokenizer does not run it.
        unicode_normalization: `"NFC"` if the words of raw text are put into this form, as the model knows composed
            characters. Words that are given in lists are taken as they are.
        max_characters_per_token: Character ids of a word, markers included.
        add_bos_token: Whether a sentence begins with `<S>`; by default it does, or as it was saved.
        add_eos_token: Whether a sentence ends with `</S>`; by default it does, or as it was saved.
        split_special_tokens: Whether `<S>` and the like are ordinary text when they occur in the text.

    Example:
        >>> tokenizer = ElmoTokenizer()
        >>> tokenizer.tokenize("It's a river bank, isn't it?")
        ['It', "'s", 'a', 'river', 'bank', ',', 'isn', "'t", 'it', '?']
        >>> tokenizer(["One sentence.", "Another"], padding=True, return_tensors="pt")["character_ids"].shape
        torch.Size([2, 5, 50])
    """

    vocab_files_names = {
        "vocab_file": "vocab.txt",
        "characters_file": CHARACTERS_FILE,
        "word_vectors_file": WORD_VECTORS_FILE,
        "tokenizer_file": "tokenizer.json",
    }
    model_input_names = ["input_ids", "character_ids", "attention_mask"]
    _auto_class = "AutoTokenizer"
    _tokenizer: Tokenizer

    def __init__(
        self,
        vocab_file: str | os.PathLike | None = None,
        word_vectors_file: str | os.PathLike | None = None,
        characters_file: str | os.PathLike | None = None,
        word_splitting: Literal["moses", "whitespace"] = "moses",
        segmenter: str | None = None,
        unicode_normalization: Literal["NFC"] | None = None,
        max_characters_per_token: int = 50,
        bos_token: str = "<S>",
        eos_token: str = "</S>",
        unk_token: str = "<UNK>",
        pad_token: str = "<PAD>",
        add_bos_token: bool | None = None,
        add_eos_token: bool | None = None,
        split_special_tokens: bool = True,
        **kwargs: Any,
    ):
        if max_characters_per_token < 3:
            raise ValueError(
                f"max_characters_per_token={max_characters_per_token} leaves no character: give 3 or more."
            )
        if unicode_normalization not in (None, "NFC"):
            raise ValueError(f"unicode_normalization={unicode_normalization!r} is not possible: it is 'NFC' or None.")
        self.word_splitting = word_splitting
        self.segmenter = segmenter
        self.unicode_normalization = unicode_normalization
        self.max_characters_per_token = max_characters_per_token
        self.characters: ElmoCharacters | None = None
        self._word_vector_index: dict[str, int] = {}
        if kwargs.get("tokenizer_file") is None and kwargs.get("tokenizer_object") is None:
            specials = [str(token) for token in (bos_token, eos_token, unk_token)]
            words = specials if vocab_file is None else _read_vocabulary(vocab_file, specials)
            kwargs["tokenizer_object"] = word_tokenizer(words, unknown=str(unk_token), padding=str(pad_token))
            add_bos_token = True if add_bos_token is None else add_bos_token
            add_eos_token = True if add_eos_token is None else add_eos_token
        given = {
            "add_bos_token": add_bos_token,
            "add_eos_token": add_eos_token,
            "segmenter": segmenter,
            "unicode_normalization": unicode_normalization,
        }
        kwargs.update({name: value for name, value in given.items() if value is not None})
        super().__init__(
            word_splitting=word_splitting,
            max_characters_per_token=max_characters_per_token,
            bos_token=bos_token,
            eos_token=eos_token,
            unk_token=unk_token,
            pad_token=pad_token,
            split_special_tokens=split_special_tokens,
            **kwargs,
        )
        self._tokenizer.pre_tokenizer = word_splitter(word_splitting)
        if word_splitting == "moses":
            self._tokenizer.normalizer = character_normalizer()
        if word_vectors_file is not None:
            self.set_word_vectors(_read_words(word_vectors_file))
        if characters_file is not None:
            self.set_characters(ElmoCharacters.load(characters_file))
        # A saved tokenizer remembers its boundaries in tokenizer.json only, and the base class takes them for absent.
        boundaries = self._tokenizer.encode("").ids
        self._add_bos_token, self._add_eos_token = (
            token in boundaries for token in (self.bos_token_id, self.eos_token_id)
        )

    def set_word_vectors(self, words: Sequence[str]) -> None:
        """Makes the tokenizer return `word_vector_ids`: 2 for the first of these words, and so on.

        Args:
            words: The words that have a static vector, in the order of the vectors.
        """
        self.word_vector_words = list(words)
        self._word_vector_index = {word: number for number, word in enumerate(words, start=FIRST_WORD_VECTOR)}
        if len(self._word_vector_index) < len(words):
            raise ValueError(f"{len(words) - len(self._word_vector_index)} of the words occur more than once.")
        self.model_input_names = [*type(self).model_input_names, "word_vector_ids"]

    def set_characters(self, characters: ElmoCharacters) -> None:
        """Makes the tokenizer spell words with code points instead of bytes, as ELMoForManyLangs does.

        Words are cut to `max_characters_per_token` - 2 code points, and the vocabulary is asked for the cut word.

        Args:
            characters: The characters the model knows.
        """
        self.characters = characters

    @property
    def _boundaries(self) -> dict[str, int]:
        """The words that begin and end a sentence, in this order, and the character that each of them is."""
        if self.characters is None:
            return SENTENCE_BOUNDARIES
        markers = (self.characters.begin_sentence, self.characters.end_sentence)
        return dict(zip((str(self.bos_token), str(self.eos_token)), markers, strict=True))

    def _word_vector_ids(self, words: Iterable[Word]) -> list[int]:
        index, boundaries = self._word_vector_index, self._boundaries
        unknown = FIRST_WORD_VECTOR - 1
        return [
            0 if word is None or word in boundaries else index.get(word) or index.get(word.lower(), unknown)
            for word in words
        ]

    def _save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        files = super()._save_pretrained(save_directory, *args, **kwargs)
        if self.characters is not None:
            self.characters.save(os.path.join(save_directory, CHARACTERS_FILE))
            files = (*files, os.path.join(save_directory, CHARACTERS_FILE))
        if not self._word_vector_index:
            return files
        path = os.path.join(save_directory, WORD_VECTORS_FILE)
        Path(path).write_text("".join(f"{word}\n" for word in self.word_vector_words), encoding="utf-8")
        return (*files, path)

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Loads tokenizer.json as it is; for a class with an `__init__` the base would rebuild it from its parts."""
        return super().convert_to_native_format(trust_remote_code=True, **kwargs)

    @classmethod
    def _patch_mistral_regex(cls, tokenizer: Tokenizer, *args: Any, **kwargs: Any) -> Tokenizer:
        """Large vocabularies make the base look on the Hub whether this is a Mistral tokenizer. It is not."""
        return tokenizer

    # --- Text to ids -------------------------------------------------------------------------------------------------

    def _encode_plus(  # type: ignore[override]  # the arguments that are not here are passed on
        self,
        text: Any,
        text_pair: Any = None,
        is_split_into_words: bool = False,
        return_tensors: str | None = None,
        return_overflowing_tokens: bool = False,
        **options: Any,
    ) -> BatchEncoding:
        samples, is_batched = _as_samples(text, text_pair, is_split_into_words)
        encoded = self._encode_samples(
            samples, is_split_into_words, return_overflowing_tokens=return_overflowing_tokens, **options
        )
        words = self._words(encoded, samples, is_split_into_words)
        stand_in_is_a_word = self._tokenizer.token_to_id(STAND_IN) is not None
        if self.characters is not None or self.unicode_normalization is not None or stand_in_is_a_word:
            self._look_up_again(encoded, words)
        if is_split_into_words and "offset_mapping" in encoded:
            _empty_offsets_of_empty_words(encoded, words)
        if self._word_vector_index:
            encoded["word_vector_ids"] = [self._word_vector_ids(sentence) for sentence in words]

        if return_tensors is not None:
            if len(set(map(len, words))) <= 1:  # sentences of different lengths are refused further down
                encoded["character_ids"] = self._spell_batch(words)
            if return_tensors == "pt":
                _to_torch(encoded)
            return encoded.convert_to_tensors(return_tensors)

        encoded["character_ids"] = [self._spell(sentence).tolist() for sentence in words]
        if is_batched or return_overflowing_tokens:
            return encoded
        return BatchEncoding({key: value[0] for key, value in encoded.items()}, encoded.encodings)

    def _encode_samples(self, samples: list[Sample], is_split_into_words: bool, **options: Any) -> BatchEncoding:
        """Everything but the characters, in lists: what the base class does."""
        if not samples:
            return BatchEncoding({name: [] for name in self.model_input_names}, [])
        firsts, seconds = zip(*samples, strict=True)
        return TokenizersBackend._encode_plus(
            self._for_one_call(samples, is_split_into_words),
            text=[_presentable(first) for first in firsts],
            text_pair=None if seconds[0] is None else [_presentable(second) for second in seconds],
            is_split_into_words=is_split_into_words,
            **options,
        )

    def _for_one_call(self, samples: list[Sample], is_split_into_words: bool) -> "ElmoTokenizer":
        """This tokenizer with a Rust backend of its own, which shares the vocabulary.

        The base class sets padding and truncation on a tokenizer's backend, so threads that share it would get each
        other's. And words that are given must not be split again, which is up to the backend, too.
        """
        shared = self._tokenizer
        backend = Tokenizer(shared.model)
        if not is_split_into_words:
            if self._has_typographic_signs(samples):  # the normalizer has a price even when it changes nothing
                backend.normalizer = shared.normalizer
            backend.pre_tokenizer = shared.pre_tokenizer
            added = shared.get_added_tokens_decoder()
            backend.add_tokens([added[index] for index in sorted(added)])
        backend.post_processor = shared.post_processor
        one_call = copy.copy(self)
        one_call._tokenizer = backend
        return one_call

    def _has_typographic_signs(self, samples: list[Sample]) -> bool:
        return self.word_splitting == "moses" and any(
            TYPOGRAPHIC_SIGN.search(text) for sample in samples for text in sample if text is not None
        )

    def _words(self, encoded: BatchEncoding, samples: list[Sample], is_split_into_words: bool) -> list[list[Word]]:
        """The word at each position of each encoding, as it is spelled; `None` at padding."""
        if not is_split_into_words and self._has_typographic_signs(samples):
            samples = [tuple(text and text.translate(STRAIGHT_SIGNS) for text in sample) for sample in samples]
        boundaries = dict(zip((self.bos_token_id, self.eos_token_id), self._boundaries, strict=True))
        encodings: list[Encoding] = encoded.encodings or []
        sample_of_encoding = encoded.get("overflow_to_sample_mapping", range(len(samples)))
        sentences = []
        for encoding, number in zip(encodings, sample_of_encoding, strict=True):
            sample, sequences = samples[number], encoding.sequence_ids
            words: list[Word]
            if is_split_into_words:
                places = zip(sequences, encoding.word_ids, strict=True)
                words = [None if sequence is None else sample[sequence][place] for sequence, place in places]
            else:
                spans = zip(sequences, encoding.offsets, strict=True)
                words = [None if sequence is None else sample[sequence][start:end] for sequence, (start, end) in spans]
                if self.unicode_normalization == "NFC":
                    words = [word and unicodedata.normalize("NFC", word) for word in words]
            if None in sequences:
                attended, ids, tokens = encoding.attention_mask, encoding.ids, encoding.tokens
                for position, sequence in enumerate(sequences):
                    if sequence is None and attended[position]:
                        words[position] = boundaries.get(ids[position], tokens[position])
            sentences.append(words)
        return sentences

    def _look_up_again(self, encoded: BatchEncoding, words: list[list[Word]]) -> None:
        """Sets the ids of words that Rust saw in another form than the vocabulary has: not normalized, cut, or filled.

        A filled word is one that Rust cannot take, such as the empty one, with U+FFFD in its place.
        """
        boundaries, find = self._boundaries, self._tokenizer.token_to_id
        for ids, sentence in zip(encoded["input_ids"], words, strict=True):
            for position, word in enumerate(sentence):
                if word is None or (word.isascii() and 0 < len(word) <= self.max_characters_per_token - 2):
                    continue
                form = self._known_form(word, boundaries)
                found = None if LONE_SURROGATE.search(form) else find(form)
                ids[position] = self.unk_token_id if found is None else found

    def _known_form(self, word: str, boundaries: dict[str, int]) -> str:
        """The word as the model knows it: a model that reads code points knows the begin of long words."""
        if self.characters is None or word in boundaries:
            return word
        return word[: self.max_characters_per_token - 2]

    def _spell(self, words: Iterable[Word]) -> np.ndarray:
        """The character rows of words (words, characters); zeros for `None`."""
        width, characters = self.max_characters_per_token, self.characters
        if characters is None:
            return spell(words, width)
        boundaries, padding = self._boundaries, bytes(4 * width)
        forms = [word if word is None else self._known_form(word, boundaries) for word in words]
        rows = [padding if form is None else characters.row(boundaries.get(form, form), width) for form in forms]
        return np.frombuffer(b"".join(rows), dtype=np.uint32).reshape(-1, width)

    def _spell_batch(self, sentences: list[list[Word]]) -> np.ndarray:
        """(sentences, words, characters) for sentences of one length."""
        length = len(sentences[0]) if sentences else 0
        rows = self._spell(chain.from_iterable(sentences)).astype(np.int64)
        return rows.reshape(len(sentences), length, self.max_characters_per_token)

    def _pad(self, encoded_inputs: dict[str, Any] | BatchEncoding, *args: Any, **kwargs: Any) -> dict[str, Any]:
        padded = super()._pad(encoded_inputs, *args, **kwargs)
        side = kwargs.get("padding_side") or self.padding_side
        for name in PADDED_WITH_ZEROS:
            if name in padded:
                values = list(padded[name])
                missing = len(padded["input_ids"]) - len(values)
                zero = [0] * self.max_characters_per_token if name == "character_ids" else 0
                padding = [zero] * missing
                padded[name] = values + padding if side == "right" else padding + values
        return padded

    # --- What the model knows ---------------------------------------------------------------------------------------

    def coverage(self, texts: Sequence[Any], is_split_into_words: bool = False) -> Coverage:
        """Counts the words of texts that are cut, and the words and characters that the model does not know.

        Args:
            texts: Texts, or lists of words.
            is_split_into_words: Whether they are lists of words.

        Example:
            >>> ElmoTokenizer().coverage(["A " + "long " * 3 + "word" * 13]).cut_words
            1
        """
        samples, _ = _as_samples(list(texts), None, is_split_into_words)
        encoded = self._encode_samples(samples, is_split_into_words, add_special_tokens=False)
        words = self._words(encoded, samples, is_split_into_words)
        self._look_up_again(encoded, words)
        flat = [word or "" for sentence in words for word in sentence]
        limit = self.max_characters_per_token - 2
        lengths = [len(word) if self.characters else len(word.encode("utf-8", "ignore")) for word in flat]
        ids = chain.from_iterable(encoded["input_ids"])
        return Coverage(
            words=len(flat),
            cut_words=sum(length > limit for length in lengths),
            characters=sum(map(len, flat)),
            unknown_characters=self._count_unknown_characters(flat),
            unknown_words=sum(index == self.unk_token_id for index in ids) if self._has_vocabulary else None,
        )

    @property
    def _has_vocabulary(self) -> bool:
        return len(self) > len({self.bos_token, self.eos_token, self.unk_token, self.pad_token})

    def _count_unknown_characters(self, words: list[str]) -> int | None:
        known: Collection[str] | None = self.characters.known if self.characters else self._vocabulary_characters
        if known is None:
            return None
        return sum(character not in known for word in words for character in word)

    @cached_property
    def _vocabulary_characters(self) -> frozenset[str] | None:
        return frozenset(chain.from_iterable(self.get_vocab())) if self._has_vocabulary else None

    # --- Ids to text -------------------------------------------------------------------------------------------------

    def tokenize(
        self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs: Any
    ) -> list[str]:
        """The words of a text, as the model will spell them; with `is_split_into_words=True`, the words given."""
        is_split_into_words = kwargs.pop("is_split_into_words", False)
        samples, _ = _as_samples(text, pair, is_split_into_words)
        encoded = self._encode_samples(samples, is_split_into_words, add_special_tokens=add_special_tokens, **kwargs)
        return [
            word for words in self._words(encoded, samples, is_split_into_words) for word in words if word is not None
        ]

    def decode_characters(self, character_ids: Any, skip_special_tokens: bool = False) -> list[Any]:
        """Reads words back from their characters, which works for words outside the vocabulary, too.

        Args:
            character_ids: (words, characters) or (batch, words, characters). Rows of padding are left out.
            skip_special_tokens: Whether to leave out `<S>` and `</S>`.

        Returns:
            The words, or a list of words for each sentence. Bytes that are no text, because the word was cut within a
            character, come out as U+FFFD, and so do unknown characters.
        """
        rows = np.asarray(character_ids)
        if rows.ndim == 3:
            return [self.decode_characters(sentence, skip_special_tokens) for sentence in rows]
        if rows.ndim != 2:
            raise ValueError(
                f"character_ids has {rows.ndim} dimensions; give (words, characters) or (batch, words, characters)."
            )
        words = [self._read_row(row) for row in rows.tolist() if any(row)]
        return [word for word in words if not (skip_special_tokens and word in self._boundaries)]

    def _read_row(self, row: list[int]) -> str:
        end = END_WORD if self.characters is None else self.characters.end_word
        spelling = row[1 : row.index(end)] if end in row else row
        for word, boundary in self._boundaries.items():
            if spelling == [boundary]:
                return word
        return _read_bytes(spelling) if self.characters is None else self.characters.read(spelling)


def _read_bytes(spelling: list[int]) -> str:
    return bytes(index - 1 for index in spelling if 1 <= index <= 256).decode("utf-8", errors="replace")


def _as_samples(text: Any, text_pair: Any, is_split_into_words: bool) -> tuple[list[Sample], bool]:
    """The texts as (first, second or `None`), and whether they came as a batch."""
    is_batched = _is_list(text)
    if is_split_into_words:
        is_batched = is_batched and len(text) > 0 and _is_list(text[0])
    if not is_batched:
        samples = [(text, text_pair)]
    elif text_pair is not None:
        if isinstance(text_pair, str) or len(text) != len(text_pair):
            raise ValueError(
                f"A batch of {len(text)} texts needs as many second texts, but text_pair is "
                f"{'a single string' if isinstance(text_pair, str) else f'{len(text_pair)} texts'}."
            )
        samples = list(zip(text, text_pair, strict=True))
    else:
        samples = [_as_pair(item, is_split_into_words) for item in text]
    if len({second is None for _, second in samples}) > 1:
        raise ValueError(
            "Some texts of the batch have a second text and some have none: give all or none of them one."
        )
    for first, second in samples:
        _check_text(first, is_split_into_words)
        if second is not None:
            _check_text(second, is_split_into_words)
    return samples, is_batched


def _as_pair(item: Any, is_split_into_words: bool) -> Sample:
    """(item, None), or the pair that the item is."""
    parts = (list, tuple) if is_split_into_words else str
    kinds = tuple if is_split_into_words else (list, tuple)  # a list of words is a sentence, a list of texts a pair
    is_pair = isinstance(item, kinds) and len(item) == 2 and all(isinstance(part, parts) for part in item)
    return tuple(item) if is_pair else (item, None)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _check_text(text: Any, is_split_into_words: bool) -> None:
    if not is_split_into_words:
        if not isinstance(text, str):
            raise ValueError(
                f"A text must be a string, but {text!r:.60} is a {type(text).__name__}. For lists of words, set "
                "is_split_into_words=True."
            )
    elif not _is_list(text):
        raise ValueError(
            f"A sentence that is split into words is a list of words, but {text!r:.60} is a {type(text).__name__}."
        )
    else:
        for word in text:
            if not isinstance(word, str):
                raise ValueError(f"A word must be a string, but {word!r:.60} is a {type(word).__name__}.")


def _presentable(text: Any) -> Any:
    """The text, or the words, without what Rust refuses or drops; every character keeps its place."""
    if isinstance(text, str):
        return text if text.isascii() else LONE_SURROGATE.sub(STAND_IN, text)
    return [_presentable(word) or STAND_IN for word in text]


def _empty_offsets_of_empty_words(encoded: BatchEncoding, words: list[list[Word]]) -> None:
    encoded["offset_mapping"] = [
        [(0, 0) if word == "" else span for word, span in zip(sentence, spans, strict=True)]
        for sentence, spans in zip(words, encoded["offset_mapping"], strict=True)
    ]


def _to_torch(encoded: BatchEncoding) -> None:
    """Turns rectangular values into tensors, by way of numpy, which is faster than the base class."""
    for key, value in encoded.items():
        if isinstance(value, np.ndarray) or len({len(row) for row in value if _is_list(row)}) <= 1:
            encoded[key] = torch.from_numpy(np.asarray(value, dtype=np.int64))


def _read_words(path: str | os.PathLike) -> list[str]:
    """The lines of a file; only line feeds end a line, as words may hold what else Unicode takes for an end."""
    lines = Path(path).read_bytes().decode("utf-8").split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _read_vocabulary(path: str | os.PathLike, specials: list[str]) -> list[str]:
    """The words of a vocabulary file in bilm-tf's format."""
    words = [word for word in _read_words(path) if word != "!!!MAXTERMID"]  # a line that bilm-tf skips, too
    first_lines: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if word == "" or word != word.strip():
            raise ValueError(f"{path}: line {number} is {word!r}, but every line must be one word.")
        if word in first_lines:
            raise ValueError(f"{path}: the word {word!r} is on line {first_lines[word]} and again on line {number}.")
        first_lines[word] = number
    missing = [token for token in specials if token not in first_lines]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} must be among the words, but there is no such line.")
    return words


def word_tokenizer(words: Sequence[str], unknown: str, padding: str) -> Tokenizer:
    """A Rust tokenizer that knows these words as a whole; padding is the last id unless it is one of them."""
    vocabulary = {word: index for index, word in enumerate(words)}
    vocabulary.setdefault(padding, len(vocabulary))
    prefix = NO_PIECE_PREFIX
    while any(word.startswith(prefix) for word in vocabulary):
        prefix += NO_PIECE_PREFIX
    model = WordPiece(
        vocabulary,
        unk_token=unknown,
        continuing_subword_prefix=prefix,
        # Longer words cannot be in the vocabulary. They are not searched, which for n characters would cost n^2.
        max_input_chars_per_word=max(map(len, vocabulary)),
    )
    return Tokenizer(model)


__all__ = ["Coverage", "ElmoCharacters", "ElmoTokenizer", "batch_to_ids", "character_row"]
