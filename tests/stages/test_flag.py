from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from earmark import stages
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.runs import LocalEngine
from scenes import scored_workspace

PAIR = ["clip_id", "class_id"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return scored_workspace(tmp_path / "w")[0]


def exported(path: Path) -> pl.DataFrame:
    return pl.read_csv(path).filter(state="ignored").select(PAIR).sort(PAIR)


def test_what_was_flagged_last_is_what_is_exported(workspace: Workspace, tmp_path: Path) -> None:
    flagged = stages.write_flags(workspace, policy="precision", target=0.2)
    path = tmp_path / "labels.csv"
    told = stages.export_labels(workspace, path)
    assert len(flagged.flags) == told.n_ignored > 0
    assert exported(path).equals(flagged.flags.select(PAIR).sort(PAIR))
    stages.export_labels(workspace, path, discard_percent=20)
    assert not exported(path).equals(flagged.flags.select(PAIR).sort(PAIR))


def test_without_flags_a_per_cent_of_each_class_is_exported(
    workspace: Workspace, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    stages.export_labels(workspace, first)
    stages.export_labels(workspace, second, discard_percent=1.0)
    assert first.read_bytes() == second.read_bytes()


def test_flags_of_labels_that_have_changed_are_not_exported(
    workspace: Workspace, tmp_path: Path
) -> None:
    stages.write_flags(workspace, discard_percent=5)
    rows = workspace.labels.rows()
    rows.head(len(rows) - 1).write_parquet(workspace.root / "labels.parquet")
    with pytest.raises(EarmarkError, match="run `earmark flag` again"):
        stages.export_labels(workspace.root, tmp_path / "x.csv")


def test_passes_as_tasks_of_an_engine_find_the_same_flags(workspace: Workspace) -> None:
    here = stages.write_flags(workspace, discard_percent=5)
    thresholds = (workspace.flags_folder / "thresholds.parquet").read_bytes()
    there = stages.write_flags(workspace, discard_percent=5, engine=LocalEngine(2))
    assert there.flags.equals(here.flags)
    assert (workspace.flags_folder / "thresholds.parquet").read_bytes() == thresholds


def test_an_unknown_policy_is_refused(workspace: Workspace) -> None:
    with pytest.raises(EarmarkError, match="percentile or precision, got 'best'"):
        stages.write_flags(workspace, policy="best")
