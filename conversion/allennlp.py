# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""AllenNLP and bilm-tf weights (options.json and HDF5) to a Hub folder, and back.

Shape letters: E character dimension, F filters in all, P projection, C cell.
"""

import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.hub import check_place, finish_hub_folder, new_folder, save_model_files, sha256_of
from hf_elmo.model_card import UNKNOWN_LICENSE, check_language, check_license, converted_model_card
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .hdf5 import MissingDatasetError, read_hdf5, write_hdf5
from .options import CHARACTERS, config_from_options, options_from_config, read_options
from .reference import reference_forward
from .verify import Parity, load_config, load_exactly, verify_folder

# --- The name table --------------------------------------------------------------------------------------------------

# A file has the gates in the order input, candidate, forget, output; the model has input, forget, output, candidate.
GATES_TO_OURS = (0, 2, 3, 1)
GATES_TO_THEIRS = (0, 3, 1, 2)

Arrays = tuple[np.ndarray, ...]


def _reorder(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The quarters of the last axis in another order."""
    quarters = np.split(array, 4, axis=-1)
    return np.concatenate([quarters[number] for number in order], axis=-1)


class Layout(NamedTuple):
    """How one array of the file becomes weights of the model, and how they become that array again."""

    to_ours: Callable[[np.ndarray], Arrays]
    to_theirs: Callable[..., np.ndarray]


SAME = Layout(lambda array: (array,), lambda weight: weight)
TRANSPOSED = Layout(lambda array: (array.T,), lambda weight: weight.T)
# (1, width, E, count) and (count, E, width)
CONVOLUTION = Layout(lambda array: (array[0].transpose(2, 1, 0),), lambda weight: weight.transpose(2, 1, 0)[None])
GATES = Layout(lambda array: (_reorder(array, GATES_TO_OURS),), lambda weight: _reorder(weight, GATES_TO_THEIRS))
# (2P, 4C), the input's rows above those of the recurrent state, and twice (P, 4C)
STACKED_GATES = Layout(
    lambda array: tuple(np.split(_reorder(array, GATES_TO_OURS), 2)),
    lambda *weights: _reorder(np.concatenate(weights), GATES_TO_THEIRS),
)


class Row(NamedTuple):
    """One array of the file: its name and shape there, the weights it holds, and how."""

    dataset: str
    shape: tuple[int, ...]
    weights: tuple[str, ...]
    layout: Layout


def name_table(config: ElmoConfig) -> list[Row]:
    """All arrays of the weight file of a model and the weights they hold, each exactly once."""
    return list(_rows(config))


def _rows(config: ElmoConfig) -> Iterator[Row]:
    characters, filters = config.char_embedding_size, config.num_filters
    size, cell = config.projection_size, config.cell_size

    encoder = "character_encoder"
    yield Row("char_embed", (CHARACTERS - 1, characters), (f"{encoder}.embedding.weight",), SAME)
    for i, (width, count) in enumerate(config.char_cnn_filters):
        ours = f"{encoder}.convolutions.{i}"
        yield Row(f"CNN/W_cnn_{i}", (1, width, characters, count), (f"{ours}.weight",), CONVOLUTION)
        yield Row(f"CNN/b_cnn_{i}", (count,), (f"{ours}.bias",), SAME)
    for k in range(config.num_highway_layers):
        for part in ("carry", "transform"):
            ours = f"{encoder}.highways.{k}.{part}"
            yield Row(f"CNN_high_{k}/W_{part}", (filters, filters), (f"{ours}.weight",), TRANSPOSED)
            yield Row(f"CNN_high_{k}/b_{part}", (filters,), (f"{ours}.bias",), SAME)
    yield Row("CNN_proj/W_proj", (filters, size), (f"{encoder}.projection.weight",), TRANSPOSED)
    yield Row("CNN_proj/b_proj", (size,), (f"{encoder}.projection.bias",), SAME)

    for direction, layers in enumerate(("forward_layers", "backward_layers")):
        for layer in range(config.num_hidden_layers):
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            ours = f"bilstm.{layers}.{layer}"
            gates = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
            yield Row(f"{theirs}/W_0", (2 * size, 4 * cell), gates, STACKED_GATES)
            yield Row(f"{theirs}/B", (4 * cell,), (f"{ours}.bias",), GATES)
            yield Row(f"{theirs}/W_P_0", (cell, size), (f"{ours}.projection_weight",), SAME)


def state_dict_from_arrays(config: ElmoConfig, arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The weights of the model, under its names, from the arrays of a weight file."""
    left = dict(arrays)
    weights: dict[str, torch.Tensor] = {}
    for row in name_table(config):
        converted = row.layout.to_ours(left.pop(row.dataset))
        for name, weight in zip(row.weights, converted, strict=True):
            weights[name] = torch.from_numpy(np.ascontiguousarray(weight))
    if left:
        raise ValueError(f"These arrays have no place in the model: {', '.join(sorted(left))}.")
    return weights


def arrays_from_state_dict(config: ElmoConfig, weights: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The arrays of the weight file, under its names, from the weights of the model."""
    left = dict(weights)
    arrays: dict[str, np.ndarray] = {}
    for row in name_table(config):
        ours = [left.pop(name).detach().numpy() for name in row.weights]
        arrays[row.dataset] = np.ascontiguousarray(row.layout.to_theirs(*ours))
    left = {name: weight for name, weight in left.items() if not name.startswith("mixes.")}  # a file has no mixes
    if left:
        raise ValueError(f"These weights have no place in an AllenNLP file: {', '.join(sorted(left))}.")
    return arrays


# --- Their files to a Hub folder -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    Args:
        folder: The Hub folder.
        num_parameters: Number of weights taken from the source.
        parity: How far the model in the folder is from its source.
    """

    folder: Path
    num_parameters: int
    parity: Parity

    def __str__(self) -> str:
        return f"parity: {self.parity}\n{self.num_parameters:,} weights converted: {self.folder}"


def convert_allennlp(
    options: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    license: str = UNKNOWN_LICENSE,
    languages: tuple[str, ...] = (),
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ConversionReport:
    """Converts the weights of AllenNLP or bilm-tf to a Hub folder, verifies the folder, and only then keeps it.

    Args:
        options: The options.json.
        weights: The HDF5 file with the weights.
        output: The folder to write.
        vocabulary: Words, one a line, in bilm-tf's order. The vectors do not need them.
        license: Licence of the weights for the model card, as the Hub spells it.
        languages: Codes of the languages the model was trained on, for the model card.
        overwrite: Whether a folder that was written before may be replaced.
        progress: Is told what is being done, in a few words.

    Returns:
        What was done, with the figure of the verification.

    Raises:
        ValueError: If a file is not as it must be, or the result does not compute what the source does.
        FileNotFoundError: If a file does not exist.
        FileExistsError: If the output exists and may not be replaced.
        ImportError: If h5py is not installed.
    """
    tell = progress or (lambda _: None)
    options, weights, output = Path(options), Path(weights), Path(output)
    check_license(license)
    for language in languages:
        check_language(language)
    check_place(output, overwrite)

    tell(f"reading {options}")
    content = read_options(options)
    try:
        config = config_from_options(content)
    except ValueError as error:
        raise ValueError(f"{options}: {error}") from error
    tokenizer = ElmoTokenizer(
        vocab_file=vocabulary, word_splitting="moses", max_characters_per_token=config.max_characters_per_token
    )
    config = _with_word_ids(config, tokenizer)

    tell(f"reading {weights}")
    arrays = _read_arrays(weights, config)
    model = _model_from_arrays(config, arrays)
    num_parameters = sum(array.size for array in arrays.values())
    sources = [(path.name, sha256_of(path)) for path in (options, weights)]

    with new_folder(output, overwrite) as folder:
        tell("writing the model")
        save_model_files(model, tokenizer, folder)
        del model
        tell("verifying it against the source")
        parity = verify_folder(folder, lambda ids, state: reference_forward(content, arrays, ids, state))
        card = converted_model_card(
            output.resolve().name,
            config,
            tokenizer,
            num_parameters=num_parameters,
            dialect="the options and HDF5 files of AllenNLP or bilm-tf",
            sources=sources,
            parity=f"Checked when it was converted: {parity}.",
            license=license,
            languages=languages,
        )
        finish_hub_folder(folder, card)
    return ConversionReport(folder=output, num_parameters=num_parameters, parity=parity)


def _with_word_ids(config: ElmoConfig, tokenizer: ElmoTokenizer) -> ElmoConfig:
    fields = config.to_dict() | {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return ElmoConfig.from_dict(fields)


def _read_arrays(path: Path, config: ElmoConfig) -> dict[str, np.ndarray]:
    try:
        return read_hdf5(path, {row.dataset: row.shape for row in name_table(config)})
    except MissingDatasetError as error:
        raise ValueError(f"{error}{_why_missing(error.dataset, config)}") from error


def _why_missing(dataset: str, config: ElmoConfig) -> str:
    """What a model without this array is, if it is one that bilm-tf can make but this version cannot convert."""
    if dataset.startswith("CNN_proj/") and config.num_filters == config.projection_size:
        return (
            f" bilm-tf leaves out the projection if the filters are as many as projection_dim ({config.num_filters}); "
            "such models cannot be converted yet."
        )
    if dataset.endswith("/W_P_0") and config.cell_size == config.projection_size:
        return (
            f" bilm-tf leaves out the projection if dim is projection_dim ({config.cell_size}); such models cannot be "
            "converted yet."
        )
    if "MultiRNNCell" in dataset and config.num_hidden_layers == 1:
        return " bilm-tf names the arrays of a model with one layer in a way that cannot be converted yet."
    return ""


def _model_from_arrays(config: ElmoConfig, arrays: Mapping[str, np.ndarray]) -> ElmoModel:
    """The model with these weights: every one taken from the source, apart from the mixes, which are fresh."""
    with torch.device("meta"):
        model = ElmoModel(config)
    weights = state_dict_from_arrays(config, arrays)
    for n in range(len(model.mixes)):
        weights[f"mixes.{n}.weight"] = torch.zeros(config.num_hidden_layers + 1)
        weights[f"mixes.{n}.gamma"] = torch.ones(1)
    model.load_state_dict(weights, strict=True, assign=True)
    return model


# --- A Hub folder to their files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Args:
        options: The options.json.
        weights: The HDF5 file with the weights.
        num_parameters: Number of weights written.
    """

    options: Path
    weights: Path
    num_parameters: int

    def __str__(self) -> str:
        return f"{self.num_parameters:,} weights exported: {self.options} and {self.weights}"


def export_allennlp(
    folder: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> ExportReport:
    """Writes the options.json and weights.hdf5 of a model, which AllenNLP and bilm-tf read.

    Weights are float32 there. Mixes are not part of the format and are left out.

    Args:
        folder: Folder of an `ElmoModel`.
        output: Folder for the two files.
        overwrite: Whether files of these names may be replaced.

    Returns:
        What was written.

    Raises:
        ValueError: If the format cannot express the model, or its weights are not as they must be.
        FileNotFoundError: If the folder is no model folder.
        FileExistsError: If one of the files exists and may not be replaced.
        ImportError: If h5py is not installed.
    """
    folder, output = Path(folder), Path(output)
    options_file, weight_file = output / "options.json", output / "weights.hdf5"
    for file in (options_file, weight_file):
        if file.exists() and not overwrite:
            raise FileExistsError(f"{file} exists. Choose another folder, or overwrite it explicitly.")

    config = load_config(folder)
    options = options_from_config(config)
    _warn_about_readers(config)
    model = load_exactly(folder, torch.float32)
    _warn_about_mixes(model)
    arrays = arrays_from_state_dict(config, model.state_dict())

    output.mkdir(parents=True, exist_ok=True)
    write_hdf5(weight_file, arrays)
    _write_json(options_file, options)
    return ExportReport(options_file, weight_file, sum(array.size for array in arrays.values()))


def _warn_about_readers(config: ElmoConfig) -> None:
    """Says which programs cannot read the model."""
    if not config.use_skip_connections:
        warnings.warn("AllenNLP refuses models without skip connections; bilm-tf reads this one.", stacklevel=3)
    if config.max_characters_per_token != 50:
        warnings.warn(
            f"AllenNLP reads words of 50 characters only, this model reads {config.max_characters_per_token}; bilm-tf "
            "reads it.",
            stacklevel=3,
        )


def _warn_about_mixes(model: ElmoModel) -> None:
    """Says that something learned is lost."""
    for representation in range(len(model.mixes)):
        weights, gamma = model.layer_weights(representation)
        if gamma != 1 or (weights != weights[0]).any():
            warnings.warn(
                f"The learned weights of the layers (mixes.{representation}) are left out: the format has no place "
                "for them.",
                stacklevel=3,
            )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
