"""One resumable loop for the teacher, its students, and a whole sweep of students.

Teacher and student are the same :func:`train` on different supervision. A run is a function of its
parameters, its data and its seed: which examples make up a batch, and what dropout drops, depends
on (seed, epoch, step) alone. So a run that was killed continues to the very weights that it would
have reached, and students of one seed see the same examples in the same order from the same
initial weights.

An example is a patch of log-mel frames for the convolutional networks, and a whole clip for the
probes, which train all students of a sweep in one stack.
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
from torch import Tensor, nn

from earmark.artefacts import is_current, read_json, write_aside, write_json, write_table
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.losses import Moment, Targets, bce_entries, reduced
from earmark.models import Network, Probe, build_model, build_probe
from earmark.params import ModelParams, NetworkParams, TrainParams, digest
from earmark.progress import Meter

WARM_UP_SHARE = 0.05
"""Share of all steps over which the cosine schedule's learning rate rises."""


class Supervision(Protocol):
    """What students are told about their clips; rows are parallel to a :class:`TrainingSet`'s."""

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""

    @property
    def n_students(self) -> int:
        """Students that are trained side by side."""

    @property
    def digest(self) -> str:
        """Identifies labels and treatment."""

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return what the labels of some clips ask, on the CPU, float32."""

    def entries(self, logits: Tensor, targets: Targets, moment: Moment) -> Tensor:
        """Return the loss of every label, as for ``logits`` [student, example, class]."""


@dataclass(frozen=True)
class AsLabelled:
    """Labels as they are: an implicit label counts as a negative. The teacher's supervision."""

    labels: LabelSet
    n_students: int = 1

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def digest(self) -> str:
        """Identifies the labels."""
        return self.labels.digest

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return 1 for explicit positives and 0 for all others, with weight 1."""
        states = torch.from_numpy(self.labels.states(rows))
        target = (states > 0).float().unsqueeze(0)
        return Targets(target, torch.ones_like(target), states == 0)

    def entries(self, logits: Tensor, targets: Targets, moment: Moment) -> Tensor:
        """Return binary cross-entropy."""
        return bce_entries(logits, targets, moment)


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


@dataclass(frozen=True)
class Examples:
    """What a network sees of some clips of a store: here patches, each with its clip's labels."""

    store: FrameStore
    rows: NDArray[np.int64]

    @property
    def per_clip(self) -> NDArray[np.int64]:
        """The number of examples of each clip."""
        return self.store.n_patches[self.rows]

    def inputs(self, clips: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return patches [example, frame, band], float32 on the training device."""
        patches = self.store.patches(self.rows[clips], which)
        return (torch.from_numpy(patches).to(_device(), torch.float32),)

    def names(self, clips: NDArray[np.int64]) -> list[str]:
        """Return the identifiers of the clips in a batch."""
        names: list[str] = self.store.clip_ids.gather(self.rows[np.unique(clips)]).to_list()
        return names


@dataclass(frozen=True)
class ClipExamples(Examples):
    """Whole clips of embeddings, one example each: what a probe sees."""

    @property
    def per_clip(self) -> NDArray[np.int64]:
        """One example for each clip."""
        return np.ones(len(self.rows), np.int64)

    def inputs(self, clips: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Return frames [example, frame, feature], padded, and the number of frames of each."""
        del which
        frames, n_frames = self.store.clips(self.rows[clips])
        values = torch.from_numpy(frames).to(_device(), torch.float32)
        if frames.dtype == np.uint8:
            values = values / UINT8_SCALE - 2.0
        return values, torch.from_numpy(n_frames).to(_device())


UINT8_SCALE = 255 / 4
"""AudioSet's quantised embeddings spread -2..2 over 0..255."""


def examples_of(params: ModelParams, store: FrameStore, rows: NDArray[np.int64]) -> Examples:
    """Return the examples that a network sees of some clips of a store."""
    return (ClipExamples if params.is_probe else Examples)(store, rows)


@dataclass
class _Run:
    """The state of a run: all that a checkpoint holds."""

    network: Network | Probe
    optimiser: torch.optim.Optimizer
    average: list[Tensor]
    n_averaged: int = 0
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


def train(network: NetworkParams, data: TrainingSet, folder: Path, meter: Meter) -> Network | Probe:
    """Train a network, or load it if ``folder`` already holds the result of the same run.

    The meter counts examples. A checkpoint is kept every ``checkpoint_seconds`` and removed at the
    end; the folder then holds ``weights.safetensors``, ``params.json``, ``history.csv`` and
    ``meta.json``.
    """
    run_digest = data.digest(network)
    store = FrameStore.open(data.frames_folder)
    examples = examples_of(network.model, store, data.store_rows)
    if is_current(folder, run_digest):
        meter.advance(n_examples_in_all(examples.per_clip, network.train), "found")
        return load_network(folder)
    run = _begin(network, data.supervision, store.n_bands)
    n_before = _resume(run, folder, run_digest, examples.per_clip, network.train)
    meter.advance(n_before, "resumed" if n_before else "")
    _loop(run, network.train, data, examples, folder, run_digest, meter)
    return _finish(run, network, data, store.n_bands, folder, run_digest)


def n_examples_in_all(per_clip: NDArray[np.int64], params: TrainParams) -> int:
    """Return the number of examples that a whole run sees, from the examples of each clip."""
    return params.epochs * int(_drawn(per_clip, params).sum())


def epoch_order(
    per_clip: NDArray[np.int64], params: TrainParams, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the clips and the examples within them of one epoch, in training order.

    A pure function of the examples per clip, the seed and the epoch. With ``patches_per_clip`` the
    patches of a clip are evenly spaced from a random start, so that none is drawn twice.
    """
    generator = np.random.default_rng([params.seed, epoch])
    drawn = _drawn(per_clip, params)
    clips = np.repeat(np.arange(len(per_clip)), drawn)
    which = np.arange(len(clips)) - np.repeat(np.cumsum(drawn) - drawn, drawn)
    if params.patches_per_clip is not None:
        starts = (generator.random(len(per_clip)) * per_clip).astype(np.int64)
        available = per_clip[clips]
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


def load_network(folder: Path) -> Network | Probe:
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
    network = _build(params, meta["n_inputs"], len(meta["class_ids"]), meta["n_students"])
    network.load_state_dict(weights)
    return network.to(_device()).eval()


def _drawn(per_clip: NDArray[np.int64], params: TrainParams) -> NDArray[np.int64]:
    limit = params.patches_per_clip
    return per_clip if limit is None else np.minimum(per_clip, limit)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _build(
    params: ModelParams, n_inputs: int, n_classes: int, n_students: int, seed: int = 0
) -> Network | Probe:
    if params.is_probe:
        return build_probe(params, n_inputs, n_classes, n_students, seed)
    if n_students > 1:
        raise EarmarkError(f"{params.architecture} students are trained one by one, not in a stack")
    return build_model(params, n_classes, seed)


def _begin(network: NetworkParams, supervision: Supervision, n_inputs: int) -> _Run:
    params = network.train
    n_classes, n_students = len(supervision.class_ids), supervision.n_students
    model = _build(network.model, n_inputs, n_classes, n_students, params.seed).to(_device())
    trainable = _trainable(model)
    optimiser = torch.optim.AdamW(
        trainable, params.learning_rate, weight_decay=params.weight_decay, fused=True
    )
    average = [torch.zeros_like(p) for p in trainable] if params.average_share else []
    return _Run(model, optimiser, average)


def _loop(
    run: _Run,
    params: TrainParams,
    data: TrainingSet,
    examples: Examples,
    folder: Path,
    run_digest: str,
    meter: Meter,
) -> None:
    begun = last_checkpoint = time.monotonic()
    n_seen = 0
    run.network.train()
    while run.epoch < params.epochs:
        clips, which = epoch_order(examples.per_clip, params, run.epoch)
        n_steps = math.ceil(len(clips) / params.batch_patches)
        for step in range(run.step, n_steps):
            batch = slice(step * params.batch_patches, (step + 1) * params.batch_patches)
            loss = _step(run, params, data, examples, (clips[batch], which[batch]), n_steps)
            run.loss_sum += loss
            run.step = step + 1
            n_seen += len(clips[batch])
            speed = n_seen / len(clips) * len(examples.per_clip) / (time.monotonic() - begun)
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
    examples: Examples,
    batch: tuple[NDArray[np.int64], NDArray[np.int64]],
    n_steps: int,
) -> float:
    """Take one step and return the loss, the mean over students."""
    clips, which = batch
    step, n_in_all = run.epoch * n_steps + run.step, params.epochs * n_steps
    for group in run.optimiser.param_groups:
        group["lr"] = learning_rate(params, step, n_in_all)
    if isinstance(run.network, Probe):
        run.network.reseed(params.seed, run.epoch, run.step)
    logits: Tensor = run.network(*examples.inputs(clips, which))
    logits = logits if logits.ndim == 3 else logits.unsqueeze(0)  # [student, example, class]
    targets = data.supervision.targets(clips).to(_device())
    entries = data.supervision.entries(logits, targets, Moment(run.epoch, run.step, n_steps))
    loss = reduced(entries, targets.weight.expand_as(logits), params.loss)
    run.optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    run.optimiser.step()
    if step >= (1 - params.average_share) * n_in_all:
        run.n_averaged += 1
        for mean, parameter in zip(run.average, _trainable(run.network), strict=True):
            mean.lerp_(parameter.detach(), 1 / run.n_averaged)
    value = float(loss.detach()) / len(logits)
    if not math.isfinite(value):
        names = examples.names(clips)
        raise EarmarkError(
            f"the loss became {value} at epoch {run.epoch + 1}, step {run.step + 1}; lower the "
            f"learning rate, or look at the batch's clips: {', '.join(names)}"
        )
    return value


def _trainable(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _write_checkpoint(run: _Run, folder: Path, run_digest: str) -> None:
    state = {
        "digest": run_digest,
        "network": run.network.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "average": run.average,
        "n_averaged": run.n_averaged,
        "epoch": run.epoch,
        "step": run.step,
        "loss_sum": run.loss_sum,
        "history": run.history,
    }
    with write_aside(folder / "checkpoint.pt") as aside:
        torch.save(state, aside)


def _resume(
    run: _Run, folder: Path, run_digest: str, per_clip: NDArray[np.int64], params: TrainParams
) -> int:
    """Continue from a checkpoint of the same run; return how many examples it had seen."""
    state = _read_checkpoint(folder / "checkpoint.pt")
    if state is None or state["digest"] != run_digest:
        return 0
    run.network.load_state_dict(state["network"])
    run.optimiser.load_state_dict(state["optimiser"])
    run.average, run.n_averaged = state["average"], state["n_averaged"]
    run.epoch, run.step = state["epoch"], state["step"]
    run.loss_sum, run.history = state["loss_sum"], state["history"]
    per_epoch = int(_drawn(per_clip, params).sum())
    return run.epoch * per_epoch + min(run.step * params.batch_patches, per_epoch)


def _read_checkpoint(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location=_device(), weights_only=True)
    return state


def _finish(
    run: _Run,
    network: NetworkParams,
    data: TrainingSet,
    n_inputs: int,
    folder: Path,
    run_digest: str,
) -> Network | Probe:
    """Write the result, averaged weights in place of the last ones where asked for."""
    with torch.no_grad():
        for parameter, mean in zip(_trainable(run.network), run.average, strict=False):
            parameter.copy_(mean)
    weights = {name: value.contiguous() for name, value in run.network.state_dict().items()}
    with write_aside(folder / "weights.safetensors") as aside:
        save_file(weights, aside)
    write_json(folder / "params.json", network.model_dump(mode="json"))
    write_table(folder / "history.csv", pl.DataFrame(run.history))
    meta = {
        "digest": run_digest,
        "class_ids": list(data.supervision.class_ids),
        "n_inputs": n_inputs,
        "n_students": data.supervision.n_students,
    }
    write_json(folder / "meta.json", meta)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    return run.network.eval()
