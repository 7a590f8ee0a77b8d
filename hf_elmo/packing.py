# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The sentences of a batch: their boundaries, the state that they start from, and their words without padding.

Shapes as in modeling_elmo.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .configuration_elmo import ElmoConfig
from .threads import note_threads, one_thread

_sentence_by_sentence: ContextVar[bool] = ContextVar("sentence_by_sentence", default=False)


@contextmanager
def sentence_by_sentence() -> Iterator[None]:
    """Within this context all models read each sentence of a batch by itself, with one thread of the processor.

    So its vectors are the same to the last bit, whatever else is in the batch and however many threads the process
    has. Otherwise they differ by rounding, as matrix products of other shapes are computed in another order. It takes
    longer. Words come from no cache. What a task's head computes of the vectors is not part of it, and other
    processors and other versions of torch may round differently.
    """
    token = _sentence_by_sentence.set(True)
    try:
        with one_thread():
            yield
    finally:
        _sentence_by_sentence.reset(token)


def reads_sentence_by_sentence() -> bool:
    """Whether this is within `sentence_by_sentence`."""
    return _sentence_by_sentence.get()


# --- Boundaries ------------------------------------------------------------------------------------------------------


def has_boundaries(character_ids: Tensor, mask: Tensor, markers: list[int]) -> bool:
    """Whether the sentences begin with `<S>`; an error if only some do."""
    if mask.numel() == 0:
        return False
    first = mask.int().argmax(dim=1, keepdim=True)  # (B, 1), the first word, or 0 if there is none
    second_characters = character_ids[:, :, 1].gather(1, first).squeeze(1)  # (B,)
    not_empty = mask.any(dim=1)
    begin = (second_characters == markers[0]) & not_empty
    if not begin.any():
        return False
    if torch.equal(begin, not_empty):
        return True
    raise ValueError(
        f"Only {int(begin.sum())} of the {int(not_empty.sum())} sentences begin with <S>. Give all sentences "
        "boundaries, or none (they are added then)."
    )


def with_boundaries(character_ids: Tensor, mask: Tensor, markers: list[int]) -> tuple[Tensor, Tensor]:
    """Puts `<S>` before and `</S>` after each sentence; (B, T, C) becomes (B, T + 2, C).

    The boundaries are words of one character: begin of word, begin (end) of sentence, end of word, the rest padded.
    """
    begin_sentence, end_sentence, begin_word, end_word, pad_word = markers
    rows, _, width = character_ids.shape
    begin, end = character_ids.new_full((2, rows, 1, width), pad_word)
    for boundary, character in ((begin, begin_sentence), (end, end_sentence)):
        boundary[..., 0] = begin_word
        boundary[..., 1] = character
        boundary[..., 2] = end_word
    present = mask.new_ones(rows, 1)
    return torch.cat([begin, character_ids, end], dim=1), torch.cat([present, mask, present], dim=1)


# --- State -----------------------------------------------------------------------------------------------------------


class ElmoState(NamedTuple):
    """Where the LSTMs stand after the last word they read, for each sentence of a batch.

    The model never keeps a state: pass it in as `initial_state`, get it back with `output_state=True`. To read text in
    the manner of the original programs, which carried the state from batch to batch by row number:

        state = None
        for batch in batches:
            rows = len(batch["input_ids"])
            outputs = model(**batch, initial_state=state and state.for_batch(rows), output_state=True)
            state = outputs.state if state is None else state.updated(outputs.state)

    Args:
        hidden: The projected outputs (L, B, 2P), the forward half first.
        cell: The LSTM cells (L, B, 2H), the forward half first.
    """

    hidden: Tensor
    cell: Tensor

    @classmethod
    def zeros(cls, config: ElmoConfig, rows: int, like: Tensor) -> "ElmoState":
        """The state of a model that has read nothing, with the dtype and on the device of a tensor."""
        layers = config.num_hidden_layers
        return cls(
            hidden=like.new_zeros(layers, rows, 2 * config.projection_size),
            cell=like.new_zeros(layers, rows, 2 * config.cell_size),
        )

    def for_batch(self, rows: int) -> "ElmoState":
        """The state of the first `rows` sentences, with zeros for those this state does not have."""
        return ElmoState(hidden=_first_rows(self.hidden, rows), cell=_first_rows(self.cell, rows))

    def updated(self, newer: "ElmoState") -> "ElmoState":
        """The newer state, followed by the rows of this one that a smaller batch left untouched."""
        rows = newer.hidden.shape[1]
        return ElmoState(
            hidden=torch.cat([newer.hidden, self.hidden[:, rows:]], dim=1),
            cell=torch.cat([newer.cell, self.cell[:, rows:]], dim=1),
        )

    def detach(self) -> "ElmoState":
        """The same state, cut off from the gradient."""
        return ElmoState(hidden=self.hidden.detach(), cell=self.cell.detach())


def _first_rows(state: Tensor, rows: int) -> Tensor:
    layers, available, width = state.shape
    missing = state.new_zeros(layers, max(rows - available, 0), width)
    return torch.cat([state[:, :rows], missing], dim=1)


# --- Padding out, padding in -----------------------------------------------------------------------------------------


@dataclass
class PackedWords:
    """The order in which the words of a padded batch stand in a matrix without padding.

    First all first words, then all second words, and so on; within a step the sentences stand by falling length. So
    step t is a contiguous block of `batch_sizes[t]` rows, and the sentences that go on are always the first ones. A
    sentence is whatever the mask leaves of a row, in order: padding may be on either side or in between.
    """

    positions: Tensor  # (N,) index of each word in the batch flattened to (B * T)
    reverse: Tensor  # (N,) the word at the mirrored place of the same sentence; its own inverse
    batch_sizes: list[int]  # words of each step
    row_order: Tensor  # (B,) rows of the batch by falling length

    @classmethod
    @torch.compiler.disable
    def parts_of(cls, mask: Tensor) -> list["PackedWords"]:
        """What is read of a batch at a time: all of it, or within `sentence_by_sentence` each sentence by itself."""
        note_threads()
        rows = mask.any(dim=1).nonzero().flatten().tolist() if reads_sentence_by_sentence() else []
        if len(mask) < 2 or not rows:
            return [cls.from_mask(mask)]
        parts = []
        for row in rows:
            part = cls.from_mask(mask[row : row + 1])
            parts.append(replace(part, positions=part.positions + row * mask.shape[1], row_order=part.row_order + row))
        return parts

    @classmethod
    @torch.compiler.disable
    def from_mask(cls, mask: Tensor) -> "PackedWords":
        """Packs the words where `mask` (B, T) is true."""
        lengths, row_order = mask.sum(dim=1).sort(descending=True, stable=True)  # (B,), (B,)
        sorted_mask = mask[row_order]
        rows, columns = sorted_mask.nonzero(as_tuple=True)  # (N,) row by row
        steps = (sorted_mask.cumsum(dim=1) - 1)[rows, columns]  # (N,) how many words of the row come before
        steps, order = steps.sort(stable=True)
        rows, columns = rows[order], columns[order]  # (N,) step by step

        all_lengths: list[int] = lengths.tolist()
        longest = all_lengths[0] if all_lengths else 0
        offsets = torch.arange(longest, device=mask.device)
        sizes = (lengths.unsqueeze(0) > offsets.unsqueeze(1)).sum(dim=1)  # (longest,)
        starts = sizes.cumsum(dim=0) - sizes
        return cls(
            positions=row_order[rows] * mask.shape[1] + columns,
            reverse=starts[lengths[rows] - 1 - steps] + rows,
            batch_sizes=sizes.tolist(),
            row_order=row_order,
        )

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, *) to (N, *)."""
        return padded.flatten(0, 1)[self.positions]

    def unpack(self, packed: Tensor, rows: int, columns: int) -> Tensor:
        """(N, D) to (B, T, D) with zeros at padding."""
        return put_back(packed, self.positions, rows, columns)


def put_back(packed: Tensor, positions: Tensor, rows: int, columns: int) -> Tensor:
    """(N, D) to (B, T, D): each row at its position in the flattened batch, zeros elsewhere."""
    padded = packed.new_zeros(rows * columns, packed.shape[1]).index_copy_(0, positions, packed)
    return padded.view(rows, columns, packed.shape[1])


__all__ = ["ElmoState", "PackedWords", "sentence_by_sentence"]
