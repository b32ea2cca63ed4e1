"""Students that train at once: one pass over the data, networks and scores of their own.

Students of one network, train set and seed share their initial weights and see the same examples
in the same order, so a difference between them is their strategy's doing. Probes of such a group
train in stacks of ten, whatever the strategies, and a stack reads every batch once; they stay side
by side in the same tensors, in a folder of the stack and on one card. Convolutional students train
apart. Every student is found again by its digest, alone or in whatever stack it was trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.compute import HERE, SILENT, Engine, Meter, Progress, Task
from earmark.config import NetworkParams
from earmark.datasets import Workspace, open_frames, readable_clips
from earmark.experiments.strategies import EVALUATED_SPLITS, Student, scores_folder
from earmark.experiments.student_flags import build_targets, open_train_set
from earmark.labels import Ontology
from earmark.models import StudentCard, examples_of, score_and_locate, write_card
from earmark.scores import MadeBy, ScoreFolder, write_score_folder
from earmark.storage import digest, is_current
from earmark.training import LabelTreatment, TrainingSet, train, training_task, tune_set

_PROBES_AT_ONCE = 10
"""Most probes of a stack: the paper's sweep of a seed keeps two cores busy, not one."""


def train_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    train_sets: Mapping[str, float],
    scores: ScoreFolder,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> None:
    """Train the students that are not there yet, and score the tune and eval splits with each.

    ``train_sets`` has the share of the train split behind every name; ``scores`` are the
    teacher's of the train split.
    """
    tasks = []
    for (train_set, labels, _), students in _by_train_set(wanted).items():
        store = open_frames(workspace, students[0].network.model)
        score_rows = np.concatenate(
            [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
        )
        clips, sources = open_train_set(workspace, store, train_sets[train_set], labels, scores)
        targets = build_targets(sources, [(one.strategy, one.point, one.seed) for one in students])
        treatments = dict(zip(students, targets.treatments, strict=True))
        for stack in stacks(students):
            network = stack[0].seeded_network
            validation = (
                tune_set(workspace, store, network.model) if network.train.patience else None
            )
            data = TrainingSet(store.folder, clips.store_rows, targets, validation)
            own = {student: treatments[student] for student in stack}
            tasks += _tasks(workspace, store, own, data, score_rows)
    engine.map(tasks, progress)


def stacks(wanted: Sequence[Student]) -> list[tuple[Student, ...]]:
    """Group students that train at once: probes of one network, train set, labels and seed.

    A stack has ``_PROBES_AT_ONCE`` probes at most. Convolutional students train apart.
    """
    groups: dict[str, list[Student]] = {}
    for student in wanted:
        groups.setdefault(student.stack_name, []).append(student)
    found: list[tuple[Student, ...]] = []
    for group in groups.values():
        n_at_once = _PROBES_AT_ONCE if group[0].network.model.is_probe else 1
        n_stacks = math.ceil(len(group) / n_at_once)
        edges = [len(group) * cut // n_stacks for cut in range(n_stacks + 1)]
        found += [tuple(group[start:end]) for start, end in pairwise(edges)]
    return found


def _by_train_set(
    wanted: Sequence[Student],
) -> dict[tuple[str, str, bool], list[Student]]:
    """Group the students that are trained, each once, by the clips and labels that they need.

    Probes look at other frames than convolutional networks, and so are apart.
    """
    groups: dict[tuple[str, str, bool], list[Student]] = {}
    for student in dict.fromkeys(student.trained for student in wanted):
        key = (student.train_set, student.strategy.labels, student.network.model.is_probe)
        groups.setdefault(key, []).append(student)
    return groups


@dataclass(frozen=True)
class StudentPlace:
    """A student in a stack: its treatment, where its network and scores go, and their digests."""

    name: str
    treatment: LabelTreatment
    folder: Path
    """Of the network, were it alone."""
    run_digest: str
    scores_folder: Path
    scores_digest: str

    @property
    def is_trained(self) -> bool:
        """Whether the network is there already, in a folder of its own."""
        return is_current(self.folder, self.run_digest)

    @property
    def is_scored(self) -> bool:
        """Whether the scores are there already; a network is then no longer needed."""
        return is_current(self.scores_folder, self.scores_digest)


def _tasks(
    workspace: Workspace,
    store: FrameStore,
    treatments: Mapping[Student, LabelTreatment],
    data: TrainingSet,
    score_rows: NDArray[np.int64],
) -> list[Task]:
    """Return the tasks that train and score the students of a stack that are not there yet."""
    first = next(iter(treatments))
    network, places = first.seeded_network, []
    for student, treatment in treatments.items():
        run_digest = _treated(data, [treatment]).digest(network)  # the one that it has alone
        places.append(
            StudentPlace(
                student.name,
                treatment,
                workspace.model_folder(student.name),
                run_digest,
                scores_folder(workspace, student),
                digest(run_digest, score_rows.tobytes()),
            )
        )
    left = [place for place in places if not place.is_scored]
    alone = [[place] for place in left if place.is_trained]
    together = [place for place in left if not place.is_trained]
    tasks = []
    for group in filter(None, (*alone, together)):
        folder = group[0].folder
        if len(group) > 1:
            which = digest([place.scores_digest for place in group])[:8]
            folder = folder.with_name(f"{first.stack_name}-{which}")
        tasks.append(
            training_task(
                folder.name,
                _train_and_score,
                network,
                _treated(data, [place.treatment for place in group]),
                store,
                folder=folder,
                places=group,
                score_rows=score_rows,
                ontology=workspace.ontology,
            )
        )
    return tasks


def _treated(data: TrainingSet, treatments: Sequence[LabelTreatment]) -> TrainingSet:
    return replace(data, targets=data.targets.with_treatments(treatments))


def _train_and_score(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    places: Sequence[StudentPlace],
    score_rows: NDArray[np.int64],
    ontology: Ontology,
    meter: Meter,
) -> None:
    """Train a stack, and write everyone's network, card and scores; metrics join cards later."""
    if all(one.is_scored for one in places):  # the task ran before, and its answer was lost
        return
    store = FrameStore.open(data.frames_folder)
    trained = train(network, data, folder, meter)
    write_card(folder, ontology, students=[StudentCard(name=place.name) for place in places])
    logits, best = score_and_locate(trained, examples_of(network.model, store, score_rows))
    for student, place in enumerate(places):
        write_score_folder(
            place.scores_folder,
            store.clip_ids.gather(score_rows),
            data.targets.class_ids,
            logits[student],
            best[student],
            out_of_fold=True,
            digest=place.scores_digest,
            made_by=MadeBy(folder.name, student),
        )
