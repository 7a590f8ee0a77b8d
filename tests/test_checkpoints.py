"""Trees come back exactly, and a run finds its newest whole checkpoint, whatever happened before."""

import contextlib
import errno
import functools
import logging
import math
import os
import random
import resource
import shutil
import signal
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from interruptions import BEFORE, killed_at, states_on_disk, status_of_child, watch

from hf_elmo import checkpoints, hub
from hf_elmo.checkpoints import CheckpointFolder, load_tree, save_tree

# Newer Pythons say of each fork that threads may be lost; the children here use none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def quick_path(tmp_path):
    """In memory where that is possible; flushing hundreds of checkpoints to a disk takes minutes."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            yield Path(folder)


# --- Trees -----------------------------------------------------------------------------------------------------------


def assert_identical(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        bits = [value.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for value in (found, expected)]
        assert torch.equal(*bits)
    elif isinstance(expected, dict):
        assert [(type(key), key) for key in found] == [(type(key), key) for key in expected]
        for key in expected:
            assert_identical(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_identical(one, other)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    else:
        assert repr(found) == repr(expected)


def round_trip(tree, folder):
    save_tree(folder, "tree", tree)
    return load_tree(folder, "tree")


@pytest.mark.parametrize(
    "tree",
    [
        *(None, True, False, 0, -1, 2**200, "", "a\x00\ud800🙂", [], (), {}),
        *(0.1, -0.0, 1e300, 5e-324, 1e16, math.pi, math.inf, -math.inf, math.nan),
        {"1": "string", 1: "number", "b": [1, (2, [3.0, None]), {"tuple": [1]}], "": {}},
        {"float": "nan", "tensor": "tree", "dict": [["a", 1]]},
        torch.tensor(3),
        {"x": torch.zeros(0, 3), "y": [torch.zeros(2, 0, dtype=torch.uint8)], "['x']": torch.ones(1), "x.y": ()},
        {0: torch.tensor([math.nan, -0.0, math.inf]), "0": torch.tensor([-math.nan])},
    ],
    ids=lambda tree: ascii(tree)[:30],
)
def test_trees_come_back_as_they_were(tree, tmp_path):
    assert_identical(round_trip(tree, tmp_path), tree)


@pytest.mark.parametrize("dtype", sorted(checkpoints.DTYPES, key=str), ids=str)
def test_all_types_of_numbers(dtype, tmp_path):
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (64,), dtype=torch.uint8)
    assert_identical(
        round_trip([bits.view(dtype), bits.view(dtype)[0]], tmp_path), [bits.view(dtype), bits.view(dtype)[0]]
    )


def test_views_come_back_apart(tmp_path):
    base, negative = torch.arange(12.0).view(3, 4), torch._neg_view(torch.arange(3.0))
    tree = [
        base,
        base,
        base.T,
        base[1],
        base[:, ::2],
        base[0].expand(3, 4),
        negative,
        base.requires_grad_(),
    ]
    found = round_trip(tree, tmp_path)
    assert_identical(found, tree)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found}) == len(tree)


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adagrad, torch.optim.AdamW, torch.optim.SGD])
def test_optimizers_continue(optimizer_class, tmp_path):
    def step(model, optimizer):
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer, other_optimizer = (optimizer_class(each.parameters(), lr=0.1) for each in (model, other))
    step(model, optimizer)
    saved = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    loaded = round_trip(saved, tmp_path)
    assert_identical(loaded, saved)
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    for each in ((model, optimizer), (other, other_optimizer)):
        step(*each)
    assert_identical(dict(other.state_dict()), dict(model.state_dict()))
    assert_identical(other_optimizer.state_dict(), optimizer.state_dict())


def test_random_numbers_continue(tmp_path):
    generator = np.random.default_rng(3)
    states = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": generator.bit_generator.state}

    def draw():
        return torch.rand(3).tolist(), random.random(), generator.random()

    expected = draw()
    loaded = round_trip(states, tmp_path)
    torch.set_rng_state(loaded["torch"])
    random.setstate(loaded["python"])
    generator.bit_generator.state = loaded["numpy"]
    assert draw() == expected


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [0, {1, 2}]}, r"tree\['a'\]\[1\] is of type builtins\.set, which cannot be saved\. Allowed are dict"),
        ({0: (b"bytes",)}, r"tree\[0\]\[0\] is of type builtins\.bytes"),
        (OrderedDict(a=1), r"tree is of type collections\.OrderedDict"),
        ([np.float64(1)], r"tree\[0\] is of type numpy\.float64"),
        ([torch.nn.Parameter(torch.ones(1))], r"tree\[0\] is of type torch\.nn\.parameter\.Parameter"),
        ([torch.Size([1])], r"tree\[0\] is of type torch\.Size"),
        ({"a": {(1, 2): 3}}, r"tree\['a'\] has the key \(1, 2\), which cannot be saved\. Keys are str or int"),
        ({True: 1}, r"tree has the key True"),
        ([torch.eye(2).to_sparse()], r"tree\[0\] is a tensor of torch\.float32 and torch\.sparse_coo on cpu"),
        ([torch.ones(1, dtype=torch.complex128)], r"tree\[0\] is a tensor of torch\.complex128"),
        ([torch.ones(1, device="meta")], r"tree\[0\] is a tensor of .* on meta"),
    ],
)
def test_what_would_not_come_back_is_refused(tree, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save_tree(tmp_path, "tree", tree)
    assert not any(tmp_path.iterdir())


def test_trees_that_hold_themselves_are_refused(tmp_path):
    tree = []
    tree.append(tree)
    with pytest.raises(ValueError, match="The tree holds itself, or is nested too deeply"):
        save_tree(tmp_path, "tree", tree)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"[1, 2", "Expecting ',' delimiter"),
        (b'"\xff"', "can't decode byte"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[" * 100_000, "recursion"),
        (b'{"set": [1]}', r'\{"set": \[1\]\} is not a tensor, float, tuple or dict'),
        (b"{}", r"\{\} is not a tensor"),
        (b'{"tuple": [], "dict": []}', "is not a tensor"),
        (b'{"float": "1.5"}', "is not a tensor"),
        (b'{"tuple": 3}', "is not a tensor"),
        (b'{"dict": [["a", 1], ["a", 2]]}', r'\["a", 2\] is not a new key and its value'),
        (b'{"dict": [[1.5, 1]]}', r"\[1\.5, 1\] is not a new key"),
        (b'{"dict": [[[], 1]]}', "is not a new key"),
        (b'{"dict": ["ab"]}', "is not a new key"),
        (b'{"tensor": "other"}', r"tree\.safetensors has no tensor 'other'"),
        (b'[{"tensor": "tree[0]"}, {"tensor": "tree[0]"}]', r"has no tensor 'tree\[0\]', or the tree has it twice"),
    ],
)
def test_malformed_structure_is_refused(text, message, tmp_path):
    save_tree(tmp_path, "tree", [torch.ones(1)])
    (tmp_path / "tree.json").write_bytes(text)
    with pytest.raises(ValueError, match=rf"tree\.json cannot be read as a saved tree: .*{message}"):
        load_tree(tmp_path, "tree")


def test_tensors_that_do_not_belong_are_refused(tmp_path):
    save_tree(tmp_path, "tree", [torch.ones(1), torch.ones(2)])
    (tmp_path / "tree.json").write_text('[{"tensor": "tree[0]"}]')
    with pytest.raises(ValueError, match=r"tree\.safetensors holds 'tree\[1\]', which is not part of the tree in"):
        load_tree(tmp_path, "tree")


def test_cut_and_missing_tensor_files_are_refused(tmp_path):
    save_tree(tmp_path, "tree", [torch.ones(100)])
    path = tmp_path / "tree.safetensors"
    for size in (path.stat().st_size - 1, 20, 0):
        os.truncate(path, size)
        with pytest.raises(ValueError, match=r"tree\.safetensors is malformed"):
            load_tree(tmp_path, "tree")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"tree\.safetensors is missing"):
        load_tree(tmp_path, "tree")


def test_files_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "tree.safetensors").mkdir()
    with pytest.raises(OSError, match=rf"{tmp_path}/tree\.safetensors cannot be written: .*directory"):
        save_tree(tmp_path, "tree", [])


def test_loaded_tensors_do_not_need_the_file_any_more(tmp_path):
    loaded = round_trip([torch.arange(5000.0)], tmp_path)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path) not in maps.read_text()
    os.truncate(tmp_path / "tree.safetensors", 0)
    assert loaded[0].sum() == 4999 * 2500


# --- Saving and finding ----------------------------------------------------------------------------------------------


def write_state(step):
    """Writes files that differ from step to step, in a subfolder, too."""

    def write(folder):
        save_tree(folder, "state", {"step": step, "weights": torch.full((300,), float(step))})
        (folder / "log").mkdir()
        for name in ("notes.txt", "words.txt"):
            (folder / "log" / name).write_text(f"step {step}\n" * 50)

    return write


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def save(folder, *steps, **options):
    checkpoint_folder = CheckpointFolder(folder, **options)
    with checkpoint_folder.lock():
        return [checkpoint_folder.save(step, write_state(step)) for step in steps][-1]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def name_of(step):
    return f"checkpoint-{step:09d}"


def test_the_newest_ones_are_kept(tmp_path):
    path = save(tmp_path / "a" / "run", 5, 10, 2_000_000_000, 15_000_000_000, keep=3)
    assert path == tmp_path / "a" / "run" / "checkpoint-15000000000"
    run = CheckpointFolder(tmp_path / "a" / "run")
    assert run.steps() == [10, 2_000_000_000, 15_000_000_000]
    assert run.newest() == path
    assert_identical(load_tree(path, "state")["weights"], torch.full((300,), 15e9))
    assert len(names_in(run.folder)) == 3


def test_nothing_is_found_where_nothing_was(tmp_path):
    run = CheckpointFolder(tmp_path / "run")
    assert run.newest() is None
    assert run.steps() == []
    assert names_in(tmp_path) == []


def test_everyone_may_read_what_the_owner_lets_them(tmp_path):
    path = save(tmp_path, 1)
    assert len({file.stat().st_mode for file in path.rglob("*") if file.is_file()}) == 1


def test_the_same_step_is_not_written_again(tmp_path):
    def fail(folder):
        raise AssertionError("written again")

    run = CheckpointFolder(tmp_path)
    with run.lock():
        path = run.save(3, write_state(3))
        assert run.save(3, fail) == path
    resumed = CheckpointFolder(tmp_path)
    with resumed.lock():
        assert resumed.newest() == path
        assert resumed.save(3, fail) == path


@pytest.mark.parametrize("step", [2, 3])
def test_checkpoints_of_another_run_are_not_mixed_with_this_one(tmp_path, step):
    path = save(tmp_path, 3)
    before = contents(path)
    with pytest.raises(FileExistsError, match=rf"000000003 is a valid checkpoint, so step {step} cannot be saved now"):
        save(tmp_path, step)
    assert names_in(tmp_path) == [name_of(3)]
    assert contents(path) == before


def test_damaged_checkpoints_do_not_count_as_kept(tmp_path):
    save(tmp_path, 10, 20)
    (tmp_path / name_of(20) / "state.json").write_text("damaged")
    run = CheckpointFolder(tmp_path, keep=2)
    with run.lock():
        assert run.newest() == tmp_path / name_of(10)
        run.save(15, write_state(15))  # before the damaged one
        assert run.steps() == [10, 15, 20]
        run.save(20, write_state(20))  # in its place
        assert run.steps() == [15, 20]
        assert run.newest() == tmp_path / name_of(20)
        (tmp_path / name_of(20) / "log" / "notes.txt").unlink()
    save(tmp_path, 30, keep=2)  # behind it; another process does not know that 20 was written well
    assert run.steps() == [15, 20, 30]
    save(tmp_path, 40, keep=2)
    assert run.steps() == [30, 40]


@pytest.mark.parametrize("keep", [0, -1])
def test_at_least_one_is_kept(keep, tmp_path):
    with pytest.raises(ValueError, match=f"keep is {keep}, but at least 1 checkpoint must be kept"):
        CheckpointFolder(tmp_path, keep=keep)
    save(tmp_path, 1, 2, keep=1)
    assert names_in(tmp_path) == [name_of(2)]


def test_impossible_saves_are_refused(tmp_path):
    run = CheckpointFolder(tmp_path)
    with pytest.raises(RuntimeError, match=r"only inside `with checkpoints\.lock\(\):`"):
        run.save(1, write_state(1))
    with run.lock():
        with pytest.raises(ValueError, match="The step is -1, but steps are counted from 0"):
            run.save(-1, write_state(1))
        with pytest.raises(ValueError, match=r"Nothing was written for the checkpoint .*000000001"):
            run.save(1, lambda folder: None)
    assert names_in(tmp_path) == []


# --- Damaged checkpoints ---------------------------------------------------------------------------------------------


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace_by_a_file(path):
    shutil.rmtree(path)
    path.write_text("not a folder")


def replace_by_an_empty_folder(path):
    shutil.rmtree(path)
    path.mkdir()


def leave_an_empty_marker(path):
    replace_by_an_empty_folder(path)
    (path / "SHA256SUMS").touch()


def wrong_checksum(path):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["0" * 64 + lines[0][64:], *lines[1:]]))


DAMAGES = {
    "marker missing": (lambda path: (path / "SHA256SUMS").unlink(), "has no SHA256SUMS"),
    "file cut": (lambda path: os.truncate(path / "state.safetensors", 100), "state.safetensors has the SHA-256"),
    "bit flipped": (lambda path: flip_a_bit(path / "state.safetensors"), "state.safetensors has the SHA-256"),
    "checksum wrong": (lambda path: wrong_checksum(path / "SHA256SUMS"), "notes.txt has the SHA-256"),
    "file missing": (lambda path: (path / "log" / "notes.txt").unlink(), "log/notes.txt is missing"),
    "file too many": (lambda path: (path / "log" / "more").touch(), "log/more is not listed"),
    "marker garbled": (lambda path: (path / "SHA256SUMS").write_bytes(b"\xff\xfe"), "can't decode byte 0xff"),
    "marker cut": (lambda path: os.truncate(path / "SHA256SUMS", 30), "line 1 is not a SHA-256"),
    "marker empty": (lambda path: os.truncate(path / "SHA256SUMS", 0), "SHA256SUMS lists no files"),
    "only an empty marker": (leave_an_empty_marker, "SHA256SUMS lists no files"),
    "empty folder": (replace_by_an_empty_folder, "has no SHA256SUMS"),
    "file, not a folder": (replace_by_a_file, "It is not a folder"),
}


@pytest.mark.promise("R5")
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_checkpoints_are_skipped_and_that_is_said(kind, tmp_path, caplog):
    damage, reason = DAMAGES[kind]
    save(tmp_path, 10, 20)
    damage(tmp_path / name_of(20))
    assert CheckpointFolder(tmp_path).newest() == tmp_path / name_of(10)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"The checkpoint {tmp_path / name_of(20)} is skipped: " in record.message
    assert reason in record.message
    assert record.message.endswith(f"Taking {tmp_path / name_of(10)} instead.")


@pytest.mark.promise("R5")
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_never_begins_anew_in_silence(kind, tmp_path):
    damage, reason = DAMAGES[kind]
    save(tmp_path, 10, 20)
    for step in (10, 20):
        damage(tmp_path / name_of(step))
    with pytest.raises(ValueError, match=f"No checkpoint in {tmp_path} is valid:") as raised:
        CheckpointFolder(tmp_path).newest()
    for step in (10, 20):
        (line,) = [line for line in str(raised.value).splitlines() if line.startswith(f"  {name_of(step)}: ")]
        assert reason in line


def leave_leftovers(folder):
    """As a killed run would, in the middle of writing and of removing."""
    for name in (".checkpoint-000000030.0123abcd.partial", ".checkpoint-000000005.89abcdef.old"):
        (folder / name).mkdir(parents=True)
        write_state(30)(folder / name)
    hub.write_checksums(folder / name)


@pytest.mark.promise("R5")
def test_leftovers_are_not_taken_for_checkpoints(tmp_path):
    leave_leftovers(tmp_path)
    run = CheckpointFolder(tmp_path)
    assert run.newest() is None
    assert run.steps() == []
    for name in ("checkpoint-7", "checkpoint-0000000007", "xcheckpoint-000000007", ".checkpoint-of-mine"):
        (tmp_path / name).mkdir()
    save(tmp_path, 10)
    assert run.newest() == tmp_path / name_of(10)
    kept = [".checkpoint-of-mine", "checkpoint-0000000007", name_of(10), "checkpoint-7", "xcheckpoint-000000007"]
    assert names_in(tmp_path) == kept


# --- Killed while saving ---------------------------------------------------------------------------------------------


def nothing(folder):
    folder.mkdir()


def one_older(folder):
    save(folder, 10)


def two_older(folder):
    save(folder, 10, 20)


def leftovers(folder):
    save(folder, 10)
    leave_leftovers(folder)


def damaged_of_this_step(folder):
    save(folder, 10, 40)
    flip_a_bit(folder / name_of(40) / "state.safetensors")


NEW = 40
FEWEST_POINTS, FEWEST_POINTS_IN_PLACE, FEWEST_ERRORS = 41, 30, 16
SITUATIONS = [  # what is there, how many are kept, and the steps from which a run may continue when it is killed
    pytest.param(nothing, 2, {None, NEW}, id="nothing"),
    pytest.param(one_older, 1, {10, NEW}, id="one older that is removed"),
    pytest.param(two_older, 2, {20, NEW}, id="two older of which one is removed"),
    pytest.param(leftovers, 2, {10, NEW}, id="leftovers"),
    pytest.param(damaged_of_this_step, 2, {10, NEW}, id="damaged one of this step"),
]


def found_in(folder):
    """The step of the newest checkpoint if it is whole, byte for byte, None if there is none, else what is wrong."""
    try:
        newest = CheckpointFolder(folder).newest()
    except ValueError as error:
        return str(error)
    if newest is None:
        return None
    found = contents(newest)
    found.pop("SHA256SUMS")
    step = load_tree(newest, "state")["step"]
    return step if found == expected_contents(step) else f"a mix of files: {sorted(found)}"


@functools.cache
def expected_contents(step):
    with tempfile.TemporaryDirectory() as folder:
        write_state(step)(Path(folder))
        return contents(Path(folder))


def points_of(folder, save_new):
    """How many calls change files while the new checkpoint is saved."""
    shutil.copytree(folder, folder.with_name("counted"))
    return watch(lambda: save_new(folder.with_name("counted")), events=(BEFORE,))


def found_after_kills(folder, save_new):
    """What is found after a SIGKILL before the first call, before the second, and so on; and the folders."""
    for point in range(points_of(folder, save_new)):
        copy = folder.with_name(str(point))
        shutil.copytree(folder, copy)
        assert killed_at(point, lambda copy=copy: save_new(copy))
        yield found_in(copy), copy


def found_on_disk(folder, save_new, power_cut):
    copies = folder.with_name("states")
    for copy in states_on_disk(folder, lambda: save_new(folder), copies, power_cut):
        yield found_in(copy), copy


def assert_whole(survey, allowed):
    """At every point the previous checkpoint or the new one is found, and the next run can go on."""
    found = []
    for step, folder in survey:
        found.append(step)
        save(folder, NEW + 1, keep=1)  # the lock is free
        assert names_in(folder) == [name_of(NEW + 1)]
    assert len(found) >= FEWEST_POINTS
    assert set(found) == allowed
    assert set(found[found.index(NEW) :]) == {NEW}  # what was there once does not go again


@pytest.mark.promise("R2", n=FEWEST_POINTS)
@pytest.mark.slow
@pytest.mark.parametrize(("situation", "keep", "allowed"), SITUATIONS)
def test_killed_while_saving(situation, keep, allowed, quick_path):
    situation(quick_path / "run")
    assert_whole(found_after_kills(quick_path / "run", lambda folder: save(folder, NEW, keep=keep)), allowed)


@pytest.mark.promise("R2", n=FEWEST_POINTS)
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize(("situation", "keep", "allowed"), SITUATIONS)
def test_states_on_the_disk_while_saving(situation, keep, allowed, power_cut, quick_path):
    situation(quick_path / "run")
    assert_whole(found_on_disk(quick_path / "run", lambda folder: save(folder, NEW, keep=keep), power_cut), allowed)


def save_in_place(folder):
    """What must not be done: writes over the checkpoint that is there."""
    shutil.rmtree(folder / name_of(10) / "log")
    write_state(NEW)(folder / name_of(10))
    hub.finish_folder(folder / name_of(10))


def without_checksums(folder):
    """The step if the files are those of one step: what a program sees that does not check."""
    found = contents(folder / name_of(10))
    found.pop("SHA256SUMS", None)
    return next((step for step in (10, NEW) if found == expected_contents(step)), "a mix")


@pytest.mark.promise("R3", n=FEWEST_POINTS_IN_PLACE)
def test_kills_find_out_a_writer_in_place(quick_path):
    one_older(quick_path / "run")
    found = [(step, without_checksums(copy)) for step, copy in found_after_kills(quick_path / "run", save_in_place)]
    assert len(found) >= FEWEST_POINTS_IN_PLACE
    assert found[0] == (10, 10)
    assert any("is valid" in str(step) for step, _ in found)
    assert any(mixed == "a mix" for _, mixed in found)


@pytest.mark.promise("R3", n=FEWEST_POINTS_IN_PLACE)
@pytest.mark.parametrize("power_cut", [False, True])
def test_states_on_the_disk_find_out_a_writer_in_place(power_cut, quick_path):
    one_older(quick_path / "run")
    found = [step for step, _ in found_on_disk(quick_path / "run", save_in_place, power_cut)]
    assert len(found) >= FEWEST_POINTS_IN_PLACE
    assert found[0] == 10
    assert sum("is valid" in str(step) for step in found) > 15


def test_power_cuts_find_out_that_files_are_not_flushed(quick_path, monkeypatch):
    monkeypatch.setattr(hub, "_flush", lambda folder: None)
    one_older(quick_path / "run")
    found = [step for step, _ in found_on_disk(quick_path / "run", lambda folder: save(folder, NEW, keep=1), True)]
    assert "is valid" in str(found[-1])


def test_the_new_one_is_on_the_disk_before_the_old_one_goes(tmp_path, monkeypatch):
    save(tmp_path, 10)
    events = []
    rename, fsync = os.rename, os.fsync

    def record_rename(source, target):
        events.append((Path(source).name.split(".")[-1], Path(target).name.split(".")[-1]))
        rename(source, target)

    def record_fsync(descriptor):
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "rename", record_rename)
    monkeypatch.setattr(os, "fsync", record_fsync)
    save(tmp_path, 20, keep=1)
    assert set(events[:7]) >= {"state.json", "state.safetensors", "notes.txt", "words.txt", "SHA256SUMS", "log"}
    assert events[7:] == [("partial", name_of(20)), tmp_path.name, (name_of(10), "old")]


# --- Errors of the system --------------------------------------------------------------------------------------------


@pytest.mark.promise("R6", n=FEWEST_ERRORS)
@pytest.mark.parametrize(("situation", "keep", "allowed"), SITUATIONS)
def test_errors_while_saving(situation, keep, allowed, quick_path):
    """At every call: either the old checkpoints are as they were, and the error names the path, or all is saved."""
    situation(quick_path / "run")
    before = found_in(quick_path / "run")
    shutil.copytree(quick_path / "run", quick_path / "counted")
    refused = 0
    points = watch_saving(quick_path / "counted", keep, lambda point: None)
    for point in range(points):
        folder = quick_path / str(point)
        shutil.copytree(quick_path / "run", folder)
        try:
            watch_saving(folder, keep, functools.partial(fail_at, point))
            assert found_in(folder) == NEW
        except OSError as error:
            message = str(error)
            refused += 1
            assert message.startswith(f"The checkpoint {folder / name_of(NEW)} cannot be written: ")
            assert "on purpose" in message
            assert found_in(folder) in (before, NEW)
            assert before is None or (folder / name_of(before)).is_dir()
        save(folder, NEW + 1, keep=1)
        assert names_in(folder) == [name_of(NEW + 1)]
    assert FEWEST_ERRORS <= refused < points


def watch_saving(folder, keep, strike):
    run = CheckpointFolder(folder, keep=keep)
    with run.lock():
        return watch(lambda: run.save(NEW, write_state(NEW)), strike, events=(BEFORE,))


def fail_at(point, reached):
    if reached == point:
        code = (errno.ENOSPC, errno.EROFS, errno.EIO)[point % 3]
        raise OSError(code, f"{os.strerror(code)} on purpose")


@pytest.mark.promise("R6")
@pytest.mark.parametrize("limit", [100, 1000])
def test_files_that_the_system_does_not_let_grow(limit, tmp_path, capfd):
    """A real error of the system, which safetensors meets, too: files may not have more bytes."""
    save(tmp_path, 10)
    before = contents(tmp_path / name_of(10))

    def save_within_limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        run = CheckpointFolder(tmp_path)
        with run.lock():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with pytest.raises(OSError, match=rf"{name_of(20)} cannot be written: .*File too large.*are unchanged"):
                run.save(20, lambda folder: save_tree(folder, "state", torch.zeros(10_000)))

    assert status_of_child(save_within_limit) == 0
    assert names_in(tmp_path) == [name_of(10)]
    assert contents(tmp_path / name_of(10)) == before


def test_old_checkpoints_that_cannot_be_removed_are_told(tmp_path, monkeypatch, caplog):
    rename = os.rename

    def fail(source, target):
        if str(target).endswith(".old"):
            raise PermissionError(errno.EACCES, "on purpose", str(source))
        rename(source, target)

    save(tmp_path, 10)
    monkeypatch.setattr(os, "rename", fail)
    save(tmp_path, 20, keep=1)
    assert names_in(tmp_path) == [name_of(10), name_of(20)]
    assert f"An old checkpoint, {tmp_path / name_of(10)}, cannot be removed: " in caplog.text


# --- The lock --------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock, and one that it has forked; both live until they are killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        run = CheckpointFolder(tmp_path / "run")
        with run.lock():
            worker = os.fork()
            if worker != 0:
                os.write(writer, f"{worker}\n".encode())
            signal.pause()
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        worker = int(file.readline())
    yield child
    for process in (child, worker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


@pytest.mark.promise("R8")
def test_a_second_run_is_refused(holder, tmp_path):
    run = CheckpointFolder(tmp_path / "run")
    for _ in range(2):
        with (
            pytest.raises(
                BlockingIOError, match=rf"run is in use by process {holder} on .*, since 20.*choose another"
            ),
            run.lock(),
        ):
            pass
    with pytest.raises(RuntimeError, match="only inside"):
        run.save(1, write_state(1))
    assert run.newest() is None  # reading needs no lock
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    save(tmp_path / "run", 1)  # although the process that the holder had forked still lives


def test_the_lock_ends_with_the_block(tmp_path):
    first, second = CheckpointFolder(tmp_path), CheckpointFolder(tmp_path)
    for one, other in ((first, second), (second, first)):
        with one.lock(), pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on "), other.lock():
            pass
    with pytest.raises(KeyError), first.lock():
        raise KeyError("on purpose")
    with second.lock():
        second.save(1, write_state(1))


def test_forked_processes_do_not_hold_the_lock(tmp_path):
    run = CheckpointFolder(tmp_path)

    def save_in_child():
        with pytest.raises(RuntimeError, match="only inside"):
            run.save(1, write_state(1))
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getppid()}"), run.lock():
            pass

    with run.lock():
        assert status_of_child(save_in_child) == 0
        run.save(1, write_state(1))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"pid": 1}'])
def test_unreadable_holders_are_another_process(content, tmp_path):
    with CheckpointFolder(tmp_path).lock():
        (tmp_path / ".lock").write_bytes(content)
        with pytest.raises(BlockingIOError, match="is in use by another process"), CheckpointFolder(tmp_path).lock():
            pass


def test_file_systems_and_platforms_without_locks_are_told(tmp_path, monkeypatch):
    def fail(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(checkpoints.fcntl, "flock", fail)
    with pytest.raises(OSError, match=r"\.lock cannot be locked: .*No locks available.*another file system"):
        save(tmp_path, 1)
    monkeypatch.setattr(checkpoints, "fcntl", None)
    with pytest.raises(OSError, match=r"cannot be locked, because .* has no flock"):
        save(tmp_path, 1)
    assert names_in(tmp_path) == []
