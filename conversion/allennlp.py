# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""AllenNLP and bilm-tf weights (options.json and HDF5) to a Hub folder, and back.

Shape letters: E character dimension, F filters in all, P projection, C cell, V words without padding.
"""

import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_card import UNKNOWN_LICENSE
from hf_elmo.modeling_elmo import WARM_STATE, ElmoModel
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .hdf5 import holds, import_h5py, read_hdf5, write_hdf5
from .options import CHARACTERS, config_from_options, options_from_config, read_options, settings_of_words
from .reference import reference_forward
from .verify import (
    Parity,
    character_rows,
    load_config,
    load_exactly,
    numbers_of,
    sentence_of,
    verify_folder,
    words_of_lines,
)
from .writing import ConversionReport, Destination, filled_model, how_words_are_split

# --- The name table --------------------------------------------------------------------------------------------------

# A file has the gates in the order input, candidate, forget, output; the model has input, forget, output, candidate.
GATES_TO_OURS = (0, 2, 3, 1)
GATES_TO_THEIRS = (0, 3, 1, 2)

# Arrays that tell models apart: the table of a model of words, and two projections that bilm-tf leaves out between
# equal sizes.
TABLE = "embedding"
WORD_PROJECTION = "CNN_proj/W_proj"
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
CELL_PROJECTION = f"{CELL}/W_P_0"

# TensorFlow computed token embeddings in float32; the rows of another word or another model are far from that.
LARGEST_DISTANCE_OF_ROWS = 1e-3

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


# (V, P), and one row more, of zeros, for padding
WITHOUT_PADDING = Layout(lambda array: (np.pad(array, ((0, 1), (0, 0))),), lambda weight: weight[:-1])


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
    size, cell, encoder = config.projection_size, config.cell_size, "character_encoder"
    if config.word_input == "words":
        yield Row(TABLE, (config.vocab_size - 1, size), (f"{encoder}.word_embedding.weight",), WITHOUT_PADDING)
    else:
        yield from _rows_of_characters(config, encoder)

    for direction, layers in enumerate(("forward_layers", "backward_layers")):
        for layer in range(config.num_hidden_layers):
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            ours = f"bilstm.{layers}.{layer}"
            gates = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
            yield Row(f"{theirs}/W_0", (2 * size, 4 * cell), gates, STACKED_GATES)
            yield Row(f"{theirs}/B", (4 * cell,), (f"{ours}.bias",), GATES)
            if config.project_cells:
                yield Row(f"{theirs}/W_P_0", (cell, size), (f"{ours}.projection_weight",), SAME)


def _rows_of_characters(config: ElmoConfig, encoder: str) -> Iterator[Row]:
    characters, filters, size = config.char_embedding_size, config.num_filters, config.projection_size
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
    if config.project_words:
        yield Row(WORD_PROJECTION, (filters, size), (f"{encoder}.projection.weight",), TRANSPOSED)
        yield Row("CNN_proj/b_proj", (size,), (f"{encoder}.projection.bias",), SAME)


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


def convert_allennlp(
    options: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    token_embeddings: str | os.PathLike[str] | None = None,
    segmenter: str | None = None,
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
        vocabulary: Words, one a line, in bilm-tf's order. The vectors of a model that reads characters do not need
            them; a model of words must have those it was trained with.
        token_embeddings: The HDF5 file that bilm-tf's `dump_token_embeddings` made of the vocabulary. The result looks
            words up in it instead of reading their characters, so that words outside the vocabulary are all the same.
        segmenter: What cut the training text into words, if it was not Moses; recorded in the tokenizer, and raw text
            is split at white space only.
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
    destination = Destination(output, license, languages, overwrite, progress)
    source = _Source.read(
        Path(options),
        Path(weights),
        None if vocabulary is None else Path(vocabulary),
        None if token_embeddings is None else Path(token_embeddings),
        segmenter,
        destination.tell,
    )
    return destination.write(
        lambda: filled_model(ElmoModel, source.config, state_dict_from_arrays(source.config, source.arrays)),
        source.tokenizer,
        source.verify,
        num_parameters=sum(array.size for array in source.arrays.values()),
        dialect="the options and HDF5 files of AllenNLP or bilm-tf",
        sources=source.files,
    )


@dataclass(frozen=True)
class _Source:
    """What the files hold."""

    options: dict[str, Any]
    config: ElmoConfig
    tokenizer: ElmoTokenizer
    arrays: dict[str, np.ndarray]
    words: list[str] | None  # by id, if the model looks words up
    files: list[Path]

    @classmethod
    def read(
        cls,
        options: Path,
        weights: Path,
        vocabulary: Path | None,
        token_embeddings: Path | None,
        segmenter: str | None,
        tell: Callable[[str], None],
    ) -> "_Source":
        tell(f"reading {options}")
        content = read_options(options)
        try:
            config = config_from_options(content)
        except ValueError as error:
            raise ValueError(f"{options}: {error}") from error
        words = _words_to_look_up(config, options, vocabulary, token_embeddings)
        tokenizer = ElmoTokenizer(
            vocab_file=vocabulary,
            max_characters_per_token=config.max_characters_per_token,
            **how_words_are_split(segmenter),
        )
        if words is not None:
            check_padding(tokenizer, words, vocabulary)
        config = with_settings(config, **word_ids(tokenizer))

        tell(f"reading {weights}")
        config, arrays = _read_arrays(weights, config)
        if words is not None and token_embeddings is not None:
            tell(f"reading {token_embeddings}")
            config, arrays = _with_table(token_embeddings, config, content, arrays, words)
        files = [options, weights]
        if words is not None:
            files += [file for file in (token_embeddings, vocabulary) if file is not None]
        return cls(content, config, tokenizer, arrays, words, files)

    def verify(self, folder: Path) -> Parity:
        """Compares the folder with what these arrays compute."""

        def reference(ids: np.ndarray, state: Any) -> Any:
            return reference_forward(self.options, self.arrays, ids, state)

        if self.words is None:
            return verify_folder(folder, reference)
        return verify_folder(folder, reference, numbers_of(self.words), [sentence_of(self.words)])


def with_settings(config: ElmoConfig, **settings: Any) -> ElmoConfig:
    """The config with some fields changed, checked again."""
    return ElmoConfig.from_dict(config.to_dict() | settings)


def word_ids(tokenizer: ElmoTokenizer) -> dict[str, int]:
    """What a config says of the vocabulary of this tokenizer."""
    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("pad", "bos", "eos")}
    return {"vocab_size": len(tokenizer), **ids}


def check_padding(tokenizer: ElmoTokenizer, words: Sequence[str], vocabulary: Path | None) -> None:
    """Refuses a vocabulary with a word for padding: a source has a row for each word, and padding comes after them."""
    if tokenizer.pad_token_id != len(words):
        raise ValueError(
            f"{vocabulary} has the word {tokenizer.pad_token}, which stands for padding here and so cannot be a word "
            f"of the model: padding must be the last word id, after the {len(words):,} words."
        )


def _words_to_look_up(
    config: ElmoConfig, options: Path, vocabulary: Path | None, token_embeddings: Path | None
) -> list[str] | None:
    """The words by id, if the model looks them up in a table; refuses to do so where that cannot be."""
    if config.word_input == "characters" and token_embeddings is None:
        return None
    if config.word_input == "words" and token_embeddings is not None:
        raise ValueError(
            f"{options} has no char_cnn, so the weights have a table of words already; leave out the token embeddings "
            f"{token_embeddings}."
        )
    if vocabulary is None:
        table = f"{token_embeddings} is" if token_embeddings else f"{options} has no char_cnn, so the weights have"
        raise ValueError(f"{table} a table of words: give the vocabulary that it was made with.")
    return words_of_lines(vocabulary)


def as_in_source(config: ElmoConfig, has: Callable[[str], bool]) -> ElmoConfig:
    """The config with the projections that the source has; between unequal sizes there must be one.

    Args:
        config: The config that the options say.
        has: Whether the source has an array of this name.
    """
    settings = {}
    if config.word_input == "characters" and config.num_filters == config.projection_size:
        settings["project_words"] = has(WORD_PROJECTION)
    if config.cell_size == config.projection_size:
        settings["project_cells"] = has(CELL_PROJECTION)
    return with_settings(config, **settings)


def _read_arrays(path: Path, config: ElmoConfig) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """The config with the projections that the file has, and all arrays of the file by their usual names."""
    alone = config.num_hidden_layers == 1 and holds(path, _of_one_layer(CELL))
    in_file = _of_one_layer if alone else str
    config = as_in_source(config, lambda dataset: holds(path, in_file(dataset)))
    rows = name_table(config)
    arrays = read_hdf5(path, {in_file(row.dataset): row.shape for row in rows})
    return config, {row.dataset: arrays[in_file(row.dataset)] for row in rows}


def _of_one_layer(dataset: str) -> str:
    """What bilm-tf calls this array of the only layer."""
    return dataset.replace("/MultiRNNCell/Cell0", "")


def _with_table(
    path: Path, config: ElmoConfig, options: Mapping[str, Any], arrays: dict[str, np.ndarray], words: list[str]
) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """The config and arrays of the same model with a table of words in place of what makes vectors of characters."""
    table = read_hdf5(path, {TABLE: (config.vocab_size - 1, config.projection_size)})
    _check_rows(path, table[TABLE], options, arrays, words, config.max_characters_per_token)
    config = with_settings(config, **settings_of_words(config.projection_size))
    return config, {row.dataset: (table | arrays)[row.dataset] for row in name_table(config)}


def _check_rows(
    path: Path,
    table: np.ndarray,
    options: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    words: list[str],
    max_characters: int,
) -> None:
    """Refuses a table that was made with other weights or another vocabulary, by some of its rows."""
    chosen = sentence_of(words)
    layers, _ = reference_forward(options, arrays, character_rows(chosen, max_characters))
    expected = np.split(layers[0], 2, axis=1)[0]  # (words, P)
    found = table[numbers_of(words)(chosen)[1:-1]]
    apart = np.abs(found - expected).max(axis=1) / np.abs(expected).max()
    if apart.max() > LARGEST_DISTANCE_OF_ROWS:
        raise ValueError(
            f"{path}: the row of the word {chosen[int(apart.argmax())]!r:.60} is not what the weights make of its "
            "characters. Token embeddings, vocabulary and weights must belong together."
        )


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

    Weights are float32 there. Mixes, and the softmax of a language model, are not part of the format and are left out.

    Args:
        folder: Folder of an `ElmoModel` or an `ElmoForPreTraining`.
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
            raise FileExistsError(
                f"{file} exists. Choose another folder, or overwrite it: --overwrite of the command, overwrite=True "
                "in Python."
            )

    config = load_config(folder)
    import_h5py()  # which is missed before the weights are read
    options = options_from_config(config)
    _warn_about_readers(config)
    model = _load_encoder(folder, config)
    _warn_about_mixes(model)
    weights = {name: weight for name, weight in model.state_dict().items() if name not in WARM_STATE}
    arrays = arrays_from_state_dict(config, weights)

    output.mkdir(parents=True, exist_ok=True)
    write_hdf5(weight_file, arrays)
    _write_json(options_file, options)
    return ExportReport(options_file, weight_file, sum(array.size for array in arrays.values()))


def _load_encoder(folder: Path, config: ElmoConfig) -> ElmoModel:
    """The encoder of a folder, all of whose weights are as they must be."""
    if ElmoForPreTraining.__name__ not in (config.architectures or []):
        return load_exactly(folder, torch.float32)
    warnings.warn("The softmax is left out: the format has no place for it.", stacklevel=3)
    return load_exactly(folder, torch.float32, ElmoForPreTraining).elmo


def _warn_about_readers(config: ElmoConfig) -> None:
    """Says which programs cannot read the model."""
    reads_words = config.word_input == "words"
    refused = {
        "AllenNLP refuses models without skip connections; bilm-tf reads this one.": not config.use_skip_connections,
        "AllenNLP refuses models of words; bilm-tf reads this one with `use_character_inputs=False`, the weights as "
        "`embedding_weight_file`, and the vocabulary, which is in the tokenizer's folder.": reads_words,
        f"AllenNLP reads words of 50 characters only, this model reads {config.max_characters_per_token}; bilm-tf "
        "reads it.": config.max_characters_per_token != 50 and not reads_words,
        "AllenNLP refuses models without projections between equal sizes (project_words=False, project_cells=False); "
        "bilm-tf reads this one.": not (reads_words or (config.project_words and config.project_cells)),
        f"bilm-tf reads at most 8 layers, this model has {config.num_hidden_layers}; AllenNLP reads "
        "it.": config.num_hidden_layers > 8,
    }
    for sentence, applies in refused.items():
        if applies:
            warnings.warn(sentence, stacklevel=3)


def _warn_about_mixes(model: ElmoModel) -> None:
    """Says that something learned is lost."""
    if model.config.initial_state == "warm":
        warnings.warn(
            "The stored state that sentences start from is left out: the format has no place for it.", stacklevel=3
        )
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
