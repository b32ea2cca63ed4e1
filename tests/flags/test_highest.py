from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import earmark.flags.chances.clues
import earmark.flags.chances.highest
import earmark.flags.policies
from earmark.flags import SAMPLED_CLIPS, Chances, count_missing, reach_after, survey
from earmark.labels import LabelSet, Ontology

NAMES = tuple(f"c{number}" for number in range(12))
TREE = Ontology(NAMES, {"c0": ("c4",), "c1": ("c4",), "c4": ("c8",), "c2": ("c9",)})


def made(seed: int, n_clips: int = 6_000, step: float = 0.0) -> tuple[LabelSet, np.ndarray]:
    """Return labels of which some are missing, with scores; in steps there are many equal ones."""
    rng = np.random.default_rng(seed)
    present = rng.random((n_clips, len(NAMES))) < rng.uniform(0.05, 0.3, len(NAMES))
    present[:, 4] |= present[:, 0] | present[:, 1]
    scores = rng.normal(3 * present, 1).astype(np.float32)
    if step:
        scores = np.float32(step) * (scores / step).round()
    states = np.where(present & (rng.random(present.shape) < 0.6), 1, 0)
    states[(rng.random(present.shape) < 0.02) & ~present] = -1
    states[:, -1] = 0  # a class without positives has no chances
    return LabelSet.from_dense(states, class_ids=NAMES), scores


def both_ways(
    monkeypatch: pytest.MonkeyPatch, labels: LabelSet, scores: np.ndarray, **options: Any
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the flags of a budget as they are found, and by a pass over all chances.

    Where nothing is listed, nothing is found by lists; what else is found stays the same.
    """
    found = survey(labels, scores, policy="budget", **options)
    with monkeypatch.context() as patched:
        patched.setattr(earmark.flags.policies, "LISTED_FOR_A_BUDGET", 0)
        patched.setattr(earmark.flags.policies, "_among_highest", lambda *_: None)
        by_pass = survey(labels, scores, policy="budget", **options)
    assert found.counts is not None
    assert by_pass.counts is not None
    assert_frame_equal(found.counts.table, by_pass.counts.table, check_exact=True)
    assert np.array_equal(found.thresholds.values, by_pass.thresholds.values)
    return found.flags, by_pass.flags


@pytest.mark.parametrize("ontology", [None, TREE])
@pytest.mark.parametrize("step", [0.0, 0.01, 0.25])
@pytest.mark.parametrize("n_flags", [None, 1, 300, 5_000])
@pytest.mark.parametrize("n_listed", [30, 2_000])
def test_a_budget_is_the_same_as_by_a_pass_over_all_chances(
    ontology: Ontology | None,
    step: float,
    n_flags: int | None,
    n_listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(earmark.flags.policies, "LISTED_FOR_A_BUDGET", n_listed)
    for seed in range(3):
        found, by_pass = both_ways(
            monkeypatch, *made(seed, step=step), n_flags=n_flags, ontology=ontology
        )
        assert_frame_equal(found, by_pass, check_exact=True)
        assert len(found) == n_flags or n_flags is None


@pytest.mark.parametrize("ontology", [None, TREE])
@pytest.mark.parametrize("n_flags", [None, 1, 1_000])
def test_a_budget_takes_no_pass_over_all_chances(
    ontology: Ontology | None, n_flags: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, scores = made(0)

    def refuse(_: Chances) -> None:
        raise AssertionError("a pass over all chances")

    monkeypatch.setattr(Chances, "sums", property(refuse))
    chosen = survey(labels, scores, policy="budget", n_flags=n_flags, ontology=ontology).flags
    assert len(chosen) == (n_flags or 1_000)
    with pytest.raises(AssertionError, match="a pass"):
        survey(labels, scores, policy="budget", n_flags=n_flags, balance=1.0)


def test_few_missing_labels_and_many_raised_ones_are_the_same_as_by_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = made(5, n_clips=400)
    found, by_pass = both_ways(monkeypatch, *few)
    assert_frame_equal(found, by_pass, check_exact=True)
    assert 0 < len(found) < 1_000
    monkeypatch.setattr(earmark.flags.chances.highest, "MOST_RAISED", 10)
    assert_frame_equal(*both_ways(monkeypatch, *made(6), ontology=TREE), check_exact=True)


def test_a_class_whose_scores_share_a_bin_is_the_same_as_by_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels, scores = made(7)
    scores[:, 3] = 2.0
    found, by_pass = both_ways(monkeypatch, labels, scores, n_flags=500)
    assert_frame_equal(found, by_pass, check_exact=True)
    for unscored in (3, 4):  # 4 is above others that are labelled
        scores[:, unscored] = np.nan
        found, by_pass = both_ways(monkeypatch, labels, scores, n_flags=500, ontology=TREE)
        assert_frame_equal(found, by_pass, check_exact=True)
        assert f"c{unscored}" not in found["class_id"]


@pytest.mark.parametrize("n_clips", [60, 500, 2_000])
def test_lists_change_nothing_where_clips_are_few(
    n_clips: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        for ontology in (None, TREE):
            few = made(seed, n_clips=n_clips)
            found, by_pass = both_ways(monkeypatch, *few, n_flags=3, ontology=ontology)
            assert_frame_equal(found, by_pass, check_exact=True)


def test_as_many_are_flagged_as_are_asked_for_however_unlikely() -> None:
    rng = np.random.default_rng(0)
    present = rng.random((600, 3)) < 0.1
    scores = rng.normal(5 * present, 1).astype(np.float32)
    labels = LabelSet.from_dense(np.where(present & (rng.random(present.shape) < 0.9), 1, 0))
    n_implicit = int(labels.n_implicit.sum())
    for n_flags in (10, n_implicit - 20, n_implicit, n_implicit + 5):
        flags = survey(labels, scores, policy="budget", n_flags=n_flags).flags
        assert len(flags) == min(n_flags, n_implicit)


def test_the_clue_of_single_labels_is_that_of_blocks_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels, scores = made(8)
    scores[0] = [-3e38, 3e38, -60, 60, 0, -0.0, 1e-30, 5, 4, 3, 2, 1]
    clues = count_missing(labels, scores, ontology=TREE).chances.clues
    expected = clues.of(slice(None), scores, 1)[:, :, 0]
    columns = np.tile(np.arange(len(NAMES)), len(scores))
    found = clues.first(columns, scores.ravel()).reshape(scores.shape)
    is_raised = np.zeros(scores.shape, bool)
    starts, above = clues.raised
    is_raised[np.repeat(np.arange(labels.n_clips), np.diff(starts)), above] = True
    assert is_raised.sum() == starts[-1] == len(above)
    is_implicit = labels.states() == 0
    below = np.stack(
        [(labels.states()[:, own] > 0).any(axis=1) for own in ([0, 1], [0, 1, 4], [2])], axis=1
    )
    assert np.array_equal(is_raised[:, [4, 8, 9]], below & is_implicit[:, [4, 8, 9]])
    assert np.array_equal(found[~is_raised & is_implicit], expected[~is_raised & is_implicit], True)
    raised = clues.first(columns, scores.ravel(), is_raised=True).reshape(scores.shape)
    assert is_raised.sum() == is_raised[:, [4, 8, 9]].sum() > 1_000
    assert np.array_equal(raised[is_raised], expected[is_raised])
    assert clues.highest_raised >= raised[is_raised].max()
    monkeypatch.setattr(earmark.flags.chances.clues, "CLIPS_AT_ONCE", 999)
    again = count_missing(labels, scores, ontology=TREE).chances.clues.raised
    assert all(map(np.array_equal, again, clues.raised))


@pytest.mark.parametrize("ontology", [None, TREE])
def test_chances_of_labels_with_known_scores_are_the_same(ontology: Ontology | None) -> None:
    labels, scores = made(9)
    chances = count_missing(labels, scores, ontology=ontology).chances
    rows, columns = np.nonzero(labels.states() == 0)
    found = chances.of_scored(rows, columns, scores[rows, columns])
    assert np.array_equal(found, chances.at(rows, columns), True)
    few = np.random.default_rng(0).choice(len(rows), 20, replace=False)
    assert np.array_equal(found[few], chances.at(rows[few], columns[few]), True)


def test_how_sure_answers_would_be_is_told_where_implicit_labels_are_rare() -> None:
    labels, scores = made(10)
    usual = count_missing(labels, scores).chances
    states = labels.states()
    drawn = usual.scores.sample_rows(SAMPLED_CLIPS)
    states[drawn] = np.where(states[drawn] == 0, -1, states[drawn])
    rare = count_missing(LabelSet.from_dense(states), scores).chances
    assert not rare.counts_of_some(SAMPLED_CLIPS).any()
    assert 0 < reach_after(rare, 200) < 2 * reach_after(usual, 200)
