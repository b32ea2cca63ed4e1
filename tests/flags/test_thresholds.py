from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.errors import EarmarkError
from earmark.flags import POLICIES, flag, judge_flags, n_discarded, thresholds
from earmark.labels import LabelSet
from earmark.losses import ignored
from suspects import labelled_scores, percents, plain_threshold, random_case


class TestThresholds:
    def test_counts_of_the_supplement(self) -> None:
        # 0.1 % of 505,064 and of 42,459 implicit labels; the paper prints 504 (one tie) and 42
        assert n_discarded(np.array([505_064, 42_459]), [0.1]).tolist() == [[505, 42]]

    def test_percent_is_decimal(self) -> None:
        assert n_discarded(np.array([1_000]), [0.1, 0.7, 8.2]).tolist() == [[1], [7], [82]]

    def test_hand_worked(self) -> None:
        labels = LabelSet.from_dense([[0], [0], [-1], [0], [1], [0]])
        scores = np.array([[5.0], [3.0], [9.0], [3.0], [9.0], [1.0]])
        found = thresholds(labels, scores, [0, 25, 50, 75, 100])
        assert found.values[:, 0].tolist() == [np.inf, 3, 3, 1, -np.inf]
        assert found.n_ignored[:, 0].tolist() == [0, 1, 1, 3, 4]  # the tie at 3 is not split
        assert found.n_implicit.tolist() == [4]

    @given(labelled_scores(), percents)
    @settings(max_examples=150, deadline=None)
    def test_equals_a_plain_sort(self, case: tuple[np.ndarray, np.ndarray], percent: float) -> None:
        states, scores = case
        found = thresholds(LabelSet.from_dense(states), scores, [percent])
        for column in range(states.shape[1]):
            implicit = scores[states[:, column] == 0, column]
            limit = plain_threshold(implicit, percent)
            assert found.values[0, column] == np.float32(limit)
            assert found.n_ignored[0, column] == (implicit > limit).sum()

    @pytest.mark.parametrize("decimals", [9, 1, 0])
    @pytest.mark.parametrize("order", ["random", "sorted", "periodic"])
    def test_large_equals_a_plain_sort(
        self, decimals: int, order: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A small sample, several chunks and several groups of classes; the sample misleads when
        # every fifth clip scores high.
        monkeypatch.setattr(sys.modules["earmark.scores.order_statistics"], "SAMPLE_CLIPS", 1_000)
        monkeypatch.setattr(sys.modules["earmark.scores.order_statistics"], "KEPT_BYTES", 8 * 300)
        monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 2_000)
        states, scores = random_case(5_000, 4, decimals=decimals)
        if order == "sorted":
            scores.sort(axis=0)
        if order == "periodic":
            scores[::5] -= 10
        points = (*PAPER_DISCARD_PERCENTS, 60, 100)
        found = thresholds(LabelSet.from_dense(states), scores, points)
        for column in range(4):
            implicit = scores[states[:, column] == 0, column]
            limits = [plain_threshold(implicit, percent) for percent in points]
            assert found.values[:, column].tolist() == limits
            assert found.n_ignored[:, column].tolist() == [(implicit > t).sum() for t in limits]

    @given(labelled_scores())
    @settings(max_examples=50, deadline=None)
    def test_points_are_nested(self, case: tuple[np.ndarray, np.ndarray]) -> None:
        states, scores = case
        found = thresholds(LabelSet.from_dense(states), scores)
        masks = [ignored(states, scores, row) for row in found.values]
        assert all((small <= large).all() for small, large in pairwise(masks))
        assert [mask.sum(axis=0).tolist() for mask in masks] == found.n_ignored.tolist()

    def test_class_without_implicit_labels(self) -> None:
        found = thresholds(LabelSet.from_dense([[1, 0], [-1, 0]]), np.ones((2, 2)), [100])
        assert found.values.tolist() == [[np.inf, -np.inf]]

    def test_all_scores_equal(self) -> None:
        found = thresholds(LabelSet.from_dense(np.zeros((50, 1), int)), np.ones((50, 1)), [10])
        assert (found.values.tolist(), found.n_ignored.tolist()) == ([[1.0]], [[0]])

    def test_no_clips(self) -> None:
        labels = LabelSet.from_dense(np.zeros((0, 3), int))
        assert (thresholds(labels, np.zeros((0, 3))).values == np.inf).all()
        assert len(flag(labels, np.zeros((0, 3)))) == 0

    def test_no_classes_or_points(self) -> None:
        no_classes = LabelSet.from_dense(np.zeros((4, 0), int))
        assert thresholds(no_classes, np.zeros((4, 0))).values.shape == (18, 0)
        assert thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1)), []).values.shape == (0, 1)

    @pytest.mark.parametrize("percent", [-1, 100.5])
    def test_percent_out_of_range(self, percent: float) -> None:
        with pytest.raises(EarmarkError, match="between 0 and 100"):
            thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1)), [percent])


class TestScores:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_arrays_maps_and_files_agree(
        self, dtype: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 200)
        states, scores = random_case(400, 3)
        stored = np.asarray(scores.astype(dtype), order=order)
        np.save(tmp_path / "logits.npy", stored)
        labels = LabelSet.from_dense(states)
        expected = flag(labels, stored.astype(np.float32), discard_percent=10)
        memory_map = np.load(tmp_path / "logits.npy", mmap_mode="r")
        for source in (stored, memory_map, tmp_path / "logits.npy", str(tmp_path / "logits.npy")):
            assert flag(labels, source, discard_percent=10).equals(expected)

    def test_close_float64_scores_are_ties(self) -> None:
        labels = LabelSet.from_dense(np.zeros((4, 1), int))
        scores = np.array([[1.0], [1.0 + 1e-12], [0.5], [0.2]])
        assert len(flag(labels, scores, discard_percent=25)) == 0

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_odd_score_is_named(self, value: float) -> None:
        scores = np.zeros((5, 2))
        scores[3, 1] = value
        labels = LabelSet.from_dense(np.zeros((5, 2), int), list("abcde"), ["dog", "cat"])
        with pytest.raises(EarmarkError, match=r"clip 'd' \(row 3\), class 'cat'"):
            thresholds(labels, scores)

    def test_too_large_for_float32(self) -> None:
        with pytest.raises(EarmarkError, match="row 0"):
            thresholds(LabelSet.from_dense([[0]]), np.array([[1e60]]))

    def test_unscored_class_is_never_flagged(self) -> None:
        states, scores = random_case(300, 2)
        scores += states
        scores[:, 0] = np.nan
        labels = LabelSet.from_dense(states)
        found = thresholds(labels, scores)
        assert (found.values[:, 0] == np.inf).all()
        assert not found.n_ignored[:, 0].any()
        for policy in POLICIES:
            options = {"n_flags": 20} if policy == "budget" else {}
            assert "0" not in flag(labels, scores, policy, **options)["class_id"]

    def test_class_scored_in_part(self) -> None:
        scores = np.zeros((5, 1))
        scores[0] = np.nan
        with pytest.raises(EarmarkError, match="first clip has none"):
            thresholds(LabelSet.from_dense(np.zeros((5, 1), int)), scores)

    @pytest.mark.parametrize(
        ("shape", "hint"), [((2, 3), "transpose"), ((4, 2), "another split"), ((3,), "expected")]
    )
    def test_shape_that_does_not_fit(self, shape: tuple[int, ...], hint: str) -> None:
        with pytest.raises(EarmarkError, match=hint):
            thresholds(LabelSet.from_dense(np.zeros((3, 2), int)), np.zeros(shape))

    def test_integers_are_no_scores(self) -> None:
        with pytest.raises(EarmarkError, match="int64"):
            thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1), np.int64))

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        labels = LabelSet.from_dense(np.zeros((100, 4), int))
        whole = tmp_path / "whole.npy"
        np.save(whole, np.zeros((100, 4), np.float32))
        cut = tmp_path / "cut.npy"
        cut.write_bytes(whole.read_bytes()[:-100])
        text = tmp_path / "text.npy"
        text.write_text("clip,score\n")
        np.savez(tmp_path / "many.npz", a=np.zeros(3))
        for name in ("cut.npy", "text.npy", "absent.npy", "many.npz"):
            with pytest.raises(EarmarkError, match=name):
                thresholds(labels, tmp_path / name)


def test_one_number_is_one_operating_point() -> None:
    states, logits = random_case(50, 3)
    labels = LabelSet.from_dense(states)
    one, listed = thresholds(states, logits, 10), thresholds(labels, logits, [10.0])
    assert one.discard_percents == listed.discard_percents == (10.0,)
    np.testing.assert_array_equal(one.values, listed.values)


def test_flags_are_judged_by_the_truth() -> None:
    labels = LabelSet.from_dense([[0, 1], [0, 0], [0, 0], [-1, 0]])
    truth = LabelSet.from_dense([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    logits = np.array([[3.0, 9.0], [2.0, 1.0], [1.0, 0.0], [9.0, 2.0]], np.float32)
    found = thresholds(labels, logits, [0, 34, 67])  # one, then two flags in each class
    judged = judge_flags(labels, truth, logits, found)
    assert judged["n_missing"].to_list() == [3, 3, 3]
    assert judged["n_flags"].to_list() == [0, 2, 4]
    assert judged["n_right"].to_list() == [0, 2, 2]
