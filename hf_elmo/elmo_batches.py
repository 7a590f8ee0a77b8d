# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts of requests that come at the same time, computed together: a part of `elmo_server.py`."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple


class Prepared(NamedTuple):
    """A text that has been split into words."""

    words: list[str]  # those that vectors and labels are for
    length: int  # positions to compute, boundaries included
    content: Any  # what the model reads


class Job(NamedTuple):
    """What one request asks for."""

    key: tuple[Any, ...]  # jobs with the same key can be computed together
    texts: list[Prepared]
    size: int  # positions
    arrived: float
    result: "Future[list[Any]]"


class Batcher:
    """Computes jobs in a thread of its own, those with the same key together.

    The job that came first waits at most `max_wait` seconds for others, and none at all while the thread computes what
    came before it. A job that was cancelled meanwhile is left out. If a batch fails, its jobs are computed one by one,
    so that only the one that is to blame fails.

    Args:
        compute: Given a key and texts, a result for each text.
        batch_tokens: Positions of the jobs that are computed together; a job that has more is computed alone.
        max_wait: In seconds.
        start: Called first, in the thread.
    """

    def __init__(
        self,
        compute: Callable[[tuple[Any, ...], list[Prepared]], list[Any]],
        batch_tokens: int,
        max_wait: float,
        start: Callable[[], None],
    ):
        self.batches = 0
        self._compute = compute
        self._batch_tokens = batch_tokens
        self._max_wait = max_wait
        self._start = start
        self._jobs: list[Job] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="elmo-batches", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, key: tuple[Any, ...], texts: list[Prepared]) -> "Future[list[Any]]":
        """What will be the results of these texts."""
        job = Job(key, texts, sum(text.length for text in texts), time.monotonic(), Future())
        with self._changed:
            if self._closed:
                raise RuntimeError("The batcher has been closed.")
            self._jobs.append(job)
            self._changed.notify()
        return job.result

    def close(self) -> None:
        """Computes what is waiting, and ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        self._start()
        while jobs := self._next():
            self.batches += 1
            self._finish(jobs)

    def _next(self) -> list[Job]:
        """Waits for jobs; returns those to compute together, or none if there will be none."""
        with self._changed:
            while True:
                self._jobs = [job for job in self._jobs if not job.result.cancelled()]
                if not self._jobs:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                chosen, is_full = self._fitting()
                remaining = self._jobs[0].arrived + self._max_wait - time.monotonic()
                if is_full or self._closed or remaining <= 0:
                    numbers = {id(job) for job in chosen}
                    self._jobs = [job for job in self._jobs if id(job) not in numbers]
                    return chosen
                self._changed.wait(remaining)

    def _fitting(self) -> tuple[list[Job], bool]:
        """The first job and those that can be computed with it, and whether more would not fit."""
        chosen, total = [self._jobs[0]], self._jobs[0].size
        for job in self._jobs[1:]:
            if job.key == chosen[0].key:
                if total + job.size > self._batch_tokens:
                    return chosen, True
                chosen.append(job)
                total += job.size
        return chosen, total >= self._batch_tokens

    def _finish(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if job.result.running() or job.result.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            results = self._compute(jobs[0].key, [text for job in jobs for text in job.texts])
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._finish([job])
            else:
                jobs[0].result.set_exception(error)
            return
        start = 0
        for job in jobs:
            job.result.set_result(results[start : start + len(job.texts)])
            start += len(job.texts)


__all__ = ["Batcher", "Prepared"]
