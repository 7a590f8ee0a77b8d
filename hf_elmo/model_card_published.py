# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Cards of the models that others published, from one file of facts: `published_model_card`.

The facts stand in model_cards/published.json, each with where it was read. What is not known is left out. Without a
folder, a card says what is published; with one, its sizes, its files and its checksums come from there.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from .configuration_elmo import ElmoConfig
from .model_card import (
    TASK_WEIGHTS,
    UNKNOWN_LICENSE,
    _block,
    _boundaries,
    _code,
    _facts,
    _front_matter,
    _one_line,
    _table,
    _text,
    fill_template,
    vectors_use,
)
from .model_card_results import Measurement, results_section
from .tokenization_elmo import ElmoTokenizer

MANYLANGS = "elmo-manylangs-"
PRESETS = {"small": ElmoConfig.small, "medium": ElmoConfig.medium, "original": ElmoConfig.original}
COMPARED = (
    "word_input projection_size cell_size num_hidden_layers num_highway_layers char_embedding_size char_cnn_filters "
    "char_cnn_activation max_characters_per_token cell_clip projection_clip use_skip_connections"
).split()
UDPIPE_TEXT = (
    "Raw text is put into the form NFC of Unicode and split at white space. The training text was split by UDPipe, "
    "which the tokenizer does not run: split your text in the same way, and pass lists of words with "
    "`is_split_into_words=True`. Words outside its vocabulary are told apart by their characters only, and code "
    "points that it does not know are one and the same to it (`tokenizer.coverage` counts them)."
)
CODE_POINTS_LIMIT = "Words are cut after 48 code points."
UDPIPE_LINE = 'sentences = [line.split() for line in open("words.txt", encoding="utf-8")]  # split by UDPipe'


@dataclass(frozen=True)
class FolderFacts:
    """A model folder, as far as cards speak of it.

    Args:
        config: Of the model.
        tokenizer: Of the model.
        num_parameters: Number of its weights.
        origin: The section of its earlier card that says where it comes from; empty if there is none.
        checksums: SHA-256 of its source files by name, as that section has them.
    """

    config: ElmoConfig
    tokenizer: ElmoTokenizer
    num_parameters: int
    origin: str = ""
    checksums: Mapping[str, str] | None = None


@functools.cache
def published_models() -> dict[str, dict[str, Any]]:
    """The facts on each published model by its name, those of its family among them."""
    data = json.loads(resources.files("hf_elmo.model_cards").joinpath("published.json").read_text("utf-8"))
    models = {name: {**data["families"][facts["family"]], **facts} for name, facts in data["models"].items()}
    family = data["families"]["manylangs"]
    for code, language in data["manylangs"].items():
        file = f"{language['number']}.zip"
        models[f"{MANYLANGS}{code}"] = {
            **family,
            "family": "manylangs",
            "title": f"The model for {language['name']} of ELMoForManyLangs",
            "languages": [code],
            "files": [{"name": file, "url": f"http://vectors.nlpl.eu/repository/11/{file}"}],
            "limits": [*family["limits"], *language.get("limits", [])],
        }
    for facts in models.values():
        facts["citations"] = [data["citations"][key] for key in facts.get("citation", [])]
    return models


def published_model_card(
    published: str,
    *,
    name: str | None = None,
    folder: FolderFacts | None = None,
    measurements: Sequence[Measurement] = (),
) -> str:
    """The text of the card of a published model.

    Args:
        published: Which one; `published_models` has their names.
        name: What the card calls it; by default the same.
        folder: The converted model, if there is one.
        measurements: What was measured with it.

    Raises:
        ValueError: If there is no such model, or the folder holds a model of other sizes.
    """
    models = published_models()
    if published not in models:
        own = ", ".join(other for other in models if not other.startswith(MANYLANGS))
        raise ValueError(
            f"There is no published model {published!r}: choose one of {own}, or {MANYLANGS} and the code of a "
            f"language, such as {MANYLANGS}ko."
        )
    facts, name = models[published], name or published
    config = _published_config(facts)
    if folder is not None:
        _check_sizes(published, config, folder.config)
    tokenizer = ElmoTokenizer() if folder is None else folder.tokenizer
    of_words = facts["family"] == "manylangs"
    return fill_template(
        config or ElmoConfig(),
        tokenizer,
        front_matter=_metadata(name, facts, measurements),
        name=_one_line(name),
        origin=facts["title"] + (f", made by {facts['made_by']}." if "made_by" in facts else "."),
        use=_use_of(
            name,
            facts,
            folder.config if folder else config,
            "<bos> and <eos>" if of_words else _boundaries(tokenizer),
        ),
        facts=_facts_of(facts, config, tokenizer, folder),
        text=UDPIPE_TEXT if of_words and folder is None else _text(config or ElmoConfig(), tokenizer),
        sections=[
            *_source_sections(facts, folder),
            *([] if folder else _convert_sections(published, facts)),
            *["## Training text", facts["training_text"]],
            *_figure_sections(facts),
            *([results_section(measurements)] if measurements else []),
            *["## Bias", "\n".join(f"- {line}" for line in facts["bias"])],
        ],
        limits=[*facts["limits"], TASK_WEIGHTS],
        words_limit=CODE_POINTS_LIMIT if of_words else None,
        license_text=f"{facts['license_text']} The code files in the folder of the model are under Apache-2.0.",
        citations=facts["citations"],
    )


def _metadata(name: str, facts: dict[str, Any], measurements: Sequence[Measurement]) -> str:
    more: dict[str, Any] = {key: facts[key] for key in ("license_name", "license_link") if key in facts}
    if "examples" in facts:
        more["widget"] = [{"text": text} for text in facts["examples"]]
    results = [result for measurement in measurements for result in measurement.eval_results()]
    license = facts.get("license", UNKNOWN_LICENSE)
    return _front_matter(name, license, facts["languages"], results, facts.get("tags", ()), **more)


def _published_config(facts: dict[str, Any]) -> ElmoConfig | None:
    """The config that the model must have; `None` if its sizes are not known."""
    if "preset" in facts:
        return PRESETS[facts["preset"]]()
    return ElmoConfig.original(vocab_size=5, **facts["config"]) if "config" in facts else None


def _check_sizes(published: str, config: ElmoConfig | None, found: ElmoConfig) -> None:
    for field in COMPARED if config is not None else ():
        expected, there = getattr(config, field), getattr(found, field)
        if expected != there:
            raise ValueError(
                f"The folder is not {published}: its {field} is {there!r}, but that of the published model is "
                f"{expected!r}."
            )


def _use_of(name: str, facts: dict[str, Any], config: ElmoConfig | None, boundaries: str) -> str:
    width, layers = ("dimensions", "all layers")
    if config is not None:
        width, layers = str(config.hidden_size), f"{config.num_hidden_layers + 1} layers"
    if "examples" not in facts:
        return vectors_use(name, boundaries, f"(sentences, words, {width})", layers, UDPIPE_LINE)
    examples = facts["examples"]
    return vectors_use(name, boundaries, f"({len(examples)}, words, {width})", layers, examples)


def _facts_of(
    facts: dict[str, Any], config: ElmoConfig | None, tokenizer: ElmoTokenizer, folder: FolderFacts | None
) -> str:
    if folder is not None:
        rows = {"Weights": f"{folder.num_parameters:,}", **_facts(folder.config, tokenizer)}
    elif config is None:
        return "Its sizes are not known here: its options file was not at hand."
    else:
        rows = {**_facts(config, tokenizer), **facts.get("facts", {})}
    note = f"\n\nThe sizes are those of {facts['sizes_from']}." if "sizes_from" in facts and folder is None else ""
    return _table(("", ""), list(rows.items())) + note


def _source_sections(facts: dict[str, Any], folder: FolderFacts | None) -> list[str]:
    rows = [
        (f"[{_one_line(file['name'])}]({file['url']})", _code(file["sha256"]) if "sha256" in file else "not known")
        for file in facts["files"]
    ]
    sections = ["## Where it comes from", "The published files:", _table(("file", "SHA-256"), rows)]
    sections += [_checksum_note(file, folder) for file in facts["files"] if "sha256" in file]
    if folder is not None and folder.origin:
        sections += ["What was converted:", folder.origin]
    return [
        *sections,
        f"Sources of this card: {', '.join(f'<{url}>' for url in facts['sources'])}.",
    ]


def _checksum_note(file: dict[str, Any], folder: FolderFacts | None) -> str:
    """Whether a known checksum was checked, and against what."""
    found = None if folder is None or not folder.checksums else folder.checksums.get(file["name"])
    known = f"The SHA-256 of {_code(file['name'])} ({file['bytes']:,} bytes) was found in {file['sha256_from']}"
    if found is None:
        return f"{known}; it was not checked against the file."
    if found == file["sha256"]:
        return f"{known}; the file that was converted has it."
    return f"{known}; the file that was converted has another one, so it is not the same file."


def _convert_sections(published: str, facts: dict[str, Any]) -> list[str]:
    names = [file["name"] for file in facts["files"]]
    source = names[0] if facts["convert"] == "manylangs" else f"--options {names[0]} \\\n    --weights {names[1]}"
    languages = " ".join(f"--language {language}" for language in facts["languages"])
    lines = [
        'pip install "hf-elmo[convert]"',
        f"hf-elmo convert {facts['convert']} {source} --output {published} {languages}",
        f"hf-elmo card {published} --published {published} --overwrite",
    ]
    return [
        "## Convert it",
        "The folder of the model is made from the published files, and compared with them number by number; the last "
        "command writes this card into it, with their checksums:",
        _block("\n".join(lines), "bash"),
    ]


def _figure_sections(facts: dict[str, Any]) -> list[str]:
    if "figures" not in facts:
        return []
    rows = [(task, f"{value:.2f}") for task, value in facts["figures"]]
    note = f"Published at <{facts['figures_from']}>, not measured with this folder. {facts['figures_note']}"
    return ["## Published figures", _table(("task", "figure"), rows), note]


__all__ = ["FolderFacts", "published_model_card", "published_models"]
