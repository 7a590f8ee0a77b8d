# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints of bilm-tf's training, which have the softmax, to a Hub folder of a language model.

The arrays are those of the HDF5 file that bilm-tf dumps, under other names; `allennlp.py` says what becomes of them. A
softmax that shares its weights with the table of words gets a copy of them, so that training would part the two.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_card import UNKNOWN_LICENSE
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import (
    TABLE,
    as_in_source,
    check_padding,
    name_table,
    state_dict_from_arrays,
    word_ids,
)
from .options import LARGEST_SIZE, config_from_options, read_options
from .reference import reference_forward
from .tf_checkpoint import TensorFlowCheckpoint
from .verify import Parity, numbers_of, words_of_lines
from .verify_scores import verify_language_model
from .writing import ConversionReport, Destination, filled_model, how_words_are_split

# --- The name table --------------------------------------------------------------------------------------------------

SOFTMAX_WEIGHT, SOFTMAX_BIAS = "lm/softmax/W", "lm/softmax/b"

# Parts of the names in the HDF5 file, and of those in a checkpoint.
PARTS = (
    ("/RNN/MultiRNNCell/Cell", "/rnn/multi_rnn_cell/cell_"),
    ("/LSTMCell/W_0", "/lstm_cell/kernel"),
    ("/LSTMCell/B", "/lstm_cell/bias"),
    ("/LSTMCell/W_P_0", "/lstm_cell/projection/kernel"),
)

# What the optimizer keeps for each variable, and what belongs to the training as a whole. None of it is taken over.
SLOTS = ("Adagrad", "Adam", "Adam_1")
OF_TRAINING = ("global_step", "train_perplexity", "beta1_power", "beta2_power")


def variable_name(dataset: str, num_layers: int) -> str:
    """The name in a checkpoint of what the HDF5 file calls `dataset`."""
    name = f"lm/{dataset}"
    for theirs, ours in PARTS:
        name = name.replace(theirs, ours)
    return name.replace("/multi_rnn_cell/cell_0/", "/") if num_layers == 1 else name  # one cell alone has no number


# --- A checkpoint to a Hub folder ------------------------------------------------------------------------------------


def convert_bilm_tf(
    checkpoint: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: str | os.PathLike[str] | None = None,
    segmenter: str | None = None,
    license: str = UNKNOWN_LICENSE,
    languages: tuple[str, ...] = (),
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ConversionReport:
    """Converts a checkpoint of bilm-tf's training to a Hub folder, verifies the folder, and only then keeps it.

    The result is an `ElmoForPreTraining` with its vocabulary, which scores text and can be trained on; `ElmoModel`
    reads the same folder. What the optimizer kept is left out.

    Args:
        checkpoint: The folder of the training, or the name of a checkpoint, such as `model.ckpt-935588`.
        vocabulary: The words of the softmax, one a line, in the order of the training.
        output: The folder to write.
        options: The options.json; by default the one beside the checkpoint.
        segmenter: What cut the training text into words, if it was not Moses; recorded in the tokenizer, and raw text
            is split at white space only.
        license: Licence of the weights for the model card, as the Hub spells it.
        languages: Codes of the languages the model was trained on, for the model card.
        overwrite: Whether a folder that was written before may be replaced.
        progress: Is told what is being done, in a few words.

    Returns:
        What was done, with the figures of the verification.

    Raises:
        ValueError: If a file is not as it must be, or the result does not compute what the source does.
        FileNotFoundError: If a file does not exist.
        FileExistsError: If the output exists and may not be replaced.
    """
    vocabulary = Path(vocabulary)
    destination = Destination(output, license, languages, overwrite, progress)
    source = TensorFlowCheckpoint(checkpoint)
    options = source.index.parent / "options.json" if options is None else Path(options)
    destination.tell(f"reading {options}")
    content = read_options(options)
    tokenizer, config = _tokenizer_and_config(options, content, vocabulary, segmenter)
    config = as_in_source(config, lambda name: variable_name(name, config.num_hidden_layers) in source.names())
    shared = _is_shared(options, content, config)
    softmax = f"lm/{TABLE}" if shared else SOFTMAX_WEIGHT
    _check_softmax(source, softmax, config, vocabulary)

    destination.tell(f"reading {source.index} and what it names")
    arrays, weight, bias = _read_arrays(source, softmax, config)
    words = words_of_lines(vocabulary)

    def verify(folder: Path) -> Parity:
        def reference(ids: np.ndarray, state: Any) -> Any:
            return reference_forward(content, arrays, ids, state)

        reference_ids = numbers_of(words) if config.word_input == "words" else None
        return verify_language_model(folder, reference, weight, bias, words, reference_ids)

    return destination.write(
        lambda: filled_model(ElmoForPreTraining, config, _weights(config, arrays, weight, bias)),
        tokenizer,
        verify,
        num_parameters=sum(array.size for array in (*arrays.values(), *([] if shared else [weight]), bias)),
        dialect="a TensorFlow checkpoint of bilm-tf",
        sources=[options, vocabulary, *source.files()],
    )


def _tokenizer_and_config(
    path: Path, options: Mapping[str, Any], vocabulary: Path, segmenter: str | None
) -> tuple[ElmoTokenizer, ElmoConfig]:
    width = _config(path, options).max_characters_per_token
    tokenizer = ElmoTokenizer(vocabulary, max_characters_per_token=width, **how_words_are_split(segmenter))
    check_padding(tokenizer, words_of_lines(vocabulary), vocabulary)
    return tokenizer, _config(path, options, **word_ids(tokenizer))


def _config(path: Path, options: Mapping[str, Any], vocab_size: int = ElmoConfig.vocab_size, **ids: int) -> ElmoConfig:
    try:
        settings = _training_settings(options, num_words=vocab_size - 1)
        return config_from_options(options, vocab_size=vocab_size, **ids, **settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _is_shared(path: Path, options: Mapping[str, Any], config: ElmoConfig) -> bool:
    """Whether the weights of the softmax are the table of words."""
    shared = options.get("share_embedding_softmax", False)
    if not isinstance(shared, bool) or (shared and config.word_input != "words"):
        raise ValueError(
            f"{path}: share_embedding_softmax is {shared!r} in the options; it must be true or false, and only a "
            "model of words, without char_cnn, has a table to share."
        )
    return shared


def _training_settings(options: Mapping[str, Any], num_words: int) -> dict[str, Any]:
    """What the options say of the training that a training of ours goes on with."""
    sampled = options.get("sample_softmax", True)
    num_sampled = options.get("n_negative_samples_batch", ElmoConfig.num_sampled)
    dropout = options.get("dropout", ElmoConfig.dropout)
    if not isinstance(sampled, bool):
        raise ValueError(f"sample_softmax is {sampled!r} in the options; it must be true or false.")
    if isinstance(num_sampled, bool) or not isinstance(num_sampled, int) or not 1 <= num_sampled <= LARGEST_SIZE:
        raise ValueError(
            f"n_negative_samples_batch is {num_sampled!r} in the options; it must be a whole number from 1 to "
            f"{LARGEST_SIZE}."
        )
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout!r} in the options; it must be a number from 0 to below 1.")
    kind = "sampled" if sampled and num_sampled <= num_words else "full"  # no word is drawn twice
    return {"softmax": kind, "num_sampled": num_sampled, "dropout": dropout}


def _check_softmax(source: TensorFlowCheckpoint, softmax: str, config: ElmoConfig, vocabulary: Path) -> None:
    """Refuses a vocabulary that is not the one of the softmax."""
    names = source.names()
    if softmax not in names:
        raise ValueError(f"{source.index} has no tensor {softmax!r} and so is no checkpoint of bilm-tf's training.")
    num_words, shape = config.vocab_size - 1, names[softmax][1]
    if shape != (num_words, config.projection_size):
        raise ValueError(
            f"{source.index}: the tensor {softmax!r} has shape {shape}, but {vocabulary} has {num_words:,} "
            f"words, and projection_dim is {config.projection_size}. Give the vocabulary of the training."
        )


def _read_arrays(
    source: TensorFlowCheckpoint, softmax: str, config: ElmoConfig
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The arrays under their names in the HDF5 file, and the weight and bias of the softmax."""
    rows = name_table(config)
    variables = {row.dataset: variable_name(row.dataset, config.num_hidden_layers) for row in rows}
    taken = {*variables.values(), softmax, SOFTMAX_BIAS}
    dropped = {*OF_TRAINING, *(f"{name}/{slot}" for name in taken for slot in SLOTS)}
    left = sorted(source.names().keys() - taken - dropped)
    if left:
        raise ValueError(
            f"{source.index} holds {left[0]!r}, which is no part of a model with these options. Nothing is left out "
            "silently: check that the options and the checkpoint belong together."
        )
    arrays = {row.dataset: source.read(variables[row.dataset], row.shape) for row in rows}
    num_words = config.vocab_size - 1
    weight = source.read(softmax, (num_words, config.projection_size))
    return arrays, weight, source.read(SOFTMAX_BIAS, (num_words,))


def _weights(
    config: ElmoConfig, arrays: Mapping[str, np.ndarray], weight: np.ndarray, bias: np.ndarray
) -> dict[str, torch.Tensor]:
    """The weights of the language model under its names."""
    weights = {f"elmo.{name}": value for name, value in state_dict_from_arrays(config, arrays).items()}
    return weights | {"softmax.weight": torch.from_numpy(weight), "softmax.bias": torch.from_numpy(bias)}
