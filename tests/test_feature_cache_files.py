"""Torn files and killed processes: what a cache gives is still what the model computes."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cached_features import PREAMBLE, assert_equal, computed, files, frozen_model, many_sentences, read, run
from tiny import SENTENCES

from hf_elmo.feature_cache import FeatureCache

# --- Damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".features"])
def test_every_torn_end_leaves_a_readable_cache(tmp_path, suffix, caplog):
    model = frozen_model()
    sentences = SENTENCES[:3]
    read(FeatureCache(tmp_path / "whole"), model, sentences[:1])
    read(FeatureCache(tmp_path / "whole"), model, sentences[1:])
    expected = read(FeatureCache(tmp_path / "whole"), model, sentences)
    size = files(tmp_path / "whole", suffix)[1].stat().st_size
    kept_rows = set()
    for length in range(0, size, 1 if suffix == ".index" else 97):
        shutil.copytree(tmp_path / "whole", tmp_path / "torn")
        os.truncate(files(tmp_path / "torn", suffix)[1], length)
        cache = FeatureCache(tmp_path / "torn")
        assert_equal(read(cache, model, sentences), expected, rtol=0, atol=1e-6)
        kept_rows.add(cache.statistics.hits)
        cache = FeatureCache(tmp_path / "torn")
        read(cache, model, sentences)
        assert cache.statistics[:2] == (3, 0)
        shutil.rmtree(tmp_path / "torn")
    assert kept_rows == {1, 2}


@pytest.mark.parametrize("suffix", [".index", ".features"])
def test_flipped_bits_are_not_served(tmp_path, suffix, caplog):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    read(cache, model, SENTENCES)
    expected = computed(model, SENTENCES)
    [path] = files(tmp_path, suffix)
    content = path.read_bytes()
    chooser = random.Random(0)
    for position in chooser.sample(range(len(content)), 40):
        changed = bytearray(content)
        changed[position] ^= 1 << chooser.randrange(8)
        path.write_bytes(changed)
        cache = FeatureCache(tmp_path, max_bytes=1)  # reads only
        assert_equal(read(cache, model, SENTENCES), expected, rtol=0, atol=1e-6)
        assert cache.statistics.misses > 0
    if suffix == ".features":
        assert "Damaged features" in caplog.text


def test_damaged_features_are_stored_again(tmp_path, caplog):
    model = frozen_model()
    expected = read(FeatureCache(tmp_path), model, SENTENCES)
    [path] = files(tmp_path, ".features")
    path.write_bytes(bytes(path.stat().st_size))
    for misses in (5, 0):
        cache = FeatureCache(tmp_path)
        assert_equal(read(cache, model, SENTENCES), expected)
        assert cache.statistics.misses == misses
    assert caplog.text.count("Damaged features") == 1


# --- Processes -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_killed_while_writing_leave_a_readable_cache(tmp_path):
    finished = run(
        """
model, folder, chooser = frozen_model(), Path(sys.argv[1]), random.Random(0)
sentences = many_sentences(160)
batches = [sentences[start : start + 4] for start in range(0, 160, 4)]
expected = [computed(model, batch) for batch in batches]
stored = []
for _ in range(12):
    writes = chooser.randint(1, 1000)
    child = os.fork()
    if child == 0:
        feature_cache.open = open_deadly
        DeadlyFile.writes_left = writes
        cache = FeatureCache(folder)
        for batch in batches:
            read(cache, model, batch)
        os._exit(0)
    os.waitpid(child, 0)
    cache = FeatureCache(folder, max_bytes=1)  # reads only
    for batch, layers in zip(batches, expected):
        assert_equal(read(cache, model, batch), layers, rtol=0, atol=1e-6)
    stored.append(cache.statistics.hits)
leftover = [path.stat().st_size % 120 for path in files(folder, ".features")]
leftover += [(path.stat().st_size - HEADER_SIZE) % ENTRY_SIZE for path in files(folder, ".index")]
print(json.dumps([stored, sum(map(bool, leftover))]))
""",
        str(tmp_path),
    )
    assert finished.returncode == 0, finished.stderr
    stored, torn = json.loads(finished.stdout)
    assert stored == sorted(stored)  # nothing is lost
    assert len(set(stored)) > 4
    assert torn > 2  # or the kills were not where they hurt
    assert "Damaged" not in finished.stderr


@pytest.mark.slow
def test_two_processes_write_to_one_folder_and_read_from_each_other(tmp_path):
    program = (
        PREAMBLE
        + """
model, cache, sentences = frozen_model(), FeatureCache(sys.argv[1]), many_sentences(120)
chooser = random.Random(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for epoch in range(3):
    chooser.shuffle(sentences)
    for start in range(0, 120, 6):
        batch = sentences[start : start + 6]
        assert_equal(read(cache, model, batch), computed(model, batch), rtol=0, atol=1e-6)
print(json.dumps(cache.statistics))
"""
    )
    commands = [[sys.executable, "-c", program, str(tmp_path), str(number)] for number in range(2)]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **options) for command in commands]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    statistics = [json.loads(output) for output, _ in outputs]
    assert all(hits + misses == 360 for hits, misses, _, _ in statistics)
    assert sum(misses for _, misses, _, _ in statistics) < 240  # without each other, 120 each
    assert all(rows == 120 for _, _, rows, _ in statistics)
    assert len(files(tmp_path, ".index")) == 2
    cache = FeatureCache(tmp_path)
    read(cache, frozen_model(), many_sentences(120))
    assert cache.statistics[:2] == (120, 0)


def test_caches_opened_together_see_what_the_other_stores(tmp_path):
    model = frozen_model()
    one, other = FeatureCache(tmp_path), FeatureCache(tmp_path)
    read(one, model, ["a"])
    first = read(other, model, ["b c"])
    assert_equal(read(one, model, ["b c"]), first)
    read(other, model, ["d"])
    read(one, model, ["a", "b c", "d"])
    assert one.statistics[:3] == (4, 1, 3)
    assert not [entry for shard in one._rows._shards.values() for entry in shard.new_entries()]  # each is read once


@pytest.mark.slow
def test_a_forked_process_writes_a_file_of_its_own(tmp_path):
    finished = run(
        """
model, cache = frozen_model(), FeatureCache(sys.argv[1])
read(cache, model, ["a"])
child = os.fork()
for number in range(50):
    read(cache, model, [f"{child == 0} {number} " + "x " * number])
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
        str(tmp_path),
    )
    assert finished.returncode == 0, finished.stderr
    assert len(files(tmp_path, ".index")) == 2
    model, cache = frozen_model(), FeatureCache(tmp_path)
    sentences = [f"{child} {number} " + "x " * number for child in (True, False) for number in range(50)]
    assert_equal(read(cache, model, sentences), computed(model, sentences), rtol=0, atol=1e-6)
    assert cache.statistics[:3] == (100, 0, 101)


def anonymous_memory() -> int:
    """Bytes of this process that are not mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon.")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_features(tmp_path):
    model = frozen_model(projection_size=512, cell_size=4, char_cnn_filters=[[1, 4]])
    sentences = [f"{number} " + "word " * 20 for number in range(640)]
    batches = [sentences[start : start + 8] for start in range(0, 640, 8)]
    cache = FeatureCache(tmp_path)
    read(cache, model, batches[0])
    before = anonymous_memory()
    for _ in range(2):
        for batch in batches:
            read(cache, model, batch)
    assert cache.statistics.bytes > 140e6
    assert cache.statistics.misses == 640
    assert anonymous_memory() - before < 40e6
