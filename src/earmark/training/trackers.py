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
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


@contextmanager
def open_training_log(
    folder: Path, first_step: int, network: NetworkParams | None = None, *, is_wanted: bool = True
) -> Iterator[Log]:
    """Open the workspace's tracker for a run of ``WORK/models/NAME`` that goes on at some step.

    Numbers that are not finite are left out. The run is closed at the end, also if it fails.
    """
    workspace = folder.absolute().parent.parent
    params = {} if network is None else _flat(network.model_dump(mode="json"))
    run = TrackedRun(folder, f"earmark-{workspace.name}", params, first_step)
    name = kept_recipe(workspace).tracker if is_wanted else "none"
    with _open_tracker(name, run) as log:

        def show(step: int, values: dict[str, float]) -> None:
            finite = {name: float(v) for name, v in values.items() if math.isfinite(v)}
            if finite:
                log(step, finite)

        yield show


def _open_tracker(name: str, run: TrackedRun) -> AbstractContextManager[Log]:
    address = os.environ.get(TRACKER_VARIABLE)
    if name != "none" and address:
        return _find_function(address)(run)
    if name != "none" and importlib.util.find_spec("tensorboard") is not None:
        return _tensorboard(run)
    return nullcontext(lambda *_: None)


def _find_function(address: str) -> Callable[[TrackedRun], AbstractContextManager[Log]]:
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
def _tensorboard(run: TrackedRun) -> Iterator[Log]:
    """Write ``folder/tensorboard``; an older run's later steps are hidden."""
    from torch.utils.tensorboard import SummaryWriter  # an optional library, half a second to load

    with SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.first_step) as writer:

        def write(step: int, values: dict[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

        yield write


def _flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return parameters within parameters by dotted names, such as ``train.epochs``."""
    by_name: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            by_name |= _flat(value, f"{prefix}{name}.")
        else:
            by_name[f"{prefix}{name}"] = value
    return by_name


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
