"""Tasks on a Ray cluster of machines of which some die.

Ray runs tasks where the resources are that the recipe gives their stage. A task that was lost with
its worker or its machine is started again, a few times, and the log says so; tasks are idempotent,
so one that ran twice did no harm. A task that fails by itself stops all others: its error would
only come again. Progress is reported through an actor that the work does not depend on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from earmark.compute.engine import ONE_THREAD, Task, TaskMeter
from earmark.compute.progress import FOUND, RESUMED, SILENT, Progress
from earmark.config import ResourceParams, TaskResources
from earmark.errors import EarmarkError, load_library

N_ATTEMPTS = 4
"""Times that a task is started at most."""

_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_BETWEEN_LOOKS = 0.2
_REPORT_TIMEOUT_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayEngine:
    """The machines of a Ray cluster, which all see the workspace under the same path.

    ``address`` is ``host:port`` of a cluster or ``ray://host:port`` of a Ray Client server; None
    takes the one in RAY_ADDRESS, the one that runs on this machine, or starts one here.
    """

    address: str | None = None
    resources: ResourceParams = field(default_factory=ResourceParams)

    @property
    def n_workers(self) -> int:
        """Cores of the cluster at this moment."""
        return max(int(connect(self.address).cluster_resources().get("CPU", 1)), 1)

    def map(self, tasks: Sequence[Task], progress: Progress = SILENT) -> list[Any]:
        """Run tasks and return their results in order; the first failure stops the rest."""
        if not tasks:
            return []
        return _Run(connect(self.address), tasks, self.resources, progress).results()


def connect(address: str | None = None) -> Any:
    """Connect this process to a cluster, unless it is connected; return the module ``ray``."""
    ray = load_library("ray", "running on a cluster", "cluster")
    if ray.is_initialized():
        return ray
    try:
        ray.init(
            address,
            runtime_env={"env_vars": ONE_THREAD},
            log_to_driver=False,
            logging_level="warning",
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EarmarkError(
            f"no Ray cluster can be reached at {address or 'RAY_ADDRESS'} ({error}); start one "
            "with `ray start --head`, or give `--engine ray` alone to use this machine. A cluster "
            "that is guarded by a token asks for RAY_AUTH_MODE=token here too"
        ) from error
    return ray


class _Run:
    """One call of :meth:`RayEngine.map`."""

    def __init__(
        self, ray: Any, tasks: Sequence[Task], resources: ResourceParams, progress: Progress
    ) -> None:
        self._ray, self._tasks, self._resources = ray, tasks, resources
        self._meters = [TaskMeter(task, progress) for task in tasks]
        self._n_started = [0] * len(tasks)
        self._running: dict[Any, int] = {}
        self._results: dict[int, Any] = {}

    def results(self) -> list[Any]:
        self._reports = _Reports(self._ray)
        self._remote = self._ray.remote(_run_task)
        try:
            for index in range(len(self._tasks)):
                self._start(index)
            while self._running:
                running = list(self._running)
                done, _ = self._ray.wait(
                    running, num_returns=len(running), timeout=_SECONDS_BETWEEN_LOOKS
                )
                for index, n_done, note in self._reports.collect():
                    self._meters[index].advance(n_done, note)
                for reference in done:
                    self._receive(reference)
            return [self._results[index] for index in range(len(self._tasks))]
        except BaseException:
            for reference in self._running:
                self._ray.cancel(reference, force=True)  # every stage can be resumed
            raise
        finally:
            self._reports.close()

    def _start(self, index: int) -> None:
        task = self._tasks[index]
        needs = TaskResources() if task.stage is None else getattr(self._resources, task.stage)
        remote = self._remote.options(
            name=task.label,
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            memory=int(needs.memory_gb * 1e9) or None,
            max_retries=0,  # a lost task is started again here, where the log can say so
        )
        self._n_started[index] += 1
        self._running[remote.remote(task, os.getcwd(), index, self._reports.actor)] = index

    def _receive(self, reference: Any) -> None:
        """Keep the result of a task that has ended; start it again if it was lost."""
        index = self._running.pop(reference)
        task, errors = self._tasks[index], self._ray.exceptions
        try:
            self._results[index] = self._ray.get(reference)
        except errors.RayTaskError as error:
            cause: BaseException = error.cause if isinstance(error.cause, Exception) else error
            if not isinstance(cause, EarmarkError):
                cause.add_note(f"in task {task.label!r}{self._last_note(index)}")
            raise cause from error
        except errors.RayError as error:  # the worker, its machine, its memory or its answer
            what = f"task {task.label!r} was lost ({type(error).__name__}){self._last_note(index)}"
            if self._n_started[index] >= N_ATTEMPTS:
                raise EarmarkError(
                    f"{what}, {N_ATTEMPTS} times. It ends the process that runs it: out of memory "
                    "(see [resources] in the recipe), or a file that its reader cannot survive. "
                    f"Ray said: {error}"
                ) from error
            log.warning(
                "%s; started again (%d of %d)", what, self._n_started[index] + 1, N_ATTEMPTS
            )
            self._start(index)
        else:
            self._meters[index].finish()

    def _last_note(self, index: int) -> str:
        note = self._meters[index].last_note
        return f", which last reported {note!r}" if note else ""


class _Reports:
    """Where tasks leave reports of progress for this process; they go on if it dies."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._is_alive = ray, True
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.actor: Any = (
            ray.remote(_ReportActor).options(num_cpus=0, scheduling_strategy=here).remote()
        )

    def collect(self) -> list[tuple[int, int, str]]:
        """Return (task, units done, note) of all reports since the last call."""
        if not self._is_alive:
            return []
        try:
            reports: list[tuple[int, int, str]] = self._ray.get(
                self.actor.collect.remote(), timeout=_REPORT_TIMEOUT_SECONDS
            )
        except self._ray.exceptions.GetTimeoutError:
            return []
        except self._ray.exceptions.RayError as error:
            self._is_alive = False
            log.warning("progress is no longer reported (%s); the work goes on", error)
            return []
        return reports

    def close(self) -> None:
        """End the actor."""
        self._ray.kill(self.actor)


class _ReportActor:
    def __init__(self) -> None:
        self._reports: list[tuple[int, int, str]] = []

    def post(self, *report: Any) -> None:
        self._reports.append(report)

    def collect(self) -> list[tuple[int, int, str]]:
        reports, self._reports = self._reports, []
        return reports


class _ReportingMeter:
    """The meter of a task on the cluster, which reports now and then."""

    def __init__(self, index: int, actor: Any) -> None:
        self._index, self._actor = index, actor
        self._n_waiting, self._last = 0, -_SECONDS_BETWEEN_REPORTS

    def advance(self, n_done: int, note: str = "") -> None:
        self._n_waiting += n_done
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_REPORTS or note in (FOUND, RESUMED):
            self._actor.post.remote(self._index, self._n_waiting, note)
            self._n_waiting, self._last = 0, now


def _run_task(task: Task, folder: str, index: int, actor: Any) -> Any:
    """Run a task in the driver's folder, where relative paths mean the same as to the driver."""
    if os.path.isdir(folder):
        os.chdir(folder)
    return task.function(**task.arguments, meter=_ReportingMeter(index, actor))
