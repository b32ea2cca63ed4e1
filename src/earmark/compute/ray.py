"""Tasks on a Ray cluster: the cores and GPUs of many machines, some of which die.

Ray places tasks where the resources are that the recipe gives their stage. A task that was lost
with its worker or its machine is started again, a few times, and the log says so; tasks are
idempotent, so one that ran twice did no harm. A task that fails by itself stops all others: its
error would only come again. Reports of progress travel through a mailbox that the work does not
depend on.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from earmark.compute.engine import ONE_THREAD, Task, TaskMeter
from earmark.compute.progress import FOUND, RESUMED, SILENT, Progress
from earmark.config import ResourceParams, TaskResources
from earmark.errors import EarmarkError, load_library

N_ATTEMPTS = 4
"""Times that a task is started at most; machines die, but a task that kills them must not."""

_N_QUEUED = 1_000
"""Tasks handed to Ray at once: enough to show an autoscaler how much there is to do."""

_SECONDS_BETWEEN_REPORTS = 0.5
SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_UNTIL_DEAF = 10.0

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
    ray = _load_ray()
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


@dataclass
class _Attempt:
    """Where a task stands: how often it was started, and where it was last seen."""

    task: Task
    meter: TaskMeter
    n_started: int = 0
    node: str = "an unknown node"


@dataclass
class _Run:
    """One call of :meth:`RayEngine.map`."""

    ray: Any
    tasks: Sequence[Task]
    resources: ResourceParams
    progress: Progress
    _waiting: deque[int] = field(default_factory=deque)
    _running: dict[Any, int] = field(default_factory=dict)
    _results: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._attempts = [_Attempt(task, TaskMeter(task, self.progress)) for task in self.tasks]
        self._mailbox = Mailbox(self.ray)
        self._remote = self.ray.remote(_run_task)

    def results(self) -> list[Any]:
        self._waiting.extend(range(len(self.tasks)))
        try:
            while self._waiting or self._running:
                self._submit()
                self._look()
            return [self._results[index] for index in range(len(self.tasks))]
        except BaseException:
            self._cancel()
            raise
        finally:
            self._mailbox.close()

    def _submit(self) -> None:
        while self._waiting and len(self._running) < _N_QUEUED:
            index = self._waiting.popleft()
            attempt = self._attempts[index]
            attempt.n_started += 1
            remote = self._remote.options(**_options(attempt.task, self.resources))
            post = (index, self._mailbox.handle, attempt.n_started > 1)
            self._running[remote.remote(attempt.task, os.getcwd(), *post)] = index

    def _look(self) -> None:
        """Wait a moment, pass reports on, and take in what has ended."""
        references = list(self._running)
        done, _ = self.ray.wait(
            references, num_returns=len(references), timeout=SECONDS_BETWEEN_LOOKS
        )
        self._hear()
        for reference in done:
            self._receive(reference)

    def _hear(self) -> None:
        for index, node, n_done, note in self._mailbox.collect():
            self._attempts[index].node = node
            self._attempts[index].meter.advance(n_done, note)

    def _receive(self, reference: Any) -> None:
        index = self._running.pop(reference)
        attempt, errors = self._attempts[index], self.ray.exceptions
        try:
            self._results[index] = self.ray.get(reference)
        except errors.RayTaskError as error:
            raise _own_error(error, attempt) from error
        except errors.RayError as error:  # the worker, its machine, its memory or its answer
            self._start_again(index, error)
        else:
            attempt.meter.finish()

    def _start_again(self, index: int, error: Exception) -> None:
        attempt = self._attempts[index]
        what = f"task {attempt.task.label!r} was lost with {attempt.node} ({type(error).__name__})"
        if attempt.n_started >= N_ATTEMPTS:
            raise EarmarkError(
                f"{what}, for the {attempt.n_started}th time{_last_word(attempt)}. It ends the "
                "process that runs it: out of memory (see [resources] in the recipe), or a file "
                f"that its reader cannot survive. Ray said: {error}"
            ) from error
        log.warning("%s; started again (%d of %d)", what, attempt.n_started + 1, N_ATTEMPTS)
        self._waiting.appendleft(index)

    def _cancel(self) -> None:
        """End the tasks at once: every stage can be resumed."""
        for reference in self._running:
            self.ray.cancel(reference, force=True)


def _options(task: Task, resources: ResourceParams) -> dict[str, Any]:
    needs = TaskResources() if task.stage is None else getattr(resources, task.stage)
    return {
        "name": task.label,
        "num_cpus": needs.cpus,
        "num_gpus": needs.gpus,
        "memory": int(needs.memory_gb * 1e9) or None,
        "max_retries": 0,  # a lost task is started again here, where the log can say so
    }


def _own_error(error: Any, attempt: _Attempt) -> BaseException:
    """Return the task's own exception, with its name where it does not speak for itself."""
    cause: BaseException = error.cause if isinstance(error.cause, Exception) else error
    if not isinstance(cause, EarmarkError):
        cause.add_note(f"in task {attempt.task.label!r} on {attempt.node}{_last_word(attempt)}")
    return cause


def _last_word(attempt: _Attempt) -> str:
    return f", which last reported {attempt.meter.last_note!r}" if attempt.meter.last_note else ""


class Mailbox:
    """Where tasks leave reports for the driver. The work goes on without it, should it die."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(_Letters).options(num_cpus=0, scheduling_strategy=here)
        self.handle: Any = actor.remote()
        self._is_alive = True

    def collect(self) -> list[tuple[int, str, int, str]]:
        """Return (task, node, units done, note) of all reports since the last call."""
        if not self._is_alive:
            return []
        try:
            letters: list[tuple[int, str, int, str]] = self._ray.get(
                self.handle.collect.remote(), timeout=_SECONDS_UNTIL_DEAF
            )
        except self._ray.exceptions.GetTimeoutError:
            return []
        except self._ray.exceptions.RayError as error:
            self._is_alive = False
            log.warning("progress is no longer reported (%s); the work goes on", error)
            return []
        return letters

    def close(self) -> None:
        """End the actor."""
        self._ray.kill(self.handle)


class _Letters:
    """The actor behind the mailbox."""

    def __init__(self) -> None:
        self._letters: list[tuple[int, str, int, str]] = []

    def post(self, *letter: Any) -> None:
        self._letters.append(letter)

    def collect(self) -> list[tuple[int, str, int, str]]:
        letters, self._letters = self._letters, []
        return letters


def _run_task(task: Task, folder: str, index: int, mailbox: Any, is_careful: bool) -> Any:
    """Run a task: what a worker does."""
    go_to(folder)
    return task.function(**task.arguments, meter=PostingMeter(index, mailbox, is_careful))


def go_to(folder: str) -> None:
    """Work in the driver's folder, where relative paths mean the same as to the driver."""
    if os.path.isdir(folder):
        os.chdir(folder)


class PostingMeter:
    """Reports now and then; a careful one at once, and waits until it is heard.

    A task that was lost before is careful: should it be lost again, its last word is known. Where
    it runs is always said and heard before it begins.
    """

    def __init__(self, index: int, mailbox: Any, is_careful: bool) -> None:
        self._index, self._mailbox, self._node = index, mailbox, _this_node()
        self._n_waiting, self._last = 0, time.monotonic()
        self._is_careful = self._post_and_wait("") and is_careful

    def advance(self, n_done: int, note: str = "") -> None:
        """Report units of work, and what is being worked on."""
        self._n_waiting += n_done
        now = time.monotonic()
        if self._is_careful:
            self._is_careful = self._post_and_wait(note)
        elif now - self._last >= _SECONDS_BETWEEN_REPORTS or note in (FOUND, RESUMED):
            self._post(note)
        else:
            return
        self._n_waiting, self._last = 0, now

    def _post(self, note: str) -> Any:
        return self._mailbox.post.remote(self._index, self._node, self._n_waiting, note)

    def _post_and_wait(self, note: str) -> bool:
        """Return whether anybody listens; the work goes on in any case."""
        ray = _load_ray()
        try:
            ray.get(self._post(note), timeout=_SECONDS_UNTIL_DEAF)
        except ray.exceptions.RayError:
            return False
        return True


def _this_node() -> str:
    ray = _load_ray()
    node_id = ray.get_runtime_context().get_node_id()
    return f"node {node_id[:8]} at {ray.util.get_node_ip_address()}, process {os.getpid()}"


def _load_ray() -> Any:
    """Import Ray, which most users do without."""
    return load_library("ray", "running on a cluster", "cluster")
