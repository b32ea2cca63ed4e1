from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.errors import EarmarkError
from earmark.labels import LabelSet, Ontology, find_implied

TREE = Ontology(
    class_ids=("siren", "ambulance", "police", "horn"),
    parents={
        "siren": ("alarm",),
        "ambulance": ("siren",),
        "police": ("siren", "car"),
        "horn": ("alarm",),
    },
    names={"ambulance": "Ambulance (siren)"},
    definitions={"siren": "A loud warning."},
)
IDS = ("puppy", "dog", "animal", "siren")
PETS = Ontology(IDS, {"puppy": ("dog",), "dog": ("pets",), "pets": ("animal",)})


def test_ancestors_children_and_siblings() -> None:
    assert TREE.ancestors("police") == {"siren", "car", "alarm"}
    assert TREE.children("siren") == {"ambulance", "police"}
    assert TREE.siblings("siren") == {"horn"}
    assert TREE.siblings("ambulance") == {"police"}


def test_a_table_holds_all_of_it() -> None:
    again = Ontology.from_table(TREE.to_table())
    assert again.ancestors("police") == {"siren", "car", "alarm"}
    assert again.name("ambulance") == "Ambulance (siren)"
    assert again.name("horn") == "horn"
    assert again.definitions["siren"] == "A loud warning."


def test_classes_are_found_by_name_or_identifier() -> None:
    assert TREE.find("ambulance (SIREN)") == "ambulance"
    assert TREE.find("horn") == "horn"
    with pytest.raises(EarmarkError, match="no class is called 'polise'; did you mean 'police'"):
        TREE.find("polise")


def test_a_cycle_is_refused() -> None:
    with pytest.raises(EarmarkError, match="its own ancestor"):
        Ontology(("x", "a", "b"), parents={"x": ("a",), "a": ("b",), "b": ("a",)})


def test_a_tree_that_takes_minutes_to_walk_is_refused() -> None:
    chain = {f"c{i}": (f"c{i - 1}",) for i in range(1, 20_000)}
    with pytest.raises(EarmarkError, match="20,000 levels deep; it may have 1,000"):
        Ontology(tuple(chain), chain)
    layers = [[f"c{level}-{i}" for i in range(100)] for level in range(50)]
    dense = {child: tuple(above) for above, layer in pairwise(layers) for child in layer}
    with pytest.raises(EarmarkError, match=r"490,000 links between 4,900 classes"):
        Ontology(tuple(dense), dense)
    wide = {f"c{i}": ("all",) for i in range(50_000)}
    assert Ontology(tuple(wide), wide).ancestors("c7") == {"all"}


def test_a_class_listed_twice_is_refused() -> None:
    with pytest.raises(EarmarkError, match="listed twice: 'a'"):
        Ontology.from_table(Ontology(("a", "a")).to_table())


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
    table = find_implied(labels, PETS).table()
    assert table.rows() == [
        ("a", "dog", "puppy", "implied"),
        ("a", "animal", "puppy", "implied"),
    ]


def test_an_ancestor_marked_absent_is_a_contradiction_and_stays_absent():
    labels = LabelSet.from_dense([[0, 1, -1, 0]], ["a"], IDS)
    implied = find_implied(labels, PETS)
    assert (implied.n_implied, implied.n_contradictions) == (0, 1)
    assert implied.table().rows() == [("a", "animal", "dog", "contradiction")]
    np.testing.assert_array_equal(implied.fill().states(), labels.states())


@given(hnp.arrays(np.int8, st.tuples(st.integers(0, 6), st.just(4)), elements=st.integers(-1, 1)))
def test_finds_what_a_plain_loop_finds_and_fills_only_implicit_labels(states):
    labels = LabelSet.from_dense(states, class_ids=IDS)
    implied = find_implied(labels, PETS)
    pairs = zip(implied.rows.tolist(), implied.columns.tolist(), strict=True)
    found = dict(zip(pairs, implied.is_absent.tolist(), strict=True))
    assert found == plain_implied(states, PETS)
    filled = implied.fill()
    expected = states.copy()
    for (clip, column), is_absent in found.items():
        if not is_absent:
            expected[clip, column] = 1
    np.testing.assert_array_equal(filled.states(), expected)
    assert find_implied(filled, PETS).n_implied == 0


def test_classes_unknown_to_the_ontology_imply_nothing():
    labels = LabelSet.from_dense([[1, 1]], class_ids=["x", "y"])
    assert find_implied(labels, PETS).n_implied == 0
