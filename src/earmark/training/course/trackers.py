"""Where the numbers of a run are shown: TensorBoard, Weights & Biases, MLflow or trackio.

A tracker is a function that opens a run and yields its :class:`Course`. Which one is used is the
workspace's ``tracker`` (a key of its recipe): it changes no result, so that it is no parameter of
a network. Where a tool keeps its runs, and whether it sends them anywhere, is the tool's own
business: WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_DIR and the like hold as everywhere.

A run that was interrupted goes on under the same name: ``tracker.json`` in its folder has its id.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from earmark.errors import EarmarkError, nearest
from earmark.runs import read_noted, write_json

_NOTE = "tracker.json"


class Course(Protocol):
    """Where the numbers of a run are shown while it lasts."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Show some numbers of a step, which counts from 0 through all epochs."""


@dataclass(frozen=True)
class TrackedRun:
    """A run to be shown: its folder names it, and the folder of its project holds all of them.

    ``params`` are flat: ``{"train.epochs": 10}``. ``first_step`` is where a run goes on.
    """

    folder: Path
    project: str
    params: Mapping[str, Any] = field(default_factory=dict)
    first_step: int = 0

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.folder.name


def check_tracker(name: str) -> None:
    """Refuse a tracker that is not known or not installed; TensorBoard may be missing."""
    if name not in TRACKERS:
        raise EarmarkError(f"no tracker is called {name!r}{nearest(name, TRACKERS)}")
    is_needed = name not in ("tensorboard", "none")
    if is_needed and importlib.util.find_spec(name) is None:
        raise EarmarkError(f'tracker = "{name}" needs the library {name}: pip install {name}')


def open_tracker(name: str, run: TrackedRun) -> AbstractContextManager[Course]:
    """Open a run with a tracker; it is closed at the end, also of a run that fails."""
    check_tracker(name)
    return TRACKERS[name](run)


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return parameters within parameters by dotted names.

    >>> flat({"train": {"epochs": 10, "seed": 0}, "name": "teacher"})
    {'train.epochs': 10, 'train.seed': 0, 'name': 'teacher'}
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


@dataclass(frozen=True)
class _Calls:
    """A course that hands each step on to a function."""

    call: Callable[[int, dict[str, float]], object]

    def add(self, step: int, values: Mapping[str, float]) -> None:
        known = {name: float(v) for name, v in values.items() if math.isfinite(v)}
        if known:
            self.call(step, known)


@contextmanager
def _silent(run: TrackedRun) -> Iterator[Course]:
    del run
    yield _Calls(lambda *_: None)


@contextmanager
def _tensorboard(run: TrackedRun) -> Iterator[Course]:
    """Write ``folder/tensorboard`` where it is installed; an older run's later steps are hidden."""
    if importlib.util.find_spec("tensorboard") is None:
        with _silent(run) as course:
            yield course
        return
    from torch.utils.tensorboard import SummaryWriter  # an optional library, half a second to load

    writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.first_step)

    def write(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield _Calls(write)
    finally:
        writer.close()


@contextmanager
def _wandb(run: TrackedRun) -> Iterator[Course]:
    import wandb  # optional, and large

    run.folder.mkdir(parents=True, exist_ok=True)
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", run.project),
        name=run.name,
        id=_known_id(run, "wandb", lambda: uuid.uuid4().hex[:12]),
        dir=str(run.folder),
        config=dict(run.params),
        resume="allow",
        reinit="create_new",
    )
    try:
        yield _Calls(lambda step, values: opened.log(values, step=step))
    finally:
        opened.finish(exit_code=_exit_code())


@contextmanager
def _trackio(run: TrackedRun) -> Iterator[Course]:
    import trackio  # optional

    name = f"{run.name}-{_known_id(run, 'trackio', lambda: uuid.uuid4().hex[:6])}"
    with contextlib.redirect_stdout(sys.stderr):  # it chats
        opened = trackio.init(
            project=run.project, name=name, config=dict(run.params), resume="allow"
        )
    try:
        yield _Calls(lambda step, values: opened.log(values, step=step))
    finally:
        with contextlib.redirect_stdout(sys.stderr):
            trackio.finish()


@contextmanager
def _mlflow(run: TrackedRun) -> Iterator[Course]:
    from mlflow.entities import Metric, Param  # optional, and large
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME", run.project))
    run_id = _known_id(
        run, "mlflow", lambda: client.create_run(experiment, run_name=run.name).info.run_id
    )
    if run.first_step == 0:
        params = [Param(name, str(value)[:500]) for name, value in run.params.items()]
        client.log_batch(run_id, params=params[:100])

    def write(step: int, values: dict[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        client.log_batch(run_id, [Metric(name, v, now, step) for name, v in values.items()])

    try:
        yield _Calls(write)
    finally:
        client.set_terminated(run_id, "FAILED" if _exit_code() else "FINISHED")


def _experiment(client: Any, name: str) -> str:
    """Return the id of an experiment; another process may be making it at the same time."""
    for is_last in (False, True):
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name))
        except Exception:
            if is_last:
                raise
    raise AssertionError("not reached")


def _known_id(run: TrackedRun, tracker: str, make: Callable[[], str]) -> str:
    """Return the id of a run that goes on; note a new one."""
    path = run.folder / _NOTE
    if run.first_step and path.is_file():
        noted = read_noted(path)
        if noted.get("tracker") == tracker:
            return str(noted["id"])
    run.folder.mkdir(parents=True, exist_ok=True)
    made = make()
    write_json(path, {"tracker": tracker, "id": made})
    return made


def _exit_code() -> int:
    """Return 1 while an error is on its way out, else 0."""
    return 0 if sys.exc_info()[0] is None else 1


TRACKERS: dict[str, Callable[[TrackedRun], AbstractContextManager[Course]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
    "none": _silent,
}
"""The trackers by name, which is that of the library, too."""
