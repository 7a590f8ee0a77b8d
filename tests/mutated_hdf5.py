"""Reads many damaged versions of a weight file in processes of their own and prints how that ended, as JSON.

A program by itself, run by test_hdf5.py: it forks, which only a process with one thread should do. A child reads one
file after the other until one kills it, with a limit on its memory and on the time for each file.

    python mutated_hdf5.py path/of/hdf5.py good.hdf5 '{"name": [2, 3]}' 2000
"""

import json
import os
import random
import resource
import runpy
import signal
import sys
from collections import Counter

import numpy as np

MEMORY = 2 * 2**30
SECONDS = 10


def mutated(content: bytes, generator: random.Random) -> bytes:
    """The content with one to eight other bytes, and sometimes without its end."""
    changed = bytearray(content)
    if generator.random() < 0.15:
        del changed[generator.randrange(1, len(changed)) :]
    for _ in range(generator.randint(1, 8)):
        changed[generator.randrange(len(changed))] = generator.choice([0, 1, 255, generator.randrange(256)])
    return bytes(changed)


def outcome(read, path: str, shapes: dict[str, tuple[int, ...]]) -> str:
    try:
        arrays = read(path, shapes)
    except ValueError:
        return "refused"
    except BaseException as error:
        return type(error).__name__
    right = all(arrays[name].shape == shape and np.isfinite(arrays[name]).all() for name, shape in shapes.items())
    return "accepted" if right else "wrong"


def in_a_child(read, good: str, shapes: dict[str, tuple[int, ...]], trials: range) -> list[str]:
    """The outcome of each trial, up to the last, or up to one that killed the process that made it."""
    with open(good, "rb") as file:
        content = file.read()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for trial in trials:
            with open(f"{good}.mutated", "wb") as file:
                file.write(mutated(content, random.Random(trial)))
            signal.alarm(SECONDS)
            os.write(writing, f"{outcome(read, f'{good}.mutated', shapes)}\n".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        outcomes = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    return [*outcomes, f"signal {os.WTERMSIG(status)}"] if os.WIFSIGNALED(status) else outcomes


def main() -> None:
    module, good, shapes_as_json, trials = sys.argv[1:]
    read = runpy.run_path(module)["read_hdf5"]
    shapes = {name: tuple(shape) for name, shape in json.loads(shapes_as_json).items()}
    outcomes: list[str] = []
    while len(outcomes) < int(trials):
        outcomes += in_a_child(read, good, shapes, range(len(outcomes), int(trials)))
    print(json.dumps(Counter(outcomes)))


if __name__ == "__main__":
    main()
