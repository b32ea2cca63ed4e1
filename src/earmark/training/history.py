"""The course of a training: ``history.csv`` for people and reports, and TensorBoard's event files.

TensorBoard is written where it is installed (``pip install tensorboard``): ``tensorboard --logdir
WORK/models`` shows all runs of a workspace side by side.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import polars as pl

from earmark.runs import read_table, write_table

Rows = Sequence[Mapping[str, float]]
"""A history: a row for each epoch, or for each epoch and student."""

_BY_STUDENT = "history_by_student.csv"
"""The history of a stack, a row for each epoch and student."""


class Course(Protocol):
    """Where the numbers of a run are shown while it lasts."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Show some numbers of a step, which counts from 0 through all epochs."""


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
def open_course(folder: Path, first_step: int, *, is_wanted: bool = True) -> Iterator[Course]:
    """Open ``folder/tensorboard`` for a run that goes on at some step; silent without TensorBoard.

    What an earlier run wrote from that step on is hidden.
    """
    if not is_wanted or importlib.util.find_spec("tensorboard") is None:
        yield _Silent()
        return
    from torch.utils.tensorboard import SummaryWriter  # an optional library, half a second to load

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)
    try:
        yield _EventFile(writer)
    finally:
        writer.close()


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


class _EventFile:
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)


class _Silent:
    def add(self, step: int, values: Mapping[str, float]) -> None:
        pass
