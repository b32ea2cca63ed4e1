"""Shares of the train split, and the students that are trained on them.

Students of one network, train set and seed share their initial weights and see the same examples
in the same order, so a difference between them is their strategy's doing. Such a group trains in
stacks, whatever the strategies, and a stack reads every batch once: probes in stacks of ten,
convolutional networks in as many as memory and idle workers ask for. Every student is found again
by its digest, alone or in whatever stack it was trained.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from earmark.audio import FrameStore
from earmark.datasets import (
    ReadableClips,
    Workspace,
    open_frames,
    read_labels,
    readable_clips,
)
from earmark.errors import EarmarkError, EarmarkWarning, counted, quoted
from earmark.experiments.stacks import StackSet, StudentPlace, mend_cards, sweep_stacks, write_cards
from earmark.experiments.students import EVALUATED_SPLITS, Student, scores_folder
from earmark.experiments.telling import Wish, draw_scores, tell_all
from earmark.labels import LabelSet, subset
from earmark.networks import cost
from earmark.runs import (
    HERE,
    SILENT,
    Engine,
    LocalEngine,
    NetworkParams,
    Progress,
    SweepParams,
    digest,
    file_sha256,
    write_array,
)
from earmark.scores import MappedScores, ScoreFolder, TeacherScores, check_aligned
from earmark.training import (
    FlagSources,
    Told,
    TrainingSet,
    Treated,
    tune_set,
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
    teacher's of the train split. For ``stack_gb`` see :class:`earmark.runs.parameters.SweepParams`.
    """
    tasks = []
    by_train_set = _by_train_set(wanted)
    n_cuts = _n_cuts(by_train_set.values(), engine)
    for (train_set, labels, _), own in by_train_set.items():
        store = open_frames(workspace, own[0].network.model)
        score_rows = np.concatenate(
            [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
        )
        data = TrainSet.open(workspace, store, train_sets[train_set], labels, scores)
        told = data.tell(own)
        n_classes = data.clips.labels.n_classes
        for stack in stacks(own, n_classes, stack_gb=stack_gb, n_cuts=n_cuts):
            treated = data.treated.of([told[student] for student in stack])
            network = stack[0].network
            exam = tune_set(workspace, store, network.model) if network.train.patience else None
            given = TrainingSet(store.folder, data.clips.store_rows, treated, exam)
            shared = StackSet(stack[0].stack_name, stack[0].seeded_network, given, score_rows)
            places = [_place(workspace, shared, one, told[one]) for one in stack]
            tasks += shared.tasks(places, store)
    engine.map(tasks, progress)
    for task in tasks:
        write_cards(task, workspace.ontology)
    mend_cards(workspace)
    if n_swept := sweep_stacks(workspace):
        removed = counted(n_swept, "unfinished training")
        warnings.warn(f"{removed} of a killed run removed", EarmarkWarning, stacklevel=2)


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
        own = sorted(group, key=lambda one: (one.strategy.loss, one.loss_point or 0))
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


@dataclass(frozen=True)
class TrainSet:
    """A share of the train split, and what flags on it can be made from."""

    workspace: Workspace
    clips: ReadableClips
    flag_sources: FlagSources
    treated: Treated
    """The labels, told to nobody yet."""

    @classmethod
    def open(
        cls,
        workspace: Workspace,
        store: FrameStore,
        share: float,
        labels: str,
        scores: ScoreFolder,
    ) -> TrainSet:
        """Choose the clips of a share; ``scores`` are the teacher's of the whole train split.

        ``labels`` are named as :func:`read_labels` has it.
        """
        given = readable_clips(workspace, store, "train")
        check_aligned(scores, given.labels)
        rows = np.flatnonzero(subset(given.labels, given.sources, share))

        def chosen(every: LabelSet) -> ReadableClips:
            return readable_clips(workspace, store, "train", every).select(rows)

        named = read_labels(workspace, labels)
        clips = chosen(named.labels)
        truth = None if workspace.truth is None else chosen(workspace.truth).labels
        rulings = None if named.rulings is None else chosen(named.rulings).labels
        teacher = MappedScores(scores.folder / "logits.npy", scores.digest)
        sources = FlagSources(
            clips.labels, rows, teacher, workspace.ontology, truth, workspace.flags_folder
        )
        treated = Treated(clips.labels, rows, (), rulings, clips.recordings)
        return cls(workspace, clips, sources, treated)

    def tell(self, wanted: Sequence[Student]) -> dict[Student, Told]:
        """Find what every student is told; one pass over the scores serves all percentages."""
        wishes = {one: Wish(one.strategy, one.point, one.seed) for one in wanted}
        told = tell_all(self, list(wishes.values()))
        return {student: told[wish] for student, wish in wishes.items()}

    @property
    def teacher(self) -> TeacherScores:
        """The teacher's scores of the whole train split."""
        return self.flag_sources.teacher

    def sources(self, teacher: TeacherScores) -> FlagSources:
        """Return all that flags of this train set are made from, by such scores."""
        return replace(self.flag_sources, teacher=teacher)

    @cached_property
    def chances(self) -> MappedScores:
        """The learnt chances, in the place of the teacher's scores."""
        path, expected = self.workspace.chances_path, self.teacher.open().shape
        command = f"`earmark flag {quoted(self.workspace.root)} --chances` learns them"
        if not path.exists():
            raise EarmarkError(f"{path}: there are no learnt chances of missing labels; {command}")
        found = MappedScores(path, file_sha256(path))
        if found.open().shape != expected:
            raise EarmarkError(
                f"{path}: learnt chances of {found.open().shape} clips and classes, and not of the "
                f"{expected} that the teacher scored; {command} anew"
            )
        return found

    def random_scores(self, seed: int) -> MappedScores:
        """Return scores drawn at random for the classes that the teacher scored, written once."""
        teacher = self.teacher.open()
        is_unscored = np.isnan(teacher[0])
        drawn_digest = digest("random scores", seed, list(teacher.shape), is_unscored.tolist())
        path = self.workspace.random_scores_path(f"seed{seed}-{drawn_digest}")
        if not path.exists():
            drawn = draw_scores(teacher, seed)
            write_array(path, drawn)
        return MappedScores(path, drawn_digest)


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


def _place(workspace: Workspace, stack: StackSet, student: Student, told: Told) -> StudentPlace:
    name = student.name
    folders = (workspace.model_folder(name), scores_folder(workspace, student))
    return stack.place(name, told, *folders)
