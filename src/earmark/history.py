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

from earmark.artefacts import read_table, write_table


class Course(Protocol):
    """Where the numbers of a run are shown while it lasts."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Show some numbers of a step, which counts from 0 through all epochs."""


def write_history(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write ``history.csv``: a row for each epoch.

    ``loss`` is the mean over steps and students; ``learning_rate`` that of the last step;
    ``tune_lwlrap`` and ``tune_loss``, where the tune split was measured, are means over students.
    """
    write_table(folder / "history.csv", pl.DataFrame(list(rows)))


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
