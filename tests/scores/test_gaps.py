from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import leave_out_gaps

SCORES = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
LABELS = LabelSet.from_dense(np.eye(6, 3, dtype=np.int8), list("uvwxyz"), list("abc"))


def written(folder: Path, scores: np.ndarray) -> Path:
    np.save(folder / "scores.npy", scores)
    return folder / "scores.npy"


def changed(*places: tuple[object, object, float]) -> np.ndarray:
    scores = SCORES.copy()
    for row, column, value in places:
        scores[row, column] = value  # type: ignore[index]
    return scores


ALL = slice(None)


def test_scores_that_are_all_there_stay_where_they_lie(tmp_path: Path) -> None:
    npy = written(tmp_path, SCORES)
    scores, *rest = leave_out_gaps(npy, LABELS, tmp_path / "t.npy")
    assert (scores.path, rest) == (npy, [LABELS, ()])
    assert not (tmp_path / "t.npy").exists()


def test_a_class_without_scores_is_kept(tmp_path: Path) -> None:
    npy = written(tmp_path, changed((ALL, 1, np.nan)))
    scores, *rest = leave_out_gaps(npy, LABELS, tmp_path / "t.npy")
    assert (scores.path, rest) == (npy, [LABELS, ()])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("more", [(), ((ALL, 1, np.nan),)])
def test_clips_without_scores_are_left_out_and_counted(
    tmp_path: Path, order: str, more: tuple[tuple[object, object, float], ...]
) -> None:
    scores = np.asarray(changed((0, ALL, np.nan), (4, ALL, np.nan), *more), order=order)  # type: ignore[call-overload]
    left, labels, warnings = leave_out_gaps(written(tmp_path, scores), LABELS, tmp_path / "t.npy")
    np.testing.assert_array_equal(left.array, scores[[1, 2, 3, 5]])
    assert labels.clip_ids.to_list() == list("vwxz")
    np.testing.assert_array_equal(labels.states(), LABELS.states([1, 2, 3, 5]))
    assert warnings == (
        "2 of 6 clips have no scores (NaN in every class, such as 'u', 'y'): they are left out",
    )


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([(2, 1, np.nan), (5, 0, np.nan)], r"clip 'w' \(row 2\), class 'b' .* is nan.*\(2 such"),
        ([(0, ALL, np.nan), (3, 2, np.nan)], r"clip 'x' \(row 3\), class 'c' .*\(1 such"),
        ([(ALL, 0, np.nan), (3, 2, np.inf)], r"clip 'x' .*is inf.*probabilities of 0 or 1"),
        ([(1, 1, -np.inf)], "the score is -inf"),
        ([(ALL, ALL, np.nan)], "not one score in it"),
    ],
)
def test_any_other_gap_is_named(
    tmp_path: Path, places: list[tuple[object, object, float]], message: str
) -> None:
    npy = written(tmp_path, changed(*places))
    with pytest.raises(EarmarkError, match=rf"mine\.csv: .*{message}"):
        leave_out_gaps(npy, LABELS, tmp_path / "t.npy", Path("mine.csv"))


def test_what_is_too_large_for_float32_is_infinite(tmp_path: Path) -> None:
    scores = SCORES.astype(np.float64)
    scores[3, 1] = 1e300
    with pytest.raises(EarmarkError, match=r"clip 'x' \(row 3\), class 'b' .* 1e\+300"):
        leave_out_gaps(written(tmp_path, scores), LABELS, tmp_path / "t.npy")
