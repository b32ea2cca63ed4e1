from __future__ import annotations

import numpy as np
import pytest

from earmark.errors import EarmarkError
from earmark.flags import Knowledge, find, flag, gather_evidence
from earmark.labels import LabelSet, Ontology
from earmark.scores import open_scores
from suspects import world


def known(states: np.ndarray, scores: np.ndarray) -> Knowledge:
    return gather_evidence(states, scores).knowledge


@pytest.mark.parametrize(("auc", "level"), [(0.62, "little"), (0.8, "something"), (0.95, "much")])
def test_says_how_much_is_known(auc: float, level: str) -> None:
    states, scores, _ = world(auc)
    found = known(states, scores)
    assert (found.level, found.is_enough) == (level, True)
    assert found.median_auc == pytest.approx(auc, abs=0.03)
    assert f"AUC {found.median_auc:.2f}" in found.told


def test_clips_in_another_order_are_not_known() -> None:
    states, scores, _ = world(0.95)
    found = known(states, np.random.default_rng(1).permutation(scores))
    assert (found.level, found.is_enough) == ("nothing", False)
    assert "do not know your labels; is the order right?" in found.told


def test_classes_in_another_order_are_not_known() -> None:
    states, scores, _ = world(0.95)
    found = known(states, np.roll(scores, 7, axis=1))
    assert found.level == "nothing"


def test_loud_clips_with_many_labels_do_not_hide_an_order_of_classes_that_is_wrong() -> None:
    # where much is labelled, every class scores high: so positives do outscore implicit labels
    rng = np.random.default_rng(0)
    fullness = rng.normal(size=(2_000, 1))
    states = (rng.random((2_000, 30)) < 0.06 * np.exp(fullness)).astype(np.int8)
    scores = rng.normal(size=states.shape) + fullness + 3 * states
    assert known(states, scores).is_enough
    turned = known(states, np.roll(scores, 7, axis=1))
    assert turned.median_auc > 0.6
    assert turned.level == "nothing"
    assert "is the order of the classes right?" in turned.told


@pytest.mark.parametrize("n_positives", [0, 1, 4])
def test_few_positives_leave_it_open(n_positives: int) -> None:
    rng = np.random.default_rng(3)
    states = np.zeros((500, 3), np.int8)
    states[:n_positives, 0] = 1
    found = known(states, rng.normal(size=states.shape))
    assert (found.level, found.is_enough) == ("unclear", False)
    assert f"only {n_positives} scored positive" in found.told


def test_nothing_is_made_of_scores_that_do_not_know_the_labels() -> None:
    states, scores, _ = world(0.95)
    labels, shuffled = LabelSet.from_dense(states), np.random.default_rng(1).permutation(scores)
    flags = flag(labels, shuffled)
    assert flags["chance"].null_count() == len(flags) > 0
    for policy, options in (("precision", {}), ("budget", {"n_flags": 10})):
        with pytest.raises(EarmarkError, match="do not know your labels"):
            flag(labels, shuffled, policy, **options)
    findings = find(labels, open_scores(shuffled, labels), Ontology(labels.class_ids), None, {})
    assert findings.p_missing is None
    assert findings.estimates.n_right is None
    assert set(findings.classes["note"]) == {"the scores do not know the labels"}


def test_a_class_whose_scores_are_wrong_is_named() -> None:
    states, scores, _ = world(0.95, n_clips=4_000, n_classes=10, priors=(0.1, 0.2))
    scores[:, 4] = np.random.default_rng(0).permutation(scores[:, 4])
    labels = LabelSet.from_dense(states)
    findings = find(labels, open_scores(scores, labels), Ontology(labels.class_ids), None, {})
    assert findings.knowledge.is_class_doubtful.nonzero()[0].tolist() == [4]
    (warning,) = findings.warnings
    assert "in 1 of 10 classes the scores do not know the labels" in warning
    assert warning.endswith(": '4'")


def test_the_order_of_clips_does_not_matter() -> None:
    states, scores, _ = world(0.6, n_clips=6_000, n_classes=8)
    order = np.random.default_rng(1).permutation(len(states))
    one, other = known(states, scores), known(states[order], scores[order])
    assert one.told == other.told
    assert one.auc == pytest.approx(other.auc, rel=1e-12)


def test_a_row_that_is_missing_is_noticed() -> None:
    states, scores, _ = world(0.95)
    late = np.vstack([scores[:1_200], scores[1_201:], scores[-1:]])  # what follows comes too early
    found = known(states, late)
    assert found.is_enough
    assert found.unknown_rows is not None
    assert 900 < found.unknown_rows[0] < 1_500
    assert found.unknown_rows[-1] > 1_900
    assert "is a row missing" in str(found.rows_told)
    assert known(states, scores).rows_told is None


def test_classes_one_after_the_other_are_no_sign_of_a_missing_row() -> None:
    # clips are sorted by class, and the scores know nothing of the last class
    rng = np.random.default_rng(0)
    states = np.repeat(np.eye(8, dtype=np.int8), 100, axis=0)
    scores = rng.normal(size=states.shape) + 3 * states
    scores[:, 7] = rng.normal(size=800)
    found = known(states, scores)
    assert found.rows_told is None
    assert found.is_class_doubtful.tolist() == [False] * 7 + [True]


@pytest.mark.parametrize("auc", [0.6, 0.8])
def test_weak_teachers_have_no_row_missing(auc: float) -> None:
    for seed in range(10):
        assert known(*world(auc, seed=seed)[:2]).rows_told is None
