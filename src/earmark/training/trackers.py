"""The log of a training: ``history.csv``, and what a tracker shows while the network trains.

By default the tracker is TensorBoard, where it is installed: ``tensorboard --logdir WORK/models``
shows all runs of a workspace side by side. The workspace's ``tracker`` (a key of its recipe) is
TensorBoard or none. ``EARMARK_TRACKER`` in the environment names a function, ``module:function``,
that replaces both. It is read from the environment and not from a file, so a workspace from
somebody else runs no code. A tracker changes no result. This module does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from earmark.config import NetworkParams, kept_recipe
from earmark.errors import EarmarkError
from earmark.storage import read_table, write_table

TRACKER_VARIABLE = "EARMARK_TRACKER"

Log = Callable[[int, dict[str, float]], object]
"""Show some numbers of a step, which counts from 0 through all epochs."""


@dataclass(frozen=True)
class TrackedRun:
    """A training to be shown: its folder names it, and ``project`` the workspace it belongs to.

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


@dataclass(frozen=True)
class TrainingLog:
    """Where the numbers of a run go; those that are not finite are left out."""

    log: Log

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Show some numbers of a step."""
        finite = {name: float(v) for name, v in values.items() if math.isfinite(v)}
        if finite:
            self.log(step, finite)


def has_own_tracker() -> bool:
    """Tell whether the environment names a tracker."""
    return bool(os.environ.get(TRACKER_VARIABLE))


@contextmanager
def open_tracker(name: str, run: TrackedRun) -> Iterator[TrainingLog]:
    """Open a run with a tracker; it is closed at the end, also of a run that fails."""
    with _opened(name, run) as log:
        yield TrainingLog(log)


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return parameters within parameters by dotted names.

    >>> flat({"train": {"epochs": 10, "seed": 0}, "name": "teacher"})
    {'train.epochs': 10, 'train.seed': 0, 'name': 'teacher'}
    """
    by_name: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            by_name |= flat(value, f"{prefix}{name}.")
        else:
            by_name[f"{prefix}{name}"] = value
    return by_name


def _opened(name: str, run: TrackedRun) -> AbstractContextManager[Log]:
    if name != "none" and has_own_tracker():
        return _own_tracker(os.environ[TRACKER_VARIABLE])(run)
    if name != "none" and importlib.util.find_spec("tensorboard") is not None:
        return _tensorboard(run)
    return _silent()


def _own_tracker(address: str) -> Callable[[TrackedRun], AbstractContextManager[Log]]:
    module, _, function = address.partition(":")
    try:
        opener = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise EarmarkError(
            f"{TRACKER_VARIABLE}={address}: {error}; expected module:function, where Python finds "
            "the module (PYTHONPATH)"
        ) from error
    return opener  # type: ignore[no-any-return]


@contextmanager
def _silent() -> Iterator[Log]:
    yield lambda *_: None


@contextmanager
def _tensorboard(run: TrackedRun) -> Iterator[Log]:
    """Write ``folder/tensorboard``; an older run's later steps are hidden."""
    from torch.utils.tensorboard import SummaryWriter  # an optional library, half a second to load

    writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.first_step)

    def write(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        writer.close()


Rows = Sequence[Mapping[str, float]]
"""A history: a row for each epoch, or for each epoch and student."""

_BY_STUDENT = "history_by_student.csv"
"""The history of a stack, a row for each epoch and student."""


def write_history(folder: Path, rows: Rows, by_student: Rows = ()) -> None:
    """Write ``history.csv``: a row for each epoch.

    ``loss`` is the mean over steps and students; ``learning_rate`` that of the last step;
    ``tune_lwlrap`` and ``tune_loss``, where the tune split was measured, are means over students.
    ``by_student``, the same with a ``student`` from 0, goes to ``history_by_student.csv``.
    """
    write_table(folder / "history.csv", pl.DataFrame(list(rows)))
    if by_student:
        write_table(folder / _BY_STUDENT, pl.DataFrame(list(by_student)))


def split_history(folder: Path) -> list[Rows]:
    """Read the histories of a stack's students, each as if it had trained alone."""
    table = read_table(folder / _BY_STUDENT).partition_by("student", maintain_order=True)
    return [own.drop("student").to_dicts() for own in table]


def forget_history(folder: Path) -> None:
    """Remove the histories of a stack whose students have taken theirs; TensorBoard's stays."""
    for name in ("history.csv", _BY_STUDENT):
        (folder / name).unlink(missing_ok=True)


def read_histories(models_folder: Path) -> dict[str, pl.DataFrame]:
    """Read the histories of all networks in a folder, by the name of the network."""
    paths = sorted(models_folder.glob("*/history.csv"))
    return {path.parent.name: read_table(path) for path in paths}


@contextmanager
def open_training_log(
    folder: Path, first_step: int, network: NetworkParams | None = None, *, is_wanted: bool = True
) -> Iterator[TrainingLog]:
    """Show a run of ``WORK/models/NAME`` that goes on at some step, by the workspace's tracker."""
    workspace = folder.absolute().parent.parent
    params = {} if network is None else flat(network.model_dump(mode="json"))
    run = TrackedRun(folder, project_of(workspace), params, first_step)
    name = kept_recipe(workspace).tracker if is_wanted else "none"
    with open_tracker(name, run) as training_log:
        yield training_log


def project_of(workspace: Path) -> str:
    """Return what trackers call the runs of a workspace together."""
    return f"earmark-{workspace.absolute().name}"
