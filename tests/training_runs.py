"""Real pretraining runs of a tiny model, each in a process of its own that can be killed, and what they leave behind.

One process loads the program and forks for each run, as the imports take longer than the runs. It has no thread and
has not trained itself, so a fork of it is as good as a new process.
"""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = [f"w{number}" for number in range(27)]
SENTENCE_WORDS = 3  # with its end, each sentence fills a window of 4, so an epoch ends exactly at the end of a batch
SENTENCES = 24

MODEL = (
    "projection_size=4,cell_size=6,char_embedding_size=3,char_cnn_filters=[[1,2],[2,3]],num_highway_layers=1,"
    "max_characters_per_token=6"
)


def write_corpus(folder: Path) -> dict[str, Any]:
    """Writes training text, held-out text and a vocabulary; gives the settings of a run on them."""
    draw = random.Random(0)

    def sentences(count: int, shortest: int, longest: int) -> str:
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(shortest, longest))) for _ in range(count)]
        return "".join(f"{line}\n" + "\n" * (number % 3 == 0) for number, line in enumerate(lines, start=1))

    (folder / "even.txt").write_text(sentences(SENTENCES, SENTENCE_WORDS, SENTENCE_WORDS))
    (folder / "uneven.txt").write_text(sentences(SENTENCES, 1, 8))
    (folder / "heldout.txt").write_text(sentences(4, 2, 6))
    (folder / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS[:-2]]) + "\n")
    return {
        "text": [str(folder / "uneven.txt")],
        "vocab": str(folder / "vocab.txt"),
        "config_overrides": MODEL,
        "batch_size": 2,
        "unroll_steps": SENTENCE_WORDS + 1,
        "softmax": "sampled",
        "num_sampled": 8,
        "dropout": 0.1,
        "save_steps": 4,
        "log_steps": 1,
        "eval_batch_size": 2,
        "quiet": True,
        "check_corpus": False,
        "unigram_baseline": False,
    }


# --- Runs ------------------------------------------------------------------------------------------------------------


@dataclass
class Sitting:
    """A process that trains, until it ends or is ended."""

    program: "Program"
    process: int
    said_in: Path
    saved_in: Path

    def wait(self) -> int:
        """The exit code, or the negative number of the signal that ended the process."""
        return self.program.ask({"wait": self.process})

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process, number)  # it keeps its number until `wait`

    @property
    def said(self) -> str:
        return self.said_in.read_text()

    @property
    def saved(self) -> list[int]:
        """The steps whose checkpoints were saved completely, as far as the process knew."""
        return [int(line) for line in self.saved_in.read_text().split()] if self.saved_in.exists() else []


class Program:
    """The process that has the program loaded."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._sittings = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def ask(self, request: dict[str, Any]) -> Any:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return json.loads(answers.readline())

    def start(self, settings: dict[str, Any], resume: bool = False, changes: list[list[Any]] | None = None) -> Sitting:
        """Begins to train; the changes to the program are names and arguments of functions in `CHANGES`."""
        self._sittings += 1
        said, saved = (self._folder / f"{self._sittings}.{kind}" for kind in ("said", "saved"))
        said.touch()
        request = {"settings": settings, "resume": resume, "changes": changes or [], "said": str(said)}
        return Sitting(self, self.ask({**request, "saved": str(saved)}), said, saved)

    def run(self, settings: dict[str, Any], resume: bool = False, changes: list[list[Any]] | None = None) -> Sitting:
        """Trains to the end, which has to be a good one."""
        sitting = self.start(settings, resume, changes)
        status = sitting.wait()
        if status != 0:
            raise AssertionError(f"The run ended with {status}:\n{sitting.said}")
        return sitting

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def loaded_program(folder: Path) -> Iterator[Program]:
    program = Program(folder)
    try:
        yield program
    finally:
        program.close()


# --- What a run leaves behind ----------------------------------------------------------------------------------------

TIMES = ("seconds", "words_per_second")


def result_of(folder: Path) -> dict[str, Any]:
    """Everything that two runs must have in common to the bit: the newest checkpoint, the log, the models."""
    from hf_elmo.checkpoints import CheckpointFolder, load_tree
    from hf_elmo.training_log import TrainingLog

    newest = CheckpointFolder(folder / "checkpoints").newest()
    assert newest is not None
    found: dict[str, Any] = {"checkpoint": newest.name}
    for path in (newest, folder / "model", *sorted(folder.glob("best-*"))):
        file = path / "model.safetensors"
        found[f"weights of {path.name}"] = file.read_bytes() if file.exists() else None
    found |= _leaves(load_tree(newest, "training"), "state")
    return found | _leaves(TrainingLog(folder / "log.jsonl").read(), "log")


def _leaves(tree: Any, name: str) -> dict[str, Any]:
    import torch

    if isinstance(tree, dict):
        items = [(key, value) for key, value in tree.items() if key not in TIMES]
    elif isinstance(tree, (list, tuple)):
        items = list(enumerate(tree))
    elif isinstance(tree, torch.Tensor):
        return {name: (tree.dtype, tree.shape, tree.contiguous().numpy().tobytes())}
    else:
        return {name: repr(tree)}
    leaves = {name: f"{type(tree).__name__} of {len(items)}"}
    for key, value in items:
        leaves |= _leaves(value, f"{name}.{key}")
    return leaves


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what the results do not have in common."""
    return [name for name in {**one, **other} if (name in one, one.get(name)) != (name in other, other.get(name))]


# --- In the process that trains --------------------------------------------------------------------------------------


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Puts `wrapper(original, *arguments)` in the place of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        return wrapper(original, *arguments, **options)

    setattr(owner, name, wrapped)


def signal_at(number: int, name: str, when: str, count: int) -> None:
    """Sends a signal before, in the middle of, or after a certain call of a method during training.

    It goes to this process; if the number is negative, also to its workers.
    """
    from hf_elmo.scripts import pretrain_elmo

    calls = 0
    owner, method = name.split(".")

    def send() -> None:
        os.kill(os.getpid(), number) if number > 0 else os.killpg(os.getpgrp(), -number)

    def call(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != count:
            return original(*arguments, **options)
        if when == "half":  # of a row of the log
            log, row = arguments
            with open(log.path, "a") as file:
                file.write(json.dumps(row)[:30])
        if when != "after":
            send()
        result = original(*arguments, **options)
        if when == "after":
            send()
        return result

    def train(original: Callable[..., Any], *arguments: Any) -> None:
        _wrap(getattr(pretrain_elmo, owner), method, call)
        original(*arguments)

    _wrap(pretrain_elmo.Run, "train", train)  # what comes before the first step is not counted


def wait_in_step(count: int) -> None:
    """Waits in a step until it is killed."""
    from hf_elmo.scripts import pretrain_elmo

    _wrap(
        pretrain_elmo.Run,
        "_step",
        lambda original, run, batches: signal.pause() if run.state.progress.step == count else original(run, batches),
    )


def forget(what: str) -> None:
    """Breaks the way back to a checkpoint in one of the things that matter."""
    import torch

    from hf_elmo import training_state
    from hf_elmo.scripts import pretrain_elmo

    def restore(original: Callable[..., Any], state: Any, saved: dict[str, Any]) -> list[str]:
        if what == "lstm":
            saved["lstm"] = None
        elif what == "sampling":
            saved["sampling"] = state.capture()["sampling"]
        elif what == "scheduler":
            saved["scheduler"] = state.capture()["scheduler"]
        elif what == "optimizer":
            for sums in saved["optimizer"]["state"].values():
                sums["sum"].fill_(1.0)
        elif what == "position":
            saved["progress"]["data"]["reader"]["sentence"] += 1
        elif what == "row":
            saved["progress"]["data"]["rows"][0][1] = 0
        return original(state, saved)

    def make_model(original: Callable[..., Any], *arguments: Any) -> Any:
        model, *others = original(*arguments)
        with torch.no_grad():
            values = model.softmax.weight.view(-1)
            largest = values.argmax()  # a bit of a small one could be lost in the next update
            values[largest] = torch.nextafter(values[largest], torch.tensor(9.0))
        return model, *others

    if what == "dropout":
        training_state._set_random_state = lambda state: None
    elif what == "log":
        pretrain_elmo.TrainingLog.keep_until = lambda log, step: None
    elif what == "last bit of a weight":
        _wrap(pretrain_elmo, "make_model", make_model)
    else:
        _wrap(training_state.TrainingState, "restore", restore)


CHANGES = {function.__name__: function for function in (signal_at, wait_in_step, forget)}


def _prepare() -> None:
    """Loads the program, and takes from it what takes time and is not looked at here."""
    import torch
    import tqdm

    from hf_elmo import configuration_elmo
    from hf_elmo.scripts import pretrain_elmo

    torch.set_num_threads(1)
    tqdm.tqdm.monitor_interval = 0  # no thread, beside which workers would not be forked
    configuration_elmo._code_files = functools.cache(configuration_elmo._code_files)
    configuration_elmo._code_files()
    pretrain_elmo.plot_curves = lambda *arguments, **options: []


def _sit(request: dict[str, Any]) -> int:
    """Trains; gives the exit code."""
    from hf_elmo.checkpoints import CheckpointFolder
    from hf_elmo.pretraining_settings import PretrainingSettings
    from hf_elmo.scripts import pretrain_elmo

    os.setsid()  # a process group of its own
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(request["said"], os.O_WRONLY | os.O_APPEND)
    for number, descriptor in enumerate((nothing, nothing, said)):
        os.dup2(descriptor, number)
    saved = os.open(request["saved"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def save(original: Callable[..., Path], folder: CheckpointFolder, step: int, write: Any) -> Path:
        path = original(folder, step, write)
        os.write(saved, f"{step}\n".encode())
        return path

    _wrap(CheckpointFolder, "save", save)
    warnings.simplefilter("error")
    for name, *arguments in request["changes"]:
        CHANGES[name](*arguments)
    try:
        pretrain_elmo.pretrain(PretrainingSettings(**request["settings"]), resume=request["resume"])
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve() -> None:
    _prepare()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                os._exit(_sit(request))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
