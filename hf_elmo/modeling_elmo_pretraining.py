# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The language model that ELMo is: the next word from the left, the one before from the right, one softmax for both.

Shapes as in modeling_elmo.py; moreover V words that can be predicted, S steps of a stream.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import ElmoConfig
from .language_model import ElmoLanguageModel
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, ElmoState
from .softmax import ElmoSoftmax

# The label of positions that have none, as everywhere in transformers.
IGNORED = -100


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """What `ElmoForPreTraining` returns.

    Args:
        loss: 0.5 * (forward_loss + backward_loss).
        forward_loss: Mean over the words that were predicted from the left. With a sampled softmax in training mode it
            is not a likelihood.
        backward_loss: Mean over the words that were predicted from the right.
        forward_logits: With `output_logits=True`, for each position the scores (B, T, V) of the word after it.
        backward_logits: With `output_logits=True`, for each position the scores (B, T, V) of the word before it.
        state: With `output_state=True`, the LSTM state after the last word of each row.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    state: ElmoState | None = None


class ElmoForPreTraining(ElmoLanguageModel, ElmoPreTrainedModel):
    """A forward and a backward language model over the words of the vocabulary.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(ElmoForPreTraining)
        >>> batch = tokenizer("A river bank.", return_tensors="pt")
        >>> outputs = model(**batch, output_logits=True)
        >>> outputs.forward_logits.shape == (1, 6, model.config.vocab_size - 1)  # padding is never predicted
        True
    """

    _auto_class = "AutoModelForPreTraining"
    # The losses are means over the batch; without this, Trainer would leave the division to the model.
    accepts_loss_kwargs = False

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        if config.pad_token_id != config.vocab_size - 1:
            raise ValueError(
                f"pad_token_id={config.pad_token_id} is not possible for the language model: it needs padding to be "
                f"the last word id, {config.vocab_size - 1}, as every id before it is a word that can be predicted."
            )
        self.elmo = ElmoModel(config)
        self.elmo.mixes.requires_grad_(False)  # the mix is a task's; the language model reads the top layer
        self.dropout = nn.Dropout(config.dropout)
        self.softmax = ElmoSoftmax(
            config.vocab_size - 1,  # padding, the last id, is never predicted
            config.projection_size,
            kind=config.softmax,
            num_sampled=config.num_sampled,
            cutoffs=config.softmax_cutoffs,
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        initial_state: ElmoState | None = None,
        output_state: bool = False,
        output_logits: bool = False,
        num_predictions: float | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Predicts each word of the sentences from those before it and from those after it.

        Args:
            input_ids: Word ids (B, T) of sentences with both boundaries, as the tokenizer gives them.
            character_ids: Character ids (B, T, C). A model of words does not read them.
            attention_mask: (B, T), 0 at padding.
            labels: Word ids (B, T), `input_ids` as a rule, -100 at words that are not to be predicted. From the left
                the word at each position predicts the label after it, from the right the one before it.
            initial_state: State to start from; by default what the config says.
            output_state: Whether to return the state after the last word.
            output_logits: Whether to return the scores of all words of the vocabulary.
            num_predictions: What the sum of a direction's losses is divided by; by default the number of its
                predictions, which makes it their mean.
            generator: Where a sampled softmax takes its numbers from, on the CPU; by default torch's own generator.
        """
        outputs = self.elmo(
            input_ids,
            character_ids,
            attention_mask=attention_mask,
            initial_state=initial_state,
            output_hidden_states=True,
            output_state=output_state,
            return_dict=True,
        )
        forward, backward = self.dropout(outputs.hidden_states[-1]).chunk(2, dim=2)  # (B, T, P) each
        result = ElmoForPreTrainingOutput(state=outputs.state)
        if labels is not None:
            if labels.shape != forward.shape[:2]:
                raise ValueError(
                    f"labels has the shape {tuple(labels.shape)}, but this batch is {tuple(forward.shape[:2])}."
                )
            mask = self._neighbours(input_ids, character_ids, attention_mask)  # (B, T - 1)
            after, before = (side.masked_fill(~mask, IGNORED) for side in (labels[:, 1:], labels[:, :-1]))
            result.forward_loss = self._loss(forward[:, :-1], after, num_predictions, generator)
            result.backward_loss = self._loss(backward[:, 1:], before, num_predictions, generator)
            result.loss = 0.5 * (result.forward_loss + result.backward_loss)
        if output_logits:
            result.forward_logits, result.backward_logits = map(self._logits, (forward, backward))
        return result

    def forward_stream(
        self,
        forward_ids: Tensor,
        forward_labels: Tensor,
        backward_ids: Tensor,
        backward_labels: Tensor,
        initial_state: ElmoState | None = None,
        num_predictions: float | None = None,
        generator: torch.Generator | None = None,
        forward_word_ids: Tensor | None = None,
        backward_word_ids: Tensor | None = None,
    ) -> ElmoForPreTrainingOutput:
        """One step of the original's training: a window of a stream that goes on in the next call.

        Each direction reads its own window in its own order: the forward one `<S> w1 .. wn <S> ...`, the backward one
        `</S> wn .. w1 </S> ...`. There is no padding, though labels may be missing, as at the end of a text. The state
        is returned, cut off from the gradient.

        Args:
            forward_ids: Character ids (B, S, C) in the order of the forward direction. A model of words does not read
                them.
            forward_labels: Word ids (B, S) of the word that each of them predicts, or -100.
            backward_ids: Character ids (B, S, C) in the order of the backward direction.
            backward_labels: Word ids (B, S) of the word that each of them predicts, or -100.
            initial_state: State of the rows after the window before; zeros by default.
            num_predictions: As in `forward`.
            generator: As in `forward`.
            forward_word_ids: Word ids (B, S) of the words of `forward_ids`. A character model does not read them.
            backward_word_ids: Word ids (B, S) of the words of `backward_ids`.
        """
        rows, steps, _ = forward_ids.shape
        of_words = {
            "forward_labels": forward_labels,
            "backward_labels": backward_labels,
            "forward_word_ids": forward_word_ids,
            "backward_word_ids": backward_word_ids,
        }
        for name, value in of_words.items():
            if value is not None and value.shape != (rows, steps):
                raise ValueError(f"{name} has the shape {tuple(value.shape)}, but the window is {(rows, steps)}.")
        if backward_ids.shape != forward_ids.shape:
            raise ValueError(
                f"backward_ids has the shape {tuple(backward_ids.shape)}, but forward_ids {tuple(forward_ids.shape)}."
            )
        if initial_state is None:
            initial_state = self._zero_state(forward_ids)
        hidden, cell = initial_state.hidden.chunk(2, dim=2), initial_state.cell.chunk(2, dim=2)
        forward_words, backward_words = self._words_of_windows(
            (forward_ids, backward_ids), (forward_word_ids, backward_word_ids)
        )
        directions = (
            (self.elmo.bilstm.forward_layers, forward_words, forward_labels),
            (self.elmo.bilstm.backward_layers, backward_words, backward_labels),
        )
        losses, hiddens, cells = [], [], []
        for number, (stack, words, labels) in enumerate(directions):
            layers, last_hidden, last_cell = self.elmo.bilstm.read(
                stack, words, [rows] * steps, hidden[number], cell[number]
            )
            losses.append(self._loss(self.dropout(layers[-1]), labels.T.flatten(), num_predictions, generator))
            hiddens.append(last_hidden)
            cells.append(last_cell)
        return ElmoForPreTrainingOutput(
            loss=0.5 * (losses[0] + losses[1]),
            forward_loss=losses[0],
            backward_loss=losses[1],
            state=ElmoState(hidden=torch.cat(hiddens, dim=2), cell=torch.cat(cells, dim=2)).detach(),
        )

    def _words_of_windows(
        self, characters: tuple[Tensor, Tensor], word_ids: tuple[Tensor | None, Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        """The words of both windows (S * B, P), step by step; together, so that each word is spelled once."""
        spelled = torch.cat([window.transpose(0, 1).flatten(0, 1) for window in characters])  # (2 * S * B, C)
        if self.config.word_input == "characters":
            return self.elmo.character_encoder(spelled).chunk(2)
        if word_ids[0] is None or word_ids[1] is None:
            raise ValueError(
                f"The word ids are missing: with word_input={self.config.word_input!r} words are looked up in a "
                "table. Give forward_word_ids and backward_word_ids, which PretrainingData has with word_ids=True."
            )
        looked_up = torch.cat([cast(Tensor, window).T.flatten() for window in word_ids])  # (2 * S * B,)
        return self.elmo.character_encoder(spelled, looked_up).chunk(2)

    def _zero_state(self, character_ids: Tensor) -> ElmoState:
        layers, rows = self.config.num_hidden_layers, len(character_ids)
        hidden, cell = (
            character_ids.new_zeros(layers, rows, 2 * size, dtype=self.dtype)
            for size in (self.config.projection_size, self.config.cell_size)
        )
        return ElmoState(hidden=hidden, cell=cell)

    def _neighbours(
        self, input_ids: Tensor | None, character_ids: Tensor | None, attention_mask: Tensor | None
    ) -> Tensor:
        """(B, T - 1), true where a position and the one after it are both of the sentence."""
        if self.config.word_input == "words":
            mask = self.elmo._word_mask(cast(Tensor, input_ids), attention_mask)
        else:
            mask = (cast(Tensor, input_ids if character_ids is None else character_ids) > 0).any(dim=2)
            if attention_mask is not None:
                mask = mask & attention_mask.bool()
        return mask[:, :-1] & mask[:, 1:]

    def _loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        num_predictions: float | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The mean over the labels, (B, T - 1) or (N,), that are there, or 0 if there are none."""
        chosen = labels != IGNORED
        losses = self.softmax.losses(hidden[chosen], labels[chosen], generator)
        return losses.sum() / (max(len(losses), 1) if num_predictions is None else num_predictions)

    def _logits(self, hidden: Tensor) -> Tensor:
        """(B, T, P) to (B, T, V)."""
        return self.softmax.logits(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ElmoSoftmax):
            module.reset_parameters()


__all__ = ["ElmoForPreTraining", "ElmoForPreTrainingOutput"]
