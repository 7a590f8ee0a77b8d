# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `hf-elmo`: finds the subcommand that is asked for, runs it, and turns mistakes into one line each."""

import argparse
import importlib
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from huggingface_hub.errors import StrictDataclassError

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
    "convert": ("hf_elmo.conversion.command:CONVERT", "old weights of any format to a Hub folder"),
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
    "pretrain": ("hf_elmo.scripts.pretrain_elmo:PRETRAIN", "a biLM from text"),
    "vocab": ("hf_elmo.scripts.vocab:VOCAB", "a word vocabulary from text"),
    "coverage": ("hf_elmo.scripts.coverage:COVERAGE", "how much of a text a model knows"),
    "shrink": ("hf_elmo.scripts.shrink:SHRINK", "a folder with weights of half the size"),
    "embed": ("hf_elmo.scripts.embed:EMBED", "text to files of vectors"),
    "perplexity": ("hf_elmo.scripts.perplexity:PERPLEXITY", "how well a biLM predicts a text"),
    "score": ("hf_elmo.scripts.score:SCORE", "how probable a biLM finds each word of a text"),
    "substitutes": ("hf_elmo.scripts.substitutes:SUBSTITUTES", "words that fit a place of a text"),
    "sample": ("hf_elmo.scripts.sample:SAMPLE", "sentences drawn from a biLM"),
    "pairs": ("hf_elmo.scripts.pairs:PAIRS", "which of two sentences a biLM prefers"),
    "layers": ("hf_elmo.scripts.layers:LAYERS", "how much of each layer trained models use"),
    "neighbors": ("hf_elmo.scripts.neighbors:NEIGHBORS", "where in a text a word is used as in a sentence"),
    "probe pos": ("hf_elmo.scripts.probe:POS", "parts of speech by a linear classifier on each layer"),
    "probe wsd": ("hf_elmo.scripts.probe:WSD", "senses of words by the nearest neighbour in each layer"),
    "warm-state": ("hf_elmo.scripts.warm_state:WARM_STATE", "the state that sentences start from, made from text"),
    "compare-states": ("hf_elmo.scripts.compare_states:COMPARE_STATES", "a biLM from zero, warm and carried state"),
    "align": ("hf_elmo.scripts.align:ALIGN", "the vectors of a model to the space of another, by a dictionary"),
    "finetune tag": ("hf_elmo.scripts.finetune:TAG", "a label for each word: entities, parts of speech"),
    "finetune classify": ("hf_elmo.scripts.finetune:CLASSIFY", "a label for a sentence or a pair of sentences"),
    "export allennlp": ("hf_elmo.conversion.command:EXPORT_ALLENNLP", "a model folder to AllenNLP weights"),
    "export onnx": ("hf_elmo.conversion.onnx_export:EXPORT_ONNX", "a model folder to ONNX, which runs without torch"),
}
GROUPS = {
    "convert": "converts old weights to a Hub folder",
    "finetune": "trains a task on top of ELMo, and measures it",
    "probe": "measures what each layer of a model knows",
    "export": "converts a model folder to the format of another program",
}

# Packages that commands import first thing, and the extra that brings them.
EXTRAS = {"accelerate": "train", "onnx": "onnx", "onnxruntime": "onnx"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `hf-elmo` with these arguments, by default those of the process, and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(argv)
        arguments.run(arguments)
    except (ValueError, OSError, ImportError, StrictDataclassError) as error:
        if "--debug" in argv:
            traceback.print_exc()
        # The errors of a config wrap the sentence that matters.
        print(
            f"hf-elmo: error: {error.__cause__ if isinstance(error, StrictDataclassError) else error}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print("hf-elmo: interrupted", file=sys.stderr)
        return 130
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line; its options may be spelled with hyphens or underscores."""
    parser, options = _parser(argv)
    return parser.parse_args([_as_known(argument, options) for argument in argv])


def _parser(argv: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser for these arguments: all subcommands by name, the one that is asked for with its arguments.

    Also the options of the one that is asked for.
    """
    options: list[str] = []
    asked = _asked(argv)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser = argparse.ArgumentParser(
        prog="hf-elmo",
        description="ELMo as a Hugging Face model.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hf-elmo {__version__}")
    choices = {"": parser.add_subparsers(title="commands", metavar="command", required=True)}
    for words, (location, summary) in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        if (words in GROUPS and words != asked) or (group and group == asked):
            continue  # a command that is a group, too, is the one or the other
        if group not in choices:
            description = f"{GROUPS[group][0].upper()}{GROUPS[group][1:]}."
            group_parser = choices[""].add_parser(group, help=GROUPS[group], description=description)
            choices[group] = group_parser.add_subparsers(title="kinds", metavar="kind", required=True)
        if words != asked:
            choices[group].add_parser(name, help=summary)
            continue
        command = _load(location)
        subparser = choices[group].add_parser(
            name,
            help=summary,
            description=command.description,
            epilog=f"examples:\n{command.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[common],
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
        options = [option for action in subparser._actions for option in action.option_strings]
    return parser, options


def _asked(argv: list[str]) -> str:
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
            f"This command needs {error.name}, which is not installed: pip install hf-elmo[{EXTRAS[error.name]}]"
        ) from error
