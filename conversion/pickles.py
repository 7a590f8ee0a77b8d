# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights that were saved with `torch.save`, read without trusting them.

Such a file is a pickle, a program for a small machine, and it can call any function there is. So the program is read
before it is run: the few functions that make tensors are all it may name. Then torch runs it in its restricted mode,
and what comes out must be exactly what the caller expects.
"""

import errno
import math
import os
import pickle
import pickletools
import stat
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

# What a file that holds tensors names, and what one that holds a numpy array names, in the spelling of the format.
TENSORS = frozenset(
    {
        "collections OrderedDict",
        "torch FloatStorage",
        "torch._utils _rebuild_parameter",
        "torch._utils _rebuild_tensor",
        "torch._utils _rebuild_tensor_v2",
    }
)
# What a file of a whole model may name beside that: numbers of other types, which are not read.
OTHER_NUMBERS = frozenset(
    f"torch {kind}Storage" for kind in ("BFloat16", "Bool", "Byte", "Char", "Double", "Half", "Int", "Long", "Short")
)
ARRAYS = frozenset(
    {
        "_codecs encode",
        "numpy dtype",
        "numpy ndarray",
        "numpy._core.multiarray _reconstruct",
        "numpy.core.multiarray _reconstruct",
    }
)
# Other ways to name something than the one that torch uses.
FORBIDDEN = frozenset({"EXT1", "EXT2", "EXT4", "INST", "OBJ", "STACK_GLOBAL"})

LARGEST_PROGRAM = 20_000  # instructions; a tensor takes about 30
ZIP_BEGIN = b"PK\x03\x04"
# How files begin that torch wrote before version 1.6: a pickle of its magic number. Four more pickles follow.
LEGACY_BEGIN = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_PICKLES = 5


def read_state_dict(path: str | os.PathLike[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Reads exactly the float32 tensors of `shapes` from a file that `torch.save` wrote and that holds nothing else.

    Args:
        path: The file. It may come from anyone.
        shapes: Shape of each tensor by its name.

    Returns:
        The tensors by name, in the order of `shapes`, all finite.

    Raises:
        ValueError: If anything about the file is not as it must be; names the file and the tensor.
        FileNotFoundError: If there is no such file.
    """
    path = Path(path)
    loaded = _load(path, TENSORS, needed=sum(4 * math.prod(shape) for shape in shapes.values()))
    if type(loaded) not in (dict, OrderedDict):
        raise ValueError(f"{path} holds a {type(loaded).__name__} instead of tensors by name.")
    for name in shapes:
        if name not in loaded:
            raise ValueError(f"{path} has no tensor {name!r}. Is it of another model?")
    for name in loaded:
        if name not in shapes:
            raise ValueError(f"{path} has a tensor {name!r:.200}, which has no place in the model.")
    return {name: _checked(path, name, loaded[name], shape, (torch.float32,)) for name, shape in shapes.items()}


class SavedTensors:
    """The tensors of a file that `torch.save` wrote, some of which are read, after a look at their names and shapes.

    Args:
        path: The file. It may come from anyone.

    Raises:
        ValueError: If the file holds anything else than tensors by name; names the file.
        FileNotFoundError: If there is no such file.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._tensors = _load(self.path, TENSORS | OTHER_NUMBERS, needed=0)
        if type(self._tensors) not in (dict, OrderedDict) or not all(isinstance(name, str) for name in self._tensors):
            raise ValueError(f"{self.path} does not hold tensors by name, as the weights of a model are saved.")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor by its name."""
        return {
            name: tuple(tensor.shape) for name, tensor in self._tensors.items() if isinstance(tensor, torch.Tensor)
        }

    def read(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Reads the float32 tensors of `shapes`, all finite.

        Raises:
            ValueError: If one is missing, or not as it must be; names the file and the tensor.
        """
        for name in shapes:
            if name not in self._tensors:
                raise ValueError(f"{self.path} has no tensor {name!r}. Is it of another model?")
        _check_size(self.path, needed=sum(4 * math.prod(shape) for shape in shapes.values()))
        return {
            name: _checked(self.path, name, self._tensors[name], shape, (torch.float32,))
            for name, shape in shapes.items()
        }


def read_matrix(path: str | os.PathLike[str], size: int) -> np.ndarray:
    """Reads one square matrix of float32 or float64, a tensor or a numpy array, from a file that `torch.save` wrote.

    Args:
        path: The file. It may come from anyone.
        size: Its rows and columns.

    Raises:
        ValueError: If the file holds anything else; names the file.
        FileNotFoundError: If there is no such file.
    """
    path = Path(path)
    reconstruct: Any = np.empty(0).__reduce__()[0]
    dtypes = [np.dtype(np.float32), np.dtype(np.float64)]
    names = [(reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    with torch.serialization.safe_globals([*names, np.ndarray, np.dtype, *map(type, dtypes)]):
        loaded = _load(path, TENSORS | {"torch DoubleStorage"} | ARRAYS, needed=4 * size * size)
    if type(loaded) is np.ndarray and loaded.dtype.newbyteorder("=") in dtypes:
        loaded = torch.from_numpy(loaded.astype(loaded.dtype.newbyteorder("=")))  # the byte order of this machine
    return _checked(path, "matrix", loaded, (size, size), (torch.float32, torch.float64))


def _load(path: Path, allowed: frozenset[str], needed: int) -> Any:
    """What the file holds, if its program names nothing but `allowed`."""
    size = _check_size(path, needed)
    try:
        with open(path, "rb") as file:
            _check_program(_instructions(file, size), allowed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the age of the format
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can raise anything
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # the fault of the disk
            raise
        raise ValueError(
            f"{path} cannot be read as weights that torch.save wrote, so nothing of it was used: {_reason(error)} Get "
            "the file again, from where you trust it."
        ) from error


def _reason(error: Exception) -> str:
    """What is wrong, without torch's advice to let the file run its code."""
    if isinstance(error, pickle.UnpicklingError):
        return "torch does not take what it holds for weights."
    reason = str(error).partition("\n")[0][:300]
    return reason if reason.endswith(".") else f"{reason}."


def _check_size(path: Path, needed: int) -> int:
    """The bytes of the file, which must be at least those that the weights need."""
    size = _size_of_regular_file(path)
    if needed > size:
        raise ValueError(
            f"{path} has {size:,} bytes, but its weights need {needed:,}. Is the file complete, and does it belong to "
            "this model?"
        )
    return size


def _check_program(instructions: Iterator[tuple[Any, Any, Any]], allowed: frozenset[str]) -> None:
    for number, (instruction, argument, _) in enumerate(instructions):
        if number > LARGEST_PROGRAM:
            raise ValueError(f"it has more than {LARGEST_PROGRAM:,} instructions, which no weights need.")
        if instruction.name in FORBIDDEN:
            raise ValueError(f"it has the instruction {instruction.name}, which no weights need.")
        if instruction.name == "GLOBAL" and argument not in allowed:
            raise ValueError(f"it names {argument!r:.100}, which no weights need.")


def _instructions(file: IO[bytes], size: int) -> Iterator[tuple[Any, Any, Any]]:
    """The instructions of the file, none of which is carried out."""
    begin = file.read(len(LEGACY_BEGIN))
    file.seek(0)
    if begin == LEGACY_BEGIN:
        for _ in range(LEGACY_PICKLES):
            yield from pickletools.genops(file)
    elif begin.startswith(ZIP_BEGIN):
        yield from pickletools.genops(_program_in_zip(file, size))
    else:
        raise ValueError("it does not begin as such a file does.")


def _program_in_zip(file: IO[bytes], size: int) -> bytes:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed, and a few bytes may unpack to terabytes.")
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its parts are larger than the file.")
        programs = [entry for entry in entries if entry.filename.endswith(".pkl")]
        if len(programs) != 1 or not programs[0].filename.endswith("/data.pkl"):
            raise ValueError("it must have exactly one part that is called data.pkl.")
        return archive.read(programs[0])


def _checked(path: Path, name: str, value: Any, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> np.ndarray:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        raise ValueError(f"{path}: {name!r} is a {type(value).__name__}; a tensor of shape {shape} should be there.")
    if value.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{path}: {name!r} holds {str(value.dtype).removeprefix('torch.')}; only {allowed} is read.")
    if tuple(value.shape) != shape:
        raise ValueError(f"{path}: {name!r} has shape {tuple(value.shape)}; this model has {shape}.")
    if not bool(value.isfinite().all()):
        raise ValueError(f"{path}: {name!r} has values that are NaN or infinite.")
    return value.detach().contiguous().numpy()


def _size_of_regular_file(path: Path) -> int:
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file. Give the path of a file with weights.")
    return status.st_size
