# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""How probable the language model finds each word of a text: log-probabilities, surprisal, perplexity.

The forward direction gives log p(word | the words before it), and at the end of the sentence that of `</S>`; the
backward direction gives log p(word | the words after it), and at the beginning that of `<S>`. The combined
log-probability of a word is the mean of the two, which is the logarithm of the geometric mean of two probabilities; it
ranks words and sentences, and is not itself normalised. All are natural logarithms (nats). The surprisal is
-log2 p (bits).

The total of a direction is the sum over all words and the boundary that it predicts; the combined total is the mean of
the two totals. The perplexity is exp(-total / predictions) with one prediction more than there are words, as
`hf-elmo perplexity` computes it for sentences.

Shapes are written with these letters: B sentences of a batch, T positions of the longest one with its boundaries, n
positions of a piece, P projection, V words that can be predicted.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

# A text, or a list of words.
Text: TypeAlias = str | Sequence[str]
Direction: TypeAlias = Literal["forward", "backward", "combined"]

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "combined")
BATCH_TOKENS = 4096
BATCHES_AHEAD = 8  # so many batches are read ahead and sorted by length
BITS = 1 / math.log(2)  # of a nat


# --- What comes out --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentenceScore:
    """How probable a language model finds a sentence. Log-probabilities are natural logarithms.

    Args:
        words: Of the sentence, without its boundaries.
        known: Whether each of them is in the vocabulary. For one that is not, the figures are those of `<UNK>`, the
            whole of unknown words.
        forward: The log-probability of each word, given those before it.
        backward: The log-probability of each word, given those after it.
        end: That of `</S>`, given all words: of the forward direction only.
        begin: That of `<S>`, given all words: of the backward direction only.
    """

    words: list[str]
    known: list[bool]
    forward: list[float]
    backward: list[float]
    end: float
    begin: float

    @property
    def combined(self) -> list[float]:
        """The mean of the two log-probabilities of each word."""
        return [(forward + backward) / 2 for forward, backward in zip(self.forward, self.backward, strict=True)]

    @property
    def predictions(self) -> int:
        """Of each direction: all words and a boundary."""
        return len(self.words) + 1

    @property
    def unknown_words(self) -> int:
        """Words that are not in the vocabulary."""
        return self.known.count(False)

    def log_probabilities(self, direction: Direction = "combined") -> list[float]:
        """Of each word, in nats."""
        return list(getattr(self, _checked(direction)))

    def surprisals(self, direction: Direction = "combined") -> list[float]:
        """Of each word, in bits."""
        return [surprisal(value) for value in self.log_probabilities(direction)]

    def total(self, direction: Direction = "combined") -> float:
        """The log-probability of the sentence, in nats: of all words and of the boundary that is predicted."""
        return ScoreTotals.of(self).total(direction)

    def perplexity(self, direction: Direction = "combined") -> float:
        """The exponential of minus the mean log-probability of a prediction."""
        return ScoreTotals.of(self).perplexity(direction)

    def rows(self) -> list[dict[str, Any]]:
        """A row of figures for each position, `<S>` and `</S>` among them; `None` where there is no figure.

        `kind` is `"word"`, `"unknown"` for a word that is not in the vocabulary, or `"boundary"`.
        """
        kinds = ["word" if known else "unknown" for known in self.known]
        places: Iterable[Any] = zip(self.words, kinds, self.forward, self.backward, self.combined, strict=True)
        places = [("<S>", "boundary", None, self.begin, None), *places, ("</S>", "boundary", self.end, None, None)]
        rows = []
        for position, (word, kind, forward, backward, combined) in enumerate(places):
            values = dict(zip(DIRECTIONS, (forward, backward, combined), strict=True))
            rows.append(
                {
                    "position": position,
                    "word": word,
                    "kind": kind,
                    **{f"{name}_log_probability_nats": value for name, value in values.items()},
                    **{
                        f"{name}_surprisal_bits": None if value is None else surprisal(value)
                        for name, value in values.items()
                    },
                }
            )
        return rows

    def to_dict(self) -> dict[str, Any]:
        """The totals and all rows, as something that JSON can hold."""
        totals = ScoreTotals.of(self).to_dict()
        del totals["sentences"]
        return {"text": " ".join(self.words), **totals, "positions": self.rows()}


class ScoreTotals(NamedTuple):
    """Sums over any number of sentences.

    Args:
        sentences: How many.
        words: All their words, without boundaries.
        unknown_words: Those that are not in the vocabulary.
        forward: Log-probability of all that the forward direction predicts, in nats.
        backward: Log-probability of all that the backward direction predicts, in nats.
    """

    sentences: int = 0
    words: int = 0
    unknown_words: int = 0
    forward: float = 0.0
    backward: float = 0.0

    @classmethod
    def of(cls, score: SentenceScore) -> "ScoreTotals":
        """Those of one sentence."""
        return cls(
            sentences=1,
            words=len(score.words),
            unknown_words=score.unknown_words,
            forward=math.fsum([*score.forward, score.end]),
            backward=math.fsum([*score.backward, score.begin]),
        )

    def plus(self, other: "ScoreTotals") -> "ScoreTotals":
        """The sums of both."""
        sums: Any = (one + another for one, another in zip(self, other, strict=True))
        return ScoreTotals(*sums)

    @property
    def combined(self) -> float:
        """The mean of the totals of the two directions."""
        return (self.forward + self.backward) / 2

    @property
    def predictions(self) -> int:
        """Of each direction: all words, and one more for each sentence."""
        return self.words + self.sentences

    @property
    def unknown_share(self) -> float:
        """Share of the words that are not in the vocabulary."""
        return self.unknown_words / max(self.words, 1)

    def total(self, direction: Direction = "combined") -> float:
        """The sum of log-probabilities, in nats."""
        return float(getattr(self, _checked(direction)))

    def perplexity(self, direction: Direction = "combined") -> float:
        """The exponential of minus the mean log-probability of a prediction."""
        try:
            return math.exp(-self.total(direction) / max(self.predictions, 1))
        except OverflowError:
            return math.inf

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold if they are finite."""
        return {
            "sentences": self.sentences,
            "words": self.words,
            "unknown_words": self.unknown_words,
            "unknown_share": self.unknown_share,
            "predictions": self.predictions,
            **{f"{name}_log_probability_nats": self.total(name) for name in DIRECTIONS},
            **{f"{name}_surprisal_bits": surprisal(self.total(name)) for name in DIRECTIONS},
            **{f"{name}_perplexity": self.perplexity(name) for name in DIRECTIONS},
        }


def surprisal(log_probability: float) -> float:
    """-log2 p in bits, from log p in nats."""
    return 0.0 - log_probability * BITS  # not a negative zero


def _checked(direction: str) -> str:
    if direction not in DIRECTIONS:
        raise ValueError(f"direction={direction!r} is not possible: it is {', '.join(map(repr, DIRECTIONS))}.")
    return direction


# --- Scoring ---------------------------------------------------------------------------------------------------------


def score_stream(
    model: Any,
    tokenizer: Any,
    texts: Iterable[Text],
    *,
    is_split_into_words: bool | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[SentenceScore]:
    """Scores texts one by one, in their order, as `ElmoForPreTraining.score` does; takes them as they are needed."""
    check_tokenizer(model, tokenizer)
    check_count("batch_tokens", batch_tokens)
    sentences = (words_of(tokenizer, text, number, is_split_into_words) for number, text in enumerate(texts))
    return _stream(model, tokenizer, sentences, batch_tokens)


def _stream(model: Any, tokenizer: Any, sentences: Iterator[list[str]], batch_tokens: int) -> Iterator[SentenceScore]:
    for window in sentence_windows(sentences, BATCHES_AHEAD * batch_tokens):
        with reading(model):  # not while the generator waits, as others may use the model meanwhile
            results: list[Any] = [None] * len(window)
            for numbers in _batches([len(words) + 2 for words in window], batch_tokens):
                scores = _score_batch(model, tokenizer, [window[number] for number in numbers], batch_tokens)
                for number, score in zip(numbers, scores, strict=True):
                    results[number] = score
        yield from results


def sentence_windows(sentences: Iterable[list[str]], tokens: int) -> Iterator[list[list[str]]]:
    """Some sentences at a time, until they have so many positions, boundaries included."""
    window: list[list[str]] = []
    count = 0
    for sentence in sentences:
        window.append(sentence)
        count += len(sentence) + 2
        if count >= tokens:
            yield window
            window, count = [], 0
    if window:
        yield window


def _batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of sentences that are read at a time, longer ones first; padded, they have at most so many positions."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        rows = max(batch_tokens // lengths[order[start]], 1)
        yield order[start : start + rows]
        start += rows


def _score_batch(model: Any, tokenizer: Any, batch: list[list[str]], batch_tokens: int) -> list[SentenceScore]:
    inputs = encode(tokenizer, batch, model.device)
    mask = inputs["attention_mask"].bool()
    targets, known = _targets(inputs["input_ids"], mask, tokenizer)
    forward_scores, backward_scores = torch.zeros(2, *targets.shape, dtype=torch.float64)  # (B, T) each, on the CPU
    for start, forward, backward in top_layers(model, inputs, batch_tokens):
        if forward is not None:  # each position predicts the one after it
            _fill(forward_scores, model.softmax, forward, start, +1, targets, mask)
        if backward is not None:  # the one before it
            _fill(backward_scores, model.softmax, backward, start, -1, targets, mask)
    return [
        _sentence(words, row_known, forward_row, backward_row)
        for words, row_known, forward_row, backward_row in zip(
            batch, known.tolist(), forward_scores.tolist(), backward_scores.tolist(), strict=True
        )
    ]


def _targets(input_ids: Tensor, mask: Tensor, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """What is to be predicted at each position (B, T), and whether it is a word of the vocabulary (B, T).

    Words of the text that look like a boundary or padding are none: `<UNK>` is predicted for them, as in training.
    """
    specials = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id]
    known = ~torch.isin(input_ids, torch.tensor(specials, device=input_ids.device))
    targets = input_ids.masked_fill(~known, tokenizer.unk_token_id)
    targets[:, 0] = tokenizer.bos_token_id
    targets.scatter_(1, mask.sum(dim=1, keepdim=True) - 1, tokenizer.eos_token_id)
    return targets, known


def _fill(scores: Tensor, softmax: Any, hidden: Tensor, start: int, step: int, targets: Tensor, mask: Tensor) -> None:
    """Writes to `scores` (B, T) the log-probabilities of what the positions from `start` on, (B, n, P), predict."""
    begin = max(start, -step)
    end = min(start + hidden.shape[1], targets.shape[1] - step)
    predicted = slice(begin + step, end + step)
    there = mask[:, begin:end] & mask[:, predicted]
    found = softmax.log_likelihoods(hidden[:, begin - start : end - start][there], targets[:, predicted][there])
    scores[:, predicted].masked_scatter_(there.cpu(), found.cpu().double())


def _sentence(words: list[str], known: list[bool], forward: list[float], backward: list[float]) -> SentenceScore:
    inner = slice(1, len(words) + 1)
    return SentenceScore(
        words=words,
        known=known[inner],
        forward=forward[inner],
        backward=backward[inner],
        end=forward[len(words) + 1],
        begin=backward[0],
    )


# --- Reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Without dropout, gradients and mixed precision; afterwards the model is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    device = next(model.parameters()).device
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for module in training:
            module.training = True


def top_layers(
    model: Any, inputs: dict[str, Tensor], longest: int
) -> Iterator[tuple[int, Tensor | None, Tensor | None]]:
    """What each direction predicts words from, (B, n, P) for the positions from a place on, and that place.

    Sentences of at most `longest` positions are read as a whole. Longer ones are read in pieces, first all of them
    from the left for the forward direction, then all from the right for the backward one, each with the state of the
    piece before. So of what is in memory only their ids grow with them, and a piece has vectors of one direction.
    """
    length = inputs["input_ids"].shape[1]
    if length <= longest:
        outputs = model.elmo(**inputs, output_hidden_states=True, return_dict=True)
        yield 0, *outputs.hidden_states[-1].chunk(2, dim=2)
        return
    starts = range(0, length, longest)
    for number, order in enumerate((starts, reversed(starts))):
        state = None
        for start in order:
            piece = {name: value[:, start : start + longest] for name, value in inputs.items()}
            outputs = model.elmo(
                **piece, initial_state=state, output_hidden_states=True, output_state=True, return_dict=True
            )
            state = outputs.state
            half = outputs.hidden_states[-1].chunk(2, dim=2)[number]
            yield (start, half, None) if number == 0 else (start, None, half)


def log_probabilities(model: Any, hidden: Tensor) -> Tensor:
    """The log-probabilities (N, V) of all words, from what they are predicted from (N, P); on the CPU, in float64."""
    return model.softmax.logits(hidden).cpu().double().log_softmax(dim=1)


def encode(tokenizer: Any, batch: list[list[str]], device: torch.device) -> dict[str, Tensor]:
    """What a model reads of sentences given as lists of words, with boundaries; padding comes last."""
    encoded = tokenizer(batch, is_split_into_words=True, padding=True, padding_side="right", return_tensors="pt")
    return {name: encoded[name].to(device) for name in ("input_ids", "character_ids", "attention_mask")}


def words_of(tokenizer: Any, text: Any, number: int = 0, is_split_into_words: bool | None = None) -> list[str]:
    """The words of a text, or of a list of words."""
    if isinstance(text, str):
        if is_split_into_words:
            raise ValueError(
                f"Text {number} is the string {text!r:.60}, but is_split_into_words=True says that it is a list of "
                "words."
            )
        return tokenizer.tokenize(text)
    if not isinstance(text, (list, tuple)) or is_split_into_words is False:
        wanted = "a string" if is_split_into_words is False else "a string or a list of words"
        raise ValueError(f"Text {number} is {text!r:.60}, a {type(text).__name__}, but it must be {wanted}.")
    for word in text:
        if not isinstance(word, str):
            raise ValueError(f"Text {number} has the word {word!r:.60}, a {type(word).__name__}, not a string.")
    return list(text)


# --- Checks ----------------------------------------------------------------------------------------------------------


def check_tokenizer(model: Any, tokenizer: Any) -> None:
    """Raises if the tokenizer is not that of the language model, or sets no boundaries."""
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer):,} words, but the model {model.config.vocab_size:,}: they do not "
            "belong together. Use the tokenizer of the model's folder."
        )
    if not (tokenizer.add_bos_token and tokenizer.add_eos_token):
        raise ValueError(
            f"The tokenizer has add_bos_token={tokenizer.add_bos_token} and add_eos_token={tokenizer.add_eos_token}, "
            "but the language model predicts from the boundaries of sentences: set both to True."
        )


def check_count(name: str, value: Any) -> None:
    """Raises if the value is not a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} is not possible: it must be a whole number from 1 on.")


__all__ = ["DIRECTIONS", "ScoreTotals", "SentenceScore", "score_stream", "surprisal"]
