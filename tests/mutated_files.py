"""Reads many damaged versions of a file in processes of their own and prints how that ended, as JSON.

A program by itself, run by the tests of the safe readers: it forks, which only a process with one thread should do. A
child reads one file after the other until one kills it, with a limit on its memory and on the time for each file.

    python mutated_files.py path/of/hdf5.py read_hdf5 good.hdf5 2000 '{"name": [2, 3]}'
    python mutated_files.py path/of/pickles.py read_state_dict good.pkl 2000 '{"name": [2, 3]}'
    python mutated_files.py path/of/archives.py unpack good.zip 2000
"""

import json
import os
import random
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

MEMORY = 2**30  # bytes that reading may take on top of what the process has
SECONDS = 10


def outcomes_of(module: str, function: str, good: Path, trials: int, *more: str) -> dict[str, int]:
    """How often reading a damaged version of a file was `"accepted"`, `"refused"`, or ended in another way."""
    command = [sys.executable, __file__, module, function, str(good), str(trials), *more]
    child = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def mutated(content: bytes, generator: random.Random) -> bytes:
    """The content with one to eight other bytes, and sometimes without its end."""
    changed = bytearray(content)
    if generator.random() < 0.15:
        del changed[generator.randrange(1, len(changed)) :]
    for _ in range(generator.randint(1, 8)):
        changed[generator.randrange(len(changed))] = generator.choice([0, 1, 255, generator.randrange(256)])
    return bytes(changed)


def reader_of_arrays(read: Callable, shapes: dict[str, tuple[int, ...]]) -> Callable[[Path], bool]:
    import numpy as np

    def is_right(path: Path) -> bool:
        arrays = read(path, shapes)
        return all(arrays[name].shape == shape and np.isfinite(arrays[name]).all() for name, shape in shapes.items())

    return is_right


def reader_of_archives(unpack: Callable) -> Callable[[Path], bool]:
    def stays_inside(path: Path) -> bool:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            before = sorted(path.parent.iterdir())
            try:
                written = unpack(path, folder)
            finally:
                if sorted(path.parent.iterdir()) != before:
                    raise RuntimeError("Something was written outside.")
            inside = all(file.is_file() and file.resolve().is_relative_to(Path(folder).resolve()) for file in written)
            return inside and sum(file.stat().st_size for file in written) < MEMORY

    return stays_inside


def outcome(is_right: Callable[[Path], bool], path: Path) -> str:
    try:
        return "accepted" if is_right(path) else "wrong"
    except ValueError as error:
        return "refused" if str(path) in str(error) else "refused without a name"
    except BaseException as error:
        return type(error).__name__


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def in_a_child(is_right: Callable[[Path], bool], good: Path, trials: range) -> list[str]:
    """The outcome of each trial, up to the last, or up to one that killed the process that made it."""
    content, damaged = good.read_bytes(), good.with_name(f"{good.name}.mutated")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        limit_memory()
        for trial in trials:
            damaged.write_bytes(mutated(content, random.Random(trial)))
            signal.alarm(SECONDS)
            os.write(writing, f"{outcome(is_right, damaged)}\n".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        outcomes = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return [*outcomes, f"signal {os.WTERMSIG(status)}"] if os.WIFSIGNALED(status) else outcomes


def main() -> None:
    module, function, good, trials, *more = sys.argv[1:]
    read = runpy.run_path(module)[function]
    if more:
        is_right = reader_of_arrays(read, {name: tuple(shape) for name, shape in json.loads(more[0]).items()})
    else:
        is_right = reader_of_archives(read)
    outcomes: list[str] = []
    while len(outcomes) < int(trials):
        outcomes += in_a_child(is_right, Path(good), range(len(outcomes), int(trials)))
    print(json.dumps(Counter(outcomes)))


if __name__ == "__main__":
    main()
