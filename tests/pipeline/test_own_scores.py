from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark import pipeline
from earmark.config import Recipe
from earmark.datasets import Workspace, find_stale
from earmark.errors import EarmarkError
from earmark.scores import ScoreFolder
from scenes import CLASS_IDS, FOLDS, ONE, TEACHER, band_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path / "w")


@pytest.fixture
def logits(workspace: Workspace) -> np.ndarray:
    truth = workspace.truth
    assert truth is not None
    noise = np.random.default_rng(0).normal(size=(len(workspace.clips), 3))
    return (2.0 * truth.states() + noise).astype(np.float32)


def write_wide(path: Path, clip_ids: list[str], names: list[str], scores: np.ndarray) -> Path:
    table = pl.DataFrame({"clip_id": clip_ids} | dict(zip(names, scores.T, strict=True)))
    table.write_parquet(path)
    return path


def scored(workspace: Workspace) -> dict[str, np.ndarray]:
    """The scores of every clip of every split, by clip."""
    folders = workspace.root.glob("scores/teacher*")
    found = [ScoreFolder.open(folder) for folder in folders]
    return {clip: row for one in found for clip, row in zip(one.clip_ids, one.logits, strict=True)}


def test_scores_are_matched_by_name_in_whatever_order(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids = workspace.clips["clip_id"].to_list()
    rows, columns = np.random.default_rng(1).permutation(len(clip_ids)), [2, 0, 1]
    path = write_wide(
        tmp_path / "scores.parquet",
        [clip_ids[row] for row in rows],
        [CLASS_IDS[column] for column in columns],
        logits[np.ix_(rows, columns)],
    )
    found = pipeline.score_by_file(workspace, path)
    assert (found.n_clips, found.scale) == (len(clip_ids), "logits")
    assert found.without_scores == found.unscored == ()
    assert not found.scores.out_of_fold
    assert found.scores.best_patches is None
    own = scored(workspace)
    np.testing.assert_array_equal([own[clip_id] for clip_id in clip_ids], logits)


def test_what_has_no_scores_is_counted_and_never_flagged(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids = workspace.clips["clip_id"].to_list()
    path = write_wide(
        tmp_path / "s.parquet", [*clip_ids[10:], "other"], ["low", "high"],
        np.concatenate([logits[10:, [0, 2]], [[9.0, 9.0]]]),
    )  # fmt: skip
    found = pipeline.score_by_file(workspace, path, out_of_fold=True)
    assert found.without_scores == tuple(clip_ids[:10])
    assert (found.n_clips, found.n_foreign, found.unscored) == (50, 1, ("middle",))
    assert found.scores.out_of_fold
    flags = pipeline.write_flags(workspace, discard_percent=20).flags
    assert set(flags["class_id"]) == {"low", "high"}
    assert not set(flags["clip_id"]) & {*clip_ids[:10], "other"}


def test_lists_name_what_a_bare_matrix_does_not(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "s.npy", 1 / (1 + np.exp(-logits)))
    (tmp_path / "classes.txt").write_text("\n".join(CLASS_IDS))
    (tmp_path / "clips.txt").write_text("\n".join(workspace.clips["clip_id"]))
    with pytest.raises(EarmarkError, match=r"do not name their clips; .*option `clips`"):
        pipeline.score_by_file(workspace, tmp_path / "s.npy", classes=tmp_path / "classes.txt")
    with pytest.raises(EarmarkError, match=r"do not name their classes; .*option `classes`"):
        pipeline.score_by_file(workspace, tmp_path / "s.npy", clips=tmp_path / "clips.txt")
    found = pipeline.score_by_file(
        workspace,
        tmp_path / "s.npy",
        classes=tmp_path / "classes.txt",
        clips=tmp_path / "clips.txt",
    )
    assert found.scale == "probabilities"
    own = scored(workspace)
    values = [own[clip_id] for clip_id in workspace.clips["clip_id"]]
    np.testing.assert_allclose(values, logits, atol=1e-3)


def test_names_that_do_not_fit_are_named(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids = workspace.clips["clip_id"].to_list()
    strange = [f"{clip_id}_a" for clip_id in clip_ids]
    path = write_wide(tmp_path / "a.parquet", strange, [*CLASS_IDS], logits)
    with pytest.raises(EarmarkError, match=r"called 'clip000_a'.* here and 'clip000'"):
        pipeline.score_by_file(workspace, path)
    path = write_wide(tmp_path / "b.parquet", clip_ids, ["low", "high", "shrill"], logits)
    with pytest.raises(EarmarkError, match=r"not classes of .*: 'shrill'"):
        pipeline.score_by_file(workspace, path)
    found = pipeline.score_by_file(workspace, path, skip_unknown=True)
    assert found.unscored == ("middle",)


def test_other_scores_are_other_scores(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids = workspace.clips["clip_id"].to_list()
    first, second = (
        pipeline.score_by_file(
            workspace, write_wide(tmp_path / "s.parquet", clip_ids, [*CLASS_IDS], scores)
        ).scores.digest
        for scores in (logits, logits + 1)
    )
    assert first != second


def test_clips_and_classes_of_nothing_but_nan_have_no_scores(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids, holes = workspace.clips["clip_id"].to_list(), logits.copy()
    holes[[0, 4]], holes[:, 1] = np.nan, np.nan
    path = write_wide(tmp_path / "scores.parquet", clip_ids, list(CLASS_IDS), holes)
    found = pipeline.score_by_file(workspace, path)
    assert found.without_scores == (clip_ids[0], clip_ids[4])
    assert found.unscored == (CLASS_IDS[1],)
    assert f"2 of {len(clip_ids)} clips have no scores (NaN in every class" in found.warnings[0]
    own = scored(workspace)
    assert clip_ids[4] not in own
    np.testing.assert_array_equal(own[clip_ids[5]], holes[5])
    holes[5, 0] = np.nan
    write_wide(path, clip_ids, list(CLASS_IDS), holes)
    told = rf"scores\.parquet: clip {clip_ids[5]!r} \(row 5\), class .*the score is nan"
    with pytest.raises(EarmarkError, match=told):
        pipeline.score_by_file(workspace, path)


def test_clips_are_matched_without_the_endings_of_sound_files(
    workspace: Workspace, logits: np.ndarray, tmp_path: Path
) -> None:
    clip_ids = workspace.clips["clip_id"].to_list()
    files = [f"site/{clip_id}.flac" for clip_id in clip_ids]
    path = write_wide(tmp_path / "s.parquet", files, [*CLASS_IDS], logits)
    found = pipeline.score_by_file(workspace, path)
    assert found.notes == (
        "Clips are matched without their folders and endings: 'site/clip000.flac' is 'clip000'.",
    )
    own = scored(workspace)
    np.testing.assert_array_equal([own[clip_id] for clip_id in clip_ids], logits)


@pytest.fixture
def own(workspace: Workspace, logits: np.ndarray, tmp_path: Path) -> Path:
    """A file of scores of every clip."""
    clip_ids = workspace.clips["clip_id"].to_list()
    return write_wide(tmp_path / "own.parquet", clip_ids, list(CLASS_IDS), logits)


def test_scores_of_ones_own_make_way_for_a_teacher_only_when_told(
    workspace: Workspace, own: Path
) -> None:
    given = pipeline.score_by_file(workspace, own).scores
    assert given.origin is not None
    assert (given.origin.kind, given.origin.path) == ("file", str(own))
    recipe = Recipe(teacher=TEACHER, cross_fit=FOLDS)
    told = r"scores of your own \(.*own.parquet\); `earmark score .*w --replace` puts"
    with pytest.raises(EarmarkError, match=told):
        pipeline.score(workspace, recipe, engine=ONE)
    assert ScoreFolder.open(given.folder).digest == given.digest
    made = pipeline.score(workspace, recipe, replace=True, engine=ONE)
    assert made.origin is None
    assert pipeline.score(workspace, recipe, engine=ONE).digest == made.digest


def test_the_same_scores_from_another_file_name_that_file(workspace: Workspace, own: Path) -> None:
    before = pipeline.score_by_file(workspace, own).scores
    after = pipeline.score_by_file(workspace, own.rename(own.with_name("moved.parquet"))).scores
    assert after.digest == before.digest
    assert after.origin is not None
    assert Path(after.origin.path).name == "moved.parquet"


def test_changed_labels_leave_scores_of_ones_own_as_they_are(
    workspace: Workspace, own: Path
) -> None:
    pipeline.score_by_file(workspace, own)
    rows = workspace.labels.rows()
    rows.head(len(rows) - 1).write_parquet(workspace.root / "labels.parquet")
    now = Workspace(workspace.root)
    assert find_stale(now) == []
    pipeline.write_flags(now, discard_percent=5)  # a warning would be an error here


def test_scores_of_ones_own_are_renewed_from_a_file(workspace: Workspace, own: Path) -> None:
    pipeline.score_by_file(workspace, own)
    clips = workspace.clips.with_columns(split=pl.lit("train"))
    clips.write_parquet(workspace.root / "clips.parquet")
    now = Workspace(workspace.root)
    command = f"earmark score {workspace.root} --from {own}"
    assert [one.command for one in find_stale(now)] == [command]
    with pytest.raises(EarmarkError, match=f"splits changed since; run `{command}` again"):
        pipeline.write_flags(now, discard_percent=5)


def test_flags_say_what_is_known_of_scores_of_ones_own(workspace: Workspace, own: Path) -> None:
    for out_of_fold, told in ((False, "not known to be out of fold"), (True, "out of fold")):
        pipeline.score_by_file(workspace, own, out_of_fold=out_of_fold)
        found = pipeline.write_flags(workspace, discard_percent=5).findings
        assert found.data_told.endswith(f"; scores of your own, {told}.")
