"""One network trained by several processes of a Ray cluster.

Ray Train starts the processes, joins them with torch.distributed, and starts all of them again
when one dies. What they run is the function that torchrun runs, with its own order of examples and
its own checkpoints, so it goes on to the very weights that it would have reached.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from earmark.compute.engine import Task, TaskMeter
from earmark.compute.progress import SILENT, Progress
from earmark.compute.ray import (
    N_ATTEMPTS,
    SECONDS_BETWEEN_LOOKS,
    Mailbox,
    PostingMeter,
    RayEngine,
    connect,
    go_to,
    log,
)
from earmark.config import TaskResources
from earmark.errors import EarmarkError
from earmark.storage import write_text


def train_together(
    engine: RayEngine,
    task: Task,
    n_processes: int,
    scratch: Path,
    progress: Progress = SILENT,
) -> None:
    """Run a training task in several processes at once, each with the resources of ``train``.

    The function is called with the same arguments in all of them, joined as under torchrun; the
    first one's meter is shown. It writes its result itself. ``scratch`` is a folder that all nodes
    see, for Ray's own notes; it is removed in the end.
    """
    mailbox = Mailbox(connect(engine.address))
    trainer = _trainer(task, n_processes, engine.resources.train, scratch, mailbox.handle)
    meter, seen = TaskMeter(task, progress), _Seen(task)
    try:
        with ThreadPoolExecutor(1) as pool:
            fitting = pool.submit(trainer.fit)
            while not fitting.done():
                wait([fitting], timeout=SECONDS_BETWEEN_LOOKS)
                for _, place, n_done, note in mailbox.collect():
                    seen.at(place)
                    meter.advance(n_done, note)
        if fitting.exception() is not None:
            raise _own_error(fitting.exception(), task) from fitting.exception()
        if _mistake(scratch).exists():
            raise EarmarkError(_mistake(scratch).read_text(encoding="utf-8"))
        meter.finish()
    finally:
        mailbox.close()
        shutil.rmtree(scratch, ignore_errors=True)


class _Seen:
    """Where the first process was last seen; the log says when it is another one."""

    def __init__(self, task: Task) -> None:
        self._task, self._place, self._n_started = task, "", 0

    def at(self, place: str) -> None:
        if place == self._place:
            return
        self._n_started += 1
        if self._n_started > 1:
            log.warning(
                "task %r was lost with a process beside %s; started again (%d of %d) on %s",
                self._task.label,
                self._place,
                self._n_started,
                N_ATTEMPTS,
                place,
            )
        self._place = place


def _trainer(
    task: Task, n_processes: int, needs: TaskResources, scratch: Path, mailbox: Any
) -> Any:
    from ray import train  # Ray Train loads torch, which the rest of the engine does without
    from ray.train.torch import TorchTrainer

    resources = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_gb * 1e9}
    return TorchTrainer(
        _train_here,
        train_loop_config={
            "task": task,
            "mailbox": mailbox,
            "folder": os.getcwd(),
            "mistake": _mistake(scratch.resolve()),
        },
        scaling_config=train.ScalingConfig(
            num_workers=n_processes,
            use_gpu=needs.gpus > 0,
            resources_per_worker={name: value for name, value in resources.items() if value},
        ),
        run_config=train.RunConfig(
            name=f"train-{uuid.uuid4().hex}",
            storage_path=str(scratch.resolve()),
            failure_config=train.FailureConfig(max_failures=N_ATTEMPTS - 1),
        ),
    )


def _mistake(scratch: Path) -> Path:
    """Return where the first process that meets a user's mistake says so."""
    return scratch / "mistake.txt"


def _train_here(config: dict[str, Any]) -> None:
    """Run the task in one of the processes.

    Ray starts whatever fails again. After a user's mistake, which would only be met again, there is
    nothing more to do: the driver tells it.
    """
    from ray import train

    go_to(config["folder"])
    task, mistake = config["task"], config["mistake"]
    if mistake.exists():
        return
    is_first = train.get_context().get_world_rank() == 0
    meter = PostingMeter(0, config["mailbox"], is_careful=False) if is_first else _Mute()
    try:
        task.function(**task.arguments, meter=meter)
    except EarmarkError as error:
        write_text(mistake, str(error))
        raise


class _Mute:
    def advance(self, n_done: int, note: str = "") -> None:
        pass


def _own_error(error: BaseException | None, task: Task) -> BaseException:
    """Return the user's mistake behind Ray's report of a failed run, or an error that names it."""
    for cause in _causes(error):
        if isinstance(cause, EarmarkError):
            return cause
    return EarmarkError(f"task {task.label!r} failed; Ray said: {error}")


def _causes(error: Any) -> Iterator[BaseException]:
    if isinstance(error, BaseException):
        yield error
        for inner in (*getattr(error, "worker_failures", {}).values(), error.__cause__):
            yield from _causes(inner)
        yield from _causes(getattr(error, "cause", None))
        yield from _causes(getattr(error, "_base_exc", None))
