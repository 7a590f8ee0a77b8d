# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""The subcommands `hf-elmo convert ...` and `hf-elmo export ...`."""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hf_elmo.cli import Command
from hf_elmo.messages import no_bars
from hf_elmo.model_card import UNKNOWN_LICENSE
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .aligned import convert_aligned
from .allennlp import convert_allennlp, export_allennlp
from .allennlp_archive import convert_allennlp_archive
from .archives import GZIP_BEGIN, unpack_gzip, unpacked_archive
from .bilm_tf import convert_bilm_tf
from .detection import DIALECTS, Source, describe_dialects, detect, is_archive, is_wanted
from .manylangs import SEGMENTER, convert_manylangs
from .options import read_options
from .writing import ConversionReport, Destination

# --- Arguments -------------------------------------------------------------------------------------------------------

SOURCE = "a file, a folder or an archive (zip, tar, tar.gz)"
OPTIONS: dict[str, dict[str, Any]] = {
    "options": {"type": Path, "metavar": "FILE", "help": "the options.json"},
    "weights": {"type": Path, "metavar": "FILE", "help": "the HDF5 file with the weights"},
    "matrix": {"type": Path, "metavar": "FILE", "help": "the file with the matrix, such as align.pth"},
    "vocab": {
        "type": Path,
        "metavar": "FILE",
        "help": "words, one a line, in bilm-tf's order, also as .gz; the vectors of models that read characters only "
        "do not need them",
    },
    "token_embeddings": {
        "type": Path,
        "metavar": "FILE",
        "help": "the HDF5 file of bilm-tf's dump_token_embeddings; the model looks words up then instead of spelling "
        "them",
    },
    "prefix": {
        "metavar": "NAME",
        "help": "what the names of the Elmo module begin with, if the model has several",
    },
    "segmenter": {
        "metavar": "NAME",
        "help": "what split the training text into words, for the tokenizer and the card; raw text is then split at "
        f"white space (default: {SEGMENTER} for manylangs, else Moses, whose rules the tokenizer knows)",
    },
}

# The options that a dialect reads, beside those of all.
OPTIONS_OF = {
    "allennlp": ("options", "weights", "vocab", "token_embeddings", "segmenter"),
    "aligned": ("options", "weights", "matrix", "vocab", "segmenter"),
    "allennlp-archive": ("options", "prefix", "segmenter"),
    "manylangs": ("segmenter",),
    "bilm-tf": ("options", "vocab", "segmenter"),
}


class _ListAction(argparse.Action):
    """Prints the dialects and ends the program, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        print(describe_dialects())
        parser.exit()


def _any_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SOURCE", help=SOURCE)
    parser.add_argument("--list", action=_ListAction, nargs=0, help="explain all formats, and convert nothing")
    _add_options(parser, ("options", "vocab", "prefix", "segmenter"))
    _common_arguments(parser)


def _arguments_of(dialect: str) -> Callable[[argparse.ArgumentParser], None]:
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        names = OPTIONS_OF[dialect]
        parser.add_argument(
            "source", type=Path, metavar="SOURCE", nargs="?" if "weights" in names else None, help=SOURCE
        )
        _add_options(parser, names)
        _common_arguments(parser)

    return add_arguments


def _add_options(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", **OPTIONS[name])


def _common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--license",
        default=UNKNOWN_LICENSE,
        metavar="ID",
        help="licence of the weights for the model card, spelled as on the Hub: apache-2.0 (default: %(default)s)",
    )
    parser.add_argument(
        "--language",
        action="append",
        default=[],
        metavar="CODE",
        help="language of the training text for the model card, such as en; may be repeated",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that hf-elmo wrote before")
    parser.add_argument("--quiet", action="store_true", help="print the result only")


# --- Conversion ------------------------------------------------------------------------------------------------------


def _convert(arguments: argparse.Namespace, dialect: str | None = None) -> None:
    progress = None if arguments.quiet else _tell
    # Refuses what cannot be before anything is unpacked.
    tell = Destination(arguments.output, arguments.license, arguments.language, arguments.overwrite, progress).tell
    with no_bars(), ExitStack() as stack:
        if arguments.source is None:
            source = _named_source(arguments, dialect or "")
        else:
            place, tell = stack.enter_context(_opened(arguments.source, tell))
            source = _detected_source(arguments, place, dialect)
            if dialect is None:
                tell(f"format: {source.dialect}")
        common = {
            "license": arguments.license,
            "languages": tuple(arguments.language),
            "overwrite": arguments.overwrite,
            "progress": tell,
        }
        report = _convert_source(arguments, source, tell, common, stack)
    print(report)


def _convert_source(
    arguments: argparse.Namespace,
    source: Source,
    tell: Callable[[str], None],
    common: dict[str, Any],
    stack: ExitStack,
) -> ConversionReport:
    options, weights, output = source.options, source.weights, arguments.output
    if source.dialect == "manylangs":
        return convert_manylangs(weights, output, segmenter=arguments.segmenter or SEGMENTER, **common)
    common |= {"segmenter": arguments.segmenter}
    if source.dialect == "allennlp-archive":
        return convert_allennlp_archive(
            weights, output, config=source.config, options=arguments.options, prefix=arguments.prefix, **common
        )
    vocabulary = _vocabulary(arguments, source, tell, stack)
    if source.dialect == "bilm-tf":
        if vocabulary is None:
            raise ValueError(
                f"{weights} is a language model, which needs the vocabulary of its training: give --vocab."
            )
        return convert_bilm_tf(weights, vocabulary, output, options=options, **common)
    if options is None:
        raise ValueError(f"{weights} needs its options.json: give --options.")
    if source.dialect == "aligned" and source.matrix is not None:
        return convert_aligned(options, weights, source.matrix, output, vocabulary=vocabulary, **common)
    embeddings = getattr(arguments, "token_embeddings", None)
    return convert_allennlp(options, weights, output, vocabulary=vocabulary, token_embeddings=embeddings, **common)


def _named_source(arguments: argparse.Namespace, dialect: str) -> Source:
    """The files that options name."""
    needed = ["options", "weights", *(["matrix"] if dialect == "aligned" else [])]
    if any(getattr(arguments, name) is None for name in needed):
        raise ValueError(f"Give a SOURCE, or all of {', '.join(f'--{name}' for name in needed)}.")
    return Source(dialect, arguments.weights, arguments.options, matrix=getattr(arguments, "matrix", None))


def _detected_source(arguments: argparse.Namespace, place: Path, dialect: str | None) -> Source:
    for name in ("weights", "matrix"):
        if getattr(arguments, name, None) is not None:
            raise ValueError(f"Give a SOURCE or --{name}, not both.")
    source = detect(place, dialect, getattr(arguments, "options", None))
    for name in OPTIONS:
        if name not in OPTIONS_OF[source.dialect] and getattr(arguments, name, None) is not None:
            raise ValueError(f"--{name} has no effect: {arguments.source} is in the format {source.dialect}.")
    return source


@contextmanager
def _opened(path: Path, tell: Callable[[str], None]) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """The path, or a folder with what it holds if it is an archive; and a `tell` that calls this by its own name."""
    if not is_archive(path):
        yield path, tell
        return
    tell(f"unpacking {path}")
    with unpacked_archive(path, is_wanted) as folder:
        try:
            yield folder, lambda text: tell(text.replace(str(folder), str(path)))
        except (ValueError, OSError) as error:
            kind = OSError if isinstance(error, OSError) else ValueError
            raise kind(str(error).replace(str(folder), str(path))) from error


def _vocabulary(
    arguments: argparse.Namespace, source: Source, tell: Callable[[str], None], stack: ExitStack
) -> Path | None:
    """The vocabulary as a text file; one that came along and is none is left out if the vectors do not need it."""
    path = arguments.vocab or source.vocabulary
    if path is None:
        return None
    if _begins_with(path, GZIP_BEGIN):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-elmo-")))
        unpacked = folder / (path.stem or "vocab.txt")
        unpack_gzip(path, unpacked)
        path = unpacked
    found_by_chance = arguments.vocab is None and source.dialect in ("allennlp", "aligned")
    if found_by_chance and source.options is not None and "char_cnn" in read_options(source.options):
        try:
            words = ElmoTokenizer(vocab_file=path).get_vocab().keys() - {"<S>", "</S>", "<UNK>", "<PAD>"}
        except ValueError as error:
            tell(f"{source.vocabulary} is left out, as the vectors do not need it: {error}")
            return None
        if words and all(len(word) == 1 for word in words):
            tell("all words are single letters: give the model a list of letters, or letters with spaces between them")
    return path


def _begins_with(path: Path, begin: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(begin)) == begin


# --- Export ----------------------------------------------------------------------------------------------------------


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="where to write the two files")
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")
    parser.add_argument("--quiet", action="store_true", help="print the result only")


def _export(arguments: argparse.Namespace) -> None:
    with no_bars(arguments.quiet), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        report = export_allennlp(arguments.folder, arguments.output, overwrite=arguments.overwrite)
    for warning in caught:
        _tell(f"warning: {warning.message}")
    print(report)


def _tell(text: str) -> None:
    print(f"hf-elmo: {text}", file=sys.stderr, flush=True)


# --- Commands --------------------------------------------------------------------------------------------------------


def _command(dialect: str, examples: str) -> Command:
    needs, result = DIALECTS[dialect].needs, DIALECTS[dialect].result
    return Command(
        description=f"Converts weights of one format to a model folder, ready for the Hub, and verifies it. Needs "
        f"{needs}. Gives {result}.",
        examples=examples,
        add_arguments=_arguments_of(dialect),
        run=lambda arguments: _convert(arguments, dialect),
    )


CONVERT = Command(
    description="Converts old weights to a model folder, ready for the Hub, and verifies it. The format is found out; "
    "'hf-elmo convert --list' explains all formats. With the name of one before SOURCE, no other is tried "
    f"('hf-elmo convert manylangs --help'): {', '.join(DIALECTS)}.",
    examples="""  hf-elmo convert elmo-small-files --output elmo-small
  hf-elmo convert 210.zip --output elmo-norwegian --language no --license cc-by-4.0 --segmenter UDPipe
  hf-elmo convert model.tar.gz --options options.json --output elmo-of-my-tagger
  hf-elmo convert training/model.ckpt-935588 --vocab vocab.txt --output elmo-lm""",
    add_arguments=_any_arguments,
    run=_convert,
)

CONVERT_ALLENNLP = _command(
    "allennlp",
    """  hf-elmo convert allennlp --options options.json --weights weights.hdf5 --output elmo-small
  hf-elmo convert allennlp --options options.json --weights weights.hdf5 --output elmo-small \\
      --license apache-2.0 --language en
  hf-elmo convert allennlp 210.zip --output elmo-norwegian""",
)

CONVERT_ALIGNED = _command(
    "aligned",
    """  hf-elmo convert aligned --options options262.json --weights es_weights.hdf5 --matrix es_best_mapping.pth \\
      --output elmo-es-aligned --language es""",
)

CONVERT_ARCHIVE = _command(
    "allennlp-archive",
    """  hf-elmo convert allennlp-archive model.tar.gz --output elmo-of-my-tagger
  hf-elmo convert allennlp-archive weights.th --options options.json --prefix _elmo. --output elmo-of-my-tagger""",
)

CONVERT_MANYLANGS = _command(
    "manylangs",
    """  hf-elmo convert manylangs 161.zip --output elmo-manylangs-ko --language ko
  hf-elmo convert manylangs my-model --output my-elmo --segmenter whitespace""",
)

CONVERT_BILM_TF = _command(
    "bilm-tf",
    """  hf-elmo convert bilm-tf training --vocab vocab.txt --output elmo-lm
  hf-elmo convert bilm-tf model.ckpt-935588 --vocab vocab.txt --options options.json --output elmo-lm""",
)

EXPORT_ALLENNLP = Command(
    description="Writes options.json and weights.hdf5, which AllenNLP and bilm-tf read, from a model folder.",
    examples="  hf-elmo export allennlp elmo-small --output allennlp-files",
    add_arguments=_export_arguments,
    run=_export,
)
