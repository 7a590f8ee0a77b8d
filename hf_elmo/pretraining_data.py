# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences to the batches of pretraining: an endless stream cut into windows, or sentences side by side.

All processes and workers pack the same sentences into the same batches, and each spells what is its own. So a batch
does not depend on their number, and neither does the position after it, which travels with it.

Words are what white space parts. They have the ids and the characters, bytes or code points, that the tokenizer gives
to words in lists; the id of one that the vocabulary does not have is that of `<UNK>`. Only `<S>`, `</S>`, `<UNK>` and
`<PAD>`, or what the tokenizer calls them, are ordinary unknown words where the text has them: it cannot make a
boundary of a sentence. (The original programs would take them for boundaries.)
"""

import atexit
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .corpus import BUFFER_BYTES, CorpusReader
from .modeling_elmo_pretraining import IGNORED
from .text_files import ErrorPolicy, start_method
from .tokenization_elmo import (
    BEGIN_WORD,
    END_WORD,
    PAD_WORD,
    SENTENCE_BOUNDARIES,
    ElmoCharacters,
    ElmoTokenizer,
    character_row,
)
from .vocabulary import SPECIAL_WORDS

Mode: TypeAlias = Literal["stream", "sentences"]

STATE_VERSION = 1
REMEMBERED_WORDS = 2**17  # whose spelling is at hand; a row is 100 bytes, or 200 of code points

# What stands for the boundaries among words, where the text has strings only.
BEGIN, END = 0, 1
Word: TypeAlias = str | int
Sentence: TypeAlias = list[str]


@dataclass
class PretrainingBatch:
    """What `ElmoForPreTraining` reads in a step, and where the text stands after it.

    Args:
        inputs: Of this process, all int64. For a stream `forward_ids`, `forward_labels`, `backward_ids` and
            `backward_labels`, on request also `forward_word_ids` and `backward_word_ids`, as `forward_stream` takes
            them; for sentences `input_ids`, `character_ids`, `attention_mask` and `labels`, as `forward` takes them.
        num_predictions: Words and boundaries that each direction predicts in this batch, of all processes together.
        epoch: Of the text that is read next, from 0.
        state: The position after this batch, for `PretrainingData.load_state_dict`; JSON can hold it.
    """

    inputs: dict[str, Tensor]
    num_predictions: int
    epoch: int
    state: dict[str, Any]


# --- Packing ---------------------------------------------------------------------------------------------------------


@dataclass
class _Row:
    """What a row of the stream has still to read: sentences, of the first of which some predictions are made."""

    sentences: list[Sentence]
    next: int = 0  # number of the sentence
    done: int = 0  # of its predictions; it has one for each word and one for its end

    def take(self, room: int) -> "_Segment | None":
        """The predictions that come next, at most `room` of them and of one sentence."""
        if self.next == len(self.sentences):
            return None
        words, begin = self.sentences[self.next], self.done
        end = min(begin + room, len(words) + 1)
        self.done = end
        if end > len(words):
            self.next, self.done = self.next + 1, 0
        return words, begin, end


_Segment: TypeAlias = tuple[Sentence, int, int]  # a sentence, and which of its predictions
_Packed: TypeAlias = list[list[_Segment]]  # rows of a batch


class _Packer:
    """The rows of all processes, batch by batch, as lists of segments; a sentence as a row is one segment."""

    def __init__(self, reader: CorpusReader, settings: "_Settings"):
        self._reader = reader
        self._settings = settings
        self._rows = [_Row([]) for _ in range(settings.all_rows)]
        self._pending: list[Sentence] = []  # read, but not in a batch or row yet

    def next_batch(self) -> _Packed | None:
        """`None` after the last one."""
        packed = self._next_windows() if self._settings.mode == "stream" else self._next_sentences()
        return packed if any(packed) else None

    def _next_windows(self) -> _Packed:
        steps = self._settings.steps
        packed = []
        for row in self._rows:
            segments, room = [], steps
            while room:
                segment = row.take(room)
                if segment is not None:
                    segments.append(segment)
                    room -= segment[2] - segment[1]
                    continue
                row.sentences, row.next = self._next_of_a_row(), 0
                if not row.sentences:
                    break
            if room and not self._settings.complete:
                return []
            packed.append(segments)
        return packed

    def _next_of_a_row(self) -> list[Sentence]:
        """A sentence or a document; nothing at the end of the text."""
        if not self._settings.keep_documents:
            return list(islice(self._reader, 1))
        document, self._pending = self._pending or list(islice(self._reader, 1)), []
        if document:
            for words in self._reader:
                if self._reader.starts_document:
                    self._pending = [words]
                    break
                document.append(words)
        return document

    def _next_sentences(self) -> _Packed:
        limit = self._settings.max_sentence_words
        while len(self._pending) < self._settings.all_rows:
            words = next(self._reader, None)
            if words is None:
                break
            step = limit or len(words)
            self._pending += [words[start : start + step] for start in range(0, len(words), step)]
        sentences = self._pending[: self._settings.all_rows]
        del self._pending[: len(sentences)]
        return [[(words, 0, len(words) + 1)] for words in sentences]

    @property
    def epoch(self) -> int:
        return self._reader.epoch

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            **self._settings.of_the_state(),
            "reader": self._reader.state_dict(),
            "rows": [[row.sentences[row.next :], row.done] for row in self._rows],
            "pending": list(self._pending),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"The state of the data has version {state.get('version')!r}; this program reads version "
                f"{STATE_VERSION}."
            )
        for name, value in self._settings.of_the_state().items():
            if state[name] != value:
                raise ValueError(
                    f"The state of the data was saved with {name}={state[name]!r}, but now it is {value!r}: the "
                    "batches would be others. Use the same."
                )
        self._reader.load_state_dict(state["reader"])
        self._rows = [_Row(sentences, done=done) for sentences, done in state["rows"]]
        self._pending = list(state["pending"])


# --- Spelling --------------------------------------------------------------------------------------------------------


class _Ids(dict[Word, int]):
    """Word ids; words that are not there have that of `<UNK>`."""

    def __init__(self, tokenizer: ElmoTokenizer):
        super().__init__()
        words = tokenizer.get_vocab()
        for name in _names_of_no_words(tokenizer):
            words.pop(name, None)
        if not words:
            raise ValueError(
                "The tokenizer has no vocabulary, so there is no word to predict. Make one with `hf-elmo vocab`, and "
                "the tokenizer with ElmoTokenizer('vocab.txt')."
            )
        # Words of code points are looked up as far as they are read, so that longer ones are never found.
        self._longest = sys.maxsize if tokenizer.characters is None else tokenizer.max_characters_per_token - 2
        self.update({word: number for word, number in words.items() if len(word) <= self._longest})
        self[BEGIN], self[END] = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.unknown: int = tokenizer.unk_token_id

    def __missing__(self, word: str) -> int:
        if len(word) <= self._longest:
            return self.unknown
        return self.get(word[: self._longest], self.unknown)


def _names_of_no_words(tokenizer: ElmoTokenizer) -> set[str]:
    """What stands for boundaries, unknown words and padding, in the vocabulary or among the spellings."""
    specials = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    return {*map(str, specials), *(SENTENCE_BOUNDARIES if tokenizer.characters is None else ())}


class _Rows(dict[Word, bytes]):
    """Character rows of words, of the latest ones without being made again."""

    def __init__(self, tokenizer: ElmoTokenizer):
        super().__init__()
        self.width = tokenizer.max_characters_per_token
        self._characters = tokenizer.characters
        self._kept = _rows_of_boundaries(self._characters, self.width)
        self.dtype = np.dtype(np.uint16 if self._characters is None else np.uint32)
        self.update(self._kept)

    def __missing__(self, word: str) -> bytes:
        if len(self) >= REMEMBERED_WORDS:
            self.clear()
            self.update(self._kept)
        if self._characters is None:
            row = character_row.__wrapped__(word, self.width)  # past the cache of that function, which is smaller
        else:
            row = self._characters.row(word, self.width)
        self[word] = row
        return row


def _rows_of_boundaries(characters: ElmoCharacters | None, width: int) -> dict[Word, bytes]:
    """The rows of the boundaries, and of words of the text that look like them and are none."""
    if characters is not None:  # a string is always spelled
        return {
            BEGIN: characters.row(characters.begin_sentence, width),
            END: characters.row(characters.end_sentence, width),
        }
    rows: dict[Word, bytes] = {word: _row_of_bytes(word, width) for word in SENTENCE_BOUNDARIES}
    return rows | {BEGIN: character_row("<S>", width), END: character_row("</S>", width)}


def _row_of_bytes(word: str, width: int) -> bytes:
    row = np.full(width, PAD_WORD, dtype=np.uint16)
    spelling = [byte + 1 for byte in word.encode()[: width - 2]]
    row[: len(spelling) + 2] = [BEGIN_WORD, *spelling, END_WORD]
    return row.tobytes()


class _Speller:
    """Packed rows to arrays, of 16 bits for bytes. Workers hand them over so; tensors would go through files."""

    def __init__(self, tokenizer: ElmoTokenizer, word_ids: bool):
        self._ids = _Ids(tokenizer)
        self._rows = _Rows(tokenizer)
        self._padding: int = tokenizer.pad_token_id
        self._with_word_ids = word_ids

    def windows(self, packed: _Packed, steps: int) -> dict[str, np.ndarray]:
        """The inputs of `forward_stream`. Where a row has ended, boundaries are read and nothing is predicted."""
        forward: list[Word] = []
        backward: list[Word] = []
        forward_targets: list[Word] = []
        backward_targets: list[Word] = []
        is_predicted = np.zeros((len(packed), steps), dtype=bool)
        for row, segments in enumerate(packed):
            for words, begin, end in segments:
                # Of the sentence's predictions from `begin` to `end`, number k is made from the k-th word, and number
                # 0 from the boundary; the last one is the other boundary.
                length = len(words)
                first, last = max(begin, 1), min(end, length)
                if begin == 0:
                    forward.append(BEGIN)
                    backward.append(END)
                forward += words[first - 1 : end - 1]
                backward += words[length - end + 1 : length - first + 1][::-1]
                forward_targets += words[begin:last]
                backward_targets += words[length - last : length - begin][::-1]
                if end > length:
                    forward_targets.append(END)
                    backward_targets.append(BEGIN)
            missing = (row + 1) * steps - len(forward)
            is_predicted[row, : steps - missing] = True
            for words_of_all in (forward, forward_targets, backward, backward_targets):
                words_of_all += [END] * missing
        shape = (len(packed), steps)
        windows = {
            "forward_ids": self._characters(forward, shape),
            "forward_labels": self._labels(forward_targets, is_predicted),
            "backward_ids": self._characters(backward, shape),
            "backward_labels": self._labels(backward_targets, is_predicted),
        }
        if self._with_word_ids:
            windows["forward_word_ids"] = self._word_ids(forward).reshape(shape)
            windows["backward_word_ids"] = self._word_ids(backward).reshape(shape)
        return windows

    def sentences(self, packed: _Packed) -> dict[str, np.ndarray]:
        """The inputs of `forward`: as the tokenizer gives them, and labels. Without a sentence, an empty one."""
        sentences = [segments[0][0] for segments in packed]
        longest = max(map(len, sentences), default=0) + 2
        lengths = np.array([len(words) + 2 for words in sentences] or [2])
        attended = np.arange(longest) < lengths[:, None]
        words: list[Word] = []
        for sentence in sentences or [[]]:
            words += [BEGIN, *sentence, END]
        ids, characters = self._word_ids(words), self._characters(words, (len(words),))
        input_ids = np.full(attended.shape, self._padding)
        input_ids[attended] = ids
        character_ids = np.zeros((*attended.shape, self._rows.width), dtype=characters.dtype)
        character_ids[attended] = characters
        labels = np.where(attended, input_ids, IGNORED) if sentences else np.full_like(input_ids, IGNORED)
        return {
            "input_ids": input_ids,
            "character_ids": character_ids,
            "attention_mask": attended,
            "labels": labels,
        }

    def _characters(self, words: Sequence[Word], shape: tuple[int, ...]) -> np.ndarray:
        spelled = b"".join(map(self._rows.__getitem__, words))
        return np.frombuffer(spelled, dtype=self._rows.dtype).reshape(*shape, self._rows.width)

    def _labels(self, words: Sequence[Word], is_predicted: np.ndarray) -> np.ndarray:
        ids = self._word_ids(words).reshape(is_predicted.shape)
        ids[~is_predicted] = IGNORED
        return ids

    def _word_ids(self, words: Sequence[Word]) -> np.ndarray:
        return np.fromiter(map(self._ids.__getitem__, words), dtype=np.int64, count=len(words))


# --- The batches -----------------------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """A `PretrainingBatch` in the making."""

    inputs: dict[str, np.ndarray]
    num_predictions: int
    epoch: int
    state: dict[str, Any]


@dataclass(frozen=True)
class _Settings:
    mode: Mode
    all_rows: int  # of all processes
    steps: int
    max_sentence_words: int | None
    keep_documents: bool
    complete: bool

    def of_the_state(self) -> dict[str, Any]:
        """What the batches depend on beside the reader, in the words of the user."""
        if self.mode == "stream":
            return {"mode": "stream", "rows * world_size": self.all_rows, "steps": self.steps}
        return {
            "mode": self.mode,
            "rows * world_size": self.all_rows,
            "max_sentence_words": self.max_sentence_words,
        }


class _Batches(IterableDataset):
    """The batches from a position on; a worker gives those that are its turn."""

    def __init__(
        self,
        source: Any,
        reader_settings: dict[str, Any],
        settings: _Settings,
        own_rows: slice,
        speller: _Speller,
        state: dict[str, Any] | None,
    ):
        self.source = source
        self.reader_settings = reader_settings
        self.settings = settings
        self.own_rows = own_rows
        self.speller = speller
        self.state = state

    def packer(self) -> _Packer:
        """At the position."""
        packer = _Packer(CorpusReader(self.source, **self.reader_settings), self.settings)
        if self.state is not None:
            packer.load_state_dict(self.state)
        return packer

    def __iter__(self) -> Iterator[_Batch | Exception]:
        worker = get_worker_info()
        # An error of the user that a worker meets is handed over, as torch would wrap it into a page of text.
        try:
            yield from self._batches(*((0, 1) if worker is None else (worker.id, worker.num_workers)))
        except (ValueError, OSError, ImportError) as error:
            yield error

    def _batches(self, turn: int, turns: int) -> Iterator[_Batch]:
        packer = self.packer()
        number = 0
        while (packed := packer.next_batch()) is not None:
            if number % turns == turn:
                yield _Batch(
                    inputs=self._inputs(packed[self.own_rows]),
                    num_predictions=sum(end - begin for segments in packed for _, begin, end in segments),
                    epoch=packer.epoch,
                    state=packer.state_dict(),
                )
            number += 1

    def _inputs(self, packed: _Packed) -> dict[str, np.ndarray]:
        if self.settings.mode == "stream":
            return self.speller.windows(packed, self.settings.steps)
        return self.speller.sentences(packed)


class _Iteration(Iterator[PretrainingBatch]):
    """Batches as tensors; those of workers, which end with it."""

    def __init__(self, batches: _Batches, num_workers: int):
        self._source = batches
        self._batches: Iterator[_Batch | Exception] | None = iter(
            _loader(batches, num_workers) if num_workers else batches
        )
        _OPEN.add(self)

    def __next__(self) -> PretrainingBatch:
        batch = None if self._batches is None else next(self._batches, None)
        if isinstance(batch, _Batch):
            self._source.state = batch.state
            inputs = {name: torch.from_numpy(value.astype(np.int64)) for name, value in batch.inputs.items()}
            return PretrainingBatch(inputs, batch.num_predictions, batch.epoch, batch.state)
        self.close()
        raise StopIteration if batch is None else batch

    def close(self) -> None:
        """Ends the workers. An error that somebody keeps must not keep them, so nothing else refers to them."""
        self._batches = None


# Python would wait for workers at its exit and ask them to end with a signal that they ignore.
_OPEN: WeakSet[_Iteration] = WeakSet()


@atexit.register
def _close_all() -> None:
    for iteration in list(_OPEN):
        iteration.close()


def _loader(batches: _Batches, num_workers: int) -> DataLoader:
    return DataLoader(
        batches,
        batch_size=None,
        collate_fn=_unchanged,
        num_workers=num_workers,
        multiprocessing_context=start_method(),
        worker_init_fn=_ignore_signals,
        # Of its own, as the numbers that the model takes must not depend on when data is read.
        generator=torch.Generator(),
    )


def _unchanged(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    """A scheduler or Ctrl-C ends all processes of a group, but training has still to finish its step and save."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


class PretrainingData:
    """Gives the batches of pretraining, from the position where the last one ended.

    Two processes with R rows each read what one process with 2R rows reads, the first process the first R rows.

    - `"stream"` is the original's way: a row is filled to `steps` predictions with the next sentences of the text, row
      0 first, and a sentence that does not fit is continued in the same row of the next batch. Both directions read
      the same sentences: the forward one `<S> w1 .. wn` and predicts `w1 .. wn </S>`, the backward one
      `</S> wn .. w1` and predicts `wn .. w1 <S>`. There is no padding.
    - `"sentences"` puts whole sentences with both boundaries side by side, padded to the longest one.

    Args:
        source: Files, folders and patterns, or a data set, as `CorpusReader` takes them.
        tokenizer: With the vocabulary. How it splits raw text does not matter here.
        mode: `"stream"` or `"sentences"`.
        rows: Of each process.
        steps: Length of the windows of a stream.
        seed: Of the order of the text.
        shuffle: Whether to shuffle it at all.
        keep_documents: Keep the sentences of a document, which ends at a blank line, in their order. In a stream, a
            row takes whole documents, the next one when its own has ended. They are held in memory.
        epochs: After how many to end; by default never.
        errors: What to do with lines that are not UTF-8: `"replace"`, `"skip"` or `"stop"`.
        column: Of a data set, with the text.
        max_sentence_words: Cut longer sentences into pieces, which become sentences of their own; by default never.
            A stream needs no such limit.
        rank: Of this process.
        world_size: Number of processes.
        num_workers: Processes beside this one that make the batches; by default this one makes them. The batches are
            the same. Workers ignore SIGTERM and SIGINT, which are for the process that trains.
        word_ids: Whether the windows of a stream have word ids, too, for models that look words up in a table (a
            `word_input` of "words" or "both"). Sentences always have them.
        complete: Whether a stream that ends gives its last windows, in which some rows are not full and have the label
            -100, for evaluation. By default it drops them. (Sentences are never dropped: the last batch is smaller. A
            process that gets none of them gets an empty sentence without labels.)
        buffer_bytes: Text that is held in memory and shuffled at a time.
    """

    def __init__(
        self,
        source: Any,
        tokenizer: ElmoTokenizer,
        *,
        mode: Mode = "stream",
        rows: int,
        steps: int = 20,
        seed: int = 0,
        shuffle: bool = True,
        keep_documents: bool = False,
        epochs: int | None = None,
        errors: ErrorPolicy = "replace",
        column: str = "text",
        max_sentence_words: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        word_ids: bool = False,
        complete: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
    ):
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}; choose one of {', '.join(map(repr, get_args(Mode)))}.")
        _check_at_least_one(rows=rows, steps=steps, max_sentence_words=max_sentence_words, epochs=epochs)
        if mode == "stream" and max_sentence_words is not None:
            raise ValueError(f"max_sentence_words={max_sentence_words} is for mode='sentences'; a stream has windows.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}, but it must be from 0 to {world_size - 1}, as there are {world_size}.")
        if num_workers < 0:
            raise ValueError(f"num_workers is {num_workers}; it must not be negative.")
        reader_settings = {
            "column": column,
            "seed": seed,
            "shuffle": shuffle,
            "keep_documents": keep_documents,
            "epochs": epochs,
            "errors": errors,
            "buffer_bytes": buffer_bytes,
        }
        self._num_workers = num_workers
        self._batches = _Batches(
            source,
            reader_settings,
            _Settings(mode, rows * world_size, steps, max_sentence_words, keep_documents, complete),
            slice(rank * rows, (rank + 1) * rows),
            _Speller(tokenizer, word_ids),
            state=None,
        )
        self._batches.packer()  # tells mistakes early
        if num_workers > 1 and _is_streamed(source):
            raise ValueError(
                f"num_workers is {num_workers}, but a streamed data set would be split among the workers. Use 1 or 0."
            )

    def __iter__(self) -> Iterator[PretrainingBatch]:
        return _Iteration(self._batches, self._num_workers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to the position of a batch that carried this state; the next iteration continues right after it.

        It may have been saved with another number of workers or processes, if all processes together have as many
        rows.
        """
        before, self._batches.state = self._batches.state, state
        try:
            self._batches.packer()
        except ValueError:
            self._batches.state = before
            raise


def predicted_words(tokenizer: ElmoTokenizer) -> set[str]:
    """The words that can be predicted, among them `<S>`, `</S>` and `<UNK>` for what may have other names there."""
    specials = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    return set(tokenizer.get_vocab()).difference(map(str, specials)) | set(SPECIAL_WORDS)


def _check_at_least_one(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be 1 or more.")


def _is_streamed(source: Any) -> bool:
    return not hasattr(source, "__len__") and hasattr(source, "__iter__")


__all__ = ["PretrainingBatch", "PretrainingData", "predicted_words"]
