"""Sweeps: students at all operating points, evaluated side by side.

Two controls come along: students that ignore as many labels at random, and lwlrap after the best
prior offset (fitted on ``tune``) for every student, the baseline included. Results are long
tables, one row per student, split, labels and metric, with paired bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.artefacts import read_table, write_table
from earmark.engine import LOCAL, Engine, Task
from earmark.evaluation import (
    apply_offset,
    bootstrap,
    evaluate,
    fit_prior_offset,
    interval,
    resample_weights,
    smoothed_priors,
)
from earmark.frames import FrameStore
from earmark.metrics import mean_over_classes, resampled_lwlrap_per_class
from earmark.params import NetworkParams, SweepParams
from earmark.progress import SILENT, Meter, Progress
from earmark.scoring import Scores, readable_clips
from earmark.students import EVALUATED_SPLITS, Student, student_scores, students, train_students
from earmark.workspace import Split, Workspace

METRICS = ("d_prime_explicit", "d_prime_all", "lwlrap", "map")


@dataclass(frozen=True)
class SweepResults:
    """The tables of a sweep: one row per student, split, labels and metric; one per class."""

    results: pl.DataFrame
    per_class: pl.DataFrame


def run_sweep(
    workspace: Workspace,
    networks: Sequence[NetworkParams],
    params: SweepParams,
    scores: Scores,
    *,
    engine: Engine = LOCAL,
    progress: Progress = SILENT,
) -> SweepResults:
    """Train and score every student, evaluate them, and write the result tables."""
    wanted = students(networks, params)
    train_students(workspace, wanted, params, scores, engine=engine, progress=progress)
    results = evaluate_students(workspace, wanted, params, engine=engine, progress=progress)
    write_table(workspace.sweep_folder / "results.parquet", results.results)
    write_table(workspace.sweep_folder / "per_class.parquet", results.per_class)
    return results


def read_sweep(workspace: Workspace) -> SweepResults:
    """Read the result tables of a finished sweep."""
    tables = (
        read_table(workspace.sweep_folder / name)
        for name in ("results.parquet", "per_class.parquet")
    )
    return SweepResults(*tables)


def evaluate_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    params: SweepParams,
    *,
    engine: Engine = LOCAL,
    progress: Progress = SILENT,
) -> SweepResults:
    """Evaluate students on both splits, on the labels as given and on the truth where known."""
    tasks = []
    exams = _exams(workspace, params.n_resamples)
    for exam in exams:
        for group in _by_baseline(wanted):
            label = f"evaluate {group[0].stack_name}, {exam.split}, {exam.labels_name}"
            arguments = {"workspace": workspace, "exam": exam, "group": group}
            tasks.append(Task(label, _mark_group, arguments, len(group), "students"))
    tables = engine.map(tasks, progress)
    return SweepResults(
        pl.concat(results for results, _ in tables), pl.concat(per_class for _, per_class in tables)
    )


def _by_baseline(wanted: Sequence[Student]) -> list[list[Student]]:
    """Group students that are compared to the same baseline, which comes first."""
    groups: dict[Student, list[Student]] = {}
    for student in wanted:
        groups.setdefault(student.baseline, []).append(student)
    return list(groups.values())


@dataclass(frozen=True)
class _Exam:
    """A split and the labels that students are held against there."""

    split: Split
    labels_name: str
    n_resamples: int

    def open(self, workspace: Workspace) -> _OpenExam:
        """Gather what marking needs; every process does so for itself."""
        store = FrameStore.open(workspace.frames_folder)
        labels = workspace.truth if self.labels_name == "truth" else workspace.labels
        clips = readable_clips(workspace, store, self.split, labels).labels
        tune = readable_clips(workspace, store, "tune").labels
        train = readable_clips(workspace, store, "train").labels
        return _OpenExam(
            clips.clip_ids,
            clips.states(),
            tune.clip_ids,
            tune.states(),
            smoothed_priors(train.n_positives, train.n_clips),
            resample_weights(len(clips), self.n_resamples, seed=0),
        )


@dataclass(frozen=True)
class _OpenExam:
    """Clips and states of an exam, and what its controls and intervals need."""

    clip_ids: pl.Series
    states: NDArray[np.int8]
    tune_clip_ids: pl.Series
    tune_states: NDArray[np.int8]
    priors: NDArray[np.float64]
    weights: NDArray[np.uint16]


def _exams(workspace: Workspace, n_resamples: int) -> list[_Exam]:
    bases = ("given",) if workspace.truth is None else ("given", "truth")
    return [_Exam(split, name, n_resamples) for split in EVALUATED_SPLITS for name in bases]


def _mark_group(
    workspace: Workspace, exam: _Exam, group: Sequence[Student], meter: Meter
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Mark students with their baseline; return their rows of both result tables."""
    opened = exam.open(workspace)
    marks: dict[Student, _Marks] = {}
    for student in group:
        marks[student] = _mark(workspace, opened, student)
        meter.advance(1)
    results = [
        row
        for student in group
        for row in _result_rows(exam, student, marks[student], marks[student.baseline])
    ]
    per_class = [_per_class_rows(exam, student, marks[student]) for student in group]
    return pl.DataFrame(results), pl.concat(per_class)


@dataclass(frozen=True)
class _Marks:
    """A student's results in one exam: point values and their bootstrap resamples."""

    values: Mapping[str, float]
    resamples: Mapping[str, NDArray[np.float64]]
    per_class: pl.DataFrame


def _mark(workspace: Workspace, exam: _OpenExam, student: Student) -> _Marks:
    scores = student_scores(workspace, student)
    logits = _logits_of(scores, exam.clip_ids)
    evaluation = evaluate(exam.states, logits, scores.class_ids)
    values = {metric: evaluation.overall[metric] for metric in METRICS}
    resamples = dict(bootstrap(exam.states, logits, exam.weights))
    tau = fit_prior_offset(exam.tune_states, _logits_of(scores, exam.tune_clip_ids), exam.priors)
    calibrated = apply_offset(logits, exam.priors, tau)
    values["lwlrap_calibrated"] = evaluate(exam.states, calibrated).overall["lwlrap"]
    resamples["lwlrap_calibrated"] = mean_over_classes(
        resampled_lwlrap_per_class(exam.states, calibrated, exam.weights)
    )
    return _Marks(values, resamples, evaluation.per_class)


def _logits_of(scores: Scores, clip_ids: pl.Series) -> NDArray[np.float32]:
    places = pl.DataFrame({"clip_id": scores.clip_ids}).with_row_index("row")
    rows = pl.DataFrame({"clip_id": clip_ids}).join(
        places, on="clip_id", how="left", maintain_order="left"
    )
    return np.asarray(scores.logits[rows["row"].to_numpy()])


def _result_rows(
    exam: _Exam, student: Student, marks: _Marks, baseline: _Marks
) -> list[dict[str, str | int | float]]:
    rows = []
    for metric, value in marks.values.items():
        low, high = interval(marks.resamples[metric])
        paired = interval(marks.resamples[metric] - baseline.resamples[metric])
        rows.append(
            {
                **student.keys,
                "split": exam.split,
                "labels": exam.labels_name,
                "metric": metric,
                "value": value,
                "low": low,
                "high": high,
                "difference": value - baseline.values[metric],
                "difference_low": paired[0],
                "difference_high": paired[1],
            }
        )
    return rows


def _per_class_rows(exam: _Exam, student: Student, marks: _Marks) -> pl.DataFrame:
    keys = {**student.keys, "split": exam.split, "labels": exam.labels_name}
    return marks.per_class.select(
        *(pl.lit(value).alias(name) for name, value in keys.items()),
        "class_id",
        "n_positives",
        "n_negatives",
        "d_prime_explicit",
        "d_prime_all",
        "lwlrap",
        "ap",
    )
