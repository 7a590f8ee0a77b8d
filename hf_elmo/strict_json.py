# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON files that are not trusted: one object, no key twice, no NaN, not too large, not too deep."""

import json
import os
from pathlib import Path
from typing import Any, NoReturn

LARGEST_FILE = 2**20  # bytes; files of published models have a few thousand
MOST_DIGITS = 1000  # of a number; Python takes no more than 4,300, and says so in words for programmers


def read_object(path: str | os.PathLike[str], what: str, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """Reads a JSON file strictly.

    Args:
        path: The file.
        what: What it should be, for the errors: `"options.json"`, say.
        largest: Bytes that it may have.

    Raises:
        ValueError: If the file is not one JSON object; names the file.
        FileNotFoundError: If there is no such file.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file. Give the path of the {what}.")
    with open(path, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"{path} has more than {largest:,} bytes and so is no {what} of an ELMo model.")
    try:
        values = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=_without_repetition,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
        )
    except RecursionError:
        raise ValueError(f"{path} is no {what} of an ELMo model: it is nested too deeply.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: it is not UTF-8. Get the file again.") from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {str(error).rstrip('.')}. Get the file again.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one JSON object, not {shown(values)}.")
    return values


def shown(value: Any) -> str:
    """The value as JSON, shortened: it can be anything that a file holds."""
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {shown(key)} appears twice in one object.")
        values[key] = value
    return values


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits.")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number.")
