# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the vectors of a text to files: `hf-elmo embed`.

The text is cut into shards of a number of words. Each is computed for itself and written at once, by the process whose
turn it is, so that an interrupted run, or one with more processes, gives the same files as any other. If one file is
asked for, the shards stand in a folder beside it, `<output>.parts`, until they are put together.

With a state that is carried from sentence to sentence no shard can be computed for itself, so such a run has one
process and begins at the beginning.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from transformers.utils import logging

from hf_elmo.cli import Command
from hf_elmo.conversion.verify import load_config
from hf_elmo.embedder import (
    BATCH_TOKENS,
    LAYERS,
    POOLINGS,
    STATES,
    ElmoEmbedder,
    Layers,
    Progress,
    Text,
    Vectors,
    check_layers,
    check_state,
)
from hf_elmo.embedding_files import (
    EXTENSIONS,
    FORMATS,
    EmbeddedSentence,
    WriterOptions,
    check_format,
    open_writer,
    read_safetensors,
    write_json,
)
from hf_elmo.hub import sha256_of
from hf_elmo.messages import no_bars
from hf_elmo.quantization import QUANTIZATIONS
from hf_elmo.shipped_model import MODEL_HELP, model_folder
from hf_elmo.text_files import BYTE_ORDER_MARK, COMPRESSED, find_files, open_text
from hf_elmo.version import __version__
from hf_elmo.vocabulary import check_output

from .perplexity import _device
from .task_data import CONLLU_NO_WORD, DOCUMENT_START, _load_dataset

INPUT_FORMATS = ("text", "jsonl", "conll", "conllu", "dataset")
INPUT_EXTENSIONS = {".jsonl": "jsonl", ".conll": "conll", ".conllu": "conllu"}
WORD_COLUMNS = {"conll": 0, "conllu": 1}
DTYPES = ("float32", "float16")
ERRORS = ("replace", "stop")
SHARD_WORDS = 100_000

MANIFEST = "manifest.json"
SHARD = "part-{number:05d}.{format}"


# --- Text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """Sentences that can be read again and again.

    Args:
        fingerprint: What changes if they are others, as something that JSON can hold.
        read: Makes an iterator over them.
    """

    fingerprint: list[Any]
    read: Callable[[], Iterator[Text]]


def _source(arguments: argparse.Namespace) -> _Source:
    kind = arguments.input_format or _kind_of(arguments.input[0])
    reading = [kind, arguments.column, arguments.split_words, arguments.errors]
    if kind == "dataset":
        dataset, column = _dataset(arguments)
        identity = [arguments.input[0], arguments.config, arguments.split, len(dataset), dataset._fingerprint]
        return _Source([*reading, *identity], lambda: _texts_of_dataset(dataset, column, arguments.split_words))
    files = [file for item in arguments.input for file in find_files(item)]  # in the order in which they are given
    sizes = [[str(file), os.path.getsize(file)] for file in files]
    return _Source([*reading, *sizes], lambda: _texts_of_files(files, kind, arguments))


def _kind_of(path: str) -> str:
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED]
    return INPUT_EXTENSIONS.get(suffixes[-1], "text") if suffixes else "text"


def _texts_of_files(files: list[Path], kind: str, arguments: argparse.Namespace) -> Iterator[Text]:
    for file in files:
        lines = _lines(file, arguments.errors)
        if kind == "text":
            for _, line in lines:
                yield line.split() if arguments.split_words else line
        elif kind == "jsonl":
            for number, line in lines:
                yield _text_of_json(line, arguments.column, arguments.split_words, f"{file}: line {number}")
        else:
            column = WORD_COLUMNS[kind] if arguments.column is None else _column_number(arguments.column)
            yield from _sentences_of_columns(lines, column, kind == "conllu", str(file))


def _lines(path: Path, errors: str) -> Iterator[tuple[int, str]]:
    """The lines of a file, numbered from 1."""
    with open_text(path) as file:
        for number, content in enumerate(file, start=1):
            line = content.removeprefix(BYTE_ORDER_MARK) if number == 1 else content
            try:
                yield number, line.rstrip(b"\r\n").decode("utf-8", "strict" if errors == "stop" else "replace")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}: line {number} is not UTF-8. Convert the file, or give --errors replace."
                ) from error


def _text_of_json(line: str, column: str | None, split_words: bool, place: str) -> Text:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place} is not JSON: {error}") from error
    if isinstance(value, dict):
        if column not in value:
            fields = ", ".join(map(repr, value))
            asked = "name the field with the words, --column NAME" if column is None else f"there is no {column!r}"
            raise ValueError(f"{place} is an object with the fields {fields}: {asked}.")
        value = value[column]
    return _checked(value, split_words, place)


def _checked(value: Any, split_words: bool, place: str) -> Text:
    if isinstance(value, str):
        return value.split() if split_words else value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise ValueError(f"{place} has {value!r:.60}, but a sentence is a list of words or a text.")


def _sentences_of_columns(
    lines: Iterable[tuple[int, str]], column: int, is_conllu: bool, name: str
) -> Iterator[list[str]]:
    """Sentences of a file with a word a line and empty lines between sentences."""
    words: list[str] = []
    for number, line in lines:
        fields = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or DOCUMENT_START in fields:
            if words:
                yield words
                words = []
            continue
        if is_conllu and (line.startswith("#") or CONLLU_NO_WORD.fullmatch(fields[0])):
            continue
        if not -len(fields) <= column < len(fields):
            raise ValueError(f"{name}: line {number} has {len(fields)} columns, so there is no column {column}.")
        words.append(fields[column])
    if words:
        yield words


def _column_number(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise ValueError(
            f"--column {column} is not possible for CoNLL: give the number of a column, from 0."
        ) from None


def _dataset(arguments: argparse.Namespace) -> tuple[Any, str]:
    if len(arguments.input) > 1:
        raise ValueError(f"A data set is read by one name, but there are {len(arguments.input)}.")
    if arguments.column is None:
        raise ValueError("--column is missing: name the column of the data set that has the texts or the words.")
    dataset, _ = _load_dataset(arguments.input[0], arguments.split, arguments.config, [arguments.column])
    return dataset, arguments.column


def _texts_of_dataset(dataset: Any, column: str, split_words: bool) -> Iterator[Text]:
    for number, row in enumerate(dataset.select_columns([column])):
        yield _checked(row[column], split_words, f"Row {number}")


# --- Shards ----------------------------------------------------------------------------------------------------------


class _Shard(NamedTuple):
    number: int
    first: int  # number of its first sentence
    texts: list[Text]


def _shards(texts: Iterable[Text], words: int) -> Iterator[_Shard]:
    """Texts in shards of about so many words; what counts as a word does not depend on the tokenizer."""
    number = first = count = 0
    shard: list[Text] = []
    for text in texts:
        shard.append(text)
        count += 1 + len(text.split() if isinstance(text, str) else text)
        if count >= words:
            yield _Shard(number, first, shard)
            number, first, count, shard = number + 1, first + len(shard), 0, []
    if shard:
        yield _Shard(number, first, shard)


class _Processes:
    """The processes that share the work: this one alone, or those that `accelerate launch` started."""

    def __init__(self) -> None:
        self.number, self.count = 0, 1
        self.device: torch.device | None = None
        self._state: Any = None
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            try:
                from accelerate import PartialState
            except ImportError as error:
                raise ImportError(
                    'To share the work between processes, accelerate is needed: pip install "hf-elmo[train]"'
                ) from error
            self._state = PartialState(cpu=not torch.cuda.is_available())
            self.number, self.count = self._state.process_index, self._state.num_processes
            self.device = self._state.device

    @property
    def is_main(self) -> bool:
        return self.number == 0

    def wait(self) -> None:
        """Until all of them are here."""
        if self._state is not None:
            self._state.wait_for_everyone()

    def end(self) -> None:
        if self._state is not None:
            self._state.destroy_process_group()


@dataclass(frozen=True)
class _Job:
    """What is to be done.

    Args:
        output: The file, or the folder of shards.
        format: Of the output.
        is_file: Whether the output is one file.
        settings: All that changes the shards, as something that JSON can hold.
        writer_options: All that changes the files beside their vectors.
    """

    output: Path
    format: str
    is_file: bool
    settings: dict[str, Any]
    writer_options: WriterOptions

    @property
    def folder(self) -> Path:
        """Where the shards are written."""
        return self.output.with_name(f"{self.output.name}.parts") if self.is_file else self.output

    @property
    def shard_format(self) -> str:
        return "safetensors" if self.is_file else self.format

    def shard(self, number: int) -> Path:
        return self.folder / SHARD.format(number=number, format=self.shard_format)

    def is_complete(self) -> bool:
        """Whether all of it is there."""
        if self.is_file:
            return self.output.is_file() and not self.folder.exists()
        if not (self.folder / MANIFEST).is_file():
            return False
        manifest = self._manifest()
        self._check_settings(manifest["settings"])
        return manifest["complete"]

    def prepare(self, resume: bool, overwrite: bool) -> None:
        """Makes the folder of the shards, or checks the one that is there."""
        if self.is_file:
            check_output(self.output, overwrite or resume)
        elif not self.folder.parent.is_dir():
            raise FileNotFoundError(f"{self.folder.parent} does not exist. Make it first.")
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            manifest = self._manifest()
            if resume:
                self._check_settings(manifest["settings"])
                self.remove_unfinished()
                return
            if not overwrite:
                raise FileExistsError(
                    f"{self.folder} exists, with vectors of another run. Give --resume to continue that run, "
                    "--overwrite to begin anew, or choose another name."
                )
            self.remove_shards()
        self.folder.mkdir(exist_ok=True)
        self.write_manifest(complete=False)

    def finish(self, shards: list[dict[str, Any]]) -> None:
        """Writes what comes last, when all processes have written their shards."""
        missing = [shard["file"] for shard in shards if not (self.folder / shard["file"]).is_file()]
        if missing:
            raise OSError(
                f"{self.folder} lacks {', '.join(missing[:5])}, which other processes wrote: the output must be on a "
                "disk that all machines share."
            )
        self.write_manifest(complete=True, shards=shards)
        if self.is_file:
            self.put_together(shards)

    def write_manifest(self, complete: bool, shards: list[dict[str, Any]] | None = None) -> None:
        content: dict[str, Any] = {"hf_elmo": __version__, "complete": complete, "settings": self.settings}
        if shards is not None:
            content["sentences"] = sum(shard["sentences"] for shard in shards)
            content["shards"] = shards
        write_json(self.folder / MANIFEST, content)

    def remove_shards(self) -> None:
        """Removes what a run wrote, and nothing else."""
        self.remove_unfinished()
        for format in FORMATS:
            for shard in self.folder.glob(f"part-*.{format}"):
                shard.unlink()
        (self.folder / MANIFEST).unlink(missing_ok=True)  # last, as without it the folder would not be known as ours

    def remove_unfinished(self) -> None:
        """Removes what a run that was killed left behind."""
        leftovers = [
            *self.folder.glob(".*.partial"),
            *self.output.parent.glob(f".{escape(self.output.name)}.*.partial"),
        ]
        for leftover in leftovers:
            leftover.unlink()

    def put_together(self, shards: list[dict[str, Any]]) -> None:
        """Makes one file of the shards, and removes them."""
        with open_writer(self.output, self.format, self.writer_options) as writer:
            for shard in shards:
                for sentence in read_safetensors(self.folder / shard["file"]):
                    writer.add(sentence)
        self.remove_shards()
        self.folder.rmdir()

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
            return {"settings": dict(manifest["settings"]), "complete": bool(manifest["complete"])}
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise FileExistsError(
                f"{self.folder} exists and is not a folder of vectors, as it has no {MANIFEST} of hf-elmo: choose "
                "another name."
            ) from error

    def _check_settings(self, before: dict[str, Any]) -> None:
        different = [name for name, value in self.settings.items() if before.get(name) != value]
        if different:
            changes = "; ".join(
                f"{name}: {before.get(name)!r:.80}, now {self.settings[name]!r:.80}" for name in different
            )
            raise ValueError(
                f"{self.folder} cannot be continued, as this run would write other vectors ({changes}). Give the same "
                "text and options, or --overwrite."
            )


# --- The command -----------------------------------------------------------------------------------------------------


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input",
        nargs="+",
        metavar="INPUT",
        help="files, folders or patterns, .gz, .xz and .zst are decompressed; or the name of a data set",
    )
    parser.add_argument("--model", required=True, type=model_folder, metavar="FOLDER", help=MODEL_HELP)
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="PATH",
        help=f"a file whose extension says the format ({', '.join(EXTENSIONS)}), or a folder for files of --format",
    )
    parser.add_argument("--format", metavar="FORMAT", help=f"of the files in a folder: {', '.join(FORMATS)}")
    parser.add_argument(
        "--layers",
        type=_layers,
        default="mix",
        help=f"{', '.join(LAYERS)}, or the number of one; the old --all, --top and --average (default: %(default)s)",
    )
    parser.add_argument("--pooling", choices=POOLINGS, help="one vector for a sentence (default: one for each word)")
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float32", help="of the vectors in the files (default: %(default)s)"
    )
    parser.add_argument(
        "--input-format",
        choices=INPUT_FORMATS,
        help="text: a sentence a line; jsonl: a list of words or an object a line; conll, conllu: a word a line; "
        "dataset: a name for the library datasets (default: by the extension of the first input, else text)",
    )
    parser.add_argument(
        "--split-words",
        action="store_true",
        help="texts have spaces between all words; otherwise the tokenizer finds the words",
    )
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="with the words or texts: the number of a column in CoNLL files (default: 0; for .conllu 1), the name of "
        "a field in JSON objects, or of a column in a data set",
    )
    parser.add_argument("--split", default="train", help="of a data set (default: %(default)s)")
    parser.add_argument("--config", metavar="NAME", help="of a data set that has several")
    parser.add_argument(
        "--errors",
        choices=ERRORS,
        default="replace",
        help="lines that are not UTF-8: put U+FFFD for what is no text, or stop (default: %(default)s)",
    )
    parser.add_argument("--forget-sentences", action="store_true", help="write no sentence_to_index into HDF5 files")
    parser.add_argument(
        "--shard-words",
        type=int,
        default=SHARD_WORDS,
        metavar="N",
        help="words that are written at a time, and lost if the run is interrupted (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=BATCH_TOKENS,
        metavar="N",
        help="words to compute at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--state",
        choices=STATES,
        help="what a sentence starts from: zero; warm: the state stored with the model; carry: what the sentence "
        "before left, as in the original programs (default: as the model's config says)",
    )
    parser.add_argument(
        "--carry-batch",
        type=int,
        metavar="N",
        help="with --state carry, read N sentences at a time, each from where the one N before it ended (default: 1)",
    )
    parser.add_argument(
        "--batch-invariant",
        action=argparse.BooleanOptionalAction,
        help="read sentences one by one, so that their vectors are the same to the last bit in any text; slower "
        "(default: if the state is warm)",
    )
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="smaller weights: less exact, and faster on the CPU if the model is large (default: the weights as they "
        "are)",
    )
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: cuda if there is one)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run, if there is one")
    parser.add_argument("--overwrite", action="store_true", help="replace vectors that exist")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _layers(value: str) -> Layers:
    return int(value) if value.isdecimal() else cast(Layers, value)


def _run(arguments: argparse.Namespace) -> None:
    for name in ("shard_words", "batch_tokens"):
        if getattr(arguments, name) < 1:
            raise ValueError(
                f"--{name.replace('_', '-')} {getattr(arguments, name)} is not possible: it must be 1 or more."
            )
    if arguments.resume and arguments.overwrite:
        raise ValueError("--resume and --overwrite contradict each other: give one of them.")
    format, is_file = _format(arguments.output, arguments.format)
    source = _source(arguments)
    job = _Job(
        output=arguments.output,
        format=format,
        is_file=is_file,
        settings=_settings(arguments, source, "safetensors" if is_file else format),
        writer_options=WriterOptions(arguments.pooling is not None, arguments.forget_sentences),
    )
    processes = _Processes()
    try:
        with no_bars(arguments.quiet or not processes.is_main):
            _embed(arguments, source, job, processes)
    finally:
        processes.end()


def _format(output: Path, asked: str | None) -> tuple[str, bool]:
    """The format of the output, and whether it is one file."""
    by_name = EXTENSIONS.get(output.suffix)
    if asked is not None:
        check_format(asked)
    if by_name is not None:
        if asked not in (None, by_name):
            raise ValueError(f"--format {asked} does not fit the name {output.name}, which is one of {by_name}.")
        check_format(by_name)
        return by_name, True
    if asked is None:
        raise ValueError(
            f"--output {output} names no format: give a file that ends with {', '.join(EXTENSIONS)}, or for a folder "
            f"--format {', '.join(FORMATS)}."
        )
    return asked, False


def _settings(arguments: argparse.Namespace, source: _Source, shard_format: str) -> dict[str, Any]:
    config = load_config(arguments.model)
    check_layers(config, arguments.layers)
    state = arguments.state or config.initial_state
    check_state(
        config, state, 1 if arguments.carry_batch is None else arguments.carry_batch, arguments.batch_invariant
    )
    if state == "carry" and arguments.resume:
        raise ValueError(
            "--resume does not go with --state carry: every vector depends on all sentences before. Begin anew, with "
            "--overwrite."
        )
    files = sorted(file for file in arguments.model.iterdir() if file.suffix in (".safetensors", ".json", ".txt"))
    return {
        "format": shard_format,
        "layers": arguments.layers,
        "pooling": arguments.pooling,
        "dtype": arguments.dtype,
        "quantize": arguments.quantize,
        "state": arguments.state,
        "carry_batch": arguments.carry_batch,
        "batch_invariant": arguments.batch_invariant,
        "shard_words": arguments.shard_words,
        "batch_tokens": arguments.batch_tokens,
        "forget_sentences": arguments.forget_sentences,
        "input": source.fingerprint,
        "model": {file.name: sha256_of(file) for file in files},
    }


def _embed(arguments: argparse.Namespace, source: _Source, job: _Job, processes: _Processes) -> None:
    if arguments.state == "carry" and processes.count > 1:
        raise ValueError(
            f"--state carry does not go with {processes.count} processes: every vector depends on all sentences "
            "before. Start it in one."
        )
    if arguments.resume and job.is_complete():
        if processes.is_main:
            print(f"complete already: {job.output}")
        return
    if processes.is_main:
        job.prepare(arguments.resume, arguments.overwrite)
    processes.wait()
    asked = arguments.device or ("cpu" if arguments.quantize else None)
    device = processes.device if processes.device and asked is None else _device(asked)
    embedder = ElmoEmbedder.from_pretrained(
        arguments.model,
        device=device,
        dtype=torch.float32,
        quantize=arguments.quantize,
        state=arguments.state,
        carry_batch=arguments.carry_batch or 1,
        batch_invariant=arguments.batch_invariant,
    )
    start = time.monotonic()
    shards, words = _write_shards(arguments, embedder, source, job, processes)
    processes.wait()
    if not processes.is_main:
        return
    job.finish(shards)
    seconds = time.monotonic() - start
    sentences = sum(shard["sentences"] for shard in shards)
    share = f" one of {processes.count} processes" if processes.count > 1 else ""
    print(f"{sentences:,} sentences;{share} read {words:,} words in {seconds:.1f} s ({words / seconds:,.0f} words/s)")
    print(f"vectors: {job.output}")


def _write_shards(
    arguments: argparse.Namespace, embedder: ElmoEmbedder, source: _Source, job: _Job, processes: _Processes
) -> tuple[list[dict[str, Any]], int]:
    """Writes the shards of this process that are not there; returns all shards, and the words that it read."""
    shards: list[dict[str, Any]] = []
    words = 0
    with logging.tqdm(desc="ELMo", unit=" words", unit_scale=True) as bar:
        # The state goes on from shard to shard, so all of them are one stream.
        all_words = map(embedder.words, source.read())
        carried = _encoded(arguments, embedder, all_words, bar) if embedder.state == "carry" else None
        for shard in _shards(source.read(), arguments.shard_words):
            path = job.shard(shard.number)
            shards.append({"file": path.name, "first": shard.first, "sentences": len(shard.texts)})
            if shard.number % processes.count != processes.number or path.exists():
                continue
            with open_writer(path, job.shard_format, job.writer_options) as writer:
                for sentence in _embedded(arguments, embedder, shard, bar, carried):
                    writer.add(sentence)
                    words += len(sentence.words)
    if not shards:
        raise ValueError(f"There is no sentence in {', '.join(arguments.input)}.")
    return shards, words


def _embedded(
    arguments: argparse.Namespace,
    embedder: ElmoEmbedder,
    shard: _Shard,
    bar: Progress,
    carried: Iterator[Vectors] | None,
) -> Iterator[EmbeddedSentence]:
    """The sentences of a shard with their vectors, which come from the stream of all sentences if there is one."""
    sentences = [embedder.words(text) for text in shard.texts]
    results = _encoded(arguments, embedder, sentences, bar) if carried is None else islice(carried, len(sentences))
    for number, (text, words, vectors) in enumerate(zip(shard.texts, sentences, results, strict=True), shard.first):
        as_text = text.strip() if isinstance(text, str) else " ".join(text)
        yield EmbeddedSentence(number, as_text, words, cast(np.ndarray, vectors))


def _encoded(
    arguments: argparse.Namespace, embedder: ElmoEmbedder, sentences: Iterable[list[str]], bar: Progress
) -> Iterator[Vectors]:
    return embedder.encode_stream(
        sentences,
        arguments.layers,
        arguments.pooling,
        batch_tokens=arguments.batch_tokens,
        dtype=arguments.dtype,
        is_split_into_words=True,
        show_progress=bar,
    )


EMBED = Command(
    description="Writes the vectors of all words of a text, or of its sentences, to files. Sentences are named by "
    "their number, from 0, and empty lines are sentences without words. A file .hdf5 has the layout of the old "
    "command `allennlp elmo`. A folder gets shards, and a manifest.json that lists them in order. An interrupted run "
    "continues with --resume, to the same result. Started with `accelerate launch -m hf_elmo embed ...`, processes on "
    "one or several machines share the work; the output must be on a disk that all of them see.",
    examples="""  hf-elmo embed sentences.txt --model my-elmo --output vectors.hdf5 --layers all
  hf-elmo embed corpus/*.txt.gz --model my-elmo --output vectors --format safetensors --dtype float16 --resume
  hf-elmo embed dev.conllu --model my-elmo --output dev.parquet
  hf-elmo embed sentences.jsonl --column tokens --model my-elmo --output sentences.npz --pooling mean
  hf-elmo embed conll2003 --input-format dataset --column tokens --model my-elmo --output vectors --format parquet""",
    add_arguments=_arguments,
    run=_run,
)
