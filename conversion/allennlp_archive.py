# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The Elmo module inside a model that AllenNLP trained (weights.th) to a Hub folder, with its trained mixes.

Shape letters: T tokens with both boundaries, D = 2 x projection, L layers.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.hub import finish_hub_folder, new_folder, save_model_files, sha256_of
from hf_elmo.model_card import TASK_WEIGHTS, UNKNOWN_LICENSE, converted_model_card
from hf_elmo.modeling_elmo import ElmoModel
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .manylangs import EMBEDDER, ENCODER, Row, state_dict_from_tensors
from .manylangs import name_table as manylangs_table
from .manylangs_reference import manylangs_forward
from .options import config_from_options, read_options
from .pickles import SavedTensors
from .verify import LIMIT, SENTENCES, Parity, character_rows, load_exactly, verify_folder
from .writing import ConversionReport, Destination, filled_model, how_words_are_split

# --- The name table --------------------------------------------------------------------------------------------------

# Below the prefix of the Elmo module. The tensors are those of ELMoForManyLangs under other names, so that
# `manylangs.py` says what becomes of them; only that here the padding of characters has a row, which is always zero.
CHARACTERS = "_elmo_lstm._token_embedder._char_embedding_weights"
PARTS = (
    ("char_emb_layer.embedding.weight", "_char_embedding_weights"),
    ("convolutions.", "char_conv_"),
    ("highways.", "_highways."),
    ("projection.", "_projection."),
)
# A copy of what the characters of some words give, made to save time.
DROPPED = "_elmo_lstm._word_embedding.weight"

TRAINED_MIXES = (
    "The weights of the layers (`model.layer_weights()`) are those that were trained with the task of the source."
)


def tensor_name(row: Row) -> str:
    """The name below the prefix of what ELMoForManyLangs calls by the name in the row."""
    if row.file == ENCODER:
        return f"_elmo_lstm._elmo_lstm.{row.tensor}"
    for theirs, ours in PARTS:
        if row.tensor.startswith(theirs):
            return f"_elmo_lstm._token_embedder.{ours}{row.tensor.removeprefix(theirs)}"
    raise ValueError(f"AllenNLP has no tensor like {row.tensor!r}.")


def tensor_shapes(config: ElmoConfig) -> dict[str, tuple[int, ...]]:
    """All tensors of the Elmo module, below its prefix, and their shapes."""
    shapes = {tensor_name(row): row.shape for row in manylangs_table(config)}
    shapes[CHARACTERS] = (config.char_vocab_size, config.char_embedding_size)
    for n in range(config.num_output_representations):
        shapes |= dict.fromkeys(mix_names(n, config.num_hidden_layers), (1,))
    return shapes


def mix_names(number: int, num_layers: int) -> list[str]:
    """The names of a mix: the factor, and then a weight for each layer."""
    mix = f"scalar_mix_{number}"
    return [f"{mix}.gamma", *(f"{mix}.scalar_parameters.{layer}" for layer in range(num_layers + 1))]


@dataclass(frozen=True)
class Elmo:
    """An Elmo module.

    Args:
        options: What an options.json says of it.
        tensors: Those of its biLM, by file and name in ELMoForManyLangs.
        mixes: Of each mix, gamma and then a weight for each layer.
    """

    options: dict[str, Any]
    tensors: dict[str, dict[str, np.ndarray]]
    mixes: list[np.ndarray]

    def model(self, config: ElmoConfig) -> ElmoModel:
        """The model with these weights, every one taken from the source."""
        weights = state_dict_from_tensors(config, self.tensors)
        for n, mix in enumerate(self.mixes):
            weights[f"mixes.{n}.gamma"] = torch.from_numpy(mix[:1].copy())
            weights[f"mixes.{n}.weight"] = torch.from_numpy(mix[1:].copy())
        return filled_model(ElmoModel, config, weights)

    def forward(self, ids: np.ndarray, state: Any = None) -> tuple[np.ndarray, Any]:
        """All layers of a sentence, computed from the tensors as they are in the file; see `manylangs_forward`."""
        cnn = self.options["char_cnn"]
        settings = cnn | {"word_dim": 0, "char_dim": cnn["embedding"]["dim"]}
        architecture = {"encoder": self.options["lstm"], "token_embedder": settings}
        return manylangs_forward(architecture, self.tensors[EMBEDDER], self.tensors[ENCODER], ids, state)

    def ids(self, words: Sequence[str]) -> np.ndarray:
        """What `forward` reads: (T, 1 + characters), where the word is 0, as there are no words."""
        rows = character_rows(["<S>", *words, "</S>"], self.options["char_cnn"]["max_characters_per_token"])
        return np.concatenate([np.zeros((len(rows), 1), np.int64), rows - 1], axis=1)


# --- Where it is in the file, and what it is like --------------------------------------------------------------------


def elmo_prefixes(names: Iterable[str]) -> list[str]:
    """What the names of each Elmo module begin with, such as `text_field_embedder.token_embedder_elmo._elmo.`."""
    return sorted(name.removesuffix(CHARACTERS) for name in names if name.endswith(CHARACTERS))


def _choose_prefix(path: Path, shapes: Mapping[str, Any], prefix: str | None) -> str:
    found = elmo_prefixes(shapes)
    listed = ", ".join(repr(one) for one in found[:5])
    if prefix is not None:
        wanted = prefix if not prefix or prefix.endswith(".") else f"{prefix}."
        if wanted not in found:
            raise ValueError(f"{path} has no Elmo module {prefix!r:.200}; it has {listed or 'none'}.")
        return wanted
    if not found:
        raise ValueError(
            f"{path} has no Elmo module: no tensor is called '...{CHARACTERS}'. Was the model trained with ELMo, and "
            "is it of AllenNLP?"
        )
    if len(found) > 1:
        raise ValueError(f"{path} has {len(found)} Elmo modules: {listed}. Say which with --prefix.")
    return found[0]


def _sizes(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Any], int]:
    """What the shapes below a prefix say of the options, and the number of mixes."""

    def shape(name: str, dimensions: int) -> tuple[int, ...]:
        if len(shapes.get(name, ())) != dimensions:
            raise ValueError(f"{path} has no tensor {name!r} with {dimensions} dimensions in its Elmo module.")
        return shapes[name]

    def count(name: str) -> int:
        return next(number for number in range(len(shapes) + 1) if name.format(number) not in shapes)

    embedder, lstm = "_elmo_lstm._token_embedder", "_elmo_lstm._elmo_lstm.forward_layer_{}.state_projection.weight"
    filters = [shape(f"{embedder}.char_conv_{i}.weight", 3) for i in range(count(f"{embedder}.char_conv_{{}}.weight"))]
    projection, cell = shape(lstm.format(0), 2)
    options = {
        "lstm": {"projection_dim": projection, "dim": cell, "n_layers": count(lstm)},
        "char_cnn": {
            "filters": [[width, number] for number, _, width in filters],
            "n_highway": count(f"{embedder}._highways._layers.{{}}.weight"),
            "embedding": {"dim": shape(CHARACTERS, 2)[1]},
        },
    }
    return options, count("scalar_mix_{}.gamma")


# What the tensors do not tell. All published models have these values, and AllenNLP has no others for the last two.
PUBLISHED_LSTM = {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
PUBLISHED_CNN = {"activation": "relu", "max_characters_per_token": 50}
ASSUMED = (
    "The clips (3), the activation (relu) and the length of words (50) are those of all published models, as no "
    "options file is there that says them."
)
ASSUMED_NO_NORM = "That layers are not normalised before they are mixed is assumed, as no config says it."


def _elmo_settings(config: Any) -> list[dict[str, Any]]:
    """The parts of AllenNLP's config that describe an Elmo module, wherever they are."""
    if isinstance(config, list):
        return [found for item in config for found in _elmo_settings(item)]
    if not isinstance(config, dict):
        return []
    if "options_file" in config or config.get("type") == "elmo_token_embedder":
        return [config]
    return [found for item in config.values() for found in _elmo_settings(item)]


def _normalises(path: Path, settings: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether layers are normalised before they are mixed; `None` if the config does not say."""
    values = [one.get("do_layer_norm", False) for one in settings]
    for value in values:
        if not isinstance(value, bool):
            raise ValueError(f"{path}: do_layer_norm is {value!r:.100}; it must be true or false.")
    if len(set(values)) > 1:
        raise ValueError(f"{path} has do_layer_norm true for one Elmo module and false for another.")
    return values[0] if values else None


def _options_beside(config: Path | None, settings: Sequence[Mapping[str, Any]]) -> Path | None:
    """The options file that is in the archive, if there is one: AllenNLP keeps what its config names in `fta`."""
    if config is None:
        return None
    files = sorted(path for path in (config.parent / "fta").glob("*options_file") if path.is_file())
    names = {Path(str(one.get("options_file", "")).replace("\\", "/")).name for one in settings}
    files += [config.parent / name for name in sorted(names) if name and (config.parent / name).is_file()]
    if len({sha256_of(path) for path in files}) > 1:
        raise ValueError(
            f"{config.parent} has {len(files)} different options files: {', '.join(path.name for path in files[:5])}. "
            "Say which with --options."
        )
    return files[0] if files else None


# --- A trained model to a Hub folder ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MixParity(Parity):
    """How far a model and its mixes are from their source.

    Args:
        mixes: Number of mixes.
        mixes_float32: Largest absolute difference of any value of any mix, computed in float32.
        mixes_float64: The same, computed in float64.
    """

    mixes: int
    mixes_float32: float
    mixes_float64: float

    def __str__(self) -> str:
        return (
            f"{super().__str__()}; {self.mixes} trained mix{'es' if self.mixes > 1 else ''}: "
            f"{self.mixes_float32:.1e} in float32, {self.mixes_float64:.1e} in float64"
        )


def convert_allennlp_archive(
    weights: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str] | None = None,
    options: str | os.PathLike[str] | None = None,
    prefix: str | None = None,
    segmenter: str | None = None,
    license: str = UNKNOWN_LICENSE,
    languages: tuple[str, ...] = (),
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ConversionReport:
    """Converts the Elmo module of a model that AllenNLP trained, verifies the folder, and only then keeps it.

    The biLM and the mixes come along; the rest of the model is left out.

    Args:
        weights: The weights.th of the model.
        output: The folder to write.
        config: The config.json of the model, which says whether layers are normalised, and beside which the options
            file may be.
        options: The options.json of the biLM; by default the one in the archive, or what all published models have.
        prefix: What the names of the Elmo module begin with, if there are several.
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
    destination = Destination(output, license, languages, overwrite, progress)
    tell, weights, output = destination.tell, Path(weights), Path(output)
    config = None if config is None else Path(config)
    settings = [] if config is None else _elmo_settings(read_options(config))
    normalises = None if config is None else _normalises(config, settings)
    options = _options_beside(config, settings) if options is None else Path(options)
    assumed = [*([] if options else [ASSUMED]), *([] if normalises is not None else [ASSUMED_NO_NORM])]
    tell(f"reading {weights}")
    elmo, elmo_config = _read_elmo(weights, options, prefix, tell, mix_layer_norm="batch" if normalises else None)
    for sentence in assumed:
        tell(sentence)
    width = elmo_config.max_characters_per_token
    tokenizer = ElmoTokenizer(max_characters_per_token=width, **how_words_are_split(segmenter))
    num_parameters = sum(array.size for arrays in elmo.tensors.values() for array in arrays.values())
    num_parameters += sum(mix.size for mix in elmo.mixes)
    sources = [(path.name, sha256_of(path)) for path in (weights, config, options) if path is not None]

    with new_folder(output, overwrite) as folder:
        tell("writing the model")
        save_model_files(elmo.model(elmo_config), tokenizer, folder)
        tell("verifying it against the source")
        parity = _verify(folder, elmo, elmo_config)
        card = converted_model_card(
            output.resolve().name,
            elmo_config,
            tokenizer,
            num_parameters=num_parameters,
            dialect="a model that AllenNLP trained",
            sources=sources,
            parity=" ".join([f"Checked when it was converted: {parity}.", *assumed]),
            license=license,
            languages=languages,
        )
        finish_hub_folder(folder, card.replace(TASK_WEIGHTS, TRAINED_MIXES))
    return ConversionReport(folder=output, num_parameters=num_parameters, parity=parity)


def _read_elmo(
    path: Path, options: Path | None, prefix: str | None, tell: Callable[[str], None], mix_layer_norm: str | None
) -> tuple[Elmo, ElmoConfig]:
    """The Elmo module of the file, every tensor of which is read, and the config of the model it becomes."""
    source = SavedTensors(path)
    prefix = _choose_prefix(path, source.shapes(), prefix)
    shapes = {name.removeprefix(prefix): shape for name, shape in source.shapes().items() if name.startswith(prefix)}
    sizes, num_mixes = _sizes(path, shapes)
    if not num_mixes:
        raise ValueError(f"{path} has no tensor '{prefix}scalar_mix_0.gamma', which every Elmo module has.")
    content = _options(path, options, sizes)
    try:
        config = config_from_options(
            content,
            forget_bias=0.0,  # it is in the bias already
            num_output_representations=num_mixes,
            mix_layer_norm=mix_layer_norm,
            vocab_size=4,
            pad_token_id=3,
        )
    except ValueError as error:
        raise ValueError(f"{options or path}: {error}") from error

    needed = tensor_shapes(config)
    left = sorted(shapes.keys() - needed.keys() - {DROPPED})
    if left:
        raise ValueError(
            f"{path} has a tensor '{prefix}{left[0][:200]}', which has no place in the model. Nothing is left out "
            "silently: is it of another version of AllenNLP?"
        )
    if DROPPED in shapes:
        tell(f"{prefix}{DROPPED} is left out: it repeats what the characters of {shapes[DROPPED][0]:,} words give")
    read = source.read({f"{prefix}{name}": shape for name, shape in needed.items()})
    arrays = {name.removeprefix(prefix): array for name, array in read.items()}
    tensors: dict[str, dict[str, np.ndarray]] = {EMBEDDER: {}, ENCODER: {}}
    for row in manylangs_table(config):
        array = arrays[tensor_name(row)]
        tensors[row.file][row.tensor] = array[1:] if tensor_name(row) == CHARACTERS else array
    mixes = [
        np.concatenate([arrays[name] for name in mix_names(n, config.num_hidden_layers)]) for n in range(num_mixes)
    ]
    return Elmo(content, tensors, mixes), config


def _options(path: Path, options: Path | None, sizes: dict[str, Any]) -> dict[str, Any]:
    """The options of the file, or else what all published models have, with the sizes of the tensors."""
    if options is None:
        return {"lstm": PUBLISHED_LSTM | sizes["lstm"], "char_cnn": PUBLISHED_CNN | sizes["char_cnn"]}
    content = read_options(options)
    for section, values in sizes.items():
        given = content.get(section)
        for name, value in values.items():
            said = given.get(name) if isinstance(given, Mapping) else None
            if said != value and not (name == "embedding" and isinstance(said, Mapping) and said | value == said):
                raise ValueError(
                    f"{options}: {section}.{name} is {said!r:.200} in the options, but the tensors of {path} make it "
                    f"{value!r:.200}. Do they belong together?"
                )
    if content["lstm"].get("use_skip_connections") is not True:
        raise ValueError(f"{options}: lstm.use_skip_connections must be true: AllenNLP has no other models.")
    return content


# --- Verification ----------------------------------------------------------------------------------------------------


def _verify(folder: Path, elmo: Elmo, config: ElmoConfig) -> MixParity:
    layers = verify_folder(folder, elmo.forward, elmo.ids)
    apart = _mixes_apart(folder, elmo, normalised=config.mix_layer_norm is not None)
    parity = MixParity(
        **asdict(layers),
        mixes=len(elmo.mixes),
        mixes_float32=apart[torch.float32],
        mixes_float64=apart[torch.float64],
    )
    if not (parity.mixes_float64 <= LIMIT and np.isfinite(parity.mixes_float32)):
        raise ValueError(f"The converted model does not compute what its source does, so it was not kept: {parity}.")
    return parity


@torch.no_grad()
def _mixes_apart(folder: Path, elmo: Elmo, normalised: bool) -> dict[torch.dtype, float]:
    """The largest difference of the model's mixes from gamma * sum_j softmax(w)_j h_j, for each precision."""
    layers = np.concatenate([elmo.forward(elmo.ids(words))[0] for words in SENTENCES], axis=1)  # (L+1, N, D)
    if normalised:  # each layer as a whole, over all words of the batch
        layers = (layers - layers.mean(axis=(1, 2), keepdims=True)) / layers.std(axis=(1, 2), keepdims=True)
    expected = []
    for gamma, *scalars in (mix.astype(np.float64) for mix in elmo.mixes):
        exponentials = np.exp(np.array(scalars) - max(scalars))
        expected.append(gamma * np.tensordot(exponentials / exponentials.sum(), layers, axes=1))  # (N, D)

    batch: Any = ElmoTokenizer.from_pretrained(folder)(
        SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    apart = {}
    for dtype in (torch.float32, torch.float64):
        outputs: Any = load_exactly(folder, dtype)(**batch)
        representations = outputs.elmo_representations or (outputs.last_hidden_state,)
        found = [vectors[batch["attention_mask"].bool()].numpy() for vectors in representations]
        apart[dtype] = max(float(np.abs(one - other).max()) for one, other in zip(found, expected, strict=True))
    return apart
