"""The reader of TensorFlow checkpoints reads what TensorFlow wrote, and refuses what is wrong with a file."""

import json
import os
import random
import resource
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from tensorflow_python import needs_tensorflow, run_tensorflow
from tf_checkpoint_writer import (
    block,
    bundle,
    crc32c_by_bytes,
    entry,
    finished,
    header,
    masked,
    number_field,
    octets_field,
    place,
    shard_file,
    snappy,
    table,
    table_of_blocks,
    trailed,
    varint,
    write_checkpoint,
)

from hf_elmo.conversion import tf_checkpoint
from hf_elmo.conversion.tf_checkpoint import TensorFlowCheckpoint, crc32c

CELL = "lm/RNN_{}/rnn/multi_rnn_cell/cell_{}/lstm_cell"
SHAPES = {
    "lm/char_embed": (261, 4),
    "lm/CNN/W_cnn_0": (1, 1, 4, 8),
    "lm/CNN/b_cnn_0": (8,),
    "lm/softmax/W": (20, 6),
    "lm/softmax/b": (20,),
    **{f"{CELL.format(d, n)}/kernel": (12, 40) for d in range(2) for n in range(2)},
    **{f"{CELL.format(d, n)}/bias": (40,) for d in range(2) for n in range(2)},
    **{f"{CELL.format(d, n)}/projection/kernel": (10, 6) for d in range(2) for n in range(2)},
}
TARGET = "lm/softmax/W"


def random_tensors(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


TENSORS = random_tensors()


@pytest.fixture
def prefix(tmp_path):
    """A right checkpoint."""
    write_checkpoint(tmp_path / "model.ckpt-7", TENSORS)
    return tmp_path / "model.ckpt-7"


def index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def check_all(checkpoint: TensorFlowCheckpoint, tensors: dict[str, np.ndarray]) -> None:
    """Compares every tensor, bit for bit."""
    assert checkpoint.names() == {name: (array.dtype.name, array.shape) for name, array in tensors.items()}
    for name, array in tensors.items():
        if array.dtype == np.float32:
            found = checkpoint.read(name, array.shape)
            assert found.dtype == np.float32
            assert found.shape == array.shape
            assert found.tobytes() == array.tobytes()


# --- What TensorFlow writes and reads --------------------------------------------------------------------------------

# Saves the variables of bilm-tf and its optimizer as it does, after one step, and again in other ways; then loads.
SAVE_AND_LOAD = """
import json, os, sys
import numpy as np
import tensorflow as tf
folder, shapes = sys.argv[1], json.loads(sys.argv[2])
tf1 = tf.compat.v1
tf1.disable_eager_execution()
generator = np.random.default_rng(1)

def save(name, saver_options, devices=1, **options):
    os.mkdir(f"{folder}/{name}")
    with tf1.Graph().as_default(), tf1.Session(config=tf1.ConfigProto(device_count={"CPU": devices})) as session:
        random = lambda shape, **_: tf.constant(generator.standard_normal(shape).astype(np.float32))
        step = tf1.get_variable("global_step", [], initializer=tf1.constant_initializer(0), trainable=False)
        variables = []
        for number, (one, shape) in enumerate(shapes.items()):
            with tf.device(f"/cpu:{number % devices}"):
                variables.append(tf1.get_variable(one, shape, initializer=random, **options))
        tf1.get_variable("train_perplexity", [], initializer=tf1.constant_initializer(0.0), trainable=False)
        if not options:
            tf1.get_variable("an_integer", [], tf.int64, tf1.constant_initializer(935588), trainable=False)
            optimizer = tf1.train.AdagradOptimizer(0.2, initial_accumulator_value=1.0)
            loss = tf.add_n([tf.reduce_sum(one**3) for one in variables])
            train = optimizer.apply_gradients(optimizer.compute_gradients(loss), global_step=step)
        session.run(tf1.global_variables_initializer())
        if not options:
            session.run(train)
        saver = tf1.train.Saver(tf1.global_variables(), max_to_keep=2, **saver_options)
        saver.save(session, f"{folder}/{name}/model.ckpt", global_step=7)
        np.savez(f"{folder}/{name}.npz", **{one.op.name: session.run(one) for one in tf1.global_variables()})

save("usual", {})
save("sharded", {"sharded": True}, devices=3)  # and one file for variables of no device in particular
save("partitioned", {}, use_resource=False, partitioner=lambda shape, **_: [min(2, shape[0])] + [1] * (len(shape) - 1))
save("first_format", {"write_version": tf1.train.SaverDef.V1})
for prefix in sys.argv[3:]:
    reader = tf1.train.NewCheckpointReader(prefix)
    np.savez(f"{prefix}.npz", **{name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
"""

# What the writer of the tests is asked for.
WRITTEN = {"one": {}, "several": {"shards": 3, "block_size": 2}, "compressed": {"compressed": True}}
MIXED = TENSORS | {"global_step": np.array(7, np.int64), "empty": np.zeros((0, 3), np.float32)}


@pytest.fixture(scope="module")
def tensorflow_folder(tmp_path_factory):
    """A folder in which TensorFlow has saved checkpoints, and beside them, and beside ours, the values as npz."""
    folder = tmp_path_factory.mktemp("tensorflow")
    for name, options in WRITTEN.items():
        write_checkpoint(folder / name, MIXED, **options)
    run_tensorflow(SAVE_AND_LOAD, folder, json.dumps(SHAPES), *(folder / name for name in WRITTEN))
    return folder


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize(("name", "shards"), [("usual", 1), ("sharded", 4)])
def test_reads_what_tensorflow_wrote(tensorflow_folder, name, shards):
    checkpoint = TensorFlowCheckpoint(tensorflow_folder / name)
    with np.load(tensorflow_folder / f"{name}.npz") as arrays:
        check_all(checkpoint, dict(arrays))
        assert set(arrays) == {
            *SHAPES,
            *(f"{one}/Adagrad" for one in SHAPES),
            "global_step",
            "train_perplexity",
            "an_integer",
        }
    assert len(checkpoint.files()) == 1 + shards
    assert checkpoint.read("global_step", ()) == 1
    with pytest.raises(ValueError, match="'an_integer' holds values of type int64; only float32"):
        checkpoint.read("an_integer", ())


@pytest.mark.slow
@needs_tensorflow
def test_refuses_other_ways_of_tensorflow(tensorflow_folder):
    with pytest.raises(ValueError, match=r"tensor '.*lm/.*partitioned variable"):
        TensorFlowCheckpoint(tensorflow_folder / "partitioned" / "model.ckpt-7")
    with pytest.raises(ValueError, match=r"first format.*write_version=2"):
        TensorFlowCheckpoint(tensorflow_folder / "first_format" / "model.ckpt-7")


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize("name", WRITTEN)
def test_tensorflow_reads_what_the_writer_of_the_tests_wrote(tensorflow_folder, name):
    with np.load(tensorflow_folder / f"{name}.npz") as arrays:
        assert set(arrays) == set(MIXED)
        assert all(arrays[one].tobytes() == MIXED[one].tobytes() for one in MIXED)


# --- Right files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"block_size": 1}, {"block_size": 100}, {"shards": 3}, {"compressed": True}, {"shards": 25, "block_size": 2}],
)
def test_reads_every_tensor(tmp_path, options):
    tensors = TENSORS | {
        "global_step": np.array(7, np.int64),
        "half": np.ones(3, np.float16),
        "double": np.ones((2, 2)),
        "scalar": np.array(1.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }
    write_checkpoint(tmp_path / "model.ckpt", tensors, **options)
    check_all(TensorFlowCheckpoint(tmp_path / "model.ckpt"), tensors)


def test_a_large_tensor(tmp_path):
    """More than a row of words of the checksum, and a rest."""
    tensors = {"large": np.random.default_rng(0).standard_normal((7, 9001)).astype(np.float32)}
    write_checkpoint(tmp_path / "model.ckpt", tensors)
    check_all(TensorFlowCheckpoint(tmp_path / "model.ckpt"), tensors)


@pytest.mark.parametrize("name", ["", "model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001"])
def test_every_way_to_name_a_checkpoint(prefix, name):
    check_all(TensorFlowCheckpoint(prefix.parent / name), TENSORS)
    check_all(TensorFlowCheckpoint(str(prefix.parent / name)), TENSORS)


@pytest.mark.parametrize(
    "value",
    ["model.ckpt-é", r"model.ckpt-\303\251", "/home/someone/training/model.ckpt-é", r"C:\\models\\model.ckpt-é"],
)
def test_the_text_file_of_a_folder(tmp_path, value):
    write_checkpoint(tmp_path / "model.ckpt-é", TENSORS, state=False)
    text = f'model_checkpoint_path: "{value}"\nall_model_checkpoint_paths: "model.ckpt-6"\n'
    (tmp_path / "checkpoint").write_text(text, encoding="utf-8")
    check_all(TensorFlowCheckpoint(tmp_path), TENSORS)


def test_checksums():
    generator = np.random.default_rng(0)
    assert crc32c(b"123456789") == 0xE3069283  # the check value that every description of CRC-32C gives
    for size in [*range(20), 127, 128, 129, 1000, 65535, 65536, 65537, 150_001]:
        content = generator.bytes(size)
        assert crc32c(content) == crc32c_by_bytes(content), size


def test_checksums_are_fast():
    """A published model with its softmax has 1.7 GB."""
    content = np.random.default_rng(0).integers(0, 256, 50_000_000, np.uint8)
    start = time.perf_counter()
    crc32c(content)
    assert time.perf_counter() - start < 2  # measured: 0.07 s


# --- Wrong files -----------------------------------------------------------------------------------------------------


def spoiled_entry(prefix: Path, name: str = TARGET, **changes) -> None:
    """The index with another entry for the tensor, and right checksums."""
    pairs, _ = bundle(TENSORS)
    array, offset = TENSORS[name], 0
    for other in sorted(TENSORS):
        if other == name:
            break
        offset += TENSORS[other].nbytes
    fields = {
        "kind": 1,
        "shape": array.shape,
        "offset": offset,
        "size": array.nbytes,
        "checksum": masked(array.tobytes()),
    }
    pairs[name.encode()] = entry(**{**fields, **changes})
    index_of(prefix).write_bytes(table(pairs))


def spoiled_pairs(prefix: Path, **pairs: bytes) -> None:
    """The index with other or more pairs, in order."""
    original, _ = bundle(TENSORS)
    changed = original | {name.encode(): value for name, value in pairs.items()}
    index_of(prefix).write_bytes(table(dict(sorted(changed.items()))))


def spoiled_header(prefix: Path, message: bytes | None) -> None:
    pairs, _ = bundle(TENSORS)
    if message is None:
        del pairs[b""]
    else:
        pairs[b""] = message
    index_of(prefix).write_bytes(table(pairs))


def in_index(change):
    """Changes the bytes of the index."""

    def spoil(prefix):
        index = index_of(prefix)
        index.write_bytes(change(index.read_bytes()))

    return spoil


def in_data(change):
    def spoil(prefix):
        shard_file(prefix).write_bytes(change(shard_file(prefix).read_bytes()))

    return spoil


def flipped(position):
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def entry_with(**changes):
    return lambda prefix: spoiled_entry(prefix, **changes)


def header_of(message):
    return lambda prefix: spoiled_header(prefix, message)


def table_from(make):
    """The index made anew from its pairs, as a list."""
    return lambda prefix: index_of(prefix).write_bytes(make(sorted(bundle(TENSORS)[0].items())))


def one_block(pairs, raw=None):
    return table_of_blocks([(pairs[-1][0], block(pairs) if raw is None else raw)])


def block_that_is_its_own_index(pairs):
    """The list of blocks names itself and the blocks before it, for ever."""
    stored = trailed(block(pairs))
    places = [(pairs[-1][0], place(0, len(stored) - 5)), (b"\xff", place(0, len(stored) - 5))]
    return finished(stored, block(places))


def many_blocks_of_the_same_bytes(pairs):
    stored = trailed(block(pairs))
    places = [(b"%09d" % number, place(0, len(stored) - 5)) for number in range(5000)]
    return finished(stored, block(places))


def stored(content):
    """A block and the number of its compression, with their checksum."""
    return content + struct.pack("<I", masked(content))


def compressed_block(packed):
    """A table whose only block is this one, said to be compressed."""
    return finished(stored(packed + b"\1"), block([(b"z", place(0, len(packed)))]))


def unpacks_from(packed):
    return lambda prefix: index_of(prefix).write_bytes(compressed_block(packed))


def names_that_grow(pairs):
    """Each name shares all of the one before: a few bytes each stand for many."""
    return one_block([*pairs, *((b"z" * length, pairs[1][1]) for length in range(1, 1200))])


def state(text):
    return lambda prefix: (prefix.parent / "checkpoint").write_bytes(text)


def missing_data(prefix):
    shard_file(prefix).unlink()


def folder_for_data(prefix):
    missing_data(prefix)
    shard_file(prefix).mkdir()


def pipe_for_index(prefix):
    index_of(prefix).unlink()
    os.mkfifo(index_of(prefix))


def with_value(value):
    def spoil(prefix):
        array = TENSORS[TARGET].copy()
        array[1, 2] = value
        write_checkpoint(prefix, TENSORS | {TARGET: array})

    return spoil


OFFSET = sum(TENSORS[name].nbytes for name in sorted(TENSORS) if name < TARGET)
SLICES = octets_field(7, octets_field(1, number_field(2, 10))) * 2
NO_SIZE = varint(1 << 20)

INDEX_KINDS = {
    "zero bytes": (in_index(lambda content: b""), "has 0 bytes and does not end"),
    "47 bytes": (in_index(lambda content: content[-47:]), "has 47 bytes and does not end"),
    "footer only": (in_index(lambda content: content[-48:]), "not all in the file"),
    "cut": (in_index(lambda content: content[:-20]), "does not end as one does"),
    "without its beginning": (in_index(lambda content: content[7:]), "not all in the file|checksum"),
    "garbage": (in_index(lambda content: np.random.default_rng(0).bytes(5000)), "does not end as one does"),
    "too large": (in_index(lambda content: bytes(2**20) + content), "more than 1,048,576 bytes"),
    "first block damaged": (in_index(flipped(20)), "checksum of the block at byte 0 is wrong"),
    "list of blocks damaged": (in_index(flipped(-60)), "checksum of the block"),
    "footer not empty": (in_index(flipped(-12)), "last bytes"),
    "bytes between blocks": (in_index(lambda content: b"x" + content), "checksum|instead of"),
    "a pipe": (pipe_for_index, "not a regular file"),
    "no header": (header_of(None), "no header"),
    "big endian": (header_of(header(big_endian=1)), "big endian"),
    "no files": (header_of(header(shards=0)), "counts 0 files"),
    "negative files": (header_of(header(shards=-1)), "counts -1 files"),
    "many files": (header_of(header(shards=10**9)), "counts 1000000000 files"),
    "future version": (header_of(header(version=2)), "version 2 of the format"),
    "future reader": (header_of(number_field(1, 1) + octets_field(3, b"\x08\x01\x10\x05")), "needs a reader for 5"),
    "header of another kind": (header_of(b"\x0d\1\2\3\4"), "field 1 of kind 5, which is unknown"),
    "header cut": (header_of(header()[:-1]), "ends too early"),
    "name twice": (table_from(lambda pairs: one_block([*pairs[:3], pairs[2], *pairs[3:]])), "appears twice"),
    "name twice, in two blocks": (
        table_from(lambda pairs: table([*pairs[:10], pairs[9], *pairs[10:]], block_size=10)),
        "appears twice",
    ),
    "names not in order": (table_from(lambda pairs: one_block([*pairs[2:], *pairs[:2]])), "appears twice, or after"),
    "loop of blocks": (table_from(block_that_is_its_own_index), "a block begins at byte 0 instead of"),
    "one block many times": (table_from(many_blocks_of_the_same_bytes), "a block begins at byte 0 instead of"),
    "no blocks": (table_from(lambda pairs: finished(b"", block([]))), "no header"),
    "a block without an end": (table_from(lambda pairs: one_block(pairs, b"\0\0\0")), "block is not as it must be"),
    "too many restarts": (table_from(lambda pairs: one_block(pairs, b"\xff\xff\xff\xff")), "block is not as"),
    "shares too much": (
        table_from(lambda pairs: one_block(pairs, b"\x05\0\0" + b"\0\0\0\0\1\0\0\0")),
        "a name shares 5 bytes with one of 0",
    ),
    "a name that is too long": (
        table_from(names_that_grow),
        r"a name shares [\d,]+ bytes with one of [\d,]+ and has [\d,]+ more",
    ),
    "value beyond the block": (
        table_from(lambda pairs: one_block(pairs, b"\0\0\x7f" + b"\0\0\0\0\1\0\0\0")),
        "ends too early",
    ),
    "endless number": (table_from(lambda pairs: one_block(pairs, b"\xff" * 30 + b"\0\0\0\0\1\0\0\0")), "too large"),
    "unknown compression": (
        table_from(lambda _: finished(stored(b"abc\7"), block([(b"z", place(0, 3))]))),
        "compressed in way 7",
    ),
    "compressed bomb": (
        unpacks_from(varint(2**40) + b"\0a" + b"\xfe\1\0" * 1000),
        "more than 1,048,576",
    ),
    "compressed to something longer": (
        unpacks_from(varint(100) + b"\0a" + b"\xfe\1\0" * 1000),
        "does not have the length",
    ),
    "compressed to something shorter": (
        unpacks_from(varint(100) + b"\0a"),
        "does not have the length",
    ),
    "repeats what is not there": (
        unpacks_from(varint(9) + b"\0a\xfe\2\0"),
        "repeats what is not there",
    ),
    "repeats at distance 0": (unpacks_from(varint(9) + b"\0a\xfe\0\0"), "repeats what is not there"),
    "many tensors": (
        table_from(lambda pairs: table([*pairs, *((b"z%06d" % n, b"") for n in range(10_001))], block_size=500)),
        "more than 10,000 tensors",
    ),
    "shard out of range": (entry_with(shard=1), f"{TARGET}' cannot be read: it is in file 1 of 1"),
    "negative shard": (entry_with(shard=-1), f"{TARGET}' cannot be read: it is in file -1 of 1"),
    "negative offset": (entry_with(offset=-8), f"{TARGET}' .*480 bytes from -8 on"),
    "negative size": (entry_with(size=-480), f"{TARGET}' .*-480 bytes from"),
    "negative dimension": (entry_with(shape=(20, -6)), rf"{TARGET}' .*it has shape \(20, -6\)"),
    "two negative dimensions": (entry_with(shape=(-20, -6)), rf"{TARGET}' .*it has shape \(-20, -6\)"),
    "huge dimensions": (entry_with(shape=(2**62, 2**62)), f"{TARGET}' .*needs 85,070.* bytes, but it has 480"),
    "product that wraps around": (entry_with(shape=(2**32, 2**32, 120)), f"{TARGET}' .*but it has 480"),
    "many dimensions": (entry_with(shape=(1,) * 300), f"{TARGET}' .*it has 300 dimensions"),
    "unknown shape": (
        lambda prefix: spoiled_pairs(prefix, **{TARGET: number_field(1, 1) + octets_field(2, number_field(3, 1))}),
        f"{TARGET}' .*its shape is unknown",
    ),
    "size of another shape": (entry_with(size=476), f"{TARGET}' .*needs 480 bytes, but it has 476"),
    "size of another type": (entry_with(kind=2), rf"{TARGET}' .*float64 of shape \(20, 6\) needs 960"),
    "offset beyond the file": (entry_with(offset=10**12), f"data-00000.*{TARGET}' ends at byte 1,000,000,000,480"),
    "string beyond the file": (entry_with(kind=7, size=10**12), f"{TARGET}' ends at byte 1,000,000"),
    "overlap": (entry_with(offset=OFFSET - 4), f"{TARGET}' shares bytes with 'lm/char_embed'"),
    "two names for the same bytes": (
        lambda prefix: spoiled_pairs(
            prefix, **{f"{TARGET}2": entry(1, (20, 6), OFFSET, 480, masked(TENSORS[TARGET].tobytes()))}
        ),
        f"{TARGET}2' shares bytes with '{TARGET}'",
    ),
    "partitioned": (entry_with(more=SLICES), f"{TARGET}' cannot be read: it .*partitioned"),
    "one piece only": (entry_with(more=octets_field(7, b"")), f"{TARGET}' cannot be read: it is a partitioned"),
    "a piece of something": (
        lambda prefix: spoiled_pairs(prefix, **{"\0piece": entry(1, (), 0, 4, 0)}),
        "piece' cannot be read: it is a partitioned",
    ),
    "unknown field": (entry_with(more=octets_field(9, b"x")), f"{TARGET}' .*field 9 of kind 2, which is unknown"),
    "field twice": (entry_with(more=number_field(5, 480)), f"{TARGET}' .*field 5 twice"),
    "group": (entry_with(more=b"\x43"), f"{TARGET}' .*field 8 of kind 3"),
    "name that is not UTF-8": (
        table_from(lambda pairs: one_block([*pairs, (b"z\xff\xfe", pairs[1][1])])),
        r"'z\\\\xff\\\\xfe' cannot be read: its name is not UTF-8",
    ),
    "data cut": (in_data(lambda content: content[:-4]), "'lm/softmax/b' ends at byte .* Is the file complete"),
    "data of zero bytes": (in_data(lambda content: b""), "but the file has 0"),
    "folder for data": (folder_for_data, "data-00000-of-00001 is not a regular file"),
}


def refused(path: Path, reason: str) -> str:
    """The words of the refusal, which comes soon and takes no memory."""
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(ValueError, match=reason) as caught:
        TensorFlowCheckpoint(path).read(TARGET, SHAPES[TARGET])
    assert time.perf_counter() - start < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200 * 1024  # kilobytes
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500
    return str(caught.value)


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_hostile_checkpoint_is_refused(prefix, kind):
    spoil, reason = INDEX_KINDS[kind]
    spoil(prefix)
    refused(prefix, reason)


READ_KINDS = {
    "data damaged": (in_data(flipped(OFFSET + 100)), "data-00000.*is damaged: its checksum is wrong"),
    "data of zeros": (in_data(lambda content: bytes(len(content))), "checksum is wrong"),
    "another checksum": (entry_with(checksum=7), "checksum is wrong"),
    "no checksum": (entry_with(checksum=0), "checksum is wrong"),
    "offset of another": (entry_with(offset=10**5), "ends at byte 100,480|checksum is wrong"),
    "another type": (entry_with(kind=3), "holds values of type int32; only float32"),
    "unknown type": (entry_with(kind=77), "holds values of type number 77; only float32"),
    "reference type": (entry_with(kind=101), "holds values of type number 101; only float32"),
    "string": (entry_with(kind=7), "holds values of type string; only float32"),
    "transposed": (entry_with(shape=(6, 20)), r"has shape \(6, 20\); the options ask for \(20, 6\)"),
    "flat": (entry_with(shape=(120,)), r"has shape \(120,\); the options ask for \(20, 6\)"),
    "NaN": (with_value(np.nan), "1 of 120 values that are NaN or infinite"),
    "infinity": (with_value(-np.inf), "1 of 120 values that are NaN or infinite"),
}


@pytest.mark.parametrize("kind", READ_KINDS)
def test_hostile_tensor_is_refused(prefix, kind):
    spoil, reason = READ_KINDS[kind]
    spoil(prefix)
    if kind != "offset of another":
        TensorFlowCheckpoint(prefix)  # the others are listed all the same
    assert repr(TARGET) in refused(prefix, reason)


def test_unknown_name_is_refused(prefix):
    with pytest.raises(ValueError, match=r"model.ckpt-7.index has no tensor 'lm/embedding'"):
        TensorFlowCheckpoint(prefix).read("lm/embedding", (3, 4))


STATES = {
    "another folder": b'model_checkpoint_path: "../model.ckpt-7"\n',
    "folder below": b'model_checkpoint_path: "below/model.ckpt-7"\n',
    "parent": b'model_checkpoint_path: ".."\n',
    "absolute parent": b'model_checkpoint_path: "/tmp/.."\n',
    "absolute folder": b'model_checkpoint_path: "/tmp/"\n',
    "empty": b'model_checkpoint_path: ""\n',
    "backslashes": b'model_checkpoint_path: "..\\\\model.ckpt-7"\n',
    "NUL": b'model_checkpoint_path: "model\\000.ckpt-7"\n',
    "drive": b'model_checkpoint_path: "c:model.ckpt-7"\n',
}


@pytest.mark.parametrize("kind", STATES)
def test_text_file_that_leads_elsewhere_is_refused(prefix, kind):
    (prefix.parent / "checkpoint").write_bytes(STATES[kind])
    refused(prefix.parent, "checkpoint names the checkpoint .*in the same folder")


def test_text_file_that_is_none_is_refused(prefix):
    text = prefix.parent / "checkpoint"
    text.write_bytes(b'model_checkpoint_path: "model.ckpt-7"\n' * 2)
    refused(prefix.parent, "has 2 lines such as")
    text.write_bytes(np.random.default_rng(0).bytes(1000))
    refused(prefix.parent, "has 0 lines such as")
    text.write_bytes(b'model_checkpoint_path: "model\\377"\n')
    refused(prefix.parent, "is not UTF-8")
    text.write_bytes(b'model_checkpoint_path: "' + b"\\" * 2**20)
    refused(prefix.parent, "more than 1,048,576 bytes")
    text.write_bytes(b'model_checkpoint_path: "' + b"\\" * 10**6 + b"\n")
    refused(prefix.parent, "has 0 lines such as")


def test_missing_files_are_named(prefix, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*model.ckpt-8.index"):
        TensorFlowCheckpoint(tmp_path / "model.ckpt-8")
    missing_data(prefix)
    with pytest.raises(FileNotFoundError, match=r"no file .*model.ckpt-7.data-00000-of-00001"):
        TensorFlowCheckpoint(prefix)
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file 'checkpoint'.*Give the path of an index file"):
        TensorFlowCheckpoint(tmp_path)


def test_checkpoint_of_the_first_format_is_refused(tmp_path):
    (tmp_path / "model.ckpt-7").write_bytes(table({b"": b"x"}))
    refused(tmp_path / "model.ckpt-7", "first format, in one file")


# --- Damaged at random -----------------------------------------------------------------------------------------------


def mutated(content: bytes, generator: random.Random) -> bytes:
    """The content with one to eight other bytes, and sometimes without its end or with a piece moved."""
    changed = bytearray(content)
    if generator.random() < 0.15:
        del changed[generator.randrange(1, len(changed)) :]
    if generator.random() < 0.15:
        start, size, target = (generator.randrange(len(changed)) for _ in range(3))
        changed[target:target] = changed[start : start + size % 50]
    for _ in range(generator.randint(1, 8)):
        changed[generator.randrange(len(changed))] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
    return bytes(changed)


def outcome(prefix: Path) -> str:
    """How reading everything ends, which must be soon."""
    start = time.perf_counter()
    try:
        checkpoint = TensorFlowCheckpoint(prefix)
        arrays = {name: checkpoint.read(name, SHAPES.get(name, ())) for name in checkpoint.names()}
    except (ValueError, FileNotFoundError) as error:
        return "refused" if str(prefix) in str(error) else f"refused without a name: {error}"
    finally:
        assert time.perf_counter() - start < 2
    same = set(arrays) == set(TENSORS) and all(arrays[name].tobytes() == TENSORS[name].tobytes() for name in arrays)
    return "accepted" if same else "wrong"


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_index(tmp_path, compressed):
    index = write_checkpoint(tmp_path / "model", TENSORS, compressed=compressed)
    content = index.read_bytes()
    for trial in range(400):
        index.write_bytes(mutated(content, random.Random(trial)))
        assert outcome(tmp_path / "model") == ("accepted" if index.read_bytes() == content else "refused"), trial


def test_damaged_data(tmp_path):
    write_checkpoint(tmp_path / "model", TENSORS)
    content = shard_file(tmp_path / "model").read_bytes()
    for trial in range(300):
        changed = mutated(content, random.Random(trial))
        shard_file(tmp_path / "model").write_bytes(changed)
        assert outcome(tmp_path / "model") == ("accepted" if changed[: len(content)] == content else "refused"), trial


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_behind_right_checksums(tmp_path, compressed):
    """The reader itself, where no checksum protects it: it may accept other names, but nothing else happens."""
    pairs = sorted(bundle(TENSORS)[0].items())
    raw = block(pairs)
    write_checkpoint(tmp_path / "model", TENSORS)
    results = []
    for trial in range(600):
        generator = random.Random(trial)
        if compressed:
            content = compressed_block(mutated(snappy(raw), generator))
        else:
            content = one_block(pairs, mutated(raw, generator))
        index_of(tmp_path / "model").write_bytes(content)
        results.append(outcome(tmp_path / "model"))
    assert results.count("refused") > 500
    assert set(results) <= {"refused", "accepted", "wrong"}


def test_sizes_of_types():
    """They are those of numpy, where it has the type."""
    sizes = {name: width for name, width in tf_checkpoint.TYPES.values() if name not in ("string", "bfloat16")}
    assert sizes == {name: np.dtype(name).itemsize for name in sizes}
