"""Students that train at once: one pass over the data, networks and scores of their own.

A stack trains in a folder of its own. Probes stay there, side by side in the same tensors and on
one card. Convolutional students move to the folders that they would have had alone, with the very
same weights, history and digest, so what a workspace holds does not tell how they were stacked;
the stack's folder keeps TensorBoard's events.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio import FrameStore
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.labels import Ontology
from earmark.networks import (
    AnyNetwork,
    Stack,
    StudentCard,
    examples_of,
    forget_network,
    parts_of,
    read_card,
    read_meta,
    score_and_locate,
    write_card,
    write_network,
)
from earmark.runs import (
    Meter,
    NetworkParams,
    Task,
    digest,
    is_current,
    is_finished,
    read_json,
    read_seal,
    write_json,
)
from earmark.scores import MadeBy, write_score_folder
from earmark.training import (
    Told,
    TrainingSet,
    Treated,
    forget_history,
    split_history,
    train,
    training_task,
    write_history,
)

_STACK = "stack.json"
"""Which scores a stack is to make, as long as it has not made all of them."""


@dataclass(frozen=True)
class StudentPlace:
    """A student in a stack: what it is told, where its network and scores go, and their digests."""

    name: str
    told: Told
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


@dataclass(frozen=True)
class StackSet:
    """What the students of a stack have in common."""

    name: str
    network: NetworkParams
    data: TrainingSet
    """Its lessons are :class:`Treated`, told to anybody."""
    score_rows: NDArray[np.int64]
    """The clips that every student scores, as rows of the frame store."""

    @property
    def treated(self) -> Treated:
        """The labels that the students are told about."""
        assert isinstance(self.data.lessons, Treated)
        return self.data.lessons

    def place(self, name: str, told: Told, folder: Path, scores_folder: Path) -> StudentPlace:
        """Return the place of a student; its digests are those that it would have alone."""
        run_digest = replace(self.data, lessons=self.treated.of([told])).digest(self.network)
        scores_digest = digest(run_digest, self.score_rows.tobytes())
        return StudentPlace(name, told, folder, run_digest, scores_folder, scores_digest)

    def tasks(self, places: Sequence[StudentPlace], store: FrameStore) -> list[Task]:
        """Return the tasks that train and score the students that are not there yet."""
        left = [one for one in places if not one.is_scored]
        alone = [[one] for one in left if one.is_trained]
        together = [one for one in left if not one.is_trained]
        return [self._task(group, store) for group in (*alone, together) if group]

    def _task(self, group: Sequence[StudentPlace], store: FrameStore) -> Task:
        folder = group[0].folder
        if len(group) > 1:
            which = digest([one.scores_digest for one in group])[:8]
            folder = folder.with_name(f"{self.name}-{which}")
        told = replace(self.data, lessons=self.treated.of([one.told for one in group]))
        arguments = {"folder": folder, "places": group, "score_rows": self.score_rows}
        return training_task(folder.name, _train_and_score, self.network, told, store, **arguments)


def write_cards(task: Task, ontology: Ontology) -> None:
    """Write the cards of the networks that a task has trained; metrics come later."""
    folder, places = task.arguments["folder"], task.arguments["places"]
    students = [StudentCard(name=one.name) for one in places]
    if is_finished(folder):
        write_card(folder, ontology, students=students)
        return
    for one, student in zip(places, students, strict=True):
        if is_finished(one.folder):
            write_card(one.folder, ontology, students=[student])


def mend_cards(workspace: Workspace) -> None:
    """Write the cards of students that were killed between their scores and their cards."""
    for network, known in _makers(workspace).items():
        folder = workspace.model_folder(network)
        if is_finished(folder) and not _has_card(folder):
            places = range(read_meta(folder).n_students)
            students = [StudentCard(name=known.get(place, f"student {place}")) for place in places]
            write_card(folder, workspace.ontology, students=students)


def _makers(workspace: Workspace) -> dict[str, dict[int, str]]:
    """Return the networks behind students' scores: the name of each student by its place."""
    names: dict[str, dict[int, str]] = {}
    for folder in sorted(workspace.student_scores_folder("any").parent.glob("*")):
        made_by = read_seal(folder).get("made_by") if is_finished(folder) else None
        if made_by is not None:
            names.setdefault(made_by["network"], {})[made_by["student"]] = folder.name
    return names


def _has_card(folder: Path) -> bool:
    try:
        return bool(read_card(folder).digest)
    except EarmarkError:  # none, or of the network that was here before
        return False


def sweep_stacks(workspace: Workspace) -> int:
    """Remove what killed stacks left whose students are all there; return how many they were."""
    n_swept, makers = 0, _makers(workspace)
    for note in sorted(workspace.models_folder.glob(f"*/{_STACK}")):
        told = read_json(note)
        is_done = all(
            is_current(workspace.student_scores_folder(name), own) for name, own in told.items()
        )
        if is_done and note.parent.name in makers:
            note.unlink()  # finished but for this
        elif is_done:
            _forget_stack(note.parent)
            n_swept += 1
    return n_swept


def _forget_stack(folder: Path) -> None:
    """Remove an unfinished training, or a network whose students are kept elsewhere."""
    forget_network(folder)
    forget_history(folder)
    for name in ("checkpoint.pt", "card.json", "README.md", _STACK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()  # unless a tracker's files are in it


def _train_and_score(
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    places: Sequence[StudentPlace],
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> None:
    """Train a stack, and write everyone's network and scores."""
    if all(one.is_scored for one in places):  # the task ran before, and its answer was lost
        return
    store = FrameStore.open(data.frames_folder)
    if len(places) > 1:
        told = {one.scores_folder.name: one.scores_digest for one in places}
        write_json(folder / _STACK, told)
    trained = train(network, data, folder, meter)
    is_apart = isinstance(trained, Stack)
    if is_apart:
        _write_apart(trained, network, data, folder, places, store)
    examples = examples_of(network.model, store, score_rows)
    of_clips = (store.clip_ids.gather(score_rows), data.lessons.class_ids)
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
    (folder / _STACK).unlink(missing_ok=True)


def _write_apart(
    trained: AnyNetwork,
    network: NetworkParams,
    data: TrainingSet,
    folder: Path,
    places: Sequence[StudentPlace],
    store: FrameStore,
) -> None:
    """Move every student of a stack into its own folder, as if it had trained alone there."""
    class_ids, histories = data.lessons.class_ids, split_history(folder)
    for one, (_, part), history in zip(places, parts_of(trained), histories, strict=True):
        write_history(one.folder, history)
        write_network(one.folder, network, part, class_ids, store, one.run_digest)
    forget_network(folder)
    forget_history(folder)
