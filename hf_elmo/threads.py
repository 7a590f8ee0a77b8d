# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads of the program, and the threads of the processor that compute for them.

torch lets all threads of the processor work at one operation and wait for each other after it, thousands of times in
a sentence. Two halves of the work that need nothing of each other are better done `side_by_side`, with half of the
threads each: they wait for each other once. That pays most where the processor has other work, too, so that one of
its threads is often late.

Threads that have helped with an operation stay awake for some milliseconds, in case there is another one. Of two
processors they would take the time of one half. So what has two halves is called `aside`, by a thread without helpers.
"""

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

# Seconds that two new threads wait for each other.
PATIENCE = 60
# How many calls are aside at once; others wait.
CALLS_ASIDE = 2
# Two halves must be so many times as much work where they take a thread from somebody than where they do not.
MORE_FOR_ALL_THREADS = 16

# --- Locks -----------------------------------------------------------------------------------------------------------

_lock_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def lock_of(owner: Any) -> threading.Lock:
    """A lock for the `_lock` of an object. A forked process has another one.

    There, the thread that held it at that moment does not exist, and would never let it go.
    """
    _lock_owners.add(owner)
    return threading.Lock()


def _renew_locks() -> None:
    for owner in list(_lock_owners):
        owner._lock = threading.Lock()


# --- Threads of the processor ----------------------------------------------------------------------------------------


class _Threads:
    """How many threads of the processor compute for which thread of the program.

    torch counts for each thread of the program by itself how many threads compute for it, and gives a new one the
    number that was set last, whoever has set it. So that one is put back at once; only a thread that begins in
    between has another, too.
    """

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._used_several = False
        self._pools: dict[tuple[str, int], ThreadPoolExecutor] = {}

    def set_here(self, threads: int) -> None:
        """Sets their number for the calling thread, and for no other."""
        torch.get_num_threads()  # a thread that has never asked gets the number of all new ones when it first computes
        with self._lock, ThreadPoolExecutor(1) as new:
            of_new_threads = new.submit(torch.get_num_threads).result()
            torch.set_num_threads(threads)
            new.submit(torch.set_num_threads, of_new_threads).result()

    def pool(self, name: str, count: int, threads: int) -> ThreadPoolExecutor:
        """Some threads of the program for which so many threads of the processor compute, each; made once.

        All are there and have their number when it returns: one that got it later would put back a number for new
        threads that may have changed meanwhile.
        """
        if (name, threads) not in self._pools:
            new = ThreadPoolExecutor(count, f"hf_elmo_{name}", self.set_here, (threads,))
            meeting = threading.Barrier(count, timeout=PATIENCE)
            wait([new.submit(meeting.wait) for _ in range(count)])
            if self._pools.setdefault((name, threads), new) is not new:  # another thread was faster
                new.shutdown()
        return self._pools[name, threads]

    def note(self) -> None:
        """Remembers whether models of this process have computed with several threads."""
        if torch.get_num_threads() > 1:
            self._used_several = True

    def in_a_fork(self) -> None:
        """A forked process has none of the threads of its parent.

        Without it, it would wait for ever for the pools of threads, and for the threads of the processor.
        """
        self._pools = {}
        if self._used_several:
            torch.set_num_threads(1)


_threads = _Threads()
note_threads = _threads.note
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
    os.register_at_fork(after_in_child=_threads.in_a_fork)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this context one thread of the processor computes for this thread of the program."""
    before, token = torch.get_num_threads(), _of_caller.set(1)
    try:
        if before > 1:
            _threads.set_here(1)
        yield
    finally:
        _of_caller.reset(token)
        if before > 1:
            _threads.set_here(before)


# --- Without Python --------------------------------------------------------------------------------------------------


class WithoutPython:
    """A function that torch runs by itself where it can, so that threads never wait for Python.

    Two of them would take turns at it thousands of times in a batch, and one that sleeps wakes up late. TorchScript is
    on its way out: where torch no longer has it, or not for the Python at hand, Python runs the function.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._run: Callable[..., Any] | None = None
        self._lock = lock_of(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._run is None:
            with self._lock:
                self._run = self._run or self._scripted()
        return self._run(*arguments)

    def _scripted(self) -> Callable[..., Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return torch.jit.script(self.function)
            except Exception:  # whatever it may be: the function is right without it
                return self.function


# --- Two things at once ----------------------------------------------------------------------------------------------

# Aside, how many threads of the processor compute for the caller.
_of_caller: ContextVar[int | None] = ContextVar("of_caller", default=None)


def threads_to_share() -> int:
    """How many threads of the processor there are for two halves."""
    return _of_caller.get() or torch.get_num_threads()


def is_aside() -> bool:
    """Whether this is called by `aside`, or has one thread of its own."""
    return _of_caller.get() is not None


def is_worth_two(tensor: torch.Tensor, multiplications: int, fewest: int) -> bool:
    """Whether two halves of some work at a tensor are better done at once.

    Args:
        tensor: What is computed with. Only the threads of a CPU are shared out.
        multiplications: Of what is done between two looks at Python.
        fewest: So many must there be, or the two would only wait for Python; aside, where one of two threads has
            nothing else to do, a part of that.
    """
    return (
        multiplications >= (fewest // MORE_FOR_ALL_THREADS if is_aside() else fewest)
        and tensor.device.type == "cpu"
        and threads_to_share() > 1
        and torch._C._len_torch_dispatch_stack() == 0  # such as counters of operations, which look at one thread only
    )


def side_by_side(first: Callable[[], Result], second: Callable[[], Result]) -> tuple[Result, Result]:
    """The results of two functions that are called at once, without a gradient, each with half of the threads."""
    try:
        pair = _threads.pool("pair", 2, max(threads_to_share() // 2, 1))
        calls = [pair.submit(_as_here(function)) for function in (first, second)]
    except RuntimeError:  # the program is about to end, and begins no threads
        return first(), second()
    wait(calls)  # also if the first one fails: nothing goes on behind the caller's back
    return calls[0].result(), calls[1].result()


def aside(function: Callable[[], Result]) -> Result:
    """The result of a function that is called without a gradient, and has halves for `side_by_side` most of all.

    Only halves that have one thread of the processor each are better off: what is between them has one, too.
    """
    threads = torch.get_num_threads()
    if threads // 2 != 1 or is_aside():
        return function()
    token = _of_caller.set(threads)
    try:
        call = _threads.pool("aside", CALLS_ASIDE, 1).submit(_as_here(function))
    except RuntimeError:  # the program is about to end, and begins no threads
        return function()
    finally:
        _of_caller.reset(token)
    try:
        return call.result()
    finally:
        call.cancel()  # if the caller was interrupted before it began


def _as_here(function: Callable[[], Result]) -> Callable[[], Result]:
    """The function, for another thread, with the context and the mode of this one, and without a gradient."""
    is_inference, context = torch.is_inference_mode_enabled(), copy_context()

    def call() -> Result:
        with torch.inference_mode(is_inference), torch.no_grad():
            return function()

    return lambda: context.run(call)


__all__ = ["WithoutPython", "aside", "lock_of", "one_thread", "side_by_side"]
