"""Students at all operating points: networks x train sets x seeds x discard percents.

Students of one network, train set and seed share their initial weights and see the same patches in
the same order, so a difference between them is the mask's doing. Two controls come along: students
that ignore as many labels at random, and lwlrap after the best prior offset (fitted on ``tune``)
for every student, the baseline included. Results are long tables; every student is found again by
its digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.artefacts import is_current, read_table, write_aside, write_table
from earmark.engine import Task, run_tasks
from earmark.evaluation import (
    apply_offset,
    bootstrap,
    evaluate,
    fit_prior_offset,
    interval,
    resample_weights,
    smoothed_priors,
)
from earmark.flagging import Thresholds, ignored, thresholds
from earmark.frames import FrameStore
from earmark.labels import LabelSet
from earmark.metrics import mean_over_classes, resampled_lwlrap_per_class
from earmark.params import NetworkParams, SweepParams, digest
from earmark.progress import SILENT, Meter, Progress
from earmark.scoring import ReadableClips, Scores, readable_clips, train_and_score, write_scores
from earmark.train import TrainingSet, n_patches_in_all
from earmark.workspace import Split, Workspace, nested_subset

Kind = Literal["mask", "random"]
METRICS = ("d_prime_explicit", "d_prime_all", "lwlrap", "map")
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
        point = f"{self.kind}{self.discard_percent:g}"
        return f"{self.network.name}-{self.train_set}-seed{self.seed}-{point}"

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
class Masked:
    """Labels of which those scored above a threshold per class are ignored: equation (2).

    The mask is derived batch by batch from the scores on disk; no label set is ever copied.
    """

    labels: LabelSet
    scores_path: Path
    score_rows: NDArray[np.int64]
    """The row of each clip in the score matrix."""
    thresholds: NDArray[np.float32]
    scores_digest: str

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The classes, in the order of the columns."""
        return self.labels.class_ids

    @property
    def digest(self) -> str:
        """Identifies labels, scores and thresholds."""
        return digest(self.labels.digest, self.scores_digest, self.thresholds.tobytes())

    @cached_property
    def _logits(self) -> NDArray[np.float32]:
        return np.load(self.scores_path, mmap_mode="r")  # type: ignore[no-any-return]

    def targets(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return targets, and weights that are 0 where an implicit label is ignored."""
        states = self.labels.states(rows)
        is_ignored = ignored(states, self._logits[self.score_rows[rows]], self.thresholds)
        return (states > 0).astype(np.float32), (~is_ignored).astype(np.float32)


@dataclass(frozen=True)
class SweepResults:
    """The tables of a sweep: one row per student, split, labels and metric; one per class."""

    results: pl.DataFrame
    per_class: pl.DataFrame


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


def run_sweep(
    workspace: Workspace,
    networks: Sequence[NetworkParams],
    params: SweepParams,
    scores: Scores,
    *,
    n_workers: int | None = None,
    progress: Progress = SILENT,
) -> SweepResults:
    """Train and score every student, evaluate them, and write the result tables."""
    wanted = students(networks, params)
    train_students(workspace, wanted, params, scores, n_workers=n_workers, progress=progress)
    results = evaluate_students(workspace, wanted, params, progress)
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


def train_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    params: SweepParams,
    scores: Scores,
    *,
    n_workers: int | None = None,
    progress: Progress = SILENT,
) -> None:
    """Train the students that are not there yet, and score the tune and eval splits with each."""
    store = FrameStore.open(workspace.frames_folder)
    score_rows = np.concatenate(
        [readable_clips(workspace, store, split).store_rows for split in EVALUATED_SPLITS]
    )
    sets = {
        (train_set, kind): _MaskedSet.make(workspace, store, share, kind, params, scores)
        for train_set, share in params.train_sets.items()
        for kind in {student.kind for student in wanted}
    }
    tasks = []
    for student in wanted:
        data = sets[student.train_set, student.kind].at(student.discard_percent, store)
        tasks.append(_student_task(workspace, student, data, score_rows, store))
    run_tasks(tasks, n_workers, progress)


def student_scores(workspace: Workspace, student: Student) -> Scores:
    """Open a student's scores of the tune and eval splits."""
    return Scores.open(_scores_folder(workspace, student))


def evaluate_students(
    workspace: Workspace,
    wanted: Sequence[Student],
    params: SweepParams,
    progress: Progress = SILENT,
) -> SweepResults:
    """Evaluate students on both splits, on the labels as given and on the truth where known."""
    store = FrameStore.open(workspace.frames_folder)
    bases = {"given": workspace.labels}
    if workspace.truth is not None:
        bases["truth"] = workspace.truth
    exams = [
        _Exam.make(workspace, store, split, name, labels, params.n_resamples)
        for split in EVALUATED_SPLITS
        for name, labels in bases.items()
    ]
    meter = progress.job("evaluate", len(wanted) * len(exams), "results")
    results, per_class = [], []
    for exam in exams:
        marks: dict[Student, _Marks] = {}
        for student in wanted:
            marks[student] = _mark(workspace, exam, student)
            results += _result_rows(exam, student, marks[student], marks[student.baseline])
            per_class.append(_per_class_rows(exam, student, marks[student]))
            meter.advance(1)
    return SweepResults(pl.DataFrame(results), pl.concat(per_class))


@dataclass(frozen=True)
class _MaskedSet:
    """A train set with its thresholds at all points, by the teacher's scores or at random."""

    clips: ReadableClips
    score_rows: NDArray[np.int64]
    scores_path: Path
    scores_digest: str
    thresholds: Thresholds

    @classmethod
    def make(
        cls,
        workspace: Workspace,
        store: FrameStore,
        share: float,
        kind: Kind,
        params: SweepParams,
        scores: Scores,
    ) -> _MaskedSet:
        clips = readable_clips(workspace, store, "train")
        rows = np.flatnonzero(nested_subset(pl.Series(clips.sources), share))
        path, scores_digest = scores.folder / "logits.npy", scores.digest
        if kind == "random":
            path, scores_digest = _random_scores(workspace, scores)
        logits = np.load(path, mmap_mode="r")
        clips = clips.select(rows)
        points = params.discard_percents if kind == "mask" else params.random_control_percents
        chosen = logits if len(rows) == len(logits) else logits[rows]
        return cls(clips, rows, path, scores_digest, thresholds(clips.labels, chosen, points))

    def at(self, discard_percent: float, store: FrameStore) -> TrainingSet:
        """Return the training set of one operating point."""
        point = self.thresholds.discard_percents.index(discard_percent)
        masked = Masked(
            self.clips.labels,
            self.scores_path,
            self.score_rows,
            self.thresholds.values[point],
            self.scores_digest,
        )
        return TrainingSet(store.folder, self.clips.store_rows, masked)


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


def _student_task(
    workspace: Workspace,
    student: Student,
    data: TrainingSet,
    score_rows: NDArray[np.int64],
    store: FrameStore,
) -> Task:
    arguments = {
        "network": student.seeded_network,
        "data": data,
        "model_folder": workspace.model_folder(student.name),
        "scores_folder": _scores_folder(workspace, student),
        "score_rows": score_rows,
    }
    n_patches = n_patches_in_all(store.n_patches[data.store_rows], student.network.train)
    return Task(student.name, _train_and_write, arguments, n_patches, "patches")


def _train_and_write(
    network: NetworkParams,
    data: TrainingSet,
    model_folder: Path,
    scores_folder: Path,
    score_rows: NDArray[np.int64],
    meter: Meter,
) -> None:
    """Train a student, score the held-out clips, and write the scores unless they are there."""
    store = FrameStore.open(data.frames_folder)
    run_digest = digest(data.digest(network), score_rows.tobytes())
    if is_current(scores_folder, run_digest):
        meter.advance(n_patches_in_all(store.n_patches[data.store_rows], network.train), "found")
        return
    logits, best = train_and_score(network, data, model_folder, score_rows, meter)
    clip_ids = store.clip_ids.gather(score_rows)
    class_ids = data.supervision.class_ids
    write_scores(
        scores_folder, clip_ids, class_ids, logits, best, out_of_fold=True, digest=run_digest
    )


@dataclass(frozen=True)
class _Exam:
    """The clips and labels that students are evaluated on, and what the intervals need."""

    split: Split
    labels_name: str
    clip_ids: pl.Series
    states: NDArray[np.int8]
    tune_states: NDArray[np.int8]
    tune_clip_ids: pl.Series
    priors: NDArray[np.float64]
    weights: NDArray[np.uint16]

    @classmethod
    def make(
        cls,
        workspace: Workspace,
        store: FrameStore,
        split: Split,
        labels_name: str,
        labels: LabelSet,
        n_resamples: int,
    ) -> _Exam:
        clips = readable_clips(workspace, store, split, labels).labels
        tune = readable_clips(workspace, store, "tune").labels
        train = readable_clips(workspace, store, "train").labels
        priors = smoothed_priors(train.n_positives, train.n_clips)
        weights = resample_weights(len(clips), n_resamples, seed=0)
        return cls(
            split,
            labels_name,
            clips.clip_ids,
            clips.states(),
            tune.states(),
            tune.clip_ids,
            priors,
            weights,
        )


@dataclass(frozen=True)
class _Marks:
    """A student's results in one exam: point values and their bootstrap resamples."""

    values: Mapping[str, float]
    resamples: Mapping[str, NDArray[np.float64]]
    per_class: pl.DataFrame


def _mark(workspace: Workspace, exam: _Exam, student: Student) -> _Marks:
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
