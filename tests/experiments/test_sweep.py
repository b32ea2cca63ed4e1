from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.config import SweepParams
from earmark.datasets import Workspace
from earmark.errors import EarmarkError
from earmark.experiments import read_sweep, run_sweep, students_of_sweep
from earmark.scores import ScoreFolder
from kept_processes import KeptProcesses
from scenes import CLASS_IDS, FOLDS, ONE, PROBE, scored_workspace

SWEEP = SweepParams(
    discard_percents=(0, 20),
    random_control_percents=(20,),
    train_sets={"small": 0.5, "large": 1.0},
    seeds=(0, 1),
    n_resamples=100,
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace, scores = scored_workspace(tmp_path_factory.mktemp("sweep"))
    run_sweep(workspace, [PROBE], SWEEP, scores, FOLDS, engine=ONE)
    return workspace


def test_every_student_has_every_metric_on_both_splits_and_label_sets(swept: Workspace) -> None:
    results = read_sweep(swept).results
    n_students = 2 * 2 * (2 + 1)  # train sets x seeds x (points + random control)
    assert len(students_of_sweep([PROBE], SWEEP)) == n_students
    assert len(results) == n_students * 2 * 3 * 6
    assert set(results["labels"]) == {"given", "ignored", "truth"}
    assert results.select("split", "labels").unique().height == 6
    measured = results.filter(pl.col("value").is_finite())
    assert (measured["low"] <= measured["high"]).all()
    # Small samples flatter d' and AP, so a value may lie above its interval, but not far off it.
    assert (measured["value"] - measured["high"]).max() < 0.5


def test_a_summary_joins_the_seeds(swept: Workspace) -> None:
    tables = read_sweep(swept)
    keys = ["student", "train_set", "kind", "discard_percent", "split", "labels", "metric"]
    means = tables.results.group_by(keys).agg(pl.col("value", "difference").mean())
    joined = tables.summary.join(means, on=keys, suffix="_mean")
    assert len(joined) == len(tables.summary) == len(tables.results) // 2
    assert set(tables.summary["n_seeds"]) == {2}
    for name in ("value", "difference"):
        given = joined.filter(pl.col(name).is_finite())
        assert np.allclose(given[name], given[f"{name}_mean"])


def test_a_baseline_does_not_differ_from_itself(swept: Workspace) -> None:
    for table in (read_sweep(swept).results, read_sweep(swept).summary):
        baselines = table.filter(discard_percent=0.0)
        for column in ("difference", "difference_low", "difference_high"):
            assert baselines[column].abs().max() == 0


def test_per_class_results_name_every_class(swept: Workspace) -> None:
    per_class = read_sweep(swept).per_class
    assert set(per_class["class_id"].unique()) == set(CLASS_IDS)
    one = per_class.filter(
        train_set="large", kind="mask", discard_percent=0.0, split="eval", labels="truth", seed=0
    )
    assert len(one) == len(CLASS_IDS)


def test_the_same_sweep_gives_the_same_numbers(
    swept: Workspace, tmp_path: Path, two_processes: KeptProcesses
) -> None:
    workspace, scores = scored_workspace(tmp_path)
    again = run_sweep(workspace, [PROBE], SWEEP, scores, FOLDS, engine=two_processes)
    for name, table in vars(read_sweep(swept)).items():
        assert getattr(again, name).equals(table, null_equal=True)


def test_tables_of_a_killed_sweep_are_not_taken_for_one(
    swept: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = ScoreFolder.open(swept.scores_folder("teacher"))

    def killed(path: Path, table: pl.DataFrame) -> None:
        if path.name == "summary.parquet":
            raise KeyboardInterrupt
        table.write_parquet(path)

    with monkeypatch.context() as patch:
        patch.setattr("earmark.storage.artefacts.write_table", killed)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(swept, [PROBE], SWEEP, scores, FOLDS, engine=ONE)
    with pytest.raises(EarmarkError, match="not finished"):
        read_sweep(swept)
    run_sweep(swept, [PROBE], SWEEP, scores, FOLDS, engine=ONE)
    assert len(read_sweep(swept).summary)
