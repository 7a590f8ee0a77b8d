# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Archives (zip, tar, tar.gz) and gzip files, unpacked without trusting them.

The name of a member can lead out of the folder, a member can be a link to anything, and a few bytes can stand for
terabytes. So every member of an archive is looked at first, one that no honest archive has is a reason to refuse the
whole, and only regular files that the caller asks for are written, into a folder that is private and new.
"""

import errno
import gzip
import io
import os
import re
import stat
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

LARGEST_TOTAL = 2**35  # bytes of all files of an archive; a published language model with its optimizer has 2^32
LARGEST_RATIO = 100  # bytes for each byte of the archive; weights hardly shrink, text to a third
FREE_BYTES = 2**24  # so many may come out of any archive, as no one is hurt by them
LARGEST_COUNT = 10_000  # members
LONGEST_NAME = 1_000  # bytes of a whole name; a part of it can have 255 on most disks
LONGEST_PART = 255
LARGEST_READ = 2**20  # bytes that are asked for at once; a larger header of a tar file is an attack
LARGEST_TEXT = 2**28  # bytes of a text file in gzip form; the vocabulary of the original model has 2^23

GZIP_BEGIN = b"\x1f\x8b"
ZIP_BEGINS = (b"PK\x03\x04", b"PK\x05\x06")  # the second one is empty
TAR_MARK, TAR_MARK_AT = b"ustar", 257

NOT_HONEST = "No honest archive has that: get it from where you trust it."
FILLS_A_DISK = "It seems to be made to fill a disk; if it is not, unpack it, and give the folder."

ArchiveKind = Literal["zip", "tar", "tar.gz"]


class _RefusedError(ValueError):
    """A sentence of ours about an archive, told apart from the errors of the libraries that read it."""


class _Member(NamedTuple):
    """A regular file in an archive."""

    name: str
    size: int
    handle: Any  # what the library calls it


def archive_kind(path: str | os.PathLike[str]) -> ArchiveKind | None:
    """The kind of an archive, told from its content; `None` if the file is none."""
    with open(path, "rb") as file:
        begin = file.read(TAR_MARK_AT + len(TAR_MARK))
    if begin.startswith(ZIP_BEGINS):
        return "zip"
    if begin[TAR_MARK_AT:] == TAR_MARK:
        return "tar"
    if begin.startswith(GZIP_BEGIN):
        try:
            with gzip.open(path) as unpacked:
                begin = unpacked.read(TAR_MARK_AT + len(TAR_MARK))
        except (EOFError, OSError, ValueError, zlib.error):
            return None
        return "tar.gz" if begin[TAR_MARK_AT:] == TAR_MARK else None
    return None


@contextmanager
def unpacked_archive(
    path: str | os.PathLike[str], wanted: Callable[[PurePosixPath], bool] = lambda name: True
) -> Iterator[Path]:
    """Gives a private temporary folder with the files of an archive, which is removed in the end.

    Args:
        path: The archive. It may come from anyone.
        wanted: Which files are written, by their names in the archive.

    Raises:
        ValueError: If anything about the archive is not as it must be; names the archive and the member.
    """
    with tempfile.TemporaryDirectory(prefix="hf-elmo-") as folder:
        unpack(path, folder, wanted)
        yield Path(folder)


def unpack(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    wanted: Callable[[PurePosixPath], bool] = lambda name: True,
) -> list[Path]:
    """Writes the files of an archive into an empty folder, as long as its members are what an honest archive has.

    Args:
        path: The archive. It may come from anyone.
        folder: The folder, which exists.
        wanted: Which files are written, by their names in the archive.

    Returns:
        The files that were written.

    Raises:
        ValueError: If anything about the archive is not as it must be; names the archive and the member.
        FileNotFoundError: If there is no such file.
    """
    path, folder = Path(path), Path(folder)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file. Give the path of an archive.")
    kind = archive_kind(path)
    if kind is None:
        raise ValueError(f"{path} is no zip, tar or tar.gz archive.")
    limit = min(LARGEST_TOTAL, LARGEST_RATIO * path.stat().st_size + FREE_BYTES)
    with _errors_of_archives(path):
        if kind == "zip":
            return _unpack_zip(path, folder, wanted, limit)
        return _unpack_tar(path, folder, wanted, limit, compressed=kind == "tar.gz")


def unpack_gzip(path: str | os.PathLike[str], target: str | os.PathLike[str], largest: int = LARGEST_TEXT) -> None:
    """Writes what a gzip file holds, such as a vocab.txt.gz, into a new file.

    Raises:
        ValueError: If the file is damaged, or holds more than `largest` bytes; names the file.
    """
    path, target = Path(path), Path(target)
    with _errors_of_archives(path), gzip.open(path) as source, open(target, "xb") as file:
        left = largest
        while block := source.read(min(LARGEST_READ, left + 1)):
            left -= len(block)
            if left < 0:
                raise _RefusedError(f"{path} holds more than {largest:,} bytes, which no vocabulary has.")
            file.write(block)


# --- Zip -------------------------------------------------------------------------------------------------------------


def _unpack_zip(path: Path, folder: Path, wanted: Callable[[PurePosixPath], bool], limit: int) -> list[Path]:
    with zipfile.ZipFile(path) as archive:
        members = _checked_members(path, _zip_members(path, archive.infolist()))
        chosen = [member for member in members if wanted(PurePosixPath(member.name))]
        total = 0
        for member in chosen:
            total += member.size
            if total > limit:
                raise _too_large(path, member.name, limit)
        return [_write(path, folder, member, archive.open(member.handle)) for member in chosen]


def _zip_members(path: Path, entries: Iterable[zipfile.ZipInfo]) -> Iterator[_Member | str]:
    for entry in entries:
        name = entry.orig_filename  # not yet cut at a zero byte, as zipfile does
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if stat.S_ISLNK(kind):
            raise _refused(path, name, "is a symbolic link. Only plain files and folders are unpacked.")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(path, name, "is a device, a pipe or the like. Only plain files and folders are unpacked.")
        if name.endswith("/"):
            yield name[:-1]
            continue
        if entry.flag_bits & 0x1:
            raise _refused(path, name, "is encrypted. Unpack the archive with its password, and give the folder.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(path, name, "is compressed in an unusual way. Unpack the archive, and give the folder.")
        yield _Member(name, entry.file_size, entry)


# --- Tar -------------------------------------------------------------------------------------------------------------


def _unpack_tar(
    path: Path, folder: Path, wanted: Callable[[PurePosixPath], bool], limit: int, compressed: bool
) -> list[Path]:
    written = []
    with open(path, "rb") as raw:
        stream = _Bounded(path, gzip.GzipFile(fileobj=raw) if compressed else raw, limit)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in _checked_members(path, _tar_members(path, archive)):
                if wanted(PurePosixPath(member.name)):
                    written.append(_write(path, folder, member, archive.extractfile(member.handle)))
        while stream.read(LARGEST_READ):  # to the end, where gzip has its checksum
            pass
    return written


def _tar_members(path: Path, archive: tarfile.TarFile) -> Iterator[_Member | str]:
    for entry in archive:
        name = entry.name
        if entry.issym() or entry.islnk():
            kind = "symbolic" if entry.issym() else "hard"
            raise _refused(path, name, f"is a {kind} link. Only plain files and folders are unpacked.")
        if entry.issparse():
            raise _refused(path, name, f"is a sparse file, and a few bytes may unpack to terabytes. {NOT_HONEST}")
        if entry.isdir():
            if name not in (".", ""):
                yield name
        elif entry.isreg():
            yield _Member(name, entry.size, entry)
        else:
            raise _refused(path, name, "is a device, a pipe or the like. Only plain files and folders are unpacked.")


class _Bounded(io.RawIOBase):
    """A stream that refuses to be read beyond a limit, and to give much at once."""

    def __init__(self, path: Path, stream: IO[bytes] | gzip.GzipFile, limit: int):
        self.path, self.stream, self.limit = path, stream, limit

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_READ:
            raise _RefusedError(f"{self.path} has a header of {size:,} bytes, which no member needs. {NOT_HONEST}")
        content = self.stream.read(size)
        self._check(self.stream.tell())
        return content

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._check(position)
        return self.stream.seek(position, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def _check(self, position: int) -> None:
        if position > self.limit:
            raise _RefusedError(
                f"{self.path} unpacks to more than {self.limit:,} bytes, which is the most for an archive of its "
                f"size. {FILLS_A_DISK}"
            )


# --- Names and files -------------------------------------------------------------------------------------------------


def _checked_members(path: Path, members: Iterable[_Member | str]) -> Iterator[_Member]:
    """The files, after a check of their names and of those of folders; no two may be the same on any disk."""
    files: set[str] = set()
    folders: set[str] = set()
    for number, member in enumerate(members):
        if number >= LARGEST_COUNT:
            raise _RefusedError(f"{path} has more than {LARGEST_COUNT:,} members, which no model has. {NOT_HONEST}")
        is_file = isinstance(member, _Member)
        name = member.name if isinstance(member, _Member) else member
        parts = _checked_name(path, name)
        # What differs only in case, or in how accents are written, is the same on some disks.
        keys = [unicodedata.normalize("NFKC", "/".join(parts[:end])).casefold() for end in range(1, len(parts) + 1)]
        above, own = keys[:-1], keys[-1]
        if own in files or (is_file and own in folders) or not files.isdisjoint(above):
            raise _refused(path, name, f"is there more than once, or is a file and a folder. {NOT_HONEST}")
        folders.update(above)
        (files if is_file else folders).add(own)
        if isinstance(member, _Member):
            yield member._replace(name="/".join(parts))


def _checked_name(path: Path, name: str) -> list[str]:
    """The parts of a name that stays inside the folder on every system."""
    if name.startswith(("/", "\\")) or re.match("[A-Za-z]:", name):
        raise _refused(path, name, f"has an absolute name, which would lead out of the folder. {NOT_HONEST}")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in re.split(r"[/\\]", name):
        raise _refused(path, name, f"has '..' in its name, which would lead out of the folder. {NOT_HONEST}")
    if not parts or re.search(r"[\x00-\x1f\x7f\\:]", name):
        raise _refused(path, name, "has a name that is empty, or with a control character, a backslash or a colon.")
    try:
        sizes = [len(part.encode("utf-8")) for part in parts]
    except UnicodeEncodeError:
        raise _refused(path, name, "has a name that is not UTF-8.") from None
    if max(sizes) > LONGEST_PART or sum(sizes) + len(sizes) > LONGEST_NAME:
        raise _refused(path, name, f"has a name of {sum(sizes):,} bytes, which is too long.")
    return parts


def _write(path: Path, folder: Path, member: _Member, source: IO[bytes] | None) -> Path:
    target = folder.joinpath(*member.name.split("/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    with source or io.BytesIO() as content, open(target, "xb") as file:
        while block := content.read(min(LARGEST_READ, left + 1)):
            left -= len(block)
            if left < 0:
                break
            file.write(block)
    if left != 0:
        raise _refused(path, member.name, f"has not the {member.size:,} bytes that the archive says.")
    return target


def _too_large(path: Path, name: str, limit: int) -> _RefusedError:
    return _refused(
        path,
        name,
        f"makes the files more than {limit:,} bytes, which is the most for an archive of its size. {FILLS_A_DISK}",
    )


def _refused(path: Path, name: str, what: str) -> _RefusedError:
    shown = name if len(name) <= 200 else f"{name[:200]}..."
    return _RefusedError(f"{path}: the member {shown!r} {what}")


@contextmanager
def _errors_of_archives(path: Path) -> Iterator[None]:
    """Turns whatever the libraries raise into a ValueError that names the archive; a full disk stays what it is."""
    try:
        yield
    except (_RefusedError, MemoryError):
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # the second one: the archive names a place that cannot be
            raise
        raise _damaged(path, error) from error
    except Exception as error:  # a damaged or hostile archive can raise anything
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    reason = str(error).partition("\n")[0][:300]
    return _RefusedError(f"{path} is damaged or incomplete: get it again. ({type(error).__name__}: {reason})")
