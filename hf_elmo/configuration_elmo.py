# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What an ELMo model is made of: sizes, clips and choices that change its numbers."""

import math
import os
from dataclasses import field
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

# A size above this is a typing error or an attack, not a model; refusing it here keeps it from being allocated.
LARGEST_SIZE = 2**24

# Which class of the code files beside a saved config each Auto class loads with `trust_remote_code=True`.
# Every saved folder has the whole map, so that the folder of one head loads as the base model or as another head, too.
AUTO_MAP: dict[str, Any] = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None],
}


def _original_filters() -> list[list[int]]:
    return [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@strict
class ElmoConfig(PreTrainedConfig):
    """Configuration of an ELMo model; the defaults are the original model of Peters et al. (93.6 million parameters).

    Args:
        char_vocab_size: Number of character ids: 256 bytes, 5 markers, and id 0, which pads and has no weights.
        char_embedding_size: Width of a character's vector.
        max_characters_per_token: Character ids per word, begin and end marker included; longer words are cut.
        char_cnn_filters: `[width, count]` of each convolution over a word's characters, in order.
        char_cnn_activation: Nonlinearity after the convolutions (highway layers always use ReLU).
        num_highway_layers: Highway layers between the convolutions and the projection.
        projection_size: Width of a word's vector and of each direction's output; `hidden_size` is twice this.
        cell_size: Width of the LSTM cells.
        num_hidden_layers: LSTM layers of each direction. `hidden_states` has one layer more, the words themselves.
        cell_clip: LSTM cells are clipped to plus or minus this value; `None` switches it off.
        projection_clip: Projected LSTM outputs are clipped to plus or minus this value; `None` switches it off.
        use_skip_connections: Whether every LSTM layer but the first adds its input to its output.
        forget_bias: Constant added to the forget gate, on top of its learned bias.
        dropout: Probability of dropping an element of the input of each LSTM layer, in training only.
        layer_combination: How the layers become one vector: `"mix"` (learned weights, uniform when fresh), `"top"`,
            `"average"`, or the number of one layer (0 is the words, `num_hidden_layers` the top).
        num_output_representations: How many mixes with weights of their own the model learns.
        mix_layer_norm: Normalises each layer before it is mixed. `"token"` normalises each vector by itself. `"batch"`
            is what AllenNLP does: one mean and variance for all words of a batch, so vectors depend on batch mates.
        vocab_size: Number of word ids, padding included, which is the last one. The default is the original's
            language model. The vectors of a character model do not depend on it.
        pad_token_id: Word id of padding; by default the last one.
        bos_token_id: Word id of the beginning of a sentence.
        eos_token_id: Word id of the end of a sentence.

    Example:
        >>> config = ElmoConfig.small()
        >>> config.hidden_size, config.num_hidden_layers
        (256, 2)
    """

    model_type: ClassVar[str] = "elmo"
    _auto_class: ClassVar[str] = "AutoConfig"

    # Characters to words
    char_vocab_size: int = 262
    char_embedding_size: int = 16
    max_characters_per_token: int = 50
    char_cnn_filters: list[list[int]] = field(default_factory=_original_filters)
    char_cnn_activation: Literal["relu", "tanh"] = "relu"
    num_highway_layers: int = 2

    # Words to contexts
    projection_size: int = 512
    cell_size: int = 4096
    num_hidden_layers: int = 2
    cell_clip: float | int | None = 3.0
    projection_clip: float | int | None = 3.0
    use_skip_connections: bool = True
    forget_bias: float | int = 1.0
    dropout: float | int = 0.1

    # Layers to one vector
    layer_combination: Literal["mix", "top", "average"] | int = "mix"
    num_output_representations: int = 1
    mix_layer_norm: Literal["token", "batch"] | None = None

    # Word ids, in bilm-tf's order: <S>, </S>, <UNK>, words by falling count; padding comes last
    vocab_size: int = 793_472
    pad_token_id: int | None = None
    bos_token_id: int | None = 0
    eos_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        if "hidden_size" in kwargs:
            raise ValueError(
                f"hidden_size={kwargs['hidden_size']!r} cannot be set: it is 2 x projection_size, one half for each "
                "direction. Set projection_size instead."
            )
        if self.pad_token_id is None and isinstance(self.vocab_size, int):
            self.pad_token_id = self.vocab_size - 1
        super().__post_init__(**kwargs)

    @classmethod
    def original(cls, **overrides: Any) -> "ElmoConfig":
        """The model of the paper: 93,600,848 parameters, 1024-dimensional vectors."""
        return cls(**overrides)

    @classmethod
    def medium(cls, **overrides: Any) -> "ElmoConfig":
        """The published medium model: 28,027,728 parameters, 512-dimensional vectors."""
        return cls(**{"projection_size": 256, "cell_size": 2048, "num_highway_layers": 1, **overrides})

    @classmethod
    def small(cls, **overrides: Any) -> "ElmoConfig":
        """The published small model: 13,593,296 parameters, 256-dimensional vectors."""
        return cls(**{"projection_size": 128, "cell_size": 1024, "num_highway_layers": 1, **overrides})

    @property
    def hidden_size(self) -> int:
        """Width of the model's vectors: the forward and the backward half."""
        return 2 * self.projection_size

    @property
    def num_filters(self) -> int:
        """Width of a word's vector between the convolutions and the projection."""
        return sum(count for _, count in self.char_cnn_filters)

    def validate_values(self) -> None:
        """Refuses values that no model can have; part of the strict validation, as its name begins with `validate`."""
        self._check_sizes()
        self._check_filters()
        self._check_numbers()
        self._check_layer_combination()

    def _check_sizes(self) -> None:
        sizes = {
            "char_vocab_size": 2,
            "char_embedding_size": 1,
            "max_characters_per_token": 3,
            "num_highway_layers": 0,
            "projection_size": 1,
            "cell_size": 1,
            "num_hidden_layers": 1,
            "num_output_representations": 1,
            "vocab_size": 4,
        }
        for name, smallest in sizes.items():
            value = getattr(self, name)
            if not smallest <= value <= LARGEST_SIZE:
                raise ValueError(f"{name}={value} is not possible: it must be between {smallest} and {LARGEST_SIZE}.")

    def _check_filters(self) -> None:
        if not self.char_cnn_filters:
            raise ValueError("char_cnn_filters is empty: give at least one [width, count].")
        for filter_ in self.char_cnn_filters:
            if len(filter_) != 2:
                raise ValueError(f"char_cnn_filters has the entry {filter_}: every entry must be [width, count].")
            width, count = filter_
            if not 1 <= width <= self.max_characters_per_token:
                raise ValueError(
                    f"char_cnn_filters has a width of {width}: it must be between 1 and max_characters_per_token "
                    f"({self.max_characters_per_token})."
                )
            if not 1 <= count <= LARGEST_SIZE:
                raise ValueError(f"char_cnn_filters has a count of {count}: it must be between 1 and {LARGEST_SIZE}.")

    def _check_numbers(self) -> None:
        for name in ("cell_clip", "projection_clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} is not possible: it must be a positive number, or None for no clip.")
        if not math.isfinite(self.forget_bias):
            raise ValueError(f"forget_bias={self.forget_bias} is not possible: it must be a finite number.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is not possible: it must be at least 0 and below 1.")

    def _check_layer_combination(self) -> None:
        combination = self.layer_combination
        if isinstance(combination, int) and not 0 <= combination <= self.num_hidden_layers:
            raise ValueError(
                f"layer_combination={combination} names no layer: this model has the layers 0 (the words) to "
                f"{self.num_hidden_layers} (the top)."
            )
        if combination == "mix":
            return
        if self.num_output_representations > 1:
            raise ValueError(
                f"num_output_representations={self.num_output_representations} needs layer_combination='mix', but it "
                f"is {combination!r}: without weights of their own the representations would all be the same."
            )
        if self.mix_layer_norm is not None:
            raise ValueError(
                f"mix_layer_norm={self.mix_layer_norm!r} needs layer_combination='mix', but it is {combination!r}."
            )

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Saves the config with the full `auto_map`, so that the folder works with every Auto class as custom code."""
        self.auto_map = dict(AUTO_MAP)
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)


__all__ = ["ElmoConfig"]
