"""The HDF5 reader reads what it is told to and nothing else, whatever the file tries."""

import contextlib
import json
import os
import re
import resource
import struct
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from mutated_files import outcomes_of

from hf_elmo.conversion import hdf5
from hf_elmo.conversion.hdf5 import MissingDatasetError, holds, read_hdf5, write_hdf5

SHAPES = {"top": (4, 3), "group/array": (5,), "group/deep/array": (2, 2, 2), "group/deep/other": (6,)}
TARGET = "group/deep/array"
CANARY = b"canary-in-another-file!!"  # 24 bytes: six float32
CANARY_VALUES = np.frombuffer(CANARY, np.float32)


def arrays(seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.hdf5"
    write_hdf5(path, arrays())
    return path


@contextlib.contextmanager
def edited(path):
    with h5py.File(path, "r+") as opened:
        yield opened


def replace(opened, name):
    """Takes an object out of the file, so that something else can stand under its name."""
    del opened[name]
    return opened


def other_file(path):
    """A file next to this one that the reader must never open, with the canary where the array should be."""
    other = path.with_name("other.hdf5")
    with h5py.File(other, "w") as opened:
        for name in (TARGET, "group/deep/other", "group/array"):
            shape = SHAPES[name]
            opened.create_dataset(name, data=np.resize(CANARY_VALUES, shape))
    return other.name


# The hostile kinds: each takes a good file and spoils it.


def external_link(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = h5py.ExternalLink(other_file(path), TARGET)


def external_link_on_the_way(path):
    with edited(path) as opened:
        replace(opened, "group")["group"] = h5py.ExternalLink(other_file(path), "group")


def soft_link(path):
    with edited(path) as opened:
        opened.move(TARGET, "elsewhere")
        opened[TARGET] = h5py.SoftLink("/elsewhere")


def soft_link_on_the_way(path):
    with edited(path) as opened:
        opened.move("group/deep", "group/real")
        opened["group/deep"] = h5py.SoftLink("/group/real")


def dangling_soft_link(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = h5py.SoftLink("/nowhere")


def loop(path):
    with edited(path) as opened:
        replace(opened, "group/deep")["group/deep"] = opened["group"]


def loop_of_soft_links(path):
    with edited(path) as opened:
        replace(opened, "group/deep")["group/deep"] = h5py.SoftLink("/group/deep")


def two_names_for_one_array(path):
    with edited(path) as opened:
        opened.create_dataset("group/array2", data=np.zeros(SHAPES["group/deep/array"], np.float32))
        replace(opened, "group/deep/array")["group/deep/array"] = opened["group/array2"]
        replace(opened, "group/array2")
        replace(opened, "group/deep/other")["group/deep/other"] = opened["group/deep/array"]


def external_storage(path):
    (path.parent / "raw.bin").write_bytes(CANARY * 2)
    with edited(path) as opened:
        replace(opened, TARGET).create_dataset(
            TARGET, SHAPES[TARGET], np.float32, external=[(str(path.parent / "raw.bin"), 0, 32)]
        )


def virtual(path, unlimited=False):
    layout = h5py.VirtualLayout((6,), np.float32, maxshape=(None,) if unlimited else None)
    source = h5py.VirtualSource(
        str(path.parent / other_file(path)), "group/deep/other", shape=(6,), maxshape=(None,) if unlimited else None
    )
    if unlimited:
        layout[0 : h5py.h5s.UNLIMITED : 1] = source[0 : h5py.h5s.UNLIMITED : 1]
    else:
        layout[:] = source
    with edited(path) as opened:
        replace(opened, "group/deep/other").create_virtual_dataset("group/deep/other", layout)


def unlimited_virtual(path):
    """Of this kind, even asking for the shape opens the other file."""
    virtual(path, unlimited=True)


def shape_bomb(path):
    """A few bytes that declare four terabytes."""
    with edited(path) as opened:
        replace(opened, TARGET).create_dataset(TARGET, (2**20, 2**20), np.float32)


def unallocated(path):
    """The right shape, but no data behind it."""
    with edited(path) as opened:
        replace(opened, TARGET).create_dataset(TARGET, SHAPES[TARGET], np.float32)


def data_beyond_the_end(path):
    """The address of the data, edited to lie after the end of the file."""
    with edited(path) as opened:
        offset = opened[TARGET].id.get_offset()
    content = path.read_bytes()
    message = struct.pack("<QQ", offset, 32)  # address and size in the layout message
    assert content.count(message) == 1
    path.write_bytes(content.replace(message, struct.pack("<QQ", len(content) + 8, 32)))


def gzip_bomb(path):
    with edited(path) as opened:
        replace(opened, TARGET).create_dataset(
            TARGET, SHAPES[TARGET], np.float32, chunks=SHAPES[TARGET], compression="gzip"
        )


def chunked(path):
    with edited(path) as opened:
        replace(opened, TARGET).create_dataset(TARGET, data=arrays()[TARGET], chunks=SHAPES[TARGET])


def of_type(dtype):
    def spoil(path):
        with edited(path) as opened:
            data = np.zeros(SHAPES[TARGET], np.int64).astype("S8" if dtype == "S8" else np.float64)
            if isinstance(dtype, np.dtype) and dtype.kind == "O":
                replace(opened, TARGET).create_dataset(TARGET, SHAPES[TARGET], dtype=dtype)
            else:
                replace(opened, TARGET).create_dataset(TARGET, data=data.astype(dtype))

    return spoil


def scalar(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = np.float32(1)


def empty(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = h5py.Empty("f4")


def group_for_dataset(path):
    with edited(path) as opened:
        replace(opened, TARGET).create_group(TARGET)


def dataset_for_group(path):
    with edited(path) as opened:
        replace(opened, "group/deep")["group/deep"] = np.zeros(8, np.float32)


def type_for_dataset(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = np.dtype("f4")


def truncated(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 40])


def cut_to_the_header(path):
    path.write_bytes(path.read_bytes()[:100])


def zero_bytes(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def wrong_shape(path):
    with edited(path) as opened:
        replace(opened, TARGET)[TARGET] = np.zeros((2, 4), np.float32)


def transposed_shape(path):
    with edited(path) as opened:
        replace(opened, "top")["top"] = np.zeros((3, 4), np.float32)


def missing(path):
    with edited(path) as opened:
        replace(opened, TARGET)


def missing_group(path):
    with edited(path) as opened:
        replace(opened, "group")


def extra(path):
    with edited(path) as opened:
        opened["group/surplus"] = np.zeros(3, np.float32)


def many_extras(path):
    with edited(path) as opened:
        for number in range(5000):
            opened.create_group(f"group/surplus{number}")


def extra_loop(path):
    with edited(path) as opened:
        opened["group/deep/surplus"] = opened["/"]


def long_extra(path):
    with edited(path) as opened:
        opened.create_group("group/surplus" + "x" * 50_000)


def with_value(value):
    def spoil(path):
        with edited(path) as opened:
            opened[TARGET][1, 0, 1] = value

    return spoil


KINDS = {
    "external link": (external_link, TARGET, "soft or external link"),
    "external link on the way": (external_link_on_the_way, "group/array", "soft or external link"),
    "soft link": (soft_link, TARGET, "soft or external link"),
    "soft link on the way": (soft_link_on_the_way, TARGET, "soft or external link"),
    "dangling soft link": (dangling_soft_link, TARGET, "soft or external link"),
    "loop": (loop, TARGET, "loop or a second name.* same object as 'group'"),
    "loop of soft links": (loop_of_soft_links, TARGET, "soft or external link"),
    "two names for one array": (two_names_for_one_array, "group/deep/other", "same object as 'group/deep/array'"),
    "external storage": (external_storage, TARGET, "data in another file"),
    "virtual": (virtual, "group/deep/other", "is virtual"),
    "unlimited virtual": (unlimited_virtual, "group/deep/other", "is virtual"),
    "shape bomb": (shape_bomb, TARGET, r"has shape \(1048576, 1048576\); the options ask for \(2, 2, 2\)"),
    "unallocated": (unallocated, TARGET, "not all in the file"),
    "data beyond the end": (data_beyond_the_end, TARGET, "file corruption|not all in the file"),
    "gzip bomb": (gzip_bomb, TARGET, "compressed or filtered.*h5repack"),
    "chunked": (chunked, TARGET, "in chunks.*h5repack"),
    "byte strings": (of_type("S8"), TARGET, "only float32"),
    "python strings": (of_type(h5py.string_dtype()), TARGET, "only float32"),
    "references": (of_type(h5py.ref_dtype), TARGET, "only float32"),
    "int": (of_type(np.int32), TARGET, "type int32; only float32"),
    "float64": (of_type(np.float64), TARGET, "type float64; only float32"),
    "float16": (of_type(np.float16), TARGET, "type float16; only float32"),
    "complex": (of_type(np.complex64), TARGET, "only float32"),
    "scalar": (scalar, TARGET, "scalar or empty"),
    "empty": (empty, TARGET, "scalar or empty"),
    "group for dataset": (group_for_dataset, TARGET, "is not a dataset"),
    "dataset for group": (dataset_for_group, TARGET, "'group/deep', on the way to .*, is not a group"),
    "type for dataset": (type_for_dataset, TARGET, "is not a dataset"),
    "truncated": (truncated, "top", "damaged, incomplete"),
    "cut to the header": (cut_to_the_header, "top", "has 100 bytes"),
    "zero bytes": (zero_bytes, "top", "has 0 bytes"),
    "garbage": (garbage, "top", "no HDF5 file"),
    "wrong shape": (wrong_shape, TARGET, r"has shape \(2, 4\); the options ask for \(2, 2, 2\)"),
    "transposed shape": (transposed_shape, "top", r"has shape \(3, 4\)"),
    "missing": (missing, TARGET, "has no dataset"),
    "missing group": (missing_group, "group/array", "has no dataset"),
    "extra": (extra, "group/surplus", "no part of a model"),
    "many extras": (many_extras, "group/surplus0", "no part of a model"),
    "extra loop": (extra_loop, "group/deep/surplus", "no part of a model"),
    "long extra": (long_extra, "group/surplus", "no part of a model"),
    "NaN": (with_value(np.nan), TARGET, "1 of 8 values that are NaN or infinite"),
    "infinity": (with_value(-np.inf), TARGET, "1 of 8 values that are NaN or infinite"),
}


@pytest.mark.promise("S1")
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_file_is_refused(file, kind, capfd):
    spoil, dataset, reason = KINDS[kind]
    spoil(file)
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(ValueError, match=reason) as caught:
        read_hdf5(file, SHAPES)
    assert time.perf_counter() - start < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200 * 1024  # kilobytes
    message = str(caught.value)
    assert str(file) in message
    assert repr(dataset)[:-1] in message
    assert len(message) < 1500
    output = capfd.readouterr()
    shown = message + repr(caught.value.__cause__) + output.out + output.err
    assert "canary-in" not in shown
    assert str(CANARY_VALUES[0]) not in shown


@pytest.mark.parametrize("kind", ["external link", "external link on the way", "external storage", "virtual"])
def test_h5py_alone_would_read_the_other_file(file, kind):
    """The hostile files above are real: without the safe reader the canary comes out."""
    spoil, dataset, _ = KINDS[kind]
    spoil(file)
    with h5py.File(file) as opened:
        assert CANARY[:16] in opened[dataset][...].tobytes()


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    "kind", ["external link", "external link on the way", "external storage", "unlimited virtual"]
)
def test_no_other_file_is_opened(file, kind):
    """A pipe stands where the other file was: opening it would block for ever, so the reader is in a child process."""
    spoil, _, reason = KINDS[kind]
    spoil(file)
    for name in ("other.hdf5", "raw.bin"):
        (file.parent / name).unlink(missing_ok=True)
        os.mkfifo(file.parent / name)
    program = f"import runpy; runpy.run_path({hdf5.__file__!r})['read_hdf5']({str(file)!r}, {SHAPES!r})"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert child.returncode == 1
    assert re.search(reason, child.stderr)


MUTATIONS = 2000


@pytest.mark.promise("S2", n=MUTATIONS)
def test_damaged_files_are_refused_or_harmless(file):
    """No crash, no hang, no other exception; what is accepted is finite and has the right shapes."""
    outcomes = outcomes_of(hdf5.__file__, "read_hdf5", file, MUTATIONS, json.dumps(SHAPES))
    assert outcomes.keys() == {"accepted", "refused"}
    assert sum(outcomes.values()) == MUTATIONS


def test_all_checks_come_before_any_data(file, monkeypatch):
    with edited(file) as opened:
        opened["top"][0, 0] = np.nan  # found when it is read
        replace(opened, "group/deep/other")["group/deep/other"] = np.zeros(7, np.float32)  # the last one to be checked
    with pytest.raises(ValueError, match=r"'group/deep/other' has shape \(7,\)"):
        read_hdf5(file, SHAPES)


def test_arrays_come_back_bit_equal_and_in_order(file):
    read = read_hdf5(file, SHAPES)
    assert list(read) == list(SHAPES)
    for name, array in arrays().items():
        assert read[name].dtype == np.float32
        assert read[name].tobytes() == array.tobytes()


def test_other_plain_float32_layouts_are_read(tmp_path):
    path = tmp_path / "weights.hdf5"
    with h5py.File(path, "w", libver="latest") as opened:
        for name, array in arrays().items():
            opened.create_dataset(name, data=array.astype(">f4"))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        del opened["top"]
        space = h5py.h5s.create_simple((4, 3))
        compact = h5py.h5d.create(opened.id, b"top", h5py.h5t.IEEE_F32LE, space, properties)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, arrays()["top"])
    for name, array in read_hdf5(path, SHAPES).items():
        np.testing.assert_array_equal(array, arrays()[name])


def test_missing_dataset_is_named_for_programs(file):
    missing(file)
    with pytest.raises(MissingDatasetError) as caught:
        read_hdf5(file, SHAPES)
    assert caught.value.dataset == TARGET


def test_what_is_there_instead_is_said(file):
    with edited(file) as opened:
        opened.move(TARGET, "group/deep/misspelt")
    with pytest.raises(ValueError, match=f"no dataset '{TARGET}', but has 'group/deep/misspelt'"):
        read_hdf5(file, SHAPES)


def test_no_such_file_and_folders_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"There is no file {tmp_path / 'nothing.hdf5'}")):
        read_hdf5(tmp_path / "nothing.hdf5", SHAPES)
    with pytest.raises(ValueError, match="is not a regular file"):
        read_hdf5(tmp_path, SHAPES)
    os.mkfifo(tmp_path / "pipe.hdf5")
    with pytest.raises(ValueError, match="is not a regular file"):
        read_hdf5(tmp_path / "pipe.hdf5", SHAPES)


def test_without_h5py_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=re.escape('pip install "hf-elmo[convert]"')):
        read_hdf5(file, SHAPES)


def test_failed_write_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()
    with pytest.raises(TypeError):
        write_hdf5(file, {"top": np.zeros(3, np.float32), "bad": np.array([object()])})
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_what_a_file_holds(file, tmp_path):
    assert [name for name in (*SHAPES, "group", "other", "group/other", "top/array") if holds(file, name)] == [
        *SHAPES,
        "group",
    ]
    external_link_on_the_way(file)
    assert not holds(file, TARGET)
    file.write_bytes(b"no HDF5 file")
    with pytest.raises(ValueError, match=r"cannot read the dataset 'top' of .*weights\.hdf5"):
        holds(file, "top")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        holds(tmp_path / "missing.hdf5", "top")
