from __future__ import annotations

import pytest

from earmark.errors import EarmarkError
from earmark.labels.ontology import Ontology

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
    loop = Ontology(("a", "b"), parents={"a": ("b",), "b": ("a",)})
    with pytest.raises(EarmarkError, match="its own ancestor"):
        Ontology.from_table(loop.to_table())


def test_a_class_listed_twice_is_refused() -> None:
    with pytest.raises(EarmarkError, match="listed twice: a"):
        Ontology.from_table(Ontology(("a", "a")).to_table())
