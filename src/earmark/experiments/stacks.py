"""Students that train at once: one pass over the data, networks and scores of their own.

Students of one network, train set and seed share their initial weights and see the same examples
in the same order, so a difference between them is their strategy's doing. Such a group trains in
stacks, whatever the strategies, and a stack reads every batch once: probes in stacks of ten,
convolutional networks in as many as memory and idle workers ask for. Every student is found again
by its digest, alone or in whatever stack it was trained.

A stack trains in a folder of its own. Probes stay there, side by side in the same tensors and on
one card. Convolutional students move to the folders that they would have had alone, with the very
same weights, history and digest, so what a workspace holds does not tell how they were stacked;
the stack's folder keeps TensorBoard's events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.compute import (
    HERE,
    SILENT,
    Engine,
    LocalEngine,
    Meter,
    Progress,
    Task,
)
from earmark.config import (
    NetworkParams,
    SweepParams,
)
from earmark.datasets import Workspace, open_frames, readable_clips
from earmark.experiments.strategies import EVALUATED_SPLITS, Student, scores_folder
from earmark.experiments.student_flags import build_targets, open_train_set
from earmark.labels import Ontology
from earmark.models import (
    AnyNetwork,
    Stack,
    StudentCard,
    cost,
    examples_of,
    forget_network,
    parts_of,
    score_and_locate,
    write_card,
    write_network,
)
from earmark.scores import MadeBy, ScoreFolder, write_score_folder
from earmark.storage import (
    digest,
    is_current,
)
from earmark.training import (
    LabelTreatment,
    TrainingSet,
    forget_history,
    split_history,
    train,
    training_task,
    tune_set,
    write_history,
)

_STACK_GB = SweepParams().stack_gb
"""Memory for the convolutional students of one stack, unless a recipe says otherwise."""

_PROBES_AT_ONCE = 10
"""Most probes of a stack: the paper's sweep of a seed keeps two cores busy, not one."""


def train_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    train_sets: Mapping[str, float],
    scores: ScoreFolder,
    *,
    stack_gb: float = _STACK_GB,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> None:
    """Train the students that are not there yet, and score the tune and eval splits with each.

    ``train_sets`` has the share of the train split behind every name; ``scores`` are the
    teacher's of the train split. For ``stack_gb`` see :class:`earmark.config.SweepParams`.
    """
    tasks = []
    by_train_set = _by_train_set(wanted)
    n_cuts = _n_cuts(by_train_set.values(), engine)
    for (train_set, labels, _), students in by_train_set.items():
        store = open_frames(workspace, students[0].network.model)
        score_rows = np.concatenate(
            [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
        )
        clips, sources = open_train_set(workspace, store, train_sets[train_set], labels, scores)
        targets = build_targets(sources, [(one.strategy, one.point, one.seed) for one in students])
        treatments = dict(zip(students, targets.treatments, strict=True))
        for stack in stacks(students, sources.labels.n_classes, stack_gb=stack_gb, n_cuts=n_cuts):
            network = stack[0].seeded_network
            validation = (
                tune_set(workspace, store, network.model) if network.train.patience else None
            )
            data = TrainingSet(store.folder, clips.store_rows, targets, validation)
            own = {student: treatments[student] for student in stack}
            tasks += _tasks(workspace, store, own, data, score_rows)
    engine.map(tasks, progress)


def stacks(
    wanted: Sequence[Student], n_classes: int, *, stack_gb: float = _STACK_GB, n_cuts: int = 1
) -> list[tuple[Student, ...]]:
    """Group students that train at once: of one network, train set, labels and seed.

    A group of convolutional networks is cut into ``n_cuts`` stacks, or as many more as it takes to
    keep each within ``stack_gb``; one of probes into stacks of ``_PROBES_AT_ONCE`` at most.
    """
    groups: dict[str, list[Student]] = {}
    for student in wanted:
        groups.setdefault(student.stack_name, []).append(student)
    found: list[tuple[Student, ...]] = []
    for group in groups.values():
        # Students of one loss stand together, so that it is computed for all of them at once.
        own = sorted(
            group, key=lambda one: (one.strategy.loss, one.strategy.loss_point(one.point) or 0)
        )
        network = own[0].network
        if network.model.is_probe:
            n_stacks = math.ceil(len(own) / _PROBES_AT_ONCE)
        else:
            n_fitting = n_within(stack_gb, network, n_classes)
            n_stacks = min(max(n_cuts, math.ceil(len(own) / n_fitting)), len(own))
        edges = [len(own) * cut // n_stacks for cut in range(n_stacks + 1)]
        found += [tuple(own[start:end]) for start, end in pairwise(edges)]
    return found


def n_within(stack_gb: float, network: NetworkParams, n_classes: int) -> int:
    """Return how many convolutional students fit into so much memory side by side, at least one.

    Each keeps weights, gradients and Adam's two moments (16 bytes a parameter), one copy more where
    weights are averaged, and two where the best ones are kept. Activations are not counted: only
    one student's are ever in memory.
    """
    train = network.train
    n_copies = 4 + bool(train.average_share) + 2 * bool(train.patience)
    n_bytes = 4 * n_copies * cost(network.model, n_classes).n_parameters
    return max(int(stack_gb * 1e9 / n_bytes), 1)


def _n_cuts(groups: Iterable[Sequence[Student]], engine: Engine) -> int:
    """Return how many stacks each group of convolutional students is cut into at least.

    On this machine enough to leave no worker idle; a GPU does no more in several processes than in
    one. A cluster may grow to as many machines as there are tasks, so there all train apart.
    """
    everyone = [student for group in groups for student in group]
    names = {one.stack_name for one in everyone if not one.network.model.is_probe}
    if not isinstance(engine, LocalEngine):
        return max(len(everyone), 1)
    return 1 if torch.cuda.is_available() else math.ceil(engine.n_workers / max(len(names), 1))


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
    is_apart = isinstance(trained, Stack)
    if is_apart:
        _write_apart(trained, network, data, folder, places, store, ontology)
    else:
        write_card(folder, ontology, students=[StudentCard(name=place.name) for place in places])
    examples = examples_of(network.model, store, score_rows)
    of_clips = (store.clip_ids.gather(score_rows), data.targets.class_ids)
    for own, part in parts_of(trained):
        scored = zip(places[own], *score_and_locate(part, examples), strict=True)
        for student, (one, its, best) in enumerate(scored):
            write_score_folder(
                one.scores_folder,
                *of_clips,
                its,
                best,
                out_of_fold=True,
                digest=one.scores_digest,
                made_by=MadeBy(one.name) if is_apart else MadeBy(folder.name, student),
            )


def _write_apart(
    trained: AnyNetwork,
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    places: Sequence[StudentPlace],
    store: FrameStore,
    ontology: Ontology,
) -> None:
    """Move every student of a stack into its own folder, as if it had trained alone there."""
    class_ids, histories = data.targets.class_ids, split_history(folder)
    for one, (_, part), history in zip(places, parts_of(trained), histories, strict=True):
        write_history(one.folder, history)
        write_network(one.folder, network, part, class_ids, store, one.run_digest)
        write_card(one.folder, ontology, students=[StudentCard(name=one.name)])
    forget_network(folder)
    forget_history(folder)
