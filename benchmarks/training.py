"""Training: a stack of students, the mask and a network, each against its rival.

    python benchmarks/training.py
    python benchmarks/training.py --only parts mask    # what a step is made of, and the mask

1. 18 probes in one stack against 18 runs of their own, for some steps on a store of balanced
   AudioSet's size (22,160 clips of 10 frames of 128, 527 classes), and where a step's time goes,
   beside the matrix products that it cannot do without, taken in the same turns.
2. A step with the paper's masks against the same step without, taken in turn by one network; and
   what part of the first is the loader's, which in a training runs in a thread of its own.
3. A step of MobileNetV1, loader included, against the network written plainly in torch: default
   layout, explicit padding, Adam as it comes, patches gathered one by one.

Steps are compared in pairs, and the median of the pairs' ratios is told with its quartiles. Times
are CPU seconds, but for 1 on two cores: two processes, by the clock, which needs the machine for
itself.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from earmark.audio import FrameStore, write_store
from earmark.flags import thresholds
from earmark.labels import LabelSet
from earmark.losses import Moment, normalised, norms
from earmark.networks import (
    MOBILENET_V1_ROWS,
    MOBILENET_V1_STEM,
    build,
    build_model,
    examples_of,
    trainable,
)
from earmark.runs import (
    PAPER_DISCARD_PERCENTS,
    SILENT,
    ModelParams,
    NetworkParams,
    TrainParams,
    read_json,
    write_json,
)
from earmark.scores import MappedScores
from earmark.training import (
    AsLabelled,
    Flags,
    Lessons,
    Loader,
    Plan,
    Told,
    TrainingSet,
    Treated,
    train,
)
from machine import processor_name

N_CLIPS, N_FRAMES, N_FEATURES, N_CLASSES = 22_160, 10, 128, 527
GOAL_STACK, GOAL_MASK_PERCENT, GOAL_NETWORK = 0.6, 2.0, 1.0
GOAL_PRODUCTS, GOAL_LOADER_PERCENT = 1.3, 5.0
FIGURES = ("stack", "parts", "mask", "network")
PROBE = ModelParams(architecture="mlp_probe", n_hidden=512, dropout=0.3)
BATCH_CLIPS, BATCH_PATCHES = 256, 64
METER = SILENT.job("", 0, "")


def make_store(folder: Path, n_clips: int) -> FrameStore:
    """Write made-up embeddings: 8 bits, as AudioSet's."""
    random = np.random.default_rng(0)
    shape = (N_FRAMES, N_FEATURES)
    clips = ((f"clip{i}", random.integers(0, 256, shape, np.uint8)) for i in range(n_clips))
    return write_store(folder, clips)


def make_labels(n_clips: int) -> LabelSet:
    """Return three positives for each clip, of classes whose numbers fall off."""
    groups = (N_CLASSES // 3 * np.random.default_rng(1).random((n_clips, 1)) ** 2).astype(np.int32)
    columns = (3 * groups + np.arange(3, dtype=np.int32)).ravel()
    clip_ids = pl.Series("clip_id", [f"clip{i}" for i in range(n_clips)])
    class_ids = tuple(f"class{column}" for column in range(N_CLASSES))
    starts = np.arange(0, 3 * n_clips + 1, 3)
    return LabelSet(clip_ids, class_ids, starts, columns, np.ones(3 * n_clips, bool))


def make_masks(folder: Path, labels: LabelSet) -> Treated:
    """Return the paper's 18 masks by scores drawn at random."""
    logits = np.random.default_rng(2).standard_normal((len(labels), N_CLASSES), np.float32)
    np.save(folder / "logits.npy", logits)
    scores = MappedScores(folder / "logits.npy", "made up")
    values = thresholds(labels, logits, PAPER_DISCARD_PERCENTS).values
    told = tuple(Told(Flags(scores, own)) for own in values)
    return Treated(labels, np.arange(len(labels)), told)


@dataclass(frozen=True)
class Timing:
    """What some work took: by the clock, and of the processors."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def run_students(data: TrainingSet, n_steps: int, folder: Path, n_threads: int = 1) -> None:
    """Train the students of a set through the public loop."""
    torch.set_num_threads(n_threads)
    params = TrainParams(steps=n_steps, batch_patches=BATCH_CLIPS, checkpoint_seconds=1e9)
    train(NetworkParams(name="probe", model=PROBE, train=params), data, folder, METER)


def compare_stack(
    folder: Path, store: FrameStore, masks: Treated, n_steps: int, n_turns: int
) -> dict[str, Any]:
    """Time a stack of 18 and 18 runs of their own, on one core and on both.

    On one core CPU seconds are compared, which other processes do not change. On both, two
    processes share the 18 runs, or have a stack of nine each, as in a sweep; one stack of 18 with
    two threads stands beside them. These go by the clock.
    """
    rows = np.arange(len(masks.labels))
    stack = TrainingSet(store.folder, rows, masks)
    alone = [replace(stack, lessons=masks.of((told,))) for told in masks.told]
    halves = [replace(stack, lessons=masks.of(masks.told[i::2])) for i in (0, 1)]
    names = itertools.count()

    def run(data: TrainingSet, n: int = n_steps, n_threads: int = 1) -> None:
        run_students(data, n, folder / str(next(names)), n_threads)

    def run_in(pool: Any, sets: list[TrainingSet], n: int = n_steps) -> None:
        jobs = [(data, n, folder / str(next(names))) for data in sets]
        pool.starmap(run_students, jobs, chunksize=1)

    with multiprocessing.get_context("spawn").Pool(2) as pool:
        run_in(pool, alone, 1)  # imports
        run(alone[0], 1)
        turns = [
            {
                "stack_one_core": timed(lambda: run(stack)).cpu,
                "separate_one_core": sum(timed(lambda d=d: run(d)).cpu for d in alone),
                "stack_two_cores": timed(lambda: run_in(pool, halves)).wall,
                "separate_two_cores": timed(lambda: run_in(pool, alone)).wall,
                "stack_two_threads": timed(lambda: run(stack, n_threads=2)).wall,
            }
            for _ in range(n_turns)
        ]
    return {
        "n_steps": n_steps,
        "turns": turns,
        "fixed_seconds_of_a_run": timed(lambda: run(alone[0], 1)).cpu,
        "ratio_one_core": ratio_of(turns, "stack_one_core", "separate_one_core"),
        "ratio_two_cores": ratio_of(turns, "stack_two_cores", "separate_two_cores"),
        "ratio_two_threads": ratio_of(turns, "stack_two_threads", "separate_two_cores"),
    }


def ratio_of(turns: list[dict[str, float]], stacked: str, separate: str) -> float:
    return float(np.median([turn[stacked] / turn[separate] for turn in turns]))


def measure_parts(store: FrameStore, masks: Treated, n_steps: int) -> dict[str, Any]:
    """Return the median CPU time of each part of a step of the stack, on one thread.

    The limit is the step's matrix products: two layers forwards, and backwards the gradients of
    both layers' weights and of what is between them.
    """
    torch.set_num_threads(1)
    params = TrainParams(steps=n_steps + 2, batch_patches=BATCH_CLIPS)
    network = build(PROBE, N_FEATURES, N_CLASSES, masks.n_students).train()
    optimiser = torch.optim.AdamW(trainable(network), fused=True)
    loader, plan = loader_of(PROBE, store, masks, params)
    parts: dict[str, list[float]] = {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        parts.setdefault(name, []).append(1e3 * (time.process_time() - start))
        return result

    seen = torch.randn(masks.n_students, BATCH_CLIPS, network.weights[0].shape[1])
    hidden = torch.randn(masks.n_students, BATCH_CLIPS, network.weights[1].shape[1])
    said = torch.randn(masks.n_students, BATCH_CLIPS, N_CLASSES)

    def products() -> None:
        first, second = (weights.detach() for weights in network.weights)
        seen @ first
        hidden @ second
        hidden.mT @ said
        said @ second.mT
        seen.mT @ hidden

    for batch in list(plan.batches(0))[: n_steps + 2]:
        part("matrix products alone", products)
        part("reading frames", lambda batch=batch: loader.examples.gather(batch.clips, batch.which))
        part("targets and masks", lambda batch=batch: masks.targets(batch.clips))
        loaded = loader.load(batch)
        logits = part("forward", lambda loaded=loaded: network(*loaded.inputs))
        loss = part(
            "loss", lambda logits=logits, loaded=loaded: loss_of(logits, loaded.targets, masks)
        )
        part("backward", loss.backward)
        part("optimiser", optimiser.step)
        optimiser.zero_grad(set_to_none=True)
    limits = np.array(parts.pop("matrix products alone")[2:])
    steps = np.sum([times[2:] for times in parts.values()], axis=0)
    low, median, high = np.quantile(steps / limits, [0.25, 0.5, 0.75])
    loads = np.add(parts["reading frames"], parts["targets and masks"])[2:]
    return {
        "ms": {name: float(np.median(times[2:])) for name, times in parts.items()},
        "matrix_products_ms": float(np.median(limits)),
        "step_against_products": median,
        "step_against_products_quartiles": [low, high],
        "loader_percent": 100 * float(np.median(loads / steps)),
    }


def loss_of(logits: Tensor, targets: Any, lessons: Lessons) -> Tensor:
    logits = logits if logits.ndim == 3 else logits.unsqueeze(0)
    entries = lessons.entries(logits, targets, Moment(0, 0, 1))
    return normalised(entries, norms(targets.weight.expand_as(logits), "sum"))


def loader_of(
    model: ModelParams, store: FrameStore, lessons: Lessons, params: TrainParams
) -> tuple[Loader, Plan]:
    examples = examples_of(model, store, np.arange(len(store.clip_ids)))
    return Loader(params, examples, lessons), Plan(params, examples.per_clip)


@dataclass(frozen=True)
class Learner:
    """A network, of one student or a stack of them, that learns from the frames of a store."""

    model: ModelParams
    store: FrameStore
    network: Any
    optimiser: torch.optim.Optimizer

    @classmethod
    def new(cls, model: ModelParams, store: FrameStore, n_students: int = 1) -> Learner:
        """Build one that knows nothing yet."""
        network = build(model, store.n_bands, N_CLASSES, n_students).train()
        return cls(model, store, network, torch.optim.AdamW(trainable(network), fused=True))


def stepper(
    learner: Learner, lessons: Lessons, params: TrainParams, loads: list[float] | None = None
) -> Callable[[int], float]:
    """Return a function that takes a step, loading included, and tells its CPU seconds.

    What part of each was the loader's is added to ``loads``.
    """
    network, optimiser = learner.network, learner.optimiser
    loader, plan = loader_of(learner.model, learner.store, lessons, params)
    batches = list(plan.batches(0))

    def step(number: int) -> float:
        start = time.process_time()
        loaded = loader.load(batches[number % len(batches)])
        seconds = time.process_time() - start
        loss = loss_of(network(*loaded.inputs), loaded.targets, lessons)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        whole = time.process_time() - start
        if loads is not None:
            loads.append(seconds / whole)
        return whole

    return step


def paired(first: Callable[[int], float], second: Callable[[int], float], n: int) -> dict[str, Any]:
    """Return the quartiles of first / second over pairs of steps, each leading in turn."""
    ratios, both = [], (first, second)
    for number in range(-2, n):
        order = (0, 1) if number % 2 else (1, 0)
        times = {which: both[which](number) for which in order}
        if number >= 0:
            ratios.append(times[0] / times[1])
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {"ratio": median, "ratio_quartiles": [low, high], "n_pairs": n}


def compare_masks(
    store: FrameStore, patches: FrameStore, masks: Treated, n_pairs: int
) -> dict[str, Any]:
    """Compare steps with and without masks: 18 probes, one probe, one MobileNetV1."""
    torch.set_num_threads(1)
    some = masks.select(np.arange(len(patches.clip_ids)))
    cases = {
        "18 probes in a stack": (PROBE, store, masks, BATCH_CLIPS, n_pairs),
        "one probe": (PROBE, store, masks.of(masks.told[6:7]), BATCH_CLIPS, 10 * n_pairs),
        "one MobileNetV1": (ModelParams(), patches, some.of(some.told[6:7]), 16, n_pairs),
    }
    results = {}
    for name, (model, frames, treated, size, n) in cases.items():
        params = TrainParams(epochs=1, batch_patches=size)
        plain, loads = AsLabelled(treated.labels, treated.n_students), list[float]()
        learner = Learner.new(model, frames, treated.n_students)  # one: memory is not all alike
        masked = stepper(learner, treated, params, loads)
        results[name] = paired(masked, stepper(learner, plain, params), n)
        results[name]["cost_percent"] = 100 * (results[name]["ratio"] - 1)
        results[name]["loader_percent"] = 100 * float(np.median(loads))
    return results


class PlainMobileNet(nn.Module):
    """MobileNetV1 as one writes it down: a pad, a convolution, a normalisation, a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        kernel, stride, n_in = MOBILENET_V1_STEM
        layers = self._layer(1, n_in, kernel, stride, 1)
        for n_out, stride in MOBILENET_V1_ROWS:
            layers += self._layer(n_in, n_in, 3, stride, n_in)
            layers += self._layer(n_in, n_out, 1, 1, 1)
            n_in = n_out
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(n_in, N_CLASSES)

    @staticmethod
    def _layer(n_in: int, n_out: int, kernel: int, stride: int, groups: int) -> list[nn.Module]:
        pad = (0, 1, 0, 1) if stride == 2 else (kernel // 2,) * 4
        convolution = nn.Conv2d(n_in, n_out, kernel, stride, groups=groups, bias=False)
        return [nn.ZeroPad2d(pad), convolution, nn.BatchNorm2d(n_out), nn.ReLU()]

    def forward(self, patches: Tensor) -> Tensor:
        """Return logits [patch, class]."""
        logits: Tensor = self.head(self.layers(patches.unsqueeze(1)).mean(dim=(2, 3)))
        return logits


def compare_networks(patches: FrameStore, labels: LabelSet, n_pairs: int) -> dict[str, Any]:
    """Compare steps of MobileNetV1, ours with its loader and a plain one, on one thread."""
    torch.set_num_threads(1)
    assert sum(p.numel() for p in PlainMobileNet().parameters() if p.requires_grad) >= sum(
        p.numel() for p in build_model(ModelParams(), N_CLASSES).parameters() if p.requires_grad
    )
    params = TrainParams(epochs=1, batch_patches=BATCH_PATCHES)
    plain, states = PlainMobileNet().train(), labels.states()
    optimiser = torch.optim.Adam(plain.parameters(), 1e-3)
    _, plan = loader_of(ModelParams(), patches, AsLabelled(labels), params)
    batches = list(plan.batches(0))

    def plain_step(number: int) -> float:
        start = time.process_time()
        batch = batches[number % len(batches)]
        pairs = zip(batch.clips, batch.which, strict=True)
        hop = patches.patch_hop_frames
        inputs = [
            patches.frames(int(c))[w * hop : w * hop + 96].astype(np.float32) for c, w in pairs
        ]
        target = torch.from_numpy((states[batch.clips] > 0).astype(np.float32))
        logits = plain(torch.from_numpy(np.stack(inputs)))
        loss = functional.binary_cross_entropy_with_logits(logits, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return time.process_time() - start

    ours = stepper(Learner.new(ModelParams(), patches), AsLabelled(labels), params)
    result = paired(plain_step, ours, n_pairs)
    return {**result, "batch_patches": BATCH_PATCHES, "times_as_fast": result["ratio"]}


def make_patches(folder: Path, n_clips: int) -> FrameStore:
    random = np.random.default_rng(3)
    frames: NDArray[np.float16] = random.normal(-4, 1, (n_clips, 240, 64)).astype(np.float16)
    clips = ((f"clip{i}", own) for i, own in enumerate(frames))
    return write_store(folder, clips, patch_frames=96, patch_hop_frames=48)


def show(results: dict[str, Any]) -> None:
    table = Table("figure", "measured", "goal", title="Training")
    if stack := results.get("stack"):
        for name, told, goal in (
            ("ratio_one_core", "18 in a stack / 18 runs, one core", ""),
            ("ratio_two_cores", "two stacks of 9 / 18 runs, two processes", f"{GOAL_STACK}"),
            ("ratio_two_threads", "18 in a stack, two threads / 18 runs, two processes", ""),
        ):
            table.add_row(told, f"{stack[name]:.2f}", goal)
    if parts := results.get("parts"):
        for name, each in parts["ms"].items():
            table.add_row(f"  a step of the stack: {name}", f"{each:.1f} ms", "")
        low, high = parts["step_against_products_quartiles"]
        ratio = f"{parts['step_against_products']:.2f} ({low:.2f} to {high:.2f})"
        table.add_row("a step / its matrix products", ratio, f"{GOAL_PRODUCTS}")
        loader = f"{parts['loader_percent']:.1f} %"
        table.add_row("reading, targets and masks, of a step", loader, f"{GOAL_LOADER_PERCENT} %")
    for name, each in results.get("mask", {}).items():
        low, high = (100 * (ratio - 1) for ratio in each["ratio_quartiles"])
        cost = f"{each['cost_percent']:+.1f} % ({low:+.1f} to {high:+.1f})"
        table.add_row(f"the mask's cost, {name}", cost, f"{GOAL_MASK_PERCENT} %")
        loader = f"{each['loader_percent']:.1f} %"
        table.add_row(f"  the loader's part of a step, {name}", loader, f"{GOAL_LOADER_PERCENT} %")
    if network := results.get("network"):
        low, high = network["ratio_quartiles"]
        speed = f"{network['times_as_fast']:.2f} x ({low:.2f} to {high:.2f})"
        table.add_row("MobileNetV1 step against plain torch", speed, f"{GOAL_NETWORK} x")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=87, help="steps of each run of 1: an epoch")
    parser.add_argument("--turns", type=int, default=3, help="repeats of 1")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of steps of 2 and 3")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=FIGURES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, patches = (
            make_store(folder / "clips", N_CLIPS),
            make_patches(folder / "patches", 800),
        )
        labels = make_labels(N_CLIPS)
        masks = make_masks(folder, labels)
        figures: dict[str, Callable[[], dict[str, Any]]] = {
            "stack": lambda: compare_stack(folder, store, masks, options.steps, options.turns),
            "parts": lambda: measure_parts(store, masks, options.pairs),
            "mask": lambda: compare_masks(store, patches, masks, options.pairs),
            "network": lambda: compare_networks(
                patches, labels.select(np.arange(800)), options.pairs
            ),
        }
        results = {name: figures[name]() for name in options.only}
    show(results)
    path = Path(__file__).parent / "results" / "training.json"
    known = read_json(path) if path.exists() else {}
    machine = {"processor": processor_name(), "torch": torch.__version__}
    write_json(path, known | {"machine": machine} | results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
