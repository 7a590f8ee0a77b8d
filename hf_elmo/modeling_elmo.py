# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo: deep contextualized word representations, as a transformers model.

The file follows the data. Characters, word ids or both become word vectors (`ElmoWordEncoder`, which has a file of
its own), word vectors become contexts, one left-to-right and one right-to-left (`ElmoBidirectionalLstm`), and the
layers become one vector (`ElmoScalarMix`), in the space of another model if there is a matrix for it
(`ElmoAlignment`).

Shapes are written with these letters: B batch, T words of the longest sentence, N words of the whole batch without
padding, C characters of a word, E character embedding, F convolution filters, W word embedding, P projection, H cell,
L LSTM layers, D = 2P. Between the input and the output no padding exists: all words of a batch stand in one (N, ...)
matrix, in the order that `PackedWords` describes.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import ElmoConfig
from .fast_paths import (
    FEWEST_FOR_TWO_DIRECTIONS,
    FEWEST_FOR_TWO_HALVES,
    WordCache,
    is_fast,
    needs_gradient,
)
from .modeling_elmo_words import ElmoCarry, ElmoCharacterEmbedding, ElmoWordEmbedding, ElmoWordEncoder
from .packing import ElmoState, PackedWords, has_boundaries, put_back, with_boundaries
from .padded import LAYER_NORM_EPSILON, read_padded
from .recurrence import LstmWeights, read_with_gradient, read_without_gradient
from .threads import aside, is_aside, is_worth_two, side_by_side

# Names of what is stored of the state that sentences start from.
WARM_STATE = ("warm_hidden", "warm_cell")


# --- What goes in and what comes out ---------------------------------------------------------------------------------


@dataclass
class ElmoModelOutput(ModelOutput):
    """What `ElmoModel` returns.

    Args:
        last_hidden_state: The ELMo vectors (B, T, D), zero at padding.
        hidden_states: With `output_hidden_states=True` the L+1 layers (B, T, D): the words, then each LSTM layer.
        elmo_representations: With `num_output_representations` above 1, each mix (B, T, D); the first one is
            `last_hidden_state`.
        state: With `output_state=True` the LSTM state after the last word of each sentence.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    elmo_representations: tuple[Tensor, ...] | None = None
    state: ElmoState | None = None


class LayerWeights(NamedTuple):
    """How the layers are combined: `gamma` times the sum of the layers, each times its entry of `weights`.

    Args:
        weights: One for each layer (L + 1,), which sum to 1.
        gamma: The factor, a single number ().
    """

    weights: Tensor
    gamma: Tensor


# --- Words to contexts -----------------------------------------------------------------------------------------------


class ElmoLstmLayer(nn.Module):
    """One layer of one direction: an LSTM whose cell is clipped and whose output is projected and clipped.

        i, f, o, g = x_t W_input + h_{t-1} W_recurrent + b
        c_t = clip(sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(g))
        h_t = clip((sigmoid(o) * tanh(c_t)) W_projection)

    Without a projection, h_t is sigmoid(o) * tanh(c_t). The weights are stored (in, out), and the three gates that
    share the sigmoid stand side by side.
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        size, cell_size = config.projection_size, config.cell_size
        self.cell_size = cell_size
        self.cell_clip = config.cell_clip
        self.projection_clip = config.projection_clip
        self.forget_bias = config.forget_bias
        self.input_weight = nn.Parameter(torch.empty(size, 4 * cell_size))
        self.recurrent_weight = nn.Parameter(torch.empty(size, 4 * cell_size))
        self.bias = nn.Parameter(torch.empty(4 * cell_size))
        self.projection_weight = nn.Parameter(torch.empty(cell_size, size)) if config.project_cells else None

    @torch.compiler.disable
    def forward(
        self, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reads packed words (N, P) from the state `hidden` (B, P), `cell` (B, H); returns outputs and final state."""
        weights = self.weights()
        if not is_fast(inputs):
            return self._read_plainly(weights.bias, inputs, batch_sizes, hidden, cell)
        if needs_gradient((inputs, hidden, cell, *self.parameters())):
            return read_with_gradient(weights, inputs, batch_sizes, hidden, cell)
        return read_without_gradient(weights, inputs, batch_sizes, hidden, cell)

    def weights(self) -> LstmWeights:
        before, forget, after = self.bias.split([self.cell_size, self.cell_size, 2 * self.cell_size])
        return LstmWeights(
            input_weight=self.input_weight,
            recurrent_weight=self.recurrent_weight,
            bias=torch.cat([before, forget + self.forget_bias, after]),
            projection_weight=self.projection_weight,
            cell_clip=self.cell_clip,
            projection_clip=self.projection_clip,
        )

    def _read_plainly(
        self, bias: Tensor, inputs: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        gates_of_inputs = torch.addmm(bias, inputs, self.input_weight)  # (N, 4H), all steps in one product
        # Column by column: otherwise, MKL rounds a single row's long sums after each term.
        projection = None if self.projection_weight is None else self.projection_weight.T.contiguous()  # (P, H)

        outputs = [inputs[:0]]  # so that a batch without words has an output, too
        finished: list[tuple[Tensor, Tensor]] = []
        for gates_of_input in gates_of_inputs.split(batch_sizes):
            rows = gates_of_input.shape[0]
            if rows < hidden.shape[0]:  # the shortest sentences have ended
                finished.append((hidden[rows:], cell[rows:]))
                hidden, cell = hidden[:rows], cell[:rows]
            hidden, cell = self._step(gates_of_input, hidden, cell, projection)
            outputs.append(hidden)

        finished.append((hidden, cell))
        hidden, cell = (torch.cat(states) for states in zip(*reversed(finished), strict=True))
        return torch.cat(outputs), hidden, cell

    def _step(
        self, gates_of_input: Tensor, hidden: Tensor, cell: Tensor, projection: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One step; the projection (P, H) is the layer's, in the order in which it is to be read."""
        gates = torch.addmm(gates_of_input, hidden, self.recurrent_weight)  # (rows, 4H)
        sigmoids, candidate = gates.split([3 * self.cell_size, self.cell_size], dim=1)
        input_gate, forget_gate, output_gate = torch.sigmoid(sigmoids).chunk(3, dim=1)
        cell = forget_gate * cell + input_gate * torch.tanh(candidate)
        if self.cell_clip is not None:
            cell = cell.clamp(-self.cell_clip, self.cell_clip)
        hidden = output_gate * torch.tanh(cell)
        if projection is None:
            return hidden, cell
        hidden = nn.functional.linear(hidden, projection)
        if self.projection_clip is not None:
            hidden = hidden.clamp(-self.projection_clip, self.projection_clip)
        return hidden, cell


class ElmoBidirectionalLstm(nn.Module):
    """A left-to-right and a right-to-left stack of LSTM layers that never see each other."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.use_skip_connections = config.use_skip_connections
        self.multiplications_per_word = 4 * config.projection_size * config.cell_size  # of the largest product
        self.dropout = nn.Dropout(config.dropout)
        self.forward_layers = nn.ModuleList(ElmoLstmLayer(config) for _ in range(config.num_hidden_layers))
        self.backward_layers = nn.ModuleList(ElmoLstmLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, words: Tensor, packing: PackedWords, state: ElmoState) -> tuple[list[Tensor], ElmoState]:
        """(N, P) word vectors to L layers (N, D), and the state after the last word (of the packed rows)."""
        hidden_forward, hidden_backward = state.hidden.chunk(2, dim=2)  # (L, B, P) each
        cell_forward, cell_backward = state.cell.chunk(2, dim=2)  # (L, B, H) each

        def read_forward() -> tuple[list[Tensor], Tensor, Tensor]:
            return self.read(self.forward_layers, words, packing.batch_sizes, hidden_forward, cell_forward)

        def read_backward() -> tuple[list[Tensor], Tensor, Tensor]:
            reverse = words[packing.reverse]
            return self.read(self.backward_layers, reverse, packing.batch_sizes, hidden_backward, cell_backward)

        if self._are_read_at_once(words, packing, state):
            forward_read, backward_read = side_by_side(read_forward, read_backward)
        else:
            forward_read, backward_read = read_forward(), read_backward()
        forward_layers, forward_hidden, forward_cell = forward_read
        backward_layers, backward_hidden, backward_cell = backward_read
        layers = [
            torch.cat([forward, backward[packing.reverse]], dim=1)
            for forward, backward in zip(forward_layers, backward_layers, strict=True)
        ]
        return layers, ElmoState(
            hidden=torch.cat([forward_hidden, backward_hidden], dim=2),
            cell=torch.cat([forward_cell, backward_cell], dim=2),
        )

    def _are_read_at_once(self, words: Tensor, packing: PackedWords, state: ElmoState) -> bool:
        """Whether both directions are; random numbers for dropout have to come in order.

        One sentence takes as long as reading the weights does, and those of one direction have more room in a cache.
        """
        rows = max(packing.batch_sizes, default=0)
        return (
            is_fast(words)
            and not (self.training and self.dropout.p > 0)
            and not needs_gradient((words, *state, *self.parameters()))
            and (rows > 1 or is_aside())
            and is_worth_two(words, rows * self.multiplications_per_word, FEWEST_FOR_TWO_DIRECTIONS)
        )

    def read(
        self, stack: nn.ModuleList, words: Tensor, batch_sizes: list[int], hidden: Tensor, cell: Tensor
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """One direction: (N, P) words in its order to L layers (N, P) and the final state (L, B, P), (L, B, H)."""
        layers, final_hidden, final_cell = [], [], []
        inputs = words
        for number, layer in enumerate(stack):
            inputs = self.dropout(inputs)
            outputs, layer_hidden, layer_cell = layer(inputs, batch_sizes, hidden[number], cell[number])
            if self.use_skip_connections and number > 0:
                outputs = outputs + inputs  # after the clips, and not part of the recurrent state
            layers.append(outputs)
            final_hidden.append(layer_hidden)
            final_cell.append(layer_cell)
            inputs = outputs
        return layers, torch.stack(final_hidden), torch.stack(final_cell)


# --- Layers to one vector --------------------------------------------------------------------------------------------


class ElmoScalarMix(nn.Module):
    """ELMo_k = gamma * sum_j softmax(w)_j h_kj, each layer normalised first if the config says so."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.layer_norm = config.mix_layer_norm
        self.weight = nn.Parameter(torch.empty(config.num_hidden_layers + 1))
        self.gamma = nn.Parameter(torch.empty(1))

    def layer_weights(self) -> LayerWeights:
        return LayerWeights(weights=self.weight.softmax(dim=0), gamma=self.gamma[0])

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """L+1 layers (N, D) to the mix (N, D)."""
        weights, gamma = self.layer_weights()
        mixed = sum(weight * self._normalised(layer) for weight, layer in zip(weights, layers, strict=True))
        return gamma * mixed

    def _normalised(self, layer: Tensor) -> Tensor:
        if self.layer_norm is None or layer.numel() == 0:
            return layer
        precise = layer.to(torch.promote_types(layer.dtype, torch.float32))
        over = 1 if self.layer_norm == "token" else (0, 1)
        variance, mean = torch.var_mean(precise, dim=over, correction=0, keepdim=True)
        return ((precise - mean) * torch.rsqrt(variance + LAYER_NORM_EPSILON)).to(layer.dtype)


class ElmoAlignment(nn.Module):
    """x <- x M^T with a matrix that is never trained."""

    matrix: Tensor

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.register_buffer("matrix", torch.empty(config.hidden_size, config.hidden_size))

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        return nn.functional.linear(vectors, self.matrix)


# --- The model -------------------------------------------------------------------------------------------------------


class ElmoPreTrainedModel(PreTrainedModel):
    """What all ELMo models share: the config, loading and saving, and the original's initial weights."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    _no_split_modules = ["ElmoWordEncoder", "ElmoLstmLayer"]
    # A model that is asked to start from zeros leaves the stored state where it is, and one of vectors the softmax.
    _keys_to_ignore_on_load_unexpected = [rf"(^|\.)({'|'.join(WARM_STATE)})$", r"^softmax\."]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str] | None, *model_args: Any, **kwargs: Any
    ) -> Any:
        """As in every transformers model; refuses `initial_state="warm"` for weights that have no such state."""
        wants_report = kwargs.pop("output_loading_info", False)
        loaded: Any = super().from_pretrained(
            pretrained_model_name_or_path, *model_args, output_loading_info=True, **kwargs
        )
        model, report = loaded
        lacking = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
        if any(name.rpartition(".")[2] in WARM_STATE for name in lacking):
            raise ValueError(
                f"initial_state='warm' needs a stored state, and {pretrained_model_name_or_path} has none that fits. "
                "Make a folder with one: hf-elmo warm-state FOLDER TEXT --output NEW_FOLDER; or load it with "
                "initial_state='zero'."
            )
        return (model, report) if wants_report else model

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The original's initial weights. Called by transformers for modules that have weights of their own."""
        if isinstance(module, (ElmoCharacterEmbedding, ElmoWordEmbedding)):
            init.uniform_(module.weight, -1.0, 1.0)
        elif isinstance(module, nn.Conv1d):
            if self.config.char_cnn_activation == "relu":
                init.uniform_(module.weight, -0.05, 0.05)
            else:
                init.normal_(module.weight, std=1 / math.sqrt(module.in_channels * module.kernel_size[0]))
            init.zeros_(cast(Tensor, module.bias))
        elif isinstance(module, nn.Linear):
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            if module.bias is not None:
                init.constant_(module.bias, -2.0 if isinstance(module, ElmoCarry) else 0.0)
        elif isinstance(module, ElmoLstmLayer):
            size, gates = module.input_weight.shape
            limit = math.sqrt(6 / (2 * size + gates))  # Glorot's, for input and recurrent weights as one matrix
            init.uniform_(module.input_weight, -limit, limit)
            init.uniform_(module.recurrent_weight, -limit, limit)
            init.zeros_(module.bias)
            if module.projection_weight is not None:
                init.xavier_uniform_(module.projection_weight)
        elif isinstance(module, ElmoScalarMix):
            init.zeros_(module.weight)
            init.ones_(module.gamma)
        elif isinstance(module, ElmoAlignment):
            init.eye_(module.matrix)
        elif isinstance(module, ElmoModel) and self.config.initial_state == "warm":
            init.zeros_(module.warm_hidden)
            init.zeros_(module.warm_cell)


class ElmoModel(ElmoPreTrainedModel):
    """Words in, one contextual vector a word out.

    Every call stands for itself: the vectors of a sentence depend on nothing but the sentence, whatever else is in the
    batch and whatever was read before, unless an `initial_state` is passed in. Up to rounding, that is; to the last
    bit within `hf_elmo.packing.sentence_by_sentence()`, which `ElmoEmbedder` uses with `batch_invariant=True`.

    Example:
        >>> import hf_elmo
        >>> model, tokenizer = hf_elmo.load_mini()
        >>> outputs = model(**tokenizer("A river bank.", return_tensors="pt"), output_hidden_states=True)
        >>> outputs.last_hidden_state.shape, len(outputs.hidden_states)
        (torch.Size([1, 6, 256]), 3)
    """

    _auto_class = "AutoModel"
    warm_hidden: Tensor  # (L, 2P)
    warm_cell: Tensor  # (L, 2H)

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.character_encoder = ElmoWordEncoder(config)  # named for what most models read; checkpoints have the name
        self.bilstm = ElmoBidirectionalLstm(config)
        mixes = config.num_output_representations if config.layer_combination == "mix" else 0
        self.mixes = nn.ModuleList(ElmoScalarMix(config) for _ in range(mixes))
        if config.use_alignment:
            self.alignment = ElmoAlignment(config)
        if config.initial_state == "warm":
            for name, size in zip(WARM_STATE, (config.projection_size, config.cell_size), strict=True):
                self.register_buffer(name, torch.zeros(config.num_hidden_layers, 2 * size))
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return getattr(self.character_encoder, self._embedding_name())

    def set_input_embeddings(self, value: nn.Module) -> None:
        setattr(self.character_encoder, self._embedding_name(), value)

    def _embedding_name(self) -> str:
        return "word_embedding" if self.config.word_input == "words" else "embedding"

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        if self.config.word_input != "characters":
            raise ValueError(
                f"The table of a model with word_input={self.config.word_input!r} belongs to its vocabulary and "
                "cannot be resized: words it does not have are unknown to the model."
            )
        raise ValueError(
            "A character model has no word embeddings to resize: new words are spelled. To give the tokenizer another "
            "vocabulary, make one from a file, ElmoTokenizer('vocab.txt')."
        )

    def cache_words(self, size: int | None) -> None:
        """Keeps the vectors of the words read last between calls, so that a word seen before is not spelled again.

        Only calls that need no gradient use the cache, and it forgets everything when weights change. With it, the
        same call may differ by rounding from one time to another, as a word's vector may come from another batch.

        Args:
            size: How many words to keep at most, each 4 `projection_size` bytes and some; `None` for no cache.
        """
        self.character_encoder.cache = None if size is None else WordCache(size)

    def first_state(self, rows: int) -> ElmoState:
        """The state that sentences start from if none is passed in: zeros, or the one stored with a warm model."""
        if self.config.initial_state == "zero":
            like = next(self.parameters()).detach()
            if like.device.type == "meta":  # the weights are kept elsewhere; the state goes where the words are
                like = torch.empty(0, dtype=like.dtype, device="cpu")
            return ElmoState.zeros(cast(ElmoConfig, self.config), rows, like)
        if not hasattr(self, WARM_STATE[0]):
            raise ValueError(
                "initial_state='warm' was set after this model was made, so it has no stored state. Load it with "
                "from_pretrained(folder, initial_state='warm'), or see hf_elmo.warm_state."
            )
        hidden, cell = (stored.unsqueeze(1).expand(-1, rows, -1) for stored in (self.warm_hidden, self.warm_cell))
        return ElmoState(hidden=hidden, cell=cell)

    def layer_weights(self, representation: int = 0) -> LayerWeights:
        """The normalised weight of each layer in the ELMo vector, and gamma.

        Args:
            representation: Which mix, for models with `num_output_representations` above 1.
        """
        if self.config.layer_combination == "mix":
            return cast(ElmoScalarMix, self.mixes[representation]).layer_weights()
        layers = self.config.num_hidden_layers + 1
        weights = torch.zeros(layers, dtype=self.dtype, device=self.device)
        if self.config.layer_combination == "average":
            weights.fill_(1 / layers)
        else:
            weights[self._chosen_layer()] = 1
        return LayerWeights(weights=weights, gamma=torch.ones((), dtype=self.dtype, device=self.device))

    def combine_layers(self, layers: Sequence[Tensor], attention_mask: Tensor) -> tuple[Tensor, ...]:
        """The ELMo vectors from layers that were computed before.

        Args:
            layers: The L+1 `hidden_states` (B, T, D) of a batch.
            attention_mask: (B, T), 0 at padding.

        Returns:
            One tensor (B, T, D) for each of `num_output_representations`.
        """
        packing = PackedWords.from_mask(attention_mask.bool())
        packed = [packing.pack(layer) for layer in layers]
        return tuple(packing.unpack(mixed, *attention_mask.shape) for mixed in self._combine(packed))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        character_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        initial_state: ElmoState | None = None,
        output_hidden_states: bool | None = None,
        output_state: bool = False,
        **kwargs: Any,
    ) -> ElmoModelOutput:
        """Computes the ELMo vectors of a batch of sentences.

        Called with what `ElmoTokenizer` returns, every position counts as it is, `<S>` and `</S>` among them. Called
        with character ids alone, (B, T, 50) as the first argument or as `character_ids`, in the style of AllenNLP's
        `batch_to_ids`, sentences without boundaries get them, and the boundaries' vectors are left out of the result.
        That is for models that read nothing but characters.

        Args:
            input_ids: Word ids (B, T). A character model reads the words from `character_ids`.
            character_ids: Character ids (B, T, max_characters_per_token); rows of zeros are padding. A model of words
                does not read them.
            attention_mask: (B, T), 0 at positions to leave out. By default the padding rows of `character_ids`, or
                what `input_ids` has as padding if the model reads words only.
            initial_state: State to start from, a row for each sentence; by default what the config says.
            output_hidden_states: Whether to return all layers.
            output_state: Whether to return the state after the last word.

        Returns:
            `ElmoModelOutput`, or a tuple of its entries with `return_dict=False`.
        """
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        only_characters = input_ids is None or input_ids.dim() == 3
        if input_ids is not None and input_ids.dim() == 3:
            if character_ids is not None:
                raise ValueError("Character ids were given twice: as the 3D input_ids and as character_ids.")
            character_ids = input_ids
        if only_characters and torch.compiler.is_exporting():
            raise ValueError(
                "input_ids is missing: whether sentences need boundaries cannot be told in an exported graph. Export "
                "the model with all that the tokenizer returns, input_ids, character_ids and attention_mask."
            )
        character_ids, mask = self._check_inputs(input_ids, character_ids, attention_mask)  # (B, T, C), (B, T)
        markers = self.config.character_markers
        add_boundaries = only_characters and not has_boundaries(character_ids, mask, markers)
        if add_boundaries:
            character_ids, mask = with_boundaries(character_ids, mask, markers)  # (B, T + 2, C), (B, T + 2)

        state = self._started(initial_state, mask.shape[0])
        if torch.compiler.is_exporting():
            layers, representations, state = read_padded(self, input_ids, character_ids, mask, state)
            return ElmoModelOutput(
                last_hidden_state=representations[0],
                hidden_states=tuple(layers) if output_hidden_states else None,
                elmo_representations=tuple(representations) if len(representations) > 1 else None,
                state=state if output_state else None,
            )
        parts = PackedWords.parts_of(mask)

        def read() -> tuple[list[Tensor], list[Tensor], ElmoState]:
            layers, representations, ended = self._read(input_ids, character_ids, parts, state)
            wanted = layers if output_hidden_states else []
            return [padded(layer) for layer in wanted], [padded(packed) for packed in representations], ended

        def padded(packed: Tensor) -> Tensor:
            vectors = put_back(packed, positions, *mask.shape)
            return vectors[:, 1:-1] if add_boundaries else vectors

        positions = torch.cat([part.positions for part in parts])
        layers, representations, ended = (
            aside(read) if self._pays_aside(mask.shape[0], len(positions), state) else read()
        )
        return ElmoModelOutput(
            last_hidden_state=representations[0],
            hidden_states=tuple(layers) if output_hidden_states else None,
            elmo_representations=tuple(representations) if len(representations) > 1 else None,
            state=ended if output_state else None,
        )

    def _pays_aside(self, rows: int, words: int, state: ElmoState) -> bool:
        """Whether two halves of the work are done at once, and nobody waits for numbers of this thread."""
        weight = next(self.parameters())
        has_large_weights = self.bilstm.multiplications_per_word >= FEWEST_FOR_TWO_DIRECTIONS
        return (
            not torch.compiler.is_compiling()
            and not (rows == 1 and has_large_weights)  # these are read one direction after the other
            and is_fast(weight)
            and is_worth_two(weight, words, FEWEST_FOR_TWO_HALVES)
            and not needs_gradient((*state, *self.parameters()))
            and not (self.training and self.bilstm.dropout.p > 0)  # random numbers have to come in order
        )

    def _read(
        self, input_ids: Tensor | None, character_ids: Tensor | None, parts: list[PackedWords], state: ElmoState
    ) -> tuple[list[Tensor], list[Tensor], ElmoState]:
        """L+1 layers and the ELMo vectors (N, D) of all words, and the state after the last ones."""
        read: list[list[Tensor]] = []
        for part in parts:
            words = self._encode_words(input_ids, character_ids, part)  # (N, P)
            layers, state = self._contextualize(words, part, state)  # L + 1 of (N, D)
            read.append([*layers, *self._combine(layers)])
        packed = read[0] if len(read) == 1 else [torch.cat(tensors) for tensors in zip(*read, strict=True)]
        return packed[: len(layers)], packed[len(layers) :], state

    def _check_inputs(
        self, input_ids: Tensor | None, character_ids: Tensor | None, attention_mask: Tensor | None
    ) -> tuple[Any, Tensor]:
        """The characters, if the model reads them, and where there is a word; refuses inputs that do not fit."""
        reads, width = self.config.word_input, self.config.max_characters_per_token
        if reads != "characters":
            if input_ids is None or input_ids.dim() != 2:
                shape = "missing" if input_ids is None else f"of the shape {tuple(input_ids.shape)}"
                raise ValueError(
                    f"input_ids is {shape}, but this model (word_input={reads!r}) looks words up in a table: it needs "
                    "word ids (batch, words). Pass all that the tokenizer returns, "
                    "model(**tokenizer(text, return_tensors='pt'))."
                )
            _check_range("input_ids", input_ids, self.config.vocab_size)
        if reads == "words":
            return None, self._word_mask(cast(Tensor, input_ids), attention_mask)
        if character_ids is None:
            raise ValueError(
                "character_ids is missing: ELMo reads words by their characters. Pass all that the tokenizer returns, "
                f"model(**tokenizer(text, return_tensors='pt')), or character ids (batch, words, {width}) alone."
            )
        if character_ids.dim() != 3 or character_ids.shape[2] != width:
            raise ValueError(
                f"character_ids has the shape {tuple(character_ids.shape)}, but this model reads (batch, words, "
                f"{width})."
            )
        for name, tensor in (("input_ids", input_ids), ("attention_mask", attention_mask)):
            if tensor is not None and tensor is not character_ids and tensor.shape != character_ids.shape[:2]:
                raise ValueError(
                    f"{name} has the shape {tuple(tensor.shape)}, but character_ids is for (batch, words) = "
                    f"{tuple(character_ids.shape[:2])}."
                )
        _check_range("character_ids", character_ids, self.config.char_vocab_size)
        mask = (character_ids > 0).any(dim=2)
        return character_ids, mask if attention_mask is None else mask & attention_mask.bool()

    def _word_mask(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        if attention_mask is None:
            return input_ids != self.config.pad_token_id
        if attention_mask.shape != input_ids.shape:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, but input_ids is (batch, words) = "
                f"{tuple(input_ids.shape)}."
            )
        return attention_mask.bool()

    def _encode_words(self, input_ids: Tensor | None, character_ids: Tensor | None, packing: PackedWords) -> Tensor:
        """(N, P) word vectors of what the model reads of the words."""
        characters = None if character_ids is None else packing.pack(character_ids)  # (N, C)
        word_ids = None if self.config.word_input == "characters" else packing.pack(cast(Tensor, input_ids))
        return self.character_encoder(characters, word_ids)

    def _started(self, initial_state: ElmoState | None, rows: int) -> ElmoState:
        """The state that the sentences of a batch start from; refuses one that does not fit."""
        if initial_state is None:
            return self.first_state(rows)
        layers = self.config.num_hidden_layers
        expected = ((layers, rows, 2 * self.config.projection_size), (layers, rows, 2 * self.config.cell_size))
        given = (tuple(initial_state.hidden.shape), tuple(initial_state.cell.shape))
        if given != expected:
            raise ValueError(
                f"initial_state has the shapes {given[0]} and {given[1]}, but this batch needs {expected[0]} and "
                f"{expected[1]}. ElmoState.for_batch({rows}) gives a state for another number of sentences."
            )
        return initial_state

    @torch.compiler.disable  # a compiler would make it anew for each length
    def _contextualize(self, words: Tensor, packing: PackedWords, state: ElmoState) -> tuple[list[Tensor], ElmoState]:
        """(N, P) word vectors to L+1 layers (N, D), and the state of all rows of the batch after their last word."""
        reading = packing.batch_sizes[0] if packing.batch_sizes else 0  # sentences that are not empty come first
        rows = packing.row_order[:reading]
        state = ElmoState(*(part.to(words) for part in state))
        contexts, ended = self.bilstm(words, packing, ElmoState(*(part[:, rows] for part in state)))
        state = ElmoState(*(part.index_copy(1, rows, new) for part, new in zip(state, ended, strict=True)))
        return [torch.cat([words, words], dim=1), *contexts], state

    def _combine(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """L+1 layers (N, D) to the ELMo vectors (N, D), one for each representation."""
        combined = self._combine_unaligned(layers)
        return [self.alignment(vectors) for vectors in combined] if self.config.use_alignment else combined

    def _combine_unaligned(self, layers: Sequence[Tensor]) -> list[Tensor]:
        if self.config.layer_combination == "mix":
            return [mix(layers) for mix in self.mixes]
        if self.config.layer_combination == "average":
            return [torch.stack(list(layers)).mean(dim=0)]
        return [layers[self._chosen_layer()]]

    def _chosen_layer(self) -> int:
        combination = self.config.layer_combination
        return self.config.num_hidden_layers if combination == "top" else combination


def _check_range(name: str, ids: Tensor, size: int) -> None:
    if torch.compiler.is_exporting() or ids.numel() == 0:
        return
    smallest, largest = (int(bound) for bound in ids.aminmax())
    if smallest < 0 or largest >= size:
        raise ValueError(
            f"{name} has the value {smallest if smallest < 0 else largest}, but this model knows the ids 0 to "
            f"{size - 1}."
        )


__all__ = ["ElmoModel", "ElmoModelOutput", "ElmoPreTrainedModel", "ElmoState", "LayerWeights"]
