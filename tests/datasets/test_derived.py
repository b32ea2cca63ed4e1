from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.audio import FrameStore, write_store
from earmark.config import HidingParams
from earmark.datasets import Workspace, hide, import_workspace, n_missing
from earmark.errors import EarmarkError
from scenes import band_workspace


def test_a_smaller_workspace_keeps_tune_and_eval_and_shares_the_frames(tmp_path: Path) -> None:
    whole = band_workspace(tmp_path / "whole")
    (tmp_path / "smaller" / "frames").mkdir(parents=True)
    (tmp_path / "smaller" / "frames" / "notes.md").write_text("mine")
    made = import_workspace(whole.root, tmp_path / "smaller", train_share=0.5)
    smaller = made.workspace
    assert made.notes[0].startswith("20 train clips; classes are as common as before")
    assert (smaller.frames_folder / "notes.md").read_text() == "mine"
    assert len(smaller.rows("train")) == pytest.approx(0.5 * len(whole.rows("train")), abs=1)
    for split in ("tune", "eval"):
        kept, expected = (w.clips["clip_id"].gather(w.rows(split)) for w in (smaller, whole))
        assert kept.to_list() == expected.to_list()
    chosen = [whole.clips["clip_id"].to_list().index(name) for name in smaller.clips["clip_id"]]
    assert smaller.labels.states().tolist() == whole.labels.states(chosen).tolist()
    assert smaller.truth is not None
    assert whole.truth is not None
    assert smaller.truth.states().tolist() == whole.truth.states(chosen).tolist()
    one, other = (FrameStore.open(w.frames_folder) for w in (whole, smaller))
    assert one.digest == other.digest
    with pytest.raises(EarmarkError, match="give another folder"):
        import_workspace(whole.root, tmp_path / "smaller", train_share=0.5)


def complete_workspace(root: Path) -> Workspace:
    workspace = band_workspace(root)
    assert workspace.truth is not None
    clips = workspace.clips.with_columns(audio=pl.format("audio/{}.wav", "clip_id"))
    clips.write_parquet(workspace.clips_path)
    workspace.truth.write(workspace.labels_path)
    workspace.truth_path.unlink()
    return Workspace(root)


def hidden_copy(
    workspace: Workspace, out: Path, params: HidingParams, **options: bool
) -> Workspace:
    return import_workspace(workspace.root, out, hiding=params, **options).workspace


def test_a_hidden_workspace_keeps_the_truth_and_shares_audio_and_frames(tmp_path):
    complete = complete_workspace(tmp_path / "complete")
    params = HidingParams(recall_range=(0.5, 0.5), false_candidates=1)
    hidden = hidden_copy(complete, tmp_path / "hidden", params)
    assert hidden.truth is not None
    assert hidden.truth.digest == complete.labels.digest
    assert hidden.labels.digest == hide(complete.labels, complete.ontology, params).digest
    assert n_missing(hidden.truth, hidden.labels).sum() > 0
    assert hidden.clips["audio"][0] == str(tmp_path / "complete/audio/clip000.wav")
    one, other = (FrameStore.open(w.frames_folder) for w in (complete, hidden))
    assert one.digest == other.digest
    assert np.array_equal(one.frames(3), other.frames(3))


def test_writing_to_the_hidden_frames_leaves_the_complete_ones_alone(tmp_path):
    complete = complete_workspace(tmp_path / "complete")
    before = FrameStore.open(complete.frames_folder).frames(0).copy()
    hidden = hidden_copy(complete, tmp_path / "hidden", HidingParams())
    write_store(hidden.frames_folder, [("other", np.zeros((3, 64), np.float16))])
    assert np.array_equal(FrameStore.open(complete.frames_folder).frames(0), before)


def test_implicit_labels_are_refused_unless_they_are_said_to_be_absent(tmp_path):
    incomplete = band_workspace(tmp_path / "incomplete")
    with pytest.raises(EarmarkError, match=r"labels are implicit.*--assume-complete"):
        hidden_copy(incomplete, tmp_path / "hidden", HidingParams())
    hidden = hidden_copy(incomplete, tmp_path / "hidden", HidingParams(), assume_complete=True)
    assert hidden.truth is not None
    assert hidden.truth.n_positives.tolist() == incomplete.labels.n_positives.tolist()


def test_a_dataset_is_never_overwritten(tmp_path):
    complete = complete_workspace(tmp_path / "complete")
    with pytest.raises(EarmarkError, match="name another folder for fewer clips or labels"):
        hidden_copy(complete, complete.root, HidingParams())
    other = band_workspace(tmp_path / "other")
    with pytest.raises(EarmarkError, match="give another folder"):
        hidden_copy(complete, other.root, HidingParams())


def test_splits_fewer_clips_and_hidden_labels_come_in_one_go(tmp_path: Path) -> None:
    complete = complete_workspace(tmp_path / "complete")
    shares = {"train": 0.5, "tune": 0.25, "eval": 0.25}
    made = import_workspace(
        complete.root,
        tmp_path / "w",
        splits=shares,
        train_share=0.5,
        hiding=HidingParams(recall_range=(0.5, 0.5)),
        replace=True,
    )
    dealt = import_workspace(complete.root, tmp_path / "dealt", splits=shares, replace=True)
    kept, whole = made.workspace, dealt.workspace
    assert whole.labels.digest == complete.labels.digest
    n_train = len(whole.rows("train"))
    assert len(kept.rows("train")) == pytest.approx(n_train / 2, abs=1)
    assert len(kept.rows("eval")) == len(whole.rows("eval"))
    splits = dict(whole.clips.select("clip_id", "split").iter_rows())
    assert all(
        splits[name] == split for name, split in kept.clips.select("clip_id", "split").rows()
    )
    assert kept.truth is not None
    assert 0 < n_missing(kept.truth, kept.labels).sum() < kept.truth.n_positives.sum()


def test_it_is_said_where_not_one_label_was_hidden(tmp_path):
    params = HidingParams(recall_range=(1, 1))
    with pytest.raises(EarmarkError, match=r"not one of .* positives was hidden"):
        hidden_copy(complete_workspace(tmp_path / "complete"), tmp_path / "hidden", params)
    assert not (tmp_path / "hidden").exists()
