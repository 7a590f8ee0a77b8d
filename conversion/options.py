# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The options.json of AllenNLP and bilm-tf, and the ElmoConfig that says the same."""

import os
from collections.abc import Mapping
from typing import Any, NoReturn

from hf_elmo.configuration_elmo import LARGEST_SIZE, ElmoConfig
from hf_elmo.strict_json import read_object, shown

LARGEST_COUNT = 100  # layers, highways or filters; the published models have 2, 2 and 7
LARGEST_NUMBER = 3e38  # what a float32 can hold; larger ones are infinite there

CHARACTERS = 262  # 256 bytes, 5 markers, and padding


def read_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads an options.json strictly: one object, no key twice, no NaN, not too large, not too deep.

    Raises:
        ValueError: If the file is not that; names the file.
        FileNotFoundError: If there is no such file.
    """
    return read_object(path, "options.json")


def config_from_options(options: Mapping[str, Any], **settings: Any) -> ElmoConfig:
    """The config of the model that the options describe: of words, if there is nothing about characters.

    Keys about training, which a file written by bilm-tf has, are not read. Whether there is a projection between equal
    sizes is not in the options but known from the weights: bilm-tf leaves it out, AllenNLP does not.

    Args:
        options: Content of an options.json.
        settings: Fields of the config that no options.json has, such as `vocab_size`.

    Raises:
        ValueError: If a value is missing, of the wrong type or impossible; names it by its path, as `lstm.cell_clip`.
    """
    top = Section(options)
    if options.get("bidirectional", True) is not True:
        top.refuse("bidirectional", "true, because models of one direction only cannot be converted")
    lstm = top.section("lstm")
    size = lstm.integer("projection_dim", 1)
    words = _settings_of_characters(top.section("char_cnn")) if "char_cnn" in options else settings_of_words(size)
    fields: dict[str, Any] = words | {
        "projection_size": size,
        "cell_size": lstm.integer("dim", 1),
        "num_hidden_layers": lstm.integer("n_layers", 1, LARGEST_COUNT) if "n_layers" in lstm.values else 1,
        "cell_clip": lstm.clip("cell_clip"),
        "projection_clip": lstm.clip("proj_clip"),
        "use_skip_connections": lstm.boolean("use_skip_connections", default=False),
    }
    return ElmoConfig(**fields | settings)


def _settings_of_characters(cnn: "Section") -> dict[str, Any]:
    if cnn.values.get("n_characters", CHARACTERS) not in (CHARACTERS, CHARACTERS - 1):
        cnn.refuse("n_characters", f"{CHARACTERS}, or {CHARACTERS - 1} as in training")
    if cnn.values.get("activation") not in ("relu", "tanh"):
        cnn.refuse("activation", '"relu" or "tanh"')
    max_characters = cnn.integer("max_characters_per_token", 3, 10_000)
    has_highways = cnn.values.get("n_highway") is not None
    return {
        "char_vocab_size": CHARACTERS,
        "char_embedding_size": cnn.section("embedding").integer("dim", 1),
        "max_characters_per_token": max_characters,
        "char_cnn_filters": read_filters(cnn, max_characters),
        "char_cnn_activation": cnn.values["activation"],
        "num_highway_layers": cnn.integer("n_highway", 0, LARGEST_COUNT) if has_highways else 0,
    }


def settings_of_words(projection_size: int) -> dict[str, Any]:
    """What a config says of a model that looks words up in a table, as bilm-tf does: as wide as the LSTMs' input."""
    return {"word_input": "words", "word_embedding_size": projection_size, "project_words": False}


def options_from_config(config: ElmoConfig) -> dict[str, Any]:
    """The options.json of a model, in the form of the published ones.

    Raises:
        ValueError: If the model does something that no options.json can say.
    """
    _refuse_what_cannot_be_said(config)
    options: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": config.use_skip_connections,
            "projection_dim": config.projection_size,
            "dim": config.cell_size,
            "n_layers": config.num_hidden_layers,
            "cell_clip": _plain(config.cell_clip),
            "proj_clip": _plain(config.projection_clip),
        }
    }
    if config.word_input == "words":
        return options
    return options | {
        "char_cnn": {
            "activation": config.char_cnn_activation,
            "filters": [list(filter_) for filter_ in config.char_cnn_filters],
            "n_highway": config.num_highway_layers,
            "embedding": {"dim": config.char_embedding_size},
            "n_characters": CHARACTERS,
            "max_characters_per_token": config.max_characters_per_token,
        },
    }


def _refuse_what_cannot_be_said(config: ElmoConfig) -> None:
    if config.forget_bias != 1:
        raise ValueError(
            f"forget_bias={config.forget_bias} cannot be exported: AllenNLP and bilm-tf always add 1. Add the "
            "difference to the forget gate's bias and set forget_bias to 1 first."
        )
    if config.word_input == "both":
        raise ValueError(
            "word_input='both' cannot be exported: models of AllenNLP and bilm-tf read either the characters of a "
            "word or its row in a table."
        )
    if config.word_input == "words":
        if config.project_words:
            raise ValueError(
                "project_words=True cannot be exported: a table of words is as wide as the LSTMs' input in bilm-tf, "
                "which has no projection for it."
            )
        if config.pad_token_id != config.vocab_size - 1:
            raise ValueError(
                f"pad_token_id={config.pad_token_id} cannot be exported: a table of bilm-tf has no row for padding, "
                f"so padding must be the last word id, {config.vocab_size - 1}."
            )
        return
    if config.char_vocab_size != CHARACTERS:
        raise ValueError(
            f"char_vocab_size={config.char_vocab_size} cannot be exported: AllenNLP and bilm-tf read bytes, which are "
            f"{CHARACTERS} character ids."
        )
    markers = ElmoConfig().character_markers
    if config.character_markers != markers:
        raise ValueError(
            f"character_markers={config.character_markers} cannot be exported: AllenNLP and bilm-tf always have "
            f"{markers}."
        )


class Section:
    """One object of the options, whose values are checked as they are taken out."""

    def __init__(self, values: Mapping[str, Any], path: str = ""):
        self.values = values
        self.path = path

    def refuse(self, key: str, allowed: str) -> NoReturn:
        found = f"is {shown(self.values[key])}" if key in self.values else "is missing"
        raise ValueError(f"{self.path}{key} {found} in the options; it must be {allowed}.")

    def section(self, key: str) -> "Section":
        values = self.values.get(key)
        if not isinstance(values, Mapping):
            self.refuse(key, "an object")
        return Section(values, f"{self.path}{key}.")

    def integer(self, key: str, smallest: int, largest: int = LARGEST_SIZE) -> int:
        value: Any = self.values.get(key)
        if not _is_integer(value, smallest, largest):
            self.refuse(key, f"a whole number from {smallest} to {largest}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def clip(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not _is_number(value) or value < 0:
            self.refuse(key, "a positive number, or 0 or null for no clip")
        return float(value) or None


def read_filters(cnn: Section, max_characters: int) -> list[list[int]]:
    filters = cnn.values.get("filters")
    if not isinstance(filters, list) or not 1 <= len(filters) <= LARGEST_COUNT:
        cnn.refuse("filters", f"a list of 1 to {LARGEST_COUNT} pairs [width, count]")
    for i, filter_ in enumerate(filters):
        if not (
            isinstance(filter_, list)
            and len(filter_) == 2
            and _is_integer(filter_[0], 1, max_characters)
            and _is_integer(filter_[1], 1, LARGEST_SIZE)
        ):
            raise ValueError(
                f"{cnn.path}filters[{i}] is {shown(filter_)} in the options; it must be [width, count], two whole "
                f"numbers with a width from 1 to max_characters_per_token ({max_characters}) and a count from 1 to "
                f"{LARGEST_SIZE}."
            )
    return [list(filter_) for filter_ in filters]


def _is_integer(value: Any, smallest: int, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= largest


def _is_number(value: Any) -> bool:
    """Whether this is a finite number, also as a float32."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST_NUMBER


def _plain(clip: float | None) -> float | int | None:
    """3 rather than 3.0, as in the published files."""
    return int(clip) if clip is not None and float(clip).is_integer() else clip
