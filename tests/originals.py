"""The original programs, for tests that compare with them, and random weights in their file layout.

Some PyPI wheels are downloaded once with pip into a cache folder and checked at each use, as
`scripts/original_wheels.py` says:

- `allennlp==0.9.0` for its test fixtures: a small biLM and the vectors TensorFlow computed with it; and for
  `commands/elmo.py` with `ElmoEmbedder`, which later versions do not have. It runs on the modules of 2.10.1.
- `allennlp==2.10.1` for its code. It needs packages that do not install beside a current torch, so its files are
  imported from the wheel under the name `original_allennlp`, with only their import lines changed:
  `allennlp` becomes `original_allennlp`, and packages that ELMo does not use (`_ABSENT`) become an empty class.
  Nothing called `allennlp` enters `sys.modules`.
- `elmoformanylangs==0.0.4.post2` for its code, imported from the wheel as `original_manylangs`. All files are real but
  `__init__.py`, which sets up logging; the decorator `overrides`, which only checks, is left out.
- `flair==0.15.1` for one class, `ELMoEmbeddings`, whose base class, sentences and tokens are stand-ins.

Real files of allennlp 2.10.1, run as they are:

    modules/elmo.py, elmo_lstm.py, encoder_base.py, lstm_cell_with_projection.py, highway.py, scalar_mix.py,
    modules/time_distributed.py, token_embedders/embedding.py, token_embedder.py, elmo_token_embedder.py
    nn/util.py, nn/initializers.py
    data/token_indexers/elmo_indexer.py, token_indexer.py, data/tokenizers/token_class.py
    data/batch.py, instance.py, vocabulary.py, data/fields/field.py, sequence_field.py, text_field.py
    common/checks.py, util.py, from_params.py, registrable.py, params.py, lazy.py

Stand-ins (`_STAND_INS`): every `__init__.py`, because the real ones import the whole library; `common/file_utils.py`,
where `cached_path` returns the path of a local file as the real one does; `common/tqdm.py`, because the real one
changes settings of the tqdm package for the whole process; `commands/subcommand.py`, which is about arguments.
"""

import ast
import importlib
import importlib.abc
import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Optional

import h5py
import numpy as np
import torch

from hf_elmo.scripts.original_wheels import cached_wheel


def wheel_source(version: str, member: str) -> str:
    """The text of one file of the allennlp wheel, such as `modules/elmo.py`."""
    with zipfile.ZipFile(cached_wheel(version)) as archive:
        return archive.read(f"allennlp/{member}").decode("utf-8")


# Code of 2.10.1

_PACKAGE = "original_allennlp"
_CODE_VERSION = "2.10.1"
_OLDER = {"commands.elmo": "0.9.0"}  # not in 2.10.1 any more
_ABSENT = {"base58", "dill", "spacy", "transformers"}
_STAND_INS = {
    "": "class Absent:\n    'Stands for a name of a package that is not installed and not needed.'\n",
    "commands": "",
    "commands.subcommand": "from allennlp import Absent as Subcommand\n",
    "common": "from allennlp.common.from_params import FromParams\n"
    "from allennlp.common.registrable import Registrable\n"
    "from allennlp.common.tqdm import Tqdm\n",
    "common.file_utils": "from allennlp import Absent as FileLock\n"
    "from allennlp import Absent as get_file_extension, Absent as is_url_or_existing_file\n"
    "def cached_path(path, **options):\n    return str(path)\n",
    "common.tqdm": "class Tqdm:\n    tqdm = iter\n",
    "data": "",
    "data.fields": "from allennlp.data.fields.text_field import TextField\n",
    "data.token_indexers": "",
    "data.tokenizers": "from allennlp.data.tokenizers.token_class import Token\n",
    "modules": "",
    "modules.token_embedders": "from allennlp.modules.token_embedders.embedding import Embedding\n",
    "nn": "",
}
_PACKAGES = set(_STAND_INS) - {"commands.subcommand", "common.file_utils", "common.tqdm"}


class _RenameImports(ast.NodeTransformer):
    """Makes `from allennlp...` import from the private package, and binds names of absent packages to `Absent`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        top, _, rest = (node.module or "").partition(".")
        if top == "allennlp":
            node.module = f"{_PACKAGE}.{rest}" if rest else _PACKAGE
            return node
        return _import_absent(node, [alias.asname or alias.name for alias in node.names]) if top in _ABSENT else node

    def visit_Import(self, node: ast.Import) -> ast.Import | ast.ImportFrom:
        tops = {alias.name.partition(".")[0] for alias in node.names}
        return _import_absent(node, [alias.asname or alias.name for alias in node.names]) if tops & _ABSENT else node


def _import_absent(node: ast.stmt, names: Iterable[str]) -> ast.ImportFrom:
    aliases = [ast.alias(name="Absent", asname=name) for name in names]
    return ast.copy_location(ast.ImportFrom(module=_PACKAGE, names=aliases, level=0), node)


class _WheelImporter(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports `original_allennlp` and the modules below it, each from `_STAND_INS` or else from the wheel."""

    package = _PACKAGE

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        return fullname[len(_PACKAGE) + 1 :] in _PACKAGES

    def get_source(self, fullname: str) -> str:
        name = fullname[len(_PACKAGE) + 1 :]
        if name in _STAND_INS:
            return _STAND_INS[name]
        try:
            source = wheel_source(_OLDER.get(name, _CODE_VERSION), name.replace(".", "/") + ".py")
            return source.replace("lazy_groups_of, prepare_global_logging", "lazy_groups_of")  # gone from 2.10.1
        except KeyError as error:
            raise ModuleNotFoundError(f"allennlp {_CODE_VERSION} has no file for {name}", name=fullname) from error

    def get_code(self, fullname: str) -> CodeType:
        tree = _RenameImports().visit(ast.parse(self.get_source(fullname)))
        return compile(ast.fix_missing_locations(tree), f"<{fullname}>", "exec", dont_inherit=True)


class _ManyLangsImporter(_WheelImporter):
    """Imports `original_manylangs` and the modules below it from the wheel."""

    package = "original_manylangs"

    def is_package(self, fullname: str) -> bool:
        return fullname in (self.package, f"{self.package}.modules")

    def get_source(self, fullname: str) -> str:
        if self.is_package(fullname):
            return ""
        member = fullname.replace(self.package, "elmoformanylangs", 1).replace(".", "/") + ".py"
        with zipfile.ZipFile(cached_wheel("0.0.4.post2", "elmoformanylangs")) as archive:
            source = archive.read(member).decode("utf-8")
        return source.replace("from overrides import overrides\n", "def overrides(method): return method\n")


def _original_module(name: str, importer: type[_WheelImporter] = _WheelImporter) -> ModuleType:
    if not any(type(finder) is importer for finder in sys.meta_path):
        sys.meta_path.append(importer())
    return importlib.import_module(f"{importer.package}.{name}")


def original_elmo_module() -> ModuleType:
    """The module `allennlp.modules.elmo` of 2.10.1: `Elmo`, `_ElmoBiLm`, `ScalarMix`, `batch_to_ids` and the rest."""
    return _original_module("modules.elmo")


def original_elmo_embedder() -> type:
    """The class `ElmoEmbedder` of 0.9.0, on the biLM of 2.10.1."""
    return _original_module("commands.elmo").ElmoEmbedder


def original_token_embedder() -> type:
    """The class `ElmoTokenEmbedder` of 2.10.1."""
    return _original_module("modules.token_embedders.elmo_token_embedder").ElmoTokenEmbedder


def original_character_mapper() -> type:
    """The class `ELMoCharacterMapper` of 2.10.1 (the code of 0.9.0 is the same, see test_originals.py)."""
    return _original_module("data.token_indexers.elmo_indexer").ELMoCharacterMapper


def original_manylangs(name: str) -> ModuleType:
    """A module of ELMoForManyLangs, such as `elmo`, which has `Embedder`, or `modules.embedding_layer`."""
    return _original_module(name, _ManyLangsImporter)


# One class of flair


class _FlairToken:
    def __init__(self, text: str):
        self.text = text

    def set_embedding(self, name: str, vector: torch.Tensor) -> None:
        self.vector = vector

    def get_embedding(self) -> torch.Tensor:
        return self.vector


class _FlairSentence:
    def __init__(self, tokens: list[_FlairToken]):
        self.tokens = tokens

    def __getitem__(self, index: int) -> _FlairToken:
        return self.tokens[index]


class _FlairTokenEmbeddings:
    def get_instance_parameters(self, locals: dict[str, Any]) -> dict[str, Any]:
        return {}

    def embed(self, sentences: _FlairSentence | list[_FlairSentence]) -> list[_FlairSentence]:
        return self._add_embeddings_internal(sentences if isinstance(sentences, list) else [sentences])


def original_flair_vectors(options_file: Path, weight_file: Path, mode: str, sentence: list[str]) -> torch.Tensor:
    """What flair's `ELMoEmbeddings` gives for a sentence (words, dimensions), the first that it reads."""
    original_elmo_embedder()  # so that its module can be imported
    with zipfile.ZipFile(cached_wheel("0.15.1", "flair")) as archive:
        tree = ast.parse(archive.read("flair/embeddings/legacy.py"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ELMoEmbeddings")
    source = ast.unparse(found).replace("allennlp.commands", f"{_PACKAGE}.commands")
    names = {"TokenEmbeddings": _FlairTokenEmbeddings, "Sentence": _FlairSentence, "Token": _FlairToken}
    names |= {"Optional": Optional, "torch": torch, "device": torch.device("cpu")}
    exec(source.replace("from flair import device", ""), names)
    embeddings = names["ELMoEmbeddings"]("", str(options_file), str(weight_file), mode)
    tokens = _FlairSentence([_FlairToken(word) for word in sentence])
    embeddings.embed(tokens)
    return torch.stack([token.get_embedding() for token in tokens.tokens])


# Random weights

# F filters in all, E character dimension, P projection, C cell


def elmo_options(
    *,
    projection: int = 8,
    cell: int = 12,
    layers: int = 2,
    filters: Sequence[Sequence[int]] = ((1, 4), (2, 8), (3, 8)),
    character_dim: int = 4,
    highway: int = 2,
    activation: str = "relu",
    cell_clip: float | None = 3,
    projection_clip: float | None = 3,
    skip: bool = True,
    characters: bool = True,
) -> dict[str, Any]:
    """The content of an options.json; by default a tiny model with the settings of the published ones."""
    options: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": skip,
            "projection_dim": projection,
            "dim": cell,
            "n_layers": layers,
            "cell_clip": cell_clip,
            "proj_clip": projection_clip,
        },
        "char_cnn": {
            "activation": activation,
            "filters": [list(one) for one in filters],
            "n_highway": highway,
            "embedding": {"dim": character_dim},
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }
    if not characters:  # a model of words
        del options["char_cnn"]
    return options


def random_weights(
    options: dict[str, Any], seed: int = 0, scale: float = 1.0, bilm_tf: bool = False, words: int = 0
) -> dict[str, np.ndarray]:
    """Random float32 arrays under the dataset names of an AllenNLP weight file.

    The spread is chosen so that, from a projection of about 8 upward, clips of 3 hold a tenth or more of the memory
    cells and hidden values after a few steps; that no bias is zero, so that wrong padding shows; and that rounding
    errors do not grow with time, so that 1e-5 separates right from wrong also for long sentences.

    Args:
        options: Content of options.json; gives all shapes.
        seed: Seed of the generator.
        scale: Factor on all LSTM arrays; 0.1 keeps a model clear of the clips.
        bilm_tf: Leave out the arrays that bilm-tf does not write: `CNN_proj` if F equals P, `W_P_0` if C equals P.
        words: Rows of the table of a model of words.
    """
    generator = np.random.default_rng(seed)

    def normal(deviation: float, *shape: int) -> np.ndarray:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(deviation)

    lstm = options["lstm"]
    projection, cell = lstm["projection_dim"], lstm["dim"]
    weights: dict[str, np.ndarray] = {}
    if "char_cnn" not in options:
        weights["embedding"] = normal(1, words, projection)
    else:
        cnn = options["char_cnn"]
        character_dim, filters = cnn["embedding"]["dim"], cnn["filters"]
        features = sum(count for _, count in filters)
        weights["char_embed"] = normal(1, 261, character_dim)
        for i, (width, count) in enumerate(filters):
            weights[f"CNN/W_cnn_{i}"] = normal((width * character_dim) ** -0.5, 1, width, character_dim, count)
            weights[f"CNN/b_cnn_{i}"] = normal(0.5, count)
        for k in range(cnn.get("n_highway") or 0):
            for part in ("carry", "transform"):
                weights[f"CNN_high_{k}/W_{part}"] = normal(features**-0.5, features, features)
                weights[f"CNN_high_{k}/b_{part}"] = normal(0.5, features)
        if not (bilm_tf and features == projection):
            weights["CNN_proj/W_proj"] = normal(features**-0.5, features, projection)
            weights["CNN_proj/b_proj"] = normal(0.5, projection)
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            prefix = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            from_input = normal(0.5 * scale * projection**-0.5, projection, 4 * cell)
            from_hidden = normal(0.15 * scale * projection**-0.5, projection, 4 * cell)
            weights[f"{prefix}/W_0"] = np.concatenate([from_input, from_hidden])
            weights[f"{prefix}/B"] = normal(1.5 * scale, 4 * cell)
            if not (bilm_tf and cell == projection):
                weights[f"{prefix}/W_P_0"] = normal(5.0 * scale * cell**-0.5, cell, projection)
    return weights


def write_weights(folder: Path, options: dict[str, Any], weights: dict[str, np.ndarray]) -> tuple[Path, Path]:
    """Writes `options.json` and `weights.hdf5` into `folder` and returns the two paths."""
    folder.mkdir(parents=True, exist_ok=True)
    options_file, weight_file = folder / "options.json", folder / "weights.hdf5"
    options_file.write_text(json.dumps(options, indent=2), encoding="utf-8")
    with h5py.File(weight_file, "w") as file:
        for name, array in weights.items():
            file.create_dataset(name, data=array)
    return options_file, weight_file


def write_random_weights(
    folder: Path, options: dict[str, Any], seed: int = 0, scale: float = 1.0, bilm_tf: bool = False
) -> tuple[Path, Path]:
    """Writes a random model of the size `options` says into `folder`; returns the options file and the weight file."""
    return write_weights(folder, options, random_weights(options, seed, scale, bilm_tf))


def read_weights(weight_file: Path) -> dict[str, np.ndarray]:
    """All datasets of a weight file by full name; for files that tests trust."""
    weights: dict[str, np.ndarray] = {}

    def collect(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = item[...]

    with h5py.File(weight_file, "r") as file:
        file.visititems(collect)
    return weights
