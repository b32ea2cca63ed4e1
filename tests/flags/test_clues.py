from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from earmark.errors import EarmarkError
from earmark.flags import CLUES, HEARD, IMPLIED, Clues, Lists, Relatives, count_missing
from earmark.flags.chances.clues import _n_together
from earmark.labels import LabelSet, Ontology

NAMES = ("dog", "bark", "cat", "animal", "wind")
TREE = Ontology(
    NAMES,
    {
        "bark": ("dog",),
        "dog": ("pets",),
        "cat": ("pets",),
        "pets": ("animal",),  # a class without a column
    },
)


def named(lists: Lists) -> dict[str, set[str]]:
    return {
        name: {NAMES[place] for place in lists.columns[lists.starts[i] : lists.starts[i + 1]]}
        for i, name in enumerate(NAMES)
    }


def test_relatives_pass_through_classes_without_a_column() -> None:
    found = Relatives.of(NAMES, TREE)
    assert named(found.ancestors)["bark"] == {"dog", "animal"}
    assert named(found.parents)["cat"] == {"animal"}
    assert named(found.children)["animal"] == {"dog", "cat"}
    assert named(found.siblings)["dog"] == {"cat"}
    assert named(found.descendants)["animal"] == {"dog", "bark", "cat"}
    assert Relatives.of(NAMES, None).is_empty


@pytest.mark.parametrize(
    "parents",
    [
        {"dog": ("cat",), "cat": ("dog",)},
        {"dog": ("pets",), "pets": ("beasts",), "beasts": ("pets", "animal")},
    ],
)
def test_a_tree_with_a_cycle_is_refused(parents: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(EarmarkError, match="its own ancestor"):
        Relatives.of(NAMES, Ontology(NAMES, parents))


@pytest.fixture(scope="module")
def made() -> tuple[Clues, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = rng.random((400, 5)) < 0.3
    truth[:, 3] |= truth[:, :3].any(axis=1)
    scores = np.where(truth, 1.5, -1.5) + rng.standard_normal((400, 5))
    states = np.where(truth & (rng.random(truth.shape) < 0.6), 1, 0)
    labels = LabelSet.from_dense(states, class_ids=NAMES)
    found = count_missing(labels, scores.astype(np.float32), ontology=TREE)
    return found.chances.clues, states, scores.astype(np.float32)


def clue(made: tuple[Clues, np.ndarray, np.ndarray], name: str) -> np.ndarray:
    clues, _, scores = made
    return clues.of(slice(None), scores)[:, :, CLUES.index(name)]


def test_clues_are_what_they_say(made: tuple[Clues, np.ndarray, np.ndarray]) -> None:
    _, states, scores = made
    dog, bark, cat, animal, wind = range(5)
    assert np.array_equal(clue(made, "logit"), scores)
    ranks = 1 + (scores[:, :, None] < scores[:, None, :]).sum(axis=2)
    assert np.allclose(clue(made, "rank_in_clip"), np.log(ranks), atol=1e-6)
    of_animal = scores[:, [dog, cat]].max(axis=1) - scores[:, animal]
    assert np.allclose(clue(made, "best_child")[:, animal], of_animal)
    assert np.allclose(clue(made, "best_parent")[:, bark], scores[:, dog] - scores[:, bark])
    assert np.allclose(clue(made, "best_sibling")[:, dog], scores[:, cat] - scores[:, dog])
    assert not clue(made, "best_child")[:, wind].any()
    below = (states[:, [dog, bark, cat]] > 0).any(axis=1)
    assert np.array_equal(clue(made, "child_labelled")[:, animal] > 0, below)
    above = (states[:, [dog, animal]] > 0).any(axis=1)
    assert np.array_equal(clue(made, "parent_labelled")[:, bark] > 0, above)
    assert np.array_equal(clue(made, "sibling_labelled")[:, cat] > 0, states[:, dog] > 0)
    assert np.allclose(clue(made, "labels_of_clip")[:, 0], np.log1p((states > 0).sum(axis=1)))
    prior = np.log(((states > 0).sum(axis=0) + 0.5) / 400)
    assert np.allclose(clue(made, "prior"), prior, atol=1e-5)


def test_labels_that_come_together_raise_each_other(
    made: tuple[Clues, np.ndarray, np.ndarray],
) -> None:
    _, states, _ = made
    there = (states > 0).astype(float)
    both, n = there.T @ there, there.sum(axis=0)
    lift = np.log((both + 1) / (np.outer(n, n) / 400 + 1))
    np.fill_diagonal(lift, 0)
    expected = there @ lift / np.maximum(there.sum(axis=1), 1)[:, None]
    assert np.allclose(clue(made, "together"), expected, atol=1e-4)


def test_a_labelled_class_below_is_evidence_and_not_certain(
    made: tuple[Clues, np.ndarray, np.ndarray],
) -> None:
    clues, states, scores = made
    plain = Clues(clues.labels, clues.by_score, Relatives.of(NAMES, None), clues.facts)
    with_tree, without = (
        logit(expit(one.of(slice(None), scores)[:, :, 0].astype(float)) / HEARD)
        for one in (clues, plain)
    )
    raised = with_tree - without
    is_implied = np.zeros(states.shape, bool)
    is_implied[:, 3] = (states[:, :3] > 0).any(axis=1)
    is_implied[:, 0] = states[:, 1] > 0
    assert np.allclose(raised[is_implied], IMPLIED, atol=0.05)  # interpolated between bins
    assert not raised[~is_implied].any()


def test_a_class_without_scores_has_no_clues(made: tuple[Clues, np.ndarray, np.ndarray]) -> None:
    clues, _, scores = made
    holed = scores.copy()
    holed[:, 1] = np.nan
    found = clues.of(slice(0, 7), holed[:7])
    assert np.isnan(found[:, 1]).all()
    assert np.isfinite(found[:, [0, 2, 3, 4]]).all()


@pytest.mark.parametrize(("n_clips", "n_classes", "share"), [(60, 5, 0.5), (4, 40, 0.9), (0, 3, 0)])
def test_classes_that_are_labelled_together_are_counted(
    n_clips: int, n_classes: int, share: float
) -> None:
    is_present = np.random.default_rng(0).random((n_clips, n_classes)) < share
    starts = np.concatenate([[0], is_present.sum(axis=1).cumsum()]).astype(np.int64)
    found = _n_together(starts, np.nonzero(is_present)[1], n_classes)
    there = is_present.astype(float)
    assert np.array_equal(found, there.T @ there)
