"""The course of a training: ``history.csv`` for people and reports, and what a tracker shows of it.

By default that is TensorBoard, where it is installed: ``tensorboard --logdir WORK/models`` shows
all runs of a workspace side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from earmark.runs import NetworkParams, kept_recipe, read_table, write_table
from earmark.training.course.trackers import Course, TrackedRun, flat, open_tracker

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
def open_course(
    folder: Path, first_step: int, network: NetworkParams | None = None, *, is_wanted: bool = True
) -> Iterator[Course]:
    """Show a run of ``WORK/models/NAME`` that goes on at some step, by the workspace's tracker."""
    workspace = folder.absolute().parent.parent
    params = {} if network is None else flat(network.model_dump(mode="json"))
    run = TrackedRun(folder, project_of(workspace), params, first_step)
    name = kept_recipe(workspace).tracker if is_wanted else "none"
    with open_tracker(name, run) as course:
        yield course


def show_history(folder: Path, network: NetworkParams, rows: Rows) -> None:
    """Show a run that is over, a step for each epoch; TensorBoard is for those that last."""
    if kept_recipe(folder.absolute().parent.parent).tracker == "tensorboard":
        return
    with open_course(folder, 0, network) as course:
        for row in rows:
            shown = {f"epoch/{name}": value for name, value in row.items() if name != "epoch"}
            course.add(int(row["epoch"]) - 1, shown)


def show_outcome(workspace: Path, tracker: str, values: Mapping[str, float]) -> None:
    """Show the numbers that a report begins with, as a run of their own called ``report``.

    TensorBoard has no use for them: it draws curves.
    """
    if values and tracker != "tensorboard":
        run = TrackedRun(workspace / "report", project_of(workspace))
        with open_tracker(tracker, run) as course:
            course.add(0, values)


def project_of(workspace: Path) -> str:
    """Return what trackers call the runs of a workspace together."""
    return f"earmark-{workspace.absolute().name}"
