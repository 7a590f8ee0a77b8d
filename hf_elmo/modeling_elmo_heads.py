# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo for tasks, used as in the paper.

All heads read a sentence in the same way (`ElmoTaskModel`): [static word vector; ELMo vector] of each word, the task's
own LSTM, ELMo again behind its output, each of them optional. Then each head does its own: labels of words, labels of
sentences and pairs, answers in a text, choices.

Shapes as in modeling_elmo.py; moreover K labels, X width of what the classifier sees of a word.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from transformers import initialization as init
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from .configuration_elmo import ElmoConfig
from .crf import ElmoCrf
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, LayerWeights, PackedWords
from .modeling_elmo_pretraining import ElmoForPreTraining  # all models are looked up in this file
from .padded import PaddedWords, read_labels, read_task_lstm

if TYPE_CHECKING:  # Before 5.10, transformers takes from a local folder only the code files that this one names.
    from .fast_paths import is_fast  # noqa: F401
    from .language_model import ElmoLanguageModel  # noqa: F401
    from .modeling_elmo_words import ElmoWordEncoder  # noqa: F401
    from .packing import has_boundaries  # noqa: F401
    from .products import product  # noqa: F401
    from .recurrence import LstmWeights  # noqa: F401
    from .sampling import Sample  # noqa: F401
    from .scoring import SentenceScore  # noqa: F401
    from .softmax import CandidateSample  # noqa: F401
    from .substitutes import Substitutes  # noqa: F401
    from .threads import one_thread  # noqa: F401

# The label of positions that have none, as everywhere in transformers.
IGNORED = -100

# Among labels of one and the same probability, the one on the best path is larger by this in the logits.
TIE_BREAK = 1e-3


# --- What the heads share --------------------------------------------------------------------------------------------


class TaskWords(NamedTuple):
    """What a task knows of the words of a batch."""

    vectors: Tensor  # (B, T, X), zero at padding
    mask: Tensor  # (B, T), true where there is a word or a boundary
    hidden_states: tuple[Tensor, ...] | None  # the layers of the biLM (B, T, D), if they were asked for


class ElmoTaskLstm(nn.LSTM):
    """The task's own LSTM, for words packed without padding."""

    def __init__(self, config: ElmoConfig):
        super().__init__(
            config.task_input_size,
            config.task_lstm_size,
            num_layers=config.task_lstm_layers,
            bidirectional=True,
            dropout=config.task_dropout if config.task_lstm_layers > 1 else 0.0,
        )

    @torch.compiler.disable  # a compiler would make it anew for each length
    def read(self, words: Tensor, packing: PackedWords) -> Tensor:
        """(N, X) to (N, 2 x task_lstm_size)."""
        if not packing.batch_sizes:
            return words.new_zeros(0, 2 * self.hidden_size)
        batch_sizes = torch.tensor(packing.batch_sizes, device="cpu")  # where torch wants them, whatever the device
        outputs, _ = self(PackedSequence(words, batch_sizes))
        return outputs.data


class ElmoTaskModel(ElmoPreTrainedModel):
    """Reads sentences for a task: what all heads have below their classifier."""

    # The losses here are means over the batch; without this, Trainer would leave the division to the model.
    accepts_loss_kwargs = False

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        # Set to a `hf_elmo.FeatureCache` to keep the layers of a frozen biLM on disk from epoch to epoch.
        self.feature_cache: Any = None
        if config.use_elmo:
            self.elmo = ElmoModel(config)
        if config.word_vector_size:
            self.word_vectors = nn.Embedding(config.word_vector_vocab_size, config.word_vector_size, padding_idx=0)
        if config.predicate_embedding_size:
            self.predicate_embedding = nn.Embedding(2, config.predicate_embedding_size)
        if config.task_lstm_size:
            self.task_lstm = ElmoTaskLstm(config)
        self.elmo_dropout = nn.Dropout(config.elmo_dropout)
        self.task_dropout = nn.Dropout(config.task_dropout)
        self._freeze_as_configured()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As always; loaded weights replace those of the constructor, so what is frozen has to be frozen again."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model._freeze_as_configured()
        return loaded

    def _freeze_as_configured(self) -> None:
        if self.config.use_elmo:
            self.freeze_bilm(self.config.freeze_bilm)
        if self.config.word_vector_size:
            self.word_vectors.weight.requires_grad_(self.config.train_word_vectors)

    def freeze_bilm(self, frozen: bool = True) -> None:
        """Keeps the weights below the mix as they are, or lets them learn; the mix itself always learns."""
        for part in (self.elmo.character_encoder, self.elmo.bilstm):
            part.requires_grad_(not frozen)

    def layer_weights(self, representation: int = 0) -> LayerWeights:
        """The normalised weight of each layer in the ELMo vector that the task reads, and gamma.

        Args:
            representation: Which mix: 0 is that below the task's LSTM, 1 that behind it with `elmo_at_output`.
        """
        if not self.config.use_elmo:
            raise ValueError("This model has use_elmo=False, so it has no layers whose weights it could give.")
        return self.elmo.layer_weights(representation)

    def train(self, mode: bool = True) -> "ElmoTaskModel":
        """As always, except that a frozen biLM stays in evaluation mode: nothing that cannot learn is dropped out."""
        super().train(mode)
        if self.config.use_elmo and self._bilm_is_frozen():
            self.elmo.character_encoder.eval()
            self.elmo.bilstm.eval()
        return self

    def _bilm_is_frozen(self) -> bool:
        return not any(parameter.requires_grad for parameter in self.elmo.bilstm.parameters())

    @torch.no_grad()
    def set_word_vectors(self, matrix: Any) -> None:
        """Puts static word vectors in place, a row for each id of the tokenizer's `word_vector_ids`.

        Args:
            matrix: (word_vector_vocab_size, word_vector_size); row 0 is padding and must be zero.
        """
        values = torch.as_tensor(matrix, dtype=torch.float32, device="cpu")
        expected = (self.config.word_vector_vocab_size, self.config.word_vector_size)
        if tuple(values.shape) != expected:
            raise ValueError(
                f"The word vectors have the shape {tuple(values.shape)}, but this model has {expected} "
                "(word_vector_vocab_size, word_vector_size)."
            )
        if values[0].any():
            raise ValueError("Row 0 of the word vectors is padding: it must be zero.")
        self.word_vectors.weight.copy_(values)

    def _read(
        self,
        input_ids: Tensor | None,
        character_ids: Tensor | None,
        attention_mask: Tensor | None,
        word_vector_ids: Tensor | None,
        predicate_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
    ) -> TaskWords:
        """Reads the batch up to where the heads begin."""
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        mask = self._mask(character_ids, attention_mask, input_ids)
        exporting = torch.compiler.is_exporting()
        packing: Any = PaddedWords(mask) if exporting else PackedWords.from_mask(mask)
        parts = []
        layers = None
        if self.config.word_vector_size:
            _check_shape("word_vector_ids", word_vector_ids, mask, "a tokenizer that knows the static word vectors")
            parts.append(self.word_vectors(packing.pack(cast(Tensor, word_vector_ids))))
        if self.config.use_elmo:
            representations, layers = self._elmo_vectors(input_ids, character_ids, mask, bool(output_hidden_states))
            parts.append(self.elmo_dropout(packing.pack(representations[0])))
        if self.config.predicate_embedding_size:
            _check_shape("predicate_ids", predicate_ids, mask, "1 at the predicate and 0 elsewhere")
            parts.append(self.predicate_embedding(packing.pack(cast(Tensor, predicate_ids))))
        words = torch.cat(parts, dim=-1)  # (N, X)
        if self.config.task_lstm_size:
            words = self.task_dropout(words)
            words = read_task_lstm(self.task_lstm, words, mask) if exporting else self.task_lstm.read(words, packing)
        if self.config.elmo_at_output:
            words = torch.cat([words, self.elmo_dropout(packing.pack(representations[-1]))], dim=-1)
        return TaskWords(packing.unpack(words, *mask.shape), mask, layers if output_hidden_states else None)

    def _mask(self, character_ids: Tensor | None, attention_mask: Tensor | None, input_ids: Tensor | None) -> Tensor:
        """(B, T), true where there is a word or a boundary."""
        if input_ids is not None and input_ids.dim() != 2:
            raise ValueError(f"input_ids has the shape {tuple(input_ids.shape)}, but word ids are (batch, words).")
        if attention_mask is not None:
            return attention_mask.bool()
        if character_ids is not None:
            return (character_ids > 0).any(dim=-1)
        if input_ids is not None:
            return input_ids != self.config.pad_token_id
        raise ValueError("There is nothing to read: pass all that the tokenizer returns, model(**tokenizer(...)).")

    def _elmo_vectors(
        self, input_ids: Tensor | None, character_ids: Tensor | None, mask: Tensor, output_hidden_states: bool
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """The ELMo vectors (B, T, D), one for each mix, and the layers; from the biLM or from what was kept of it."""
        if self.feature_cache is not None and character_ids is not None:
            self._check_cache()
            layers = tuple(self.feature_cache.layers(self.elmo, character_ids, mask))
            return self.elmo.combine_layers(layers, mask), layers
        if input_ids is None and character_ids is not None and self.config.word_input == "characters":
            input_ids = character_ids.new_zeros(character_ids.shape[:2])  # positions are taken as they are
        # A frozen biLM gains nothing from mixed precision in training, and would differ from what a cache keeps.
        mixed = torch.is_autocast_enabled(mask.device.type) and not self._bilm_is_frozen()
        with torch.autocast(mask.device.type, enabled=mixed):
            outputs = self.elmo(
                input_ids,
                character_ids,
                attention_mask=mask,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        return outputs.elmo_representations or (outputs.last_hidden_state,), outputs.hidden_states

    def _check_cache(self) -> None:
        if self.config.word_input != "characters":
            raise ValueError(
                f"A feature cache knows sentences by their characters, but this model (word_input="
                f"{self.config.word_input!r}) looks words up in a table: set feature_cache to None."
            )
        if not self._bilm_is_frozen():
            raise ValueError("A feature cache needs a frozen biLM, but this one learns: call freeze_bilm() first.")

    def _boundaries(
        self, input_ids: Tensor | None, character_ids: Tensor | None, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Where a sentence begins and where one ends, (B, T) each.

        A `<S>` that is not at the beginning or after a `</S>` is a word of the text, and so is a `</S>` that is not at
        the end or before a `<S>`.
        """
        if character_ids is not None and self.config.word_input != "words":
            ids = character_ids[..., 1]
            begin_id, end_id = self.config.character_markers[:2]
        elif input_ids is not None:
            ids = input_ids
            begin_id, end_id = self.config.bos_token_id, self.config.eos_token_id
        else:
            raise ValueError("input_ids is missing: without it, nobody knows where sentences begin and end.")
        begin, end = ids == begin_id, ids == end_id
        begin, end = begin & mask, end & mask
        first = mask & (mask.cumsum(dim=1) == 1)
        last = mask & (mask.flip(1).cumsum(dim=1).flip(1) == 1)
        after_end = nn.functional.pad(end, (1, 0))[:, :-1]
        before_begin = nn.functional.pad(begin, (0, 1))[:, 1:]
        return begin & (first | after_end), end & (last | before_begin)

    def _with_mix_penalty(self, loss: Tensor | None) -> Any:
        """Adds the paper's lambda * |w|^2."""
        if loss is None or not self.config.mix_l2 or not self.config.use_elmo:
            return loss
        return loss + self.config.mix_l2 * sum(cast(Tensor, mix.weight).pow(2).sum() for mix in self.elmo.mixes)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            for name, weight in module.named_parameters():
                if name.startswith("weight_ih"):
                    init.xavier_uniform_(weight)
                elif name.startswith("weight_hh"):
                    init.orthogonal_(weight)
                else:
                    init.zeros_(weight)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=0.1)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, ElmoCrf):
            module.reset_parameters()


def _check_shape(name: str, value: Tensor | None, mask: Tensor, what: str) -> None:
    if value is None:
        raise ValueError(f"{name} is missing: this model needs it, from {what}.")
    if value.shape != mask.shape:
        raise ValueError(f"{name} has the shape {tuple(value.shape)}, but the batch is {tuple(mask.shape)}.")


def _check_labels(labels: Tensor, num_labels: int, shape: torch.Size) -> None:
    """Refuses labels of another shape, and labels that are not among the model's."""
    if labels.shape != shape:
        raise ValueError(f"labels has the shape {tuple(labels.shape)}, but this batch needs {tuple(shape)}.")
    wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= num_labels))]
    if wrong.numel() > 0:
        raise ValueError(
            f"labels has the value {int(wrong[0])}, but this model has {num_labels} labels, 0 to {num_labels - 1} "
            f"({IGNORED} for none). Set num_labels, or id2label and label2id, when you make or load the model."
        )


# --- Labels of words -------------------------------------------------------------------------------------------------


class ElmoForTokenClassification(ElmoTaskModel):
    """A label for each word: named entities, parts of speech, semantic roles.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(ElmoForTokenClassification, num_labels=5, use_crf=True)
        >>> model(**tokenizer("Anna lives in Rome.", return_tensors="pt")).logits.shape  # <S> and </S> included
        torch.Size([1, 7, 5])
    """

    _auto_class = "AutoModelForTokenClassification"

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.num_labels = cast(int, config.num_labels)
        self.classifier = nn.Linear(config.task_hidden_size, self.num_labels)
        if config.use_crf:
            names = cast(dict[int, str], config.id2label)
            self.crf = ElmoCrf([names[number] for number in sorted(names)], config.crf_scheme)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        predicate_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Scores the labels of each word.

        Args:
            input_ids: Word ids (B, T).
            character_ids: Character ids (B, T, C).
            attention_mask: (B, T), 0 at padding.
            word_vector_ids: Ids of the static word vectors (B, T), if the model has them.
            predicate_ids: (B, T), 1 at the predicate, if the model labels semantic roles.
            labels: (B, T), -100 where there is none.
            output_hidden_states: Whether to return all layers of the biLM.

        Returns:
            `loss`, if there are labels, and `logits` (B, T, K). With a conditional random field, the logits of a model
            in evaluation mode are the logarithms of each label's probability given the whole sentence, and the largest
            one of each word is that of the best path.
        """
        words, mask, layers = self._read(
            input_ids, character_ids, attention_mask, word_vector_ids, predicate_ids, output_hidden_states
        )
        logits = self.classifier(self.task_dropout(words))  # (B, T, K)
        if labels is not None:
            if self.config.use_crf and torch.compiler.is_exporting():
                raise ValueError(
                    "torch.export exports a conditional random field for prediction only: give no labels."
                )
            _check_labels(labels, self.num_labels, mask.shape)
        loss = None
        if self.config.use_crf:
            begin, end = self._boundaries(input_ids, character_ids, mask)
            labelled = mask & ~begin & ~end
            if labels is not None:
                chosen = labelled & (labels != IGNORED)
                likelihoods = self.crf.log_likelihood(logits, labels, chosen)  # (B,), 0 without any label
                loss = -likelihoods.sum() / chosen.any(dim=1).sum().clamp(min=1)
            if not self.training:
                logits = self._decoded_logits(logits, labelled)
        elif labels is not None:
            chosen = mask & (labels != IGNORED)
            loss = _mean_cross_entropy(logits[chosen], labels[chosen])
        return TokenClassifierOutput(loss=self._with_mix_penalty(loss), logits=logits, hidden_states=cast(Any, layers))

    def _decoded_logits(self, emissions: Tensor, labelled: Tensor) -> Tensor:
        """Log-probabilities (B, T, K) whose largest entry is the label on the best path.

        The most probable label of a word need not be on the most probable path, which is what counts: it alone is sure
        to keep to the scheme. Where they differ the two probabilities are exchanged, so that whoever takes the largest
        one, pipelines among them, gets the path.
        """
        if torch.compiler.is_exporting():
            probabilities, path = read_labels(self.crf, emissions, labelled)
        else:
            probabilities, path = self.crf.marginals(emissions, labelled), self.crf.decode(emissions, labelled)
        logits = probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()
        path = path.clamp(min=0).unsqueeze(2)  # (B, T, 1)
        largest, most_probable = logits.max(dim=2, keepdim=True)
        logits = logits.scatter(2, most_probable, logits.gather(2, path)).scatter(2, path, largest + TIE_BREAK)
        return torch.where(labelled.unsqueeze(2), logits.to(emissions.dtype), emissions)


def _mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean, or 0 if there is no label at all, where the plain mean would not be a number."""
    return nn.functional.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


# --- Labels of sentences and pairs -----------------------------------------------------------------------------------


class ElmoPooler(nn.Module):
    """One vector for a sentence, or for a pair of sentences.

    Mean and maximum are over the words, without `<S>` and `</S>`. A pair of sentences u and v becomes
    [u; v; |u - v|; u * v].
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.pooling = config.pooling
        self.num_sentences = config.num_sentences
        parts = 1 if config.pooling in ("mean", "max") else 2
        self.output_size = config.task_hidden_size * parts * (4 if config.num_sentences == 2 else 1)

    def forward(self, words: Tensor, mask: Tensor, begin: Tensor, end: Tensor) -> Tensor:
        """(B, T, X) to (B, output_size), given where the words and the boundaries are."""
        begin = begin & mask
        self._check_number_of_sentences(begin)
        if self.num_sentences == 1:
            return self._pool(words, mask, begin | end)
        second = mask & (begin.cumsum(dim=1) == 2)
        u, v = (self._pool(words, sentence, begin | end) for sentence in (mask & ~second, second))
        return torch.cat([u, v, (u - v).abs(), u * v], dim=1)

    def _check_number_of_sentences(self, begin: Tensor) -> None:
        if torch.compiler.is_exporting():  # an exported graph cannot raise errors
            return
        found = begin.sum(dim=1)
        wrong = found > 1 if self.num_sentences == 1 else found != 2
        if not wrong.any():
            return
        row = int(wrong.int().argmax())
        if self.num_sentences == 1:
            raise ValueError(
                f"Row {row} of the batch has {int(found[row])} sentences, but this model classifies single ones. Give "
                "the tokenizer no second text, or make the model with num_sentences=2."
            )
        raise ValueError(
            f"Row {row} of the batch has {int(found[row])} sentence(s), but this model classifies pairs: give the "
            "tokenizer two texts, tokenizer(text, text_pair), or make the model with num_sentences=1."
        )

    def _pool(self, words: Tensor, sentence: Tensor, boundary: Tensor) -> Tensor:
        """(B, T, X) to (B, X) or (B, 2X), of one sentence (B, T) a row; zeros if there is none."""
        if self.pooling == "boundary":
            columns = torch.arange(sentence.shape[1], device=sentence.device).expand_as(sentence)
            first = columns.masked_fill(~sentence, sentence.shape[1] - 1).amin(dim=1, keepdim=True)
            last = columns.masked_fill(~sentence, 0).amax(dim=1, keepdim=True)
            return torch.cat([_at(words, last), _at(words, first)], dim=1)
        inner = sentence & ~boundary
        inner = torch.where(inner.any(dim=1, keepdim=True), inner, sentence)  # an empty sentence is its boundaries
        chosen = inner.unsqueeze(2)  # (B, T, 1)
        pooled = []
        if self.pooling in ("mean", "mean_max"):
            pooled.append((words * chosen).sum(dim=1) / inner.sum(dim=1, keepdim=True).clamp(min=1))
        if self.pooling in ("max", "mean_max"):
            lowest = torch.finfo(words.dtype).min
            largest = words.masked_fill(~chosen, lowest).amax(dim=1)
            pooled.append(largest * inner.any(dim=1, keepdim=True))
        return torch.cat(pooled, dim=1)


def _at(words: Tensor, column: Tensor) -> Tensor:
    """The vectors (B, X) at the columns (B, 1) of (B, T, X)."""
    return words.gather(1, column.unsqueeze(2).expand(-1, -1, words.shape[2])).squeeze(1)


class ElmoForSequenceClassification(ElmoTaskModel):
    """A label, several labels or a number for a sentence or a pair of sentences.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(ElmoForSequenceClassification, num_labels=2, pooling="mean_max")
        >>> model(**tokenizer("A dull film.", return_tensors="pt")).logits.shape
        torch.Size([1, 2])
    """

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.num_labels = cast(int, config.num_labels)
        self.pooler = ElmoPooler(config)
        self.classifier = nn.Linear(self.pooler.output_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Scores the labels of each sentence or pair.

        Args:
            input_ids: Word ids (B, T).
            character_ids: Character ids (B, T, C).
            attention_mask: (B, T), 0 at padding.
            word_vector_ids: Ids of the static word vectors (B, T), if the model has them.
            labels: (B,) labels or numbers; (B, K) zeros and ones if a sentence has several labels.
            output_hidden_states: Whether to return all layers of the biLM.

        Returns:
            `loss`, if there are labels, and `logits` (B, K).
        """
        words, mask, layers = self._read(
            input_ids, character_ids, attention_mask, word_vector_ids, output_hidden_states=output_hidden_states
        )
        pooled = self.pooler(words, mask, *self._boundaries(input_ids, character_ids, mask))
        logits = self.classifier(self.task_dropout(pooled))  # (B, K)
        loss = None if labels is None else self._loss(logits, labels)
        return SequenceClassifierOutput(
            loss=self._with_mix_penalty(loss), logits=logits, hidden_states=cast(Any, layers)
        )

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self._problem_type(labels) == "regression":
            if labels.numel() != logits.numel():
                raise ValueError(
                    f"labels has the shape {tuple(labels.shape)}, but the model gives {tuple(logits.shape)}."
                )
            return nn.functional.mse_loss(logits.flatten(), labels.flatten().to(logits.dtype))
        if self._problem_type(labels) == "multi_label_classification":
            if labels.shape != logits.shape:
                raise ValueError(
                    f"labels has the shape {tuple(labels.shape)}, but several labels a sentence need "
                    f"{tuple(logits.shape)}, zeros and ones."
                )
            return nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        _check_labels(labels, self.num_labels, logits.shape[:1])
        return nn.functional.cross_entropy(logits, labels)

    def _problem_type(self, labels: Tensor) -> str:
        """As the config says, or as the labels look; remembered in the config, so that a pipeline knows it, too."""
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.is_floating_point():
                self.config.problem_type = "multi_label_classification"
            else:
                self.config.problem_type = "single_label_classification"
        return self.config.problem_type


# --- Answers ---------------------------------------------------------------------------------------------------------


class ElmoForQuestionAnswering(ElmoTaskModel):
    """The first and the last word of the answer to a question in a text.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(ElmoForQuestionAnswering)
        >>> batch = tokenizer("Where is Anna?", "Anna is in Rome.", return_tensors="pt")
        >>> model(**batch).start_logits.shape == batch["input_ids"].shape
        True
    """

    _auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.task_hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Scores each word as the first and as the last of the answer.

        Args:
            input_ids: Word ids (B, T) of question and text, a pair to the tokenizer.
            character_ids: Character ids (B, T, C).
            attention_mask: (B, T), 0 at padding.
            word_vector_ids: Ids of the static word vectors (B, T), if the model has them.
            start_positions: (B,) position of the answer's first word; outside the batch means that it was cut off.
            end_positions: (B,) position of the answer's last word.
            output_hidden_states: Whether to return all layers of the biLM.

        Returns:
            `loss`, if there are positions, `start_logits` and `end_logits` (B, T), lowest at padding.
        """
        if (start_positions is None) != (end_positions is None):
            raise ValueError("An answer has a start and an end: give start_positions and end_positions, or neither.")
        words, mask, layers = self._read(
            input_ids, character_ids, attention_mask, word_vector_ids, output_hidden_states=output_hidden_states
        )
        logits = self.qa_outputs(self.task_dropout(words))  # (B, T, 2)
        logits = logits.masked_fill(~mask.unsqueeze(2), torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(dim=2)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = (_position_loss(start_logits, start_positions) + _position_loss(end_logits, end_positions)) / 2
        return QuestionAnsweringModelOutput(
            loss=self._with_mix_penalty(loss),
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=cast(Any, layers),
        )


def _position_loss(logits: Tensor, positions: Tensor) -> Tensor:
    positions = positions.flatten()
    if len(positions) != len(logits):
        raise ValueError(f"There are {len(positions)} positions for a batch of {len(logits)}.")
    inside = (positions >= 0) & (positions < logits.shape[1])
    return _mean_cross_entropy(logits[inside], positions[inside])


# --- Choices ---------------------------------------------------------------------------------------------------------


class ElmoForMultipleChoice(ElmoTaskModel):
    """The best of several sentences, or of several endings of a sentence.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini(ElmoForMultipleChoice, num_sentences=2)
        >>> choices = tokenizer(["It rains."] * 2, ["She is wet.", "She is dry."], padding=True, return_tensors="pt")
        >>> model(**{name: tensor.unsqueeze(0) for name, tensor in choices.items()}).logits.shape
        torch.Size([1, 2])
    """

    _auto_class = "AutoModelForMultipleChoice"

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.pooler = ElmoPooler(config)
        self.classifier = nn.Linear(self.pooler.output_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Scores the choices.

        Args:
            input_ids: Word ids (B, choices, T).
            character_ids: Character ids (B, choices, T, C), or with the last two as one, as the stock collator does.
            attention_mask: (B, choices, T), 0 at padding.
            word_vector_ids: Ids of the static word vectors (B, choices, T), if the model has them.
            labels: (B,) number of the right choice.
            output_hidden_states: Whether to return all layers of the biLM, of shape (B x choices, T, D).

        Returns:
            `loss`, if there are labels, and `logits` (B, choices).
        """
        if input_ids is None or input_ids.dim() != 3:
            shape = None if input_ids is None else tuple(input_ids.shape)
            raise ValueError(f"input_ids has the shape {shape}, but choices are (batch, choices, words).")
        batch, choices, columns = input_ids.shape

        def flat(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.reshape(batch * choices, columns)

        if character_ids is not None:
            character_ids = character_ids.reshape(batch * choices, columns, self.config.max_characters_per_token)
        input_ids = flat(input_ids)
        words, mask, layers = self._read(
            input_ids,
            character_ids,
            flat(attention_mask),
            flat(word_vector_ids),
            output_hidden_states=output_hidden_states,
        )
        pooled = self.pooler(words, mask, *self._boundaries(input_ids, character_ids, mask))
        logits = self.classifier(self.task_dropout(pooled)).view(batch, choices)
        loss = None
        if labels is not None:
            _check_labels(labels, choices, logits.shape[:1])
            loss = nn.functional.cross_entropy(logits, labels)
        return MultipleChoiceModelOutput(
            loss=self._with_mix_penalty(loss), logits=logits, hidden_states=cast(Any, layers)
        )


__all__ = [
    "ElmoForMultipleChoice",
    "ElmoForPreTraining",
    "ElmoForQuestionAnswering",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
]
