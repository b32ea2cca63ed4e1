from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import beta, chi2

from earmark.bracketing import top_scores
from earmark.counting import count_missing, estimate_missing, score_histograms
from earmark.labels import LabelSet


def hidden(
    prior: float, d_prime: float, missing: float, n_clips: int = 40_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """One class: states, scores, and the number of labels that are missing at random."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n_clips) < prior
    scores = 1.8 * (rng.normal(size=n_clips) + d_prime * truth) + np.log(prior)
    is_missing = truth & (rng.random(n_clips) < missing)
    states = (truth & ~is_missing).astype(np.int8)
    return states, scores.astype(np.float32), int(is_missing.sum())


class TestCountMissing:
    @pytest.mark.parametrize(("prior", "missing"), [(0.1, 0.3), (0.1, 0.6), (0.01, 0.5)])
    def test_finds_the_number(self, prior: float, missing: float) -> None:
        states, scores, n_missing = hidden(prior, 4.0, missing)
        row = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None]).row(
            0, named=True
        )
        assert row["n_missing"] == pytest.approx(n_missing, rel=0.15)
        assert row["low"] <= n_missing <= row["high"]
        assert n_missing <= row["upper_bound"]
        assert (row["method"], row["reason"]) == ("shapes", None)

    @pytest.mark.parametrize("n_implicit", [30, 31, 60])
    def test_few_implicit_labels(self, n_implicit: int) -> None:
        states = np.zeros((n_implicit + 40, 1), np.int8)
        states[:40] = 1
        scores = np.random.default_rng(0).normal(size=states.shape)
        found = count_missing(LabelSet.from_dense(states), scores)
        assert 0 <= found["low"][0] <= found["n_missing"][0] <= found["high"][0]

    def test_nothing_missing(self) -> None:
        states, scores, _ = hidden(0.05, 4.0, 0.0)
        row = count_missing(LabelSet.from_dense(states[:, None]), scores[:, None]).row(
            0, named=True
        )
        assert row["n_missing"] < 0.05 * row["n_positives"]

    def test_not_estimable_is_said_plainly(self) -> None:
        rng = np.random.default_rng(0)
        states = np.zeros((2_000, 4), np.int8)
        states[:29, 0] = 1  # too few
        states[:, 1] = 1  # nobody was left out
        states[:100, 2] = 1
        scores = rng.normal(size=states.shape)
        scores[:, 2] = np.nan
        found = count_missing(LabelSet.from_dense(states), scores)
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
        blind = count_missing(LabelSet.from_dense(states), scores)["n_missing"][0]
        states[asked & is_alike] = -1
        told = count_missing(LabelSet.from_dense(states), scores)
        assert blind > 2 * n_missing
        assert told["n_missing"][0] == pytest.approx(n_missing, rel=0.25)
        assert told["method"][0] == "negatives"

    def test_same_seed_same_interval(self) -> None:
        states, scores, _ = hidden(0.02, 3.0, 0.5, n_clips=10_000)
        labels = LabelSet.from_dense(states[:, None])
        once, again, other = (count_missing(labels, scores[:, None], seed) for seed in (1, 1, 2))
        assert once.equals(again)
        assert not once.equals(other)

    def test_scale_of_the_scores_does_not_matter(self) -> None:
        states, scores, _ = hidden(0.05, 3.0, 0.5)
        labels = LabelSet.from_dense(states[:, None])
        plain, scaled = (count_missing(labels, s[:, None]) for s in (scores, 8 * scores + 32))
        assert scaled["n_missing"][0] == pytest.approx(plain["n_missing"][0], rel=1e-3)

    def test_empty(self) -> None:
        assert len(count_missing(LabelSet.from_dense(np.zeros((5, 0), int)), np.zeros((5, 0)))) == 0
        found = count_missing(LabelSet.from_dense(np.zeros((0, 2), int)), np.zeros((0, 2)))
        assert found["n_missing"].null_count() == 2


class TestUpperBound:
    def test_twin(self) -> None:
        states, scores, n_missing = hidden(0.05, 3.0, 0.5, n_clips=5_000)
        labels = LabelSet.from_dense(states[:, None])
        found = count_missing(labels, scores[:, None])["upper_bound"][0]
        positives, implicit = np.sort(scores[states == 1]), scores[states == 0]
        n = len(positives)
        bounds = []
        for cut in np.quantile(positives, np.arange(0.1, 0.95, 0.1)):
            n_high, n_implicit = (positives >= cut).sum(), (implicit >= cut).sum()
            share = beta.ppf(0.05 / 9, n_high, n - n_high + 1)
            bounds.append(chi2.ppf(1 - 0.05 / 9, 2 * (n_implicit + 1)) / 2 / share)
        assert found == pytest.approx(min(bounds), rel=0.05)  # the bins move the cuts a little
        assert found > n_missing


class TestHistograms:
    def test_counts_add_up(self) -> None:
        rng = np.random.default_rng(0)
        states = rng.choice(np.array([0, 0, 1, -1], np.int8), size=(12_000, 3))
        scores = rng.normal(size=states.shape).astype(np.float32)
        labels = LabelSet.from_dense(states)
        found = score_histograms(labels, scores)
        assert found.implicit.sum(axis=1) == pytest.approx(labels.n_implicit)
        assert found.positives.sum(axis=1).tolist() == labels.n_positives.tolist()
        assert found.negatives.sum(axis=1).tolist() == labels.n_negatives.tolist()

    def test_high_scores_are_exact_and_low_ones_close(self) -> None:
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(30_000, 1)).astype(np.float32)
        labels = LabelSet.from_dense(np.zeros(scores.shape, int))
        found = score_histograms(labels, scores)
        places = ((scores[:, 0] - found.low[0]) / found.width[0]).astype(int).clip(0, 127)
        exact = np.bincount(places, minlength=128)
        tail = exact[::-1].cumsum()[::-1] < 2_500  # within the highest tenth, which is kept
        # exact but for what lies in a fine bin that straddles an edge
        assert np.abs(found.implicit[0, tail] - exact[tail]).sum() < 0.02 * exact[tail].sum()
        assert np.abs(found.implicit[0] - exact).sum() < 0.2 * exact.sum()

    def test_summary_of_an_earlier_pass_can_be_used(self) -> None:
        states, scores, n_missing = hidden(0.02, 4.0, 0.5)
        labels = LabelSet.from_dense(states[:, None])
        summary = top_scores(labels, scores[:, None], np.array([[600]]))
        found = estimate_missing(labels, scores[:, None], summary=summary, n_resamples=0)
        assert found.table["n_missing"][0] == pytest.approx(n_missing, rel=0.25)
        assert found.table["low"][0] is None


class TestChance:
    def test_rises_and_adds_up_to_the_count(self) -> None:
        states, scores, n_missing = hidden(0.05, 3.5, 0.5)
        found = estimate_missing(
            LabelSet.from_dense(states[:, None]), scores[:, None], n_resamples=0
        )
        implicit = np.sort(scores[states == 0])
        chances = found.chance(np.zeros(len(implicit), int), implicit)
        assert (np.diff(chances) >= 0).all()
        assert 0 <= chances.min() <= chances.max() <= 1
        assert chances.sum() == pytest.approx(n_missing, rel=0.15)

    def test_score_at_inverts_chance(self) -> None:
        states, scores, _ = hidden(0.05, 3.5, 0.5)
        found = estimate_missing(
            LabelSet.from_dense(states[:, None]), scores[:, None], n_resamples=0
        )
        for chance in (0.1, 0.5, 0.9):
            assert found.chance(np.array([0]), found.score_at(chance))[0] == pytest.approx(chance)
        assert found.score_at(1.5).tolist() == [np.inf]


def test_table_has_one_row_per_class_in_order() -> None:
    labels = LabelSet.from_dense(np.zeros((3, 2), int), class_ids=["b", "a"])
    found = count_missing(labels, np.zeros((3, 2)))
    assert found["class_id"].to_list() == ["b", "a"]
    assert found["n_implicit"].dtype == pl.Int64
