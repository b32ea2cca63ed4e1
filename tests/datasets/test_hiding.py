from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.config import HidingParams
from earmark.datasets import hide, n_missing, recalls
from earmark.datasets.simulate import hiding
from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology

FLAT = Ontology(())


def random_truth(n_clips: int, n_classes: int, share: float = 0.2, seed: int = 0) -> LabelSet:
    draws = np.random.default_rng(seed).random((n_clips, n_classes))
    return LabelSet.from_dense(np.where(draws < share, 1, -1))


@given(
    present=hnp.arrays(bool, st.tuples(st.integers(0, 12), st.integers(1, 8))),
    max_candidates=st.integers(1, 9),
    false_candidates=st.floats(0, 6),
    seed=st.integers(0, 5),
)
def test_explicit_labels_are_true_and_few(present, max_candidates, false_candidates, seed):
    states = np.where(present, 1, -1)
    truth = LabelSet.from_dense(states)
    params = HidingParams(
        max_candidates=max_candidates, false_candidates=false_candidates, seed=seed
    )
    hidden = hide(truth, FLAT, params).states()
    is_explicit = hidden != 0
    assert hidden.shape == states.shape
    assert (hidden[is_explicit] == states[is_explicit]).all()
    assert (is_explicit.sum(axis=1) <= max_candidates).all()


def test_measured_recall_follows_recalls():
    truth = random_truth(20_000, 12, share=0.1)
    params = HidingParams(seed=3)
    hidden = hide(truth, FLAT, params)
    measured = hidden.n_positives / truth.n_positives
    expected = recalls(truth.class_ids, params)
    standard_error = np.sqrt(expected * (1 - expected) / truth.n_positives)
    assert (np.abs(measured - expected) < 4.5 * standard_error).all()
    assert np.ptp(measured) > 0.3


def test_recall_of_a_class_does_not_depend_on_the_others():
    params = HidingParams()
    few, many = recalls(["siren", "bell"], params), recalls(["rain", "bell", "siren"], params)
    assert few.tolist() == [many[2], many[1]]
    assert recalls(["siren"], HidingParams(seed=1)) != few[0]
    assert recalls([], params).shape == (0,)


@pytest.mark.parametrize("range_", [(0.9, 0.3), (-0.1, 0.5), (0.5, 1.5)])
def test_impossible_recall_range_is_refused(range_):
    with pytest.raises(EarmarkError, match=r"recall.range"):
        recalls(["a"], HidingParams.checked(recall_range=range_))


def test_siblings_of_present_classes_are_the_likelier_decoys():
    states = np.full((20_000, 6), -1)
    states[:, 0] = 1
    truth = LabelSet.from_dense(states)
    parents = {"0": ("a",), "1": ("a",), "2": ("a",), "3": ("b",), "4": ("b",)}
    hidden = hide(truth, Ontology(truth.class_ids, parents), HidingParams(sibling_bias=4))
    siblings, others = hidden.n_negatives[1:3].mean(), hidden.n_negatives[3:].mean()
    assert siblings / others == pytest.approx(4, rel=0.1)


def test_crowded_clips_keep_the_present_classes_rather_than_decoys():
    states = np.full((3_000, 200), -1)
    states[:, :4] = 1
    truth = LabelSet.from_dense(states)
    params = HidingParams(recall_range=(0.8, 0.8), false_candidates=10, max_candidates=5)
    hidden = hide(truth, FLAT, params)
    is_crowded = np.diff(hidden.starts) == 5
    kept_recall = hidden.n_positives[:4].sum() / (4 * truth.n_clips)
    random_recall = 0.8 * 5 / (4 * 0.8 + 10)  # five at random among all that were nominated
    assert is_crowded.mean() > 0.9
    assert 1.5 * random_recall < kept_recall < 0.8


def test_same_seed_same_labels_however_chunked(monkeypatch):
    truth = random_truth(300, 20)
    params = HidingParams(max_candidates=3)
    whole = hide(truth, FLAT, params)
    monkeypatch.setattr(hiding, "_CHUNK_CLIPS", 7)
    assert hide(truth, FLAT, params).digest == whole.digest
    assert hide(truth, FLAT, HidingParams(max_candidates=3, seed=1)).digest != whole.digest
    assert n_missing(truth, whole).sum() > 0


def test_missing_labels_are_counted():
    truth = random_truth(60, 7, share=0.4)
    labels = hide(truth, FLAT, HidingParams())
    states, hidden = truth.states(), labels.states()
    assert n_missing(truth, labels).tolist() == ((states == 1) & (hidden == 0)).sum(axis=0).tolist()


def test_label_sets_of_different_clips_are_refused():
    truth, labels = LabelSet.from_dense([[1]], ["x"]), LabelSet.from_dense([[1]], ["y"])
    with pytest.raises(EarmarkError, match="same clips and classes"):
        n_missing(truth, labels)
