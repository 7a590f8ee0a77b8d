# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Model folders ready for the Hub: weights, config, tokenizer, code, card and checksums, or nothing at all."""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

CARD = "README.md"
CHECKSUMS = "SHA256SUMS"
CHECKSUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def save_hub_folder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    card: str,
    overwrite: bool = False,
) -> Path:
    """Writes everything a model needs on the Hub into a new folder, which appears when it is complete.

    Args:
        model: The model; its config and its code are saved with it.
        tokenizer: The tokenizer; its code is saved with it.
        folder: The folder to write.
        card: Text of the model card.
        overwrite: Whether a folder that this function wrote before may be replaced.

    Returns:
        The folder.

    Raises:
        FileExistsError: If there is something else in the folder already.
    """
    with new_folder(folder, overwrite) as temporary:
        save_model_files(model, tokenizer, temporary)
        finish_hub_folder(temporary, card)
    return Path(folder)


def save_model_files(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes weights, config, tokenizer and the code of all three."""
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # its way to say that the disk is full
        raise OSError(f"The weights cannot be written to {folder}: {error}") from error
    tokenizer.save_pretrained(folder)


def finish_hub_folder(folder: Path, card: str) -> None:
    """Adds the model card and the checksums of all files."""
    (folder / CARD).write_text(card, encoding="utf-8")
    finish_folder(folder)


def finish_folder(folder: Path) -> None:
    """Adds the checksums of all files, and lets everyone read all of them who may read that list."""
    write_checksums(folder)
    mode = (folder / CHECKSUMS).stat().st_mode
    for name in _files_below(folder):
        os.chmod(folder / name, mode)  # safetensors makes files that only their owner can read


@contextmanager
def new_folder(folder: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Gives an empty folder to write into, and moves it to its place if all goes well.

    If the block raises, the folder is removed, and what was in its place before is still there, unchanged.

    Args:
        folder: Where the folder will be.
        overwrite: Whether a folder that holds only files listed in its SHA256SUMS may be replaced.

    Raises:
        FileExistsError: If the place is taken; before anything is written.
    """
    target = Path(folder).resolve()
    check_place(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = hidden_sibling(target, "partial")
    temporary.mkdir()
    try:
        yield temporary
        _flush(temporary)
        check_place(target, overwrite)
        _move_into_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_place(folder: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuses a place where something is that must not be lost."""
    folder = Path(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file. Choose another name for the folder.")
    if not any(folder.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{folder} exists and is not empty. Choose another folder, or overwrite this one: --overwrite of the "
            "commands, overwrite=True in Python."
        )
    try:
        known = {*_read_checksums(folder), CHECKSUMS}
    except (FileNotFoundError, ValueError):
        known = set()
    foreign = sorted(set(_files_below(folder, with_hidden=True)) - known)
    if foreign:
        raise FileExistsError(
            f"{folder} holds {foreign[0]!r}, which was not written by hf-elmo (it is not in {CHECKSUMS}), so the "
            "folder is not overwritten. Move it away, or choose another folder."
        )


def write_checksums(folder: Path) -> None:
    """Writes SHA256SUMS, which `sha256sum -c` and `verify_checksums` read, for all files below the folder."""
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in _files_below(folder) if name != CHECKSUMS]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def verify_checksums(folder: str | os.PathLike[str]) -> None:
    """Checks every file of the folder against SHA256SUMS.

    Hidden files, such as `.gitattributes`, are not looked at.

    Raises:
        ValueError: If a file differs, is missing, or is not in the list; names it.
        FileNotFoundError: If the folder has no SHA256SUMS.
    """
    folder = Path(folder)
    checksums = _read_checksums(folder)
    if not checksums:
        raise ValueError(f"{folder / CHECKSUMS} lists no files. Get the folder again.")
    for name, expected in checksums.items():
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing, but {CHECKSUMS} lists it. Get the folder again.")
        found = sha256_of(folder / name)
        if found != expected:
            raise ValueError(
                f"{folder / name} has the SHA-256 {found}, but {CHECKSUMS} says {expected}: the file is damaged or "
                "was changed. Get it again."
            )
    for name in _files_below(folder):
        if name not in checksums and name != CHECKSUMS:
            raise ValueError(f"{folder / name} is not listed in {CHECKSUMS}. Remove it if it does not belong there.")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read_checksums(folder: Path) -> dict[str, str]:
    """Checksum of each file by its name in the folder."""
    path = folder / CHECKSUMS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {CHECKSUMS}, so its files cannot be checked.")
    checksums: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        parts = CHECKSUM_LINE.fullmatch(line)
        if parts is None or Path(parts[2]).is_absolute() or ".." in Path(parts[2]).parts:
            raise ValueError(f"{path}: line {number} is not a SHA-256 and the name of a file in the folder.")
        checksums[parts[2]] = parts[1]
    return checksums


def _files_below(folder: Path, with_hidden: bool = False) -> list[str]:
    """Names of all files, relative to the folder and in order; links to folders count as files."""
    names = []
    for parent, folders, files in os.walk(folder):
        if not with_hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
            files = [name for name in files if not name.startswith(".")]
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        names += [Path(parent, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(names)


def _move_into_place(temporary: Path, target: Path) -> None:
    """Renames the new folder to its place; a folder that is there is put aside first, and back if that fails."""
    if not target.exists():
        os.rename(temporary, target)
    else:
        old = hidden_sibling(target, "old")
        os.rename(target, old)
        try:
            os.rename(temporary, target)
        except BaseException:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _flush_entry(target.parent)


def hidden_sibling(target: Path, kind: str) -> Path:
    """A free name beside the target for something that is not, or no longer, complete."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{kind}")


def _flush(folder: Path) -> None:
    """Makes sure that the files are on the disk before the folder gets its name."""
    for name in _files_below(folder, with_hidden=True):
        with open(folder / name, "rb+") as file:
            os.fsync(file.fileno())
    for parent, _, _ in os.walk(folder):
        _flush_entry(Path(parent))


def _flush_entry(folder: Path) -> None:
    if os.name != "posix":  # folders cannot be opened elsewhere
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
