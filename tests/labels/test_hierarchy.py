from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.errors import EarmarkError
from earmark.labels.hierarchy import find_implied
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology

IDS = ("puppy", "dog", "animal", "siren")
TREE = Ontology(IDS, {"puppy": ("dog",), "dog": ("pets",), "pets": ("animal",)})


def plain_implied(states: np.ndarray, tree: Ontology) -> dict[tuple[int, int], bool]:
    """Every (clip, ancestor) that is not positive but has a positive descendant; True: absent."""
    found = {}
    for clip, row in enumerate(states):
        for child in np.flatnonzero(row == 1):
            for ancestor in tree.ancestors(IDS[child]) & set(IDS):
                column = IDS.index(ancestor)
                if row[column] != 1:
                    found[clip, column] = bool(row[column] == -1)
    return found


def test_a_puppy_makes_dog_and_animal_certain_even_through_a_node_without_a_column():
    labels = LabelSet.from_dense([[1, 0, 0, 0], [0, 0, 0, 1]], ["a", "b"], IDS)
    table = find_implied(labels, TREE).table()
    assert table.rows() == [
        ("a", "dog", "puppy", "certain"),
        ("a", "animal", "puppy", "certain"),
    ]


def test_an_ancestor_marked_absent_is_a_contradiction_and_stays_absent():
    labels = LabelSet.from_dense([[0, 1, -1, 0]], ["a"], IDS)
    implied = find_implied(labels, TREE)
    assert (implied.n_certain, implied.n_contradictions) == (0, 1)
    assert implied.table().rows() == [("a", "animal", "dog", "contradiction")]
    np.testing.assert_array_equal(implied.fill().states(), labels.states())


@given(hnp.arrays(np.int8, st.tuples(st.integers(0, 6), st.just(4)), elements=st.integers(-1, 1)))
def test_finds_what_a_plain_loop_finds_and_fills_only_implicit_labels(states):
    labels = LabelSet.from_dense(states, class_ids=IDS)
    implied = find_implied(labels, TREE)
    pairs = zip(implied.rows.tolist(), implied.columns.tolist(), strict=True)
    found = dict(zip(pairs, implied.is_absent.tolist(), strict=True))
    assert found == plain_implied(states, TREE)
    filled = implied.fill()
    expected = states.copy()
    for (clip, column), is_absent in found.items():
        if not is_absent:
            expected[clip, column] = 1
    np.testing.assert_array_equal(filled.states(), expected)
    assert find_implied(filled, TREE).n_certain == 0


def test_classes_unknown_to_the_ontology_imply_nothing():
    labels = LabelSet.from_dense([[1, 1]], class_ids=["x", "y"])
    assert find_implied(labels, TREE).n_certain == 0


def test_a_class_that_is_its_own_ancestor_is_refused():
    labels = LabelSet.from_dense([[1, 0]], class_ids=["x", "y"])
    with pytest.raises(EarmarkError, match="its own ancestor"):
        find_implied(labels, Ontology(("x", "y"), {"x": ("y",), "y": ("x",)}))
