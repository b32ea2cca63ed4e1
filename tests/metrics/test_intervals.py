from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.metrics import (
    Draws,
    bootstrap,
    evaluate,
    holm,
    intervals,
    p_value,
    stratified,
    wilson_interval,
    with_seeds,
)

HUGE = 10**9


def test_resamples_draw_as_many_clips_as_there_are() -> None:
    weights = intervals.resample_weights(50, 20, seed=3)
    assert weights.shape == (20, 50)
    assert (weights.sum(axis=1) == 50).all()
    np.testing.assert_array_equal(weights, intervals.resample_weights(50, 20, seed=3))
    np.testing.assert_array_equal(weights[:5], intervals.resample_weights(50, 5, seed=3))
    assert (weights != intervals.resample_weights(50, 20, seed=4)).any()
    with pytest.raises(EarmarkError, match="no clips"):
        intervals.resample_weights(0, 20, seed=3)


def test_the_interval_stands_around_the_value_with_the_spread_of_what_was_measured() -> None:
    resamples = np.concatenate([np.arange(101.0), [np.nan]])  # their mean is 50
    assert intervals.interval(40.0, resamples) == pytest.approx((40 - 45, 40 + 45))
    assert Draws(40.0, resamples).interval(0.5) == pytest.approx((40, 40 - 25, 40 + 25))
    assert np.isnan(intervals.interval(1.0, [np.nan])).all()
    with pytest.raises(EarmarkError, match="between 0 and 1"):
        intervals.interval(40.0, resamples, level=90)


def test_one_run_is_taken_as_it_is() -> None:
    run = Draws(2.0, np.array([1.0, 2.0, 3.0]))
    joined = with_seeds([run])
    assert joined.value == 2.0
    np.testing.assert_array_equal(joined.resamples, run.resamples)


def test_runs_that_differ_widen_the_interval_and_runs_that_agree_do_not() -> None:
    clips = np.random.default_rng(0).normal(0, 0.01, 500)
    agreeing = with_seeds([Draws(1.0, 1.0 + clips)] * 3)
    np.testing.assert_allclose(agreeing.resamples, 1.0 + clips)
    differing = with_seeds([Draws(value, value + clips) for value in (0.9, 1.0, 1.1)])
    assert differing.value == pytest.approx(1.0)
    low, high = differing.interval()[1:]
    # Student's t with 2 degrees of freedom: 2.92 * 0.1 / sqrt(3), and chance in the draws.
    assert (high - low) / 2 == pytest.approx(2.92 * 0.1 / np.sqrt(3), rel=0.2)


def test_a_paired_difference_knows_nothing_of_what_is_shared() -> None:
    shared = np.random.default_rng(1).normal(0, 1, 300)
    difference = Draws(3.0, 3 + shared) - Draws(1.0, 1 + shared)
    assert difference.interval() == pytest.approx((2, 2, 2))


def test_p_values_by_hand() -> None:
    assert p_value(Draws(2.0, np.array([1.0, 2.0, 3.0, 4.5]))) == pytest.approx(2 / 5)
    assert p_value(Draws(0.0, np.zeros(9))) == 1
    assert p_value(Draws(5.0, np.full(999, 5.1))) == pytest.approx(0.001)
    assert np.isnan(p_value(Draws(np.nan, np.full(9, np.nan))))


def test_p_values_of_nothing_are_spread_evenly() -> None:
    random = np.random.default_rng(2)
    found = []
    for _ in range(400):
        sample = random.normal(size=30)
        chosen = random.integers(30, size=(199, 30))
        found.append(p_value(Draws(float(sample.mean()), sample[chosen].mean(axis=1))))
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.05)


def slow_holm(p_values: list[float]) -> list[float]:
    """A hypothesis is rejected at a level if it and all with smaller p-values are."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    for rank, place in enumerate(order):
        steps = [(len(order) - r) * p_values[order[r]] for r in range(rank + 1)]
        corrected[place] = min(max(steps), 1.0)
    return corrected


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_steps_down(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(slow_holm(p_values))


def test_holm_does_not_count_what_was_not_measured() -> None:
    assert holm([0.02, np.nan, 0.5]) == pytest.approx([0.04, np.nan, 0.5], nan_ok=True)


def test_over_classes_resamples_classes() -> None:
    found = intervals.over_classes([1.0, np.nan, 3.0], 4_000)
    assert found.value == 2.0
    assert sorted(np.unique(found.resamples)) == [1, 2, 3]
    assert found.resamples.mean() == pytest.approx(2, abs=0.05)
    assert np.isnan(intervals.over_classes([np.nan], 10).value)


PRIORS = np.geomspace(0.1, 0.3, 3)


def simulated(
    n_clips: int, random: np.random.Generator, gain: float = 0.2
) -> tuple[np.ndarray, ...]:
    """States, and the scores of a baseline and of a student that separates a little better."""
    is_positive = random.random((n_clips, 3)) < PRIORS
    states = np.where(is_positive, 1, np.where(random.random((n_clips, 3)) < 0.3, -1, 0))
    shared = random.normal(size=(n_clips, 3))
    own = random.normal(size=(n_clips, 3))
    better = 0.9 * shared + 0.44 * own + (1.5 + gain) * is_positive
    return states.astype(np.int8), shared + 1.5 * is_positive, better


@pytest.fixture(scope="module")
def coverage() -> dict[str, tuple[float, float]]:
    """How often 90 % intervals of value and paired gain hold the population's, by metric."""
    states, baseline, better = simulated(100_000, np.random.default_rng(0))
    truth = [evaluate(states, scores).overall for scores in (baseline, better)]
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for seed in range(150):
        states, *students = simulated(800, np.random.default_rng(100 + seed))
        weights = intervals.resample_weights(800, 200, seed)
        for metric, (value, gain) in _intervals(states, students, weights).items():
            true_gain = truth[1][metric] - truth[0][metric]
            is_hit = (
                value.low <= truth[0][metric] <= value.high,
                gain.low <= true_gain <= gain.high,
            )
            hits.setdefault(metric, []).append(is_hit)
    return {metric: tuple(np.mean(found, axis=0)) for metric, found in hits.items()}


def _intervals(states, students, weights):
    overall = [evaluate(states, scores).overall for scores in students]
    resamples = [bootstrap(states, scores, weights) for scores in students]
    found = {}
    for metric in resamples[0]:
        baseline, better = (
            Draws(overall[i][metric], resamples[i][metric]) for i in range(len(students))
        )
        found[metric] = (baseline.interval(), (better - baseline).interval())
    return found


@pytest.mark.parametrize("metric", ["d_prime_explicit", "d_prime_all", "lwlrap", "map"])
def test_intervals_over_clips_cover_what_they_promise(coverage, metric: str) -> None:
    of_value, of_gain = coverage[metric]
    # 150 samples know a coverage of 0.9 to +- 0.05; seeds are fixed.
    assert 0.84 <= of_value <= 0.96
    assert 0.84 <= of_gain <= 0.96


@pytest.mark.parametrize(("between", "n_seeds"), [(0.0, 3), (0.02, 3), (0.2, 3), (0.05, 5)])
def test_intervals_over_clips_and_seeds_cover_what_they_promise(
    between: float, n_seeds: int
) -> None:
    n_clips, n_hits = 100, 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        effects = random.normal(0, between, n_seeds)
        shared = random.normal(0, 0.3, n_clips)
        clips = shared + random.normal(0, 0.2, (n_seeds, n_clips)) + effects[:, None]
        weights = intervals.resample_weights(n_clips, 200, seed) / n_clips
        runs = [Draws(float(own.mean()), weights @ own) for own in clips]
        low, high = with_seeds(runs, seed).interval()[1:]
        n_hits += low <= 0 <= high
    assert 0.85 <= n_hits / 400 <= 0.95


def test_seeds_that_agree_by_chance_prove_nothing_where_others_stray() -> None:
    """Four lines of three seeds without any effect: as many are called sure as should be."""
    n_clips, n_lines, p_alone, p_alike = 100, 4, [], []
    for seed in range(300):
        random = np.random.default_rng(seed)
        weights = intervals.resample_weights(n_clips, 500, seed) / n_clips
        lines = []
        for _ in range(n_lines):
            effects = random.normal(0, 0.02, 3)
            clips = random.normal(0, 0.2, (3, n_clips)) + effects[:, None]
            lines.append([Draws(float(own.mean()), weights @ own) for own in clips])
        p_alone += [intervals.p_value(with_seeds(one, seed)) for one in lines]
        p_alike += [intervals.p_value(with_seeds(one, seed, alike=lines)) for one in lines]
    sure = [np.mean(np.array(p) < 0.01) for p in (p_alone, p_alike)]
    assert sure[1] < 0.02, sure
    assert 0.85 <= np.mean(np.array(p_alike) > 0.1) <= 0.95


def test_runs_that_stray_alike_share_their_variance() -> None:
    still = np.zeros(50_000)
    agree, stray = ([Draws(value, still + value) for value in own] for own in ([1] * 3, [0, 1, 2]))
    shared = with_seeds(agree, alike=[agree, stray]).resamples
    # Variance 0 and 1, each with two degrees of freedom: 1/2 of the mean of three, t with four.
    expected = np.sqrt(0.5 / 3 * 4 / (4 - 2))
    assert shared.std() == pytest.approx(expected, rel=0.1)
    assert with_seeds(agree).resamples.std() == 0


def test_one_large_cell_has_wilsons_interval() -> None:
    for n_present, n in ((8, 10), (20, 25), (160, 200), (0, 7), (7, 7)):
        value, low, high = (ends[0] for ends in stratified([n_present], [n], [HUGE]))
        assert value == n_present / n
        assert np.allclose([low, high], wilson_interval(n_present, n, 0.95), atol=1e-6)


def test_cells_weigh_by_their_sizes() -> None:
    # Worked by hand: 1/4 of the labels at 1.0, 3/4 at 0.5.
    value, low, high = (ends[0] for ends in stratified([4, 2], [4, 4], [100, 300]))
    assert value == pytest.approx(0.625)
    assert low < 0.625 < high


def test_a_cell_heard_in_full_is_known() -> None:
    value, low, high = (ends[0] for ends in stratified([3, 0], [5, 1], [5, 1]))
    assert value == low == high == pytest.approx(0.5)


def test_the_variance_is_the_textbooks_where_cells_are_alike() -> None:
    """Cells of one share and sampling fraction are one large sample."""
    together = stratified([40], [50], [HUGE])
    apart = stratified([8] * 5, [10] * 5, [HUGE // 5] * 5)
    assert np.allclose(together, apart, atol=1e-6)


def test_groups_are_estimated_each_by_itself() -> None:
    n_present, n_judged, n_labels = np.array([[3, 1, 0, 2], [4, 4, 0, 4], [50, 60, 70, 80]])
    groups = np.array([0, 1, 2, 1])
    together = stratified(n_present, n_judged, n_labels, groups)
    for group in range(3):
        own = groups == group
        alone = stratified(n_present[own], n_judged[own], n_labels[own])
        for ends, expected in zip(together, alone, strict=True):
            assert np.array_equal(ends[[group]], expected, equal_nan=True)
    assert np.isnan(together.value[2])
    assert (together.low[2], together.high[2]) == (0, 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 1000)),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_an_interval_holds_its_estimate(cells: list[tuple[int, int, int]]) -> None:
    n_present, n_absent, n_more = np.array(cells).T
    n_judged = n_present + n_absent
    value, low, high = (ends[0] for ends in stratified(n_present, n_judged, n_judged + n_more))
    if n_judged.any():
        assert -1e-9 <= low <= value + 1e-9
        assert value - 1e-9 <= high <= 1 + 1e-9
    else:
        assert np.isnan(value)
