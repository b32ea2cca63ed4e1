"""The classes of a dataset: those that its labels use, and those that an owner lists.

A list gives names, parents and the order, and brings classes that no label uses. Labels may name a
listed class by its identifier or by its name, in any letter case. Classes that labels use and the
list does not know are kept, after the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from earmark.errors import EarmarkError, check_file, first_few
from earmark.labels import LabelSet, Ontology, read_class_list, read_ontology, repeated_labels_note
from earmark.storage import SourceTable, read_json


@dataclass(frozen=True)
class ChosenClasses:
    """The classes of a workspace; ``class_of`` goes from the labels' names to identifiers."""

    ontology: Ontology
    class_of: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def label_set(self, long: SourceTable, clips: pl.Series) -> tuple[LabelSet, tuple[str, ...]]:
        """Return the labels of clips by their classes' identifiers, and how many came twice."""
        if not self.ontology.class_ids:
            raise EarmarkError(f"{long.path}: there is not one label in it")
        if self.class_of:
            named = pl.col("class_id").replace(dict(self.class_of))
            long = replace(long, rows=long.rows.with_columns(named))
        labels = LabelSet.from_table(long, clips, self.ontology.class_ids)
        return labels, repeated_labels_note(long, labels)


def choose_classes(
    used: Sequence[str], parents: Mapping[str, tuple[str, ...]], listed: Path | None
) -> ChosenClasses:
    """Put the classes in order: as listed, then (or without a list) by their names.

    ``used`` are the labels' names of classes, ``parents`` what the labels' file says of them. A
    list of which the labels use no class is refused.
    """
    if listed is None:
        return ChosenClasses(Ontology(tuple(sorted(used)), parents), {})
    ontology = _read_listed(listed, used)
    class_of = _class_of(used, ontology)
    if not class_of and all(name.isdecimal() for name in used):
        return _by_number(used, ontology, listed)
    if not class_of:
        raise EarmarkError(
            f"{listed}: the labels use none of its classes; it lists "
            f"{first_few(ontology.class_ids)}, the labels say {first_few(sorted(used))}"
        )
    unlisted = sorted(set(used) - class_of.keys())
    told = {
        class_of.get(child, child): tuple(class_of.get(name, name) for name in above)
        for child, above in parents.items()
    }
    whole = Ontology(
        (*ontology.class_ids, *unlisted),
        {**told, **{child: above for child, above in ontology.parents.items() if above}},
        ontology.names,
        ontology.definitions,
    )
    return ChosenClasses(whole, class_of, _notes(listed, whole, class_of, unlisted))


def _by_number(used: Sequence[str], ontology: Ontology, listed: Path) -> ChosenClasses:
    """Take numbers for places in the list, counted from 0; refuse one that is beyond its end."""
    n_classes = len(ontology.class_ids)
    beyond = [name for name in used if int(name) >= n_classes]
    if beyond:
        raise EarmarkError(
            f"{listed}: it lists {n_classes:,} classes, 0 to {n_classes - 1}, but the labels name "
            f"class {first_few(beyond)}"
        )
    class_of = {name: ontology.class_ids[int(name)] for name in used}
    first = min(used, key=int)
    note = f"numbers are places in {listed.name}, from 0: {first} is {class_of[first]!r}"
    return ChosenClasses(ontology, class_of, (note,))


def _notes(
    path: Path, ontology: Ontology, class_of: Mapping[str, str], unlisted: Sequence[str]
) -> tuple[str, ...]:
    n_unused = len(ontology.class_ids) - len(unlisted) - len(set(class_of.values()))
    notes = []
    if unlisted:
        are = "class of the labels is" if len(unlisted) == 1 else "classes of the labels are"
        notes.append(f"{len(unlisted):,} {are} not in {path.name}: {first_few(unlisted)}")
    if n_unused:
        noun = "class" if n_unused == 1 else "classes"
        notes.append(f"{n_unused:,} {noun} of {path.name} without a label")
    return tuple(notes)


def _read_listed(path: Path, used: Iterable[str]) -> Ontology:
    """Read a list of classes in any form, AudioSet's ``ontology.json`` included."""
    check_file(path)
    if path.suffix.lower() != ".json":
        return read_class_list(path)
    entries = read_json(path)
    if isinstance(entries, list) and entries and all(isinstance(name, str) for name in entries):
        return Ontology(tuple(dict.fromkeys(entries)))
    nodes = _nodes(path, entries)
    # An abstract node groups others and is nobody's label, unless somebody gave it all the same.
    wanted = set(used)
    kept = [
        node
        for node in nodes
        if "abstract" not in node.get("restrictions", ()) or {node["id"], node["name"]} & wanted
    ]
    columns = {"mid": [node["id"] for node in kept], "display_name": [n["name"] for n in kept]}
    return read_ontology(pl.DataFrame(columns), path)


def _nodes(path: Path, entries: object) -> list[dict[str, Any]]:
    nodes = entries if isinstance(entries, list) else []
    if not nodes or not all(
        isinstance(one, dict) and {"id", "name"} <= one.keys() for one in nodes
    ):
        raise EarmarkError(
            f"{path}: expected a list of names, or of nodes with id, name and child_ids as in "
            "AudioSet's ontology.json"
        )
    return nodes


def _class_of(used: Iterable[str], ontology: Ontology) -> dict[str, str]:
    """Return the identifier of each name that is known: itself, or the one so called."""
    exact = {ontology.name(class_id): class_id for class_id in reversed(ontology.class_ids)}
    n_plain = Counter(map(_plain, exact))
    plain = {_plain(name): class_id for name, class_id in exact.items()}
    found = {}
    for name in used:
        if name in ontology.index:
            found[name] = name
        elif name in exact:
            found[name] = exact[name]
        elif n_plain[_plain(name)] == 1:
            found[name] = plain[_plain(name)]
    return found


def _plain(name: str) -> str:
    """Return a name without letter case, underscores and the like, as folders are called."""
    return re.sub(r"[\W_]+", " ", name).strip().lower()
