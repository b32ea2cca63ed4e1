"""One resumable loop for the teacher and its students.

Teacher and student are the same :func:`train` on different supervision. A run is a function of its
parameters, its data and its seed: which patches make up a batch depends on (seed, epoch, step)
alone, so a run that was killed continues to the very weights that it would have reached, and
students of one seed see the same patches in the same order from the same initial weights.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from earmark.artefacts import is_current, read_json, write_aside, write_json, write_table
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.losses import weighted_bce
from earmark.models import Network, build_model
from earmark.params import ModelParams, NetworkParams, TrainParams, digest
from earmark.progress import Meter

WARM_UP_SHARE = 0.05
"""Share of all steps over which the cosine schedule's learning rate rises."""


class Supervision(Protocol):
    """What a network is told about its clips; rows are parallel to a :class:`TrainingSet`'s."""

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""

    @property
    def digest(self) -> str:
        """Identifies labels and treatment."""

    def targets(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the target and the weight of every label, both float32 [len(rows), class]."""


@dataclass(frozen=True)
class AsLabelled:
    """Labels as they are: an implicit label counts as a negative. The teacher's supervision."""

    labels: LabelSet

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def digest(self) -> str:
        """Identifies the labels."""
        return self.labels.digest

    def targets(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return 1 for explicit positives and 0 for all others, with weight 1."""
        target = (self.labels.states(rows) > 0).astype(np.float32)
        return target, np.ones_like(target)


@dataclass(frozen=True)
class TrainingSet:
    """Clips to train on: where their frames are, and what is known of them."""

    frames_folder: Path
    store_rows: NDArray[np.int64]
    """The place of each clip in the frame store, parallel to the supervision's rows."""
    supervision: Supervision

    def digest(self, network: NetworkParams) -> str:
        """Identify the run that would train ``network`` on this set."""
        rows = self.store_rows.tobytes()
        frames = read_json(self.frames_folder / "meta.json")["digest"]
        return digest(network.model, network.train, frames, rows, self.supervision.digest)


@dataclass
class _Run:
    """The state of a run: all that a checkpoint holds."""

    network: Network
    optimiser: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


def train(network: NetworkParams, data: TrainingSet, folder: Path, meter: Meter) -> Network:
    """Train a network, or load it if ``folder`` already holds the result of the same run.

    The meter counts patches. A checkpoint is kept every ``checkpoint_seconds`` and removed at the
    end; the folder then holds ``weights.safetensors``, ``params.json``, ``history.csv`` and
    ``meta.json``.
    """
    run_digest = data.digest(network)
    store = FrameStore.open(data.frames_folder)
    n_patches = store.n_patches[data.store_rows]
    if is_current(folder, run_digest):
        meter.advance(n_patches_in_all(n_patches, network.train), "found")
        return load_network(folder)
    run = _begin(network, len(data.supervision.class_ids))
    n_before = _resume(run, folder, run_digest, n_patches, network.train)
    meter.advance(n_before, "resumed" if n_before else "")
    _loop(run, network.train, data, store, folder, run_digest, meter)
    _finish(run, network, data, folder, run_digest)
    return run.network.eval()


def n_patches_in_all(n_patches: NDArray[np.int64], params: TrainParams) -> int:
    """Return the number of patches that a whole run sees, from the patches of each clip."""
    return params.epochs * int(_drawn(n_patches, params).sum())


def epoch_order(
    n_patches: NDArray[np.int64], params: TrainParams, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the clips and patches of one epoch in training order.

    A pure function of the patches per clip, the seed and the epoch. With ``patches_per_clip`` the
    patches of a clip are evenly spaced from a random start, so that none is drawn twice.
    """
    generator = np.random.default_rng([params.seed, epoch])
    drawn = _drawn(n_patches, params)
    clips = np.repeat(np.arange(len(n_patches)), drawn)
    which = np.arange(len(clips)) - np.repeat(np.cumsum(drawn) - drawn, drawn)
    if params.patches_per_clip is not None:
        starts = (generator.random(len(n_patches)) * n_patches).astype(np.int64)
        available = n_patches[clips]
        which = (starts[clips] + which * available // drawn[clips]) % available
    order = generator.permutation(len(clips))
    return clips[order], which[order]


def learning_rate(params: TrainParams, step: int, n_steps: int) -> float:
    """Return the learning rate of a step: constant, or a short rise and a cosine to zero."""
    if params.schedule == "constant":
        return params.learning_rate
    n_warm_up = max(1, round(WARM_UP_SHARE * n_steps))
    if step < n_warm_up:
        return params.learning_rate * (step + 1) / n_warm_up
    progress = (step - n_warm_up) / max(1, n_steps - n_warm_up)
    return params.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def load_network(folder: Path) -> Network:
    """Load a finished network, ready for scoring."""
    try:
        meta = read_json(folder / "meta.json")
        params = ModelParams.model_validate(read_json(folder / "params.json")["model"])
        weights = load_file(folder / "weights.safetensors")
    except FileNotFoundError as error:
        raise EarmarkError(
            f"{folder}: no finished network here ({error.filename} is missing); "
            "train it with `earmark train`"
        ) from None
    network = build_model(params, len(meta["class_ids"]))
    network.load_state_dict(weights)
    return network.to(_device()).eval()


def _drawn(n_patches: NDArray[np.int64], params: TrainParams) -> NDArray[np.int64]:
    limit = params.patches_per_clip
    return n_patches if limit is None else np.minimum(n_patches, limit)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _begin(network: NetworkParams, n_classes: int) -> _Run:
    model = build_model(network.model, n_classes, network.train.seed).to(_device())
    trainable = [p for p in model.parameters() if p.requires_grad]
    return _Run(model, torch.optim.Adam(trainable, network.train.learning_rate, fused=True))


def _loop(
    run: _Run,
    params: TrainParams,
    data: TrainingSet,
    store: FrameStore,
    folder: Path,
    run_digest: str,
    meter: Meter,
) -> None:
    n_patches = store.n_patches[data.store_rows]
    begun = last_checkpoint = time.monotonic()
    n_seen = 0
    run.network.train()
    while run.epoch < params.epochs:
        clips, patches = epoch_order(n_patches, params, run.epoch)
        n_steps = math.ceil(len(clips) / params.batch_patches)
        for step in range(run.step, n_steps):
            batch = slice(step * params.batch_patches, (step + 1) * params.batch_patches)
            rate = learning_rate(params, run.epoch * n_steps + step, params.epochs * n_steps)
            loss = _step(run, params, data, store, clips[batch], patches[batch], rate)
            run.loss_sum += loss
            run.step = step + 1
            n_seen += len(clips[batch])
            speed = n_seen / len(clips) * len(n_patches) / (time.monotonic() - begun)
            note = f"loss {loss:.3f}, epoch {run.epoch + 1}/{params.epochs}, {speed:,.0f} clips/s"
            meter.advance(len(clips[batch]), note)
            if time.monotonic() - last_checkpoint >= params.checkpoint_seconds:
                _write_checkpoint(run, folder, run_digest)
                last_checkpoint = time.monotonic()
        run.history.append({"epoch": run.epoch + 1, "loss": run.loss_sum / n_steps})
        run.epoch, run.step, run.loss_sum = run.epoch + 1, 0, 0.0


def _step(
    run: _Run,
    params: TrainParams,
    data: TrainingSet,
    store: FrameStore,
    clips: NDArray[np.int64],
    patches: NDArray[np.int64],
    rate: float,
) -> float:
    device = _device()
    frames = store.patches(data.store_rows[clips], patches)  # [patch, 96, 64]
    target, weight = data.supervision.targets(clips)
    for group in run.optimiser.param_groups:
        group["lr"] = rate
    logits: Tensor = run.network(torch.from_numpy(frames).to(device, torch.float32))
    loss = weighted_bce(
        logits,
        torch.from_numpy(target).to(device),
        torch.from_numpy(weight).to(device),
        params.loss,
    )
    run.optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    run.optimiser.step()
    value = float(loss.detach())
    if not math.isfinite(value):
        names = store.clip_ids.gather(data.store_rows[np.unique(clips)]).to_list()
        raise EarmarkError(
            f"the loss became {value} at epoch {run.epoch + 1}, step {run.step + 1}; lower the "
            f"learning rate, or look at the batch's clips: {', '.join(names)}"
        )
    return value


def _write_checkpoint(run: _Run, folder: Path, run_digest: str) -> None:
    state = {
        "digest": run_digest,
        "network": run.network.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "epoch": run.epoch,
        "step": run.step,
        "loss_sum": run.loss_sum,
        "history": run.history,
    }
    with write_aside(folder / "checkpoint.pt") as aside:
        torch.save(state, aside)


def _resume(
    run: _Run, folder: Path, run_digest: str, n_patches: NDArray[np.int64], params: TrainParams
) -> int:
    """Continue from a checkpoint of the same run; return how many patches it had seen."""
    state = _read_checkpoint(folder / "checkpoint.pt")
    if state is None or state["digest"] != run_digest:
        return 0
    run.network.load_state_dict(state["network"])
    run.optimiser.load_state_dict(state["optimiser"])
    run.epoch, run.step = state["epoch"], state["step"]
    run.loss_sum, run.history = state["loss_sum"], state["history"]
    per_epoch = int(_drawn(n_patches, params).sum())
    return run.epoch * per_epoch + min(run.step * params.batch_patches, per_epoch)


def _read_checkpoint(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location=_device(), weights_only=True)
    return state


def _finish(
    run: _Run, network: NetworkParams, data: TrainingSet, folder: Path, run_digest: str
) -> None:
    weights = {name: value.contiguous() for name, value in run.network.state_dict().items()}
    with write_aside(folder / "weights.safetensors") as aside:
        save_file(weights, aside)
    write_json(folder / "params.json", network.model_dump(mode="json"))
    write_table(folder / "history.csv", pl.DataFrame(run.history))
    class_ids = list(data.supervision.class_ids)
    write_json(folder / "meta.json", {"digest": run_digest, "class_ids": class_ids})
    (folder / "checkpoint.pt").unlink(missing_ok=True)
