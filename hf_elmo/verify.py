# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Looks a model folder over, offline and without running its code: `check_folder`.

Each check says what it found, and if something is wrong, what to do. The order is that of trust: what is in the
folder, whether it is unchanged, what it says of itself, and then whether it works.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor
from transformers import BatchEncoding

from .checked_loading import (
    FLOATING,
    INDEX,
    StoredTensor,
    class_of,
    listed,
    load_checked,
    load_config,
    stored_tensors,
    weight_problems,
)
from .configuration_elmo import AUTO_MAP, CODE_FILES, LARGEST_FILE, ElmoConfig
from .hub import CARD, CHECKSUMS, verify_checksums
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .modeling_elmo_heads import (
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
)
from .modeling_elmo_pretraining import ElmoForPreTraining
from .strict_json import read_object
from .tokenization_elmo import FIRST_WORD_VECTOR, ElmoTokenizer
from .version import __version__

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"

Status: TypeAlias = Literal["ok", "warning", "FAILED", "not done"]

# What loaders of other programs take for pickles, which run code when they are read.
PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth", ".th")

# Fields that transformers writes into a config and takes out again before the class sees them; Trainer, the last one.
OTHER_FIELDS = {
    "_name_or_path",
    "auto_map",
    "model_type",
    "num_labels",
    "torch_dtype",
    "output_attentions",
    "use_cache",
}

GET_AGAIN = "get the folder again"
REPORT = "report this as a bug of hf-elmo"
SAVE_AGAIN = "load it with `import hf_elmo`, and save model and tokenizer again"

# Two sentences for models that read pairs of them; short and long, other scripts, a word that is cut.
SENTENCES = [
    "The river bank was muddy after the storm .".split(),
    "« Ça va ? » — 안녕하세요 , мир 🙂".split(),
    ["x" * 300],
]


@dataclass(frozen=True)
class Check:
    """What was found out about one side of a folder.

    Args:
        name: What was looked at, in a word.
        status: `"ok"`, `"warning"`, `"FAILED"`, or `"not done"` if it could not be looked at.
        found: What was found.
        advice: What to do about it; empty if it is all right.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class FolderReport:
    """All checks of a folder, and whether none of them failed."""

    folder: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return self.count("FAILED") == 0

    def count(self, status: Status) -> int:
        return sum(check.status == status for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as something that JSON can hold."""
        return {
            "folder": str(self.folder),
            "hf_elmo": __version__,
            "passed": self.passed,
            "checks": [dataclasses.asdict(check) for check in self.checks],
        }

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"folder: {self.folder}"]
        for check in self.checks:
            lines.append(f"{check.name:{width}}  {check.status:8}  {check.found}")
            if check.advice:
                lines.append(f"{'':{width}}  {'':8}  -> {check.advice}")
        return "\n".join(lines)


class _Failure(Exception):
    """Ends a check: what was found, and what to do."""

    def __init__(self, found: str, advice: str = ""):
        super().__init__(found)
        self.advice = advice


class _Warning(_Failure):
    """As a failure, of something that does no harm by itself."""


class _NotPossible(Exception):
    """What a check needs is broken, as another check says."""


def check_folder(folder: str | os.PathLike[str]) -> FolderReport:
    """Checks a model folder: files, checksums, config, code, weights, tokenizer, and a small computation.

    Nothing is downloaded, no code of the folder is run and no pickle is read.

    Args:
        folder: Of any ELMo model.

    Raises:
        FileNotFoundError: If there is no such folder.

    Example:
        >>> print(check_folder("elmo-small"))  # doctest: +SKIP
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    looked_at = _Folder(Path(folder))
    return FolderReport(Path(folder), tuple(_checked(name, check, looked_at) for name, check in CHECKS.items()))


def _checked(name: str, check: Callable[["_Folder"], str], folder: "_Folder") -> Check:
    try:
        return Check(name, "ok", check(folder))
    except _Failure as failure:
        return Check(name, "warning" if isinstance(failure, _Warning) else "FAILED", str(failure), failure.advice)
    except _NotPossible as reason:
        return Check(name, "not done", str(reason))
    except (ValueError, OSError) as error:
        return Check(name, "FAILED", str(error))


class _Folder:
    """A folder and what was read of it; parts that cannot be read make the checks that need them impossible."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def config(self) -> ElmoConfig:
        try:
            return load_config(self.path)
        except (ValueError, OSError) as error:
            raise _NotPossible("the config cannot be used") from error

    @cached_property
    def model_class(self) -> type[ElmoPreTrainedModel]:
        try:
            return class_of(self.path, self.config)
        except ValueError as error:
            raise _NotPossible("the class of the model is not known") from error

    @cached_property
    def tensors(self) -> dict[str, StoredTensor]:
        return stored_tensors(self.path)

    @cached_property
    def tokenizer(self) -> ElmoTokenizer:
        if not (self.path / TOKENIZER).is_file():
            raise _Warning(
                f"there is no {TOKENIZER}, so nothing is known of its words",
                "save the tokenizer of the model with save_pretrained",
            )
        try:
            return ElmoTokenizer.from_pretrained(self.path)
        except Exception as error:  # the Rust tokenizer has no kind of its own
            raise _Failure(f"the tokenizer cannot be loaded: {error}", GET_AGAIN) from error


# --- The checks ------------------------------------------------------------------------------------------------------


def _check_files(folder: _Folder) -> str:
    inside = [path for path in folder.path.rglob("*") if path.is_file()]
    files = [path for path in inside if not path.relative_to(folder.path).as_posix().startswith(".")]
    pickles = sorted(path.name for path in files if path.suffix.lower() in PICKLES)
    if pickles:
        raise _Warning(
            f"{listed(pickles)} may be pickles, which can run code when another program loads them; hf-elmo does not "
            "read them",
            "remove them if you do not know where they come from",
        )
    if not (folder.path / CARD).is_file():
        raise _Warning(f"there is no model card, {CARD}", "write one before you share the folder")
    return f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:,.1f} MB"


def _check_checksums(folder: _Folder) -> str:
    if not (folder.path / CHECKSUMS).is_file():
        raise _Warning(
            f"no checksums: there is no {CHECKSUMS}, so a damaged or changed file cannot be told from a whole one",
            "folders written by hf-elmo have them; get it from there if you can",
        )
    verify_checksums(folder.path)
    return f"all files are as {CHECKSUMS} says"


def _check_config(folder: _Folder) -> str:
    values = read_object(folder.path / CONFIG, CONFIG, LARGEST_FILE)
    config = load_config(folder.path)
    model_class = class_of(folder.path, config)
    known = {field.name for field in dataclasses.fields(cast(Any, ElmoConfig))} | OTHER_FIELDS
    unknown = sorted(set(values) - known)
    if unknown:
        raise _Warning(
            f"{CONFIG} has {listed(unknown)}, which no ELMo model reads", "correct the spelling, or remove it"
        )
    return (
        f"{model_class.__name__}: {config.num_hidden_layers} layers of {config.projection_size} per direction, cells "
        f"of {config.cell_size}, reads {config.word_input}"
    )


def _check_code(folder: _Folder) -> str:
    """Compares bytes; whatever Auto classes would import with `trust_remote_code=True` must be the package's."""
    package, path = Path(__file__).parent, folder.path
    there = [name for name in CODE_FILES if (path / name).is_file()]
    foreign = sorted(file.name for file in path.glob("*.py") if file.name not in CODE_FILES)
    changed = [name for name in there if (path / name).read_bytes() != (package / name).read_bytes()]
    other_code = [entry for entry in _auto_map_entries(path) if entry not in _own_entries()]
    if foreign or other_code:
        raise _Failure(
            f"{listed([*foreign, *other_code])} is code that is not hf-elmo's, and runs with trust_remote_code=True",
            f"do not load the folder with trust_remote_code=True; {SAVE_AGAIN}",
        )
    if changed:
        raise _Failure(
            f"{listed(changed)} differ from hf-elmo {__version__}: changed, or of another version",
            f"do not load the folder with trust_remote_code=True unless you trust it; {SAVE_AGAIN}",
        )
    missing = [name for name in CODE_FILES if name not in there]
    if there and missing:
        raise _Failure(f"{listed(missing)} are missing beside the other code", SAVE_AGAIN)
    if not there and _auto_map_entries(path):
        raise _Failure("auto_map names code that is not in the folder", SAVE_AGAIN)
    if not there:
        return "none: the folder needs `import hf_elmo`"
    return f"{len(there)} files, equal to those of hf-elmo {__version__}"


def _auto_map_entries(folder: Path) -> list[str]:
    """What the JSON files of a folder tell the Auto classes to import."""
    entries: list[Any] = []
    for name in (CONFIG, TOKENIZER_CONFIG):
        if (folder / name).is_file():
            values = read_object(folder / name, name, LARGEST_FILE)
            entries += [values.get("auto_map"), values.get("custom_pipelines")]
    return _names_in(entries)


def _own_entries() -> list[str]:
    return _names_in(AUTO_MAP)


def _names_in(content: Any) -> list[str]:
    """All values of nested dicts and lists, as text; JSON may hold anything."""
    if content is None:
        return []
    if isinstance(content, dict | list):
        inside = content.values() if isinstance(content, dict) else content
        return [name for value in inside for name in _names_in(value)]
    return [str(content)]


def _check_weights(folder: _Folder) -> str:
    tensors = folder.tensors
    problems = weight_problems(tensors, folder.config, folder.model_class)
    if problems:
        raise _Failure(
            f"they are not those of the {folder.model_class.__name__} that {CONFIG} describes: {problems}", GET_AGAIN
        )
    read = {tensor.path.name for tensor in tensors.values()}
    unread = sorted(path.name for path in folder.path.glob("*.safetensors") if path.name not in read)
    if (folder.path / INDEX).is_file() and read == {"model.safetensors"}:
        unread.append(INDEX)
    if unread:
        raise _Warning(f"{listed(unread)} is not read, as model.safetensors has everything", "remove what is not read")
    types = sorted({FLOATING[tensor.dtype] for tensor in tensors.values()})
    return f"{len(tensors)} tensors, all that are needed and no other, finite, stored in {' and '.join(types)}"


def _check_tokenizer(folder: _Folder) -> str:
    tokenizer, config = folder.tokenizer, folder.config
    named = read_object(folder.path / TOKENIZER_CONFIG, TOKENIZER_CONFIG).get("tokenizer_class")
    if named != ElmoTokenizer.__name__:
        raise _Failure(
            f"{TOKENIZER_CONFIG} says tokenizer_class {named!r}, not {ElmoTokenizer.__name__!r}",
            "save the tokenizer of the model with save_pretrained",
        )
    needs_words = config.word_input != "characters" or folder.model_class is ElmoForPreTraining
    wrong = _disagreements(_facts_of_words(tokenizer, config) if needs_words else {})
    wrong += _disagreements(_facts_of_spelling(tokenizer, config) if config.word_input != "words" else {})
    wrong += _disagreements(_facts_of_word_vectors(tokenizer, config))
    if wrong:
        raise _Failure(
            f"it does not fit {CONFIG}: {'; '.join(wrong)}", "give the folder the tokenizer that the model came with"
        )
    unread = [] if needs_words else _disagreements(_facts_of_words(tokenizer, config))
    if unread:
        raise _Warning(
            f"{'; '.join(unread)}; the vectors do not depend on it",
            f"set these fields of {CONFIG} to what the tokenizer has, if a softmax is to be trained",
        )
    return f"{len(tokenizer):,} words, {config.max_characters_per_token} characters a word, as {CONFIG} says"


def _facts_of_words(tokenizer: ElmoTokenizer, config: ElmoConfig) -> dict[str, tuple[Any, Any]]:
    """What both have, by the name of the field: the tokenizer's and the config's value."""
    return {
        "vocab_size": (len(tokenizer), config.vocab_size),
        "pad_token_id": (tokenizer.pad_token_id, config.pad_token_id),
        "bos_token_id": (tokenizer.bos_token_id, config.bos_token_id),
        "eos_token_id": (tokenizer.eos_token_id, config.eos_token_id),
    }


def _facts_of_spelling(tokenizer: ElmoTokenizer, config: ElmoConfig) -> dict[str, tuple[Any, Any]]:
    characters = tokenizer.characters
    bytes_config = ElmoConfig()
    size = bytes_config.char_vocab_size if characters is None else len(characters.characters) + 1
    markers = bytes_config.character_markers if characters is None else characters.markers
    return {
        "max_characters_per_token": (tokenizer.max_characters_per_token, config.max_characters_per_token),
        "char_vocab_size": (size, config.char_vocab_size),
        "character_markers": (markers, config.character_markers),
    }


def _facts_of_word_vectors(tokenizer: ElmoTokenizer, config: ElmoConfig) -> dict[str, tuple[Any, Any]]:
    words = getattr(tokenizer, "word_vector_words", None)
    return {
        "word_vector_vocab_size": (
            0 if words is None else len(words) + FIRST_WORD_VECTOR,
            config.word_vector_vocab_size,
        )
    }


def _disagreements(facts: dict[str, tuple[Any, Any]]) -> list[str]:
    return [
        f"{name} is {found} in the tokenizer and {said} in the config"
        for name, (found, said) in facts.items()
        if found != said
    ]


@torch.no_grad()
def _check_reading(folder: _Folder) -> str:
    try:
        tokenizer = folder.tokenizer
        model = load_checked(folder.path)
    except (_Failure, ValueError, OSError) as error:
        raise _NotPossible("the model or its tokenizer cannot be loaded") from error
    batch = _example(tokenizer, model)
    first, second = (_results(model, batch) for _ in range(2))
    for name, (result, shape) in first.items():
        if tuple(result.shape) != shape:
            raise _Failure(f"{name} has the shape {tuple(result.shape)}, not {shape}", REPORT)
        if not bool(result.isfinite().all()):
            raise _Failure(f"{name} of some sentences holds NaN or infinite values", GET_AGAIN)
        if not torch.equal(result, second[name][0]):
            raise _Failure(f"{name} of the same sentences differs from call to call", REPORT)
    if "vectors" in first:
        words = first["vectors"][0][batch["attention_mask"].bool()]  # (N, D)
        if bool((words == words[0]).all()):
            raise _Warning("all words have the same vector", "the weights were never trained, or lost: get others")
    shapes = ", ".join(f"{name} {shape}" if shape else name for name, (_, shape) in first.items())
    return f"{shapes}: finite, and the same in a second call"


def _example(tokenizer: ElmoTokenizer, model: Any) -> BatchEncoding:
    """Sentences as the model reads them: alone, as pairs, or as choices."""
    is_pair = isinstance(model, ElmoForQuestionAnswering) or (
        not isinstance(model, (ElmoModel, ElmoForPreTraining)) and model.config.num_sentences == 2
    )
    pairs = SENTENCES[::-1] if is_pair else None
    batch = tokenizer(SENTENCES, pairs, is_split_into_words=True, padding=True, return_tensors="pt")
    if model.config.predicate_embedding_size:
        batch["predicate_ids"] = torch.zeros_like(batch["input_ids"])
    return batch


def _results(model: Any, batch: BatchEncoding) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
    """What the model computes of the sentences, by name, with the shape that it must have."""
    inputs: dict[str, Any] = dict(batch)
    rows, words = batch["input_ids"].shape
    config, encoder = model.config, model.base_model
    results: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    if isinstance(encoder, ElmoModel):  # a task may do without
        read = {name: inputs[name] for name in ("input_ids", "character_ids", "attention_mask")}
        results["vectors"] = encoder(**read).last_hidden_state, (rows, words, config.hidden_size)
    if isinstance(model, ElmoForPreTraining):
        results["loss"] = model(**inputs, labels=inputs["input_ids"]).loss, ()
    elif isinstance(model, ElmoForMultipleChoice):
        choices = {name: tensor.unsqueeze(0) for name, tensor in inputs.items()}
        results["logits"] = model(**choices).logits, (1, rows)
    elif isinstance(model, ElmoForQuestionAnswering):
        results["start logits"] = model(**inputs).start_logits, (rows, words)
    elif isinstance(model, ElmoForTokenClassification):
        results["logits"] = model(**inputs).logits, (rows, words, config.num_labels)
    elif isinstance(model, ElmoForSequenceClassification):
        results["logits"] = model(**inputs).logits, (rows, config.num_labels)
    return results


CHECKS: dict[str, Callable[[_Folder], str]] = {
    "files": _check_files,
    "checksums": _check_checksums,
    "config": _check_config,
    "code": _check_code,
    "weights": _check_weights,
    "tokenizer": _check_tokenizer,
    "reading": _check_reading,
}

__all__ = ["Check", "FolderReport", "check_folder"]
