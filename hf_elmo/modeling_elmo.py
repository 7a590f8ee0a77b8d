# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""ELMo: deep contextualized word representations, as a transformers model.

The file follows the data. Characters, word ids or both become word vectors (`ElmoWordEncoder`), word vectors become
contexts, one left-to-right and one right-to-left (`ElmoBidirectionalLstm`), and the layers become one vector
(`ElmoScalarMix`), in the space of another model if there is a matrix for it (`ElmoAlignment`).

Shapes are written with these letters: B batch, T words of the longest sentence, N words of the whole batch without
padding, C characters of a word, E character embedding, F convolution filters, W word embedding, P projection, H cell,
L LSTM layers, D = 2P. Between the input and the output no padding exists: all words of a batch stand in one (N, ...)
matrix, in the order that `PackedWords` describes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import ElmoConfig
from .fast_paths import (
    LstmWeights,
    WordCache,
    different_rows,
    fingerprint,
    groups_of_similar_length,
    highest_scores,
    is_fast,
    joint_filters,
    joint_filters_pay,
    needs_gradient,
    read_with_gradient,
    read_without_gradient,
    row_keys,
)

# The convolutions see this many words at a time, which bounds their memory and does not change their result.
WORDS_PER_CHUNK = 512

LAYER_NORM_EPSILON = 1e-12


# --- What goes in and what comes out ---------------------------------------------------------------------------------


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
    """How the layers are combined: `gamma` times the sum of the layers, each times its entry of `weights`."""

    weights: Tensor  # (L + 1,), sums to 1
    gamma: Tensor  # ()


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
        padded = packed.new_zeros(rows * columns, packed.shape[1]).index_copy(0, self.positions, packed)
        return padded.view(rows, columns, packed.shape[1])


# --- Characters to words ---------------------------------------------------------------------------------------------


class ElmoCharacterEmbedding(nn.Module):
    """A vector for each character id; id 0, padding, has the vector 0 and no weights."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.char_vocab_size - 1, config.char_embedding_size))

    def forward(self, character_ids: Tensor) -> Tensor:
        with_padding = nn.functional.pad(self.weight, (0, 0, 1, 0))
        return nn.functional.embedding(character_ids, with_padding)


class ElmoWordEmbedding(nn.Module):
    """A vector for each word id."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.word_embedding_size))

    def forward(self, word_ids: Tensor) -> Tensor:
        return nn.functional.embedding(word_ids, self.weight)


class ElmoCarry(nn.Linear):
    """The gate of a highway layer; a class of its own because its bias begins at -2, almost closed."""


class ElmoHighway(nn.Module):
    """x <- c * relu(W_t x + b_t) + (1 - c) * x with the gate c = sigmoid(W_c x + b_c)."""

    def __init__(self, size: int):
        super().__init__()
        self.carry = ElmoCarry(size, size)
        self.transform = nn.Linear(size, size)

    def forward(self, inputs: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(inputs))
        return torch.lerp(inputs, torch.relu(self.transform(inputs)), gate)


class ElmoWordEncoder(nn.Module):
    """A vector for each word: spelled from its characters, looked up in a table, or both.

    A spelling is: character embeddings, convolutions, the maximum over the word, highway layers. What there is of the
    row in the table and the spelling, in this order, is projected, if the config says so.
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.word_input = config.word_input
        if config.word_input != "characters":
            self.word_embedding = ElmoWordEmbedding(config)
        if config.word_input != "words":
            self.embedding = ElmoCharacterEmbedding(config)
            self.convolutions = nn.ModuleList(
                nn.Conv1d(config.char_embedding_size, count, width) for width, count in config.char_cnn_filters
            )
            self.padding_character = config.character_markers[-1]
            self.activation = torch.relu if config.char_cnn_activation == "relu" else torch.tanh
            self.highways = nn.ModuleList(ElmoHighway(config.num_filters) for _ in range(config.num_highway_layers))
        self.projection = (
            nn.Linear(config.word_feature_size, config.projection_size) if config.project_words else nn.Identity()
        )
        self.cache: WordCache | None = None

    def forward(self, character_ids: Tensor | None, word_ids: Tensor | None = None) -> Tensor:
        """(N, C) character ids and (N,) word ids, as far as the model reads them, to (N, P) word vectors."""
        if self.word_input != "characters" and word_ids is None:
            raise ValueError(
                f"The word ids are missing: with word_input={self.word_input!r} words are looked up in a table. A "
                "stream of character ids is only for models that read nothing else."
            )
        if self.word_input == "words":
            return self.projection(self.word_embedding(word_ids))
        # What the model reads of a word, (N, C), or (N, 1 + C) with the word id in front
        ids = cast(Tensor, character_ids).long()
        if self.word_input == "both":
            ids = torch.cat([cast(Tensor, word_ids).unsqueeze(1), ids], dim=1)
        if is_fast(next(self.parameters())) and len(ids) > 0:
            return self._encode_each_once(ids)
        return torch.cat([self._encode(chunk, self._convolve) for chunk in ids.split(WORDS_PER_CHUNK)])

    def _encode(self, ids: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        """(N, C) or (N, 1 + C) ids to (N, P) word vectors; `convolve` makes features (N, F) of characters."""
        characters = ids[:, 1:] if self.word_input == "both" else ids
        words = self.activation(convolve(characters))
        for highway in self.highways:
            words = highway(words)
        if self.word_input == "both":
            words = torch.cat([self.word_embedding(ids[:, 0]), words], dim=1)
        return self.projection(words)

    def _convolve(self, characters: Tensor) -> Tensor:
        """(N, C) character ids to the maximum of each filter over the word (N, F).

        The activation comes later: it grows with its argument, so the result is the same.
        """
        embedded = self.embedding(characters).transpose(1, 2)  # (N, E, C)
        return torch.cat([convolution(embedded).amax(dim=2) for convolution in self.convolutions], dim=1)

    @torch.compiler.disable
    def _encode_each_once(self, ids: Tensor) -> Tensor:
        first, places = different_rows(ids)
        ids = ids[first]
        cached = self.cache is not None and not needs_gradient(self.parameters())
        words = self._encode_with_cache(ids, cast(WordCache, self.cache)) if cached else self._encode_different(ids)
        return words.index_select(0, places)

    def _encode_with_cache(self, ids: Tensor, cache: WordCache) -> Tensor:
        keys, weights = row_keys(ids), fingerprint(self.parameters())
        known = cache.get(keys, weights)
        missing = [number for number, vector in enumerate(known) if vector is None]
        if missing:
            computed = self._encode_different(ids[torch.tensor(missing, device=ids.device)])
            cache.put([keys[number] for number in missing], computed, weights)
            for number, vector in zip(missing, computed, strict=True):
                known[number] = vector
        return torch.stack(cast(list[Tensor], known))

    def _encode_different(self, ids: Tensor) -> Tensor:
        weights = [cast(nn.Conv1d, convolution).weight for convolution in self.convolutions]
        filters = joint_filters(weights) if joint_filters_pay(weights) else None
        bias = torch.cat([cast(Tensor, convolution.bias) for convolution in self.convolutions])

        def convolve(characters: Tensor) -> Tensor:
            return self._convolve_by_length(characters, filters, bias)

        return torch.cat([self._encode(chunk, convolve) for chunk in ids.split(WORDS_PER_CHUNK)])

    def _convolve_by_length(self, characters: Tensor, filters: Tensor | None, bias: Tensor) -> Tensor:
        """As `_convolve`, without the padding that a word has beyond one window that is nothing but padding.

        All such windows are the same, so one is enough for the maximum. A word too long to have one is read whole.
        """
        widest = max(cast(nn.Conv1d, convolution).kernel_size[0] for convolution in self.convolutions)
        groups = groups_of_similar_length(characters, self.padding_character)
        features = []
        for group in groups:
            columns = group.length + widest
            read = characters[group.words, :columns]
            if filters is None or columns > characters.shape[1]:
                features.append(self._convolve(read))
            else:
                features.append(highest_scores(self.embedding(read), filters) + bias)
        order = torch.cat([group.words for group in groups])
        return torch.cat(features).index_select(0, order.argsort())


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

        outputs = [inputs[:0]]  # so that a batch without words has an output, too
        finished: list[tuple[Tensor, Tensor]] = []
        for gates_of_input in gates_of_inputs.split(batch_sizes):
            rows = gates_of_input.shape[0]
            if rows < hidden.shape[0]:  # the shortest sentences have ended
                finished.append((hidden[rows:], cell[rows:]))
                hidden, cell = hidden[:rows], cell[:rows]
            hidden, cell = self._step(gates_of_input, hidden, cell)
            outputs.append(hidden)

        finished.append((hidden, cell))
        hidden, cell = (torch.cat(states) for states in zip(*reversed(finished), strict=True))
        return torch.cat(outputs), hidden, cell

    def _step(self, gates_of_input: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        gates = torch.addmm(gates_of_input, hidden, self.recurrent_weight)  # (rows, 4H)
        sigmoids, candidate = gates.split([3 * self.cell_size, self.cell_size], dim=1)
        input_gate, forget_gate, output_gate = torch.sigmoid(sigmoids).chunk(3, dim=1)
        cell = forget_gate * cell + input_gate * torch.tanh(candidate)
        if self.cell_clip is not None:
            cell = cell.clamp(-self.cell_clip, self.cell_clip)
        hidden = output_gate * torch.tanh(cell)
        if self.projection_weight is None:
            return hidden, cell
        hidden = hidden @ self.projection_weight
        if self.projection_clip is not None:
            hidden = hidden.clamp(-self.projection_clip, self.projection_clip)
        return hidden, cell


class ElmoBidirectionalLstm(nn.Module):
    """A left-to-right and a right-to-left stack of LSTM layers that never see each other."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.use_skip_connections = config.use_skip_connections
        self.dropout = nn.Dropout(config.dropout)
        self.forward_layers = nn.ModuleList(ElmoLstmLayer(config) for _ in range(config.num_hidden_layers))
        self.backward_layers = nn.ModuleList(ElmoLstmLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, words: Tensor, packing: PackedWords, state: ElmoState) -> tuple[list[Tensor], ElmoState]:
        """(N, P) word vectors to L layers (N, D), and the state after the last word (of the packed rows)."""
        hidden_forward, hidden_backward = state.hidden.chunk(2, dim=2)  # (L, B, P) each
        cell_forward, cell_backward = state.cell.chunk(2, dim=2)  # (L, B, H) each
        forward_layers, forward_hidden, forward_cell = self.read(
            self.forward_layers, words, packing.batch_sizes, hidden_forward, cell_forward
        )
        backward_layers, backward_hidden, backward_cell = self.read(
            self.backward_layers, words[packing.reverse], packing.batch_sizes, hidden_backward, cell_backward
        )
        layers = [
            torch.cat([forward, backward[packing.reverse]], dim=1)
            for forward, backward in zip(forward_layers, backward_layers, strict=True)
        ]
        return layers, ElmoState(
            hidden=torch.cat([forward_hidden, backward_hidden], dim=2),
            cell=torch.cat([forward_cell, backward_cell], dim=2),
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


class ElmoModel(ElmoPreTrainedModel):
    """Words in, one contextual vector a word out.

    Every call stands for itself: the vectors of a sentence depend on nothing but the sentence, whatever else is in the
    batch and whatever was read before, unless an `initial_state` is passed in.
    """

    _auto_class = "AutoModel"

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.character_encoder = ElmoWordEncoder(config)  # named for what most models read; checkpoints have the name
        self.bilstm = ElmoBidirectionalLstm(config)
        mixes = config.num_output_representations if config.layer_combination == "mix" else 0
        self.mixes = nn.ModuleList(ElmoScalarMix(config) for _ in range(mixes))
        if config.use_alignment:
            self.alignment = ElmoAlignment(config)
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
            initial_state: State to start from, a row for each sentence; zeros by default.
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
        character_ids, mask = self._check_inputs(input_ids, character_ids, attention_mask)  # (B, T, C), (B, T)
        markers = self.config.character_markers
        add_boundaries = only_characters and not _has_boundaries(character_ids, mask, markers)
        if add_boundaries:
            character_ids, mask = _with_boundaries(character_ids, mask, markers)  # (B, T + 2, C), (B, T + 2)

        packing = PackedWords.from_mask(mask)
        words = self._encode_words(input_ids, character_ids, packing)  # (N, P)
        layers, state = self._contextualize(words, packing, initial_state)  # L + 1 of (N, D)
        representations = self._combine(layers)

        def padded(packed: Tensor) -> Tensor:
            vectors = packing.unpack(packed, *mask.shape)
            return vectors[:, 1:-1] if add_boundaries else vectors

        return ElmoModelOutput(
            last_hidden_state=padded(representations[0]),
            hidden_states=tuple(map(padded, layers)) if output_hidden_states else None,
            elmo_representations=tuple(map(padded, representations)) if len(representations) > 1 else None,
            state=state if output_state else None,
        )

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
        if self.config.word_input == "characters":
            return self.character_encoder(characters)
        return self.character_encoder(characters, packing.pack(cast(Tensor, input_ids)))

    def _contextualize(
        self, words: Tensor, packing: PackedWords, initial_state: ElmoState | None
    ) -> tuple[list[Tensor], ElmoState]:
        """(N, P) word vectors to L+1 layers (N, D), and the state of all rows after their last word."""
        rows, layers = len(packing.row_order), self.config.num_hidden_layers
        expected = ((layers, rows, 2 * self.config.projection_size), (layers, rows, 2 * self.config.cell_size))
        if initial_state is None:
            initial_state = ElmoState(hidden=words.new_zeros(expected[0]), cell=words.new_zeros(expected[1]))
        given = (tuple(initial_state.hidden.shape), tuple(initial_state.cell.shape))
        if given != expected:
            raise ValueError(
                f"initial_state has the shapes {given[0]} and {given[1]}, but this batch needs {expected[0]} and "
                f"{expected[1]}. ElmoState.for_batch({rows}) gives a state for another number of sentences."
            )
        reading = (
            packing.batch_sizes[0] if packing.batch_sizes else 0
        )  # sentences that are not empty, which come first
        started = ElmoState(
            hidden=initial_state.hidden[:, packing.row_order[:reading]],
            cell=initial_state.cell[:, packing.row_order[:reading]],
        )
        contexts, ended = self.bilstm(words, packing, started)
        state = ElmoState(
            hidden=initial_state.hidden.index_copy(1, packing.row_order[:reading], ended.hidden),
            cell=initial_state.cell.index_copy(1, packing.row_order[:reading], ended.cell),
        )
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
    if ids.numel() == 0:
        return
    smallest, largest = (int(bound) for bound in ids.aminmax())
    if smallest < 0 or largest >= size:
        raise ValueError(
            f"{name} has the value {smallest if smallest < 0 else largest}, but this model knows the ids 0 to "
            f"{size - 1}."
        )


def _has_boundaries(character_ids: Tensor, mask: Tensor, markers: list[int]) -> bool:
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


def _with_boundaries(character_ids: Tensor, mask: Tensor, markers: list[int]) -> tuple[Tensor, Tensor]:
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


__all__ = ["ElmoModel", "ElmoModelOutput", "ElmoPreTrainedModel", "ElmoState", "LayerWeights"]
