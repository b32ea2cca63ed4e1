"""The evaluation of students: every metric, with resamples and the calibration controls.

Evaluation sets have missing labels too, so students are evaluated on several bases: the labels as
``given``; flagged labels ``ignored``, by the teacher's scores of clips that it was not trained on;
labels ``corrected``, on splits that raters judged; and the ``truth`` of a simulated dataset. The
results are also written to the students' model cards. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import HERE, SILENT, Engine, Meter, Progress, Task
from earmark.config import CompareParams, CrossFitParams, SweepParams
from earmark.datasets import (
    CORRECTED,
    GIVEN,
    Split,
    Workspace,
    corrected_names,
    measured_frames,
    read_labels,
    read_relabelled,
    readable_clips,
)
from earmark.experiments.strategies import EVALUATED_SPLITS, Student, student_scores
from earmark.flags import thresholds
from earmark.labels import LabelSet, rows_of
from earmark.losses import ignored
from earmark.metrics import (
    BOOTSTRAP_METRICS,
    Draws,
    apply_offset,
    bootstrap,
    evaluate,
    fit_class_offsets,
    fit_prior_offset,
    lwlrap,
    mean_over_classes,
    resample_weights,
    resampled_lwlrap_per_class,
    smoothed_priors,
    with_seeds,
)
from earmark.models import StudentCard, named_metrics, read_card, write_card
from earmark.scores import ScoreFolder, logits_of
from earmark.training import has_networks

METRICS = (*BOOTSTRAP_METRICS, "lwlrap_calibrated", "lwlrap_fitted")
"""What students are measured by.

``lwlrap_calibrated`` gives every student its best prior offset z_c - tau * log(prior_c) on
``tune``, ``lwlrap_fitted`` a fitted offset for each class (see
:mod:`earmark.metrics.prior_offsets`).
"""

_STUDENTS_PER_TASK = 3
"""Students that one task measures: enough to be worth opening the labels for, few enough to share
out evenly."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Basis:
    """A split and the labels that students are held against there.

    With ``labels`` at ``ignored``, ``teacher`` names the scores of the evaluation splits by which
    the top ``ignored_percent`` of each class's implicit labels are left out. With ``labels`` at
    ``corrected``, ``corrected_name`` is the name of the corrected set.
    """

    split: Split
    labels: str
    n_resamples: int
    teacher: str = ""
    ignored_percent: float = 0.0
    corrected_name: str = CORRECTED

    def open(self, workspace: Workspace) -> _OpenBasis:
        """Gather what measuring needs; every process does so for itself."""
        store = measured_frames(workspace)
        names = {"ignored": GIVEN, "corrected": self.corrected_name}
        named = read_labels(workspace, names.get(self.labels, self.labels))
        labels = readable_clips(workspace, store, self.split, named.labels).labels
        tune = readable_clips(workspace, store, "tune").labels
        train = readable_clips(workspace, store, "train").labels
        return _OpenBasis(
            labels,
            self._left_out(workspace, labels, named.rulings),
            tune,
            smoothed_priors(train.n_positives, train.n_clips),
            resample_weights(len(labels), self.n_resamples, seed=0),
        )

    def _left_out(
        self, workspace: Workspace, labels: LabelSet, rulings: LabelSet | None
    ) -> NDArray[np.bool_] | None:
        """Return flagged labels, or those that raters could not settle; None where all count."""
        if rulings is not None:
            return rulings.states(rows_of(labels.clip_ids, rulings.clip_ids).to_numpy()) > 0
        if self.labels != "ignored":
            return None
        scores = ScoreFolder.open(workspace.scores_folder(self.teacher))
        logits = logits_of(scores, labels.clip_ids)
        edges = thresholds(labels, logits, [self.ignored_percent]).values[0]
        return ignored(labels.states(), logits, edges)


@dataclass(frozen=True)
class _OpenBasis:
    """Labels, what is left out of them [clip, class], and what controls and intervals need."""

    labels: LabelSet
    left_out: NDArray[np.bool_] | None
    tune: LabelSet
    priors: Floats
    weights: NDArray[np.uint8]


@dataclass(frozen=True)
class StudentResults:
    """A student's numbers by one basis: overall with resamples, and :class:`Evaluation`'s table."""

    draws: Mapping[str, Draws]
    per_class: pl.DataFrame


@dataclass(frozen=True)
class Evaluations:
    """The results of students on several bases."""

    results: Mapping[tuple[Basis, Student], StudentResults]

    @property
    def bases(self) -> list[Basis]:
        """All bases, in the order in which they were asked for."""
        return list(dict.fromkeys(basis for basis, _ in self.results))

    def value(self, basis: Basis, student: Student, metric: str) -> Draws:
        """Return one student's number."""
        return self.results[basis, student].draws[metric]

    def gain(self, basis: Basis, student: Student, metric: str) -> Draws:
        """Return a student's paired difference from its baseline."""
        return self.value(basis, student, metric) - self.value(basis, student.baseline, metric)

    def values(self, basis: Basis, runs: Sequence[Student], metric: str) -> Draws:
        """Return the mean over runs that differ by their seed alone."""
        return with_seeds([self.value(basis, run, metric) for run in runs])

    def gains(self, basis: Basis, runs: Sequence[Student], metric: str) -> Draws:
        """Return the mean difference from each run's baseline."""
        return with_seeds([self.gain(basis, run, metric) for run in runs])


def find_bases(
    workspace: Workspace,
    params: SweepParams | CompareParams,
    scores: ScoreFolder,
    cross_fit: CrossFitParams,
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> list[Basis]:
    """List what students can be held against on both evaluated splits; make the scores for it.

    ``scores`` are the teacher's of the train split, made with ``cross_fit``. Its networks score the
    evaluated splits too, so that suspect labels can be left out there; a teacher from elsewhere,
    which left scores and no networks, cannot, and ``ignored`` is not among the bases. ``corrected``
    is among them on a split whose labels raters judged; elsewhere they are the labels as given.
    """
    folds = cross_fit.model_copy(update={"in_sample": not scores.out_of_fold})
    teacher, percent = "", params.ignored_percent
    if percent > 0 and has_networks(workspace, scores.folder.name, folds):
        from earmark.training import score_held_out  # torch, which measuring does without

        held_out = score_held_out(workspace, scores, folds, engine=engine, progress=progress)
        teacher = held_out.folder.name
    swept = params.labels if isinstance(params, SweepParams) else GIVEN
    corrected_name = CORRECTED if swept == GIVEN else swept
    judged, bases = _judged_splits(workspace, corrected_name), []
    for split in EVALUATED_SPLITS:
        bases.append(Basis(split, "given", params.n_resamples))
        if teacher:
            bases.append(Basis(split, "ignored", params.n_resamples, teacher, percent))
        if split in judged:
            name = corrected_name
            bases.append(Basis(split, "corrected", params.n_resamples, corrected_name=name))
        if workspace.truth is not None:
            bases.append(Basis(split, "truth", params.n_resamples))
    return bases


def _judged_splits(workspace: Workspace, corrected_name: str) -> set[str]:
    """Return the splits of the clips whose labels judgements have changed or settled."""
    if corrected_name not in corrected_names(workspace):
        return set()
    judged = read_relabelled(workspace, corrected_name).changes.select("clip_id")
    return set(workspace.clips.join(judged, on="clip_id", how="semi")["split"])


def evaluate_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    against: Sequence[Basis],
    *,
    engine: Engine = HERE,
    progress: Progress = SILENT,
) -> Evaluations:
    """Measure every student, and the baselines of all of them, by every basis."""
    students = list(dict.fromkeys(one for each in wanted for one in (each.baseline, each)))
    starts = range(0, len(students), _STUDENTS_PER_TASK)
    tasks, places = [], []
    for basis in against:
        for start in starts:
            group = students[start : start + _STUDENTS_PER_TASK]
            label = f"evaluate {group[0].name} ..., {basis.split}, {basis.labels}"
            arguments = {"workspace": workspace, "basis": basis, "group": group}
            tasks.append(Task(label, _evaluate_group, arguments, len(group), "students"))
            places += [(basis, student) for student in group]
    found = [results for group in engine.map(tasks, progress) for results in group]
    return Evaluations(dict(zip(places, found, strict=True)))


def write_student_cards(workspace: Workspace, evaluations: Evaluations) -> None:
    """Write the results of students, by the labels as given, into the cards of their networks.

    Metrics are named after their split (``eval_lwlrap``). A student of whom only the scores are
    left has no card; one that shares its network with another, and differs by an offset to the
    scores, has none of its own.
    """
    found: dict[Path, dict[int, StudentCard]] = {}
    for student in dict.fromkeys(student for _, student in evaluations.results):
        made_by = student_scores(workspace, student).made_by
        if made_by is not None and student == student.trained:
            own = found.setdefault(workspace.model_folder(made_by.network), {})
            own[made_by.student] = StudentCard(
                name=student.name, metrics=_card_metrics(evaluations, student)
            )
    for folder, measured in found.items():
        if (folder / "card.json").exists():
            known = read_card(folder).students
            students = tuple(measured.get(place, one) for place, one in enumerate(known))
            if students != known:
                write_card(folder, workspace.ontology, students=students)


def _evaluate_group(
    workspace: Workspace, basis: Basis, group: Sequence[Student], meter: Meter
) -> list[StudentResults]:
    opened = basis.open(workspace)
    results = []
    for student in group:
        results.append(_evaluate_student(workspace, opened, student))
        meter.advance(1)
    return results


def _evaluate_student(workspace: Workspace, basis: _OpenBasis, student: Student) -> StudentResults:
    scores = student_scores(workspace, student)
    tune, logits = (logits_of(scores, one.clip_ids) for one in (basis.tune, basis.labels))
    class_ids = scores.class_ids
    del scores  # left open, all of the file would count as this process's memory
    states = basis.labels.states()
    by_prior = _prior_offset(basis, tune)
    if student.strategy.adjusts:
        tune, logits = by_prior(tune), by_prior(logits)
        by_prior = _prior_offset(basis, tune)
    evaluation = evaluate(states, logits, class_ids, basis.left_out)
    resamples = bootstrap(states, logits, basis.weights, basis.left_out)
    draws = {name: Draws(evaluation.overall[name], resamples[name]) for name in BOOTSTRAP_METRICS}
    fitted = fit_class_offsets(basis.tune.states(), tune, basis.priors).astype(np.float32)
    draws["lwlrap_calibrated"] = _lwlrap(basis, states, by_prior(logits))
    draws["lwlrap_fitted"] = _lwlrap(basis, states, logits + fitted)
    return StudentResults(draws, evaluation.per_class)


def _prior_offset(
    basis: _OpenBasis, tune: NDArray[np.float32]
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return the function that gives logits the best prior offset on ``tune``."""
    tau = fit_prior_offset(basis.tune.states(), tune, basis.priors)
    return lambda logits: apply_offset(logits, basis.priors, tau)


def _lwlrap(basis: _OpenBasis, states: NDArray[np.int8], logits: NDArray[np.float32]) -> Draws:
    if basis.left_out is not None:
        logits = np.where(basis.left_out, -np.inf, logits)
    resamples = mean_over_classes(resampled_lwlrap_per_class(states, logits, basis.weights))
    return Draws(lwlrap(states, logits), resamples)


def _card_metrics(evaluations: Evaluations, student: Student) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for basis in evaluations.bases:
        if basis.labels == "given" and (basis, student) in evaluations.results:
            draws = evaluations.results[basis, student].draws
            overall = {name: own.value for name, own in draws.items()}
            metrics |= named_metrics(basis.split, overall)
    return metrics
