# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts the vectors of one model into the space of another, with a bilingual dictionary: `hf-elmo align`."""

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers.utils import logging

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.alignment import (
    AlignmentReport,
    Anchors,
    align_anchors,
    check_layer,
    in_lower_case,
    read_dictionary,
    with_alignment,
    word_anchors,
)
from hf_elmo.cli import Command
from hf_elmo.conversion.aligned import aligned_card, alignment_text, verify_alignment
from hf_elmo.conversion.verify import load_config
from hf_elmo.corpus import CorpusReader
from hf_elmo.embedder import ElmoEmbedder
from hf_elmo.hub import CARD, check_place, finish_hub_folder, new_folder, save_model_files
from hf_elmo.messages import no_bars
from hf_elmo.model_card import _block, _code, _table
from hf_elmo.shipped_model import MINI_NAME, model_folder

from .arguments import add_errors_argument
from .perplexity import _device

FIGURES = "alignment.json"


def load_encoder(folder: str | os.PathLike[str]) -> tuple[ElmoModel, ElmoTokenizer]:
    """The encoder of a folder, whatever head it has, in float32, and its tokenizer."""
    load_config(folder)  # says what is wrong with a folder of something else
    embedder = ElmoEmbedder.from_pretrained(folder, device="cpu", dtype=torch.float32)
    return embedder.model, embedder.tokenizer


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="SOURCE", help=f"folder of the model whose vectors are aligned, or {MINI_NAME}"
    )
    parser.add_argument(
        "target", type=Path, metavar="TARGET", help=f"folder of the model whose space they come into, or {MINI_NAME}"
    )
    parser.add_argument(
        "--dictionary",
        required=True,
        type=Path,
        metavar="FILE",
        help="a source word and its translation on each line, with a space or a tab between, as MUSE has them",
    )
    for language in ("source", "target"):
        parser.add_argument(
            f"--{language}-text",
            required=True,
            nargs="+",
            metavar="FILE",
            help=f"text in the language of the {language} model: files, folders or patterns; a sentence a line, words "
            "between spaces",
        )
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--layer", type=int, default=1, metavar="N", help="layer that is aligned (default: %(default)s)"
    )
    parser.add_argument(
        "--min-occurrences",
        type=int,
        default=1,
        metavar="N",
        help="leave out words that are rarer in the text (default: %(default)s)",
    )
    parser.add_argument(
        "--max-occurrences",
        type=int,
        default=1000,
        metavar="N",
        help="of each word, read so many occurrences, the first ones (default: %(default)s)",
    )
    parser.add_argument(
        "--ignore-case", action="store_true", help="look for words of the dictionary in any case, small or capital"
    )
    parser.add_argument(
        "--center", action="store_true", help="take off the means of both languages before they are compared"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share of the dictionary that the matrix is not made of but tried on (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses that share (default: %(default)s)")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    add_errors_argument(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    device = _device(arguments.device)
    with no_bars(arguments.quiet):
        report = _align(arguments, device)
    print(f"{report}\naligned model: {arguments.output}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuses what would be refused after hours otherwise."""
    check_place(arguments.output, arguments.overwrite)
    if arguments.max_occurrences < max(arguments.min_occurrences, 1):
        raise ValueError(
            f"--max-occurrences {arguments.max_occurrences} is not possible: it must be 1 or more, and not below "
            f"--min-occurrences {arguments.min_occurrences}."
        )
    if not 0 <= arguments.held_out < 1:
        raise ValueError(f"--held-out {arguments.held_out} is not possible: it must be at least 0 and below 1.")
    source, target = load_config(model_folder(arguments.source)), load_config(model_folder(arguments.target))
    for config in (source, target):
        check_layer(config, arguments.layer)
    if source.hidden_size != target.hidden_size:
        raise ValueError(
            f"The vectors of {arguments.source} have {source.hidden_size} values, those of {arguments.target} "
            f"{target.hidden_size}: only models with vectors of one width can be aligned."
        )
    if target.use_alignment and target.layer_combination != arguments.layer:
        raise ValueError(
            f"{arguments.target} is aligned itself, at layer {target.layer_combination}: only --layer "
            f"{target.layer_combination} leads into its space."
        )


def _align(arguments: argparse.Namespace, device: torch.device) -> AlignmentReport:
    pairs = read_dictionary(arguments.dictionary)
    if arguments.ignore_case:
        pairs = in_lower_case(pairs)
    target, tokenizer = load_encoder(model_folder(arguments.target))
    target_anchors = _anchors(arguments, target, tokenizer, "target", [other for _, other in pairs], device)
    if target.config.use_alignment:
        target_anchors = target_anchors.times(target.alignment.matrix.cpu())
    del target
    source, tokenizer = load_encoder(model_folder(arguments.source))
    source_anchors = _anchors(arguments, source, tokenizer, "source", [one for one, _ in pairs], device)
    matrix, report = align_anchors(
        pairs,
        source_anchors,
        target_anchors,
        layer=arguments.layer,
        min_occurrences=arguments.min_occurrences,
        held_out=arguments.held_out,
        seed=arguments.seed,
        center=arguments.center,
    )
    _save(arguments, cast(Any, source).cpu(), tokenizer, matrix, report)
    return report


def _anchors(
    arguments: argparse.Namespace,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    language: str,
    words: list[str],
    device: torch.device,
) -> Anchors:
    """Reads the text of a language."""
    text = CorpusReader(getattr(arguments, f"{language}_text"), shuffle=False, epochs=1, errors=arguments.errors)
    with logging.tqdm(text, desc=f"{language} text", unit=" sentences", disable=arguments.quiet) as sentences:
        return word_anchors(
            cast(Any, model).to(device),
            tokenizer,
            sentences,
            list(dict.fromkeys(words)),
            layer=arguments.layer,
            max_occurrences=arguments.max_occurrences,
            ignore_case=arguments.ignore_case,
        )


def _save(
    arguments: argparse.Namespace, source: ElmoModel, tokenizer: ElmoTokenizer, matrix: Tensor, report: AlignmentReport
) -> None:
    card = model_folder(arguments.source) / CARD
    with new_folder(arguments.output, arguments.overwrite) as folder:
        save_model_files(with_alignment(source, matrix, arguments.layer), tokenizer, folder)
        verify_alignment(folder, source, matrix.numpy(), arguments.layer)
        (folder / FIGURES).write_text(json.dumps(_record(arguments, report), indent=1) + "\n", encoding="utf-8")
        text = aligned_card(
            card.read_text(encoding="utf-8") if card.is_file() else None,
            arguments.output.resolve().name,
            arguments.layer,
            _card_section(arguments, report),
        )
        finish_hub_folder(folder, text)


def _record(arguments: argparse.Namespace, report: AlignmentReport) -> dict[str, Any]:
    """The figures and what they depend on."""
    return {
        "source": str(arguments.source),
        "target": str(arguments.target),
        "dictionary": str(arguments.dictionary),
        "source_text": arguments.source_text,
        "target_text": arguments.target_text,
        "max_occurrences": arguments.max_occurrences,
        "ignore_case": arguments.ignore_case,
        **report.to_dict(),
    }


def _card_section(arguments: argparse.Namespace, report: AlignmentReport) -> list[str]:
    before, after = report.before, report.after
    figures = [
        ("Pairs of the dictionary", f"{report.pairs:,}"),
        ("Missing in the source text", f"{report.missing_source:,}"),
        ("Missing in the target text", f"{report.missing_target:,}"),
        ("Pairs the matrix was made of", f"{report.training_pairs:,}"),
        ("Pairs held out", f"{report.test_pairs:,}"),
        ("Mean cosine before, after", f"{before.mean_cosine:.4f}, {after.mean_cosine:.4f}"),
    ]
    how = "The cosines are of the pairs that the matrix was made of: none was held out."
    if report.test_pairs:
        figures += [
            ("Precision@1, nearest neighbour", f"{before.nearest_precision:.2%}, {after.nearest_precision:.2%}"),
            ("Precision@1, CSLS", f"{before.csls_precision:.2%}, {after.csls_precision:.2%}"),
        ]
        how = (
            f"Cosines and precisions are of the {report.test_pairs:,} pairs held out: {report.test_words:,} words, "
            f"whose translations were looked for among {report.candidates:,}."
        )
    return [
        alignment_text(report.layer, f"the space of {_code(arguments.target.resolve().name)}"),
        "The matrix is orthogonal (Procrustes), between the mean vectors of words of a dictionary and of their "
        f"translations. Made with hf-elmo; the figures are also in `{FIGURES}`:",
        _block(_command(arguments), "bash"),
        _table(("", ""), figures),
        how,
    ]


def _command(arguments: argparse.Namespace) -> str:
    parts = ["hf-elmo", "align", str(arguments.source), str(arguments.target)]
    parts += ["--dictionary", str(arguments.dictionary)]
    parts += ["--source-text", *arguments.source_text, "--target-text", *arguments.target_text]
    parts += ["--output", str(arguments.output), "--layer", str(arguments.layer)]
    parts += ["--min-occurrences", str(arguments.min_occurrences)]
    parts += ["--max-occurrences", str(arguments.max_occurrences)]
    parts += ["--held-out", str(arguments.held_out), "--seed", str(arguments.seed)]
    parts += [f"--{name.replace('_', '-')}" for name in ("ignore_case", "center") if getattr(arguments, name)]
    return shlex.join(parts)


ALIGN = Command(
    description="Makes a folder with the source model and a matrix that puts its vectors into the space of the target "
    "model, so that words and their translations are near to each other. The matrix is the orthogonal one that brings "
    "the mean vectors of the words of a dictionary, over their places in the text, closest to those of their "
    "translations (Procrustes). Part of the dictionary is held out to tell how good it is.",
    examples="""  hf-elmo align elmo-es elmo-en --dictionary es-en.txt --source-text es.txt --target-text en.txt \\
      --output elmo-es-aligned --ignore-case""",
    add_arguments=_arguments,
    run=_run,
)
