# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card of a converted model: only what was read from its files or measured."""

import json
import re
import string
from collections.abc import Sequence
from importlib import resources

import torch
import transformers

from .configuration_elmo import ElmoConfig
from .tokenization_elmo import ElmoTokenizer
from .version import __version__

UNKNOWN_LICENSE = "unknown"
TAGS = ("elmo", "word-embeddings")
SPLITTINGS = {
    "moses": "like the training text of the published English models (Moses rules, straight quotes)",
    "whitespace": "at white space only",
}


def converted_model_card(
    name: str,
    config: ElmoConfig,
    tokenizer: ElmoTokenizer,
    *,
    num_parameters: int,
    dialect: str,
    sources: Sequence[tuple[str, str]],
    parity: str,
    license: str = UNKNOWN_LICENSE,
    languages: Sequence[str] = (),
) -> str:
    """The text of the card.

    Args:
        name: Name of the model.
        config: Its config.
        tokenizer: Its tokenizer.
        num_parameters: Number of weights taken from the source.
        dialect: The format it was converted from.
        sources: Name and SHA-256 of each source file.
        parity: One sentence that says how far it is from the source.
        license: Licence of the weights, as the Hub spells it.
        languages: Codes of the languages it was trained on.

    Raises:
        ValueError: If the licence or a language is not spelled as the Hub demands.
    """
    check_license(license)
    for language in languages:
        check_language(language)
    template = string.Template(resources.files("hf_elmo.model_cards").joinpath("template.md").read_text("utf-8"))
    return template.substitute(
        front_matter=_front_matter(license, languages),
        name=_one_line(name),
        origin=f"Converted from {dialect} by hf-elmo {__version__}.",
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers + 1,
        facts="\n".join(f"| {what} | {value} |" for what, value in _facts(config, num_parameters).items()),
        text=_text(tokenizer),
        source="\n".join(
            [
                f"Converted from {dialect} with hf-elmo {__version__}, transformers {transformers.__version__} and "
                f"torch {torch.__version__}. The source files:",
                "",
                "| file | SHA-256 |",
                "|---|---|",
                *(f"| `{_one_line(file)}` | `{checksum}` |" for file, checksum in sources),
            ]
        ),
        parity=parity,
        training_data="The source files do not say on which text the model was trained.",
        task_weights="The weights of the layers (`model.layer_weights()`) are fresh: all layers count the same until "
        "they are trained.",
        longest_word=config.max_characters_per_token - 2,
        license_text=_license_text(license),
    )


def check_license(license: str) -> None:
    """Refuses a licence that the Hub would not take for one."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
        raise ValueError(
            f"The licence {license!r} is not spelled as on the Hub: small letters, digits, '.', '+' and '-', such as "
            f"apache-2.0, cc-by-4.0, other or {UNKNOWN_LICENSE}."
        )


def check_language(language: str) -> None:
    """Refuses a language that the Hub would not take for one."""
    if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|multilingual|code", language):
        raise ValueError(f"The language {language!r} is not a code such as en, ko or pt-BR.")


def _front_matter(license: str, languages: Sequence[str]) -> str:
    # JSON strings are YAML strings, and quoting keeps a code such as `no` (Norwegian) from being read as a boolean.
    lines = [f"license: {json.dumps(license)}"]
    if languages:
        lines += ["language:", *(f"- {json.dumps(language)}" for language in languages)]
    lines += ["library_name: transformers", "pipeline_tag: feature-extraction", "tags:", *(f"- {tag}" for tag in TAGS)]
    return "\n".join(lines)


def _facts(config: ElmoConfig, num_parameters: int) -> dict[str, str]:
    filters = ", ".join(f"{count} of width {width}" for width, count in config.char_cnn_filters)
    clips = {"cell": config.cell_clip, "output": config.projection_clip}
    return {
        "Weights from the source": f"{num_parameters:,}",
        "Vector of a word": f"{config.hidden_size} ({config.projection_size} for each direction)",
        "Layers": f"1 for the words by themselves, {config.num_hidden_layers} of LSTMs",
        "LSTM cell": f"{config.cell_size}, projected to {config.projection_size}",
        "Clips": ", ".join(f"{part} {'none' if clip is None else f'{clip:g}'}" for part, clip in clips.items()),
        "Skip connections": "yes" if config.use_skip_connections else "no",
        "Characters": f"{config.max_characters_per_token} a word, vectors of {config.char_embedding_size}",
        "Convolutions": f"{filters}; {config.char_cnn_activation}",
        "Highway layers": str(config.num_highway_layers),
    }


def _text(tokenizer: ElmoTokenizer) -> str:
    words = len(tokenizer)
    vocabulary = (
        f"The word vocabulary has {words:,} entries; words outside it are spelled all the same."
        if words > 4
        else "There is no word vocabulary: `input_ids` are all `<UNK>`, and the model reads `character_ids`."
    )
    splitting = SPLITTINGS.get(tokenizer.word_splitting, tokenizer.word_splitting)
    return (
        f"Raw text is split {splitting}. For text that is split already, pass lists of words with "
        f"`is_split_into_words=True`. {vocabulary}"
    )


def _license_text(license: str) -> str:
    if license == UNKNOWN_LICENSE:
        return (
            "The licence of these weights was not stated when they were converted: ask whoever made them. The code "
            "files in this folder are under Apache-2.0."
        )
    return (
        f"`{license}` for the weights, as stated by whoever converted them. The code files in this folder are under "
        "Apache-2.0."
    )


def _one_line(text: str) -> str:
    """A file name for the middle of a line: nothing in it can end the line or the table cell."""
    return re.sub(r"[^\w.+ -]", "_", text)
