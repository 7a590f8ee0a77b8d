# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints of bilm-tf's training, which have the softmax, to a Hub folder of a language model.

The arrays are those of the HDF5 file that bilm-tf dumps, under other names; `allennlp.py` says what becomes of them.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.hub import check_place, finish_hub_folder, new_folder, save_model_files, sha256_of
from hf_elmo.model_card import UNKNOWN_LICENSE, check_language, check_license, converted_model_card
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import ConversionReport, name_table, state_dict_from_arrays
from .options import LARGEST_SIZE, config_from_options, read_options
from .reference import reference_forward
from .tf_checkpoint import TensorFlowCheckpoint
from .verify_scores import verify_language_model

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
    tell = progress or (lambda _: None)
    output = Path(output)
    check_license(license)
    for language in languages:
        check_language(language)
    check_place(output, overwrite)

    source = TensorFlowCheckpoint(checkpoint)
    options = source.index.parent / "options.json" if options is None else Path(options)
    tell(f"reading {options}")
    content = read_options(options)
    tokenizer, config = _tokenizer_and_config(options, content, vocabulary)
    _check_softmax(source, config, Path(vocabulary))

    tell(f"reading {source.index} and what it names")
    arrays, weight, bias = _read_arrays(source, config)
    model = _model_from_arrays(config, arrays, weight, bias)
    num_parameters = sum(array.size for array in (*arrays.values(), weight, bias))
    sources = [(path.name, sha256_of(path)) for path in (options, Path(vocabulary), *source.files())]
    words = _words_of_lines(Path(vocabulary))

    with new_folder(output, overwrite) as folder:
        tell("writing the model")
        save_model_files(model, tokenizer, folder)
        del model
        tell("verifying it against the source")
        parity = verify_language_model(
            folder, lambda ids, state: reference_forward(content, arrays, ids, state), weight, bias, words
        )
        card = converted_model_card(
            output.resolve().name,
            config,
            tokenizer,
            num_parameters=num_parameters,
            dialect="a TensorFlow checkpoint of bilm-tf",
            sources=sources,
            parity=f"Checked when it was converted: {parity}.",
            license=license,
            languages=languages,
        )
        finish_hub_folder(folder, card)
    return ConversionReport(folder=output, num_parameters=num_parameters, parity=parity)


def _tokenizer_and_config(
    path: Path, options: Mapping[str, Any], vocabulary: str | os.PathLike[str]
) -> tuple[ElmoTokenizer, ElmoConfig]:
    width = _config(path, options).max_characters_per_token
    tokenizer = ElmoTokenizer(vocab_file=vocabulary, word_splitting="moses", max_characters_per_token=width)
    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("pad", "bos", "eos")}
    return tokenizer, _config(path, options, vocab_size=len(tokenizer), **ids)


def _config(path: Path, options: Mapping[str, Any], vocab_size: int = ElmoConfig.vocab_size, **ids: int) -> ElmoConfig:
    try:
        settings = _training_settings(options, num_words=vocab_size - 1)
        return config_from_options(options, vocab_size=vocab_size, **ids, **settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _words_of_lines(vocabulary: Path) -> list[str]:
    """The words by id, read a second time, so that the ids of the tokenizer are verified, too."""
    with open(vocabulary, encoding="utf-8", newline="\n") as file:
        words = [line.rstrip("\r\n") for line in file]
    return [word for word in words if word != "!!!MAXTERMID"]


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


def _check_softmax(source: TensorFlowCheckpoint, config: ElmoConfig, vocabulary: Path) -> None:
    """Refuses a vocabulary that is not the one of the softmax."""
    names = source.names()
    if SOFTMAX_WEIGHT not in names:
        raise ValueError(
            f"{source.index} has no tensor {SOFTMAX_WEIGHT!r} and so is no checkpoint of bilm-tf's training."
        )
    num_words, shape = config.vocab_size - 1, names[SOFTMAX_WEIGHT][1]
    if shape != (num_words, config.projection_size):
        raise ValueError(
            f"{source.index}: the tensor {SOFTMAX_WEIGHT!r} has shape {shape}, but {vocabulary} has {num_words:,} "
            f"words, and projection_dim is {config.projection_size}. Give the vocabulary of the training."
        )


def _read_arrays(
    source: TensorFlowCheckpoint, config: ElmoConfig
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The arrays under their names in the HDF5 file, and the weight and bias of the softmax."""
    rows = name_table(config)
    variables = {row.dataset: variable_name(row.dataset, config.num_hidden_layers) for row in rows}
    taken = {*variables.values(), SOFTMAX_WEIGHT, SOFTMAX_BIAS}
    dropped = {*OF_TRAINING, *(f"{name}/{slot}" for name in taken for slot in SLOTS)}
    left = sorted(source.names().keys() - taken - dropped)
    if left:
        raise ValueError(
            f"{source.index} holds {left[0]!r}, which is no part of a model with these options. Nothing is left out "
            "silently: check that the options and the checkpoint belong together."
        )
    arrays = {row.dataset: source.read(variables[row.dataset], row.shape) for row in rows}
    num_words = config.vocab_size - 1
    weight = source.read(SOFTMAX_WEIGHT, (num_words, config.projection_size))
    return arrays, weight, source.read(SOFTMAX_BIAS, (num_words,))


def _model_from_arrays(
    config: ElmoConfig, arrays: Mapping[str, np.ndarray], weight: np.ndarray, bias: np.ndarray
) -> ElmoForPreTraining:
    """The model with these weights: every one taken from the source, apart from the mixes, which are fresh."""
    with torch.device("meta"):
        model = ElmoForPreTraining(config)
    weights = {f"elmo.{name}": value for name, value in state_dict_from_arrays(config, arrays).items()}
    weights |= {"softmax.weight": torch.from_numpy(weight), "softmax.bias": torch.from_numpy(bias)}
    for n in range(len(model.elmo.mixes)):
        weights[f"elmo.mixes.{n}.weight"] = torch.zeros(config.num_hidden_layers + 1)
        weights[f"elmo.mixes.{n}.gamma"] = torch.ones(1)
    model.load_state_dict(weights, strict=True, assign=True)
    return model
