# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows where in a text a word is used as in a sentence: `hf-elmo neighbors`."""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.embedder import ElmoEmbedder, Text
from hf_elmo.messages import no_bars
from hf_elmo.neighbors import SHOWN_WIDTH, Neighbors, nearest_contexts
from hf_elmo.pictures import check_matplotlib, plot_neighbors
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.text_files import find_files
from hf_elmo.vocabulary import check_output

from .arguments import add_report_arguments, command_line
from .embed import _lines
from .perplexity import _device


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "--text",
        nargs="+",
        required=True,
        metavar="FILE",
        help="files, folders or patterns; a sentence a line; .gz, .xz and .zst are decompressed",
    )
    parser.add_argument("--query", required=True, metavar="SENTENCE", help="with the word in it")
    parser.add_argument("--word", required=True, help="whose neighbours are looked for; the first one in the sentence")
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        metavar="N",
        help="compare in these layers; 0 is without context (default: all)",
    )
    parser.add_argument(
        "--top-k", type=int, default=5, metavar="N", help="show so many a layer (default: %(default)s)"
    )
    parser.add_argument(
        "--same-word", action="store_true", help="compare with the same word only; otherwise with all words"
    )
    parser.add_argument(
        "--split-words",
        action="store_true",
        help="text and query have spaces between all words; otherwise the tokenizer finds the words",
    )
    parser.add_argument(
        "--errors",
        choices=["replace", "stop"],
        default="replace",
        help="lines that are not UTF-8: put U+FFFD for what is no text, or stop (default: %(default)s)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the neighbours there")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    add_report_arguments(parser)


def _run(arguments: argparse.Namespace) -> None:
    for output in filter(None, (arguments.json, arguments.plot)):
        check_output(output, arguments.overwrite)
    if arguments.plot is not None:
        check_matplotlib()
    folder = model_folder(arguments.model)
    load_config(folder)  # says what is wrong with a folder of something else
    found = _search(folder, arguments)
    width = shutil.get_terminal_size((SHOWN_WIDTH, 24)).columns
    print(f"model: {arguments.model}\n{found.table(width)}")
    if arguments.json is not None:
        record = {"command": command_line("hf-elmo"), "model": Path(arguments.model).name, **found.to_dict()}
        arguments.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        plot_neighbors(found, arguments.plot)
        print(f"\npicture: {arguments.plot}")


def _search(folder: Path, arguments: argparse.Namespace) -> Neighbors:
    with no_bars(arguments.quiet):
        embedder = ElmoEmbedder.from_pretrained(folder, device=_device(arguments.device))
        return nearest_contexts(
            embedder,
            arguments.query.split() if arguments.split_words else arguments.query,
            arguments.word,
            _texts(find_files(arguments.text), arguments.split_words, arguments.errors),
            layers=arguments.layers,
            top_k=arguments.top_k,
            same_word=arguments.same_word,
            show_progress=False if arguments.quiet else None,
        )


def _texts(files: list[Path], split_words: bool, errors: str) -> Iterator[Text]:
    for file in files:
        for _, line in _lines(file, errors):
            if line.strip():
                yield line.split() if split_words else line


NEIGHBORS = Command(
    description="Shows where in a text a word is used most alike a word in a sentence: the nearest contexts by the "
    "cosine of their vectors, for each layer. In layer 0 words have no context, as with static word vectors: all "
    "occurrences of a word are equal there. Sentences that are the query's own are left out.",
    examples="""  hf-elmo neighbors elmo-mini --text news.txt --query "They sat on the bank of the river." --word bank
  hf-elmo neighbors my-elmo --text corpus/*.txt --query "They play cards." --word play --same-word --plot play.png""",
    add_arguments=_arguments,
    run=_run,
)
