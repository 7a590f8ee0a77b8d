# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads a model whose stored weights are exactly those that it needs: `load_checked`.

`from_pretrained` makes up weights that are missing, leaves out those it does not know, and takes NaN for a number.
Here the files are looked at first, tensor by tensor, and nothing is loaded that is not whole. No code of the folder is
run, and no pickle is read.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .configuration_elmo import LARGEST_FILE, ElmoConfig
from .hub import verify_checksums
from .messages import only_errors
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .modeling_elmo_heads import (
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
)
from .modeling_elmo_pretraining import ElmoForPreTraining
from .quantization import Quantization
from .quantization import quantize as quantize_model
from .strict_json import read_object

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATING = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # as safetensors calls them
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")
REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
NAMES_SHOWN = 5

MODEL_CLASSES: dict[str, type[ElmoPreTrainedModel]] = {
    model_class.__name__: model_class
    for model_class in (
        ElmoModel,
        ElmoForPreTraining,
        ElmoForTokenClassification,
        ElmoForSequenceClassification,
        ElmoForQuestionAnswering,
        ElmoForMultipleChoice,
    )
}

Model = TypeVar("Model", bound=ElmoPreTrainedModel)


def load_checked(
    name_or_path: str | os.PathLike[str],
    model_class: type[Model] | None = None,
    *,
    checksums: bool = False,
    quantize: Quantization | None = None,
    **options: Any,
) -> Any:
    """Loads a model as `from_pretrained` does, and refuses weights that are not exactly those it needs.

    The stored tensors are compared with the model that the config describes: none may be missing, none may be left
    over, and each has its shape, is floating, and holds finite numbers only. That is so for every class, also if the
    weights are stored in half precision or in several files. Then the model is loaded, and no weight of it is made up.

    Args:
        name_or_path: A folder, or a repository on the Hub.
        model_class: What to load it as; by default the class that was saved. The encoder of a model with a head can
            be had as `ElmoModel`; a head that the folder does not have is refused.
        checksums: Whether all files must be as SHA256SUMS says, which folders written by hf-elmo have.
        quantize: `"int8"` or `"float16"` to pack the weights once they are loaded, see `quantize`.
        options: For `from_pretrained`: `dtype`, `revision`, fields of the config and the like.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: If something is wrong with the folder; names the tensors.
        FileNotFoundError: If there is no config, or there are no weights.

    Example:
        >>> model = load_checked("elmo-small")  # doctest: +SKIP
        >>> model = load_checked("elmo-small", checksums=True, quantize="int8")  # doctest: +SKIP
    """
    folder = _folder_of(name_or_path, options, checksums)
    if checksums:
        verify_checksums(folder)
    config = load_config(folder)
    own_class = class_of(folder, config, model_class)
    problems = weight_problems(stored_tensors(folder), config, own_class)
    if problems:
        raise ValueError(
            f"The weights of {folder} are not those of its {own_class.__name__}: {problems}. Get the folder again, or "
            "the config that belongs to it."
        )
    if quantize is not None:
        options.setdefault("dtype", torch.float32)
    model = _load(folder, own_class if model_class is None else model_class, own_class, options)
    return model if quantize is None else quantize_model(model, quantize)


def load_config(folder: str | os.PathLike[str]) -> ElmoConfig:
    """The config of a folder that holds an ELMo model.

    Raises:
        ValueError: If it is of another model, or a value is impossible.
        FileNotFoundError: If the folder has no config.
    """
    path = Path(folder, "config.json")
    if not path.is_file():
        reason = "it has no config.json" if path.parent.is_dir() else "there is no such folder"
        raise FileNotFoundError(
            f"{folder} is no model folder: {reason}. Give one that hf-elmo convert or hf-elmo pretrain wrote, or that "
            "`hf download NAME --local-dir FOLDER` got from the Hub; for commands, elmo-mini is that of the package."
        )
    values = read_object(path, "config.json", LARGEST_FILE)
    model_type, classes = values.get("model_type"), values.get("architectures") or []
    if model_type != ElmoConfig.model_type:
        raise ValueError(f"{path} says model_type {model_type!r:.40}; this needs an ELMo model ('elmo').")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"{path} says architectures {classes!r:.40}; it must be a list with the name of a class.")
    try:
        return ElmoConfig.from_pretrained(folder)
    except StrictDataclassError as error:  # it wraps the sentence that matters
        raise ValueError(f"{path} is not the config of an ELMo model: {_problem_of_a_field(error)}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the config of an ELMo model: {error}") from error


def _problem_of_a_field(error: StrictDataclassError) -> str:
    """What is wrong with a field; where several types are possible, in fewer words than the library's."""
    sentence = str(error.__cause__ or error)
    found = re.match(r"Field '(\w+)' with value (.*) doesn't match any type in (.*?)\. Errors:", sentence, re.DOTALL)
    if found is None:
        return sentence
    types = re.sub(r"<class '(\w+)'>", r"\1", found[3].strip("()")).replace("typing.", "").replace("NoneType", "null")
    return f"{found[1]}={found[2]:.40} is not possible: allowed are {types}."


def class_of(
    folder: Path, config: ElmoConfig, model_class: type[ElmoPreTrainedModel] | None = None
) -> type[ElmoPreTrainedModel]:
    """The class that the model of a folder was saved from; `model_class` if that has its name."""
    saved = (config.architectures or [ElmoModel.__name__])[0]
    if model_class is not None and model_class.__name__ == saved:
        return model_class
    if saved not in MODEL_CLASSES:
        raise ValueError(
            f"The config of {folder} says that its model is a {saved!r}; hf_elmo has {', '.join(MODEL_CLASSES)}. Give "
            "the class as model_class if it is your own."
        )
    return MODEL_CLASSES[saved]


# --- What is stored --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, which is read when it is asked for."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str  # as safetensors calls it

    def is_finite(self) -> bool:
        with safe_open(self.path, framework="pt") as file:
            return bool(file.get_tensor(self.name).isfinite().all())


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of the files that `from_pretrained` reads, by name; only the headers of the files are read.

    Raises:
        FileNotFoundError: If there is none of these files.
        ValueError: If one cannot be read, or they do not fit their index; names the file.
    """
    if (folder / WEIGHTS).is_file():
        return _read_header(folder / WEIGHTS)
    found: dict[str, StoredTensor] = {}
    for path, names in _read_index(folder).items():
        tensors = _read_header(path)
        if set(tensors) != names:
            wrong = sorted(set(tensors) ^ names)
            raise ValueError(f"{path} does not hold what {INDEX} says: {listed(wrong)} differ. Get the folder again.")
        found |= tensors
    return found


def _read_index(folder: Path) -> dict[Path, set[str]]:
    """The files of weights that are stored in several ones, each with the names of its tensors."""
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(
            f"{folder} has neither {WEIGHTS} nor {INDEX}. Weights in other formats are not read: pickles can run code."
        )
    files: dict[Path, set[str]] = {}
    try:
        for name, file in json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].items():
            if Path(file).name != file:
                raise ValueError(f"{name!r} is said to be in {file!r}, which is not a file of the folder")
            files.setdefault(folder / file, set()).add(name)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / INDEX} is not an index of weights: {error}. Get the folder again.") from error
    return files


def _read_header(path: Path) -> dict[str, StoredTensor]:
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(path, name, tuple(part.get_shape()), str(part.get_dtype()))
                for name, part in slices.items()
            }
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing, but {INDEX} lists it. Get the folder again.") from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}). Get the file again.") from error


# --- What is needed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightProblems:
    """How stored weights differ from those that a model needs; each entry names a tensor."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    of_another_shape: tuple[str, ...] = ()
    not_floating: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        kinds = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return "; ".join(f"{len(names)} {kind} ({listed(names)})" for kind, names in kinds.items() if names)


def weight_problems(
    stored: Mapping[str, StoredTensor], config: ElmoConfig, model_class: type[ElmoPreTrainedModel]
) -> WeightProblems:
    """Compares stored tensors with those of a model; values are read only if names, shapes and types are right."""
    needed = needed_tensors(config, model_class)
    ignored = [re.compile(pattern) for pattern in model_class._keys_to_ignore_on_load_unexpected or ()]
    left_over = sorted(name for name in stored if name not in needed)
    both = [name for name in needed if name in stored]
    problems = WeightProblems(
        missing=tuple(sorted(name for name in needed if name not in stored)),
        unexpected=tuple(name for name in left_over if not any(pattern.search(name) for pattern in ignored)),
        of_another_shape=tuple(
            f"{name}: {stored[name].shape}, not {tuple(needed[name].shape)}"
            for name in both
            if stored[name].shape != tuple(needed[name].shape)
        ),
        not_floating=tuple(f"{name}: {stored[name].dtype}" for name in both if stored[name].dtype not in FLOATING),
    )
    if problems:
        return problems
    return WeightProblems(not_finite=tuple(name for name in both if not stored[name].is_finite()))


def needed_tensors(config: ElmoConfig, model_class: type[ElmoPreTrainedModel]) -> dict[str, Tensor]:
    """The tensors of a model, without memory for their values; all of them are floating."""
    with torch.device("meta"):
        return dict(model_class(config).state_dict())


def listed(names: Iterable[str]) -> str:
    """Some of the names, and how many there are beside them."""
    every = list(names)
    more = f" and {len(every) - NAMES_SHOWN} more" if len(every) > NAMES_SHOWN else ""
    return ", ".join(every[:NAMES_SHOWN]) + more


# --- Loading ---------------------------------------------------------------------------------------------------------


def _folder_of(name_or_path: str | os.PathLike[str], options: dict[str, Any], whole: bool) -> Path:
    """The folder, or where the files of a repository on the Hub are; takes the options about that."""
    hub = {name: options.pop(name) for name in HUB_OPTIONS if name in options}
    subfolder = options.pop("subfolder", "")
    folder = Path(name_or_path)
    if not folder.is_dir():
        if not REPOSITORY.fullmatch(str(name_or_path)):
            raise FileNotFoundError(f"There is no folder {name_or_path}.")
        wanted = None if whole else ["*.json", "*.safetensors"]
        folder = Path(snapshot_download(str(name_or_path), allow_patterns=wanted, **hub))
    return folder / subfolder


def _load(
    folder: Path, model_class: type[ElmoPreTrainedModel], own_class: type[ElmoPreTrainedModel], options: dict[str, Any]
) -> Any:
    with only_errors():  # what is wrong is told here, and a head may be left out on purpose
        model, report = model_class.from_pretrained(
            folder, use_safetensors=True, ignore_mismatched_sizes=True, output_loading_info=True, **options
        )
    made_up = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if made_up:
        raise ValueError(
            f"{folder} holds a {own_class.__name__}; loaded as {model_class.__name__} with these options, it has no "
            f"weights for {listed(made_up)}. Load what was saved, or take from_pretrained for a fresh head."
        )
    lost = [name for name, weight in model.state_dict().items() if not bool(weight.isfinite().all())]
    if lost:
        raise ValueError(f"{listed(lost)} of {folder} do not fit {model.dtype}: choose dtype=torch.float32.")
    return model.eval()


__all__ = ["WeightProblems", "load_checked"]
