"""The students of a sweep: what each one ignores, and their training.

Students of one network, train set and seed share their initial weights and see the same examples
in the same order, so a difference between them is the mask's doing. Probes of such a group train
in one stack; the convolutional networks train one by one. Every student is found again by its
digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.artefacts import is_current, write_aside
from earmark.engine import LOCAL, Engine, Task
from earmark.flagging import ignored, thresholds
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.losses import Moment, Targets, bce_entries
from earmark.params import NetworkParams, SweepParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.scoring import (
    ReadableClips,
    Scores,
    readable_clips,
    train_and_score,
    training_task,
    write_scores,
)
from earmark.splits import subset
from earmark.train import TrainingSet, examples_of, n_examples_in_all
from earmark.workspace import Split, Workspace

Kind = Literal["mask", "random"]
"""``mask``: by the teacher's scores; ``random``: as many labels, drawn at random (a control)."""

EVALUATED_SPLITS: tuple[Split, ...] = ("tune", "eval")


@dataclass(frozen=True)
class Student:
    """One point of a sweep."""

    network: NetworkParams
    train_set: str
    seed: int
    kind: Kind
    discard_percent: float

    @property
    def name(self) -> str:
        """The name of the student's folders."""
        return f"{self.stack_name}-{self.kind}{self.discard_percent:g}"

    @property
    def stack_name(self) -> str:
        """What the students have in common that may train at once."""
        return f"{self.network.name}-{self.train_set}-seed{self.seed}"

    @property
    def seeded_network(self) -> NetworkParams:
        """The network with the student's seed in place of the recipe's."""
        train = self.network.train.model_copy(update={"seed": self.seed})
        return self.network.model_copy(update={"train": train})

    @property
    def keys(self) -> dict[str, str | int | float]:
        """The columns that identify the student in the result tables."""
        return {
            "student": self.network.name,
            "train_set": self.train_set,
            "seed": self.seed,
            "kind": self.kind,
            "discard_percent": float(self.discard_percent),
        }

    @property
    def baseline(self) -> Student:
        """The student that ignores nothing, to which this one is compared."""
        return Student(self.network, self.train_set, self.seed, "mask", 0)


@dataclass(frozen=True)
class Mask:
    """Which labels one student ignores: those scored above a threshold per class (equation 2)."""

    scores_path: Path
    scores_digest: str
    thresholds: NDArray[np.float32]

    @property
    def digest(self) -> str:
        """Identifies scores and thresholds."""
        return digest(self.scores_digest, self.thresholds.tobytes())


@dataclass(frozen=True)
class Masked:
    """Labels of which every student ignores its own part.

    Masks are derived batch by batch from the scores on disk; no label set is ever copied.
    """

    labels: LabelSet
    score_rows: NDArray[np.int64]
    """The row of each clip in the score matrices."""
    masks: tuple[Mask, ...]

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def n_students(self) -> int:
        """One student for each mask."""
        return len(self.masks)

    @property
    def digest(self) -> str:
        """Identifies labels and masks."""
        return digest(self.labels.digest, [mask.digest for mask in self.masks])

    @cached_property
    def _logits(self) -> dict[Path, NDArray[np.float32]]:
        return {mask.scores_path: np.load(mask.scores_path, mmap_mode="r") for mask in self.masks}

    def targets(self, rows: NDArray[np.int64]) -> Targets:
        """Return targets, and weights that are 0 where a student ignores an implicit label."""
        states = self.labels.states(rows)
        logits = {path: all_[self.score_rows[rows]] for path, all_ in self._logits.items()}
        weights = np.empty((self.n_students, *states.shape), np.float32)
        for weight, mask in zip(weights, self.masks, strict=True):
            weight[:] = ~ignored(states, logits[mask.scores_path], mask.thresholds)
        given = torch.from_numpy(states)
        return Targets((given > 0).float().unsqueeze(0), torch.from_numpy(weights), given == 0)

    def entries(self, logits: Tensor, targets: Targets, moment: Moment) -> Tensor:
        """Return binary cross-entropy, which equation (2)'s mask multiplies."""
        return bce_entries(logits, targets, moment)


def students(networks: Sequence[NetworkParams], params: SweepParams) -> list[Student]:
    """List the students of a sweep, baselines first within each network, train set and seed."""
    points: list[tuple[Kind, float]] = [("mask", q) for q in params.discard_percents]
    points += [("random", q) for q in params.random_control_percents]
    return [
        Student(network, train_set, seed, kind, percent)
        for network in networks
        for train_set in params.train_sets
        for seed in params.seeds
        for kind, percent in points
    ]


def train_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    params: SweepParams,
    scores: Scores,
    *,
    engine: Engine = LOCAL,
    progress: Progress = SILENT,
) -> None:
    """Train the students that are not there yet, and score the tune and eval splits with each."""
    store = FrameStore.open(workspace.frames_folder)
    score_rows = np.concatenate(
        [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
    )
    sets = {
        train_set: _TrainSet.make(workspace, store, share, params, scores)
        for train_set, share in params.train_sets.items()
    }
    tasks = [
        _stack_task(workspace, stack, sets[stack[0].train_set].of(stack, store), score_rows, store)
        for stack in stacks(wanted)
    ]
    engine.map(tasks, progress)


def stacks(wanted: Sequence[Student]) -> list[tuple[Student, ...]]:
    """Group students that train at once: probes of one network, train set and seed."""
    groups: dict[object, list[Student]] = {}
    for student in wanted:
        stack = (student.network.name, student.train_set, student.seed)
        groups.setdefault(stack if student.network.model.is_probe else student, []).append(student)
    return [tuple(group) for group in groups.values()]


def student_scores(workspace: Workspace, student: Student) -> Scores:
    """Open a student's scores of the tune and eval splits."""
    return Scores.open(_scores_folder(workspace, student))


@dataclass(frozen=True)
class _TrainSet:
    """A share of the train split with its masks at all points, by the teacher and at random."""

    clips: ReadableClips
    score_rows: NDArray[np.int64]
    masks: Mapping[tuple[Kind, float], Mask]

    @classmethod
    def make(
        cls,
        workspace: Workspace,
        store: FrameStore,
        share: float,
        params: SweepParams,
        scores: Scores,
    ) -> _TrainSet:
        clips = readable_clips(workspace, store, "train")
        rows = np.flatnonzero(subset(clips.labels, clips.sources, share))
        clips = clips.select(rows)
        teacher = (scores.folder / "logits.npy", scores.digest)
        masks = _masks(clips.labels, rows, "mask", params.discard_percents, *teacher)
        if params.random_control_percents:
            points, control = params.random_control_percents, _random_scores(workspace, scores)
            masks |= _masks(clips.labels, rows, "random", points, *control)
        return cls(clips, rows, masks)

    def of(self, stack: Sequence[Student], store: FrameStore) -> TrainingSet:
        """Return the training set of some students."""
        masks = tuple(self.masks[student.kind, student.discard_percent] for student in stack)
        masked = Masked(self.clips.labels, self.score_rows, masks)
        return TrainingSet(store.folder, self.clips.store_rows, masked)


def _masks(
    labels: LabelSet,
    rows: NDArray[np.int64],
    kind: Kind,
    percents: Sequence[float],
    scores_path: Path,
    scores_digest: str,
) -> dict[tuple[Kind, float], Mask]:
    logits = np.load(scores_path, mmap_mode="r")
    chosen = logits if len(rows) == len(logits) else logits[rows]
    found = thresholds(labels, chosen, percents)
    return {
        (kind, percent): Mask(scores_path, scores_digest, values)
        for percent, values in zip(percents, found.values, strict=True)
    }


def _random_scores(workspace: Workspace, scores: Scores) -> tuple[Path, str]:
    """Write scores drawn at random, once per shape: the random control's teacher."""
    path = workspace.sweep_folder / "random_scores.npy"
    shape = scores.logits.shape
    if not path.exists() or np.load(path, mmap_mode="r").shape != shape:
        with write_aside(path) as aside, aside.open("wb") as file:
            np.save(file, np.random.default_rng(0).random(shape, np.float32))
    return path, digest("random scores", list(shape))


def _scores_folder(workspace: Workspace, student: Student) -> Path:
    return workspace.sweep_folder / "scores" / student.name


def _stack_task(
    workspace: Workspace,
    stack: Sequence[Student],
    data: TrainingSet,
    score_rows: NDArray[np.int64],
    store: FrameStore,
) -> Task:
    network, first = stack[0].seeded_network, stack[0]
    name = first.name if len(stack) == 1 else f"{first.stack_name}-{len(stack)}-students"
    return training_task(
        name,
        _train_and_write,
        network,
        data,
        store,
        model_folder=workspace.model_folder(name),
        scores_folders=[_scores_folder(workspace, student) for student in stack],
        score_rows=score_rows,
    )


def _train_and_write(
    network: NetworkParams,
    data: TrainingSet,
    model_folder: Path,
    scores_folders: Sequence[Path],
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> None:
    """Train students, score the held-out clips, and write the scores unless they are there."""
    store = FrameStore.open(data.frames_folder)
    run_digest = digest(data.digest(network), score_rows.tobytes())
    if all(is_current(folder, run_digest) for folder in scores_folders):
        examples = examples_of(network.model, store, data.store_rows)
        meter.advance(n_examples_in_all(examples.per_clip, network.train), "found")
        return
    logits, best = train_and_score(network, data, model_folder, score_rows, meter)
    clip_ids, class_ids = store.clip_ids.gather(score_rows), data.supervision.class_ids
    for folder, own in zip(scores_folders, logits, strict=True):
        write_scores(folder, clip_ids, class_ids, own, best, out_of_fold=True, digest=run_digest)
