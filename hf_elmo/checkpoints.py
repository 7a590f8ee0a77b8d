# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run: each one is whole or is not there, and the newest one that is whole is found again.

A checkpoint is a folder whose SHA256SUMS lists all of its files. It is written beside its place under a hidden name,
flushed to the disk and then renamed, so that a run may be killed at any moment.
"""

import json
import logging
import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .hub import finish_folder, hidden_sibling, new_folder, verify_checksums

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

LOCK = ".lock"
CHECKPOINT = re.compile(r"checkpoint-([0-9]{9}|[1-9][0-9]{9,})")
LEFTOVER = re.compile(r"\.checkpoint-[0-9]{9,}\.[0-9a-f]{8}\.(partial|old)")  # the names of hub.hidden_sibling
DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.bool),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}


# --- Trees of tensors and plain values -------------------------------------------------------------------------------


def save_tree(folder: Path, name: str, tree: Any) -> None:
    """Writes nested dicts, lists and tuples of tensors and plain values as `name.json` and `name.safetensors`.

    Plain values are str, int, float, bool and None; keys of dicts are str or int. Subclasses of these are refused,
    because they would come back as something else. Tensors that share memory come back apart, and without gradients.

    Raises:
        ValueError: If the tree holds anything else; names the place. Nothing is written then.
        OSError: If a file cannot be written; names it.
    """
    tensors: dict[str, torch.Tensor] = {}
    try:
        text = json.dumps(_encode(tree, "tree", tensors), allow_nan=False)
    except RecursionError:
        raise ValueError("The tree holds itself, or is nested too deeply to be saved.") from None
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    path = folder / f"{name}.safetensors"
    try:
        save_file(_without_shared_memory(tensors), path)
    except SafetensorError as error:  # its way to say that the disk is full
        raise OSError(f"{path} cannot be written: {error}") from error


def load_tree(folder: Path, name: str) -> Any:
    """Reads what `save_tree` wrote: the same types, keys and values, with the tensors on the CPU.

    Raises:
        ValueError: If a file is malformed, or the tensors are not those of the tree; names the file.
        FileNotFoundError: If one of the two files is missing.
    """
    structure, tensors = folder / f"{name}.json", folder / f"{name}.safetensors"
    try:
        encoded = json.loads(structure.read_bytes().decode("utf-8"), parse_constant=_refuse_constant)
        reader = _TensorReader(tensors)
        tree = _decode(encoded, reader)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{structure} cannot be read as a saved tree: {error}") from error
    if reader.names:
        raise ValueError(f"{tensors} holds {min(reader.names)!r}, which is not part of the tree in {structure}.")
    return tree


def _encode(value: Any, place: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The value as JSON has it; the tensors are collected by their places in the tree."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is list or kind is tuple:
        items = [_encode(item, f"{place}[{index}]", tensors) for index, item in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        return {
            "dict": [[_checked_key(key, place), _encode(value[key], f"{place}[{key!r}]", tensors)] for key in value]
        }
    if kind is torch.Tensor:
        tensors[place] = _dense_on_cpu(value, place)
        return {"tensor": place}
    raise ValueError(
        f"{place} is of type {kind.__module__}.{kind.__qualname__}, which cannot be saved. Allowed are dict, list, "
        "tuple, torch.Tensor, str, int, float, bool and None themselves, not their subclasses."
    )


def _checked_key(key: Any, place: str) -> str | int:
    if type(key) not in (str, int):
        raise ValueError(f"{place} has the key {key!r}, which cannot be saved. Keys are str or int.")
    return key


def _dense_on_cpu(tensor: torch.Tensor, place: str) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in DTYPES:
        raise ValueError(
            f"{place} is a tensor of {tensor.dtype} and {tensor.layout} on {tensor.device}, which cannot be saved. "
            "Save a dense tensor of a type that safetensors knows."
        )
    return tensor.detach().cpu().resolve_neg().contiguous()


def _without_shared_memory(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies the tensors whose memory another one has already brought in."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return apart


class _TensorReader:
    """Gives each tensor of a safetensors file once; `names` are those not yet given."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing.")
        self._path = path
        try:
            with safe_open(path, "pt") as file:
                self.names = set(file.keys())
        except SafetensorError as error:
            raise ValueError(f"{path} is malformed: {error}") from error

    def read(self, name: Any) -> torch.Tensor:
        """The tensor, in memory of its own; otherwise it would lie in the file, which a run may remove later."""
        if name not in self.names:
            raise ValueError(f"{self._path} has no tensor {name!r}, or the tree has it twice.")
        self.names.remove(name)
        with safe_open(self._path, "pt") as file:  # opened each time: what is copied need not stay mapped
            return file.get_tensor(name).clone()


def _decode(encoded: Any, reader: _TensorReader) -> Any:
    if isinstance(encoded, list):
        return [_decode(item, reader) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    match encoded:
        case {"tensor": str(name), **rest} if not rest:
            return reader.read(name)
        case {"float": "inf" | "-inf" | "nan" as value, **rest} if not rest:
            return float(value)
        case {"tuple": [*items], **rest} if not rest:
            return tuple(_decode(item, reader) for item in items)
        case {"dict": [*pairs], **rest} if not rest:
            return _decode_pairs(pairs, reader)
    raise ValueError(f"{json.dumps(encoded)[:80]} is not a tensor, float, tuple or dict.")


def _decode_pairs(pairs: list[Any], reader: _TensorReader) -> dict[str | int, Any]:
    decoded: dict[str | int, Any] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int) or pair[0] in decoded:
            raise ValueError(f"{json.dumps(pair)[:80]} is not a new key and its value.")
        decoded[pair[0]] = _decode(pair[1], reader)
    return decoded


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number.")


# --- The folder of a run ---------------------------------------------------------------------------------------------


class CheckpointFolder:
    """The checkpoints of one run, `checkpoint-<step>`, of which the newest valid ones are kept.

    Args:
        folder: Where the checkpoints are; made by `lock` if it is missing.
        keep: How many valid checkpoints stay, at least 1.

    Example:
        ```python
        checkpoints = CheckpointFolder("run")
        with checkpoints.lock():
            newest = checkpoints.newest()
            state = load_tree(newest, "state") if newest else {"step": 0}
            checkpoints.save(state["step"] + 1, lambda folder: save_tree(folder, "state", {"step": state["step"] + 1}))
        ```
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2):
        if keep < 1:
            raise ValueError(f"keep is {keep}, but at least 1 checkpoint must be kept.")
        self.folder = Path(folder).resolve()
        self.keep = keep
        self._known: set[int] = set()  # steps that were found valid, or written, by this object
        self._current: int | None = None  # the step that was saved or found last
        self._descriptor: int | None = None  # of the lock, while it is held

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other runs out of the folder; the lock ends with the block, or with the process, however it ends.

        Raises:
            BlockingIOError: If another run holds the lock; names its process and host.
            OSError: If the folder cannot be made or locked.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = _acquire(self.folder)
        _holders.add(self)
        try:
            yield
        finally:
            _holders.discard(self)
            self._release()

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Writes the checkpoint of a step, then removes the oldest ones; only for the holder of the lock.

        The step that was saved or found last is not written again. A damaged checkpoint of the step is replaced.

        Args:
            step: How far the run is.
            write: Writes the files into the folder it is given.

        Returns:
            The folder of the checkpoint, which is complete and on the disk.

        Raises:
            OSError: If it cannot be written. The older checkpoints are still there.
            FileExistsError: If there is a valid one of this or a later step that this run did not continue from.
        """
        if self._descriptor is None:
            raise RuntimeError(f"Checkpoints can be saved to {self.folder} only inside `with checkpoints.lock():`.")
        path = self._path(step)
        if step == self._current and _problem(path) is None:
            return path
        self._check_that_step_is_new(step)
        self._remove_leftovers()
        try:
            _write(path, write)
        except (OSError, SafetensorError) as error:
            raise OSError(
                f"The checkpoint {path} cannot be written: {error}. Older checkpoints are unchanged. Make sure that "
                "there is room and permission to write, and run again to continue from the newest one."
            ) from error
        self._current = step
        self._known.add(step)
        self._remove_old()
        return path

    def newest(self) -> Path | None:
        """The newest valid checkpoint, or None if there never was one; says which ones were skipped, and why.

        Raises:
            ValueError: If there are checkpoints, but none is valid; lists them.
        """
        problems: dict[Path, str] = {}
        for step in reversed(self.steps()):
            path = self._path(step)
            problem = _problem(path)
            if problem is None:
                for skipped, reason in problems.items():
                    logger.warning("The checkpoint %s is skipped: %s Taking %s instead.", skipped, reason, path)
                self._current = step
                self._known.add(step)
                return path
            problems[path] = problem
        if problems:
            listed = "".join(f"\n  {path.name}: {problem}" for path, problem in problems.items())
            raise ValueError(
                f"No checkpoint in {self.folder} is valid:{listed}\n"
                "Restore one, or choose another folder to begin anew."
            )
        return None

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, valid or not, in order."""
        if not self.folder.is_dir():
            return []
        found = (CHECKPOINT.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def _path(self, step: int) -> Path:
        if step < 0:
            raise ValueError(f"The step is {step}, but steps are counted from 0.")
        return self.folder / f"checkpoint-{step:09d}"

    def _check_that_step_is_new(self, step: int) -> None:
        """Another run's checkpoint would be lost, or be taken for the newest one."""
        for other in self.steps():
            if other >= step and _problem(self._path(other)) is None:
                raise FileExistsError(
                    f"{self._path(other)} is a valid checkpoint, so step {step} cannot be saved now. Continue from "
                    "it, or choose another folder for this run."
                )

    def _remove_leftovers(self) -> None:
        """Removes what a killed run left under hidden names."""
        for name in os.listdir(self.folder):
            if LEFTOVER.fullmatch(name):
                _try_to_remove(self.folder / name, "A leftover of an earlier run")

    def _remove_old(self) -> None:
        """Removes everything older than the newest valid checkpoints that are to be kept."""
        kept = 0
        for step in reversed(self.steps()):
            path = self._path(step)
            if kept >= self.keep:
                _try_to_remove(path, "An old checkpoint")
            elif step in self._known or _problem(path) is None:
                self._known.add(step)
                kept += 1

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write(path: Path, write: Callable[[Path], None]) -> None:
    if os.path.lexists(path):
        _remove(path)  # it is damaged
    with new_folder(path) as temporary:
        write(temporary)
        if not any(temporary.iterdir()):
            raise ValueError(f"Nothing was written for the checkpoint {path}.")
        finish_folder(temporary)


def _problem(path: Path) -> str | None:
    """What is wrong with a checkpoint."""
    if not path.is_dir():
        return "It is not a folder."
    try:
        verify_checksums(path)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _try_to_remove(path: Path, what: str) -> None:
    try:
        _remove(path)
    except OSError as error:
        logger.warning("%s, %s, cannot be removed: %s. It takes up room; remove it yourself.", what, path, error)


def _remove(path: Path) -> None:
    """Removes a file or folder; renamed first, so that half a checkpoint is never taken for one."""
    hidden = path
    if CHECKPOINT.fullmatch(path.name):
        hidden = hidden_sibling(path, "old")
        os.rename(path, hidden)
    if hidden.is_dir() and not hidden.is_symlink():
        shutil.rmtree(hidden)
    else:
        hidden.unlink()


# --- The lock --------------------------------------------------------------------------------------------------------

_holders: set[CheckpointFolder] = set()


def _acquire(folder: Path) -> int:
    """Locks the folder and says in the lock file who did; returns the descriptor that keeps the lock."""
    path = folder / LOCK
    if fcntl is None:
        raise OSError(f"{folder} cannot be locked, because {sys.platform} has no flock. Use Linux or macOS.")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        os.write(descriptor, json.dumps({"host": platform.node(), "pid": os.getpid(), "since": since}).encode())
    except BlockingIOError:
        os.close(descriptor)
        raise BlockingIOError(
            f"{folder} is in use by {_holder(path)}. Wait until that run ends, stop it, or choose another folder."
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise OSError(f"{path} cannot be locked: {error}. Choose a folder on another file system.") from error
    return descriptor


def _holder(path: Path) -> str:
    try:
        held = json.loads(path.read_bytes())
        return f"process {held['pid']} on {held['host']}, since {held['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _release_in_child() -> None:
    """A forked process must not keep the lock of its parent alive."""
    for holder in list(_holders):
        holder._release()
    _holders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
