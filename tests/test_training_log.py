"""The log of a training run: what was added is read back, whatever happened in between."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_elmo import training_log
from hf_elmo.training_log import TrainingLog

TRAINING = {
    "step": 20,
    "epoch": 0.1,
    "words": 51200,
    "loss": 7.1 + 1e-15,
    "forward_loss": 1 / 3,
    "backward_loss": 5e-324,
    "gradient_norm": 1.7976931348623157e308,
    "learning_rate": 0.2,
    "words_per_second": 12345.678,
    "seconds": 4.25,
}
HELDOUT = {
    "step": 20,
    "heldout": {
        "forward_perplexity": 812.5,
        "backward_perplexity": 799.25,
        "perplexity": 805.8,
        "words": 10_000,
        "unknown_share": 0.031,
        "seconds": 2.5,
    },
}


@pytest.fixture
def log(tmp_path):
    return TrainingLog(tmp_path / "log.jsonl")


def test_rows_come_back_in_order(log):
    assert log.read() == []
    log.add(TRAINING)
    log.add(HELDOUT)
    assert log.read() == TrainingLog(str(log.path)).read() == [TRAINING, HELDOUT]
    lines = log.path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [TRAINING, HELDOUT]


@given(st.floats(), st.integers())
def test_numbers_are_exact(tmp_path_factory, number, words):
    log = TrainingLog(tmp_path_factory.mktemp("log") / "log.jsonl")
    log.add({"step": 1, "loss": number, "words": words})
    (row,) = log.read()
    assert row["words"] == words
    assert row["loss"] == number or (math.isnan(row["loss"]) and math.isnan(number))
    assert math.copysign(1, row["loss"]) == math.copysign(1, number) or math.isnan(number)


def test_what_is_not_a_number_is_written_as_such(log):
    log.add({"step": 1, "loss": math.nan, "forward_loss": math.inf, "backward_loss": -math.inf})
    assert log.path.read_text() == '{"step": 1, "loss": NaN, "forward_loss": Infinity, "backward_loss": -Infinity}\n'


def test_text_in_rows_stays_in_its_line(log):
    row = {"step": 1, "note": "a\nb\u2028c\udcff 🙂"}
    log.add(row)
    assert log.path.read_bytes().count(b"\n") == 1
    assert log.read() == [row]


@pytest.mark.parametrize("row", [{}, {"loss": 1.0}, {"step": "1"}, {"step": 1.0}, {"step": True}, {"step": None}])
def test_rows_without_a_step_are_refused(log, row):
    with pytest.raises(ValueError, match="needs an integer 'step'"):
        log.add(row)
    assert not log.path.exists()


@pytest.mark.parametrize("block", [7, 2**16])
def test_a_torn_last_line_is_dropped_wherever_it_is_torn(log, monkeypatch, block):
    monkeypatch.setattr(training_log, "BLOCK", block)
    lines = [f"{json.dumps(row)}\n".encode() for row in (TRAINING, HELDOUT)]
    whole, first = b"".join(lines), len(lines[0])
    for length in range(first, len(whole)):
        log.path.write_bytes(whole[:length])
        assert log.read() == [TRAINING]
        log.add(HELDOUT)
        assert log.path.read_bytes() == whole
    for length in range(first):
        log.path.write_bytes(whole[:length])
        assert log.read() == []
        log.add(TRAINING)
        assert log.read() == [TRAINING]


@pytest.mark.parametrize(
    "line", ["", "{", '{"step": 1', "1", "[]", "null", '{"loss": 1}', "\xff", "\0\0", "[" * 100_000]
)
@pytest.mark.parametrize("place", [1, 3])
def test_a_bad_line_elsewhere_is_named(log, line, place):
    lines = [json.dumps({"step": 1}).encode()] * 3
    lines[place - 1] = line.encode("latin-1")
    log.path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(ValueError, match=rf"log\.jsonl, line {place}: this is not a JSON object"):
        log.read()
    content = log.path.read_bytes()
    with pytest.raises(ValueError, match=f"line {place}"):
        log.keep_until(0)
    assert log.path.read_bytes() == content


def test_going_back_to_a_step(log):
    log.keep_until(5)
    assert not log.path.exists()
    for step in range(1, 11):
        log.add({**TRAINING, "step": step})
        if step % 5 == 0:
            log.add({**HELDOUT, "step": step})
    lines = log.path.read_bytes().splitlines(keepends=True)
    with open(log.path, "ab") as file:
        file.write(b'{"step": 11, "lo')
    log.keep_until(10)
    assert log.path.read_bytes() == b"".join(lines)
    log.keep_until(5)
    assert log.path.read_bytes() == b"".join(lines[:6])
    assert [row["step"] for row in log.read()] == [1, 2, 3, 4, 5, 5]
    log.keep_until(0)
    assert log.read() == []
    assert [path.name for path in log.path.parent.iterdir()] == ["log.jsonl"]


def test_a_file_that_needs_no_change_is_not_written(log, monkeypatch):
    log.add(TRAINING)
    monkeypatch.setattr(training_log.os, "fsync", lambda descriptor: pytest.fail("written"))
    log.keep_until(20)
    assert log.read() == [TRAINING]


def test_a_full_disk_leaves_the_old_rows(log, monkeypatch):
    log.add({"step": 1})
    log.add({"step": 2})

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training_log.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        log.keep_until(1)
    assert log.read() == [{"step": 1}, {"step": 2}]
    assert [path.name for path in log.path.parent.iterdir()] == ["log.jsonl"]


def test_rows_outlive_a_killed_process(tmp_path):
    program = """
import itertools, sys
sys.path.insert(0, sys.argv[2])  # the module alone, without torch, which takes seconds
from training_log import TrainingLog
log = TrainingLog(sys.argv[1])
for step in itertools.count():
    log.add({"step": step, "loss": step / 7})
    if step % 50 == 49:
        log.keep_until(step - 10)
        for again in range(step - 9, step + 1):
            log.add({"step": again, "loss": again / 7})
    if step == 20:
        print("running", flush=True)
"""
    log = TrainingLog(tmp_path / "log.jsonl")
    command = [sys.executable, "-c", program, log.path, Path(training_log.__file__).parent]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    rows = log.read()
    assert len(rows) > 20
    assert rows == [{"step": step, "loss": step / 7} for step in range(len(rows))]
