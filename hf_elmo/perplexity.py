# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""How well a language model predicts a text: perplexity with the full softmax, from the left and from the right.

A direction makes one prediction for each word and one for the end of each sentence (backward: its begin), and its
perplexity is the exponential of the mean of their losses. That of both is the exponential of the mean of both means,
which is the geometric mean of the two, as the original program gives it.
"""

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers.utils import logging

from .modeling_elmo import ElmoState
from .modeling_elmo_pretraining import IGNORED, ElmoForPreTraining, ElmoForPreTrainingOutput
from .pretraining_data import Mode, PretrainingData
from .text_files import ErrorPolicy
from .tokenization_elmo import ElmoTokenizer

if TYPE_CHECKING:
    from accelerate import Accelerator

MAX_SENTENCE_WORDS = 400  # bounds the memory; longer lines are no sentences

HOW = {
    "stream": "the state is carried from sentence to sentence",
    "sentences": "every sentence by itself",
}


class PerplexitySums(NamedTuple):
    """What a perplexity is made of; those of several processes can be added."""

    forward_loss: float = 0.0
    backward_loss: float = 0.0
    predictions: float = 0.0  # of each direction
    words: float = 0.0
    unknown_words: float = 0.0

    def plus(self, other: "PerplexitySums") -> "PerplexitySums":
        """The sums of both."""
        return PerplexitySums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def losses(self) -> tuple[float, float]:
        """The mean losses of the forward and of the backward direction."""
        count = max(self.predictions, 1)
        return self.forward_loss / count, self.backward_loss / count


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a text.

    Args:
        forward: Of the words from the left.
        backward: Of the words from the right.
        both: The geometric mean of the two.
        predictions: Of each direction: all words, and one more for each sentence.
        words: Of the text.
        unknown_share: Share of the words that are not in the vocabulary. `<UNK>` is predicted in their place, so texts
            and vocabularies with other shares cannot be compared.
        seconds: That it took.
        words_per_second: How fast that is.
        mode: `"stream"` if the state was carried from sentence to sentence, `"sentences"` if not.
    """

    forward: float
    backward: float
    both: float
    predictions: int
    words: int
    unknown_share: float
    seconds: float
    words_per_second: float
    mode: Mode

    @classmethod
    def of_sums(cls, sums: PerplexitySums, seconds: float, mode: Mode) -> "Perplexity":
        """The perplexity that these sums make."""
        forward, backward = sums.losses
        return cls(
            forward=_exponential(forward),
            backward=_exponential(backward),
            both=_exponential((forward + backward) / 2),
            predictions=round(sums.predictions),
            words=round(sums.words),
            unknown_share=sums.unknown_words / max(sums.words, 1),
            seconds=seconds,
            words_per_second=sums.words / max(seconds, 1e-9),
            mode=mode,
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures, as something that JSON can hold if they are finite."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"perplexity: forward {self.forward:.4f}, backward {self.backward:.4f}, both {self.both:.4f} (geometric "
            f"mean)\nwords: {self.words:,}, of which {self.unknown_share:.2%} are not in the vocabulary; "
            f"{self.predictions:,} predictions in each direction\nhow: full softmax, {HOW[self.mode]}\n"
            f"time: {self.seconds:.1f} s, {self.words_per_second:,.0f} words/s"
        )


def evaluate_perplexity(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    source: Any,
    *,
    mode: Mode = "stream",
    rows: int = 32,
    steps: int = 20,
    max_sentence_words: int = MAX_SENTENCE_WORDS,
    max_words: int | None = None,
    errors: ErrorPolicy = "replace",
    column: str = "text",
    num_workers: int = 0,
    show_progress: bool = True,
    accelerator: "Accelerator | None" = None,
) -> Perplexity:
    """Measures the perplexity of a text, every word of which is predicted once by each direction.

    The softmax is always that over all words, also if the model was trained with a sampled one. The model is on its
    device and in its precision; losses are added up in float64.

    Args:
        model: The model, not wrapped for parallel training.
        tokenizer: With the model's vocabulary.
        source: Files, folders and patterns, or a data set, as `CorpusReader` takes them.
        mode: `"stream"` carries the state of each row from sentence to sentence, as the original's test program does;
            which sentence comes after which, and so the result, depends slightly on `rows` and `steps`.
            `"sentences"` begins every sentence with what the config says; then it does not.
        rows: That are read at the same time by each process.
        steps: Length of the windows of a stream.
        max_sentence_words: With `"sentences"`, longer ones are cut into pieces, which bounds the memory.
        max_words: End after the batch with which this many predictions are made, by all processes together.
        errors: What to do with lines that are not UTF-8.
        column: Of a data set, with the text.
        num_workers: Processes that prepare batches.
        show_progress: Whether to show a progress bar.
        accelerator: If several processes share the work; all of them get the result.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(hf_elmo.ElmoForPreTraining)
        >>> found = evaluate_perplexity(model, tokenizer, "heldout.txt")  # doctest: +SKIP
        >>> found.forward, found.backward, found.both  # doctest: +SKIP
    """
    data = PretrainingData(
        source,
        tokenizer,
        mode=mode,
        rows=rows,
        steps=steps,
        shuffle=False,
        epochs=1,
        errors=errors,
        column=column,
        max_sentence_words=max_sentence_words if mode == "sentences" else None,
        rank=0 if accelerator is None else accelerator.process_index,
        world_size=1 if accelerator is None else accelerator.num_processes,
        num_workers=num_workers,
        word_ids=model.config.word_input != "characters",
        complete=True,
    )
    start = time.perf_counter()
    sums = perplexity_sums(model, tokenizer, data, max_words=max_words, show_progress=show_progress)
    if accelerator is not None:
        of_all = torch.tensor(sums, dtype=torch.float64, device=accelerator.device)
        sums = PerplexitySums(*accelerator.reduce(of_all, reduction="sum").tolist())
    return Perplexity.of_sums(sums, time.perf_counter() - start, mode)


def perplexity_sums(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    data: PretrainingData,
    max_words: int | None = None,
    show_progress: bool = True,
) -> PerplexitySums:
    """What the perplexity of the data is made of; of several processes, what this one has read.

    Args:
        model: The model; it is as before afterwards.
        tokenizer: With the model's vocabulary.
        data: One epoch, complete.
        max_words: End after the batch with which this many predictions are made, by all processes together.
        show_progress: Whether to show a progress bar.
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words is {max_words}; it must be 1 or more.")
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer):,} words, but the model {model.config.vocab_size:,}: they do not "
            "belong together. Use the tokenizer of the model's folder."
        )
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _sums(model, tokenizer, data, max_words, show_progress)
    finally:
        model.train(was_training)


def _sums(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    data: PretrainingData,
    max_words: int | None,
    show_progress: bool,
) -> PerplexitySums:
    sums, made = PerplexitySums(), 0
    state: ElmoState | None = None
    with logging.tqdm(desc="perplexity", unit=" words", unit_scale=True, disable=not show_progress) as bar:
        for batch in data:
            inputs: dict[str, Any] = {name: value.to(model.device) for name, value in batch.inputs.items()}
            outputs: ElmoForPreTrainingOutput
            if "forward_ids" in inputs:
                outputs = model.forward_stream(**inputs, initial_state=state, num_predictions=1)
                state = outputs.state
            else:
                outputs = model(**inputs, num_predictions=1)
            sums = sums.plus(_sums_of_batch(outputs, _targets(batch.inputs), tokenizer))
            made += batch.num_predictions
            bar.update(batch.num_predictions)
            bar.set_postfix(perplexity=f"{_exponential(sum(sums.losses) / 2):.2f}", refresh=False)
            if max_words is not None and made >= max_words:
                break
    return sums


def _targets(inputs: dict[str, Tensor]) -> Tensor:
    """What the forward direction predicts."""
    return inputs["forward_labels"] if "forward_labels" in inputs else inputs["labels"][:, 1:]


def _sums_of_batch(outputs: ElmoForPreTrainingOutput, targets: Tensor, tokenizer: ElmoTokenizer) -> PerplexitySums:
    predicted = targets != IGNORED
    return PerplexitySums(
        forward_loss=cast(Tensor, outputs.forward_loss).item(),
        backward_loss=cast(Tensor, outputs.backward_loss).item(),
        predictions=int(predicted.sum()),
        words=int((predicted & (targets != tokenizer.eos_token_id)).sum()),
        unknown_words=int((targets == tokenizer.unk_token_id).sum()),
    )


def _exponential(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


__all__ = ["Perplexity", "PerplexitySums", "evaluate_perplexity", "perplexity_sums"]
