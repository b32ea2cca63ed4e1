"""One resumable loop for the teacher, its students, and a whole sweep of students.

Teacher and student are the same :func:`train` on different targets. A run is a function of its
parameters, its data and its seed: which examples make up a batch, how they are augmented, and what
dropout drops, depends on (seed, epoch, step) alone. So a run that was killed continues to the very
weights that it would have reached, and students of one seed see the same examples in the same
order from the same initial weights. Several processes share each batch
(:mod:`earmark.training.distributed`).

An example is a patch of log-mel frames for the convolutional networks, and a whole clip for the
probes. Probes of one sweep train in a stack on the same batches, in one multiplication and each as
if it were alone; convolutional students train apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio import FrameStore
from earmark.compute import FOUND, RESUMED, Meter
from earmark.config import NetworkParams, TrainParams
from earmark.errors import EarmarkError, Stopped
from earmark.losses import by_student, norms
from earmark.memory import is_memory_error
from earmark.models import (
    AnyNetwork,
    ClipExamples,
    Probe,
    build,
    examples_of,
    load_network,
    own_device,
    probe_features,
    trainable,
    write_network,
)
from earmark.models.pretrained import begin, keep_statistics
from earmark.storage import is_current
from earmark.training import checkpoints
from earmark.training.checkpoints import Run
from earmark.training.distributed import (
    broadcast_from_first,
    is_first_process,
    n_processes,
    parallel,
    share_of_batch,
    share_statistics,
    sum_over_processes,
    wait_for_all,
)
from earmark.training.linear_probe import ScaledFeatures, fit_probe
from earmark.training.loading import Loaded, Loader, Plan, made_ahead
from earmark.training.targets import TrainingSet, class_balance
from earmark.training.trackers import Log, open_training_log, write_history

_MEMORY_ERRORS = (torch.OutOfMemoryError, MemoryError, RuntimeError)
"""What torch raises for want of memory; a RuntimeError may mean anything else."""


@dataclass(frozen=True)
class NumberTypes:
    """The type of a run's weights, and of its activations where that is another."""

    weights: torch.dtype
    activations: torch.dtype | None = None

    @classmethod
    def of(cls, params: TrainParams, device: torch.device) -> NumberTypes:
        """Choose the types for a device; ``auto`` mixes on a GPU, in bfloat16 if it can.

        Shorter types are refused on a CPU: without AMX they take ten times as long, and a virtual
        machine that claims AMX without having it dies of the first step.
        """
        name = params.number_type
        if name == "auto" and device.type == "cuda":
            name = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if name in ("bfloat16", "float16") and device.type == "cpu":
            raise EarmarkError(
                f'number_type = "{name}" needs a GPU, and torch finds none here; take "float32", '
                'or "auto" for the best on either'
            )
        if name == "float64":
            return cls(torch.float64)
        mixed = {"bfloat16": torch.bfloat16, "float16": torch.float16}
        return cls(torch.float32, mixed.get(name))

    def mixed(self, device: torch.device) -> torch.autocast:
        """Return the context in which the forward pass runs."""
        is_mixed = self.activations is not None
        return torch.autocast(device.type, self.activations or torch.bfloat16, enabled=is_mixed)


def train(network: NetworkParams, data: TrainingSet, folder: Path, meter: Meter) -> AnyNetwork:
    """Train a network, or load it if ``folder`` already holds the result of the same run.

    The meter counts examples. A checkpoint is kept every ``checkpoint_seconds`` and removed at the
    end; the folder then holds ``weights.safetensors``, ``params.json``, ``history.csv``,
    ``meta.json`` and maybe a tracker's files. On SIGTERM it writes a checkpoint and raises
    :class:`~earmark.errors.Stopped`. Where processes were joined (:func:`join_processes`) all of
    them call it with the same arguments, and the first one writes.
    """
    run_digest = data.digest(network)
    store = FrameStore.open(data.frames_folder)
    per_clip = examples_of(network.model, store, data.store_rows).per_clip
    if broadcast_from_first(is_current(folder, run_digest)):
        if is_first_process():  # of a run that was killed when all but this was done
            checkpoints.checkpoint_path(folder, run_digest).unlink(missing_ok=True)
        meter.advance(Plan(network.train, per_clip).n_examples, FOUND)
        return load_network(folder, store, data.targets.class_ids)
    if network.train.solver == "lbfgs":
        return _fit_linear_probes(network, data, folder, meter, run_digest, store)
    is_balanced = network.train.balanced_sampling
    balance = class_balance(data.targets.labels) if is_balanced else None
    plan = Plan(network.train, per_clip, balance)
    job = _Job(network, data, folder, meter, run_digest, store, plan)
    try:
        run = _begin(job)
        is_resumed = checkpoints.resume(run, folder, run_digest)
    except _MEMORY_ERRORS as error:
        if not is_memory_error(error):
            raise
        raise EarmarkError(
            f"out of memory for the weights on {own_device()}: take a smaller network"
        ) from None
    data.targets.load_state(run.remembered)
    n_before = plan.n_examples_before(run.epoch, run.step)
    meter.advance(n_before, RESUMED if is_resumed else "")
    _loop(job, run)
    return _finish(job, run)


def _fit_linear_probes(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    meter: Meter,
    run_digest: str,
    store: FrameStore,
) -> Probe:
    """Fit the linear probes of all students by L-BFGS, and write them as any other network.

    What a probe sees of each clip is computed once and kept in memory.
    """
    start, params, targets = time.monotonic(), network.train, data.targets
    if network.model.architecture != "linear_probe" or params.epochs is None:
        raise EarmarkError(
            f'solver = "lbfgs" fits linear probes in so many epochs, got '
            f"{network.model.architecture} and {params.length}"
        )
    if others := {treatment.loss for treatment in targets.treatments} - {"bce"}:
        raise EarmarkError(
            f'solver = "lbfgs" fits cross-entropy only, got the loss {min(others)}; set solver = '
            '"adamw" for students of robust losses'
        )
    n_clips, n_classes = len(data.store_rows), len(targets.class_ids)
    probe = build(network.model, store.n_bands, n_classes, targets.n_students, params.seed)
    assert isinstance(probe, Probe)
    features = probe_features(probe, ClipExamples(store, data.store_rows))
    scaled = ScaledFeatures.of(features, power=0.5)
    asked, n_left, losses = targets.targets(np.arange(n_clips)), params.epochs, []

    def count_iteration() -> None:
        nonlocal n_left
        if n_left > 1:  # the last is counted at the end: nobody knows how many there will be
            n_left -= 1
            meter.advance(n_clips)

    for student in range(targets.n_students):
        student_targets = asked.select(slice(student, student + 1))
        fitted = fit_probe(
            scaled,
            student_targets.target[0].numpy(),
            student_targets.weight[0].numpy(),
            ridge=params.ridge,
            n_iterations=params.epochs,
            on_iteration=count_iteration,
        )
        with torch.no_grad():
            probe.weights[0][student] = torch.from_numpy(fitted.weights)
            probe.biases[0][student, 0] = torch.from_numpy(fitted.bias)
        losses.append(fitted.loss / max(n_clips, 1))
    loss = float(np.mean(losses))
    meter.advance(n_clips * n_left, f"loss {loss:.3f}")
    if is_first_process():
        seconds = time.monotonic() - start
        write_history(folder, [{"epoch": params.epochs, "loss": loss, "seconds": seconds}])
        write_network(folder, network, probe, targets.class_ids, store, run_digest)
    wait_for_all()
    return probe.eval()


@dataclass(frozen=True)
class _Job:
    """What a run is given: everything but its state."""

    network: NetworkParams
    data: TrainingSet
    folder: Path
    meter: Meter
    digest: str
    store: FrameStore
    plan: Plan

    @property
    def params(self) -> TrainParams:
        return self.network.train

    def build(self) -> AnyNetwork:
        targets = self.data.targets
        n_classes, n_students = len(targets.class_ids), targets.n_students
        seed = self.params.seed
        return build(self.network.model, self.store.n_bands, n_classes, n_students, seed)

    def loader(self) -> Loader:
        examples = examples_of(self.network.model, self.store, self.data.store_rows)
        return Loader(self.params, examples, self.data.targets)


def _begin(job: _Job) -> Run:
    params, types = job.params, NumberTypes.of(job.params, own_device())
    if params.patience and job.data.validation is None:
        raise EarmarkError(
            f"patience = {params.patience} stops early by the tune split, but no clip is in it; "
            "deal splits with `earmark import workspace WORK --splits 80,10,10`, or set "
            "patience = 0 in the recipe"
        )
    begin(model := job.build(), job.network.model)
    model = model.to(types.weights)
    share_statistics(model)
    parameters = trainable(model)
    optimiser = torch.optim.AdamW(
        parameters, params.learning_rate, weight_decay=params.weight_decay, fused=True
    )
    scaler = torch.amp.GradScaler("cuda", enabled=types.activations == torch.float16)
    average = [torch.zeros_like(p) for p in parameters] if params.average_share else []
    return Run(model, optimiser, scaler, average, parallel(model))


def _loop(job: _Job, run: Run) -> None:
    first_step = run.epoch * job.plan.steps_per_epoch + run.step
    training_log = open_training_log(
        job.folder, first_step, job.network, is_wanted=is_first_process()
    )
    with checkpoints.heeding_sigterm() as is_terminated, training_log as shown:
        while run.epoch < job.plan.n_epochs and not _have_waited_enough(job, run).all():
            _train_epoch(job, run, shown, is_terminated)
            _close_epoch(job, run, shown)
    left = job.plan.n_examples - job.plan.n_examples_before(run.epoch, run.step)
    if left > 0:
        job.meter.advance(left, f"stopped early after epoch {run.epoch}")


def _train_epoch(job: _Job, run: Run, training_log: Log, is_terminated: Callable[[], bool]) -> None:
    run.network.train()
    keep_statistics(run.network, job.network.model)
    last = time.monotonic()
    with closing(made_ahead(job.loader().load, job.plan.batches(run.epoch, run.step))) as loading:
        for loaded in loading:
            loss, must_stop = _step(job, run, loaded, is_terminated())
            last, before = time.monotonic(), last
            run.seconds += last - before
            _tell(job, run, training_log, loss, len(loaded.batch.clips))
            if must_stop or last - run.saved_at >= job.params.checkpoint_seconds:
                run.remembered = job.data.targets.state()
                checkpoints.write_checkpoint(run, job.folder, job.digest)
            if must_stop:
                raise Stopped


def _tell(job: _Job, run: Run, training_log: Log, loss: float, n_examples: int) -> None:
    """Show a step that was taken."""
    step = run.epoch * job.plan.steps_per_epoch + run.step - 1
    training_log(step, {"train/loss": loss, "train/learning_rate": _rate(run)})
    note = f"loss {loss:.3f}, epoch {run.epoch + 1}/{job.plan.n_epochs}"
    job.meter.advance(n_examples, f"{note}, {_clips_per_second(job, run):,.0f} clips/s")


def _step(job: _Job, run: Run, loaded: Loaded, is_terminated: bool) -> tuple[float, bool]:
    """Take one step; return the mean loss over students, and whether any process must stop."""
    try:
        losses = _learn(job, run, loaded)
    except _MEMORY_ERRORS as error:
        if not is_memory_error(error):
            raise
        raise _out_of_memory(job, loaded) from None
    report = torch.cat([losses.double(), losses.new_tensor([float(is_terminated)]).double()])
    *values, n_terminated = sum_over_processes(report).tolist()
    value = sum(values) / len(values)
    if not math.isfinite(value):
        names = job.loader().examples.names(loaded.batch.clips)
        raise EarmarkError(
            f"the loss became {value} at epoch {run.epoch + 1}, step {run.step + 1}; lower the "
            f"learning rate, or look at the batch's clips: {', '.join(names)}"
        )
    before = run.loss_sums or [0.0] * len(values)
    run.loss_sums = [total + own for total, own in zip(before, values, strict=True)]
    run.step += 1
    return value, n_terminated > 0


def _learn(job: _Job, run: Run, loaded: Loaded) -> Tensor:
    """Change the weights by one step; return this process's part of the losses [student]."""
    batch, parameters = loaded.batch, trainable(run.network)
    for group in run.optimiser.param_groups:
        group["lr"] = job.plan.learning_rate(batch.epoch, batch.step)
    run.optimiser.zero_grad(set_to_none=True)
    losses = _add_gradients(job, run, loaded)
    run.scaler.step(run.optimiser)
    run.scaler.update()
    n_done = batch.epoch * job.plan.steps_per_epoch + batch.step
    if run.average and n_done >= (1 - job.params.average_share) * job.plan.n_steps:
        run.n_averaged += 1
        for mean, parameter in zip(run.average, parameters, strict=True):
            mean.lerp_(parameter.detach(), 1 / run.n_averaged)
    return losses


def _add_gradients(job: _Job, run: Run, loaded: Loaded) -> Tensor:
    """Add the gradients of this process's part of the losses; return these [student]."""
    params, batch, device = job.params, loaded.batch, own_device()
    types = NumberTypes.of(params, device)
    here = loaded.to(device, types.weights)
    if isinstance(run.network, Probe):
        n_clips = len(batch.clips)
        keys = (params.seed, batch.epoch, batch.step)
        run.network.reseed(*keys, n_clips=n_clips, first_clip=share_of_batch(n_clips).start)
    n_students = job.data.targets.n_students
    weights = here.targets.weight.expand(n_students, -1, -1)
    norm = sum_over_processes(norms(weights, params.loss)).expand(n_students)
    with types.mixed(device):
        logits: Tensor = run.parallel(*here.inputs)
    logits = logits.to(types.weights)
    logits = logits if logits.ndim == 3 else logits.unsqueeze(0)  # [student, example, class]
    entries = job.data.targets.entries(logits, here.targets, batch.epoch)
    losses = by_student(entries, norm)
    # Gradients are averaged over processes, but losses are parts of a sum.
    run.scaler.scale(losses.sum() * n_processes()).backward()  # type: ignore[no-untyped-call]
    return losses.detach()


def _close_epoch(job: _Job, run: Run, training_log: Log) -> None:
    """Write an epoch into the history, with the results on the tune split, and go to the next."""
    losses = np.array(run.loss_sums) / job.plan.steps_of(run.epoch)
    row = {
        "epoch": run.epoch + 1,
        "loss": float(losses.mean()),
        "learning_rate": _rate(run),
        "clips_per_second": _clips_per_second(job, run),
        "seconds": run.seconds,
    }
    results = {} if job.data.validation is None else _validate(job, run)
    row |= {name: float(values.mean()) for name, values in results.items()}
    run.history.append(row)
    shown = {f"epoch/{name}": value for name, value in row.items() if name != "epoch"}
    training_log((run.epoch + 1) * job.plan.steps_per_epoch - 1, shown)
    run.epoch, run.step, run.loss_sums, run.seconds = run.epoch + 1, 0, [], 0.0


def _validate(job: _Job, run: Run) -> dict[str, NDArray[np.float64]]:
    """Evaluate the tune split as if the run ended here; keep the best weights of each student."""
    assert job.data.validation is not None
    network = job.build()
    network.load_state_dict(_result(run))
    results = job.data.validation.evaluate(network.eval()) if is_first_process() else {}
    results = broadcast_from_first(results)
    if job.params.patience:
        watched = results[job.params.watch]
        _keep_best(run, watched if job.params.watch == "lwlrap" else -watched, job.params.patience)
    return {f"tune_{name}": values for name, values in results.items()}


def _keep_best(run: Run, results: NDArray[np.float64], patience: int) -> None:
    """Keep the weights of students with a better result, unless their patience has run out."""
    state = {name: values.clone() for name, values in _result(run).items()}
    if not run.best:
        run.best = state
        run.best_marks, run.n_waits = results.tolist(), [0] * len(results)
        return
    for student, result in enumerate(results.tolist()):
        if run.n_waits[student] >= patience:
            continue
        run.n_waits[student] += 1
        if result > run.best_marks[student]:
            run.best_marks[student], run.n_waits[student] = result, 0
            is_stack = isinstance(run.network, Probe)
            for name, values in state.items():
                if is_stack:
                    run.best[name][student].copy_(values[student])
                else:
                    run.best[name].copy_(values)


def _have_waited_enough(job: _Job, run: Run) -> NDArray[np.bool_]:
    """Tell which students have been without a better result for too long [student]."""
    n_waits = np.array(run.n_waits or [0] * job.data.targets.n_students)
    return n_waits >= (job.params.patience or np.inf)


def _result(run: Run) -> dict[str, Tensor]:
    """Return the weights that a run has reached, averaged ones in place of the last."""
    state: dict[str, Tensor] = dict(run.network.state_dict())
    if run.n_averaged:
        names = [name for name, p in run.network.named_parameters() if p.requires_grad]
        state |= dict(zip(names, run.average, strict=True))
    return state


def _finish(job: _Job, run: Run) -> AnyNetwork:
    network = job.build()
    network.load_state_dict(run.best or _result(run))
    if is_first_process():
        write_history(job.folder, run.history)
        class_ids = job.data.targets.class_ids
        write_network(job.folder, job.network, network, class_ids, job.store, job.digest)
        checkpoints.checkpoint_path(job.folder, job.digest).unlink(missing_ok=True)
    wait_for_all()
    return network.eval()


def _rate(run: Run) -> float:
    return float(run.optimiser.param_groups[0]["lr"])


def _clips_per_second(job: _Job, run: Run) -> float:
    n_examples = job.plan.n_examples_before(0, run.step)
    n_clips = n_examples / job.plan.examples_per_epoch * len(job.plan.per_clip)
    return n_clips / max(run.seconds, 1e-9)


def _out_of_memory(job: _Job, loaded: Loaded) -> EarmarkError:
    n_given = len(loaded.batch.clips)
    return EarmarkError(
        f"out of memory in a step of {n_given} {job.network.model.example_unit} on "
        f"{own_device()}: try batch_patches = {max(n_given // 2, 1)} in the recipe's [train] part, "
        "or take a smaller network"
    )
