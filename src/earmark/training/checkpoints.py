"""The state of a run, on disk every minute: what a killed training goes on from, bit for bit.

A checkpoint holds weights, optimiser, averages, the best weights so far and the place in the data.
Its file is named after its run, so that of another run is never used and never overwritten.
SIGTERM, which schedulers send before they kill, is answered with a checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.memory import is_memory_error
from earmark.models import AnyNetwork, own_device
from earmark.storage import write_aside
from earmark.training.distributed import is_first_process, wait_for_all

_ZIP = b"PK\x03\x04"
"""How a checkpoint begins. Of other files torch tries an older format, whose first bytes may ask
for gigabytes."""


@dataclass
class Run:
    """The state of a run: all that a checkpoint holds."""

    network: AnyNetwork
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    average: list[Tensor]
    """Running means of the trainable parameters; empty where nothing is averaged."""
    parallel: torch.nn.Module
    """The network as it computes, with gradients shared by all processes; not saved."""
    n_averaged: int = 0
    epoch: int = 0
    step: int = 0
    """The epoch and the step within it that come next."""
    loss_sums: list[float] = field(default_factory=list)
    """Of each student, over the steps of this epoch."""
    seconds: float = 0.0
    """Of this epoch, so far."""
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    """Each student's weights after its best epoch; empty without early stopping."""
    best_marks: list[float] = field(default_factory=list)
    n_waits: list[int] = field(default_factory=list)
    """Epochs since each student's best."""
    remembered: dict[str, Tensor] = field(default_factory=dict)
    """What losses that remember must keep (``TargetProvider.state``)."""
    saved_at: float = field(default_factory=time.monotonic)


_SAVED_AS_THEY_ARE = {one.name for one in fields(Run)} - {
    "network", "optimiser", "scaler", "parallel", "saved_at",
}  # fmt: skip


def checkpoint_path(folder: Path, run_digest: str) -> Path:
    """Return the file of a run's checkpoint: each run of a folder has its own."""
    return folder / f"checkpoint-{run_digest}.pt"


def write_checkpoint(run: Run, folder: Path, run_digest: str) -> None:
    """Write a run's checkpoint, by the first process alone."""
    run.saved_at = time.monotonic()
    if not is_first_process():
        return
    state = {
        "network": run.network.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "scaler": run.scaler.state_dict(),
        **{name: getattr(run, name) for name in _SAVED_AS_THEY_ARE},
    }
    with write_aside(checkpoint_path(folder, run_digest)) as aside, aside.open("wb") as file:
        torch.save(state, file)


def resume(run: Run, folder: Path, run_digest: str) -> bool:
    """Bring a run to where its checkpoint left it; tell whether there was one.

    All processes read; the number of processes may have changed. Where there are checkpoints of
    other runs only, a warning says so.
    """
    path = checkpoint_path(folder, run_digest)
    state = _read_checkpoint(path) if path.exists() else None
    if state is not None:
        run.network.load_state_dict(state["network"])
        run.optimiser.load_state_dict(state["optimiser"])
        run.scaler.load_state_dict(state["scaler"])
        for name in _SAVED_AS_THEY_ARE:
            setattr(run, name, state[name])
    elif is_first_process():
        _warn_of_others(folder, run_digest)
    wait_for_all()
    return state is not None


@contextmanager
def heeding_sigterm() -> Iterator[Callable[[], bool]]:
    """Catch SIGTERM meanwhile; yield what tells whether it came.

    Signals reach a process's main thread only; in another thread nothing is caught.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came.is_set
        return
    before = signal.signal(signal.SIGTERM, lambda *_: came.set())
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _warn_of_others(folder: Path, run_digest: str) -> None:
    for other in sorted(folder.glob("checkpoint-*.pt")):
        warnings.warn(
            f"{other} is of run {other.stem.partition('-')[2]}, this is run {run_digest}: another "
            "recipe, other labels or other frames. It is kept; to go on with it, run the command "
            "that began it. This run begins anew",
            EarmarkWarning,
            stacklevel=3,
        )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if file.read(4) != _ZIP:
                raise ValueError("no archive of torch's")
        state: Any = torch.load(path, map_location=own_device(), weights_only=True)
    except Exception as error:  # damaged bytes lead torch's reader into errors of any kind
        if is_memory_error(error):
            raise
        reason = str(error).partition("\n")[0][:100]
        raise EarmarkError(
            f"{path}: not a checkpoint that can be read, though {path.stat().st_size:,} bytes long "
            f"({reason}); delete it to begin anew"
        ) from None
    known = state.keys() if isinstance(state, dict) else set()
    missing = {"network", "optimiser", "scaler", *_SAVED_AS_THEY_ARE} - known
    if missing:
        raise EarmarkError(
            f"{path}: written by another version of earmark (no {', '.join(sorted(missing))}); "
            "delete it to begin anew"
        )
    return cast(dict[str, Any], state)
