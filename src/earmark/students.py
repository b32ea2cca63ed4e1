"""The students of a sweep or comparison: what each one is told, and their training.

Students of one network, train set and seed share their initial weights and see the same examples
in the same order, so a difference between them is their strategy's doing. Probes of such a group
train in one stack, whatever their strategies; the convolutional networks train one by one. Every
student is found again by its digest, alone or in whatever stack it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.artefacts import is_current, write_aside
from earmark.engine import LOCAL, Engine, Task
from earmark.errors import EarmarkError
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.model_card import write_card
from earmark.named_labels import read_labels
from earmark.params import NetworkParams, SweepParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.scoring import (
    ReadableClips,
    Scores,
    readable_clips,
    train_and_score,
    training_task,
    tune_set,
    write_scores,
)
from earmark.splits import subset
from earmark.strategies import BASELINE, Strategy, TrainingLabels, parse_strategy
from earmark.supervision import TrainingSet
from earmark.treatments import Flags, FlagSources, ScoresFile, Told, Treated, find_flags
from earmark.workspace import Split, Workspace

EVALUATED_SPLITS: tuple[Split, ...] = ("tune", "eval")


@dataclass(frozen=True)
class Student:
    """A network told about its labels by one strategy at one operating point.

    ``round`` counts how often students have become teachers before (see
    :mod:`earmark.iterating`).
    """

    network: NetworkParams
    train_set: str
    seed: int
    strategy: Strategy = BASELINE
    point: float = 0.0
    round: int = 0

    @property
    def name(self) -> str:
        """The name of the folder with the scores of the trained network."""
        told = self.trained
        after = f"-round{told.round}" if told.round else ""
        return f"{told.stack_name}-{told.strategy.name.replace('/', '-')}{told.point:g}{after}"

    @property
    def stack_name(self) -> str:
        """What the students have in common that may train at once."""
        labels = "" if self.strategy.labels == "given" else f"-{self.strategy.labels}"
        return f"{self.network.name}-{self.train_set}-seed{self.seed}{labels}"

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
            "kind": self.strategy.name,
            "discard_percent": float(self.point),
        }

    @property
    def trained(self) -> Student:
        """The student whose weights this one has: logit adjustment only changes its scores."""
        strategy = self.strategy.trained
        if strategy == BASELINE and self.point == 0:
            return self.baseline
        return replace(self, strategy=strategy)

    @property
    def loss_point(self) -> float | None:
        """The operating point of the loss; a strategy that flags has given it to its policy."""
        strategy = self.strategy
        has_own = strategy.loss != "bce" and strategy.policy is None
        return self.point if has_own else None

    @property
    def baseline(self) -> Student:
        """The student that takes labels as they are, to which this one is compared."""
        return Student(self.network, self.train_set, self.seed)


def students(networks: Sequence[NetworkParams], params: SweepParams) -> list[Student]:
    """List the students of a sweep, baselines first within each network, train set and seed."""
    given = [("mask", params.discard_percents), ("random", params.random_control_percents)]
    if params.labels == "corrected":
        given += [("corrected", ()), ("corrected+mask", params.discard_percents)]
    strategies = [parse_strategy(name, percents) for name, percents in given]
    points = [(strategy, point) for strategy in strategies for point in strategy.points]
    return combine(networks, params.train_sets, params.seeds, [(BASELINE, 0.0), *points])


def combine(
    networks: Sequence[NetworkParams],
    train_sets: Mapping[str, float],
    seeds: Sequence[int],
    points: Sequence[tuple[Strategy, float]],
) -> list[Student]:
    """List a student for every network, train set, seed and point, in that order."""
    return [
        Student(network, train_set, seed, strategy, float(point))
        for network in networks
        for train_set in train_sets
        for seed in seeds
        for strategy, point in points
    ]


def train_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    train_sets: Mapping[str, float],
    scores: Scores,
    *,
    engine: Engine = LOCAL,
    progress: Progress = SILENT,
) -> None:
    """Train the students that are not there yet, and score the tune and eval splits with each.

    ``train_sets`` has the share of the train split behind every name; ``scores`` are the
    teacher's of the train split.
    """
    store = FrameStore.open(workspace.frames_folder)
    score_rows = np.concatenate(
        [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
    )
    tasks = []
    for (train_set, labels), own in _by_train_set(wanted).items():
        data = TrainSet.open(workspace, store, train_sets[train_set], labels, scores)
        told = data.tell(own)
        for stack in stacks(own):
            treated = data.treated.of([told[student] for student in stack])
            network = stack[0].network
            exam = tune_set(workspace, store, network.model) if network.train.patience else None
            given = TrainingSet(store.folder, data.clips.store_rows, treated, exam)
            tasks += _stack_tasks(workspace, stack, given, score_rows, store)
    engine.map(tasks, progress)
    folders = {task.arguments["model_folder"] for task in tasks}
    for folder in folders:
        if (folder / "meta.json").exists():  # scores that are there need no network any more
            write_card(folder, workspace.ontology)


def stacks(wanted: Sequence[Student]) -> list[tuple[Student, ...]]:
    """Group students that train at once: probes of one network, train set, labels and seed."""
    groups: dict[object, list[Student]] = {}
    for student in wanted:
        is_probe = student.network.model.is_probe
        groups.setdefault(student.stack_name if is_probe else student, []).append(student)
    # Students of one loss stand together, so that it is computed for all of them at once.
    return [
        tuple(sorted(group, key=lambda one: (one.strategy.loss, one.loss_point or 0)))
        for group in groups.values()
    ]


def student_scores(workspace: Workspace, student: Student) -> Scores:
    """Open the scores of the tune and eval splits by a student's network."""
    return Scores.open(_scores_folder(workspace, student))


@dataclass(frozen=True)
class TrainSet:
    """A share of the train split, and what flags on it can be made from."""

    clips: ReadableClips
    sources: FlagSources
    treated: Treated
    """The labels, told to nobody yet."""
    random_folder: Path
    """Where the random control keeps its scores."""

    @classmethod
    def open(
        cls,
        workspace: Workspace,
        store: FrameStore,
        share: float,
        labels: TrainingLabels,
        scores: Scores,
    ) -> TrainSet:
        """Choose the clips of a share; ``scores`` are the teacher's of the whole train split."""
        given = readable_clips(workspace, store, "train")
        _check_clips(given, scores)
        rows = np.flatnonzero(subset(given.labels, given.sources, share))

        def chosen(every: LabelSet) -> ReadableClips:
            return readable_clips(workspace, store, "train", every).select(rows)

        named = read_labels(workspace, labels)
        clips = chosen(named.labels)
        truth = None if workspace.truth is None else chosen(workspace.truth).labels
        rulings = None if named.rulings is None else chosen(named.rulings).labels
        teacher = ScoresFile(scores.folder / "logits.npy", scores.digest)
        sources = FlagSources(clips.labels, rows, teacher, workspace.ontology, truth)
        treated = Treated(clips.labels, rows, (), rulings)
        return cls(clips, sources, treated, workspace.sweep_folder / "random")

    def tell(self, wanted: Sequence[Student]) -> dict[Student, Told]:
        """Find what every student is told; one pass over the scores serves all percentages."""
        groups: dict[tuple[str | None, int], list[Student]] = {}
        for student in wanted:
            policy = None if student == student.baseline else student.strategy.policy
            seed = student.seed if policy == "random" else 0
            groups.setdefault((policy, seed), []).append(student)
        told = {}
        for (policy, seed), own in groups.items():
            flags = self._flags(policy, seed, sorted({student.point for student in own}))
            for student in own:
                strategy, found = student.strategy, flags.get(student.point)
                treatment = strategy.treatment or "mask"
                told[student] = Told(found, treatment, strategy.loss, student.loss_point)
        return told

    def _flags(self, policy: str | None, seed: int, points: Sequence[float]) -> dict[float, Flags]:
        if policy is None:
            return {}
        sources = self.sources
        if policy == "random":
            sources = replace(sources, teacher=self._random_scores(seed))
        return find_flags(sources, policy, points)

    def _random_scores(self, seed: int) -> ScoresFile:
        """Return scores drawn at random for the classes that the teacher scored, written once."""
        teacher = self.sources.teacher.open()
        is_unscored = np.isnan(teacher[0])
        drawn_digest = digest("random scores", seed, list(teacher.shape), is_unscored.tolist())
        path = self.random_folder / f"seed{seed}-{drawn_digest}.npy"
        if not path.exists():
            drawn = np.random.default_rng(seed).random(teacher.shape, np.float32)
            drawn[:, is_unscored] = np.nan
            with write_aside(path) as aside, aside.open("wb") as file:
                np.save(file, drawn)
        return ScoresFile(path, drawn_digest)


def _by_train_set(
    wanted: Sequence[Student],
) -> dict[tuple[str, TrainingLabels], list[Student]]:
    """Group the students that are trained, each once, by the clips and labels that they need."""
    groups: dict[tuple[str, TrainingLabels], list[Student]] = {}
    for student in dict.fromkeys(student.trained for student in wanted):
        groups.setdefault((student.train_set, student.strategy.labels), []).append(student)
    return groups


def _check_clips(given: ReadableClips, scores: Scores) -> None:
    if not given.labels.clip_ids.equals(scores.clip_ids):
        raise EarmarkError(
            f"{scores.folder}: the teacher scored {len(scores.clip_ids)} clips, and not the "
            f"{len(given.labels)} of the train split in their order; run `earmark score` again"
        )


def _scores_folder(workspace: Workspace, student: Student) -> Path:
    return workspace.sweep_folder / "scores" / student.name


def _stack_tasks(
    workspace: Workspace,
    stack: Sequence[Student],
    data: TrainingSet,
    score_rows: NDArray[np.int64],
    store: FrameStore,
) -> list[Task]:
    """Return the task that trains those students of a stack that are not there yet, if any."""
    network, treated = stack[0].seeded_network, data.supervision
    assert isinstance(treated, Treated)
    left = []
    for student, told in zip(stack, treated.told, strict=True):
        alone = replace(data, supervision=treated.of([told]))
        found = digest(alone.digest(network), score_rows.tobytes())
        folder = _scores_folder(workspace, student)
        if not is_current(folder, found):
            left.append((told, folder, found))
    if not left:
        return []
    told_left, folders, digests = zip(*left, strict=True)
    name = stack[0].name if len(stack) == 1 else f"{stack[0].stack_name}-{digest(digests)[:8]}"
    task = training_task(
        name,
        _train_and_write,
        network,
        replace(data, supervision=treated.of(told_left)),
        store,
        model_folder=workspace.model_folder(name),
        scores_folders=folders,
        digests=digests,
        score_rows=score_rows,
    )
    return [task]


def _train_and_write(
    network: NetworkParams,
    data: TrainingSet,
    model_folder: Path,
    scores_folders: Sequence[Path],
    digests: Sequence[str],
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> None:
    """Train students, score the held-out clips, and write everyone's scores."""
    store = FrameStore.open(data.frames_folder)
    logits, best = train_and_score(network, data, model_folder, score_rows, meter)
    clip_ids, class_ids = store.clip_ids.gather(score_rows), data.supervision.class_ids
    for folder, own, found in zip(scores_folders, logits, digests, strict=True):
        write_scores(folder, clip_ids, class_ids, own, best, out_of_fold=True, digest=found)
