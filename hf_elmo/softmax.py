# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Which word comes next: the output layer of the language model, for vocabularies of any size.

Shapes are written with these letters: N words to predict, P projection, V words that can be predicted, S of them drawn
as wrong answers.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .fast_paths import is_fast
from .products import NEVER, inner_product, product, rows_for_onednn

# Scores are computed in blocks of at most this many rows and columns, never all (N, V) at once. This bounds their
# memory (8 MiB a block) and does not change the result.
ROWS_PER_BLOCK = 1024
WORDS_PER_BLOCK = 2048

# The candidate sampler draws at most this many times in one go.
DRAWS_PER_BATCH = 2**20


# --- Drawing wrong answers -------------------------------------------------------------------------------------------


class CandidateSample(NamedTuple):
    """Different word ids, drawn so that frequent words come up often, if ids stand by falling frequency.

    A draw gives the word k with the probability P(k) = ln((k + 2) / (k + 1)) / ln(V + 1), and draws are made until
    there are S different words: TensorFlow's log-uniform candidate sampler without repeats.
    """

    ids: Tensor  # (S,), rising
    tries: int  # draws that it took
    num_words: int  # V

    @classmethod
    def draw(cls, num_words: int, num_sampled: int, generator: torch.Generator | None = None) -> "CandidateSample":
        """Draws `num_sampled` of `num_words` words.

        The numbers come from a generator of the CPU, by default torch's own one, wherever the model is, so that the
        same seed means the same words everywhere.
        """
        _check_num_sampled(num_sampled, num_words)
        never = torch.iinfo(torch.int64).max
        first_try = torch.full((num_words,), never, dtype=torch.int64, device="cpu")  # when each word came up first
        tries, distinct, batch = 0, 0, 2 * num_sampled
        while distinct < num_sampled:
            batch = min(batch, DRAWS_PER_BATCH)
            uniform = torch.rand(batch, dtype=torch.float64, device="cpu", generator=generator)
            words = torch.expm1(uniform * math.log1p(num_words)).long() % num_words  # V itself only by rounding
            numbers = torch.arange(tries, tries + batch, device="cpu")
            first_try.scatter_reduce_(0, words, numbers, reduce="amin")
            tries, distinct, batch = tries + batch, int((first_try != never).sum()), 2 * batch
        last_try = first_try[first_try != never].kthvalue(num_sampled).values
        return cls(ids=(first_try <= last_try).nonzero().squeeze(1), tries=int(last_try) + 1, num_words=num_words)

    def log_expected_counts(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The logarithm of how often such a sample is expected to have each of `ids` (any shape).

        It is 1 - (1 - P(k))^tries, or S P(k) if no draw was a repeat, as TensorFlow computes it.
        """
        probability = torch.log1p(1 / (ids.to(dtype) + 1)) / math.log1p(self.num_words)
        if self.tries == len(self.ids):
            return torch.log(self.tries * probability)
        return torch.log(-torch.expm1(self.tries * torch.log1p(-probability)))


def _check_num_sampled(num_sampled: int, num_words: int) -> None:
    if not 1 <= num_sampled <= num_words:
        raise ValueError(
            f"num_sampled={num_sampled} is not possible: it must be between 1 and the number of words that can be "
            f"predicted, {num_words}, because no word is drawn twice. For a small vocabulary use the full softmax."
        )


# --- Scores in blocks ------------------------------------------------------------------------------------------------


class _BlockwiseScores(torch.autograd.Function):
    """The score of each row's own class, and the log of the sum of the exponentials of all other scores, (N,) each.

    The scores are hidden weight^T + bias. A row whose own class is -1 has none: all classes are others, and the own
    score is 0. The backward pass computes the blocks again instead of keeping them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, own_classes: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        own = bias.new_zeros(len(hidden))
        others = bias.new_full((len(hidden),), -math.inf)
        hidden = hidden.to(dtype)
        for rows, words in _blocks(len(hidden), len(weight)):
            scores, inside, columns = _scores_of_block(hidden, weight, bias, own_classes, dtype, rows, words)
            own_scores = scores.gather(1, columns)
            own[rows] += own_scores.masked_fill(~inside, 0).squeeze(1)
            scores.scatter_(1, columns, own_scores.masked_fill(inside, -math.inf))
            others[rows] = torch.logaddexp(others[rows], scores.logsumexp(dim=1))
        ctx.save_for_backward(hidden, weight, bias, own_classes, others)
        ctx.dtype = dtype
        return own, others

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, own_gradient: Tensor, others_gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, own_classes, others = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        hidden_gradient = torch.zeros_like(hidden, dtype=bias.dtype)
        weight_gradient = torch.zeros_like(weight) if needs_weight else None
        bias_gradient = torch.zeros_like(bias)
        for rows, words in _blocks(len(hidden), len(weight)):
            scores, inside, columns = _scores_of_block(hidden, weight, bias, own_classes, ctx.dtype, rows, words)
            gradient = scores.sub_(others[rows].unsqueeze(1)).exp_().mul_(others_gradient[rows].unsqueeze(1))
            own_columns = torch.where(inside, own_gradient[rows].unsqueeze(1), gradient.gather(1, columns))
            gradient.scatter_(1, columns, own_columns)
            bias_gradient[words] += gradient.sum(dim=0)
            gradient = gradient.to(ctx.dtype)
            fewest_for_onednn = _rows_for_onednn(gradient)
            if needs_hidden:
                hidden_gradient[rows] += product(gradient, weight[words].to(ctx.dtype), None, fewest_for_onednn)
            if weight_gradient is not None:
                weight_gradient[words] += inner_product(gradient, hidden[rows].to(ctx.dtype), fewest_for_onednn)
        return (
            hidden_gradient.to(hidden.dtype) if needs_hidden else None,
            weight_gradient,
            bias_gradient if needs_bias else None,
            None,
            None,
        )


def _blocks(num_rows: int, num_words: int) -> list[tuple[slice, slice]]:
    return [
        (slice(row, row + ROWS_PER_BLOCK), slice(word, word + WORDS_PER_BLOCK))
        for word in range(0, num_words, WORDS_PER_BLOCK)
        for row in range(0, num_rows, ROWS_PER_BLOCK)
    ]


def _scores_of_block(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    own_classes: Tensor,
    dtype: torch.dtype,
    rows: slice,
    words: slice,
) -> tuple[Tensor, Tensor, Tensor]:
    """The scores of a block, which rows have their own class in it (rows, 1), and its column (or any) (rows, 1)."""
    of_rows = hidden[rows].to(dtype)
    products = product(of_rows, weight[words].to(dtype).T, None, _rows_for_onednn(of_rows))
    scores = products.to(bias.dtype).add_(bias[words])
    columns = own_classes[rows].unsqueeze(1) - words.start
    inside = (columns >= 0) & (columns < scores.shape[1])
    return scores, inside, columns.clamp(0, scores.shape[1] - 1)


def _rows_for_onednn(rows: Tensor) -> int:
    return rows_for_onednn(rows) if is_fast(rows) else NEVER


# --- The layer -------------------------------------------------------------------------------------------------------


class ElmoSoftmax(nn.Module):
    """p(word | h) = exp(w_word h + b_word) / sum over all words v of exp(w_v h + b_v), for both directions.

    The kinds differ in what training costs:

    - `"full"` is the formula itself.
    - `"sampled"` compares the right word with `num_sampled` others only, which are drawn anew in each call and serve
      all its rows, as TensorFlow's `sampled_softmax_loss` does: the scores of the right word and of the drawn ones,
      minus the logarithm of their expected counts, go through a softmax; a drawn word that is the right one of a row
      is left out of that row. In evaluation mode it is the full softmax, with the same weights. The training loss is
      no estimate of the true one and mostly lower, but its minimum is the same.
    - `"adaptive"` is another model: torch's `AdaptiveLogSoftmaxWithLoss`, with fewer weights for rare words.

    Losses and probabilities are float32, or float64 if the inputs are.

    Args:
        num_words: How many words can be predicted; the ids from there on, such as padding, cannot.
        projection_size: Width of the vectors that the words are predicted from.
        kind: `"full"`, `"sampled"` or `"adaptive"`.
        num_sampled: How many wrong answers are drawn; for `"sampled"` only.
        cutoffs: Where the groups of the words begin, apart from the first, rising; for `"adaptive"` only. Each
            group's vectors are a quarter as wide as those of the group before.
    """

    def __init__(
        self,
        num_words: int,
        projection_size: int,
        kind: Literal["full", "sampled", "adaptive"] = "full",
        num_sampled: int = 8192,
        cutoffs: list[int] | None = None,
    ):
        super().__init__()
        self.num_words = num_words
        self.projection_size = projection_size
        self.kind = kind
        self.num_sampled = num_sampled
        self._check_settings(cutoffs)
        if kind == "adaptive":
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(projection_size, num_words, cast(list[int], cutoffs))
        else:
            self.weight = nn.Parameter(torch.empty(num_words, projection_size))
            self.bias = nn.Parameter(torch.empty(num_words))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws fresh weights as the original did, except where transformers has loaded some."""
        if self.kind == "adaptive":
            for module in self.adaptive.modules():
                if isinstance(module, nn.Linear):
                    init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
        else:
            init.normal_(self.weight, std=1 / math.sqrt(self.projection_size))
            init.zeros_(self.bias)

    @torch.compiler.disable  # a compiler would unroll the loops over blocks, and cannot draw candidates
    def losses(self, hidden: Tensor, targets: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The negative log-likelihood of each word (N,), or the sampled loss if the kind is that, in training mode.

        Args:
            hidden: What the words are predicted from (N, P).
            targets: Word ids (N,), from 0 to V - 1.
            generator: Where sampling takes its numbers from, on the CPU; by default torch's global generator.
        """
        self._check_hidden(hidden)
        self._check_targets(hidden, targets)
        targets = targets.long().contiguous()
        if self.kind == "adaptive":
            return self._adaptive_losses(hidden, targets)
        if self.kind == "sampled" and self.training:
            sample = CandidateSample.draw(self.num_words, self.num_sampled, generator)
            return self._sampled_losses(hidden, targets, sample)
        return _exact_losses(hidden, self.weight, self.bias, targets)

    @torch.compiler.disable
    @torch.no_grad()
    def log_likelihoods(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The logarithm of the probability of each word (N,), of any kind exact and in float64, without a gradient.

        Scores are multiplied in the precision of the weights, and added up so that nothing is lost by it.

        Args:
            hidden: What the words are predicted from (N, P).
            targets: Word ids (N,), from 0 to V - 1.
        """
        self._check_hidden(hidden)
        self._check_targets(hidden, targets)
        targets = targets.long().contiguous()
        if self.kind == "adaptive":
            return -self._adaptive_losses(hidden, targets, _precise_losses)
        return -_precise_losses(hidden, self.weight, self.bias, targets)

    def logits(self, hidden: Tensor) -> Tensor:
        """The score of every word (N, V), whose softmax is the probability; all at once, so mind the memory.

        An adaptive softmax has no such scores, and gives logarithms of probabilities.
        """
        self._check_hidden(hidden)
        precise = _precise(hidden)
        if self.kind == "adaptive":
            return self.adaptive.log_prob(hidden).to(precise)
        return nn.functional.linear(hidden, self.weight).to(precise) + self.bias

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """The logarithm of the probability of every word (N, V); all at once, so mind the memory."""
        return self.logits(hidden).log_softmax(dim=1)

    def _sampled_losses(self, hidden: Tensor, targets: Tensor, sample: CandidateSample) -> Tensor:
        precise = _precise(hidden)
        candidates = sample.ids.to(hidden.device)
        ids = torch.cat([candidates, targets])  # (S + N,), gathered in one go, for one gradient
        weights = self.weight.index_select(0, ids)
        biases = self.bias.index_select(0, ids).to(precise) - sample.log_expected_counts(ids, precise)
        candidate_weights, target_weights = weights.split([len(candidates), len(targets)])
        candidate_biases, target_biases = biases.split([len(candidates), len(targets)])

        places = torch.searchsorted(candidates, targets).clamp(max=len(candidates) - 1)  # (N,)
        accidental_hits = places.masked_fill(candidates[places] != targets, -1)
        _, others = _BlockwiseScores.apply(
            hidden, candidate_weights, candidate_biases, accidental_hits, _product_dtype(hidden, self.weight)
        )
        own = (hidden.to(precise) * target_weights.to(precise)).sum(dim=1) + target_biases
        return -nn.functional.logsigmoid(own - others)

    def _adaptive_losses(self, hidden: Tensor, targets: Tensor, losses_of: "_Losses | None" = None) -> Tensor:
        """The loss of the head, where each group of rare words is one class, plus that of the word in its group.

        Groups without a target in the batch take part, too: their weights have the gradient 0 rather than none, which
        training in several processes needs.
        """
        losses_of = _exact_losses if losses_of is None else losses_of
        head = self.adaptive.head
        shortlist = self.adaptive.shortlist_size
        classes = targets
        of_groups = []
        for number, group in enumerate(self.adaptive.tail):
            projection, output = cast(tuple[nn.Linear, nn.Linear], group)
            begin, end = self.adaptive.cutoffs[number : number + 2]
            inside = (targets >= begin) & (targets < end)
            classes = classes.masked_fill(inside, shortlist + number)
            rows = inside.nonzero().squeeze(1)
            group_losses = losses_of(projection(hidden[rows]), output.weight, None, targets[rows] - begin)
            of_groups.append((rows, group_losses))
        losses = losses_of(hidden, head.weight, head.bias, classes)
        for rows, group_losses in of_groups:
            losses = losses.index_add(0, rows, group_losses)
        return losses

    def _check_settings(self, cutoffs: list[int] | None) -> None:
        for name in ("num_words", "projection_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not possible: it must be at least 1.")
        if self.kind not in ("full", "sampled", "adaptive"):
            raise ValueError(f"kind={self.kind!r} is not known: it must be 'full', 'sampled' or 'adaptive'.")
        if self.kind == "sampled":
            _check_num_sampled(self.num_sampled, self.num_words)
        if self.kind != "adaptive":
            if cutoffs is not None:
                raise ValueError(f"cutoffs={cutoffs} needs kind='adaptive', but it is {self.kind!r}.")
            return
        bounds = [0, *(cutoffs or []), self.num_words]
        if not cutoffs or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(
                f"cutoffs={cutoffs} is not possible: an adaptive softmax needs at least one word id where a group "
                f"begins, each larger than the one before, between 1 and {self.num_words - 1}."
            )
        if self.projection_size < 4 ** len(cutoffs):
            raise ValueError(
                f"cutoffs={cutoffs} makes too many groups: each one's vectors are a quarter as wide as those before, "
                f"and projection_size={self.projection_size} cannot be divided by 4 {len(cutoffs)} times."
            )

    def _check_hidden(self, hidden: Tensor) -> None:
        if hidden.dim() != 2 or hidden.shape[1] != self.projection_size or not hidden.is_floating_point():
            raise ValueError(
                f"hidden has the shape {tuple(hidden.shape)} and the type {hidden.dtype}, but must be numbers "
                f"(words, {self.projection_size})."
            )

    def _check_targets(self, hidden: Tensor, targets: Tensor) -> None:
        if targets.shape != hidden.shape[:1] or targets.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"targets has the shape {tuple(targets.shape)} and the type {targets.dtype}, but must be whole "
                f"numbers ({len(hidden)},), one for each row of hidden."
            )
        wrong = (targets < 0) | (targets >= self.num_words)
        if wrong.any():
            position = int(wrong.nonzero()[0])
            raise ValueError(
                f"targets has the value {int(targets[position])} at position {position}, but only the words 0 to "
                f"{self.num_words - 1} can be predicted: padding and other ids must be left out."
            )


def _exact_losses(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """-log p(target) (N,). The probability is sigmoid(own - others), which cannot exceed 1 by rounding."""
    precise = _precise(hidden)
    if bias is None:
        bias = weight.new_zeros(len(weight), dtype=precise)
    own, others = _BlockwiseScores.apply(hidden, weight, bias.to(precise), targets, _product_dtype(hidden, weight))
    return -nn.functional.logsigmoid(own - others)


def _precise_losses(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """As `_exact_losses`, in float64: m + log s - own, for the largest score m and s, the sum of all exp(score - m).

    Each block's sum has few and similar terms; only the sum over the blocks needs the precision. As s is at least 1
    and m at least the own score, no probability exceeds 1.
    """
    precise, dtype = _precise(hidden), _product_dtype(hidden, weight)
    bias = weight.new_zeros(len(weight), dtype=precise) if bias is None else bias.to(precise)
    own = hidden.new_zeros(len(hidden), dtype=_widest(hidden.device))
    largest = torch.full_like(own, -math.inf)
    total = torch.zeros_like(own)
    for rows, words in _blocks(len(hidden), len(weight)):
        scores, inside, columns = _scores_of_block(hidden, weight, bias, targets, dtype, rows, words)
        own[rows] += scores.gather(1, columns).masked_fill(~inside, 0).squeeze(1)
        new_largest = torch.maximum(largest[rows], scores.amax(dim=1).to(own.dtype))
        block = scores.sub_(new_largest.to(precise).unsqueeze(1)).exp_().sum(dim=1)
        total[rows] = total[rows] * torch.exp(largest[rows] - new_largest) + block
        largest[rows] = new_largest
    return largest + total.log() - own


# Losses (N,) of rows (N, P), from weights (V, P), a bias (V,) or none, and targets (N,).
_Losses: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]


def _precise(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's processors have nothing wider


def _product_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """In which precision scores are multiplied: that of autocast if it is on, or the one of the inputs."""
    dtype = torch.promote_types(hidden.dtype, weight.dtype)
    if torch.is_autocast_enabled(hidden.device.type) and dtype != torch.float64:
        return torch.get_autocast_dtype(hidden.device.type)
    return dtype


__all__ = ["CandidateSample", "ElmoSoftmax"]
