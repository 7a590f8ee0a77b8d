"""Files that torch.save wrote are read without trusting them (promise S4), and hostile ones do nothing."""

import io
import json
import os
import pickle
import pickletools
import tarfile
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from mutated_files import outcomes_of

from hf_elmo.conversion import pickles
from hf_elmo.conversion.pickles import LARGEST_PROGRAM, LEGACY_BEGIN, read_matrix, read_state_dict
from hf_elmo.scripts.original_wheels import allennlp_fixtures

SHAPES = {"layer.weight": (3, 4), "layer.bias": (3,)}


def weights() -> OrderedDict:
    generator = torch.Generator().manual_seed(1)
    return OrderedDict((name, torch.randn(shape, generator=generator)) for name, shape in SHAPES.items())


def save(content, path, legacy=False):
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


# --- Honest files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", ["tensors", "module", "parameters", "plain dict", "views", "transposed"])
def test_honest_files_are_read(tmp_path, kind, legacy):
    content = weights()
    if kind == "module":
        model = torch.nn.ModuleDict({"layer": torch.nn.Linear(4, 3)})
        model.load_state_dict(content)
        content = model.state_dict()  # with its metadata
    elif kind == "parameters":
        content = OrderedDict((name, torch.nn.Parameter(tensor)) for name, tensor in content.items())
    elif kind == "plain dict":
        content = dict(content)
    elif kind == "views":
        both = torch.cat([tensor.flatten() for tensor in content.values()])
        content = {"layer.weight": both[:12].view(3, 4), "layer.bias": both[12:]}
    elif kind == "transposed":
        content["layer.weight"] = content["layer.weight"].T.contiguous().T
    found = read_state_dict(save(content, tmp_path / "weights.pkl", legacy), SHAPES)
    assert list(found) == list(SHAPES)
    for name, tensor in weights().items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], tensor.numpy())


def test_alignment_matrices_of_allennlp():
    """numpy float64 in most of the fixtures, a float32 tensor in one."""
    folder = allennlp_fixtures() / "elmo_multilingual"
    files = sorted(folder.glob("*/align*.pth"))
    assert len(files) == 5
    for file in files:
        expected = torch.load(file, weights_only=False)
        found = read_matrix(file, 32)
        assert found.dtype == (np.float32 if file.name == "align_zero.pth" else np.float64)
        np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("legacy", [False, True])
def test_matrices_of_today(tmp_path, legacy):
    matrix = np.random.default_rng(0).standard_normal((8, 8))
    arrays = [matrix, np.asfortranarray(matrix), matrix.astype(">f8"), matrix.astype(np.float32), matrix.astype(">f4")]
    for value in (*arrays, torch.from_numpy(matrix), torch.from_numpy(matrix).float()):
        found = read_matrix(save(value, tmp_path / "align.pth", legacy), 8)
        np.testing.assert_allclose(found, matrix, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros((8, 9)), r"has shape \(8, 9\); this model has \(8, 8\)"),
        (np.zeros((8, 8), np.int64), "cannot be read|is a ndarray"),
        (np.array([[object()] * 8] * 8), "cannot be read"),
        (np.full((8, 8), np.nan), "NaN or infinite"),
        (torch.zeros(8, 8, dtype=torch.int32), "cannot be read"),
        ({"matrix": torch.zeros(8, 8)}, "is a dict"),
    ],
    ids=["shape", "integers", "objects", "nan", "int32", "dict"],
)
def test_other_matrices_are_refused(tmp_path, value, says):
    with pytest.raises(ValueError, match=rf"align\.pth.*({says})"):
        read_matrix(save(value, tmp_path / "align.pth"), 8)


# --- Files that are not what they should be --------------------------------------------------------------------------


def changed(**changes):
    content = {**weights(), **{name.replace("_", "."): value for name, value in changes.items()}}
    return OrderedDict((name, value) for name, value in content.items() if value is not None)


@pytest.mark.promise("S4")
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (changed(layer_bias=None), "has no tensor 'layer.bias'"),
        (changed(extra=torch.zeros(1)), "has a tensor 'extra', which has no place"),
        (changed(layer_bias=torch.zeros(4)), r"'layer.bias' has shape \(4,\); this model has \(3,\)"),
        (changed(layer_bias=torch.zeros(3, dtype=torch.float64)), "names 'torch DoubleStorage'"),
        (changed(layer_bias=torch.zeros(3).to_sparse()), "names 'torch._utils _rebuild_sparse_tensor'"),
        (changed(layer_bias=torch.empty(3, device="meta")), "names 'torch._utils _rebuild_meta_tensor_no_storage'"),
        (changed(layer_bias=[0.0, 0.0, 0.0]), "'layer.bias' is a list"),
        (changed(layer_bias=torch.tensor([0, float("nan"), 0])), "'layer.bias' has values that are NaN"),
        (changed(layer_bias=torch.tensor([0, float("inf"), 0])), "'layer.bias' has values that are NaN or infinite"),
        (list(weights().values()), "holds a list instead of tensors by name"),
        (torch.zeros(15), "holds a Tensor instead of tensors by name"),
    ],
)
def test_wrong_contents_are_refused(tmp_path, content, says, legacy):
    with pytest.raises(ValueError, match=rf"weights\.pkl.*{says}"):
        read_state_dict(save(content, tmp_path / "weights.pkl", legacy), SHAPES)


def test_missing_and_irregular_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*absent"):
        read_state_dict(tmp_path / "absent", SHAPES)
    with pytest.raises(ValueError, match="is not a regular file"):
        read_state_dict(tmp_path, SHAPES)


@pytest.mark.parametrize("legacy", [False, True])
def test_cut_files_are_refused(tmp_path, legacy):
    path = save(weights(), tmp_path / "weights.pkl", legacy)
    whole = path.read_bytes()
    for length in [0, 10, 59, *range(60, len(whole), 37)]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"weights\.pkl (has .* bytes, but|cannot be read)"):
            read_state_dict(path, SHAPES)


# --- Hostile files ---------------------------------------------------------------------------------------------------


def in_zip(program: bytes, compress: int = zipfile.ZIP_STORED, data: bytes = bytes(64), extra=()) -> bytes:
    """A zip file as torch writes it, around any program."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", data)
        archive.writestr("archive/data/1", data)
        archive.writestr("archive/version", "3\n")
        for name, content in extra:
            archive.writestr(name, content)
    return buffer.getvalue()


def saved_bytes(content, legacy=False) -> bytes:
    buffer = io.BytesIO()
    save(content, buffer, legacy)
    return buffer.getvalue()


def program_of(content) -> bytes:
    with zipfile.ZipFile(io.BytesIO(saved_bytes(content))) as archive:
        return archive.read("archive/data.pkl")


def huge_storage_in_zip() -> bytes:
    program = program_of(weights())
    claim = b"K\x0c"  # BININT1 12, the numbers of the storage of layer.weight
    assert program.count(claim) == 1
    return in_zip(program.replace(claim, b"\x8a\x06" + (10**13).to_bytes(6, "little")))


def huge_storage_in_legacy() -> bytes:
    content = saved_bytes(weights(), legacy=True)
    return content.replace(b"K\x0c", b"\x8a\x06" + (10**13).to_bytes(6, "little"), 1)


def tar_file() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("storages", "tensors", "pickle"):
            content = pickle.dumps(Call(os.system, "true"), protocol=2)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def hostile_files(canary: str) -> dict[str, Callable[[], bytes]]:
    shell, code = Call(os.system, f"touch {canary}"), Call(eval, f"__import__('pathlib').Path({canary!r}).touch()")
    stack_global = pickle.dumps(shell, protocol=4)
    assert any(op.name == "STACK_GLOBAL" for op, _, _ in pickletools.genops(stack_global))
    return {
        "os.system": lambda: saved_bytes(shell),
        "os.system, legacy": lambda: saved_bytes(shell, legacy=True),
        "os.system, raw pickle": lambda: pickle.dumps(shell, protocol=2) + bytes(100),
        "os.system, protocol 4": lambda: in_zip(stack_global),
        "os.system, old instruction": lambda: in_zip(f"(S'touch {canary}'\nios\nsystem\n.".encode()),
        "eval": lambda: saved_bytes(code),
        "eval as a value": lambda: saved_bytes(changed(layer_bias=code)),
        "eval as a value, legacy": lambda: saved_bytes(changed(layer_bias=code), legacy=True),
        "eval nested": lambda: saved_bytes({**weights(), "_metadata": [{"a": (1, [code])}]}),
        "eval as a key": lambda: saved_bytes({code: 1}),
        "after the weights, legacy": lambda: saved_bytes(weights(), legacy=True).replace(
            b"\x80\x02]", pickle.dumps(shell, protocol=2)[:-1] + b"0]", 1
        ),
        "getattr": lambda: saved_bytes(Call(getattr, os.path.join, "__globals__")),
        "whole model": lambda: saved_bytes(torch.nn.Linear(4, 3)),
        "memory for nothing": lambda: saved_bytes(changed(layer_bias=Call(bytearray, 10**12))),
        "tar": lambda: tar_file(),
        "second program": lambda: in_zip(
            program_of(weights()), extra=[("other/data.pkl", pickle.dumps(shell, protocol=2))]
        ),
        "TorchScript": lambda: in_zip(program_of(weights()), extra=[("archive/constants.pkl", b"\x80\x02).")]),
        "huge storage": lambda: huge_storage_in_zip(),
        "huge storage, legacy": lambda: huge_storage_in_legacy(),
        "zip bomb": lambda: in_zip(program_of(weights()), zipfile.ZIP_DEFLATED, bytes(10**7)),
        "long program": lambda: in_zip(b"\x80\x02" + b"N0" * LARGEST_PROGRAM + b"N."),
        "deep nesting": lambda: in_zip(b"\x80\x02" + b"(" * 50_000 + b"t" * 50_000 + b"."),
        "unfinished text": lambda: in_zip(b"\x80\x02\x8d" + (2**62).to_bytes(8, "little") + b"a" * 100),
        "not a file of torch": lambda: b"\x1f\x8b\x08" + bytes(200),
        "zeros": lambda: bytes(1000),
        "magic only": lambda: LEGACY_BEGIN + bytes(100),
    }


@pytest.mark.promise("S4")
@pytest.mark.parametrize("kind", list(hostile_files("x")))
def test_hostile_files_are_refused_and_do_nothing(tmp_path, kind):
    canary, path = tmp_path / "canary", tmp_path / "weights.pkl"
    path.write_bytes(hostile_files(str(canary))[kind]())
    for read, expected in ((read_state_dict, SHAPES), (read_matrix, 2)):
        tracemalloc.start()
        start = time.perf_counter()
        with pytest.raises(ValueError, match=r"weights\.pkl"):
            read(path, expected)
        assert time.perf_counter() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 50e6
        tracemalloc.stop()
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_hostile_files_are_hostile(tmp_path):
    """Read by torch without its restriction, they do what they are made for."""
    acting = [kind for kind in hostile_files("x") if kind.startswith(("os.system", "eval"))]
    for number, kind in enumerate(acting):
        canary, path = tmp_path / f"canary{number}", tmp_path / "weights.pkl"
        path.write_bytes(hostile_files(str(canary))[kind]())
        if "raw pickle" in kind:
            pickle.loads(path.read_bytes())
        else:
            torch.load(path, weights_only=False)
        assert canary.exists(), kind


@pytest.mark.parametrize("kind", ["os.system", "eval", "whole model"])
def test_the_error_names_what_the_file_would_call(tmp_path, kind):
    path = tmp_path / "weights.pkl"
    path.write_bytes(hostile_files(str(tmp_path / "canary"))[kind]())
    named = {"os.system": "posix system", "eval": "builtins eval", "whole model": "torch.nn.modules.linear Linear"}
    with pytest.raises(ValueError, match=rf"nothing of it was used: it names '(__builtin__ eval|{named[kind]})'"):
        read_state_dict(path, SHAPES)


# --- Damaged at random -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_files_are_refused_or_harmless(tmp_path, legacy):
    """In children with little memory: no crash, no hang, no other exception; what is accepted is as it must be."""
    path = save(weights(), tmp_path / "weights.pkl", legacy)
    outcomes = outcomes_of(pickles.__file__, "read_state_dict", path, 1000, json.dumps(SHAPES))
    assert outcomes.keys() == {"accepted", "refused"}
    assert sum(outcomes.values()) == 1000
