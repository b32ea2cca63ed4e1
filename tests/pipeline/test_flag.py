from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from earmark import pipeline
from earmark.config import Recipe
from earmark.datasets import Workspace, import_table
from earmark.errors import EarmarkError, EarmarkWarning
from earmark.flags import Thresholds, flag, stored_thresholds, thresholds
from earmark.scores import ScoreFolder, scored_labels
from kept_processes import KeptProcesses
from scenes import FOLDS, ONE, TEACHER, band_workspace, scored_workspace

PAIR = ["clip_id", "class_id"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return scored_workspace(tmp_path / "w")[0]


def exported(path: Path) -> pl.DataFrame:
    return pl.read_csv(path).filter(state="ignored").select(PAIR).sort(PAIR)


def test_what_was_flagged_last_is_what_is_exported(workspace: Workspace, tmp_path: Path) -> None:
    flagged = pipeline.write_flags(workspace, policy="precision", target=0.2)
    path = tmp_path / "labels.csv"
    told = pipeline.export_labels(workspace, path)
    assert len(flagged.flags) == told.n_ignored > 0
    assert exported(path).equals(flagged.flags.select(PAIR).sort(PAIR))
    pipeline.export_labels(workspace, path, discard_percent=20)
    assert not exported(path).equals(flagged.flags.select(PAIR).sort(PAIR))


def test_without_flags_a_per_cent_of_each_class_is_exported(
    workspace: Workspace, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    pipeline.export_labels(workspace, first)
    pipeline.export_labels(workspace, second, discard_percent=1.0)
    assert first.read_bytes() == second.read_bytes()


def test_flags_of_labels_that_have_changed_are_not_exported(
    workspace: Workspace, tmp_path: Path
) -> None:
    pipeline.write_flags(workspace, discard_percent=5)
    rows = workspace.labels.rows()
    rows.head(len(rows) - 1).write_parquet(workspace.root / "labels.parquet")
    refused = pytest.raises(EarmarkError, match=r"dataset's labels have changed.*`earmark flag .*`")
    with pytest.warns(EarmarkWarning, match="scores/teacher: older than the dataset"), refused:
        pipeline.export_labels(workspace.root, tmp_path / "x.csv")


def test_passes_as_tasks_of_an_engine_find_the_same_flags(
    workspace: Workspace, two_processes: KeptProcesses
) -> None:
    here = pipeline.write_flags(workspace, discard_percent=5)
    thresholds = (workspace.flags_folder / "thresholds.parquet").read_bytes()
    there = pipeline.write_flags(workspace, discard_percent=5, engine=two_processes)
    assert there.flags.equals(here.flags)
    assert (workspace.flags_folder / "thresholds.parquet").read_bytes() == thresholds


def test_no_chances_are_kept_of_scores_that_do_not_know_the_labels(workspace: Workspace) -> None:
    pipeline.write_flags(workspace, keep_chances=True)
    path = workspace.scores_folder("teacher") / "logits.npy"
    np.save(path, np.random.default_rng(0).permutation(np.load(path)))
    with pytest.raises(EarmarkError, match="nothing for students to go by"):
        pipeline.write_flags(workspace, keep_chances=True, discard_percent=5)


def test_an_unknown_policy_is_refused(workspace: Workspace) -> None:
    with pytest.raises(
        EarmarkError, match="no policy 'best'; the choices are percentile, precision"
    ):
        pipeline.write_flags(workspace, policy="best")


@pytest.fixture
def whole(tmp_path: Path) -> Workspace:
    """A workspace whose three splits are all scored."""
    workspace = band_workspace(tmp_path / "whole")
    pipeline.score(workspace, Recipe(teacher=TEACHER, cross_fit=FOLDS), engine=ONE)
    return workspace


def test_every_scored_clip_of_every_split_is_flagged(whole: Workspace) -> None:
    flagged = pipeline.write_flags(whole, discard_percent=50)
    assert set(flagged.flags["split"]) == {"train", "tune", "eval"}
    assert pl.read_parquet(flagged.path).equals(flagged.flags)
    scored = pipeline.open_scored(whole)
    assert len(scored.whole.clip_ids) == len(whole.clips)
    every = scored_labels(scored.whole, whole.labels)
    alone = flag(every, scored.whole.logits, discard_percent=50)
    same = ["clip_id", "class_id", "logit", "rank"]
    assert flagged.flags.select(same).sort(PAIR).equals(alone.select(same).sort(PAIR))


def test_students_go_by_the_thresholds_of_the_train_split_alone(whole: Workspace) -> None:
    pipeline.write_flags(whole, discard_percent=20)
    scores = ScoreFolder.open(whole.scores_folder("teacher"))
    labels = scored_labels(scores, whole.labels)
    written = Thresholds.from_table(pl.read_parquet(whole.flags_folder / "thresholds.parquet"))
    np.testing.assert_array_equal(written.values, thresholds(labels, scores.logits).values)
    stored = stored_thresholds(whole.flags_folder, labels, -scores.logits, scores.digest)
    np.testing.assert_array_equal(stored.values, written.values)  # found, not computed


def test_every_explicit_label_of_every_split_is_exported(whole: Workspace, tmp_path: Path) -> None:
    pipeline.write_flags(whole, discard_percent=20)
    path = tmp_path / "labels.parquet"
    told = pipeline.export_labels(whole, path)
    out = pl.read_parquet(path)
    explicit = out.filter(pl.col("state") != "ignored")
    back = explicit.select(*PAIR, present=pl.col("state") == "present")
    assert back.sort(PAIR).equals(whole.labels.rows().sort(PAIR))
    assert told.n_rows == len(out) == sum(map(told.n_of, ("present", "not_present", "ignored")))
    assert (told.n_clips, told.n_unscored_clips) == (out["clip_id"].n_unique(), 0)


def test_labels_of_clips_that_were_not_scored_are_exported_too(
    workspace: Workspace, tmp_path: Path
) -> None:
    told = pipeline.export_labels(workspace, tmp_path / "labels.csv", discard_percent=20)
    assert told.n_unscored_clips == len(workspace.clips) - len(workspace.rows("train")) > 0
    assert told.n_rows - told.n_ignored == len(workspace.labels.columns)


def test_an_export_that_is_imported_has_every_explicit_label_and_no_other(
    whole: Workspace, tmp_path: Path
) -> None:
    pipeline.write_flags(whole, discard_percent=20)
    path = tmp_path / "labels.csv"
    told = pipeline.export_labels(whole, path)
    assert told.n_of("not_present") > 0
    assert told.n_ignored > 0
    clips = tmp_path / "clips.csv"
    whole.clips.select("clip_id", "split", "source").write_csv(clips)
    again = import_table(clips, path, tmp_path / "again").workspace
    assert again.labels.rows().sort(PAIR).equals(whole.labels.rows().sort(PAIR))
    assert again.clips["split"].equals(whole.clips["split"])


def test_chances_of_the_train_split_are_kept_for_students(workspace: Workspace) -> None:
    found = pipeline.write_flags(workspace, keep_chances=True)
    kept = np.load(workspace.chances_path)
    scores = ScoreFolder.open(workspace.scores_folder("teacher"))
    assert kept.shape == scores.logits.shape
    flagged = found.flags.filter(split="train").drop_nulls("chance")
    rows = {clip_id: row for row, clip_id in enumerate(scores.clip_ids)}
    columns = {class_id: column for column, class_id in enumerate(workspace.labels.class_ids)}
    at = [(rows[clip], columns[name]) for clip, name in flagged.select(PAIR).rows()]
    chances = expit(kept[tuple(np.array(at).T)])
    assert len(at)
    assert np.allclose(chances, flagged["chance"].to_numpy(), atol=1e-4)
    pipeline.write_flags(workspace)
    assert not workspace.chances_path.exists()  # others would be stale
