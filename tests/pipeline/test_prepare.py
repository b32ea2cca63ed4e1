from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from earmark import pipeline
from earmark.datasets import Workspace, find_stale, import_workspace
from earmark.errors import EarmarkError
from own_tables import imported
from scenes import FOLDS, ONE, TEACHER, band_workspace

SHARES = {"train": 0.5, "tune": 0.25, "eval": 0.25}


def split(workspace: Workspace, shares: dict[str, float], **options: Any) -> Workspace:
    return import_workspace(workspace.root, workspace.root, splits=shares, **options).workspace


@pytest.fixture
def unsplit(tmp_path: Path) -> Workspace:
    """An owner's dataset: two clips of each recording, and no splits."""
    rows = "".join(f"clip{i},{'dog' if i % 3 else 'cat'},take{i // 2}\n" for i in range(80))
    return imported(tmp_path, "clip_id,label,recording\n" + rows, None).workspace


def test_recordings_are_dealt_out_whole(unsplit: Workspace) -> None:
    dealt = split(unsplit, SHARES, seed=3)
    splits = dealt.clips["split"]
    assert splits[::2].to_list() == splits[1::2].to_list()
    assert 35 <= (splits == "train").sum() <= 45
    assert dealt.labels.digest == unsplit.labels.digest
    again = split(unsplit, SHARES, seed=3)
    assert again.clips.equals(dealt.clips)


def test_splits_that_are_there_are_not_replaced_without_being_asked(unsplit: Workspace) -> None:
    dealt = split(unsplit, SHARES)
    with pytest.raises(EarmarkError, match="in 3 splits already; nothing was changed"):
        split(unsplit, SHARES, seed=1)
    assert Workspace(unsplit.root).clips.equals(dealt.clips)
    anew = split(unsplit, SHARES, seed=1, replace=True)
    assert not anew.clips.equals(dealt.clips)


def test_too_few_recordings_are_refused(tmp_path: Path) -> None:
    workspace = imported(tmp_path, "clip_id,label\na,dog\nb,cat\n", None).workspace
    with pytest.raises(EarmarkError, match=r"2 recordings are too few.*none is left for eval"):
        split(workspace, SHARES)


def test_students_without_splits_are_told_how_to_get_them(unsplit: Workspace) -> None:
    for study in (pipeline.sweep, pipeline.compare):
        with pytest.raises(EarmarkError, match=r"tune or eval split.*`earmark import .*`, and"):
            study(unsplit)


def test_scores_of_other_splits_are_refused_until_they_are_made_anew(tmp_path: Path) -> None:
    workspace = band_workspace(tmp_path / "w")
    recipe = pipeline.choose_recipe(workspace).model_copy(
        update={"teacher": TEACHER, "cross_fit": FOLDS}
    )
    pipeline.score(workspace, recipe, engine=ONE)
    pipeline.write_flags(workspace)
    dealt = split(workspace, SHARES, replace=True)
    assert [one.path.name for one in find_stale(dealt)] == ["teacher", "flags.parquet"]
    for use in (pipeline.write_flags, pipeline.draw_queue, pipeline.make_report, pipeline.sweep):
        with pytest.raises(EarmarkError, match="whose splits changed since; run `earmark score"):
            use(workspace.root)
    pipeline.score(workspace.root, engine=ONE)
    pipeline.write_flags(workspace.root)
    assert set(pipeline.open_scored(workspace.root).whole.clip_ids) == set(
        workspace.clips["clip_id"]
    )
