# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of ELMoForManyLangs (a folder with dictionaries and pickles) to a Hub folder.

Shape letters: E character dimension, F filters in all, P projection, C cell.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_card import UNKNOWN_LICENSE
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.tokenization_elmo import ElmoCharacters, ElmoTokenizer, word_tokenizer

from .manylangs_reference import manylangs_forward, manylangs_ids
from .options import LARGEST_COUNT, Section, read_filters, read_options
from .pickles import read_state_dict
from .verify import Parity, verify_folder
from .writing import ConversionReport, Destination, filled_model

CONFIG, EMBEDDER, ENCODER = "config.json", "token_embedder.pkl", "encoder.pkl"
CHARACTERS, WORDS = "char.dic", "word.dic"
LARGEST_DICTIONARY = 2**28  # bytes; a million words have about 15 million

# Names of the words and characters that are none.
UNKNOWN, BEGIN, END, PADDING = "<oov>", "<bos>", "<eos>", "<pad>"
BEGIN_WORD, END_WORD = "<bow>", "<eow>"

# The architecture of the published models. Their folders name it and may not have it, as the program has it, too.
PUBLISHED_NAMES = ("cnn_0_100_512_4096_sample.json", "cnn_50_100_512_4096_sample.json")
PUBLISHED: dict[str, Any] = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}

# The published models were trained on text that this program cut into words, with multiword tokens expanded.
SEGMENTER = "UDPipe"

# --- The name table --------------------------------------------------------------------------------------------------

# A file has the gates in the order input, forget, candidate, output; the model has input, forget, output, candidate.
GATES = (0, 1, 3, 2)

Arrays = tuple[np.ndarray, ...]


def _same(array: np.ndarray) -> Arrays:
    return (array,)


def _transposed(array: np.ndarray) -> Arrays:
    return (array.T,)


def _highway(array: np.ndarray) -> Arrays:
    """The changed part, and the gate, which there lets through what is not changed."""
    transform, carry = np.split(array, 2)
    return transform, -carry


def _gates(array: np.ndarray) -> Arrays:
    """(4C,) or (4C, P) to (4C,) or (P, 4C)."""
    quarters = np.split(array, 4)
    return (np.concatenate([quarters[number] for number in GATES]).T,)


class Row(NamedTuple):
    """One tensor of a file: its name and shape there, the weights it holds, and how."""

    file: str
    tensor: str
    shape: tuple[int, ...]
    weights: tuple[str, ...]
    to_ours: Callable[[np.ndarray], Arrays]


def name_table(config: ElmoConfig) -> list[Row]:
    """All tensors of the files of a model and the weights they hold, each exactly once."""
    return [*_embedder_rows(config), *_encoder_rows(config)]


def _embedder_rows(config: ElmoConfig) -> Iterator[Row]:
    ours, characters, filters = "character_encoder", config.char_embedding_size, config.num_filters
    if config.word_input != "characters":
        shape = (config.vocab_size, config.word_embedding_size)
        yield Row(EMBEDDER, "word_emb_layer.embedding.weight", shape, (f"{ours}.word_embedding.weight",), _same)
    if config.word_input != "words":
        shape = (config.char_vocab_size - 1, characters)
        yield Row(EMBEDDER, "char_emb_layer.embedding.weight", shape, (f"{ours}.embedding.weight",), _same)
        for i, (width, count) in enumerate(config.char_cnn_filters):
            name = f"convolutions.{i}"
            yield Row(EMBEDDER, f"{name}.weight", (count, characters, width), (f"{ours}.{name}.weight",), _same)
            yield Row(EMBEDDER, f"{name}.bias", (count,), (f"{ours}.{name}.bias",), _same)
        for k in range(config.num_highway_layers):
            name, parts = f"highways._layers.{k}", [f"{ours}.highways.{k}.{part}" for part in ("transform", "carry")]
            matrices, biases = (tuple(f"{part}.{kind}" for part in parts) for kind in ("weight", "bias"))
            yield Row(EMBEDDER, f"{name}.weight", (2 * filters, filters), matrices, _highway)
            yield Row(EMBEDDER, f"{name}.bias", (2 * filters,), biases, _highway)
    size, features = config.projection_size, config.word_feature_size
    yield Row(EMBEDDER, "projection.weight", (size, features), (f"{ours}.projection.weight",), _same)
    yield Row(EMBEDDER, "projection.bias", (size,), (f"{ours}.projection.bias",), _same)


def _encoder_rows(config: ElmoConfig) -> Iterator[Row]:
    size, cell = config.projection_size, config.cell_size
    for direction in ("forward", "backward"):
        for layer in range(config.num_hidden_layers):
            theirs, ours = f"{direction}_layer_{layer}", f"bilstm.{direction}_layers.{layer}"
            yield Row(ENCODER, f"{theirs}.input_linearity.weight", (4 * cell, size), (f"{ours}.input_weight",), _gates)
            yield Row(
                ENCODER, f"{theirs}.state_linearity.weight", (4 * cell, size), (f"{ours}.recurrent_weight",), _gates
            )
            yield Row(ENCODER, f"{theirs}.state_linearity.bias", (4 * cell,), (f"{ours}.bias",), _gates)
            yield Row(
                ENCODER, f"{theirs}.state_projection.weight", (size, cell), (f"{ours}.projection_weight",), _transposed
            )


# --- Their folder ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ManyLangs:
    """What a folder of ELMoForManyLangs holds.

    Args:
        architecture: Content of the architecture file.
        words: The words in the order of their ids; `None` if the model reads characters only.
        characters: The characters in the order of their ids, from 0; `None` if the model reads words only.
        tensors: Tensors of each pickle by name.
        files: The files that were read.
    """

    architecture: dict[str, Any]
    words: list[str] | None
    characters: list[str] | None
    tensors: dict[str, dict[str, np.ndarray]]
    files: list[Path]

    def config(self) -> ElmoConfig:
        """The config of the model."""
        return _config(self.architecture, self.words, self.characters)

    def model(self) -> ElmoModel:
        """The model with these weights: every one taken from the source, apart from the mixes, which are fresh."""
        config = self.config()
        return filled_model(ElmoModel, config, state_dict_from_tensors(config, self.tensors))

    def tokenizer(self, segmenter: str | None = SEGMENTER) -> ElmoTokenizer:
        """The tokenizer that gives the word ids of the original, and its character ids plus 1."""
        words = self.words or [UNKNOWN, BEGIN, END, PADDING]
        tokenizer = ElmoTokenizer(
            tokenizer_object=word_tokenizer(words, unknown=UNKNOWN, padding=PADDING),
            word_splitting="whitespace",
            segmenter=segmenter,
            unicode_normalization="NFC",
            max_characters_per_token=self.architecture["token_embedder"]["max_characters_per_token"],
            bos_token=BEGIN,
            eos_token=END,
            unk_token=UNKNOWN,
            pad_token=PADDING,
            add_bos_token=True,
            add_eos_token=True,
        )
        tokenizer.set_characters(_our_characters(self.characters))
        return tokenizer


def is_manylangs(path: str | os.PathLike[str]) -> bool:
    """Whether this looks like a folder of ELMoForManyLangs."""
    return all(Path(path, name).is_file() for name in (CONFIG, EMBEDDER, ENCODER))


def read_manylangs(path: str | os.PathLike[str]) -> ManyLangs:
    """Reads a folder of ELMoForManyLangs without trusting it.

    A classifier.pkl, the output layer of the language model, is not read: the published folders have none.

    Args:
        path: The folder.

    Raises:
        ValueError: If a file is not as it must be; names it.
        FileNotFoundError: If a file is missing.
    """
    folder = Path(path)
    architecture_file, architecture = _read_architecture(folder)
    files = [folder / CONFIG, *([architecture_file] if architecture_file else [])]
    embedder = architecture["token_embedder"]
    words, characters = None, None
    if embedder["word_dim"]:
        files.append(folder / WORDS)
        words = _read_dictionary(files[-1], (UNKNOWN, BEGIN, END, PADDING))
    if embedder["char_dim"]:
        files.append(folder / CHARACTERS)
        characters = _read_dictionary(files[-1], (UNKNOWN, BEGIN, END, PADDING, BEGIN_WORD, END_WORD))
    rows = name_table(_config(architecture, words, characters))
    tensors = {
        name: read_state_dict(folder / name, {row.tensor: row.shape for row in rows if row.file == name})
        for name in (EMBEDDER, ENCODER)
    }
    return ManyLangs(architecture, words, characters, tensors, [*files, folder / EMBEDDER, folder / ENCODER])


def state_dict_from_tensors(
    config: ElmoConfig, tensors: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, torch.Tensor]:
    """The weights of the model, under its names, from the tensors of the two pickles."""
    left = {(file, name): array for file, arrays in tensors.items() for name, array in arrays.items()}
    weights: dict[str, torch.Tensor] = {}
    for row in name_table(config):
        converted = row.to_ours(left.pop((row.file, row.tensor)))
        for name, weight in zip(row.weights, converted, strict=True):
            weights[name] = torch.from_numpy(np.ascontiguousarray(weight))
    if left:
        raise ValueError(f"These tensors have no place in the model: {', '.join(sorted(map('/'.join, left)))}.")
    return weights


def _read_architecture(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The architecture, and the file in the folder that it is from, if it is not that of the published models.

    The config.json names it, often by a path on the machine of whoever trained the model. As the original does, this
    looks for that path in the folder, for its last part in the folder, and among the published ones; nowhere else.
    """
    named = read_options(folder / CONFIG).get("config_path")
    if not isinstance(named, str) or not named:
        raise ValueError(f"{folder / CONFIG} must have a config_path, the name of the file with the architecture.")
    path = PurePosixPath(named.replace("\\", "/"))
    inside = not path.is_absolute() and ".." not in path.parts and ":" not in named
    for candidate in ([folder / path] if inside else []) + [folder / path.name]:
        if path.name and candidate.is_file():
            return candidate, _checked_architecture(candidate, read_options(candidate))
    if path.name in PUBLISHED_NAMES:
        return None, PUBLISHED
    raise FileNotFoundError(
        f"{folder / CONFIG} names the architecture file {named[:200]!r}, but {folder} has no {path.name[:200]!r}. Put "
        f"the file there; the published models use {PUBLISHED_NAMES[1]}."
    )


def _checked_architecture(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    try:
        _config(content, None, None)  # refuses what cannot be
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return content


def _config(architecture: Mapping[str, Any], words: list[str] | None, characters: list[str] | None) -> ElmoConfig:
    """The config of the model that the architecture and the dictionaries describe."""
    top = Section(architecture)
    encoder, embedder = top.section("encoder"), top.section("token_embedder")
    if encoder.values.get("name") != "elmo":
        encoder.refuse("name", '"elmo"; the encoder "lstm" is not ELMo, as its layers read both directions')
    if embedder.values.get("name") != "cnn":
        embedder.refuse("name", '"cnn"; the token embedder "lstm" of the original does not run')
    word_size, character_size = (embedder.integer(name, 0) for name in ("word_dim", "char_dim"))
    max_characters = embedder.integer("max_characters_per_token", len(BEGIN) + 2, 10_000)
    settings: dict[str, Any] = {}
    if character_size:
        if embedder.values.get("activation") not in ("relu", "tanh"):
            embedder.refuse("activation", '"relu" or "tanh"')
        ours = _our_characters(characters)
        settings = {
            "char_vocab_size": len(ours.characters) + 1,
            "char_embedding_size": character_size,
            "character_markers": ours.markers,
            "char_cnn_filters": read_filters(embedder, max_characters),
            "char_cnn_activation": embedder.values["activation"],
            "num_highway_layers": embedder.integer("n_highway", 0, LARGEST_COUNT),
        }
    elif not word_size:
        raise ValueError(
            "token_embedder.word_dim and token_embedder.char_dim are both 0, so there is nothing to read."
        )
    vocabulary = words or [UNKNOWN, BEGIN, END, PADDING]
    return ElmoConfig(
        word_input="both" if word_size and character_size else "words" if word_size else "characters",
        word_embedding_size=word_size,
        max_characters_per_token=max_characters,
        projection_size=encoder.integer("projection_dim", 1),
        cell_size=encoder.integer("dim", 1),
        num_hidden_layers=encoder.integer("n_layers", 1, LARGEST_COUNT),
        cell_clip=encoder.clip("cell_clip"),
        projection_clip=encoder.clip("proj_clip"),
        forget_bias=0.0,  # it is in the bias already
        vocab_size=len(vocabulary),
        pad_token_id=vocabulary.index(PADDING),
        bos_token_id=vocabulary.index(BEGIN),
        eos_token_id=vocabulary.index(END),
        **settings,
    )


def _our_characters(characters: Sequence[str] | None) -> ElmoCharacters:
    """Their characters with ids from 1, and their markers, which are swapped: a word begins with that of its end."""
    names = list(characters or (BEGIN, END, UNKNOWN, PADDING, BEGIN_WORD, END_WORD))
    return ElmoCharacters(
        characters=tuple(names),
        begin_sentence=names.index(BEGIN) + 1,
        end_sentence=names.index(END) + 1,
        begin_word=names.index(END_WORD) + 1,
        end_word=names.index(BEGIN_WORD) + 1,
        pad_word=names.index(PADDING) + 1,
        unknown=names.index(UNKNOWN) + 1,
    )


def _read_dictionary(path: Path, needed: Sequence[str]) -> list[str]:
    """The entries in the order of their ids; a line is an entry, a tab and an id."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.stat().st_size > LARGEST_DICTIONARY:
        raise ValueError(f"{path} has more than {LARGEST_DICTIONARY:,} bytes and so is no dictionary of a model.")
    try:
        lines = path.read_bytes().decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    entries: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        fields = line.strip().split("\t")
        if len(fields) == 1:
            fields.insert(0, "\u3000")  # white space, which the original takes for this kind
        entry, index = fields[0], fields[-1]
        if len(fields) != 2 or not re.fullmatch("[0-9]{1,9}", index):
            raise ValueError(f"{path}: line {number} must be an entry, a tab and a number, not {line!r:.100}.")
        if int(index) in entries:
            raise ValueError(f"{path}: line {number} has the number {index}, which another line has, too.")
        entries[int(index)] = entry
    if len(set(entries.values())) < len(entries):
        raise ValueError(f"{path}: an entry is there more than once.")
    if sorted(entries) != list(range(len(entries))):
        raise ValueError(f"{path}: the numbers of the {len(entries)} entries must be 0 to {len(entries) - 1}.")
    known = set(entries.values())
    for name in needed:
        if name not in known:
            raise ValueError(f"{path} has no entry {name}, which a model of ELMoForManyLangs needs.")
    return [entries[index] for index in range(len(entries))]


# --- Their folder to a Hub folder ------------------------------------------------------------------------------------


def convert_manylangs(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    segmenter: str | None = SEGMENTER,
    license: str = UNKNOWN_LICENSE,
    languages: tuple[str, ...] = (),
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ConversionReport:
    """Converts a folder of ELMoForManyLangs to a Hub folder, verifies the folder, and only then keeps it.

    Args:
        source: The folder: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl.
        output: The folder to write.
        segmenter: What cut the training text into words; recorded in the tokenizer.
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
    """
    source = Path(source)
    destination = Destination(output, license, languages, overwrite, progress)
    destination.tell(f"reading {source}")
    content = read_manylangs(source)
    if (source / "classifier.pkl").exists():
        destination.tell(
            "classifier.pkl, the output layer of the language model, is left out: it is not part of ELMo vectors"
        )

    def verify(folder: Path) -> Parity:
        words, characters = _lexicon(content.words), _lexicon(content.characters)
        width = content.architecture["token_embedder"]["max_characters_per_token"]
        return verify_folder(
            folder,
            lambda ids, state: manylangs_forward(
                content.architecture, content.tensors[EMBEDDER], content.tensors[ENCODER], ids, state
            ),
            lambda sentence: manylangs_ids(sentence, words, characters, width),
        )

    return destination.write(
        content.model,
        content.tokenizer(segmenter),
        verify,
        num_parameters=sum(array.size for tensors in content.tensors.values() for array in tensors.values()),
        dialect="the dictionaries and pickles of ELMoForManyLangs",
        sources=content.files,
    )


def _lexicon(entries: list[str] | None) -> dict[str, int] | None:
    return None if entries is None else {entry: index for index, entry in enumerate(entries)}
