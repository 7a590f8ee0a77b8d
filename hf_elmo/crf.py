# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""A linear-chain conditional random field: labels of a sentence that depend on their neighbours.

Shapes are written with these letters: B batch, T positions, K labels.
"""

import math
import re
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init

# The label of positions to leave out, and what decoding puts at them.
IGNORED_LABEL = -100

# Fresh weights are uniform between plus and minus this.
INITIAL_RANGE = 0.1

# Which labels of the same type must exist for a label to have a use; the keys are all the prefixes of a scheme.
NEEDED_PREFIXES = {
    "BIO": {"B": "", "I": "B"},
    "BIOES": {"B": "E", "I": "BE", "E": "B", "S": ""},
}


# --- Which label may follow which ------------------------------------------------------------------------------------


def allowed_transitions(
    labels: list[str], scheme: Literal["BIO", "BIOES"] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Which label may follow which, which may begin a sentence and which may end it.

    Args:
        labels: The label names in the order of their ids: `O`, and `B-PER`, `I-PER` and so on, or bare `B`, `I`.
        scheme: `"BIO"` (each span begins with B), `"BIOES"` (longer spans end with E, spans of one word are S), or
            `None`, which allows everything and any names.

    Returns:
        Three boolean tensors on the CPU: transitions (K, K) as [from, to], start (K,) and end (K,).
    """
    if not labels:
        raise ValueError("labels is empty: a conditional random field needs at least one label.")
    if scheme is not None:
        _check_labels(labels, scheme)
    # A device by name: transformers builds models on the meta device, where the values would be lost.
    transitions = torch.tensor([[_may_follow(a, b, scheme) for b in labels] for a in labels], device="cpu")
    start = torch.tensor([_may_follow("O", label, scheme) for label in labels], device="cpu")
    end = torch.tensor([_may_follow(label, "O", scheme) for label in labels], device="cpu")
    return transitions, start, end


def _may_follow(previous: str, label: str, scheme: str | None) -> bool:
    """Whether the neighbours fit; the outside of a sentence counts as `O`."""
    if scheme is None:
        return True
    inside = previous[0] in "BI"
    if label[0] in "IE":
        return inside and previous[1:] == label[1:]
    return scheme == "BIO" or not inside


def _check_labels(labels: list[str], scheme: str) -> None:
    """Refuses names that are not of the scheme, and sets of names that leave a label or a sentence without a path."""
    if scheme not in NEEDED_PREFIXES:
        raise ValueError(f"scheme={scheme!r} is not known: it must be one of {sorted(NEEDED_PREFIXES)}, or None.")
    needed = NEEDED_PREFIXES[scheme]
    for label in labels:
        if not re.fullmatch(rf"O|[{''.join(needed)}](-.+)?", label):
            names = ", ".join(f"{prefix}-TYPE" for prefix in needed)
            raise ValueError(
                f"The label {label!r} does not fit the scheme {scheme}: labels must be O, {names}. Set the names in "
                "id2label, or the scheme to None."
            )
        if labels.count(label) > 1:
            ids = [number for number, other in enumerate(labels) if other == label]
            raise ValueError(f"The label {label!r} is there more than once, with the ids {ids}: names must differ.")
        for prefix in needed.get(label[0], ""):
            if prefix + label[1:] not in labels:
                raise ValueError(
                    f"The label {label!r} can never be used in the scheme {scheme}, because there is no "
                    f"{prefix + label[1:]!r}. Add it, or correct the labels; perhaps they are of another scheme."
                )
    if not any(label[0] in "OS" or (scheme == "BIO" and label[0] == "B") for label in labels):
        raise ValueError(f"The labels {labels} have none for a sentence of one word: add 'O'.")


# --- Padding out, padding in -----------------------------------------------------------------------------------------


class _Sentences(NamedTuple):
    """A batch without holes: each row begins with its sentence, and the padding behind it has the emissions 0."""

    emissions: Tensor  # (B, T, K)
    present: Tensor  # (B, T), true for the first words
    order: Tensor  # (B, T), the column that each word came from

    @classmethod
    def from_mask(cls, emissions: Tensor, mask: Tensor) -> "_Sentences":
        emissions = emissions.masked_fill(~mask.unsqueeze(2), 0)  # whatever stands at padding, NaN too
        present, order = mask.int().sort(dim=1, descending=True, stable=True)
        emissions = emissions.gather(1, order.unsqueeze(2).expand_as(emissions))
        return cls(emissions=emissions, present=present.bool(), order=order)

    def put_back(self, values: Tensor) -> Tensor:
        """(B, T) or (B, T, K) in the columns that the words came from."""
        columns = self.order.argsort(dim=1)
        if values.dim() == 3:
            columns = columns.unsqueeze(2).expand_as(values)
        return values.gather(1, columns)


def _levelled(scores: Tensor) -> Tensor:
    """The scores (B, K) minus the largest of each row.

    A constant at a position changes no probability. Without this, scores grow with the sentence and lose digits.
    """
    return scores - scores.detach().amax(dim=1, keepdim=True)


# --- The field -------------------------------------------------------------------------------------------------------


class ElmoCrf(nn.Module):
    """Scores label sequences: p(y | x) = exp(s(x, y)) / sum over all allowed y' of exp(s(x, y')) with

    s(x, y) = start[y_1] + x_1[y_1] + sum over t > 1 of (transitions[y_{t-1}, y_t] + x_t[y_t]) + end[y_n].

    The sentence is what the mask leaves of a row, in order: padding may be on either side or in between. What stands
    at padding, and in other rows, changes nothing. All sums are made in float32, or in float64 if the emissions are.

    What is allowed comes from the label names alone and is no part of the weights, so that a saved model and its
    config cannot contradict each other.

    Args:
        labels: The label names in the order of their ids.
        scheme: `"BIO"`, `"BIOES"`, or `None` if every label may follow every other.
    """

    def __init__(self, labels: list[str], scheme: Literal["BIO", "BIOES"] | None = None):
        super().__init__()
        self.labels = list(labels)
        self.scheme = scheme
        self.allowed = allowed_transitions(self.labels, scheme)
        self.transitions = nn.Parameter(torch.empty(len(labels), len(labels)))  # [from, to]
        self.start = nn.Parameter(torch.empty(len(labels)))
        self.end = nn.Parameter(torch.empty(len(labels)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws fresh weights, except where transformers has loaded some."""
        for parameter in (self.transitions, self.start, self.end):
            init.uniform_(parameter, -INITIAL_RANGE, INITIAL_RANGE)

    @torch.compiler.disable  # a compiler would unroll the loops over time, anew for each length
    def log_likelihood(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """log p(labels | emissions) of each sentence (B,), 0 for empty ones.

        Args:
            emissions: The score of each label at each position (B, T, K).
            labels: Label ids (B, T); positions with -100 are no part of the sentence.
            mask: (B, T), 0 at positions to leave out.
        """
        emissions, mask = self._check_inputs(emissions, mask)
        if labels.shape != mask.shape or labels.is_floating_point():
            raise ValueError(
                f"labels has the shape {tuple(labels.shape)} and the type {labels.dtype}, but must be whole numbers "
                f"(batch, positions) = {tuple(mask.shape)}."
            )
        mask = mask & (labels != IGNORED_LABEL)
        self._check_label_ids(labels, mask)
        if mask.shape[1] == 0:
            return emissions.sum(dim=(1, 2))  # 0, for which a gradient exists
        sentences = _Sentences.from_mask(emissions, mask)
        gold = labels.long().masked_fill(~mask, 0).gather(1, sentences.order)  # (B, T)
        self._check_gold(gold, sentences)

        # log p = sum over t of log p(y_t | y_{t-1}, x). Unlike s(x, y) minus the log of the sum over all paths, it has
        # no large numbers that cancel, and no term above 0.
        transitions, start, _ = self._masked_weights(emissions.dtype)
        behind = torch.cat([start.expand(len(gold), 1, -1), transitions[gold[:, :-1]]], dim=1)  # (B, T, K)
        scores = behind + sentences.emissions + self._backward_scores(sentences)
        steps = scores.log_softmax(dim=2).gather(2, gold.unsqueeze(2)).squeeze(2)  # (B, T)
        return steps.masked_fill(~sentences.present, 0).sum(dim=1)

    @torch.compiler.disable
    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The most probable label ids of each sentence (B, T) by Viterbi's algorithm, -100 where the mask is 0.

        Args:
            emissions: The score of each label at each position (B, T, K).
            mask: (B, T), 0 at positions to leave out.
        """
        emissions, mask = self._check_inputs(emissions, mask)
        if mask.shape[1] == 0:
            return mask.long()
        sentences = _Sentences.from_mask(emissions, mask)
        transitions, start, end = self._masked_weights(sentences.emissions.dtype)
        unchanged = torch.arange(len(self.labels), device=emissions.device)  # (K,)
        scores = start + sentences.emissions[:, 0]  # (B, K)
        pointers = []  # of each step: from which label the best path to a label comes (B, K)
        for step in range(1, mask.shape[1]):
            present = sentences.present[:, step].unsqueeze(1)  # (B, 1)
            best, pointer = (scores.unsqueeze(2) + transitions).max(dim=1)  # (B, from, to) to (B, to)
            scores = torch.where(present, _levelled(best + sentences.emissions[:, step]), scores)
            pointers.append(torch.where(present, pointer, unchanged))

        label = (scores + end).argmax(dim=1, keepdim=True)  # (B, 1)
        path = [label]
        for pointer in reversed(pointers):
            label = pointer.gather(1, label)
            path.append(label)
        labels = torch.cat(path[::-1], dim=1)  # (B, T)
        return sentences.put_back(labels).masked_fill(~mask, IGNORED_LABEL)

    @torch.compiler.disable
    def marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The probability of each label at each position (B, T, K), given the whole sentence; 0 where the mask is 0.

        Args:
            emissions: The score of each label at each position (B, T, K).
            mask: (B, T), 0 at positions to leave out.
        """
        emissions, mask = self._check_inputs(emissions, mask)
        if mask.shape[1] == 0:
            return emissions
        sentences = _Sentences.from_mask(emissions, mask)
        scores = self._forward_scores(sentences) + self._backward_scores(sentences)  # (B, T, K)
        return sentences.put_back(scores.softmax(dim=2)).masked_fill(~mask.unsqueeze(2), 0)

    def _forward_scores(self, sentences: _Sentences) -> Tensor:
        """(B, T, K): log of the sum over all paths up to a position and label, its emission included; levelled."""
        transitions, start, _ = self._masked_weights(sentences.emissions.dtype)
        scores = start + sentences.emissions[:, 0]  # (B, K)
        all_scores = [scores]
        for step in range(1, sentences.emissions.shape[1]):
            reached = torch.logsumexp(scores.unsqueeze(2) + transitions, dim=1)  # (B, from, to) to (B, to)
            scores = _levelled(reached + sentences.emissions[:, step])
            all_scores.append(scores)
        return torch.stack(all_scores, dim=1)

    def _backward_scores(self, sentences: _Sentences) -> Tensor:
        """(B, T, K): log of the sum over all ways to go on from a position and label to the end; levelled."""
        transitions, _, end = self._masked_weights(sentences.emissions.dtype)
        scores = end.expand(len(sentences.emissions), -1)  # (B, K)
        all_scores = [scores]
        for step in range(sentences.emissions.shape[1] - 1, 0, -1):
            ahead = (sentences.emissions[:, step] + scores).unsqueeze(1)  # (B, 1, to)
            reached = _levelled(torch.logsumexp(transitions + ahead, dim=2))  # (B, from, to) to (B, from)
            scores = torch.where(sentences.present[:, step].unsqueeze(1), reached, scores)
            all_scores.append(scores)
        return torch.stack(all_scores[::-1], dim=1)

    def _masked_weights(self, dtype: torch.dtype) -> list[Tensor]:
        """Transitions, start and end, minus infinity where not allowed.

        No sum over labels is minus infinity: there are paths of every length, and each label can go on and end, or
        `_check_labels` would have refused the names.
        """
        weights = (self.transitions, self.start, self.end)
        return [
            weight.to(dtype).masked_fill(~allowed.to(weight.device), -math.inf)
            for weight, allowed in zip(weights, self.allowed, strict=True)
        ]

    def _check_inputs(self, emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The emissions in at least float32 and the mask as booleans; refuses shapes that do not fit."""
        if emissions.dim() != 3 or emissions.shape[2] != len(self.labels):
            raise ValueError(
                f"emissions has the shape {tuple(emissions.shape)}, but must be (batch, positions, "
                f"{len(self.labels)}), with a score for each label."
            )
        if mask.shape != emissions.shape[:2]:
            raise ValueError(
                f"mask has the shape {tuple(mask.shape)}, but emissions is for (batch, positions) = "
                f"{tuple(emissions.shape[:2])}."
            )
        return emissions.to(torch.promote_types(emissions.dtype, torch.float32)), mask.bool()

    def _check_label_ids(self, labels: Tensor, mask: Tensor) -> None:
        wrong = ((labels < 0) | (labels >= len(self.labels))) & mask
        if wrong.any():
            row, position = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"labels has the value {int(labels[row, position])} at row {row}, position {position}, but there are "
                f"the ids 0 to {len(self.labels) - 1}, and {IGNORED_LABEL} for positions to ignore."
            )

    def _check_gold(self, gold: Tensor, sentences: _Sentences) -> None:
        """Refuses paths (B, T) that the scheme does not allow: their probability is 0, and the loss infinite."""
        transitions, start, end = (allowed.to(gold.device) for allowed in self.allowed)
        present = sentences.present
        following = nn.functional.pad(present[:, 1:], (0, 1))  # (B, T), whether the sentence goes on after a word
        fits_next = nn.functional.pad(transitions[gold[:, :-1], gold[:, 1:]], (0, 1))  # (B, T)
        wrong_after = present & ~torch.where(following, fits_next, end[gold])
        wrong_first = present[:, :1] & ~start[gold[:, :1]]
        wrong = torch.cat([wrong_first, wrong_after], dim=1)  # (B, T + 1), at t what follows the t-th word
        if not wrong.any():
            return
        row, word = wrong.nonzero()[0].tolist()
        places = [
            f"{self.labels[int(label)]!r} (position {int(position)})"
            for label, position in zip(gold[row], sentences.order[row], strict=True)
        ]
        if word == 0:
            mistake = f"{places[0]} cannot begin a sentence"
        elif following[row, word - 1]:
            mistake = f"{places[word]} cannot follow {places[word - 1]}"
        else:
            mistake = f"{places[word - 1]} cannot end a sentence"
        raise ValueError(
            f"labels of row {row} do not fit the scheme {self.scheme}: {mistake}. Correct the labels, or set the "
            "scheme to None."
        )


__all__ = ["ElmoCrf", "allowed_transitions"]
