# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Which dialect old weights are in, told from what the files hold; names decide only between files of one kind."""

import os
import re
import textwrap
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hf_elmo.strict_json import LARGEST_FILE

from .archives import GZIP_BEGIN, archive_kind
from .hdf5 import holds
from .manylangs import CONFIG, EMBEDDER, ENCODER, is_manylangs
from .options import read_options
from .pickles import LEGACY_BEGIN

TRAINED_WEIGHTS = ("weights.th", "best.th")  # what AllenNLP calls the weights of a trained model

LARGEST_FOLDER = 1_000  # files that are looked into
DEEPEST_FOLDER = 3  # folders that are gone into, if there is nothing but one folder

HDF5_BEGIN = b"\x89HDF\r\n\x1a\n"
NAMED_SO = {".json": "JSON", ".hdf5": "HDF5", ".h5": "HDF5"}  # a download that failed leaves a page of that name
TABLE_END = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"  # of a table of LevelDB, which the index of a checkpoint is
CHECKPOINT_FILE = re.compile(r"(.+)\.(index|meta|data-\d{5}-of-\d{5})")
VOCABULARY = re.compile(r"vocab.*\.txt(\.gz)?", re.IGNORECASE)
# Words in the names of files that belong together: elmo_2x1024_options.json and elmo_2x1024_weights.hdf5.
ROLES = re.compile(r"[_.-]*(options|weights|model)(262)?[_.-]*", re.IGNORECASE)


# --- The dialects ----------------------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """A format of old weights, for people."""

    name: str
    needs: str
    result: str
    example: str


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "allennlp",
            "options.json and an HDF5 file with the weights, as AllenNLP and bilm-tf publish them",
            "ElmoModel",
            "hf-elmo convert elmo-small-files --output elmo-small",
        ),
        Dialect(
            "aligned",
            "options.json, an HDF5 file and the matrix of AllenNLP's multilingual ELMo (align.pth)",
            "ElmoModel whose vectors are those of layer 1 in the common space of several languages",
            "hf-elmo convert aligned --options options262.json --weights es_weights.hdf5 --matrix es_best_mapping.pth "
            "--output elmo-es-aligned",
        ),
        Dialect(
            "allennlp-archive",
            "model.tar.gz of a model that AllenNLP trained with an Elmo embedder (config.json and weights.th), or "
            "weights.th alone",
            "ElmoModel with the trained weights of the layers (mixes); the rest of the task's model is left out",
            "hf-elmo convert model.tar.gz --output elmo-of-my-tagger",
        ),
        Dialect(
            "manylangs",
            f"a folder of ELMoForManyLangs: {CONFIG}, {EMBEDDER}, {ENCODER}, char.dic, word.dic and the architecture "
            f"file that {CONFIG} names",
            "ElmoModel that reads words and characters, with the segmenter it expects in the tokenizer",
            "hf-elmo convert 161.zip --output elmo-manylangs-ko --language ko",
        ),
        Dialect(
            "bilm-tf",
            "a TensorFlow checkpoint of bilm-tf's training (model.ckpt-N.index and its data), options.json, and the "
            "vocabulary of the training",
            "ElmoForPreTraining, with the softmax: it scores text and can be trained on; also loads as ElmoModel",
            "hf-elmo convert training --vocab vocab.txt --output elmo-lm",
        ),
    )
}


# What a file is mostly a part of, for people who lack the other parts.
PART_OF = {
    "HDF5 weights": "allennlp",
    "options": "allennlp",
    "torch file": "allennlp-archive",
    "config of AllenNLP": "allennlp-archive",
    "config of ELMoForManyLangs": "manylangs",
    "index of a checkpoint": "bilm-tf",
}

# Models of other programs that are in one of these formats.
VARIANTS = {
    "allennlp": (
        Dialect(
            "allennlp, of simple_elmo and NLPL",
            "options.json, model.hdf5, and vocab.txt or vocab.txt.gz if there is one, mostly in a zip file",
            "ElmoModel with the ids of these words in its tokenizer",
            "hf-elmo convert 210.zip --output elmo-norwegian --language no --segmenter UDPipe",
        ),
        Dialect(
            "allennlp, of proteins (SeqVec)",
            "options.json and an HDF5 file with the weights",
            "ElmoModel whose words are single letters: give a sequence as a list of letters, or with spaces between "
            "them, ' '.join(sequence)",
            "hf-elmo convert seqvec --output seqvec-elmo",
        ),
    )
}


def describe_dialects() -> str:
    """What `hf-elmo convert --list` prints."""
    lines = ["hf-elmo convert SOURCE finds out which of these a file, folder or archive (zip, tar, tar.gz) is:"]
    for dialect in DIALECTS.values():
        for variant in (dialect, *VARIANTS.get(dialect.name, ())):
            lines += ["", variant.name, _paragraph("needs", variant.needs), _paragraph("gives", variant.result)]
            lines.append(f"  example  {variant.example}")
    return "\n".join(lines)


def _paragraph(label: str, text: str) -> str:
    return textwrap.fill(text, 110, initial_indent=f"  {label:<9}", subsequent_indent=" " * 11)


@dataclass(frozen=True)
class Source:
    """Old weights and the dialect they are in.

    Args:
        dialect: One of `DIALECTS`.
        weights: The file with the weights; the folder for `manylangs`; for `bilm-tf` the index, or a folder whose
            file `checkpoint` names it.
        options: The options.json, if the dialect has one and it is there.
        vocabulary: The words, if they are there.
        config: The config.json of AllenNLP, if it is there.
        matrix: The matrix of an aligned model.
    """

    dialect: str
    weights: Path
    options: Path | None = None
    vocabulary: Path | None = None
    config: Path | None = None
    matrix: Path | None = None


# --- What a file is --------------------------------------------------------------------------------------------------


@dataclass
class _Files:
    """The files of a place by what they are."""

    place: Path
    by_kind: dict[str, list[Path]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """Looks into the file."""
        try:
            kind = file_kind(path)
        except ValueError as error:
            self.damaged.append(str(error))
            kind = "damaged"
        self.by_kind.setdefault(kind, []).append(path)

    def of(self, kind: str) -> list[Path]:
        """The files of this kind."""
        return self.by_kind.get(kind, [])

    def __str__(self) -> str:
        """What was found, in a few words."""
        named = [
            f"{kind} ({', '.join(path.name for path in paths[:3])}{', ...' if len(paths) > 3 else ''})"
            for kind, paths in sorted(self.by_kind.items())
            if kind not in ("other", "damaged")
        ]
        others = self.of("other")
        named += [f"{len(others)} other file{'s' if len(others) > 1 else ''} ({_names(others)})"] if others else []
        return "; ".join(named) or "no file"


def file_kind(path: Path) -> str:
    """What a file is, told from its content.

    Raises:
        ValueError: If it seems to be something that it is not.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        begin = file.read(64)
        file.seek(max(size - len(TABLE_END), 0))
        end = file.read()
    if begin.startswith(HDF5_BEGIN):
        return "HDF5 weights" if holds(path, "RNN_0") else "other HDF5"
    if begin.startswith(LEGACY_BEGIN) or _is_torch_zip(path, begin):
        return "torch file"
    if end == TABLE_END and path.suffix == ".index":
        return "index of a checkpoint"
    if begin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and (size <= LARGEST_FILE or path.suffix == ".json"):
        return _json_kind(path)
    if VOCABULARY.fullmatch(path.name):
        return "vocabulary"
    kind = archive_kind(path)
    if kind is None and begin.startswith(GZIP_BEGIN):
        raise ValueError(f"{path} is a gzip file, but a damaged one, or no archive. Get it again.")
    if kind is None and path.suffix in NAMED_SO and not begin.lstrip().startswith((b"{", b"[")):
        raise ValueError(
            f"{path} is no {NAMED_SO[path.suffix]} file, whatever its name says: it begins with {begin[:20]!r}. "
            "Get it again."
        )
    return kind or "other"


def is_archive(path: Path) -> bool:
    """Whether this is an archive that may hold a model, and not weights that torch saved, which is a zip file, too."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        begin = file.read(2)
    return archive_kind(path) is not None and not _is_torch_zip(path, begin)


def _is_torch_zip(path: Path, begin: bytes) -> bool:
    if not begin.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(re.fullmatch(r"[^/]+/data\.pkl", name) for name in archive.namelist())
    except Exception:  # a damaged archive can raise anything; whoever unpacks it says what is wrong
        return False


def _json_kind(path: Path) -> str:
    content = read_options(path)
    if isinstance(content.get("lstm"), dict):
        return "options"
    if content.get("model_type") == "elmo":
        return "config of a model folder"
    if isinstance(content.get("config_path"), str):
        return "config of ELMoForManyLangs"
    if isinstance(content.get("model"), dict):
        return "config of AllenNLP"
    return "other"


def is_wanted(name: PurePosixPath) -> bool:
    """Whether a file of an archive may be part of a model, by its name."""
    if any(part.startswith((".", "__MACOSX")) for part in name.parts):
        return False
    if name.parts[-2:-1] == ("fta",):  # what the config of an AllenNLP archive names
        return name.name.endswith("options_file")
    suffixes = (".json", ".hdf5", ".h5", ".th", ".pt", ".pth", ".bin", ".pkl", ".dic", ".index", ".txt", ".txt.gz")
    if name.parts[-2:-1] == ("vocabulary",):  # that of a task
        return False
    is_data = CHECKPOINT_FILE.fullmatch(name.name) is not None and name.suffix != ".meta"
    return name.name.endswith(suffixes) or name.name == "checkpoint" or is_data


# --- Which dialect ---------------------------------------------------------------------------------------------------


def detect(path: str | os.PathLike[str], dialect: str | None = None, options: Path | None = None) -> Source:
    """Finds out which dialect a file or folder is in, and which file is what.

    Args:
        path: A folder, or one of the files of a model; the others are looked for beside it.
        dialect: The dialect it must be in; by default any.
        options: The options.json to be used; by default the one that is there.

    Raises:
        ValueError: If it is none, or more than one; says what was found and what each dialect needs.
        FileNotFoundError: If there is nothing.
    """
    path = Path(path)
    if path.is_dir():
        files = _look_into(path)
        if options is not None:
            files.by_kind["options"] = [options]
        return _choose(files, [find(files) for find in _finders(dialect)], dialect)
    if not path.exists():
        if path.with_name(f"{path.name}.index").is_file():  # TensorFlow's way to name a checkpoint
            path = path.with_name(f"{path.name}.index")
        else:
            raise FileNotFoundError(f"There is no file or folder {path}.")
    if not path.is_file():
        raise ValueError(f"{path} is neither a file nor a folder.")
    return _detect_beside(path, dialect, options)


def _detect_beside(path: Path, dialect: str | None, options: Path | None) -> Source:
    """The model that a file is part of."""
    checkpoint = CHECKPOINT_FILE.fullmatch(path.name)
    if checkpoint is not None and path.with_name(f"{checkpoint[1]}.index").is_file():
        path = path.with_name(f"{checkpoint[1]}.index")
    files = _look_into(path.parent, first=path)
    kind = next((kind for kind, paths in files.by_kind.items() if path in paths), "other")
    if kind in ("HDF5 weights", "options", "torch file", "index of a checkpoint"):
        files.by_kind[kind] = [path]
    if options is not None:
        files.by_kind["options"] = [options]
    finders: dict[str, list[Callable[[_Files], Source | None]]] = {
        "HDF5 weights": [_find_allennlp],
        "options": [_find_allennlp, _find_aligned, _find_bilm_tf],
        "torch file": [_find_manylangs if is_manylangs(path.parent) else _find_archive],
        "index of a checkpoint": [_find_bilm_tf],
        "config of ELMoForManyLangs": [_find_manylangs],
        "config of AllenNLP": [_find_archive],
    }
    possible = [find for find in finders.get(kind, []) if find in _finders(dialect)]
    if not possible:
        files = _Files(path)
        files.add(path)
    return _choose(files, [find(files) for find in possible], dialect)


def _look_into(folder: Path, first: Path | None = None, depth: int = 0) -> _Files:
    """The files of a folder, or of the only folder in it."""
    files, folders = _Files(folder), []
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX")))
    if len(entries) > LARGEST_FOLDER and first is None:
        raise ValueError(f"{folder} has more than {LARGEST_FOLDER:,} files. Give the folder of one model.")
    for entry in entries[:LARGEST_FOLDER] if first is None else _related(first, entries):
        if entry.is_dir():
            folders.append(entry)
        elif entry.is_file():
            files.add(entry)
    if (
        len(folders) == 1
        and not files.by_kind.keys() - {"other", "damaged"}
        and depth < DEEPEST_FOLDER
        and first is None
    ):
        return _look_into(folders[0], depth=depth + 1)
    return files


def _related(path: Path, entries: list[Path]) -> list[Path]:
    """The file, and those beside it that may belong to it."""
    suffixes = (".json", ".txt", ".txt.gz", ".hdf5", ".index", ".th", ".pth")
    related = [entry for entry in entries if entry != path and entry.name.endswith(suffixes)]
    return [path, *related[:LARGEST_FOLDER]]


def _choose(files: _Files, found: Iterable[Source | None], dialect: str | None) -> Source:
    sources = [source for source in found if source is not None]
    if any(source.dialect == "aligned" for source in sources):  # which is allennlp with one file more
        sources = [source for source in sources if source.dialect != "allennlp"]
    if len(sources) == 1:
        return sources[0]
    if len(sources) > 1:
        ways = " or ".join(f"hf-elmo convert {source.dialect} {files.place}" for source in sources)
        raise ValueError(f"{files.place} holds weights in more than one format: {files}. Say which: {ways}")
    if files.of("config of a model folder"):
        raise ValueError(f"{files.place} is a model folder already; AutoModel.from_pretrained loads it.")
    if files.damaged:
        raise ValueError(f"{files.damaged[0]} Beside it, there is: {files}.")
    likely = [name for kind, name in PART_OF.items() if files.of(kind)] if dialect is None else [dialect]
    needs = "".join(f" {name} needs {DIALECTS[name].needs.partition(';')[0]}." for name in dict.fromkeys(likely))
    raise ValueError(
        f"{files.place} is not recognised. Found: {files}.{needs} 'hf-elmo convert --list' shows the formats "
        f"({', '.join(DIALECTS)}) and what each of them needs."
    )


def _finders(dialect: str | None) -> "list[Callable[[_Files], Source | None]]":
    finders: dict[str, Callable[[_Files], Source | None]] = {
        "allennlp": _find_allennlp,
        "aligned": _find_aligned,
        "allennlp-archive": _find_archive,
        "manylangs": _find_manylangs,
        "bilm-tf": _find_bilm_tf,
    }
    return list(finders.values()) if dialect is None else [finders[dialect]]


def _find_allennlp(files: _Files) -> Source | None:
    options, weights = files.of("options"), files.of("HDF5 weights")
    if not options or not weights:
        return None
    pairs = [(one, other) for one in options for other in weights]
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if _stem(pair[0]) == _stem(pair[1])]
    if len(pairs) != 1:
        raise ValueError(
            f"{files.place} has {len(options)} files of options ({_names(options)}) and {len(weights)} of weights "
            f"({_names(weights)}). Say which: hf-elmo convert allennlp --options FILE --weights FILE"
        )
    return Source("allennlp", pairs[0][1], pairs[0][0], _vocabulary(files))


def _find_aligned(files: _Files) -> Source | None:
    matrices = files.of("torch file")
    if not matrices or any(path.name in TRAINED_WEIGHTS for path in matrices):
        return None
    source = _find_allennlp(files)
    if source is not None and len(matrices) > 1:
        raise ValueError(
            f"{files.place} has {len(matrices)} matrices ({_names(matrices)}). Say which: hf-elmo convert aligned "
            "--options FILE --weights FILE --matrix FILE"
        )
    return source and replace(source, dialect="aligned", matrix=matrices[0])


def _find_archive(files: _Files) -> Source | None:
    candidates = files.of("torch file")
    if is_manylangs(files.place) or not candidates:
        return None
    configs = files.of("config of AllenNLP")
    named = [path for path in candidates if path.name in TRAINED_WEIGHTS]
    if named:
        candidates = sorted(named, key=lambda path: path.name, reverse=True)[:1]  # weights.th before best.th
    elif files.of("HDF5 weights"):  # a matrix beside weights of another format
        return None
    if len(candidates) > 1:
        raise ValueError(
            f"{files.place} has {len(candidates)} files of torch ({_names(candidates)}). Give one of them."
        )
    config = next((path for path in configs if path.name == "config.json" or len(configs) == 1), None)
    return Source("allennlp-archive", candidates[0], config=config)


def _find_manylangs(files: _Files) -> Source | None:
    known = files.of("config of AllenNLP") + files.of("config of a model folder") + files.of("options")
    if not is_manylangs(files.place) or files.place / CONFIG in known:
        return None
    return Source("manylangs", files.place)


def _find_bilm_tf(files: _Files) -> Source | None:
    indexes, options = files.of("index of a checkpoint"), files.of("options")
    if not indexes:
        return None
    if len(indexes) > 1 and not (files.place / "checkpoint").is_file():
        raise ValueError(
            f"{files.place} has {len(indexes)} checkpoints ({_names(indexes)}) and no file 'checkpoint' that names "
            "the newest. Give one of them."
        )
    chosen = [path for path in options if path.name == "options.json"] or options[: len(options) == 1]
    return Source(
        "bilm-tf", indexes[0] if len(indexes) == 1 else files.place, next(iter(chosen), None), _vocabulary(files)
    )


def _vocabulary(files: _Files) -> Path | None:
    found = files.of("vocabulary")
    exact = [path for name in ("vocab.txt.gz", "vocab.txt") for path in found if path.name == name]  # as simple_elmo
    if not exact and len(found) > 1:
        raise ValueError(f"{files.place} has {len(found)} vocabularies ({_names(found)}). Say which with --vocab.")
    return next(iter(exact or found), None)


def _stem(path: Path) -> str:
    return ROLES.sub("", path.stem)


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:5]) + (", ..." if len(paths) > 5 else "")
