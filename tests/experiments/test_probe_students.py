"""Students that are probes: told what a slow twin is told, and paired with their baseline."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.compute import SILENT
from earmark.config import HidingParams
from earmark.experiments import (
    AS_GIVEN,
    JUDGED,
    WAYS,
    DrawResults,
    ProbeData,
    best_on_tune,
    evaluate_draw,
    judged_gain,
    likeliest_labels,
    told_gain,
)
from earmark.labels import LabelSet, Ontology

N_CLIPS, CLASS_IDS = 900, tuple("abcdef")
TREE = Ontology(CLASS_IDS, {}, {}, {})


def first_implicit(labels: LabelSet, scores: np.ndarray, truth: LabelSet, seed: int) -> np.ndarray:
    """Ask about true labels alone: what the best of raters would be asked."""
    is_missing = (labels.states() == 0) & (truth.states() > 0)
    return np.flatnonzero(is_missing)[:40]


@pytest.fixture(scope="module")
def data() -> ProbeData:
    rng = np.random.default_rng(0)
    is_present = rng.random((N_CLIPS, len(CLASS_IDS))) < 0.15
    directions = rng.normal(size=(len(CLASS_IDS), 30))
    features = (is_present @ directions + rng.normal(size=(N_CLIPS, 30))).astype(np.float32)
    states = np.where(is_present, 1, -1).astype(np.int8)
    truth = LabelSet.from_dense(states, map(str, range(N_CLIPS)), CLASS_IDS)
    rows = dict(
        zip(("train", "tune", "eval"), np.split(np.arange(N_CLIPS), [500, 650]), strict=True)
    )
    hiding = HidingParams(recall_range=(0.2, 0.5))
    return ProbeData(features, truth, TREE, rows, hiding, 400, first_implicit)


@pytest.fixture(scope="module")
def draws(data: ProbeData) -> list[DrawResults]:
    meter = SILENT.job("", 1, "")
    return [evaluate_draw(data, seed, meter) for seed in range(2)]


def test_a_draw_is_a_function_of_its_seed(data: ProbeData, draws: list[DrawResults]) -> None:
    again = evaluate_draw(data, 1, SILENT.job("", 1, ""))
    for name, values in again.measured.items():
        np.testing.assert_array_equal(values, draws[1].measured[name])
    assert not np.array_equal(draws[0].measured["lwlrap"], draws[1].measured["lwlrap"])


def test_gains_are_paired_and_mean_over_draws(draws: list[DrawResults]) -> None:
    gain = told_gain(draws, ("mask", 2.0))
    each = [one.draws("lwlrap", ("mask", 2.0)).value for one in draws]
    base = [one.draws("lwlrap", AS_GIVEN).value for one in draws]
    assert gain.gain.value == pytest.approx(np.mean(each) - np.mean(base))
    assert gain.baseline.value == pytest.approx(np.mean(base))
    nothing = told_gain(draws, AS_GIVEN)
    assert tuple(nothing.gain) == tuple(nothing.random) == (0, 0, 0)
    assert set(best_on_tune(draws)) <= {part for way in WAYS for part in way}


def test_answers_that_are_right_help_and_are_counted(draws: list[DrawResults]) -> None:
    found = judged_gain(draws)
    assert (found.n_answers, found.n_found) == (40, 40)
    assert found.n_found_at_random < 15
    assert told_gain(draws, JUDGED).gain.value > 0


def test_flags_are_implicit_and_the_likeliest_come_first() -> None:
    rng = np.random.default_rng(1)
    is_present = rng.random((600, 4)) < 0.2
    scores = (4.0 * is_present - 2 + rng.normal(size=(600, 4))).astype(np.float32)
    states = np.where(is_present & (rng.random((600, 4)) < 0.5), 1, 0)
    labels = LabelSet.from_dense(states, None, tuple("abcd"))
    tree = Ontology(tuple("abcd"), {}, {}, {})
    places = likeliest_labels(labels, scores, tree, 5.0)
    assert len(places) == int(0.05 * (states == 0).sum())
    assert (states.ravel()[places] == 0).all()
    right = is_present.ravel()[places]
    assert right[: len(right) // 2].mean() >= right[len(right) // 2 :].mean()
