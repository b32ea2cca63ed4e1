"""What benchmarks of training share: made-up sets, networks that learn, and steps in turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio import FrameStore, write_store
from earmark.flags import thresholds
from earmark.labels import LabelSet
from earmark.losses import Moment, normalised, norms
from earmark.networks import build, examples_of, trainable
from earmark.runs import PAPER_DISCARD_PERCENTS, ModelParams, TrainParams
from earmark.scores import MappedScores
from earmark.training import Flags, Lessons, Loader, Plan, Told, Treated

N_CLIPS, N_FRAMES, N_FEATURES, N_CLASSES = 22_160, 10, 128, 527
PROBE = ModelParams(architecture="mlp_probe", n_hidden=512, dropout=0.3)
BATCH_CLIPS, BATCH_PATCHES = 256, 64


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


def make_patches(folder: Path, n_clips: int) -> FrameStore:
    random = np.random.default_rng(3)
    frames: NDArray[np.float16] = random.normal(-4, 1, (n_clips, 240, 64)).astype(np.float16)
    clips = ((f"clip{i}", own) for i, own in enumerate(frames))
    return write_store(folder, clips, patch_frames=96, patch_hop_frames=48)


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


class Took(NamedTuple):
    """CPU seconds of a step, and of its parts in which a mask has any."""

    load: float
    loss: float
    whole: float


def stepper(learner: Learner, lessons: Lessons, params: TrainParams) -> Callable[[int], Took]:
    """Return a function that takes a step, loading included, and tells what it took."""
    network, optimiser = learner.network, learner.optimiser
    loader, plan = loader_of(learner.model, learner.store, lessons, params)
    batches = list(plan.batches(0))

    def step(number: int) -> Took:
        start = time.process_time()
        loaded = loader.load(batches[number % len(batches)])
        is_loaded = time.process_time()
        logits = network(*loaded.inputs)
        is_judged = time.process_time()
        loss = loss_of(logits, loaded.targets, lessons)
        is_measured = time.process_time()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        whole = time.process_time() - start
        return Took(is_loaded - start, is_measured - is_judged, whole)

    return step


def in_turn(steps: Sequence[Callable[[int], Any]], n: int) -> list[list[Any]]:
    """Return what each of some steps took, turn by turn [step][turn], in every order as often.

    The first two turns are not told.
    """
    took: list[list[Any]] = [[] for _ in steps]
    orders = list(itertools.permutations(range(len(steps))))
    for number in range(-2, n):
        for which in orders[number % len(orders)]:
            took[which].append(steps[which](number))
    return [own[2:] for own in took]


def middle(values: Sequence[float] | NDArray[np.float64]) -> dict[str, Any]:
    """Return a median with its quartiles, and an interval of 95 % for it.

    The interval ends at two of the values, so many above and below the median as a fair coin's
    throws are apart from one half: it asks nothing of the values but that each is by itself.
    """
    away = min(0.98 / np.sqrt(len(values)), 0.5)
    wanted = [0.25, 0.5, 0.75, 0.5 - away, 0.5 + away]
    low, median, high, lowest, highest = np.quantile(values, wanted).tolist()
    return {"median": median, "quartiles": [low, high], "interval": [lowest, highest]}


def paired(first: Callable[[int], float], second: Callable[[int], float], n: int) -> dict[str, Any]:
    """Return the quartiles of first / second over pairs of steps, each leading in turn."""
    found = middle(np.divide(*in_turn((first, second), n)))
    return {"ratio": found["median"], "ratio_quartiles": found["quartiles"], "n_pairs": n}
