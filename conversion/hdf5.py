# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""HDF5 weight files, read without trusting them.

HDF5 is more than a container of arrays. A name can lead to another file, data can lie in other files or be assembled
from them, a few bytes can stand for terabytes, and h5py follows all of it without asking. So nothing is looked up by
its full name here: the caller says which arrays the file must hold, and the reader walks there link by link, refuses
whatever is not a plain array inside this file, and reads only when everything has been checked.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

REWRITE = "Rewrite the file with `h5repack -f NONE -l CONTI old.hdf5 new.hdf5`."


class MissingDatasetError(ValueError):
    """The file does not hold an array it should hold.

    Args:
        message: The sentence for the user.
        dataset: Name of the array.
    """

    def __init__(self, message: str, dataset: str):
        super().__init__(message)
        self.dataset = dataset


class _RefusedError(ValueError):
    """A sentence of ours about a file, told apart from the errors of the HDF5 library."""


def read_hdf5(path: str | os.PathLike[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Reads exactly the float32 arrays of `shapes` from a file that holds nothing else.

    Args:
        path: The file. It may come from anyone.
        shapes: Shape of each array by its full name, such as `CNN/W_cnn_0`.

    Returns:
        The arrays by name, in the order of `shapes`, all finite.

    Raises:
        ValueError: If anything about the file is not as it must be; names the file and the dataset.
        FileNotFoundError: If there is no such file.
        ImportError: If h5py is not installed.
    """
    path, first = Path(path), next(iter(shapes))
    size = _size_of_regular_file(path)
    needed = sum(_bytes_of(shape) for shape in shapes.values())
    if needed > size:
        raise ValueError(
            f"{path} has {size:,} bytes, but its arrays, from {_quoted(first)} on, need {needed:,}. Is the "
            "file complete, and does it belong to these options?"
        )
    h5py = import_h5py()
    with _errors_of_hdf5(path, first), h5py.File(path, "r", locking="best-effort") as file:
        root = h5py.h5g.open(file.id, b"/")
        datasets = dict(_walk(h5py, path, root, "", shapes, {_address(h5py, root): "/"}))
        for name, shape in shapes.items():
            with _errors_of_hdf5(path, name):
                _check_dataset(h5py, path, name, datasets[name], shape, size)
        return {name: _read_dataset(h5py, path, name, datasets[name], shapes[name]) for name in shapes}


def holds(path: str | os.PathLike[str], name: str) -> bool:
    """Whether the file has something of this full name, such as `CNN_proj/W_proj`; no other file is looked into.

    Raises:
        ValueError: If it is no HDF5 file.
        FileNotFoundError: If there is no such file.
        ImportError: If h5py is not installed.
    """
    path = Path(path)
    _size_of_regular_file(path)
    h5py = import_h5py()
    with _errors_of_hdf5(path, name), h5py.File(path, "r", locking="best-effort") as file:
        group = h5py.h5g.open(file.id, b"/")
        *parents, last = name.encode().split(b"/")
        for link in parents:
            if not group.links.exists(link) or group.links.get_info(link).type != h5py.h5l.TYPE_HARD:
                return False
            group = h5py.h5o.open(group, link)
            if not isinstance(group, h5py.h5g.GroupID):
                return False
        return bool(group.links.exists(last))


def write_hdf5(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays under their full names into a new file, which appears under its name when it is complete."""
    path = Path(path)
    h5py = import_h5py()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with h5py.File(temporary, "w-") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _walk(
    h5py: Any, path: Path, group: Any, prefix: str, shapes: Mapping[str, Any], seen: dict[Any, str]
) -> Iterator[tuple[str, Any]]:
    """Opens the datasets of `shapes` below `group`, one hard link after the other, and refuses everything else.

    Args:
        prefix: Full name of the group, with a slash at its end; empty for the root.
        shapes: The names below this group, relative to it.
        seen: Where each object was found first, by its address. Meeting one again is a loop or a second name.
    """
    children: dict[str, dict[str, Any]] = {}
    for name, shape in shapes.items():
        child, _, rest = name.partition("/")
        children.setdefault(child, {})[rest] = shape

    for child, below in children.items():
        name = prefix + child
        wanted = next(f"{name}/{rest}" if rest else name for rest in below)
        with _errors_of_hdf5(path, wanted):
            link = child.encode()
            if not group.links.exists(link):
                raise MissingDatasetError(
                    f"{path} has no dataset {_quoted(wanted)}{_there_instead(group, prefix, children)}. "
                    "Does the file belong to these options?",
                    wanted,
                )
            if group.links.get_info(link).type != h5py.h5l.TYPE_HARD:
                raise _RefusedError(
                    f"{path}: {_on_the_way(name, wanted)} is a soft or external link. Links are not followed; the "
                    "arrays must be in the file itself."
                )
            opened = h5py.h5o.open(group, link)
            address = _address(h5py, opened)
            if address in seen:
                raise _RefusedError(
                    f"{path}: {_on_the_way(name, wanted)} is a loop or a second name: it is the same object as "
                    f"{_quoted(seen[address])}. Every array must have its own data."
                )
            seen[address] = name
            is_dataset = "" in below
            if not isinstance(opened, h5py.h5d.DatasetID if is_dataset else h5py.h5g.GroupID):
                raise _RefusedError(
                    f"{path}: {_on_the_way(name, wanted)} is not a {'dataset' if is_dataset else 'group'}, which it "
                    "must be. Does the file belong to these options?"
                )
        if is_dataset:
            yield name, opened
        else:
            yield from _walk(h5py, path, opened, f"{name}/", below, seen)

    extra = _first_unexpected(group, children)
    if extra is not None:
        raise _RefusedError(
            f"{path} holds {_quoted(prefix + extra)}, which is no part of a model with these options. "
            "Nothing is left out silently: check that the options and the weights belong together."
        )


def _check_dataset(h5py: Any, path: Path, name: str, dataset: Any, shape: tuple[int, ...], file_size: int) -> None:
    """Refuses a dataset that is not a plain float32 array of this shape, all of whose bytes are in the file.

    The layout comes first: merely asking a virtual dataset for its shape opens the files it is made of.
    """
    properties = dataset.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.VIRTUAL:
        raise _refused(path, name, "is virtual, put together from other files. The array must be in the file itself.")
    if properties.get_external_count():
        raise _refused(path, name, "keeps its data in another file. The array must be in the file itself.")
    if properties.get_nfilters():
        raise _refused(path, name, f"is compressed or filtered, and a few bytes may unpack to terabytes. {REWRITE}")
    if layout not in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT):
        raise _refused(path, name, f"is stored in chunks; only arrays in one piece are read. {REWRITE}")

    kind = dataset.get_type()
    if not any(kind == allowed for allowed in (h5py.h5t.IEEE_F32LE, h5py.h5t.IEEE_F32BE)):
        raise _refused(path, name, f"holds {_describe_type(kind)}; only float32 is read, which rounds nothing.")
    space = dataset.get_space()
    if space.get_simple_extent_type() != h5py.h5s.SIMPLE:
        raise _refused(path, name, f"is a scalar or empty; an array of shape {shape} should be there.")
    found = space.get_simple_extent_dims()
    if found != shape:
        raise _refused(path, name, f"has shape {found}; the options ask for {shape}. Do they belong together?")

    needed, stored, offset = _bytes_of(shape), dataset.get_storage_size(), dataset.get_offset()
    in_file = layout == h5py.h5d.COMPACT or (offset is not None and offset + needed <= file_size)
    if stored != needed or not in_file:
        raise _refused(path, name, f"needs {needed:,} bytes, but they are not all in the file. Is the file complete?")


def _read_dataset(h5py: Any, path: Path, name: str, dataset: Any, shape: tuple[int, ...]) -> np.ndarray:
    with _errors_of_hdf5(path, name):
        array = np.empty(shape, np.float32)
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
        broken = array.size - int(np.isfinite(array).sum())
        if broken:
            raise _refused(
                path, name, f"has {broken:,} of {array.size:,} values that are NaN or infinite. Get the file again."
            )
        return array


def _size_of_regular_file(path: Path) -> int:
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file. Give the path of an HDF5 weight file.")
    return status.st_size


def _bytes_of(shape: tuple[int, ...]) -> int:
    size = np.dtype(np.float32).itemsize
    for length in shape:
        size *= length
    return size


def _address(h5py: Any, opened: Any) -> Any:
    return h5py.h5o.get_info(opened).addr


def _first_unexpected(group: Any, expected: Mapping[str, Any]) -> str | None:
    """The first name in the group that is not expected; looks at one name more than are expected, at most."""

    def unexpected(link: bytes) -> tuple[str] | None:
        name = link.decode("utf-8", errors="backslashreplace")
        return None if name in expected else (name,)  # in a tuple, because an empty name would not stop the iteration

    found, _ = group.links.iterate(unexpected)
    return None if found is None else found[0]


def _there_instead(group: Any, prefix: str, expected: Mapping[str, Any]) -> str:
    extra = _first_unexpected(group, expected)
    return "" if extra is None else f", but has {_quoted(prefix + extra)}"


def _describe_type(kind: Any) -> str:
    try:
        return f"values of type {kind.dtype}"
    except Exception:  # a type that numpy does not have
        return "values of another type"


def _quoted(name: str) -> str:
    """The name as a short literal: names in a file can be long and hold anything."""
    return repr(name if len(name) <= 200 else f"{name[:200]}...")


def _on_the_way(name: str, wanted: str) -> str:
    return _quoted(name) if name == wanted else f"{_quoted(name)}, on the way to the dataset {_quoted(wanted)},"


def _refused(path: Path, name: str, what: str) -> _RefusedError:
    return _RefusedError(f"{path}: the dataset {_quoted(name)} {what}")


@contextmanager
def _errors_of_hdf5(path: Path, name: str) -> Iterator[None]:
    """Turns whatever the HDF5 library raises into a ValueError that names the file and the dataset."""
    try:
        yield
    except (_RefusedError, MissingDatasetError, MemoryError):
        raise
    except Exception as error:
        raise _RefusedError(
            f"The HDF5 library cannot read the dataset {_quoted(name)} of {path}. The file is damaged, incomplete or "
            f"no HDF5 file: get it again. ({type(error).__name__}: {error})"
        ) from error


def import_h5py() -> Any:
    """h5py, or an error that says how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError('HDF5 weight files need h5py. Install it with `pip install "hf-elmo[convert]"`.') from error
    return h5py
