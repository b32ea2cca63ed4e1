from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.engine import LocalEngine
from earmark.params import CrossFitParams, ModelParams, NetworkParams, SweepParams, TrainParams
from earmark.scoring import Scores, cross_fit
from earmark.students import Student, student_scores, students
from earmark.sweep import read_sweep, run_sweep
from earmark.workspace import Workspace
from scenes import CLASS_IDS, band_workspace

TINY = NetworkParams(
    name="tiny",
    model=ModelParams(width=0.125),
    train=TrainParams(epochs=2, batch_patches=16, learning_rate=3e-3),
)
TEACHER = TINY.model_copy(update={"name": "teacher"})
SWEEP = SweepParams(
    discard_percents=(0, 5, 20),
    random_control_percents=(20,),
    train_sets={"small": 0.5, "large": 1.0},
    n_resamples=100,
)


def scored_workspace(root: Path) -> tuple[Workspace, Scores]:
    workspace = band_workspace(root)
    return workspace, cross_fit(
        workspace, TEACHER, CrossFitParams(n_folds=2), engine=LocalEngine(1)
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace, scores = scored_workspace(tmp_path_factory.mktemp("sweep"))
    run_sweep(workspace, [TINY], SWEEP, scores, engine=LocalEngine(1))
    return workspace


def test_every_student_has_every_metric_on_both_splits_and_label_sets(swept: Workspace) -> None:
    results = read_sweep(swept).results
    n_students = 2 * (3 + 1)  # train sets x (points + random control)
    assert len(students([TINY], SWEEP)) == n_students
    assert len(results) == n_students * 2 * 2 * 5
    assert results.select("split", "labels").unique().height == 4
    is_within = (pl.col("low") <= pl.col("value") + 0.1) & (pl.col("high") >= pl.col("value") - 0.1)
    assert results.filter(pl.col("value").is_finite() & ~is_within).is_empty()


def test_a_baseline_does_not_differ_from_itself(swept: Workspace) -> None:
    baselines = read_sweep(swept).results.filter(discard_percent=0.0)
    for column in ("difference", "difference_low", "difference_high"):
        assert baselines[column].abs().max() == 0


def test_masking_changes_the_student(swept: Workspace) -> None:
    base, masked = (
        student_scores(swept, Student(TINY, "large", 0, "mask", percent)).logits
        for percent in (0, 20)
    )
    assert not np.array_equal(base, masked)


def test_per_class_results_name_every_class(swept: Workspace) -> None:
    per_class = read_sweep(swept).per_class
    assert set(per_class["class_id"].unique()) == set(CLASS_IDS)
    one = per_class.filter(
        train_set="large", kind="mask", discard_percent=0.0, split="eval", labels="truth"
    )
    assert len(one) == len(CLASS_IDS)


def test_the_same_sweep_gives_the_same_numbers(swept: Workspace, tmp_path: Path) -> None:
    workspace, scores = scored_workspace(tmp_path)
    again = run_sweep(workspace, [TINY], SWEEP, scores, engine=LocalEngine(2))
    assert again.results.equals(read_sweep(swept).results, null_equal=True)


def test_finished_students_are_found_again(swept: Workspace) -> None:
    scores = Scores.open(swept.scores_folder("teacher"))
    path = student_scores(swept, students([TINY], SWEEP)[0]).folder / "logits.npy"
    written = path.stat().st_mtime_ns
    run_sweep(swept, [TINY], SWEEP, scores, engine=LocalEngine(1))
    assert path.stat().st_mtime_ns == written
