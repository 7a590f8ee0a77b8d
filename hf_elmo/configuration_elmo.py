# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What an ELMo model is made of: sizes, clips and choices that change its numbers."""

import json
import math
import os
import shutil
import sys
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

# A size above this is a typing error or an attack, not a model; refusing it here keeps it from being allocated.
LARGEST_SIZE = 2**24

# The same for layers, each of which is an object of its own, whatever its size.
LARGEST_COUNT = 1000
COUNTS = ("num_highway_layers", "num_hidden_layers", "num_output_representations", "task_lstm_layers")

# Labels of a task; a name is made for each of them.
LARGEST_LABELS = 2**20
PRECISIONS = ("float16", "bfloat16", "float32", "float64")

# Bytes of a config.json; one with the names of a hundred thousand labels has fewer.
LARGEST_FILE = 2**24

# The code that is saved with every model, and which class of it each Auto class loads with `trust_remote_code=True`.
# Every saved folder has all of it, so that the folder of one head loads as the base model or as another head, too; and
# all models are looked up in one file, whose imports lead to the others, so that a copy of it is always complete.
CODE_FILES = (
    "configuration_elmo.py",
    "crf.py",
    "fast_paths.py",
    "language_model.py",
    "modeling_elmo.py",
    "modeling_elmo_heads.py",
    "modeling_elmo_pretraining.py",
    "modeling_elmo_words.py",
    "packing.py",
    "padded.py",
    "products.py",
    "recurrence.py",
    "sampling.py",
    "scoring.py",
    "softmax.py",
    "substitutes.py",
    "threads.py",
    "tokenization_elmo.py",
    "word_splitting.py",
)
AUTO_MAP: dict[str, Any] = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo_heads.ElmoModel",
    "AutoModelForPreTraining": "modeling_elmo_heads.ElmoForPreTraining",
    "AutoModelForTokenClassification": "modeling_elmo_heads.ElmoForTokenClassification",
    "AutoModelForSequenceClassification": "modeling_elmo_heads.ElmoForSequenceClassification",
    "AutoModelForQuestionAnswering": "modeling_elmo_heads.ElmoForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_elmo_heads.ElmoForMultipleChoice",
    "AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None],
}


def _original_filters() -> list[list[int]]:
    return [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


def _original_markers() -> list[int]:
    return [257, 258, 259, 260, 261]


@strict
class ElmoConfig(PreTrainedConfig):
    """Configuration of an ELMo model; the defaults are the original model of Peters et al. (93.6 million parameters).

    Args:
        word_input: What a word's vector is made of: its `"characters"`, its row in a table of `"words"`, or `"both"`,
            the row and then the characters. A model of words does not read what the config says of characters.
        word_embedding_size: Width of the rows of that table; 0 if there is none.
        char_vocab_size: Number of character ids: 256 bytes, 5 markers, and id 0, which pads and has no weights.
        char_embedding_size: Width of a character's vector.
        character_markers: Character ids of the begin and end of a sentence, the begin and end of a word, and what pads
            a word. With them the model sets boundaries around sentences that come without.
        max_characters_per_token: Character ids per word, begin and end marker included; longer words are cut.
        char_cnn_filters: `[width, count]` of each convolution over a word's characters, in order.
        char_cnn_activation: Nonlinearity after the convolutions (highway layers always use ReLU).
        num_highway_layers: Highway layers between the convolutions and the projection.
        project_words: Whether a word's vector is projected to `projection_size`; it must have that width otherwise.
        projection_size: Width of a word's vector and of each direction's output; `hidden_size` is twice this.
        cell_size: Width of the LSTM cells.
        project_cells: Whether LSTM outputs are projected from `cell_size` to `projection_size`, and then clipped; the
            two sizes must be the same otherwise.
        num_hidden_layers: LSTM layers of each direction. `hidden_states` has one layer more, the words themselves.
        cell_clip: LSTM cells are clipped to plus or minus this value; `None` switches it off.
        projection_clip: Projected LSTM outputs are clipped to plus or minus this value; `None` switches it off.
        use_skip_connections: Whether every LSTM layer but the first adds its input to its output.
        forget_bias: Constant added to the forget gate, on top of its learned bias.
        initial_state: What the LSTMs know when a sentence begins: nothing (`"zero"`), or the mean state after a
            sentence (`"warm"`), which is stored with the weights and made by `hf-elmo warm-state`.
        dropout: Probability of dropping an element of the input of each LSTM layer, in training only.
        layer_combination: How the layers become one vector: `"mix"` (learned weights, uniform when fresh), `"top"`,
            `"average"`, or the number of one layer (0 is the words, `num_hidden_layers` the top).
        num_output_representations: How many mixes with weights of their own the model learns.
        mix_layer_norm: Normalises each layer before it is mixed. `"token"` normalises each vector by itself. `"batch"`
            is what AllenNLP does: one mean and variance for all words of a batch, so vectors depend on batch mates.
        use_alignment: Whether the ELMo vectors are multiplied by a fixed matrix, which puts them into the space of
            another model; it does nothing when fresh. Such matrices are made for one layer, so they go with its number
            as `layer_combination`.
        vocab_size: Number of word ids, padding included, which is the last one. The default is the original's
            language model. The vectors of a model that reads only characters do not depend on it.
        pad_token_id: Word id of padding; by default the last one.
        bos_token_id: Word id of the beginning of a sentence.
        eos_token_id: Word id of the end of a sentence.

    The next are for the language model, `ElmoForPreTraining`:

    Args:
        softmax: What training computes: the `"full"` softmax, a `"sampled"` one as the original did (evaluation is
            full all the same), or torch's `"adaptive"` one, which has fewer weights for rare words.
        num_sampled: How many wrong words a sampled softmax draws.
        softmax_cutoffs: Word ids where the groups of an adaptive softmax begin.

    The rest is for the models with a task head:

    Args:
        use_elmo: Whether the task sees ELMo vectors at all; without, it is the baseline of the paper.
        freeze_bilm: Whether the weights below the mix stay as they are, as in the paper, or learn with the task.
        elmo_dropout: Dropout on the ELMo vector.
        mix_l2: The paper's lambda: this times the sum of the squared mix weights is added to the loss.
        word_vector_size: Width of static word vectors that are put before the ELMo vector; 0 for none.
        word_vector_vocab_size: Number of static word vectors; 0 is padding, 1 unknown.
        train_word_vectors: Whether the static word vectors are trained with the task.
        predicate_embedding_size: Width of the vector that says whether a word is the predicate whose arguments are
            asked for (semantic role labelling); 0 if there is no such input.
        task_lstm_size: Width of each direction of the task's own LSTM; 0 for none.
        task_lstm_layers: Its layers.
        task_dropout: Dropout on the input of the task's LSTM and on the input of the classifier.
        elmo_at_output: Whether ELMo is also put behind the output of the task's LSTM, with a mix of its own.
        use_crf: Whether labels of words are scored as a sequence, by a linear-chain conditional random field.
        crf_scheme: How labels may follow each other: `"BIO"`, `"BIOES"`, or `None` for any way.
        pooling: How words become one vector for a sentence: their `"mean"`, `"max"`, both with `"mean_max"`, or the
            `"boundary"` states: what the forward direction knows at the end and the backward one at the beginning.
        num_sentences: 1 if a text is classified, 2 if a pair of texts is.

    Example:
        >>> config = ElmoConfig.small()
        >>> config.hidden_size, config.num_hidden_layers
        (256, 2)
    """

    model_type: ClassVar[str] = "elmo"
    _auto_class: ClassVar[str] = "AutoConfig"

    # Characters to words
    word_input: Literal["characters", "words", "both"] = "characters"
    word_embedding_size: int = 0
    char_vocab_size: int = 262
    char_embedding_size: int = 16
    character_markers: list[int] = field(default_factory=_original_markers)
    max_characters_per_token: int = 50
    char_cnn_filters: list[list[int]] = field(default_factory=_original_filters)
    char_cnn_activation: Literal["relu", "tanh"] = "relu"
    num_highway_layers: int = 2
    project_words: bool = True

    # Words to contexts
    projection_size: int = 512
    cell_size: int = 4096
    project_cells: bool = True
    num_hidden_layers: int = 2
    cell_clip: float | int | None = 3.0
    projection_clip: float | int | None = 3.0
    use_skip_connections: bool = True
    forget_bias: float | int = 1.0
    initial_state: Literal["zero", "warm"] = "zero"
    dropout: float | int = 0.1

    # Layers to one vector
    layer_combination: Literal["mix", "top", "average"] | int = "mix"
    num_output_representations: int = 1
    mix_layer_norm: Literal["token", "batch"] | None = None
    use_alignment: bool = False

    # Word ids, in bilm-tf's order: <S>, </S>, <UNK>, words by falling count; padding comes last
    vocab_size: int = 793_472
    pad_token_id: int | None = None
    bos_token_id: int | None = 0
    eos_token_id: int | None = 1

    # The language model's softmax
    softmax: Literal["full", "sampled", "adaptive"] = "sampled"
    num_sampled: int = 8192
    softmax_cutoffs: list[int] | None = None

    # The task's own part
    use_elmo: bool = True
    freeze_bilm: bool = True
    elmo_dropout: float | int = 0.5
    mix_l2: float | int = 0.0
    word_vector_size: int = 0
    word_vector_vocab_size: int = 0
    train_word_vectors: bool = False
    predicate_embedding_size: int = 0
    task_lstm_size: int = 0
    task_lstm_layers: int = 1
    task_dropout: float | int = 0.5
    elmo_at_output: bool = False
    use_crf: bool = False
    crf_scheme: Literal["BIO", "BIOES"] | None = None
    pooling: Literal["mean", "max", "mean_max", "boundary"] = "mean"
    num_sentences: Literal[1, 2] = 1

    def __post_init__(self, **kwargs: Any) -> None:
        if "hidden_size" in kwargs:
            raise ValueError(
                f"hidden_size={kwargs['hidden_size']!r} cannot be set: it is 2 x projection_size, one half for each "
                "direction. Set projection_size instead."
            )
        self._check_labels(kwargs.get("num_labels"))
        self._check_dtype(self.dtype if self.dtype is not None else kwargs.get("torch_dtype"))
        if self.pad_token_id is None:
            self.pad_token_id = self.vocab_size - 1
        if self.elmo_at_output and self.layer_combination == "mix" and self.num_output_representations == 1:
            self.num_output_representations = 2  # one at the input of the task's LSTM, one at its output
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
        """Width of what the convolutions and the highway layers make of a word's characters."""
        return sum(count for _, count in self.char_cnn_filters)

    @property
    def word_feature_size(self) -> int:
        """Width of a word's vector before the projection: its row in the table, its characters, or both."""
        return self.word_embedding_size + (0 if self.word_input == "words" else self.num_filters)

    @property
    def task_input_size(self) -> int:
        """Width of what the task knows of a word before its own LSTM."""
        elmo = self.hidden_size if self.use_elmo else 0
        return self.word_vector_size + elmo + self.predicate_embedding_size

    @property
    def task_hidden_size(self) -> int:
        """Width of what the classifier sees of a word."""
        size = 2 * self.task_lstm_size if self.task_lstm_size else self.task_input_size
        return size + (self.hidden_size if self.elmo_at_output else 0)

    def validate_values(self) -> None:
        """Refuses values that no model can have; part of the strict validation, as its name begins with `validate`."""
        self._check_sizes()
        self._check_filters()
        self._check_words()
        self._check_numbers()
        self._check_layer_combination()
        self._check_task()
        if (self.softmax == "adaptive") != (self.softmax_cutoffs is not None):
            raise ValueError(
                f"softmax={self.softmax!r} and softmax_cutoffs={self.softmax_cutoffs} do not fit: cutoffs are for the "
                "adaptive softmax, and it needs them."
            )

    def _check_labels(self, number: Any) -> None:
        """Refuses labels that cannot be; before the base class makes a name for each of them."""
        if number is not None and not (type(number) is int and 1 <= number <= LARGEST_LABELS):
            raise ValueError(
                f"num_labels={number!s:.40} is not possible: it must be a whole number from 1 to {LARGEST_LABELS}."
            )
        names: Any = self.id2label
        if names is None:
            return
        if not isinstance(names, dict) or {str(key) for key in names} != set(map(str, range(len(names)))):
            raise ValueError(
                f"id2label={names!s:.80} is not possible: it must have a name for each of the labels 0, 1, 2 and "
                "so on."
            )

    def _check_dtype(self, dtype: Any) -> None:
        """Refuses what is no precision; the base class would take any name that torch has."""
        if dtype is not None and str(dtype).removeprefix("torch.") not in PRECISIONS:
            raise ValueError(f"dtype={dtype!r:.40} is not possible: it is {', '.join(PRECISIONS)}, or None.")

    def _check_sizes(self) -> None:
        sizes = {
            "word_embedding_size": 0,
            "char_vocab_size": 2,
            "char_embedding_size": 1,
            "max_characters_per_token": 3,
            "num_highway_layers": 0,
            "projection_size": 1,
            "cell_size": 1,
            "num_hidden_layers": 1,
            "num_output_representations": 1,
            "vocab_size": 4,
            "num_sampled": 1,
            "word_vector_size": 0,
            "word_vector_vocab_size": 0,
            "predicate_embedding_size": 0,
            "task_lstm_size": 0,
            "task_lstm_layers": 1,
        }
        for name, smallest in sizes.items():
            value = getattr(self, name)
            largest = LARGEST_COUNT if name in COUNTS else LARGEST_SIZE
            if not smallest <= value <= largest:
                raise ValueError(f"{name}={value} is not possible: it must be between {smallest} and {largest}.")

    def _check_filters(self) -> None:
        if not self.char_cnn_filters:
            raise ValueError("char_cnn_filters is empty: give at least one [width, count].")
        if len(self.char_cnn_filters) > LARGEST_COUNT:
            raise ValueError(
                f"char_cnn_filters has {len(self.char_cnn_filters):,} entries: it may have {LARGEST_COUNT}."
            )
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

    def _check_words(self) -> None:
        if (self.word_input == "characters") != (self.word_embedding_size == 0):
            raise ValueError(
                f"word_input={self.word_input!r} and word_embedding_size={self.word_embedding_size} do not fit: the "
                "size is for models that look words up in a table ('words' or 'both'), and they need it."
            )
        if not self.project_words and self.word_feature_size != self.projection_size:
            raise ValueError(
                f"project_words=False needs words of the width projection_size={self.projection_size}, but they have "
                f"{self.word_feature_size}."
            )
        if not self.project_cells and self.cell_size != self.projection_size:
            raise ValueError(
                f"project_cells=False needs cell_size={self.cell_size} to be projection_size={self.projection_size}."
            )
        markers, largest = self.character_markers, self.char_vocab_size - 1
        possible = len(set(markers)) == len(markers) == 5 and all(1 <= marker <= largest for marker in markers)
        if not possible and self.word_input != "words":
            raise ValueError(
                f"character_markers={markers} is not possible: it must be five different character ids from 1 to "
                f"char_vocab_size - 1 = {largest}."
            )

    def _check_numbers(self) -> None:
        for name in ("cell_clip", "projection_clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} is not possible: it must be a positive number, or None for no clip.")
        if not math.isfinite(self.forget_bias):
            raise ValueError(f"forget_bias={self.forget_bias} is not possible: it must be a finite number.")
        for name in ("dropout", "elmo_dropout", "task_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name}={value} is not possible: it must be at least 0 and below 1.")
        if not (math.isfinite(self.mix_l2) and self.mix_l2 >= 0):
            raise ValueError(f"mix_l2={self.mix_l2} is not possible: it must be 0 or a positive number.")

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

    def _check_task(self) -> None:
        if (self.word_vector_size == 0) != (self.word_vector_vocab_size == 0):
            raise ValueError(
                f"word_vector_size={self.word_vector_size} and word_vector_vocab_size={self.word_vector_vocab_size} "
                "must both be 0 (no static word vectors) or both be given."
            )
        if not self.use_elmo and self.word_vector_size == 0:
            raise ValueError(
                "use_elmo=False leaves nothing to read: give word_vector_size and word_vector_vocab_size."
            )
        if self.elmo_at_output and not self.use_elmo:
            raise ValueError("elmo_at_output=True needs use_elmo=True.")
        if self.elmo_at_output and self.task_lstm_size == 0:
            raise ValueError("elmo_at_output=True needs a task LSTM, whose output it goes to: set task_lstm_size.")
        if self.crf_scheme is not None and not self.use_crf:
            raise ValueError(f"crf_scheme={self.crf_scheme!r} needs use_crf=True.")

    @classmethod
    def _dict_from_json_file(cls, json_file: str | os.PathLike) -> dict[str, Any]:
        """Reads a config.json strictly: one object, no key twice, not too large, not too deep."""
        size = os.path.getsize(json_file)
        if size > LARGEST_FILE:
            raise ValueError(
                f"{json_file} has {size:,} bytes and so is no config of a model: it may have {LARGEST_FILE:,}. Get "
                "the file again."
            )
        try:
            content = json.loads(Path(json_file).read_text(encoding="utf-8"), object_pairs_hook=_without_repetition)
        except RecursionError:
            raise ValueError(f"{json_file} is no config of a model: it is nested too deeply.") from None
        except ValueError as error:
            raise ValueError(f"{json_file} is not valid JSON: {error}. Get the file again.") from error
        if not isinstance(content, dict):
            raise ValueError(f"{json_file} must hold one JSON object, not a {type(content).__name__}.")
        return super()._dict_from_json_file(json_file)

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Saves the config with all of the code, so that the folder works with every Auto class as custom code."""
        os.makedirs(save_directory, exist_ok=True)
        for name, path in _code_files().items():
            shutil.copyfile(path, Path(save_directory) / name)
        self.auto_map = dict(AUTO_MAP)
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file; of a key that appears twice, Python itself would take the second value."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:40]!r} appears twice")
    return content


def _code_files() -> dict[str, Path]:
    """Where the code files are: beside this one.

    As custom code, each file runs in a folder of its own together with what it imports. There the others are found
    beside the modules that are loaded, provided that they came with the same version of this file.
    """
    this_file = Path(__file__)
    version = this_file.read_bytes()
    found = {name: this_file.with_name(name) for name in CODE_FILES if this_file.with_name(name).is_file()}
    if set(found) == set(CODE_FILES):
        return found
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "")
        if path.name not in CODE_FILES or set(found) == set(CODE_FILES):
            continue
        same = path.with_name(this_file.name)  # the tokenizer runs without it
        if path.name == "tokenization_elmo.py" or (same.is_file() and same.read_bytes() == version):
            found |= {n: path.with_name(n) for n in CODE_FILES if n not in found and path.with_name(n).is_file()}
    return found


__all__ = ["ElmoConfig"]
