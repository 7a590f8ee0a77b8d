# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Text of any amount to ELMo vectors: `ElmoEmbedder`.

Sentences are read ahead some at a time, sorted by length, packed into batches of a number of words, and handed out in
the order in which they came. Those that would make a batch of a few rows only are read together and in pieces: first
all of them from the end to the beginning, then from the beginning to the end, each direction with its own state. If
the state is carried from text to text, none of this is done: texts are read in their order.

Shapes are written with these letters: B batch, T words of the longest sentence, N words of a batch without padding,
n words of a piece, P projection, H cell, L LSTM layers, D = 2P.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import logging

from .configuration_elmo import ElmoConfig
from .fast_paths import WordCache, with_word_cache
from .feature_cache import _evaluating
from .messages import reading_weights
from .modeling_elmo import ElmoModel
from .packing import ElmoState, PackedWords, sentence_by_sentence
from .quantization import Quantization
from .quantization import quantize as quantize_model
from .scoring import sentence_windows
from .tokenization_elmo import ElmoTokenizer

# A text, or a list of words.
Text: TypeAlias = str | Sequence[str]
Layers: TypeAlias = Literal["mix", "top", "average", "all"] | int
Pooling: TypeAlias = Literal["mean", "max", "mean_max", "boundary"]
State: TypeAlias = Literal["zero", "warm", "carry"]
Vectors: TypeAlias = np.ndarray | Tensor

LAYERS = ("mix", "top", "average", "all")
POOLINGS = ("mean", "max", "mean_max", "boundary")
STATES: tuple[State, ...] = ("zero", "warm", "carry")
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}

BATCH_TOKENS = 4096
BATCHES_AHEAD = 8  # so many batches are read ahead; more would sort better, and keep more vectors in memory
REMEMBERED_WORDS = 2**15  # a stream computes the vectors of words that it met lately only once
FEWEST_ROWS = 8  # sentences so long that a batch has less of them are read in pieces

WHITE_SPACE = re.compile(r"\s")


class Progress(Protocol):
    """A bar that shows how many words were read."""

    def update(self, n: int) -> Any:
        """Moves it on by so many words."""


@dataclass(frozen=True)
class _Request:
    """What is asked for, checked."""

    layers: Layers
    pooling: Pooling | None
    batch_tokens: int
    dtype: torch.dtype
    keep_boundaries: bool
    as_tensors: bool
    mix_by_sentence: bool  # the mix depends on all words that are mixed at a time, so these must be one sentence

    @property
    def read_layers(self) -> Layers:
        """What is taken from the model."""
        return "all" if self.mix_by_sentence else self.layers

    @property
    def read_dtype(self) -> torch.dtype | None:
        """Rounding comes last."""
        return self.dtype if self.pooling is None and not self.mix_by_sentence else None


class ElmoEmbedder:
    """Computes the vectors of any number of texts, of any length, in bounded memory.

    The vectors of a text do not depend on other texts, unless the state is carried; the order of the results is that
    of the texts. A text is a string, which the tokenizer splits into words, or a list of words. It is read as one
    sentence, however long.

    What a text starts from is its `state`. `"zero"` is nothing. `"warm"` is the mean state after a sentence, which a
    folder made by `hf-elmo warm-state` has with its weights. `"carry"` is what the text before left, as in the
    original programs: texts are read in the given order, `carry_batch` of them at a time, and each starts where the
    one at the same place of the batch before ended; every call begins with zeros. So vectors depend on the order and
    on `carry_batch`.

    Args:
        model: An `ElmoModel`, or a model with a head, whose encoder is used. It is used as it is, not copied, and
            moved if `device` or `dtype` says so.
        tokenizer: The tokenizer of the model; by default one for models that read bytes, as the published ones do.
        device: Where to compute; by default where the model is.
        dtype: The precision to compute in; by default that of the model.
        state: `"zero"`, `"warm"` or `"carry"`; by default what the model's config says, zero or warm.
        carry_batch: With `"carry"`, how many texts are read at a time.
        batch_invariant: Whether the vectors of a text are the same to the last bit, whatever it is encoded with and
            however many threads the process has; otherwise they are up to rounding. Texts are read one by one then,
            with one thread, which takes longer. By default so if the state is warm.

    Example:
        >>> from hf_elmo import ELMO_MINI
        >>> embedder = ElmoEmbedder.from_pretrained(ELMO_MINI)  # or your folder, or a name on the Hub
        >>> vectors = embedder.encode(["A river bank.", "A savings bank."])
        >>> [len(sentence) for sentence in vectors]
        [4, 4]
    """

    def __init__(
        self,
        model: Any,
        tokenizer: ElmoTokenizer | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        state: State | None = None,
        carry_batch: int = 1,
        batch_invariant: bool | None = None,
    ):
        encoder = getattr(model, "base_model", model)
        if getattr(getattr(encoder, "config", None), "model_type", None) != ElmoConfig.model_type:
            raise ValueError(
                f"model is a {type(model).__name__}, but an embedder needs an ELMo model; for a folder or a name on "
                "the Hub, call ElmoEmbedder.from_pretrained(name)."
            )
        self.model: ElmoModel = encoder
        self.tokenizer = _default_tokenizer(self.model.config) if tokenizer is None else tokenizer
        if device is not None or dtype is not None:
            cast(nn.Module, self.model).to(device=device, dtype=None if dtype is None else _dtype(dtype))
        self.state: State = self.model.config.initial_state if state is None else state
        check_state(cast(ElmoConfig, self.model.config), self.state, carry_batch, batch_invariant)
        self.carry_batch = carry_batch
        self.batch_invariant = self.state == "warm" if batch_invariant is None else batch_invariant
        self._warned = False

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        state: State | None = None,
        carry_batch: int = 1,
        batch_invariant: bool | None = None,
        quantize: Quantization | None = None,
        **options: Any,
    ) -> "ElmoEmbedder":
        """An embedder with the model and the tokenizer of a folder or of a repository on the Hub.

        Args:
            name_or_path: The folder or repository, of an encoder or of a model with a head.
            device: Where to compute; by default on the GPU if there is one.
            dtype: The precision to compute in; by default the one the weights are stored in.
            state: As of the class, and so are `carry_batch` and `batch_invariant`.
            carry_batch: As of the class.
            batch_invariant: As of the class.
            quantize: `"int8"` or `"float16"` for smaller weights, which is less exact, and faster on the CPU if the
                model is large; by default the weights as they are. It computes on the CPU and in single precision, see
                `quantize`.
            options: For `from_pretrained` of the model and of the tokenizer: `revision`, `token` and the like.
        """
        if device is None:
            device = "cuda" if torch.cuda.is_available() and quantize is None else "cpu"
        if quantize is not None and dtype is None:
            dtype = torch.float32
        wanted = "auto" if dtype is None else _dtype(dtype)
        with reading_weights(name_or_path, "get them again"):  # what is missing is told here
            loaded: Any = ElmoModel.from_pretrained(
                name_or_path, dtype=wanted, use_safetensors=True, output_loading_info=True, **options
            )
        model, report = loaded
        # The mix of a model that was trained without a task weighs all layers the same.
        missing = sorted(name for name in report["missing_keys"] if not name.startswith("mixes."))
        if missing:
            raise ValueError(f"{name_or_path} lacks weights: {', '.join(missing[:5])}. Get them again.")
        if quantize is not None:
            quantize_model(model, quantize)
        return cls(
            model.eval(),
            ElmoTokenizer.from_pretrained(name_or_path, **options),
            device=device,
            state=state,
            carry_batch=carry_batch,
            batch_invariant=batch_invariant,
        )

    def encode(
        self,
        texts: str | Iterable[Text],
        layers: Layers = "mix",
        pooling: Pooling | None = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        dtype: str | torch.dtype | None = None,
        is_split_into_words: bool | None = None,
        keep_boundaries: bool = False,
        as_tensors: bool = False,
        show_progress: bool | Progress | None = None,
    ) -> Any:
        """The vectors of texts.

        Args:
            texts: Texts and lists of words; or a single text, as a string.
            layers: `"mix"` for what the model gives as `last_hidden_state`, `"top"`, the plain `"average"`, `"all"`,
                or the number of one: 0 is the words without their context, `num_hidden_layers` the top.
            pooling: `None` for a vector a word, or how they become one: their `"mean"`, `"max"`, both with
                `"mean_max"`, or the vectors at the end and at the beginning with `"boundary"`. A text without words
                is pooled from its boundaries.
            batch_tokens: Words, boundaries included, to compute at a time. It changes memory and speed only; how many
                texts are read at a time with a carried state, or if `batch_invariant`, does not depend on it.
            dtype: Precision of the results: `"float32"`, `"float16"` and so on; by default that of the model.
            is_split_into_words: `True` if all texts must be lists of words, `False` if all must be strings; by
                default each of them can be the one or the other.
            keep_boundaries: Whether the vectors of `<S>` and `</S>` are part of the result.
            as_tensors: Whether to return tensors (on the CPU) and not numpy arrays.
            show_progress: Whether to show a bar with words per second, by default on a terminal if it takes longer; or
                a bar to use, of tqdm's kind, whose `update` is called with numbers of words.

        Returns:
            A list with an array (words, D) for each text, or (L + 1, words, D) with `layers="all"`; with `pooling` one
            array (texts, D), (texts, 2D) for two poolings, or (texts, L + 1, D). For a single text, only its array.
        """
        options: dict[str, Any] = {
            "layers": layers,
            "pooling": pooling,
            "batch_tokens": batch_tokens,
            "dtype": dtype,
            "is_split_into_words": is_split_into_words,
            "keep_boundaries": keep_boundaries,
            "as_tensors": as_tensors,
            "show_progress": show_progress,
        }
        if isinstance(texts, str):
            return next(self.encode_stream([texts], **options))
        if is_split_into_words is None:
            self._warn_of_words_as_texts(texts)
        results = list(self.encode_stream(texts, **options))
        if pooling is None:
            return results
        if not results:
            raise ValueError("There is no text: without one, pooled vectors cannot be put into one array.")
        return torch.stack(cast(list[Tensor], results)) if as_tensors else np.stack(results)

    def encode_stream(
        self,
        texts: Iterable[Text],
        layers: Layers = "mix",
        pooling: Pooling | None = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        dtype: str | torch.dtype | None = None,
        is_split_into_words: bool | None = None,
        keep_boundaries: bool = False,
        as_tensors: bool = False,
        show_progress: bool | Progress | None = None,
    ) -> Iterator[Vectors]:
        """The vectors of texts, one by one and in their order, of which there may be endlessly many.

        Texts are taken as they are needed: at most about eight batches are read ahead.

        Args:
            texts: Texts and lists of words, from a list, a generator or anything else that can be gone through.
            layers: As of `encode`, and so are all others.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single string: give encode_stream an iterable of texts, or call encode.")
        request = self._request(layers, pooling, batch_tokens, dtype, keep_boundaries, as_tensors)
        sentences = (self._words(text, number, is_split_into_words) for number, text in enumerate(texts))
        return self._stream(sentences, request, show_progress)

    def words(self, text: Text) -> list[str]:
        """The words of a text: those that its vectors are for."""
        return self._words(text, 0, None)

    # --- What is asked for -------------------------------------------------------------------------------------------

    def _request(
        self,
        layers: Layers,
        pooling: Pooling | None,
        batch_tokens: int,
        dtype: str | torch.dtype | None,
        keep_boundaries: bool,
        as_tensors: bool,
    ) -> _Request:
        config = self.model.config
        check_layers(cast(ElmoConfig, config), layers)
        if pooling is not None and pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r} is not possible: it is {_listed(POOLINGS)}, or None.")
        if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise ValueError(f"batch_tokens={batch_tokens!r} is not possible: it must be a whole number from 1 on.")
        chosen = self.model.dtype if dtype is None else _dtype(dtype)
        if chosen == torch.bfloat16 and not as_tensors:
            if dtype is not None:
                raise ValueError("numpy has no bfloat16: choose another dtype, or as_tensors=True.")
            chosen = torch.float32
        return _Request(
            layers=config.num_hidden_layers if layers == "top" else layers,
            pooling=pooling,
            batch_tokens=batch_tokens,
            dtype=chosen,
            keep_boundaries=keep_boundaries,
            as_tensors=as_tensors,
            mix_by_sentence=layers == "mix" and config.mix_layer_norm == "batch",
        )

    def _words(self, text: Any, number: int, is_split_into_words: bool | None) -> list[str]:
        if isinstance(text, str):
            if is_split_into_words:
                raise ValueError(
                    f"Text {number} is the string {text!r:.60}, but is_split_into_words=True says that it is a list "
                    "of words."
                )
            return self.tokenizer.tokenize(text)
        if not isinstance(text, (list, tuple)) or is_split_into_words is False:
            wanted = "a string" if is_split_into_words is False else "a string or a list of words"
            raise ValueError(f"Text {number} is {text!r:.60}, a {type(text).__name__}, but it must be {wanted}.")
        for word in text:
            if not isinstance(word, str):
                raise ValueError(f"Text {number} has the word {word!r:.60}, a {type(word).__name__}, not a string.")
            if not self._warned and WHITE_SPACE.search(word):
                self._warned = True
                warnings.warn(
                    f"Text {number} has the word {word!r:.60}, with white space in it, which gets a single vector. "
                    "Texts that are not split into words are strings, not lists.",
                    stacklevel=4,
                )
        return list(text)

    def _warn_of_words_as_texts(self, texts: Iterable[Text]) -> None:
        if self._warned or not isinstance(texts, (list, tuple)) or len(texts) < 3:
            return
        if all(isinstance(text, str) and text.isascii() and not WHITE_SPACE.search(text) for text in texts):
            self._warned = True
            warnings.warn(
                f"{len(texts)} texts of a word each are encoded. If they are the words of one sentence, put them into "
                "a list of their own: encode([words]). If not, say so with is_split_into_words=False.",
                stacklevel=3,
            )

    # --- Texts in, vectors out ---------------------------------------------------------------------------------------

    def _stream(
        self, sentences: Iterator[list[str]], request: _Request, show_progress: bool | Progress | None
    ) -> Iterator[Vectors]:
        cache = WordCache(REMEMBERED_WORDS)  # of its own, so that a stream does not depend on what was read before it
        with _bar(show_progress) as bar:
            if self.state == "carry":
                yield from self._stream_carrying(sentences, request, cache, bar.update)
                return
            for window in sentence_windows(sentences, BATCHES_AHEAD * request.batch_tokens):
                with self._reading(cache):  # not while the generator waits, as others may use the model meanwhile
                    results = self._encode_window(window, request, bar.update)
                results.reverse()
                while results:
                    yield results.pop()

    def _stream_carrying(
        self, sentences: Iterator[list[str]], request: _Request, cache: WordCache, progress: Callable[[int], Any]
    ) -> Iterator[Vectors]:
        """Reads the sentences in their order, each from the state of its place in the batch before."""
        state: ElmoState | None = None
        boundaries = self._boundaries()
        while batch := list(islice(sentences, self.carry_batch)):
            rows, longest = len(batch), max(map(len, batch)) + sum(boundaries)
            with self._reading(cache):
                start = self._zeros(rows) if state is None else state.for_batch(rows)
                read = self._read_in_pieces if rows * longest > request.batch_tokens else self._read
                vectors, state = read(batch, request, start)  # only the last batch may be smaller
                results = [self._finished(vectors_of_one, boundaries, request) for vectors_of_one in vectors]
            progress(sum(map(len, batch)))
            yield from results

    def _encode_window(
        self, window: list[list[str]], request: _Request, progress: Callable[[int], Any]
    ) -> list[Vectors]:
        results: list[Any] = [None] * len(window)
        boundaries = self._boundaries()
        lengths = [len(words) + sum(boundaries) for words in window]
        for numbers, read in self._batches(lengths, request.batch_tokens):
            batch = [window[number] for number in numbers]
            rows = len(batch)
            start = self.model.first_state(rows) if self.state == "warm" else self._zeros(rows)
            for number, vectors in zip(numbers, read(batch, request, start)[0], strict=True):
                results[number] = self._finished(vectors, boundaries, request)
            progress(sum(map(len, batch)))
        return results

    def _zeros(self, rows: int) -> ElmoState:
        weight = next(self.model.parameters()).detach()
        return ElmoState.zeros(cast(ElmoConfig, self.model.config), rows, weight)

    @contextmanager
    def _reading(self, cache: WordCache) -> Iterator[None]:
        """Makes the model ready, and afterwards as it was; a cache of words that it has already is used.

        None is used if texts are read one by one. Other threads may do the same at the same time.
        """
        alone = sentence_by_sentence() if self.batch_invariant else nullcontext()
        with (
            _evaluating(self.model),
            torch.no_grad(),
            torch.autocast(self.model.device.type, enabled=False),
            with_word_cache(cache),
            alone,
        ):
            yield

    def _batches(self, lengths: list[int], batch_tokens: int) -> Iterator[tuple[list[int], Callable[..., Any]]]:
        """Numbers of sentences that are read at a time, longer ones first, and how."""
        if self.batch_invariant:
            for number, length in enumerate(lengths):
                yield [number], self._read_in_pieces if length > BATCH_TOKENS else self._read
            return
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        long = [number for number in order if lengths[number] * FEWEST_ROWS > batch_tokens]
        if long:
            yield long, self._read_in_pieces
        start = len(long)
        while start < len(order):
            rows = max(batch_tokens // max(lengths[order[start]], 1), 1)
            yield order[start : start + rows], self._read
            start += rows

    def _boundaries(self) -> tuple[int, int]:
        """How many positions are before and after the words of a sentence."""
        return int(self.tokenizer.add_bos_token), int(self.tokenizer.add_eos_token)

    def _finished(self, vectors: Tensor, boundaries: tuple[int, int], request: _Request) -> Vectors:
        """The result for a sentence from what was read of it, (T, D) or (L + 1, T, D) with boundaries."""
        if request.mix_by_sentence:
            vectors = self._mix(list(vectors.to(self.model.device)))
        before, after = boundaries
        inner = vectors[..., before : vectors.shape[-2] - after, :]
        if request.pooling is not None:
            with_words = vectors if request.keep_boundaries or inner.shape[-2] == 0 else inner
            vectors = _pooled(vectors if request.pooling == "boundary" else with_words, request.pooling)
        elif not request.keep_boundaries:
            vectors = inner
        vectors = vectors.to("cpu", request.dtype)
        if request.dtype == torch.float16 and not bool(vectors.isfinite().all()):
            raise ValueError("A vector has values above 65504, which do not fit float16: choose dtype='float32'.")
        return vectors if request.as_tensors else vectors.numpy()

    # --- Batches -----------------------------------------------------------------------------------------------------

    def _inputs(self, batch: list[list[str]]) -> dict[str, Tensor]:
        encoded = self.tokenizer(
            batch, is_split_into_words=True, padding=True, padding_side="right", return_tensors="pt"
        )
        names = ("input_ids", "character_ids", "attention_mask")
        return {name: encoded[name].to(self.model.device) for name in names}

    def _read(self, batch: list[list[str]], request: _Request, start: ElmoState) -> tuple[list[Tensor], ElmoState]:
        """What is asked for of each sentence, (T, D) or (L + 1, T, D), by one call of the model; and its state.

        The state to start from has a row for each sentence.
        """
        inputs = self._inputs(batch)
        is_mix = request.read_layers == "mix"
        outputs = self.model(
            **inputs, initial_state=start, output_hidden_states=not is_mix, output_state=True, return_dict=True
        )
        vectors = outputs.last_hidden_state if is_mix else _chosen(outputs.hidden_states, request.read_layers)
        vectors = vectors.to("cpu", request.read_dtype or vectors.dtype)
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        # Copies, as parts of a batch would keep all of it in memory.
        return [vectors[row, ..., :length, :].clone() for row, length in enumerate(lengths)], outputs.state

    def _read_in_pieces(
        self, batch: list[list[str]], request: _Request, start: ElmoState
    ) -> tuple[list[Tensor], ElmoState]:
        """As `_read`, for sentences that may be long; only what is returned, and half of it, grows with them."""
        inputs = self._inputs(batch)
        packing = PackedWords.from_mask(inputs["attention_mask"].bool())
        pieces = _pieces(packing.batch_sizes, BATCH_TOKENS if self.batch_invariant else request.batch_tokens)
        words = self._encode_words(inputs, packing, pieces)  # (N, P)
        bilstm = self.model.bilstm
        rows = packing.row_order[: packing.batch_sizes[0]]  # those that are not empty
        start = ElmoState(*(part.to(words) for part in start))
        from_left, from_right = _directions(start, rows)
        backward = [torch.empty_like(words) for _ in bilstm.backward_layers]
        for piece, layers in self._sweep(bilstm.backward_layers, words, packing.reverse, pieces, from_right):
            for whole, layer in zip(backward, layers, strict=True):
                whole[piece] = layer

        result: Tensor | None = None
        in_order = torch.arange(len(words), device=words.device)
        for piece, layers in self._sweep(bilstm.forward_layers, words, in_order, pieces, from_left):
            halves = [(words[piece], words[piece]), *zip(layers, (whole[piece] for whole in backward), strict=True)]
            both = [torch.cat(pair, dim=1) for pair in halves]  # L + 1 of (n, D)
            vectors = self._mix(both) if request.read_layers == "mix" else _chosen(both, request.read_layers)
            if result is None:
                shape = (*vectors.shape[:-2], len(words), vectors.shape[-1])
                result = torch.empty(shape, dtype=request.read_dtype or vectors.dtype)
            result[..., piece.cpu(), :] = vectors.to("cpu", result.dtype)
        ended = ElmoState(
            hidden=start.hidden.index_copy(1, rows, torch.cat([from_left.hidden, from_right.hidden], dim=2)),
            cell=start.cell.index_copy(1, rows, torch.cat([from_left.cell, from_right.cell], dim=2)),
        )
        return _by_sentence(cast(Tensor, result), packing, inputs["attention_mask"]), ended

    def _encode_words(self, inputs: dict[str, Tensor], packing: PackedWords, pieces: list["_Piece"]) -> Tensor:
        """(N, P) word vectors, computed piece by piece."""
        characters, word_ids = packing.pack(inputs["character_ids"]), packing.pack(inputs["input_ids"])
        encode = self.model.character_encoder
        return torch.cat(
            [encode(characters[piece.start : piece.end], word_ids[piece.start : piece.end]) for piece in pieces]
        )

    def _sweep(
        self, stack: nn.ModuleList, words: Tensor, order: Tensor, pieces: list["_Piece"], state: ElmoState
    ) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Reads the words in this order with one direction; yields the places of each piece and L layers (n, P).

        The state of the direction, (L, rows, P) and (L, rows, H), goes along: in the end it is that after the words.
        """
        for piece in pieces:
            rows, places = piece.batch_sizes[0], order[piece.start : piece.end]
            layers, state.hidden[:, :rows], state.cell[:, :rows] = self.model.bilstm.read(
                stack, words[places], piece.batch_sizes, state.hidden[:, :rows], state.cell[:, :rows]
            )
            yield places, layers

    def _mix(self, layers: list[Tensor]) -> Tensor:
        """L + 1 layers (n, D) to the vectors (n, D) that the model makes of them."""
        everywhere = torch.ones(1, len(layers[0]), dtype=torch.long, device=layers[0].device)
        return self.model.combine_layers([layer.unsqueeze(0) for layer in layers], everywhere)[0].squeeze(0)


@dataclass(frozen=True)
class _Piece:
    """Some steps of packed words: where they are, and how many sentences each step has."""

    start: int
    end: int
    batch_sizes: list[int]


def _directions(state: ElmoState, rows: Tensor) -> list[ElmoState]:
    """The state of these rows, forward and backward; copies."""
    hidden, cell = (part[:, rows].chunk(2, dim=2) for part in state)
    return [ElmoState(hidden=hidden[side].clone(), cell=cell[side].clone()) for side in range(2)]


def _pieces(batch_sizes: list[int], words: int) -> list[_Piece]:
    """Cuts the steps of packed words into pieces of at most so many words, or of one step."""
    pieces: list[_Piece] = []
    first = start = 0
    ends = list(accumulate(batch_sizes))
    for step, end in enumerate(ends, start=1):
        if step == len(ends) or ends[step] - start > words:
            pieces.append(_Piece(start, end, batch_sizes[first:step]))
            first, start = step, end
    return pieces


def _by_sentence(packed: Tensor, packing: PackedWords, mask: Tensor) -> list[Tensor]:
    """(N, D) or (L + 1, N, D) step by step to the sentences."""
    lengths = mask.sum(dim=1).tolist()
    if len(lengths) == 1:
        return [packed]  # is in order, and may be too large to be copied
    places = packing.positions.argsort().cpu()  # where the words are, sentence after sentence
    return [packed[..., chosen, :] for chosen in places.split(lengths)]


def _chosen(layers: Sequence[Tensor], choice: Layers) -> Tensor:
    """(..., T, D) or, for all layers, (..., L + 1, T, D)."""
    if isinstance(choice, int):
        return layers[choice]
    stacked = torch.stack(list(layers), dim=-3)
    return stacked if choice == "all" else stacked.mean(dim=-3)


def _pooled(vectors: Tensor, pooling: Pooling) -> Tensor:
    """(..., T, D) to (..., D) or (..., 2D); zeros if there is no word."""
    if vectors.shape[-2] == 0:
        vectors = vectors.new_zeros(*vectors.shape[:-2], 1, vectors.shape[-1])
    if pooling == "boundary":
        return torch.cat([vectors[..., -1, :], vectors[..., 0, :]], dim=-1)
    parts = {"mean": vectors.mean(dim=-2), "max": vectors.amax(dim=-2)}
    return torch.cat([part for name, part in parts.items() if name in pooling], dim=-1)


def _bar(show_progress: bool | Progress | None) -> AbstractContextManager[Progress]:
    if not isinstance(show_progress, (bool, type(None))):
        return nullcontext(show_progress)
    hidden = None if show_progress is None else not show_progress  # None: on a terminal only
    return logging.tqdm(desc="ELMo", unit=" words", unit_scale=True, disable=hidden, delay=1)


def check_layers(config: ElmoConfig, layers: Any) -> None:
    """Raises if a model with this config has no such layers."""
    top = config.num_hidden_layers
    is_number = isinstance(layers, int) and not isinstance(layers, bool) and 0 <= layers <= top
    if not is_number and layers not in LAYERS:
        raise ValueError(f"layers={layers!r} is not possible: it is {_listed(LAYERS)}, or a number from 0 to {top}.")


def check_state(config: ElmoConfig, state: Any, carry_batch: Any = 1, batch_invariant: bool | None = None) -> None:
    """Raises if texts cannot be read in this way by a model with this config."""
    if state not in STATES:
        raise ValueError(f"state={state!r} is not possible: it is {_listed(STATES)}.")
    if state == "warm" and config.initial_state != "warm":
        raise ValueError(
            "state='warm' needs a model with a stored state (initial_state='warm'), and this one has none. Make a "
            "folder with one: hf-elmo warm-state FOLDER TEXT --output NEW_FOLDER"
        )
    if isinstance(carry_batch, bool) or not isinstance(carry_batch, int) or carry_batch < 1:
        raise ValueError(f"carry_batch={carry_batch!r} is not possible: it must be a whole number from 1 on.")
    if carry_batch != 1 and state != "carry":
        raise ValueError(f"carry_batch={carry_batch} is for state='carry', but the state is {state!r}.")
    if state == "carry" and batch_invariant:
        raise ValueError(
            "batch_invariant=True is not possible with state='carry': vectors depend on the texts before."
        )


def _default_tokenizer(config: ElmoConfig) -> ElmoTokenizer:
    tokenizer = ElmoTokenizer(max_characters_per_token=config.max_characters_per_token)
    usual = ElmoConfig()
    reads_bytes = config.char_vocab_size == usual.char_vocab_size
    if config.word_input != "characters" or not reads_bytes or config.character_markers != usual.character_markers:
        raise ValueError(
            "tokenizer is missing: this model has a vocabulary or an alphabet of its own, so give the tokenizer that "
            "came with it, or call ElmoEmbedder.from_pretrained(folder)."
        )
    return tokenizer


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if found not in DTYPES.values():
        raise ValueError(f"dtype={dtype!r} is not possible: it is {_listed(DTYPES)}.")
    return cast(torch.dtype, found)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


__all__ = ["ElmoEmbedder", "check_layers", "check_state"]
