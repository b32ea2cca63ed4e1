"""Training: a stack of students, the mask and a network, each against its rival.

    python benchmarks/training.py
    python benchmarks/training.py --only parts mask    # what a step is made of, and the mask

1. 18 probes in one stack against 18 runs of their own, for some steps on a store of balanced
   AudioSet's size (22,160 clips of 10 frames of 128, 527 classes), and where a step's time goes,
   beside the matrix products that it cannot do without, taken in the same turns.
2. A step with the paper's masks against the same step without, taken in turn by one network, and
   this against itself, which tells what is chance: by whole steps, and by those parts alone in
   which a mask has any (loading and loss). And what part of a step is the loader's, which in a
   training runs in a thread of its own.
3. A step of MobileNetV1, loader included, against the network written plainly in torch: default
   layout, explicit padding, Adam as it comes, patches gathered one by one.

Steps are compared in pairs, and the median of the pairs' ratios is told with its quartiles, in 2
with an interval of 95 % for the median. Times
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
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from earmark.audio import FrameStore
from earmark.labels import LabelSet
from earmark.networks import (
    MOBILENET_V1_ROWS,
    MOBILENET_V1_STEM,
    build,
    build_model,
    trainable,
)
from earmark.runs import (
    SILENT,
    ModelParams,
    NetworkParams,
    TrainParams,
    read_json,
    write_json,
)
from earmark.training import AsLabelled, TrainingSet, Treated, train
from machine import processor_name
from training_steps import (
    BATCH_CLIPS,
    BATCH_PATCHES,
    N_CLASSES,
    N_CLIPS,
    N_FEATURES,
    PROBE,
    Learner,
    in_turn,
    loader_of,
    loss_of,
    make_labels,
    make_masks,
    make_patches,
    make_store,
    middle,
    paired,
    stepper,
)

GOAL_STACK, GOAL_MASK_PERCENT, GOAL_NETWORK = 0.6, 2.0, 1.0
GOAL_PRODUCTS, GOAL_LOADER_PERCENT = 1.3, 5.0
FIGURES = ("stack", "parts", "mask", "network")
MASK_FIGURES = {
    "own_work_percent": "the mask's own work",
    "cost_percent": "the mask's cost, by whole steps",
    "control_percent": "the same without any mask",
    "loader_percent": "the loader's part",
}
METER = SILENT.job("", 0, "")


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


def compare_masks(
    store: FrameStore, patches: FrameStore, masks: Treated, n_turns: int
) -> dict[str, Any]:
    """Compare steps with and without masks: 18 probes, one probe, one MobileNetV1."""
    torch.set_num_threads(1)
    some = masks.select(np.arange(len(patches.clip_ids)))
    cases = {
        "18 probes in a stack": (PROBE, store, masks, BATCH_CLIPS, n_turns),
        "one probe": (PROBE, store, masks.of(masks.told[6:7]), BATCH_CLIPS, 10 * n_turns),
        "one MobileNetV1": (ModelParams(), patches, some.of(some.told[6:7]), 16, 2 * n_turns),
    }
    results = {}
    for name, (model, frames, treated, size, n) in cases.items():
        params = TrainParams(epochs=1, batch_patches=size)
        learner = Learner.new(model, frames, treated.n_students)  # one: memory is not all alike
        plain = AsLabelled(treated.labels, treated.n_students)
        steps = [stepper(learner, lessons, params) for lessons in (treated, plain, plain)]
        results[name] = {"n_turns": n} | cost_of_masks(*map(np.array, in_turn(steps, n)))
    return results


def cost_of_masks(
    masked: NDArray[np.float64], plain: NDArray[np.float64], again: NDArray[np.float64]
) -> dict[str, Any]:
    """Return what masks add to a step in per cent, by whole steps and by the parts they are in.

    All are [turn, part], the parts those of :class:`Took`. ``control_percent`` compares steps
    without masks with one another: what it tells is chance.
    """
    load, loss, whole = 0, 1, 2
    added = (masked - plain)[:, [load, loss]].sum(axis=1) / plain[:, whole]
    return {
        "cost_percent": middle(100 * (masked / plain - 1)[:, whole]),
        "control_percent": middle(100 * (again / plain - 1)[:, whole]),
        "own_work_percent": middle(100 * added),
        "own_work_ms": {
            "loading": 1e3 * float(np.median((masked - plain)[:, load])),
            "loss": 1e3 * float(np.median((masked - plain)[:, loss])),
        },
        "step_ms": 1e3 * float(np.median(masked[:, whole])),
        "loader_ms": 1e3 * float(np.median(masked[:, load])),
        "loader_percent": middle(100 * masked[:, load] / masked[:, whole]),
    }


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
    result = paired(plain_step, lambda number: ours(number).whole, n_pairs)
    return {**result, "batch_patches": BATCH_PATCHES, "times_as_fast": result["ratio"]}


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
        goals = (
            f"{GOAL_MASK_PERCENT} %",
            f"{GOAL_MASK_PERCENT} %",
            "0",
            f"{GOAL_LOADER_PERCENT} %",
        )
        for (figure, told), goal in zip(MASK_FIGURES.items(), goals, strict=True):
            low, high = each[figure]["interval"]
            measured = f"{each[figure]['median']:+.2f} % ({low:+.2f} to {high:+.2f})"
            table.add_row(f"{name}: {told}", measured, goal)
    if network := results.get("network"):
        low, high = network["ratio_quartiles"]
        speed = f"{network['times_as_fast']:.2f} x ({low:.2f} to {high:.2f})"
        table.add_row("MobileNetV1 step against plain torch", speed, f"{GOAL_NETWORK} x")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=87, help="steps of each run of 1: an epoch")
    parser.add_argument("--turns", type=int, default=3, help="repeats of 1")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of steps of 3")
    parser.add_argument("--mask-turns", type=int, default=200, help="turns of steps of 2")
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
            "mask": lambda: compare_masks(store, patches, masks, options.mask_turns),
            "network": lambda: compare_networks(
                patches, labels.select(np.arange(800)), options.pairs
            ),
        }
        results = {name: figures[name]() for name in options.only}
    show(results)
    path = Path(__file__).parent / "results" / "training.json"
    known = read_json(path) if path.exists() else {}
    machine = {"processor": processor_name(), "torch": torch.__version__}
    machines = known.get("machines", {}) | dict.fromkeys(results, machine)
    write_json(path, known | {"machines": machines} | results)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
