from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from earmark.compute import LocalEngine
from earmark.errors import EarmarkError
from earmark.experiments import read_sweep
from earmark.pipeline import run
from earmark.scores import ScoreMatrix
from kept_processes import KeptProcesses
from small_recipe import SMALL


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A finished run, and the first number of the scores in each pass over some."""
    root, passed, scores_map = tmp_path_factory.mktemp("run"), [], ScoreMatrix.map

    def counted(self: ScoreMatrix, function: Callable[..., Any]) -> list[Any]:
        passed.append(float(self.array[0, 0]))
        return scores_map(self, function)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ScoreMatrix, "map", counted)
        monkeypatch.setattr("earmark.experiments.evaluation._STUDENTS_PER_TASK", 1)
        run(SMALL, root, engine=LocalEngine(1))
    return root, passed


@pytest.fixture(scope="module")
def finished(watched: tuple[Path, list[float]]) -> Path:
    return watched[0]


def test_a_run_leaves_every_artefact_of_the_layout(finished: Path) -> None:
    expected = [
        "clips.parquet", "classes.parquet", "labels.parquet", "truth.parquet",
        "quarantine.parquet", "frames/meta.json", "frames/index.parquet",
        "scores/teacher/logits.npy", "flags/thresholds.parquet", "flags/flags.parquet",
        "sweep/results.parquet", "sweep/per_class.parquet", "report/index.html",
        "report/tables/performance.csv", "report/tables/performance.tex",
    ]  # fmt: skip
    assert [name for name in expected if not (finished / name).exists()] == []


def test_thresholds_cover_all_18_points(finished: Path) -> None:
    table = pl.read_parquet(finished / "flags" / "thresholds.parquet")
    assert table["discard_percent"].n_unique() == 18
    assert table.columns == [
        "discard_percent", "class_id", "n_implicit", "n_ignored", "threshold",
    ]  # fmt: skip


def test_a_second_run_changes_nothing(finished: Path) -> None:
    def contents() -> dict[str, int]:
        names = ("frames/meta.json", "scores/teacher/logits.npy", "models")
        files = [p for name in names for p in ((finished / name).rglob("*") or [finished / name])]
        return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}

    before = contents()
    run(SMALL, finished, engine=LocalEngine(1))
    assert contents() == before


def test_the_same_recipe_gives_the_same_flags_and_numbers(
    finished: Path, tmp_path: Path, two_processes: KeptProcesses
) -> None:
    outcome = run(SMALL, tmp_path, engine=two_processes)
    flags = [pl.read_parquet(root / "flags" / "flags.parquet") for root in (finished, tmp_path)]
    assert flags[0].equals(flags[1])
    results = pl.read_parquet(finished / "sweep" / "results.parquet")
    assert read_sweep(outcome.workspace).results.equals(results)
    weights = [(root / "models").rglob("*.safetensors") for root in (finished, tmp_path)]
    contents = [{path.parent.name: path.read_bytes() for path in paths} for paths in weights]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 2 + 3  # folds of the teacher, students
    pages = [(root / "report" / "index.html").read_bytes() for root in (finished, tmp_path)]
    assert pages[0] == pages[1]


def test_a_recipe_without_scenes_needs_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="not a workspace"):
        run(SMALL.model_copy(update={"scenes": None}), tmp_path)


def test_a_few_passes_over_scores_of_the_train_split_and_of_the_whole_serve_the_whole_run(
    watched: tuple[Path, list[float]],
) -> None:
    root, passed = watched
    logits = np.load(root / "scores" / "teacher" / "logits.npy")
    # Two of the train split, and of the whole, which begins with it, one more for fingerprints.
    assert passed.count(float(logits[0, 0])) == 2 + 3
    held_out = np.load(root / "scores" / "teacher-held-out" / "logits.npy")
    # The first clip is of the tune split. Each of three tasks finds the labels that it leaves out.
    assert passed.count(float(held_out[0, 0])) == 3 * 2
