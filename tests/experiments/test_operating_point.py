from __future__ import annotations

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.experiments.operating_point import best_point, mildest_within_one_error
from earmark.metrics.intervals import Draws
from made_up import CURVE, RESULTS, make_results


def test_best_point_is_the_best_mean_over_seeds_on_tune() -> None:
    assert best_point(RESULTS, "lwlrap") == 2.0
    assert best_point(RESULTS, "lwlrap", split="eval") == 1.0


def test_best_point_prefers_the_smaller_of_a_tie_and_skips_undefined_values() -> None:
    tied = make_results({0.0: 0.4, 2.0: 0.5, 1.0: 0.5, 5.0: float("nan")}, CURVE)
    assert best_point(tied, "lwlrap") == 1.0


def test_best_point_ignores_the_random_control() -> None:
    results = make_results(CURVE, CURVE, random={2.0: 0.9})
    assert best_point(results, "lwlrap", split="eval") == 1.0


def test_best_point_without_tune_clips_says_so() -> None:
    with pytest.raises(EarmarkError, match="'tune'"):
        best_point(RESULTS.filter(split="eval"), "lwlrap")


def test_the_mildest_point_within_one_error_is_chosen() -> None:
    noise = np.random.default_rng(3).normal(size=2_000)
    wobble = np.random.default_rng(4).normal(size=2_000)
    best = Draws(0.50, 0.50 + noise)
    near = Draws(0.49, 0.49 + noise + 0.02 * wobble)  # 0.01 away, one error is 0.02
    far = Draws(0.45, 0.45 + noise + 0.02 * wobble)
    assert mildest_within_one_error({0.0: far, 1.0: near, 2.0: best, 3.0: far}) == 1.0
    assert mildest_within_one_error({0.0: far, 2.0: best, 3.0: near}) == 2.0
    nothing = Draws(float("nan"), np.full(5, np.nan))
    assert mildest_within_one_error({None: nothing, 1.0: far}) == 1.0
    with pytest.raises(EarmarkError, match="could be measured"):
        mildest_within_one_error({0.0: nothing})
