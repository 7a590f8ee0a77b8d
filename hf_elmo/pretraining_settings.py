# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What a pretraining run can be told, from a file or the command line, with checks that come before any work.

A field is an option of the same name. What is not given has the value of the original's training program where it had
one; the exception is `state_reset`, without which a short training gave a model that was lost without a carried state.
The settings of a run are kept beside its checkpoints; a run that is resumed has to agree with them.
"""

import argparse
import dataclasses
import json
import re
import shlex
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from .configuration_elmo import ElmoConfig
from .model_card import check_language, check_license
from .text_files import ErrorPolicy

# Schedules of transformers that need no more than the two numbers there are options for.
Schedule: TypeAlias = Literal[
    "constant", "constant_with_warmup", "linear", "cosine", "polynomial", "inverse_sqrt", "cosine_with_restarts"
]
SCHEDULES_TO_THE_END = ("linear", "cosine", "polynomial", "cosine_with_restarts")

PRESETS: dict[str, Callable[..., ElmoConfig]] = {
    "original": ElmoConfig.original,
    "medium": ElmoConfig.medium,
    "small": ElmoConfig.small,
}

# What a run may change when it is resumed, because it does not change what the steps compute.
CHANGEABLE = frozenset(
    "output epochs max_steps eval_steps early_stopping save_steps keep_checkpoints log_steps num_workers check_corpus "
    "unigram_baseline report_to name license language eval_batch_size quiet".split()
)

PATHS = ("text", "dataset", "heldout", "vocab", "model", "init_from", "output")  # options that are or may be paths


def _option(help: str, group: str, default: Any = None, metavar: str | None = None) -> Any:
    metadata = {"help": help, "group": group, "metavar": metavar}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class PretrainingSettings:
    """Everything about a run. See `hf-elmo pretrain --help`."""

    # Text
    text: list[str] = _option("files, folders or patterns; a sentence a line", "text", [], "TEXT")
    dataset: str | None = _option("a data set of `datasets` instead, by name or folder", "text", None, "NAME")
    dataset_config: str | None = _option("its configuration", "text", None, "NAME")
    dataset_split: str = _option("its part", "text", "train", "SPLIT")
    column: str = _option("its column with text or lists of words", "text", "text", "NAME")
    streaming: bool = _option("read it while it is downloaded", "text", False)
    heldout: list[str] = _option("text for the held-out perplexity", "text", [], "TEXT")
    vocab: str | None = _option("word vocabulary, as `hf-elmo vocab` makes it", "text", None, "FILE")
    errors: ErrorPolicy = _option(
        "lines that are not UTF-8, and rows of a data set that are no text", "text", "replace"
    )
    shuffle: bool = _option("another order in each epoch", "text", True)
    keep_documents: bool = _option("keep documents, which blank lines part, together and in order", "text", False)
    check_corpus: bool = _option("look through the text before step 1", "text", True)
    unigram_baseline: bool = _option("compare the held-out perplexity with word frequencies alone", "text", True)
    num_workers: int = _option("processes that prepare batches", "text", 0, "N")

    # Model
    model: str | None = _option(
        "small, medium, original, or a JSON file of config values (default: original)", "model", None, "MODEL"
    )
    config_overrides: str | None = _option(
        "config values, as in projection_size=64,cell_size=256", "model", None, "VALUES"
    )
    init_from: str | None = _option(
        "continue this model folder, with or without a softmax; what is not given below stays as it is there",
        "model",
        None,
        "FOLDER",
    )
    softmax_warmup_steps: int = _option("first steps, in which only the softmax learns", "model", 0, "N")
    softmax: Literal["full", "sampled", "adaptive"] | None = _option(
        "how words are predicted in training (default: sampled)", "model"
    )
    num_sampled: int | None = _option("wrong words that a sampled softmax draws (default: 8192)", "model", None, "N")
    softmax_cutoffs: list[int] | None = _option("where the groups of an adaptive softmax begin", "model", None, "ID")
    dropout: float | None = _option("of what each LSTM reads, in training (default: 0.1)", "model", None, "P")

    # Training
    mode: Literal["stream", "sentences"] = _option(
        "windows of a stream whose state is carried on, or sentences by themselves", "training", "stream"
    )
    batch_size: int = _option("rows of a batch, in each process", "training", 128, "N")
    unroll_steps: int = _option("words of a row (stream)", "training", 20, "N")
    state_reset: float = _option(
        "probability that a row's state is set to zero before a step (stream), which the model learns to read from; "
        "the original has 0",
        "training",
        0.05,
        "P",
    )
    max_sentence_words: int | None = _option("cut longer sentences (sentences)", "training", None, "N")
    gradient_accumulation_steps: int = _option("batches of a step", "training", 1, "N")
    epochs: int | None = _option(
        "how often to read the text (default: 10, if max_steps is not given)", "training", None, "N"
    )
    max_steps: int | None = _option("steps instead of epochs", "training", None, "N")
    optimizer: Literal["adagrad", "adam", "adamw", "sgd"] = _option("", "training", "adagrad")
    learning_rate: float | None = _option(
        "(default: 0.2 for adagrad, 0.001 for adam and adamw, 1 for sgd)", "training", None, "R"
    )
    weight_decay: float = _option("for matrices", "training", 0.0, "R")
    schedule: Schedule = _option("of the learning rate", "training", "constant")
    warmup_steps: int = _option("in which the learning rate rises from 0", "training", 0, "N")
    max_gradient_norm: float = _option(
        "clip the norm of all gradients together; 0 switches it off", "training", 10.0, "X"
    )
    loss_factor: float | None = _option(
        "multiply the loss, before clipping (default: unroll_steps for adagrad, 1 for others)", "training", None, "X"
    )
    mixed_precision: Literal["no", "bf16", "fp16"] = _option("", "training", "no")
    seed: int = _option("of weights, order and dropout", "training", 0, "N")

    # Measuring and saving
    output: str = _option("folder of the run", "output", "", "DIR")
    eval_steps: int = _option("steps between held-out measurements", "output", 1250, "N")
    eval_batch_size: int = _option("rows in them", "output", 32, "N")
    early_stopping: int | None = _option("stop after so many of them without gain", "output", None, "N")
    save_steps: int = _option("steps between checkpoints", "output", 1250, "N")
    keep_checkpoints: int = _option("how many to keep", "output", 2, "N")
    log_steps: int = _option("steps between lines of the log", "output", 100, "N")
    report_to: list[str] = _option("trackers of Accelerate, such as tensorboard", "output", [], "NAME")
    name: str | None = _option("of the model on its card (default: that of the folder)", "output", None, "NAME")
    license: str = _option("of the weights, spelled as on the Hub: apache-2.0", "output", "unknown", "ID")
    language: list[str] = _option("of the text, such as en", "output", [], "CODE")
    quiet: bool = _option("show no progress", "output", False)

    def __post_init__(self) -> None:
        _check_types(self)
        self._check_text()
        self._check_model()
        self._check_numbers()
        if not self.output:
            raise ValueError("output is missing: give the folder of the run.")
        check_license(self.license)
        for language in self.language:
            check_language(language)

    # What is not given depends on other options.

    @property
    def num_epochs(self) -> int | None:
        """How often the text is read, if that is what ends the run."""
        return (self.epochs or 10) if self.max_steps is None else None

    @property
    def rate(self) -> float:
        """The learning rate."""
        defaults = {"adagrad": 0.2, "adam": 1e-3, "adamw": 1e-3, "sgd": 1.0}
        return defaults[self.optimizer] if self.learning_rate is None else self.learning_rate

    @property
    def factor(self) -> float:
        """What the loss is multiplied by: the original multiplies it by the steps of a window."""
        default = self.unroll_steps if self.optimizer == "adagrad" else 1
        return default if self.loss_factor is None else self.loss_factor

    def model_config(self, vocab_size: int) -> ElmoConfig:
        """The config of a fresh model."""
        values = self.config_values()
        softmax = {"softmax": self.softmax, "num_sampled": self.num_sampled, "softmax_cutoffs": self.softmax_cutoffs}
        given = {name: value for name, value in {**softmax, "dropout": self.dropout}.items() if value is not None}
        for name in given.keys() & values.keys():
            raise ValueError(f"{name} is given twice: as an option and among the config values. Give it once.")
        return PRESETS.get(self.model or "original", ElmoConfig)(**values, **given, vocab_size=vocab_size)

    def config_values(self) -> dict[str, Any]:
        """Values of the model's config from its file and from config_overrides."""
        values = {}
        if self.model is not None and self.model not in PRESETS:
            values = _read_object(Path(self.model))
        known = {field_.name for field_ in dataclasses.fields(ElmoConfig)}
        for item in re.split(r",(?=\s*\w+\s*=)", self.config_overrides or ""):  # lists have commas, too
            if item:
                name, equals, value = item.partition("=")
                if not equals:
                    raise ValueError(f"config_overrides has {item!r}: it must be name=value, parted by commas.")
                values[name.strip()] = _parse_value(value)
        for name in values:
            if name not in known or name in ("vocab_size", "pad_token_id"):
                raise ValueError(
                    f"{name!r} is not a config value that can be set: it is unknown, or the vocabulary's."
                )
        return values

    # --- Checks ------------------------------------------------------------------------------------------------------

    def _check_text(self) -> None:
        if bool(self.text) == bool(self.dataset):
            raise ValueError("Give either text (files) or dataset (a data set of `datasets`), and not both.")
        for name in ("dataset_config", "streaming"):
            if getattr(self, name) and not self.dataset:
                raise ValueError(f"{name} is for a dataset, but none is given.")
        if not self.vocab and not self.init_from:
            raise ValueError("vocab is missing: make a vocabulary with `hf-elmo vocab`, and give it.")
        if self.early_stopping is not None and not self.heldout:
            raise ValueError("early_stopping needs heldout text to measure on.")
        if self.dataset and self.mode == "stream" and self.streaming and self.num_epochs and self._needs_total():
            raise ValueError(f"schedule {self.schedule} needs max_steps, as a streamed data set has no known length.")

    def _check_model(self) -> None:
        if self.init_from is not None:
            for name in ("model", "config_overrides"):
                if getattr(self, name) is not None:
                    raise ValueError(f"init_from takes the architecture from the folder: {name} must not be given.")
        elif self.softmax_warmup_steps:
            raise ValueError("softmax_warmup_steps is for init_from: a fresh model has nothing to protect.")
        if self.num_sampled is not None and self.softmax in ("full", "adaptive"):
            raise ValueError(f"num_sampled is for the sampled softmax, but softmax is {self.softmax}.")
        if self.softmax_cutoffs is not None and self.softmax != "adaptive":
            raise ValueError(f"softmax_cutoffs is for the adaptive softmax, but softmax is {self.softmax}.")
        if self.mode == "stream" and self.max_sentence_words is not None:
            raise ValueError("max_sentence_words is for mode sentences; a stream needs no limit.")
        self.config_values()

    def _check_numbers(self) -> None:
        if self.epochs is not None and self.max_steps is not None:
            raise ValueError("Give either epochs or max_steps, and not both.")
        if self.schedule == "constant" and self.warmup_steps:
            raise ValueError("warmup_steps needs a schedule with warm-up, such as constant_with_warmup or linear.")
        smallest = dict.fromkeys(
            "batch_size unroll_steps max_sentence_words gradient_accumulation_steps epochs max_steps eval_steps "
            "eval_batch_size early_stopping save_steps keep_checkpoints log_steps num_sampled".split(),
            1,
        )
        smallest |= dict.fromkeys("num_workers softmax_warmup_steps weight_decay warmup_steps seed".split(), 0)
        smallest |= dict.fromkeys("learning_rate max_gradient_norm loss_factor dropout state_reset".split(), 0)
        if self.state_reset > 1:
            raise ValueError(f"state_reset is {self.state_reset}, but it is a probability: 1 at most.")
        for name, least in smallest.items():
            value = getattr(self, name)
            if value is not None and not least <= value < float("inf"):
                raise ValueError(f"{name} is {value}, but it must be {least} or more.")

    def _needs_total(self) -> bool:
        return self.schedule in SCHEDULES_TO_THE_END

    # --- Files -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The value of every option."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = []
        for field_ in dataclasses.fields(self):
            value = getattr(self, field_.name)
            if value is not None and value != []:
                lines.append(f"{field_.name:<28}{' '.join(map(str, value)) if isinstance(value, list) else value}")
        return "\n".join(lines)

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> "PretrainingSettings":
        """The settings with these values; unknown names are an error that names the source."""
        known = {field_.name for field_ in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise ValueError(f"{source}: there is no option {name!r}. The options are {', '.join(sorted(known))}.")
        return cls(**values)

    def check_resumable(self, saved: "PretrainingSettings") -> None:
        """Refuses to go on with other settings than those the run was begun with."""
        for field_ in dataclasses.fields(self):
            name = field_.name
            if name not in CHANGEABLE and getattr(self, name) != getattr(saved, name):
                raise ValueError(
                    f"The run was begun with {name}={getattr(saved, name)!r}, but {name}={getattr(self, name)!r} is "
                    f"given. Resume it with its own settings, or begin a new run in another folder. What may change: "
                    f"{', '.join(sorted(CHANGEABLE))}."
                )


# --- What others may see ---------------------------------------------------------------------------------------------


def public_settings(settings: PretrainingSettings) -> dict[str, Any]:
    """What was set, without the folders of this machine."""
    found = {}
    for name, value in settings.to_dict().items():
        if name in PATHS and value and (name != "dataset" or Path(value).exists()):  # or it is the name of one
            value = [Path(item).name for item in value] if isinstance(value, list) else Path(value).name
        if value not in (None, []) and name != "quiet":
            found[name] = value
    return found


def command_of(settings: PretrainingSettings) -> str:
    """The command line that gives these settings, without the folders of this machine."""
    words = ["hf-elmo", "pretrain"]
    defaults = {field_.name: field_.default for field_ in dataclasses.fields(PretrainingSettings)}
    for name, value in public_settings(settings).items():
        if value == defaults[name]:
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


# --- Types -----------------------------------------------------------------------------------------------------------


def _check_types(settings: PretrainingSettings) -> None:
    hints = get_type_hints(PretrainingSettings)
    for field_ in dataclasses.fields(settings):
        value = getattr(settings, field_.name)
        if float in _members(hints[field_.name]) and type(value) is int:
            setattr(settings, field_.name, float(value))
            continue
        if not _fits(value, hints[field_.name]):
            raise ValueError(f"{field_.name} is {value!r}, but it must be {_describe(hints[field_.name])}.")


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    for member in _members(hint):
        if get_origin(member) is Literal:
            if value in get_args(member):
                return True
        elif get_origin(member) is list:
            if isinstance(value, list) and all(_fits(item, get_args(member)[0]) for item in value):
                return True
        elif type(value) is member:
            return True
    return False


def _describe(hint: Any) -> str:
    names = []
    for member in _members(hint):
        if get_origin(member) is Literal:
            names += [repr(choice) for choice in get_args(member)]
        elif get_origin(member) is list:
            names.append(f"a list of {get_args(member)[0].__name__}")
        else:
            names.append("null" if member is type(None) else member.__name__)
    return " or ".join(names)


# --- From the command line and from files ----------------------------------------------------------------------------


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds an option for each setting, and `--config` for a file of them."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON or YAML file of these options")
    groups: dict[str, Any] = {}
    hints = get_type_hints(PretrainingSettings)
    for field_ in dataclasses.fields(PretrainingSettings):
        group = field_.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        default = field_.default_factory() if callable(field_.default_factory) else field_.default
        text = field_.metadata["help"]
        if default is not None and default != [] and default != "" and default is not False:
            text = f"{text} (default: {'yes' if default is True else default})".strip()
        members = [member for member in _members(hints[field_.name]) if member is not type(None)]
        groups[group].add_argument(
            f"--{field_.name}",
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **_argument(members[0], field_.metadata["metavar"]),
        )


def _argument(kind: Any, metavar: str | None) -> dict[str, Any]:
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) is list:
        return {"nargs": "+", "type": get_args(kind)[0], "metavar": metavar}
    return {"type": kind, "metavar": metavar}


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a parsed command line, those of its `--config` file included; the command line goes first."""
    known = {field_.name for field_ in dataclasses.fields(PretrainingSettings)}
    values = {} if arguments.config is None else _read_object(arguments.config)
    for name in values:
        if name not in known:
            raise ValueError(f"{arguments.config}: there is no option {name!r}. See `hf-elmo pretrain --help`.")
    return {**values, **{name: value for name, value in vars(arguments).items() if name in known}}


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON or YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    try:
        if path.suffix.lower() in (".yaml", ".yml"):
            import yaml

            values = yaml.safe_load(text)
        else:
            values = json.loads(text, object_pairs_hook=_without_repetitions)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except Exception as error:
        if type(error).__module__.split(".")[0] != "yaml":
            raise
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ValueError(f"{path} must hold an object with names and values.")
    return values


def _without_repetitions(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is there twice.")
    return dict(pairs)


def _parse_value(text: str) -> Any:
    """A value of config_overrides: what JSON takes it for, or else a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


__all__ = ["PretrainingSettings", "add_settings_arguments", "command_of", "given_settings", "public_settings"]
