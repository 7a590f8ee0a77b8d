# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The card of a model folder: what its earlier card says, what its files say, and what was measured: `card_of_folder`.

A card that the folder has already is kept, whoever wrote it; results, licence and languages are put into it.
"""

import math
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .checked_loading import load_config, stored_tensors
from .configuration_elmo import ElmoConfig
from .hub import CARD, CHECKSUMS, _read_checksums, sha256_of
from .model_card import (
    KINDS,
    UNKNOWN_LICENSE,
    _one_line,
    check_language,
    check_license,
    folder_model_card,
    license_section,
)
from .model_card_published import FolderFacts, published_model_card
from .model_card_results import HEADING, Measurement, results_section
from .shipped_model import name_of_folder
from .tokenization_elmo import ElmoTokenizer

ORIGIN, LIMITS, LICENCE = "## Where it comes from", "## Limits", "## Licence"
SOURCE_ROW = re.compile(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}|~{3,})")


def card_of_folder(
    folder: str | os.PathLike[str],
    measurements: Sequence[Measurement] = (),
    *,
    published: str | None = None,
    name: str | None = None,
    license: str | None = None,
    languages: Sequence[str] = (),
) -> str:
    """The text of the card of a model folder, with what was measured.

    Args:
        folder: Of a model and its tokenizer.
        measurements: What `read_results` gave; the Hub gets these figures, too.
        published: The published model that the folder was converted from, to make its card anew.
        name: Of the model; by default that of its card, or of the folder (of `ner/model`: `ner`).
        license: Licence of the weights, as the Hub spells it; by default as before.
        languages: Codes of the languages it was trained on; by default as before.

    Raises:
        FileNotFoundError: If the folder has no model.
        ValueError: If something in it, or of what is asked for, is not possible.
    """
    folder = Path(folder)
    config = load_config(folder)
    architecture = (config.architectures or ["ElmoModel"])[0]
    if architecture not in KINDS:
        raise ValueError(f"{folder} holds a {architecture}; there are cards for {', '.join(KINDS)}.")
    _check_wishes(published, license, languages)
    old = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else None
    old_data = None if old is None else checked_metadata(old, folder / CARD)
    name = name or getattr(old_data, "model_name", None) or _title(old) or name_of_folder(folder)
    for measurement in measurements:
        _check_model(
            measurement, {name, _one_line(name), name_of_folder(folder), folder.resolve().name}, KINDS[architecture][0]
        )
    if published is not None:
        facts = _folder_facts(folder, config, old)
        return published_model_card(published, name=name, folder=facts, measurements=measurements)
    if old is None or old_data is None:
        facts = _folder_facts(folder, config, None)
        old = folder_model_card(
            name,
            config,
            facts.tokenizer,
            num_parameters=facts.num_parameters,
            license=license or UNKNOWN_LICENSE,
            languages=languages,
        )
        old_data = checked_metadata(old, folder / CARD)
    return _updated(old, old_data, name, measurements, license, languages)


def write_card(card: str, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Writes a card, all of it or nothing; if it is that of a folder with SHA256SUMS, its line there is renewed.

    Raises:
        FileExistsError: If there is a file already, and `overwrite` is not set.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists. Give another --output, or --overwrite to replace it.")
    _replace(path, card)
    if path.name == CARD and (path.parent / CHECKSUMS).is_file():
        checksums = {**_read_checksums(path.parent), CARD: sha256_of(path)}
        _replace(path.parent / CHECKSUMS, "".join(f"{sha}  {file}\n" for file, sha in sorted(checksums.items())))
    return path


def checked_metadata(card: str, path: str | os.PathLike[str]) -> ModelCardData:
    """What the Hub reads of a card, by the Hub's own reader; refuses what the Hub would.

    Raises:
        ValueError: If the YAML or the figures in it cannot be read, or licence or language are not the Hub's.
    """
    try:
        data: Any = ModelCard(card).data
    except Exception as error:  # of the YAML reader, or of the Hub's checks
        raise ValueError(f"The metadata at the top of {path} cannot be read: {error}") from error
    if data.license is not None:
        check_license(data.license)
    for language in [data.language] if isinstance(data.language, str) else data.language or ():
        check_language(language)
    return data


def sections_of(text: str) -> list[str]:
    """A text in Markdown in parts, each of which but the first begins with a line `## ...`; code is not looked at."""
    parts, fence = [""], ""
    for line in text.splitlines(keepends=True):
        found = FENCE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
        elif found:
            fence = found[1]
        elif line.startswith("## "):
            parts.append("")
        parts[-1] += line
    return parts


def _check_wishes(published: str | None, license: str | None, languages: Sequence[str]) -> None:
    if published is not None and (license is not None or languages):
        raise ValueError("--published has its licence and languages: leave --license and --language out.")
    if license is not None:
        check_license(license)
    for language in languages:
        check_language(language)


def _check_model(measurement: Measurement, names: set[str], pipeline_tag: str) -> None:
    """Refuses figures of another model; those of a task may be of this head, or of one on top of this model."""
    if measurement.is_task and measurement.task_type == pipeline_tag:
        return
    if measurement.model not in names:
        what = "of a task without ELMo" if measurement.model is None else f"of the model {measurement.model!r}"
        raise ValueError(
            f"{measurement.file} has figures {what}, but this card is for {' or '.join(map(repr, sorted(names)))}. "
            "Leave the file out, or name the model with --name."
        )


def _folder_facts(folder: Path, config: ElmoConfig, old: str | None) -> FolderFacts:
    origin = next((part for part in sections_of(old or "") if part.startswith(f"{ORIGIN}\n")), "")
    return FolderFacts(
        config=config,
        tokenizer=ElmoTokenizer.from_pretrained(folder),
        num_parameters=sum(math.prod(tensor.shape) for tensor in stored_tensors(folder).values()),
        origin=origin.removeprefix(ORIGIN).strip().rpartition("What was converted:\n\n")[2],
        checksums=dict(SOURCE_ROW.findall(origin)),
    )


def _title(card: str | None) -> str | None:
    found = re.search(r"^# (.+)$", card or "", re.MULTILINE)
    return found[1].strip() if found else None


def _updated(
    card: str,
    data: ModelCardData,
    name: str,
    measurements: Sequence[Measurement],
    license: str | None,
    languages: Sequence[str],
) -> str:
    """The card with new figures, licence and languages; what was said of them before goes."""
    values: Any = data
    values.license = license or values.license
    values.language = list(languages) or values.language
    results = [result for measurement in measurements for result in measurement.eval_results()]
    if results:
        values.model_name = _one_line(name)
        values.eval_results = _merged(values.eval_results or [], results)
    parts = sections_of(ModelCard(card).text.lstrip("\n"))
    if license is not None:
        text = f"{LICENCE}\n\n{license_section(license, 'published')}\n\n"
        parts = _with_section(parts, LICENCE, text)
    if measurements:
        parts = _with_section(parts, HEADING, f"{results_section(measurements)}\n\n")
    text = "".join(parts).rstrip("\n") + "\n"
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


def _merged(old: Sequence[EvalResult], new: Sequence[EvalResult]) -> list[EvalResult]:
    """All figures; one that was measured again is there once."""
    kept = [result for result in old if not any(_is_same(result, other) for other in new)]
    return [*kept, *new]


def _is_same(one: EvalResult, other: EvalResult) -> bool:
    fields = ("task_type", "dataset_name", "metric_type", "metric_name")
    return all(getattr(one, field) == getattr(other, field) for field in fields)


def _with_section(parts: list[str], heading: str, section: str) -> list[str]:
    """The parts with a section in the place of the one with its heading; else before the limits, or at the end."""
    for number, part in enumerate(parts):
        if part.startswith(f"{heading}\n"):
            return [*parts[:number], section, *parts[number + 1 :]]
    place = next((number for number, part in enumerate(parts) if part.startswith(f"{LIMITS}\n")), len(parts))
    before = [*parts[:place]]
    before[-1] = before[-1].rstrip("\n") + "\n\n"
    return [*before, section, *parts[place:]]


def _replace(path: Path, text: str) -> None:
    """Writes a file so that there is always the old or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


__all__ = ["card_of_folder", "checked_metadata", "write_card"]
