# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything a pretraining run needs to go on as if it had never stopped, and what several processes agree on."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from .modeling_elmo import ElmoState

Result = TypeVar("Result")


@dataclass
class Progress:
    """How far a run has come. All processes have the same.

    Args:
        step: Steps of the optimizer.
        words: Predictions of each direction so far.
        epoch: Of the reader, from 0.
        seconds: Spent on training, over all sittings.
        data: Position of the reader, as `PretrainingBatch.state`.
        best_perplexity: The lowest held-out perplexity.
        best_step: When it was measured.
        evaluations_without_gain: Held-out measurements since then.
        last_evaluation: The step and the figures of the last one.
    """

    step: int = 0
    words: int = 0
    epoch: int = 0
    seconds: float = 0.0
    data: dict[str, Any] | None = None
    best_perplexity: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    last_evaluation: dict[str, Any] = field(default_factory=dict)


class TrainingState:
    """The parts of a run that change from step to step, apart from the weights.

    Args:
        accelerator: Of the run.
        optimizer: Prepared by it.
        scheduler: Of the learning rate.
        sampling: The generator that a sampled softmax draws from; in the same state in all processes.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        optimizer: Any,
        scheduler: LRScheduler,
        sampling: torch.Generator,
    ):
        self._accelerator = accelerator
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._sampling = sampling
        self.progress = Progress()
        self.lstm: ElmoState | None = None  # after the last window, of the rows of this process

    def capture(self) -> dict[str, Any]:
        """All of it, as `save_tree` takes it. Has to be called in every process; the result is the same in all."""
        scaler = self._accelerator.scaler
        return {
            "progress": asdict(self.progress),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "lstm": None if self.lstm is None else [self._all_rows(part) for part in self.lstm],
            "sampling": self._sampling.get_state(),
            "random": gather_object([_random_state()]),
        }

    def restore(self, saved: dict[str, Any]) -> list[str]:
        """Goes back to what `capture` gave; returns what could not be made the same, in sentences."""
        self.progress = Progress(**saved["progress"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self._scheduler.load_state_dict(saved["scheduler"])
        if self._accelerator.scaler is not None and saved["scaler"] is not None:
            self._accelerator.scaler.load_state_dict(saved["scaler"])
        self.lstm = None if saved["lstm"] is None else ElmoState(*(self._own_rows(part) for part in saved["lstm"]))
        self._sampling.set_state(saved["sampling"])
        if len(saved["random"]) != self._accelerator.num_processes:
            return [
                f"The run was saved by {len(saved['random'])} processes and goes on in "
                f"{self._accelerator.num_processes}: what dropout draws will be other numbers."
            ]
        _set_random_state(saved["random"][self._accelerator.process_index])
        return []

    def _all_rows(self, part: Tensor) -> Tensor:
        """(L, B, *) of this process to (L, B of all processes, *)."""
        return self._accelerator.gather(part.transpose(0, 1).contiguous()).transpose(0, 1).contiguous().cpu()

    def _own_rows(self, part: Tensor) -> Tensor:
        accelerator = self._accelerator
        if part.shape[1] % accelerator.num_processes:
            raise ValueError(
                f"The checkpoint has {part.shape[1]} rows, which {accelerator.num_processes} processes cannot share "
                "equally. Resume with another number of processes."
            )
        return part.chunk(accelerator.num_processes, dim=1)[accelerator.process_index].to(accelerator.device)


def _random_state() -> dict[str, Any]:
    """The generators that dropout draws from in this process."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


# --- Several processes -----------------------------------------------------------------------------------------------


def on_main(accelerator: Accelerator, work: Callable[[], Result]) -> Result:
    """Does something in the main process and gives the result, or raises the error, in every process."""
    result: list[Any] = [None, None]
    if accelerator.is_main_process:
        try:
            result[0] = work()
        except (ValueError, OSError, ImportError) as error:
            if accelerator.num_processes == 1:
                raise
            result[1] = error
    if accelerator.num_processes > 1:
        broadcast_object_list(result)
    if result[1] is not None:
        raise result[1]
    return result[0]


@contextmanager
def parting_together(accelerator: Accelerator) -> Iterator[None]:
    """Closes trackers and the connection of the processes at the end of a run, when all of them got there.

    Left open, the connection's threads may abort a process that is already done. After an error in one process nobody
    waits: the launcher ends the others.
    """
    stopped: SystemExit | None = None
    try:
        yield
    except SystemExit as agreed:  # by all processes, after a signal
        stopped = agreed
    accelerator.wait_for_everyone()
    accelerator.end_training()
    if stopped is not None:
        raise stopped


# --- Being asked to leave --------------------------------------------------------------------------------------------


class StopRequest:
    """Whether the run was asked to end, by SIGTERM, or by SIGINT (Ctrl-C) once; the second SIGINT interrupts."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def _receive(self, number: int, frame: Any) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Takes the signals over while the block runs. Other threads than the main one cannot, and do not."""
        before = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, self._receive)
        except ValueError:  # not the main thread
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def agreed(self, accelerator: Accelerator) -> signal.Signals | None:
        """The signal that any of the processes got. Has to be called in every process."""
        if accelerator.num_processes == 1:
            return self.signal
        number = torch.tensor(int(self.signal or 0), device=accelerator.device)
        largest = int(accelerator.gather(number.unsqueeze(0)).max())
        return signal.Signals(largest) if largest else None


__all__ = ["Progress", "StopRequest", "TrainingState", "on_main", "parting_together"]
