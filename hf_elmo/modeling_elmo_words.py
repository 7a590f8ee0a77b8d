# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The first layer of ELMo: a vector for each word, whatever stands around it.

The file follows the data: ids of characters or words become embeddings, those of characters go through convolutions,
the maximum over the word and highway layers, and what there is is projected (`ElmoWordEncoder`).

Shapes as in modeling_elmo.py.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from .configuration_elmo import ElmoConfig
from .fast_paths import (
    FEWEST_FOR_TWO_HALVES,
    WordCache,
    character_scores,
    different_rows,
    few_characters,
    fingerprint,
    groups_of_similar_length,
    highest_scores,
    highest_sums,
    is_as_made,
    is_fast,
    joint_filters,
    joint_filters_pay,
    lengths_of,
    linear,
    needs_gradient,
    row_keys,
    shared_word_cache,
)
from .packing import reads_sentence_by_sentence
from .threads import is_worth_two, side_by_side

# The convolutions see this many words at a time, which bounds their memory and does not change their result.
WORDS_PER_CHUNK = 512


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
        gate, transformed = linear(self.carry, inputs), linear(self.transform, inputs)
        if is_as_made(self.carry) and is_as_made(self.transform):  # otherwise somebody may keep what they gave
            gate, transformed = gate.sigmoid_(), transformed.relu_()
        else:
            gate, transformed = torch.sigmoid(gate), torch.relu(transformed)
        return torch.lerp(inputs, transformed, gate)


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
        cache = self._usable_cache()
        words = self._encode_different(ids) if cache is None else self._encode_with_cache(ids, cache)
        return words.index_select(0, places)

    def _usable_cache(self) -> WordCache | None:
        """The cache of words, unless a gradient is needed, or words that were not spelled together with others."""
        if reads_sentence_by_sentence() or needs_gradient(self.parameters()):
            return None
        return shared_word_cache() if self.cache is None else self.cache

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
        """As `_encode`, the words by their length, and both halves of many words at once."""
        characters = ids[:, 1:] if self.word_input == "both" else ids
        lengths, order = lengths_of(characters, self.padding_character).sort(stable=True)
        ids, convolve = ids[order], self._way_to_convolve(characters)

        def encode_chunk(ids: Tensor, lengths: list[int]) -> Tensor:
            return self._encode(ids, lambda characters: convolve(characters, lengths))

        def encode(ids: Tensor, lengths: Tensor) -> Tensor:
            chunks = zip(ids.split(WORDS_PER_CHUNK), lengths.split(WORDS_PER_CHUNK), strict=True)
            return torch.cat([encode_chunk(chunk, of_chunk.tolist()) for chunk, of_chunk in chunks])

        if needs_gradient(self.parameters()) or not is_worth_two(ids, len(ids), FEWEST_FOR_TWO_HALVES):
            words = encode(ids, lengths)
        else:
            halves = side_by_side(lambda: encode(ids[::2], lengths[::2]), lambda: encode(ids[1::2], lengths[1::2]))
            words = halves[0].new_empty(len(ids), halves[0].shape[1])
            words[::2], words[1::2] = halves
        return words.index_select(0, order.argsort())

    def _way_to_convolve(self, characters: Tensor) -> Callable[[Tensor, list[int]], Tensor]:
        """What makes features (n, F) of some of these words (U, C), the shortest first, and their lengths.

        As `_convolve`, without the padding that a word has beyond one window that is nothing but padding: all such
        windows are the same, so one is enough for the maximum. A word too long to have one is read whole.
        """
        widest = max(cast(nn.Conv1d, convolution).kernel_size[0] for convolution in self.convolutions)
        highest = self._way_to_the_highest(characters, widest)

        def convolve(characters: Tensor, lengths: list[int]) -> Tensor:
            groups = [(start, end, longest + widest) for start, end, longest in groups_of_similar_length(lengths)]
            short = [group for group in groups if group[2] <= characters.shape[1]]
            features = [highest(characters, short)] if short else []
            features += [self._convolve(characters[start:end]) for start, end, _ in groups[len(short) :]]
            return features[0] if len(features) == 1 else torch.cat(features)

        return convolve

    def _way_to_the_highest(
        self, characters: Tensor, widest: int
    ) -> Callable[[Tensor, list[tuple[int, int, int]]], Tensor]:
        """What makes features (n, F) of some of these words (U, C), and of groups: start, end, columns to read."""
        weights = [cast(nn.Conv1d, convolution).weight for convolution in self.convolutions]
        bias = torch.cat([cast(Tensor, convolution.bias) for convolution in self.convolutions])

        def in_groups(convolve: Callable[[Tensor], Tensor]) -> Callable[[Tensor, list[tuple[int, int, int]]], Tensor]:
            return lambda read, groups: torch.cat(
                [convolve(read[start:end, :columns]) for start, end, columns in groups]
            )

        if not joint_filters_pay(weights):
            return in_groups(self._convolve)
        filters = joint_filters(weights)
        different = None if needs_gradient(self.parameters()) else few_characters(characters, places=widest)
        if different is None:
            return in_groups(lambda read: highest_scores(self.embedding(read), filters) + bias)
        scores = character_scores(self.embedding(different), filters, bias)
        rows = different.new_zeros(int(different[-1]) + 1)
        rows[different] = torch.arange(len(different))
        return lambda read, groups: highest_sums(rows[read], groups, scores)


__all__ = ["ElmoWordEncoder"]
