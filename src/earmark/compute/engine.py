"""Where work runs: a list of independent tasks on the cores of this machine.

A task is a function that can be sent to another process, its arguments, and the number of units
that its progress counts. Several tasks run in processes of one thread each: on a few cores that is
faster than threads inside one task, and OpenMP's spinning barriers cannot stall the machine. One
task, or one worker, is this very process, on one thread too: the bytes are the same.

No worker outlives its parent: it looks for it every second. A worker that dies, as by the kernel
for want of memory, ends the run with a message, and what it had finished is found again.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from earmark.compute.progress import SILENT, Meter, Progress
from earmark.errors import EarmarkError, Stopped
from earmark.storage import expect_leftovers

_PATIENCE_SECONDS = 5.0
"""How long workers have to end after they were asked to; then they are killed."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}
"""What tells libraries to take one thread when they are loaded."""


Stage = Literal["features", "score", "train"]
"""Stages whose tasks may take more of a machine than one core."""


@dataclass(frozen=True)
class Task:
    """One independent piece of work: ``function(**arguments, meter=...)``.

    The function lives at the top of a module, is idempotent, and advances the meter by ``n_units``
    in all.
    """

    label: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    n_units: int = 1
    unit: str = "steps"
    stage: Stage | None = None
    """What the task takes of a machine is this stage's in the recipe; None is one core."""


def default_workers() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine(Protocol):
    """Where tasks run. Stages are handed one and do not know which."""

    @property
    def n_workers(self) -> int:
        """Tasks that run at once."""

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[Any]:
        """Run tasks and return their results in order; the first failure stops the rest."""


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine, as many as there are cores; one worker is this very process."""

    n_workers: int = field(default_factory=default_workers)

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[Any]:
        """Run tasks and return their results in order; the first failure stops the rest."""
        return _run_tasks(tasks, self.n_workers, progress)


HERE = LocalEngine(1)
"""This very process: a script without a main guard and a notebook's cell can call anything."""


def _run_tasks(tasks: Sequence[Task], n_workers: int, progress: Progress) -> list[Any]:
    n_workers = min(n_workers, len(tasks))
    if n_workers <= 1:
        with _one_thread():
            return [_run_here(task, progress) for task in tasks]
    context = multiprocessing.get_context("spawn")
    reports: Any = context.Queue()
    arrived: queue.SimpleQueue[tuple[int, int, str]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(reports, arrived), daemon=True).start()
    with _environment(ONE_THREAD):
        pool = ProcessPoolExecutor(n_workers, context, _adopt, (reports, os.getpid()))
        try:
            futures = [pool.submit(_run_there, i, task) for i, task in enumerate(tasks)]
            _follow(futures, tasks, arrived, progress)
            return [future.result() for future in futures]
        except BrokenProcessPool:
            _stop(pool)
            raise EarmarkError(
                "a worker process was killed, perhaps for want of memory; what is finished is "
                "kept: run the same command again, with fewer --workers if memory is short"
            ) from None
        except BaseException:
            _stop(pool)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            reports.put(None)
            reports.cancel_join_thread()


def _receive(reports: Any, arrived: queue.SimpleQueue[tuple[int, int, str]]) -> None:
    """Pass reports on until there are no more.

    A worker that is killed while it writes leaves half a report, for whose end the reader waits for
    ever. So nobody else waits for it.
    """
    with suppress(Exception):  # half a report with another behind it, or the end of the process
        while (report := reports.get()) is not None:
            arrived.put(report)


def _run_here(task: Task, progress: Progress) -> Any:
    return task.function(**task.arguments, meter=progress.job(task.label, task.n_units, task.unit))


def _follow(
    futures: list[Future[Any]],
    tasks: Sequence[Task],
    arrived: queue.SimpleQueue[tuple[int, int, str]],
    progress: Progress,
) -> None:
    """Pass the workers' reports on until all are done; raise the first failure."""
    meters = {index: TaskMeter(task, progress) for index, task in enumerate(tasks)}
    index_of = {future: index for index, future in enumerate(futures)}
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for index, n_done, note in _drain(arrived):
            meters[index].advance(n_done, note)
        for future in done:
            future.result()
            meters[index_of[future]].finish()


class TaskMeter:
    """The meter of a task elsewhere: begins with its first report, ends with the task.

    Reports travel on their own and may come after the result, or twice from a task that was
    started again; what exceeds the task's units is dropped.
    """

    def __init__(self, task: Task, progress: Progress) -> None:
        self.last_note = ""
        self._task, self._progress = task, progress
        self._meter: Meter | None = None
        self._n_left = task.n_units

    def advance(self, n_done: int, note: str = "") -> None:
        """Pass a report on."""
        self.last_note = note or self.last_note
        if self._meter is None:
            self._meter = self._progress.job(self._task.label, self._task.n_units, self._task.unit)
        n_done = min(n_done, self._n_left)
        self._n_left -= n_done
        if n_done:
            self._meter.advance(n_done, note)

    def finish(self) -> None:
        """Count what was not reported: the task is done."""
        self.advance(self._n_left)


def _drain(arrived: queue.SimpleQueue[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    while True:
        try:
            yield arrived.get_nowait()
        except queue.Empty:
            return


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers at once, also those that do not listen: every stage can be resumed."""
    expect_leftovers()
    workers = list((pool._processes or {}).values())
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for worker in workers:
        worker.join(max(deadline - time.monotonic(), 0))
        if worker.is_alive():
            worker.kill()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, for processes that start and libraries that load meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, whatever libraries are loaded now or meanwhile.

    They add up in another order on two threads than on one, so results would depend on the number
    of cores; and where other processes share the cores, threads that wait for one another are slow.
    Afterwards all have as many threads as before.
    """
    from threadpoolctl import threadpool_limits  # only work in this process needs it

    torch = sys.modules.get("torch")
    n_threads = torch.get_num_threads() if torch else default_workers()
    with _environment(ONE_THREAD), threadpool_limits(1):
        if torch:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch := sys.modules.get("torch"):
                torch.set_num_threads(n_threads)


_reports: Any = None


def _adopt(reports: Any, parent: int) -> None:
    """Keep the queue in which a worker reports; leave an interrupt to the parent, and end with it.

    A parent that is killed outright can tell its workers nothing, and may be gone before they have
    begun: so they are told its number, and do not ask whose child they are.
    """
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@dataclass(frozen=True)
class _QueueMeter:
    index: int

    def advance(self, n_done: int, note: str = "") -> None:
        _reports.put((self.index, n_done, note))


def _run_there(index: int, task: Task) -> Any:
    try:
        return task.function(**task.arguments, meter=_QueueMeter(index))
    except Stopped:
        os._exit(143)  # the pool would go on with the next task
