"""What the random sample of a queue that grows says of totals and of the flags."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from earmark.labels import Ontology
from earmark.review import (
    JudgedLabels,
    Population,
    estimate,
    find_population,
    learn_from,
)
from earmark.review import candidates as candidates_module
from tests.review.test_queue import FIND, LABELS, PRESENT, SCORES, population, simulate

__all__ = ["population"]


def nothing_judged() -> JudgedLabels:
    none = np.empty(0)
    return JudgedLabels(none.astype(np.int64), none, none, none)


def test_without_answers_flags_have_a_range_and_there_is_no_total(population: Population) -> None:
    known = estimate(population.with_flags(population.names.head(300)), nothing_judged())
    assert known.n_flags == known.n_left == 300
    assert known.total is None
    assert known.n_right.low < known.n_right.value < known.n_right.high


def test_flags_that_are_no_candidates_leave_their_number_open(population: Population) -> None:
    others = population.names.head(3).with_columns(
        clip_id=population.names["clip_id"].head(3) + "x"
    )
    known = estimate(population.with_flags(others), nothing_judged())
    assert (known.n_flags, known.n_left, known.n_right) == (3, 3, None)


@pytest.mark.parametrize("is_by_model", [True, False], ids=["by p_missing", "against it"])
def test_intervals_cover_the_truth_whatever_the_model_chooses(
    population: Population, is_by_model: bool
) -> None:
    """Over 40 samples; 90 % intervals."""
    said = [simulate(population, 100 + s, 15, 0.3, is_by_model) for s in range(40)]
    of_total = [g.estimates.total.low <= n <= g.estimates.total.high for g, n, _ in said]
    of_flags = [
        g.estimates.n_right.low <= right <= g.estimates.n_right.high for g, _, right in said
    ]
    assert np.mean(of_total) >= 0.8
    # Few of the random answers are about flags, so the model speaks of them: it has to be asked.
    assert not is_by_model or np.mean(of_flags) >= 0.75
    off = [(g.estimates.total.value - n) / n for g, n, _ in said]
    assert abs(np.mean(off)) < 3 * np.std(off) / np.sqrt(40)


def test_a_total_is_never_below_what_is_confirmed_and_its_classes_add_up(
    population: Population,
) -> None:
    for seed in range(5):
        gains, _, _ = simulate(population, seed, 12, 0.2, is_by_model=True)
        known = gains.estimates
        assert known.total.low >= known.n_confirmed
        assert sum(known.class_totals.values()) == pytest.approx(known.total.value)
        assert set(known.class_totals) == set(LABELS.class_ids)
        n_others = known.n_confirmed - gains.curve[-1][1]
        assert all(found + n_others <= known.total.high + 0.5 for _, found in gains.forecast)


def test_turns_come_with_the_probabilities_that_are_stated(population: Population) -> None:
    own = population.candidates
    wanted = own.probabilities(200)
    assert wanted.sum() == pytest.approx(200)
    drawn = np.zeros(len(own))
    for seed in range(300):
        lots = np.random.default_rng(seed).random(len(own))
        drawn[candidates_module._sequence(own.sizes, lots)[:200]] += 1
    groups = np.array_split(np.argsort(wanted), 10)
    for group in groups:
        assert drawn[group].mean() / 300 == pytest.approx(wanted[group].mean(), rel=0.1)


def test_many_labels_are_represented_by_the_likeliest_and_some_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates_module, "N_OTHERS", 1_000)
    defaults = candidates_module.find_candidates.__defaults__
    monkeypatch.setattr(candidates_module.find_candidates, "__defaults__", (*defaults[:-1], 500))
    found = find_population(LABELS, SCORES, Ontology(LABELS.class_ids), FIND)
    own = found.candidates
    assert own.n_labels == LABELS.n_implicit.sum()
    assert (own.weights == 1).sum() == 500
    assert (own.weights > 1).sum() == 1_000
    states = LABELS.states()
    assert (states[own.rows, own.columns] == 0).all()
    assert len(np.unique(own.rows * 100 + own.columns)) == len(own)
    likely = own.p_missing(own.given.model)[own.weights == 1].min()
    assert likely >= own.p_missing(own.given.model)[own.weights > 1].max() - 1e-6
    expected = (own.weights * PRESENT[own.rows, own.columns]).sum()
    n_missing = (PRESENT & (states == 0)).sum()
    assert expected == pytest.approx(n_missing, rel=0.3)


def test_candidates_are_the_same_when_read_again(population: Population, tmp_path) -> None:
    population.candidates.write(tmp_path / "c.npz")
    again = type(population.candidates).read(tmp_path / "c.npz")
    for name in ("rows", "columns", "features", "weights", "sample", "worth"):
        assert np.array_equal(getattr(again, name), getattr(population.candidates, name))
    p = population.candidates.p_missing(population.candidates.given.model)
    assert np.array_equal(again.p_missing(again.given.model), p)


def test_few_answers_change_nothing_and_twenty_do(population: Population) -> None:
    own = population.candidates
    places = np.arange(20)
    none = np.full(20, np.nan)
    judged = JudgedLabels(places, np.zeros(20), none, none)
    few = replace(judged, places=places[:19], present=np.zeros(19))
    assert learn_from(own, few) is own.given.model
    assert (
        own.p_missing(learn_from(own, judged))[:20].mean()
        < 0.8 * own.p_missing(own.given.model)[:20].mean()
    )
