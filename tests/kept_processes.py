"""An engine whose processes stay: most of a short task's time in a new one goes into imports."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from earmark.compute import ONE_THREAD, SILENT, Progress, Task


def run_silently(task: Task) -> tuple[int, Any]:
    """Run a task; return the process that did it, and the result."""
    meter = SILENT.job(task.label, task.n_units, task.unit)
    return os.getpid(), task.function(**task.arguments, meter=meter)


class KeptProcesses:
    """Two other processes, of one thread each, as ``LocalEngine(2)`` starts them for every map."""

    n_workers = 2

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[Any]:
        """Run tasks and return their results in order; nothing is told of their progress."""
        del progress
        self._pool = self._pool or started(self.n_workers)
        try:
            done = list(self._pool.map(run_silently, tasks))
        except BrokenProcessPool:
            self.end()  # the next test has new ones
            raise
        assert os.getpid() not in {process for process, _ in done}
        return [result for _, result in done]

    def end(self) -> None:
        """End the processes, if there are any."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None


def started(n_processes: int) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn"))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in ONE_THREAD.items():
            environment.setenv(name, value)
        pool.submit(os.getpid).result()  # starts all of them
    return pool
