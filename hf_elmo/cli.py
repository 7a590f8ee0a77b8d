# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `hf-elmo`: finds the subcommand that is asked for, runs it, and turns mistakes into one line each."""

import argparse
import difflib
import importlib
import itertools
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .version import __version__


@dataclass(frozen=True)
class Command:
    """A subcommand, defined next to the function that does the work.

    Args:
        description: What it does, in a sentence or two.
        examples: Lines that can be copied.
        add_arguments: Adds its arguments to a parser.
        run: Does it, with the parsed arguments. Mistakes of the user are raised as ValueError, OSError or ImportError.
    """

    description: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


# Words of the subcommand: where its Command is, and a line for the list. Only the one that is asked for is imported.
COMMANDS = {
    "convert": ("hf_elmo.conversion.command:CONVERT", "old weights of any format to a model folder"),
    "convert allennlp": (
        "hf_elmo.conversion.command:CONVERT_ALLENNLP",
        "options.json and HDF5 of AllenNLP or bilm-tf",
    ),
    "convert aligned": ("hf_elmo.conversion.command:CONVERT_ALIGNED", "AllenNLP's multilingual ELMo with its matrix"),
    "convert allennlp-archive": (
        "hf_elmo.conversion.command:CONVERT_ARCHIVE",
        "the ELMo in a model.tar.gz of AllenNLP",
    ),
    "convert manylangs": ("hf_elmo.conversion.command:CONVERT_MANYLANGS", "a folder of ELMoForManyLangs"),
    "convert bilm-tf": ("hf_elmo.conversion.command:CONVERT_BILM_TF", "a TensorFlow checkpoint with its softmax"),
    "pretrain": ("hf_elmo.scripts.pretrain_elmo:PRETRAIN", "trains a language model on text"),
    "vocab": ("hf_elmo.scripts.vocab:VOCAB", "a word vocabulary from text"),
    "coverage": ("hf_elmo.scripts.coverage:COVERAGE", "how much of a text a model knows"),
    "verify": ("hf_elmo.scripts.verify:VERIFY", "whether a model folder is whole and unchanged"),
    "card": ("hf_elmo.scripts.card:CARD_COMMAND", "the model card of a folder, with its results"),
    "shrink": ("hf_elmo.scripts.shrink:SHRINK", "a folder with weights of half the size"),
    "embed": ("hf_elmo.scripts.embed:EMBED", "text to files of vectors"),
    "perplexity": ("hf_elmo.scripts.perplexity:PERPLEXITY", "how well a language model predicts a text"),
    "score": ("hf_elmo.scripts.score:SCORE", "how probable a language model finds each word of a text"),
    "substitutes": ("hf_elmo.scripts.substitutes:SUBSTITUTES", "words that fit a place of a text"),
    "sample": ("hf_elmo.scripts.sample:SAMPLE", "sentences drawn from a language model"),
    "pairs": ("hf_elmo.scripts.pairs:PAIRS", "which of two sentences a language model prefers"),
    "layers": ("hf_elmo.scripts.layers:LAYERS", "how much of each layer trained models use"),
    "neighbors": ("hf_elmo.scripts.neighbors:NEIGHBORS", "where in a text a word is used as in a sentence"),
    "probe pos": ("hf_elmo.scripts.probe:POS", "parts of speech by a linear classifier on each layer"),
    "probe wsd": ("hf_elmo.scripts.probe:WSD", "senses of words by the nearest neighbour in each layer"),
    "app": ("hf_elmo.scripts.app:APP", "a page to play with a model, in the browser"),
    "warm-state": ("hf_elmo.scripts.warm_state:WARM_STATE", "the state that sentences start from, made from text"),
    "compare-states": (
        "hf_elmo.scripts.compare_states:COMPARE_STATES",
        "a language model from zero, warm and carried state",
    ),
    "align": ("hf_elmo.scripts.align:ALIGN", "the vectors of a model to the space of another, by a dictionary"),
    "finetune tag": ("hf_elmo.scripts.finetune:TAG", "a label for each word: entities, parts of speech"),
    "finetune classify": ("hf_elmo.scripts.finetune:CLASSIFY", "a label for a sentence or a pair of sentences"),
    "serve": ("hf_elmo.scripts.serve:SERVE", "vectors and labels of a model over HTTP"),
    "export allennlp": ("hf_elmo.conversion.command:EXPORT_ALLENNLP", "a model folder to AllenNLP weights"),
    "export onnx": ("hf_elmo.conversion.onnx_export:EXPORT_ONNX", "a model folder to ONNX, which runs without torch"),
}
GROUPS = {
    "convert": "converts old weights to a model folder",
    "finetune": "trains a task on top of ELMo, and measures it",
    "probe": "measures what each layer of a model knows",
    "export": "converts a model folder to the format of another program",
}

# The first words of commands, in the order in which `hf-elmo --help` shows them.
SECTIONS = {
    "models": ["convert", "export", "shrink", "align", "coverage", "verify", "card"],
    "vectors": ["embed", "neighbors", "layers", "probe"],
    "tasks": ["finetune"],
    "language models": ["vocab", "pretrain", "perplexity", "score", "substitutes", "sample", "pairs"],
    "state": ["warm-state", "compare-states"],
    "server and page": ["serve", "app"],
}
OTHERS = "others"
HELP = "'hf-elmo COMMAND --help' has options and examples. The name elmo-mini means the model in the package."

# Packages that commands import first thing, and the extra that brings them.
EXTRAS = {"accelerate": "train", "onnx": "onnx", "onnxruntime": "onnx"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-elmo` with these arguments, by default those of the process, and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(argv)
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("hf-elmo: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        sentence = _sentence_of(error)
        if sentence is None:
            raise
        if "--debug" in argv:
            traceback.print_exc()
        print(f"hf-elmo: error: {sentence}", file=sys.stderr)
        return 1
    return 0


def _sentence_of(error: Exception) -> BaseException | None:
    """What to show of an error if it is a mistake of the user, not of a program."""
    if isinstance(error, OSError) and error.strerror and error.filename:  # the system's own, with a number
        return OSError(f"{os.fspath(error.filename)}: {error.strerror}.")
    if isinstance(error, (ValueError, OSError, ImportError)):
        return error
    from huggingface_hub.errors import StrictDataclassError  # importing it takes time that the help does not have

    # The errors of a config wrap the sentence that matters.
    return error.__cause__ if isinstance(error, StrictDataclassError) else None


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line; its options may be spelled with hyphens or underscores."""
    parser, options = _parser(argv)
    _check_command(parser, argv)
    return parser.parse_args([_as_known(argument, options) for argument in argv])


def sections() -> dict[str, dict[str, str]]:
    """The first words of all commands with a line for each, by the sections of the help."""
    lines = {words.partition(" ")[0]: summary for words, (_, summary) in COMMANDS.items()} | GROUPS
    listed = {title: {name: lines.pop(name) for name in names} for title, names in SECTIONS.items()}
    return listed | ({OTHERS: lines} if lines else {})


def _list_of_commands() -> str:
    """What `hf-elmo --help` shows of the commands."""
    width = max(len(name) for lines in sections().values() for name in lines)
    return "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:{width}}  {line}" for name, line in lines.items())])
        for title, lines in sections().items()
    )


def _check_command(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """Ends the program with a short message if the first word, or the second of a group, is no command."""
    if not argv or argv[0].startswith("-"):
        return
    first, second = argv[0], next((word for word in argv[1:2] if not word.startswith("-")), None)
    names = [name for lines in sections().values() for name in lines]
    if first not in names:
        parser.error(f"there is no command {first!r}{_similar(first, names)}; 'hf-elmo --help' lists all of them")
    kinds = [words.partition(" ")[2] for words in COMMANDS if words.startswith(f"{first} ")]
    has_two_words = len(argv) > 2 and not argv[2].startswith("-")
    needs_kind = first not in COMMANDS or has_two_words  # convert needs none before its source
    if kinds and needs_kind and second is not None and second not in kinds:
        parser.error(f"{first} has no kind {second!r}{_similar(second, kinds)}; there are {', '.join(kinds)}")


def _similar(word: str, words: list[str]) -> str:
    """What may have been meant, as part of a message; empty if nothing is similar."""
    found = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Breaks the lines of a description, which is one paragraph, and leaves examples as they are.

    Lines end between words only, so that names such as hf-elmo stay whole.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _parser(argv: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser for these arguments: all subcommands by name, the one that is asked for with its arguments.

    Also the options of the one that is asked for.
    """
    options: list[str] = []
    asked = command_of(argv)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser = argparse.ArgumentParser(
        prog="hf-elmo",
        usage="hf-elmo [-h] [--version] command ...",
        description="ELMo as a Hugging Face model.",
        epilog=f"{_list_of_commands()}\n\n{HELP}",
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"hf-elmo {__version__}")
    choices = {"": parser.add_subparsers(prog="hf-elmo", metavar="command", required=True, help=argparse.SUPPRESS)}
    for words, (location, summary) in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        if (words in GROUPS and words != asked) or (group and group == asked):
            continue  # a command that is a group, too, is the one or the other
        if group not in choices:
            description = f"{GROUPS[group][0].upper()}{GROUPS[group][1:]}."
            group_parser = choices[""].add_parser(
                group, description=description, epilog=f"'hf-elmo {group} KIND --help' has examples."
            )
            choices[group] = group_parser.add_subparsers(title="kinds", metavar="kind", required=True)
        shown: dict[str, Any] = (
            {"help": summary} if group else {}
        )  # the list of all commands is in the epilog, by sections
        if words != asked:
            choices[group].add_parser(name, **shown)
            continue
        command = _load(location)
        subparser = choices[group].add_parser(
            name,
            description=command.description,
            epilog=f"examples:\n{command.examples}",
            formatter_class=_Formatter,
            parents=[common],
            **shown,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
        options = [option for action in subparser._actions for option in action.option_strings]
    return parser, options


def command_of(argv: list[str]) -> str:
    """The words of the command that the arguments begin with; the longer one of two; empty if there is none."""
    leading = list(itertools.takewhile(lambda argument: not argument.startswith("-"), argv))
    beginnings = [" ".join(leading[:count]) for count in range(len(leading), 0, -1)]
    return next((words for words in beginnings if words in COMMANDS), "")


def _as_known(argument: str, options: list[str]) -> str:
    """The argument, spelled like the option that it is apart from hyphens and underscores, if it is one."""
    name, equals, value = argument.partition("=")
    if name.startswith("--") and name not in options:
        for option in options:
            if option.replace("_", "-") == name.replace("_", "-"):
                return f"{option}{equals}{value}"
    return argument


def _load(location: str) -> Command:
    module, _, name = location.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise ImportError(
            f'This command needs {error.name}, which is not installed: pip install "hf-elmo[{EXTRAS[error.name]}]"'
        ) from error
