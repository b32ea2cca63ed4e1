"""Intervals of what the random sample of a queue that learns says."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.review import Cells, score_ends

SIZES = np.array([500.0, 4_000.0, 40_000.0, 400_000.0])
LOG_ODDS = np.array([1.0, -2.0, -5.0, -9.0])


def cells(n_heard: list[int], n_present: list[int]) -> Cells:
    return Cells(SIZES, np.array(n_heard, float), np.array(n_present, float), LOG_ODDS)


def middle_of(heard: Cells) -> float:
    return float(heard.n_present @ (heard.n_labels / heard.n_heard))


@pytest.mark.parametrize("n_heard", [(6, 10, 12, 12), (20, 30, 40, 40)])
@pytest.mark.parametrize("slope", [0.9, 0.6, 0.45])
def test_the_interval_holds_as_often_as_it_says(n_heard: tuple[int, ...], slope: float) -> None:
    rng = np.random.default_rng(7)
    share = 1 / (1 + np.exp(-slope * LOG_ODDS))
    n_missing = SIZES @ share
    held = []
    for present in rng.binomial(n_heard, share, (300, len(SIZES))):
        heard = cells(list(n_heard), present.tolist())
        low, high = score_ends(heard, middle_of(heard))
        held.append(low <= n_missing <= high)
    assert np.mean(held) >= 0.88


def test_more_answers_narrow_it() -> None:
    few, many = cells([6, 10, 12, 12], [4, 2, 1, 0]), cells([60, 100, 120, 120], [40, 20, 10, 0])
    low, high = score_ends(few, middle_of(few))
    lower, higher = score_ends(many, middle_of(many))
    assert low < lower < middle_of(many) < higher < high


def test_nothing_heard_to_be_there_leaves_what_the_sample_could_have_missed() -> None:
    none = cells([6, 10, 12, 12], [0, 0, 0, 0])
    low, high = score_ends(none, 0.0)
    assert low == 0
    assert 3_000 < high < 100_000


def test_a_surprise_in_the_largest_stratum_moves_the_upper_end_far() -> None:
    plain, surprised = cells([6, 10, 12, 12], [5, 2, 0, 0]), cells([6, 10, 12, 12], [5, 2, 0, 1])
    _, high = score_ends(plain, middle_of(plain))
    low, higher = score_ends(surprised, middle_of(surprised))
    assert higher > high + 20_000
    assert low < middle_of(surprised) / 4, "one answer alone proves little"


def test_labels_heard_in_full_leave_no_doubt() -> None:
    sizes = np.array([20.0, 30.0])
    every = Cells(sizes, sizes, np.array([10.0, 3.0]), np.array([0.0, -2.0]))
    low, high = score_ends(every, 13.0)
    assert low == pytest.approx(13, abs=0.5)
    assert high == pytest.approx(13, abs=0.5)


def test_shares_are_those_of_all_labels() -> None:
    heard = cells([6, 10, 12, 12], [5, 2, 0, 0])
    assert heard.n_labels @ heard.shares() == pytest.approx(1)
    assert (np.diff(heard.shares()) < 0).all()
