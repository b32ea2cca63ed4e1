from __future__ import annotations

import pytest

from earmark.errors import EarmarkError
from earmark.experiments import best_point, choose_point
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


def test_the_best_value_is_chosen_and_the_mildest_of_a_tie() -> None:
    assert choose_point({None: 0.0, 1.0: 0.01, 2.0: 0.02, 3.0: 0.019}) == 2.0
    assert choose_point({None: 0.0, 1.0: 0.0, 2.0: -0.1}) is None
    assert choose_point({None: float("nan"), 1.0: -0.1}) == 1.0
    with pytest.raises(EarmarkError, match="could be measured"):
        choose_point({0.0: float("nan")})
