# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs what `hf-elmo export onnx` wrote, with onnxruntime, tokenizers and numpy: neither torch nor transformers.

A copy of this file is in every such folder. Where hf-elmo is not installed, put the folder on Python's path:

    import sys
    sys.path.insert(0, "my-elmo-onnx")
    from elmo_onnx import ElmoOnnx

    model = ElmoOnnx("my-elmo-onnx")
    vectors = model.encode(["A river bank.", "A savings bank."])

Shapes are written with these letters: B batch, T words of the longest sentence, C characters of a word, D width of the
vectors, L LSTM layers, K labels.
"""

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from tokenizers import Tokenizer

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
WORD_VECTORS_FILE = "word_vectors.txt"

# What stands for text that Rust cannot take: a lone surrogate, or an empty word in a list of words.
STAND_IN = "\ufffd"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

FIRST_WORD_VECTOR = 2
REMEMBERED_WORDS = 2**16
BATCH_TOKENS = 2048

LAYERS = ("mix", "top", "average", "all")
POOLINGS = ("mean", "max", "mean_max", "boundary")

# A text, or a list of words.
Text: TypeAlias = str | Sequence[str]
# The spelling of a position; None is padding.
Word: TypeAlias = str | None


# --- Text to ids -----------------------------------------------------------------------------------------------------


class Sentence(NamedTuple):
    """The positions of a text, its boundaries included."""

    ids: list[int]
    words: list[str]  # as they are spelled


class OnnxTokenizer:
    """Text to the arrays that the model reads, the same as those of `ElmoTokenizer`.

    Args:
        folder: The folder with `tokenizer.json`.
        settings: What the exported model says of its tokenizer.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]):
        self.width: int = settings["max_characters_per_token"]
        self.boundaries: dict[str, int] = settings["boundaries"]
        self.markers: dict[str, int] = settings["markers"]
        self.unicode_normalization: Literal["NFC"] | None = settings["unicode_normalization"]
        self.pad_token_id: int = settings["pad_token_id"]
        self.unk_token_id: int = settings["unk_token_id"]
        self._boundary_ids = dict(
            zip((settings["bos_token_id"], settings["eos_token_id"]), self.boundaries, strict=True)
        )
        self._straight_signs = str.maketrans(settings["straight_signs"])
        characters: list[str] | None = settings["characters"]
        self._unknown_character: int = settings["unknown_character"]
        self._characters: dict[str, int] | None = None
        if characters is not None:
            self._characters = {name: index for index, name in enumerate(characters, start=1) if len(name) == 1}
        self._of_text = Tokenizer.from_file(str(Path(folder) / TOKENIZER_FILE))
        self._of_text.no_padding()
        self._of_text.no_truncation()
        self._of_text.encode_special_tokens = settings["split_special_tokens"]
        self._of_words = Tokenizer(self._of_text.model)  # words that are given are not split again
        self._of_words.post_processor = self._of_text.post_processor
        self._of_words.encode_special_tokens = settings["split_special_tokens"]
        self._looks_up_again = (
            characters is not None
            or self.unicode_normalization is not None
            or self._of_text.token_to_id(STAND_IN) is not None
        )
        boundaries = self._of_text.encode("").ids
        self.added_boundaries = tuple(int(settings[name] in boundaries) for name in ("bos_token_id", "eos_token_id"))
        self._word_vectors = _read_word_vectors(Path(folder) / WORD_VECTORS_FILE)
        self._row = lru_cache(maxsize=REMEMBERED_WORDS)(self._spell)

    def __call__(self, texts: Sequence[Text], pairs: Sequence[Text] | None = None) -> dict[str, np.ndarray]:
        """Arrays of a batch, padded to the longest text.

        Args:
            texts: Texts, or lists of words; all of one kind.
            pairs: Second texts, if the model reads pairs.

        Returns:
            `input_ids` and `attention_mask` (B, T), `character_ids` (B, T, C), and `word_vector_ids` (B, T) if the
            model has static word vectors.
        """
        return self.padded(self.read(texts, pairs))

    def padded(self, sentences: Sequence[Sentence]) -> dict[str, np.ndarray]:
        """The arrays of sentences, padded to the longest."""
        longest = max((len(ids) for ids, _ in sentences), default=0)
        input_ids = np.full((len(sentences), longest), self.pad_token_id, dtype=np.int64)
        attention_mask = np.zeros_like(input_ids)
        character_ids = np.zeros((len(sentences), longest, self.width), dtype=np.int64)
        word_vector_ids = np.zeros_like(input_ids)
        for row, (ids, words) in enumerate(sentences):
            count = len(ids)
            input_ids[row, :count] = ids
            attention_mask[row, :count] = 1
            if count:
                spelled = b"".join([self._row(word) for word in words])
                character_ids[row, :count] = np.frombuffer(spelled, dtype=np.uint32).reshape(count, self.width)
            if self._word_vectors:
                word_vector_ids[row, :count] = [self._word_vector_id(word) for word in words]
        arrays = {"input_ids": input_ids, "character_ids": character_ids, "attention_mask": attention_mask}
        return arrays | ({"word_vector_ids": word_vector_ids} if self._word_vectors else {})

    def words(self, text: Text) -> list[str]:
        """The words of a text, as the model spells them, without its boundaries."""
        ((_, words),) = self.read([text], None)
        first, last = self.added_boundaries
        return words[first : len(words) - last]

    def read(self, texts: Sequence[Text], pairs: Sequence[Text] | None) -> list[Sentence]:
        """The ids and the spelled words of each text, with its boundaries."""
        is_split = _are_split(texts, pairs)
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"There are {len(texts)} texts, but {len(pairs)} second texts: give each text one.")
        samples: list[tuple[Any, Any]] = [
            (text, pairs[row] if pairs is not None else None) for row, text in enumerate(texts)
        ]
        given = [
            _presentable(first) if second is None else (_presentable(first), _presentable(second))
            for first, second in samples
        ]
        backend = self._of_words if is_split else self._of_text
        encodings = backend.encode_batch(given, is_pretokenized=is_split) if given else []
        return [
            Sentence(*self._look_up(list(encoding.ids), self._words(encoding, sample, is_split)))
            for encoding, sample in zip(encodings, samples, strict=True)
        ]

    def _words(self, encoding: Any, sample: tuple[Any, Any], is_split: bool) -> list[str]:
        """The word at each position, as it is spelled."""
        sequences = encoding.sequence_ids
        if is_split:
            places = zip(sequences, encoding.word_ids, strict=True)
            words = [None if sequence is None else sample[sequence][place] for sequence, place in places]
        else:
            straight = [text and text.translate(self._straight_signs) for text in sample]
            spans = zip(sequences, encoding.offsets, strict=True)
            words = [None if sequence is None else straight[sequence][start:end] for sequence, (start, end) in spans]
            if self.unicode_normalization is not None:
                words = [word and unicodedata.normalize(self.unicode_normalization, word) for word in words]
        special = zip(words, encoding.ids, encoding.tokens, strict=True)
        return [self._boundary_ids.get(index, token) if word is None else word for word, index, token in special]

    def _look_up(self, ids: list[int], words: list[str]) -> tuple[list[int], list[str]]:
        """Sets the ids of words that Rust saw in another form than the vocabulary has."""
        for position, word in enumerate(words if self._looks_up_again else []):
            if not word.isascii() or not 0 < len(word) <= self.width - 2:
                form = self._known_form(word)
                found = None if LONE_SURROGATE.search(form) else self._of_text.token_to_id(form)
                ids[position] = self.unk_token_id if found is None else found
        return ids, words

    def _known_form(self, word: str) -> str:
        """The word as the model knows it: a model that reads code points knows the begin of long words."""
        return word if self._characters is None or word in self.boundaries else word[: self.width - 2]

    def _spell(self, word: str) -> bytes:
        """The character ids of a word as unsigned 32-bit numbers."""
        boundary = self.boundaries.get(word)
        if boundary is not None:
            inner = [boundary]
        elif self._characters is None:
            inner = [byte + 1 for byte in word.encode("utf-8", errors="ignore")[: self.width - 2]]
        else:
            inner = [self._characters.get(character, self._unknown_character) for character in word[: self.width - 2]]
        row = np.full(self.width, self.markers["pad_word"], dtype=np.uint32)
        row[: len(inner) + 2] = [self.markers["begin_word"], *inner, self.markers["end_word"]]
        return row.tobytes()

    def _word_vector_id(self, word: str) -> int:
        if word in self.boundaries:
            return 0
        found = self._word_vectors.get(word) or self._word_vectors.get(word.lower())
        return FIRST_WORD_VECTOR - 1 if found is None else found


def _read_word_vectors(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    words = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    return {word: number for number, word in enumerate(words, start=FIRST_WORD_VECTOR)}


def _are_split(texts: Sequence[Text], pairs: Sequence[Text] | None) -> bool:
    """Whether the texts are lists of words; refuses what is neither, and both kinds in one batch."""
    if isinstance(texts, str) or isinstance(pairs, str):
        raise ValueError("A batch is a list of texts, but a single string was given: put it into a list.")
    kinds = set()
    for text in (*texts, *(pairs or ())):
        if isinstance(text, str):
            kinds.add(False)
        elif isinstance(text, (list, tuple)) and all(isinstance(word, str) for word in text):
            kinds.add(True)
        else:
            raise ValueError(f"A text must be a string or a list of words, but {text!r:.60} is something else.")
    if len(kinds) > 1:
        raise ValueError("Some texts are strings and some are lists of words: give only one kind at a time.")
    return kinds == {True}


def _presentable(text: Text) -> Any:
    """The text, or the words, without what Rust refuses or drops; every character keeps its place."""
    if isinstance(text, str):
        return text if text.isascii() else LONE_SURROGATE.sub(STAND_IN, text)
    return [_presentable(word) or STAND_IN for word in text]


# --- Ids to vectors and labels ---------------------------------------------------------------------------------------


class ElmoOnnx:
    """An exported ELMo model, run by onnxruntime.

    Args:
        folder: What `hf-elmo export onnx` wrote.
        threads: How many threads compute; by default onnxruntime's choice, one for each core.
        providers: Where to compute, as of `onnxruntime.InferenceSession`; by default on the CPU.

    Example:
        >>> model = ElmoOnnx("my-elmo-onnx")  # doctest: +SKIP
        >>> vectors = model.encode(["A river bank.", "A savings bank."])  # doctest: +SKIP
        >>> [len(sentence) for sentence in vectors]  # doctest: +SKIP
        [4, 4]
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        threads: int | None = None,
        providers: Sequence[Any] = ("CPUExecutionProvider",),
    ):
        path = Path(folder) / MODEL_FILE
        if not path.is_file():
            raise FileNotFoundError(f"{folder} has no {MODEL_FILE}: give a folder that hf-elmo export onnx wrote.")
        if threads is not None and threads < 1:
            raise ValueError(f"threads={threads} is not possible: it must be 1 or more, or None.")
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError("onnxruntime is not installed: pip install onnxruntime (or hf-elmo[onnx]).") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3  # below errors it says only that the initial state may be given
        self.session = onnxruntime.InferenceSession(str(path), options, providers=list(providers))
        self._run_options = onnxruntime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True
        metadata = self.session.get_modelmeta().custom_metadata_map
        if "hf_elmo_task" not in metadata:
            raise ValueError(f"{path} was not written by hf-elmo export onnx: it does not say which task it is for.")
        self.task: str = metadata["hf_elmo_task"]
        self.config: dict[str, Any] = json.loads(metadata["config"])
        self.labels: list[str] = json.loads(metadata["labels"])
        self.tokenizer = OnnxTokenizer(folder, json.loads(metadata["tokenizer"]))
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.state_inputs = [value.name for value in self.session.get_overridable_initializers()]
        self.outputs = {value.name: value.shape for value in self.session.get_outputs()}

    def run(
        self,
        arrays: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        state: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """What the model makes of the arrays of a batch.

        Args:
            arrays: What the tokenizer returns; those that the model does not read are left out.
            outputs: Names of the results, by default all: `last_hidden_state` (B, T, D), `hidden_states` (L + 1, B, T,
                D), `final_hidden` and `final_cell` of a model that gives vectors, `logits` of a task,
                `forward_logits`, `backward_logits` and the final state of a language model. Only what they need is
                computed.
            state: `final_hidden` and `final_cell` of another call, for sentences to start from; by default zeros, or
                the state that the model has stored.
        """
        names = list(self.outputs) if outputs is None else list(outputs)
        for name in names:
            if name not in self.outputs:
                raise ValueError(f"There is no output {name!r}; this model has {', '.join(self.outputs)}.")
        feeds = self._checked(arrays)
        rows, columns = feeds["attention_mask"].shape
        if columns == 0:  # onnxruntime goes through no loop of no steps
            feeds = {name: np.zeros((rows, 1, *array.shape[2:]), np.int64) for name, array in feeds.items()}
        if state is not None:
            feeds |= self._checked_state(state, rows)
        found = self.session.run(names, feeds, self._run_options)
        return {
            name: _without_columns(array, self.outputs[name]) if columns == 0 else array
            for name, array in zip(names, found, strict=True)
        }

    def encode(
        self,
        texts: Sequence[Text],
        layers: str | int = "mix",
        pooling: str | None = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        keep_boundaries: bool = False,
    ) -> Any:
        """The vectors of texts, an array (words, D) for each, or (L + 1, words, D).

        Args:
            texts: Texts, or lists of words.
            layers: `"mix"` for what the model gives as `last_hidden_state`, `"top"`, the plain `"average"`, `"all"`,
                or the number of a layer: 0 is the words without their context.
            pooling: `None` for a vector a word, or how they become one: their `"mean"`, `"max"`, both with
                `"mean_max"`, or the vectors at the end and at the beginning with `"boundary"`. A text without words
                is pooled from its boundaries. The result is one array then, (texts, D), (texts, 2D) for two poolings,
                or (texts, L + 1, D).
            batch_tokens: Words, boundaries and padding included, to compute at a time.
            keep_boundaries: Whether the vectors of `<S>` and `</S>` are part of the result.
        """
        self.check_vectors(layers, pooling)
        vectors = self.vectors_of(self.tokenizer.read(texts, None), layers, pooling, batch_tokens, keep_boundaries)
        if pooling is None:
            return vectors
        if not vectors:
            raise ValueError("There is no text: without one, pooled vectors cannot be put into one array.")
        return np.stack(vectors)

    def vectors_of(
        self,
        sentences: Sequence[Sentence],
        layers: str | int = "mix",
        pooling: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        keep_boundaries: bool = False,
    ) -> list[np.ndarray]:
        """As `encode`, of what the tokenizer has read; always an array for each."""
        found: list[Any] = [None] * len(sentences)
        name = "last_hidden_state" if layers == "mix" else "hidden_states"
        for rows in self._batches(sentences, batch_tokens):
            arrays = self.tokenizer.padded([sentences[row] for row in rows])
            vectors = self.run(arrays, [name])[name]
            if layers != "mix":
                vectors = self._chosen(vectors, layers)
            for number, row in enumerate(rows):
                of_text = vectors[..., number, : len(sentences[row].ids), :]
                found[row] = self._finished(of_text, pooling, keep_boundaries)
        return found

    def classify(
        self, texts: Sequence[Text], pairs: Sequence[Text] | None = None, batch_tokens: int = BATCH_TOKENS
    ) -> list[Any]:
        """The labels of texts, with their probabilities.

        Args:
            texts: Texts, or lists of words.
            pairs: Second texts, if the model classifies pairs.
            batch_tokens: Words, boundaries and padding included, to compute at a time.

        Returns:
            Of a model that labels words, for each text a list of `{"word", "label", "score"}`; of one that labels
            texts, for each text `{"label", "score"}`, a list of these for all labels if there may be several, or a
            number if it predicts numbers.
        """
        self._check_task("classify", "token-classification", "sequence-classification")
        if self.reads_pairs != (pairs is not None):
            raise ValueError(
                f"This model reads {'pairs of texts' if self.reads_pairs else 'single texts'}, but pairs are "
                f"{'missing' if self.reads_pairs else 'given'}."
            )
        return self.labels_of(self.tokenizer.read(texts, pairs), batch_tokens)

    def labels_of(self, sentences: Sequence[Sentence], batch_tokens: int = BATCH_TOKENS) -> list[Any]:
        """As `classify`, of what the tokenizer has read."""
        found: list[Any] = [None] * len(sentences)
        first, last = self.tokenizer.added_boundaries
        for rows in self._batches(sentences, batch_tokens):
            logits = self.run(self.tokenizer.padded([sentences[row] for row in rows]), ["logits"])["logits"]
            for number, row in enumerate(rows):
                if self.task == "sequence-classification":
                    found[row] = text_labels(logits[number], self.labels, self.config["problem_type"])
                else:
                    chosen = slice(first, len(sentences[row].ids) - last)
                    found[row] = word_labels(sentences[row].words[chosen], logits[number, chosen], self.labels)
        return found

    @property
    def reads_pairs(self) -> bool:
        """Whether a text has a second one."""
        return self.config["num_sentences"] == 2 and self.task == "sequence-classification"

    def check_vectors(self, layers: Any, pooling: Any) -> None:
        """Raises if the model gives no such vectors."""
        self._check_task("encode", "features")
        top = self.config["num_hidden_layers"]
        is_number = isinstance(layers, int) and not isinstance(layers, bool) and 0 <= layers <= top
        if not is_number and layers not in LAYERS:
            raise ValueError(
                f"layers={layers!r} is not possible: it is {_listed(LAYERS)}, or a number from 0 to {top}."
            )
        if pooling is not None and pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r} is not possible: it is {_listed(POOLINGS)}, or None.")

    # --- What is asked for -------------------------------------------------------------------------------------------

    def _check_task(self, method: str, *tasks: str) -> None:
        if self.task not in tasks:
            raise ValueError(
                f"{method} is for models that were exported with --task {' or '.join(tasks)}, but this one is for "
                f"{self.task}."
            )

    def _checked(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays that the model reads; refuses what does not fit."""
        missing = [name for name in self.inputs if name not in arrays]
        if missing:
            raise ValueError(f"{missing[0]} is missing: this model reads {', '.join(self.inputs)}.")
        feeds = {name: np.asarray(arrays[name]).astype(np.int64, copy=False) for name in self.inputs}
        shape = feeds["attention_mask"].shape
        largest = {
            "character_ids": self.config["char_vocab_size"],
            "input_ids": self.config["vocab_size"],
            "word_vector_ids": self.config["word_vector_vocab_size"],
            "predicate_ids": 2,
        }
        for name, array in feeds.items():
            if array.ndim != (3 if name == "character_ids" else 2) or array.shape[:2] != shape:
                raise ValueError(
                    f"{name} has the shape {array.shape}, but attention_mask is (batch, words) = {shape}."
                )
            if name in largest and array.size and not (array.min() >= 0 and array.max() < largest[name]):
                wrong = array.min() if array.min() < 0 else array.max()
                raise ValueError(
                    f"{name} has the value {wrong}, but this model knows the ids 0 to {largest[name] - 1}."
                )
        width = self.config["max_characters_per_token"]
        if "character_ids" in feeds and feeds["character_ids"].shape[2] > width:
            raise ValueError(
                f"character_ids has {feeds['character_ids'].shape[2]} characters a word, but this model reads at most "
                f"{width}."
            )
        return feeds

    def _checked_state(self, state: tuple[np.ndarray, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        if not self.state_inputs:
            raise ValueError(f"A model for {self.task} takes no state.")
        layers = self.config["num_hidden_layers"]
        feeds = {}
        for name, part, size in zip(
            ("initial_hidden", "initial_cell"), state, ("projection_size", "cell_size"), strict=True
        ):
            expected = (layers, rows, 2 * self.config[size])
            if part.shape != expected:
                raise ValueError(f"The state for {name} has the shape {part.shape}, but this batch needs {expected}.")
            feeds[name] = part.astype(np.float32, copy=False)
        return feeds

    def _batches(self, sentences: Sequence[Sentence], batch_tokens: int) -> Iterator[list[int]]:
        """Numbers of sentences to read together: of similar length, so that there is little padding."""
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens={batch_tokens} is not possible: it must be 1 or more.")
        lengths = [len(sentence.ids) for sentence in sentences]
        if self.config["mix_layer_norm"] == "batch":  # such vectors would depend on the texts beside them
            batch_tokens = 1
        batch: list[int] = []
        for row in sorted(range(len(sentences)), key=lengths.__getitem__, reverse=True):
            if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _chosen(self, layers: np.ndarray, choice: str | int) -> np.ndarray:
        """(B, T, D) of all layers (L + 1, B, T, D), or all of them."""
        if choice == "average":
            return layers.mean(axis=0)
        if choice == "all":
            return layers
        return layers[-1 if choice == "top" else choice]

    def _finished(self, vectors: np.ndarray, pooling: str | None, keep_boundaries: bool) -> np.ndarray:
        """The result for a text from what was read of it, (T, D) or (L + 1, T, D) with boundaries."""
        first, last = self.tokenizer.added_boundaries
        inner = vectors[..., first : vectors.shape[-2] - last, :]
        if pooling is None:
            return vectors if keep_boundaries else inner
        with_words = vectors if keep_boundaries or inner.shape[-2] == 0 else inner
        return _pooled(vectors if pooling == "boundary" else with_words, pooling)


# --- Logits to labels ------------------------------------------------------------------------------------------------


def text_labels(logits: np.ndarray, labels: Sequence[str], problem: str | None) -> Any:
    """The label of a text with its probability, all labels if there may be several, or a number, from logits (K,)."""
    if problem == "regression" or (problem is None and len(logits) == 1):
        return float(logits[0]) if len(logits) == 1 else [float(value) for value in logits]
    if problem == "multi_label_classification":
        scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return [{"label": label, "score": float(score)} for label, score in zip(labels, scores, strict=True)]
    return _best(logits, labels)


def word_labels(words: Iterable[str], logits: np.ndarray, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The label of each word with its probability, from logits (words, K)."""
    return [{"word": word, **_best(scores, labels)} for word, scores in zip(words, logits, strict=True)]


def _best(logits: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    best = int(logits.argmax())
    return {"label": labels[best], "score": float(shifted[best] / shifted.sum())}


def _pooled(vectors: np.ndarray, pooling: str) -> np.ndarray:
    """(..., T, D) to (..., D) or (..., 2D); zeros if there is no word."""
    if vectors.shape[-2] == 0:
        vectors = np.zeros((*vectors.shape[:-2], 1, vectors.shape[-1]), vectors.dtype)
    if pooling == "boundary":
        return np.concatenate([vectors[..., -1, :], vectors[..., 0, :]], axis=-1)
    parts = {"mean": vectors.mean(axis=-2), "max": vectors.max(axis=-2)}
    return np.concatenate([part for name, part in parts.items() if name in pooling], axis=-1)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _without_columns(array: np.ndarray, shape: Sequence[Any]) -> np.ndarray:
    """The result without the position that was put in place of none."""
    return np.take(array, [], axis=list(shape).index("words")) if "words" in shape else array


__all__ = ["ElmoOnnx", "OnnxTokenizer", "text_labels", "word_labels"]
