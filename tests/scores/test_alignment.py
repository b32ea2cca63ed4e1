from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology, read_label_file
from earmark.scores import (
    ScoreFolder,
    arrange,
    check_aligned,
    classes_of_columns,
    clips_of_rows,
    leave_out_unscored,
    logits_of,
    named_alike,
    open_score_file,
    scored_labels,
    write_score_folder,
)

STATES = np.array([[1, 0, -1], [0, 0, 0], [0, 1, 1]], np.int8)


def labels_of(clip_ids: str = "xyz", class_ids: str = "abc") -> LabelSet:
    return LabelSet.from_dense(STATES, list(clip_ids), list(class_ids))


def scores_of(folder: Path, clip_ids: str = "zx", class_ids: str = "abc") -> ScoreFolder:
    logits = np.arange(len(clip_ids) * len(class_ids), dtype=np.float32)
    logits = logits.reshape(len(clip_ids), -1)
    best = np.zeros(logits.shape, np.uint16)
    names = pl.Series(list(clip_ids))
    return write_score_folder(
        folder, names, class_ids, logits, best, out_of_fold=True, digest="scores"
    )


def test_labels_follow_the_scores(tmp_path: Path) -> None:
    found = scored_labels(scores_of(tmp_path), labels_of())
    assert found.clip_ids.to_list() == ["z", "x"]
    np.testing.assert_array_equal(found.states(), STATES[[2, 0]])


def test_scores_follow_the_labels(tmp_path: Path) -> None:
    logits = logits_of(scores_of(tmp_path), pl.Series(["x", "z", "x"]))
    np.testing.assert_array_equal(logits, [[3, 4, 5], [0, 1, 2], [3, 4, 5]])


def test_scores_of_other_clips_or_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="3 classes in another order than the workspace's 3"):
        scored_labels(scores_of(tmp_path / "classes", class_ids="cba"), labels_of())
    with pytest.raises(EarmarkError, match="1 scored clips are not in the workspace"):
        scored_labels(scores_of(tmp_path / "clips", "xw"), labels_of())


def test_training_takes_scores_in_the_labels_own_order_only(tmp_path: Path) -> None:
    check_aligned(scores_of(tmp_path / "same", "xyz"), labels_of())
    with pytest.raises(EarmarkError, match=r"the teacher scored 3 clips .* and not the 3 clips"):
        check_aligned(scores_of(tmp_path / "turned", "zyx"), labels_of())
    with pytest.raises(EarmarkError, match=r"the teacher scored 2 classes .* the 3 classes"):
        check_aligned(scores_of(tmp_path / "fewer", "xyz", "ab"), labels_of())


def test_files_are_matched_by_name_and_what_has_no_scores_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("clip_id,class_id\nx,a\nz,Bee\nw,a\n")
    np.savez(tmp_path / "scores.npz", scores=np.zeros((2, 2)), clip_ids=["z", "x"])
    listed = Ontology(("a", "b"), names={"a": "Ape", "b": "Bee"})
    file, scores = (
        read_label_file(tmp_path / "labels.csv"),
        open_score_file(tmp_path / "scores.npz"),
    )
    classes, clip_ids = classes_of_columns(scores, listed, file), clips_of_rows(scores, None)
    kept, warnings = leave_out_unscored(file, clip_ids)
    assert warnings == (
        "1 of 3 clips in labels.csv have no scores (such as 'w'): their 1 labels are left out",
    )
    states = arrange(kept, scores, clip_ids, classes).states()
    np.testing.assert_array_equal(states, [[0, 1], [1, 0]])


def test_a_list_of_clips_must_fit_and_be_needed(tmp_path: Path) -> None:
    (tmp_path / "clips.txt").write_text("x\ny\n")
    np.save(tmp_path / "bare.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "named.npz", scores=np.zeros((2, 2)), clip_ids=["z", "x"])
    with pytest.raises(EarmarkError, match="2 clips for 3 rows of scores"):
        clips_of_rows(open_score_file(tmp_path / "bare.npy"), tmp_path / "clips.txt")
    with pytest.raises(EarmarkError, match="names its clips itself"):
        clips_of_rows(open_score_file(tmp_path / "named.npz"), tmp_path / "clips.txt")


@pytest.mark.parametrize(
    ("names", "others", "expected", "told"),
    [
        ("a.wav b.wav", "b a", "a b", "without their endings: 'a.wav' is 'a'"),
        ("a b", "a.wav b.FLAC c.wav", "a.wav b.FLAC", "without their endings: 'a' is 'a.wav'"),
        ("x/a.wav y/a.wav", "y/a x/a", "x/a y/a", "without their endings: 'x/a.wav' is 'x/a'"),
        ("x/a.wav b.wav c", "a b", "a b c", "without their folders and endings: 'x/a.wav' is 'a'"),
        ("x\\a.wav", "a.wav", "a.wav", "without their folders and endings"),
        ("a.wav b", "b a", "a.wav b", None),
        ("a.wav b.wav", "a c", "a.wav b.wav", None),
        ("a.1 b.1", "a b", "a.1 b.1", None),
    ],
)
def test_endings_and_folders_are_left_out_where_no_name_is_the_same(
    names: str, others: str, expected: str, told: str | None
) -> None:
    found, notes = named_alike(pl.Series(names.split()), pl.Series(others.split()))
    assert found.to_list() == expected.split()
    assert len(notes) == (told is not None)
    assert told is None or told in notes[0]


@pytest.mark.parametrize(
    ("names", "others", "message"),
    [
        ("a.wav a.flac b.wav", "a b", r"clip 'a' may be 'a\.wav' or 'a\.flac'"),
        ("a b", "x/a.wav y/a.wav b.wav", r"clip 'a' may be 'x/a\.wav' or 'y/a\.wav'"),
    ],
)
def test_two_clips_for_one_name_are_refused(names: str, others: str, message: str) -> None:
    with pytest.raises(EarmarkError, match=message):
        named_alike(pl.Series(names.split()), pl.Series(others.split()))
