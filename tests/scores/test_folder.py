from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.scores import UNLOCATED, ScoreFolder, write_score_folder


def test_scores_that_are_not_there_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match="earmark score"):
        ScoreFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["logits.npy", "best_patches.npy"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "gone", "shape"])
def test_damaged_scores_are_named_with_what_to_do(tmp_path: Path, name: str, damage: str) -> None:
    logits = np.zeros((2, 3), np.float32)
    best, clip_ids = logits.astype(np.uint16), pl.Series(["a", "b"])
    write_score_folder(tmp_path, clip_ids, "xyz", logits, best, out_of_fold=True, digest="run")
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:-2], "garbage": b"no array"}.get(damage, b""))
    if damage == "gone":
        path.unlink()
    elif damage == "shape":
        np.save(path, np.zeros((2, 4), np.float32))
    with pytest.raises(EarmarkError, match=rf"{name}.*\(2, 3\).*delete .*run the command"):
        ScoreFolder.open(tmp_path)


def test_scores_may_not_know_where_a_class_was_heard(tmp_path: Path) -> None:
    logits, clip_ids = np.zeros((2, 3), np.float32), pl.Series(["a", "b"])
    write_score_folder(tmp_path, clip_ids, "xyz", logits, None, out_of_fold=True, digest="run")
    assert ScoreFolder.open(tmp_path).best_patches is None
    assert not (tmp_path / "best_patches.npy").exists()
    assert ScoreFolder.open(tmp_path).best_patch("a", "x") is None


def test_of_a_single_label_nobody_may_know_where_it_is_heard(tmp_path: Path) -> None:
    logits, clip_ids = np.zeros((2, 2), np.float32), pl.Series(["a", "b"])
    best = np.array([[3, UNLOCATED], [0, 1]], np.uint16)
    scores = write_score_folder(
        tmp_path, clip_ids, "xy", logits, best, out_of_fold=True, digest="run"
    )
    found = [scores.best_patch(clip_id, name) for clip_id in "ab" for name in "xy"]
    assert found == [3, None, 0, 1]
    assert scores.best_patch("never scored", "x") is None
    assert scores.best_patch("a", "no class") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "cannot be read as JSON"), ('{"digest": "x"}', "no class_ids"), ("[]", "got list")],
)
def test_scores_without_a_description_are_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(EarmarkError, match=rf"meta.json: .*{told}.*"):
        ScoreFolder.open(tmp_path)
