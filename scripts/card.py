# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the model card of a folder, with figures from results files: `hf-elmo card`."""

import argparse
from pathlib import Path

from hf_elmo.cli import Command
from hf_elmo.hub import CARD
from hf_elmo.model_card_folder import card_of_folder, checked_metadata, write_card
from hf_elmo.model_card_published import published_models
from hf_elmo.model_card_results import KINDS, read_results
from hf_elmo.shipped_model import MODEL_HELP, model_folder


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "--results", type=Path, nargs="+", default=[], metavar="FILE", help=f"JSON files that {KINDS} wrote"
    )
    parser.add_argument(
        "--published",
        metavar="NAME",
        help="make the card anew, of the published model that the folder was converted from: "
        + ", ".join(name for name in published_models() if "manylangs" not in name)
        + ", or elmo-manylangs- and a language, such as elmo-manylangs-ko",
    )
    parser.add_argument(
        "--name", help="of the model (default: as in its card, or that of the folder, which for ner/model is ner)"
    )
    parser.add_argument(
        "--license", metavar="ID", help="of the weights, spelled as on the Hub: apache-2.0 (default: as before)"
    )
    parser.add_argument(
        "--language", action="append", default=[], metavar="CODE", help="of the training text; may be repeated"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="(default: README.md in the folder)")
    parser.add_argument("--overwrite", action="store_true", help="replace that file if it exists")


def _run(arguments: argparse.Namespace) -> None:
    folder = model_folder(arguments.folder)
    output = folder / CARD if arguments.output is None else arguments.output
    if output.exists() and not arguments.overwrite:
        raise FileExistsError(f"{output} exists. Give another --output, or --overwrite to replace it.")
    card = card_of_folder(
        folder,
        [read_results(path) for path in arguments.results],
        published=arguments.published,
        name=arguments.name,
        license=arguments.license,
        languages=arguments.language,
    )
    data = checked_metadata(card, output)
    write_card(card, output, arguments.overwrite)
    figures = len(data.eval_results or ())
    print(f"card: {output}, licence {data.license}, {figures} {'figure' if figures == 1 else 'figures'} for the Hub")


CARD_COMMAND = Command(
    description="Writes the model card of a folder. A card that is there is kept, and results, licence and languages "
    "are put into it, in the text and in the metadata that the Hub reads (model-index). A folder without a card, such "
    "as one that hf-elmo finetune wrote, gets one made from its files.",
    examples="""  hf-elmo card ner/model --results ner/results.json --license apache-2.0 --language en
  hf-elmo card my-elmo --results perplexity.json states.json pos.json --overwrite
  hf-elmo card elmo-small --published elmo-small --overwrite
  hf-elmo card elmo-mini --results pairs.json --output card.md""",
    add_arguments=_arguments,
    run=_run,
)
