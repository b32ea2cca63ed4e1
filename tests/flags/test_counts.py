from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, chi2

from earmark.flags import count_missing, total_missing
from earmark.labels import LabelSet
from earmark.scores import top_scores
from suspects import hidden


def only_row(states: np.ndarray, scores: np.ndarray) -> dict[str, object]:
    found = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None]).table
    return found.row(0, named=True)


class TestCountMissing:
    @pytest.mark.parametrize(
        ("prior", "missing", "tolerance"), [(0.1, 0.3, 0.15), (0.1, 0.6, 0.15), (0.01, 0.5, 0.4)]
    )
    def test_finds_the_number(self, prior: float, missing: float, tolerance: float) -> None:
        states, scores, n_missing = hidden(prior, 4.0, missing)
        row = only_row(states, scores)
        assert row["n_missing"] == pytest.approx(n_missing, rel=tolerance)
        assert row["low"] <= n_missing <= row["high"] <= row["upper_bound"]
        assert (row["method"], row["reason"]) == ("shapes", None)

    def test_finds_faint_sounds_that_are_labelled_less_often(self) -> None:
        # the log-odds of a label rise by 1 with each sd of the score
        rng = np.random.default_rng(0)
        truth = rng.random(40_000) < 0.1
        strength = rng.normal(size=40_000)
        is_labelled = truth & (rng.random(40_000) < 1 / (1 + np.exp(-strength)))
        scores = 1.8 * (strength + 4.0 * truth)
        row = only_row(is_labelled.astype(np.int8), scores)
        n_missing = (truth & ~is_labelled).sum()
        assert row["n_missing"] == pytest.approx(n_missing, rel=0.25)
        assert n_missing <= row["upper_bound"]

    def test_says_how_little_a_weak_teacher_tells(self) -> None:
        strong, weak = (only_row(*hidden(0.02, d_prime, 0.5)[:2]) for d_prime in (5.0, 1.0))
        assert strong["high"] / strong["low"] < 2
        assert weak["high"] / weak["low"] > 10
        assert (strong["method"], weak["method"]) == ("shapes", "expectation")

    def test_heavy_tails_are_not_taken_for_missing_labels(self) -> None:
        rng = np.random.default_rng(0)
        states = np.zeros(100_000, np.int8)
        states[:100] = 1
        scores = rng.standard_t(4, size=100_000)
        scores[:100] += 4
        row = only_row(states, scores)
        assert row["n_missing"] < 100  # there is none, and hundreds score like the positives
        assert row["upper_bound"] > 300

    @given(st.integers(30, 300), st.floats(0.8, 8), st.sampled_from([1.0, 1e-3]), st.integers(0, 9))
    @settings(max_examples=25, deadline=None)
    def test_numbers_are_in_order(
        self, n_positives: int, shift: float, scale: float, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        states = np.zeros(1_000, np.int8)
        states[:n_positives] = 1
        states[-20:] = -1
        row = only_row(states, scale * (rng.normal(size=1_000) + shift * (states == 1)))
        assert 0 < row["low"] <= row["n_missing"] <= row["high"] <= row["upper_bound"]

    @pytest.mark.parametrize("n_implicit", [30, 31, 60])
    def test_few_implicit_labels(self, n_implicit: int) -> None:
        states = np.zeros((n_implicit + 40, 1), np.int8)
        states[:40] = 1
        scores = np.random.default_rng(0).normal(size=states.shape) + 2 * states
        found = count_missing(LabelSet.from_dense(states), scores).table
        assert 0 <= found["low"][0] <= found["n_missing"][0] <= found["high"][0]

    def test_nothing_missing(self) -> None:
        states, scores, _ = hidden(0.05, 4.0, 0.0)
        row = only_row(states, scores)
        assert row["n_missing"] < 0.05 * row["n_positives"]

    def test_not_estimable_is_said_plainly(self) -> None:
        rng = np.random.default_rng(0)
        states = np.zeros((2_000, 4), np.int8)
        states[:29, 0] = 1  # too few
        states[:, 1] = 1  # nobody was left out
        states[:100, 2] = 1
        scores = rng.normal(size=states.shape) + states
        scores[:, 2] = np.nan
        found = count_missing(LabelSet.from_dense(states), scores).table
        assert found["reason"].to_list() == [
            "fewer than 30 explicit positives",
            "fewer than 30 implicit labels",
            "no scores",
            "fewer than 30 explicit positives",
        ]
        for column in ("n_missing", "low", "high", "method"):
            assert found[column].null_count() == 4
        assert found["upper_bound"].is_null().to_list() == [False, False, True, True]

    def test_explicit_negatives_know_look_alikes(self) -> None:
        # look-alikes score like the class; people were asked about half of both
        rng = np.random.default_rng(0)
        truth = rng.random(40_000) < 0.02
        is_alike = ~truth & (rng.random(40_000) < 0.04)
        scores = (1.8 * rng.normal(size=40_000) + 7.0 * (truth | is_alike) - 4)[:, None]
        asked = rng.random(40_000) < 0.5
        states = np.where(asked & truth, 1, 0).astype(np.int8)[:, None]
        n_missing = (truth & ~asked).sum()
        blind = count_missing(LabelSet.from_dense(states), scores).table["n_missing"][0]
        states[asked & is_alike] = -1
        told = count_missing(LabelSet.from_dense(states), scores).table
        assert blind > 2 * n_missing
        assert told["n_missing"][0] == pytest.approx(n_missing, rel=0.3)
        assert told["low"][0] < n_missing < told["high"][0]
        assert told["method"][0] == "negatives"

    def test_same_input_same_numbers(self) -> None:
        states, scores, _ = hidden(0.02, 3.0, 0.5, n_clips=10_000)
        assert only_row(states, scores) == only_row(states, scores)

    def test_classes_do_not_change_one_another(self) -> None:
        one, other = hidden(0.05, 3.0, 0.5, 10_000), hidden(0.02, 4.0, 0.3, 10_000, seed=1)
        states, scores = (np.stack([one[i], other[i]], axis=1) for i in (0, 1))
        both = count_missing(LabelSet.from_dense(states), scores).table
        for row, alone in zip(both.rows(named=True), (one, other), strict=True):
            assert row["n_missing"] == pytest.approx(only_row(*alone[:2])["n_missing"], rel=0.05)

    def test_scale_of_the_scores_does_not_matter(self) -> None:
        states, scores, _ = hidden(0.05, 3.0, 0.5)
        labels = LabelSet.from_dense(states[:, None])
        plain, scaled = (count_missing(labels, s[:, None]).table for s in (scores, 8 * scores + 32))
        assert scaled["n_missing"][0] == pytest.approx(plain["n_missing"][0], rel=0.05)

    def test_order_and_float_type_do_not_matter(self) -> None:
        states, scores, _ = hidden(0.05, 3.0, 0.5)
        states, scores = states[:, None], scores[:, None]
        expected = count_missing(LabelSet.from_dense(states), scores).table
        order = np.random.default_rng(1).permutation(len(states))
        turned = count_missing(LabelSet.from_dense(states[order]), scores[order])
        assert turned.table.equals(expected)
        wide = count_missing(LabelSet.from_dense(states), scores.astype(np.float64))
        assert wide.table.equals(expected)
        by_columns = count_missing(LabelSet.from_dense(states), np.asfortranarray(scores))
        assert by_columns.table.equals(expected)

    def test_empty(self) -> None:
        none = count_missing(LabelSet.from_dense(np.zeros((5, 0), int)), np.zeros((5, 0)))
        assert len(none.table) == 0
        found = count_missing(LabelSet.from_dense(np.zeros((0, 2), int)), np.zeros((0, 2))).table
        assert found["n_missing"].null_count() == 2


class TestTotal:
    def test_is_narrower_than_the_sum_of_ends_and_wider_than_one_class(self) -> None:
        table = pl.DataFrame(
            {"n_missing": [100.0] * 50, "low": [10.0] * 50, "high": [1_000.0] * 50}
        )
        low, middle, high = total_missing(table)
        assert middle == pytest.approx(5_000)
        assert 500 <= low < 5_000 / 2
        assert 2 * 5_000 < high <= 50_000

    def test_of_one_class_is_its_own_ninety_per_cent(self) -> None:
        table = pl.DataFrame({"n_missing": [100.0], "low": [50.0], "high": [200.0]})
        low, _, high = total_missing(table)
        assert 50 < low < 60
        assert 170 < high < 200

    def test_of_no_class_is_nothing(self) -> None:
        table = pl.DataFrame({"n_missing": [None], "low": [None], "high": [None]}).cast(pl.Float64)
        assert total_missing(table) == (0, 0, 0)


class TestUpperBound:
    def test_twin(self) -> None:
        states, scores, n_missing = hidden(0.05, 3.0, 0.5, n_clips=5_000)
        found = only_row(states, scores)["upper_bound"]
        positives, implicit = np.sort(scores[states == 1]), scores[states == 0]
        tilts = np.exp(-(positives - positives.mean()) / positives.std())
        n = len(positives)
        bounds = []
        for cut in np.quantile(positives, np.arange(0.1, 0.95, 0.1)):
            is_high, n_implicit = positives >= cut, (implicit >= cut).sum()
            share = beta.ppf(0.05 / 9, is_high.sum(), n - is_high.sum() + 1)
            odds = share / (1 - share) * tilts[is_high].mean() / tilts[~is_high].mean()
            bounds.append(chi2.ppf(1 - 0.05 / 9, 2 * (n_implicit + 1)) / 2 * (1 + odds) / odds)
        assert found == pytest.approx(min(bounds), rel=0.1)  # the bins move the cuts a little
        assert found > n_missing


def test_summary_of_an_earlier_pass_can_be_used() -> None:
    states, scores, n_missing = hidden(0.02, 4.0, 0.5)
    labels = LabelSet.from_dense(states[:, None])
    summary = top_scores(labels, scores[:, None], np.array([[600]]))
    found = count_missing(labels, scores[:, None], summary=summary)
    assert found.table["n_missing"][0] == pytest.approx(n_missing, rel=0.25)


def test_table_has_one_row_per_class_in_order() -> None:
    labels = LabelSet.from_dense(np.zeros((3, 2), int), class_ids=["b", "a"])
    found = count_missing(labels, np.zeros((3, 2))).table
    assert found["class_id"].to_list() == ["b", "a"]
    assert found["n_implicit"].dtype == pl.Int64
