"""The class tree: names, definitions, parents; and what a child's label says of its ancestors.

AudioSet's ontology is a graph in which a class may have several parents; nothing here assumes a
tree. Classes are known by ``class_id``; ``classes.parquet`` holds one row for each.

A clip in which a dog barks holds a sound of an animal. So where a class is an explicit positive,
the implicit labels of its ancestors are *implied*: nobody was asked, but the answer is likely. (In
AudioSet people heard about half of what the tree implies, so it is evidence, not certainty.) An
ancestor that somebody marked absent *contradicts* the child; one of the two labels is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, first_few, nearest
from earmark.labels.label_set import LabelSet

_CLASS_SCHEMA = pl.Schema(
    {
        "class_id": pl.String(),
        "name": pl.String(),
        "definition": pl.String(),
        "parents": pl.List(pl.String),
    }
)

_MOST_LEVELS, _MOST_WAYS = 1_000, 50_000_000
"""Levels of a class tree, and ways from its classes to their ancestors: more take minutes."""

_IMPLIED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "child_id": pl.String,
    "kind": pl.Enum(["implied", "contradiction"]),
}


@dataclass(frozen=True)
class Ontology:
    """Classes in the order of the label columns, with their parents.

    A parent may be a class without a column of its own (AudioSet has such abstract nodes).
    """

    class_ids: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_parents(self.parents)

    @classmethod
    def from_table(cls, classes: pl.DataFrame) -> Ontology:
        """Build from a table with columns class_id, name, definition, parents."""
        classes = classes.select(list(_CLASS_SCHEMA)).cast(_CLASS_SCHEMA)
        ids = tuple(classes["class_id"].to_list())
        if len(set(ids)) < len(ids):
            twice = sorted(class_id for class_id, n in Counter(ids).items() if n > 1)
            raise EarmarkError(f"classes listed twice: {first_few(twice)}")
        return cls(
            class_ids=ids,
            parents={row["class_id"]: tuple(row["parents"] or ()) for row in classes.to_dicts()},
            names=dict(zip(ids, classes["name"].to_list(), strict=True)),
            definitions={r["class_id"]: r["definition"] or "" for r in classes.to_dicts()},
        )

    def to_table(self) -> pl.DataFrame:
        """Return one row per class, as stored in ``classes.parquet``."""
        return pl.DataFrame(
            {
                "class_id": list(self.class_ids),
                "name": [self.name(class_id) for class_id in self.class_ids],
                "definition": [self.definitions.get(class_id, "") for class_id in self.class_ids],
                "parents": [list(self.parents.get(class_id, ())) for class_id in self.class_ids],
            },
            schema=_CLASS_SCHEMA,
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each class."""
        return {class_id: column for column, class_id in enumerate(self.class_ids)}

    def name(self, class_id: str) -> str:
        """Return the name people read; the identifier where there is none."""
        return self.names.get(class_id) or class_id

    def find(self, name_or_id: str) -> str:
        """Return the class_id of a class given by identifier or by name, in any letter case."""
        if name_or_id in self.index:
            return name_or_id
        by_name = {self.name(class_id).lower(): class_id for class_id in self.class_ids}
        if name_or_id.lower() in by_name:
            return by_name[name_or_id.lower()]
        hint = nearest(name_or_id, [self.name(class_id) for class_id in self.class_ids])
        raise EarmarkError(f"no class is called {name_or_id!r}{hint}")

    def path(self, class_id: str) -> tuple[str, ...]:
        """Return the names of a class's first parent, that one's, and so on, the topmost first."""
        path = [class_id]
        while parents := self.parents.get(path[-1]):
            path.append(parents[0])
        return tuple(self.name(name) for name in reversed(path))

    def ancestors(self, class_id: str) -> set[str]:
        """Return parents, their parents and so on."""
        found: set[str] = set()
        waiting = list(self.parents.get(class_id, ()))
        while waiting:
            parent = waiting.pop()
            if parent not in found:
                found.add(parent)
                waiting.extend(self.parents.get(parent, ()))
        return found

    def children(self, class_id: str) -> set[str]:
        """Return the classes that name this one as a parent."""
        return {child for child, parents in self.parents.items() if class_id in parents}

    def siblings(self, class_id: str) -> set[str]:
        """Return the other classes that share a parent with this one."""
        shared = (self.children(parent) for parent in self.parents.get(class_id, ()))
        return set().union(*shared) - {class_id}


def _check_parents(parents: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse cycles, and trees so deep or dense that to walk them would take minutes."""
    try:
        in_order = [*TopologicalSorter(parents).static_order()]
    except CycleError as error:
        raise EarmarkError(
            f"class {error.args[1][0]!r} is its own ancestor: mend its parents"
        ) from None
    level: dict[str, int] = {}
    n_ways: dict[str, int] = {}  # an ancestor counts once for each way to it
    for class_id in in_order:
        above = parents.get(class_id, ())
        level[class_id] = 1 + max((level[parent] for parent in above), default=0)
        n_ways[class_id] = sum(n_ways[parent] + 1 for parent in above)
    n_levels, n_links = max(level.values(), default=0), sum(map(len, parents.values()))
    if n_levels > _MOST_LEVELS:
        raise EarmarkError(
            f"the class tree is {n_levels:,} levels deep; it may have {_MOST_LEVELS:,}. Are the "
            "parents right?"
        )
    if min(sum(n_ways.values()), n_links * len(parents)) > _MOST_WAYS:
        raise EarmarkError(
            f"{n_links:,} links between {len(parents):,} classes and their parents are too many to "
            "follow; name only the nearest parents of each class"
        )


@dataclass(frozen=True)
class Implied:
    """Labels of ancestors that a positive child decides, sorted by clip and class.

    Label i is that of clip ``rows[i]`` and class ``columns[i]``, which ``children[i]`` (the first
    such class) implies. Where ``is_absent[i]`` it was marked absent, which is a contradiction;
    otherwise it is implicit, and implied. Ancestors that are positives already are left out.
    """

    labels: LabelSet
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    children: NDArray[np.int32]
    is_absent: NDArray[np.bool_]

    @property
    def n_implied(self) -> int:
        """Number of implicit labels that are implied."""
        return int(np.count_nonzero(~self.is_absent))

    @property
    def n_contradictions(self) -> int:
        """Number of ancestors marked absent though a descendant is present."""
        return int(np.count_nonzero(self.is_absent))

    def table(self) -> pl.DataFrame:
        """Return clip_id, class_id, child_id and kind (``implied`` or ``contradiction``)."""
        names = pl.Series(self.labels.class_ids, dtype=pl.String)
        return pl.DataFrame(
            {
                "clip_id": self.labels.clip_ids.gather(self.rows),
                "class_id": names.gather(self.columns),
                "child_id": names.gather(self.children),
                "kind": np.where(self.is_absent, "contradiction", "implied"),
            },
            schema=_IMPLIED_SCHEMA,
        )

    def fill(self) -> LabelSet:
        """Return the labels with the implied ones as positives; contradictions stay as they are."""
        implied = self.table().filter(pl.col("kind") == "implied").select("clip_id", "class_id")
        rows = pl.concat([self.labels.rows(), implied.with_columns(present=pl.lit(True))])
        return LabelSet.from_rows(rows, self.labels.clip_ids, self.labels.class_ids)


def find_implied(labels: LabelSet, ontology: Ontology) -> Implied:
    """Find what the positives say of their ancestors among the labels' classes.

    Ancestors without a column of their own are passed through. Classes that the ontology does not
    know have no ancestors; without positives nothing is implied.

    >>> labels = LabelSet.from_dense([[1, 0], [1, -1]], class_ids=["dog", "animal"])
    >>> implied = find_implied(labels, Ontology(("dog", "animal"), {"dog": ("animal",)}))
    >>> implied.n_implied, implied.n_contradictions
    (1, 1)
    """
    starts, ancestors = _ancestor_columns(labels.class_ids, ontology)
    rows, children = labels.clip_rows[labels.present], labels.columns[labels.present]
    n_each = np.diff(starts)[children]
    first = np.cumsum(n_each) - n_each
    columns = ancestors[np.arange(n_each.sum()) + np.repeat(starts[children] - first, n_each)]
    places = np.repeat(rows, n_each) * labels.n_classes + columns
    places, chosen = np.unique(places, return_index=True)
    children = np.repeat(children, n_each)[chosen]
    is_explicit, is_present = _look_up(labels, places)
    rows, columns = np.divmod(places, max(labels.n_classes, 1))
    kept = ~is_present
    return Implied(labels, rows[kept], columns[kept], children[kept], is_explicit[kept])


def _ancestor_columns(
    class_ids: tuple[str, ...], ontology: Ontology
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each class's ancestors start, and their columns one class after another."""
    index = {class_id: column for column, class_id in enumerate(class_ids)}
    found = [
        sorted(index[ancestor] for ancestor in ontology.ancestors(class_id) & index.keys())
        for class_id in class_ids
    ]
    starts = np.cumsum([0, *map(len, found)])
    return starts, np.array([column for columns in found for column in columns], np.int64)


def _look_up(
    labels: LabelSet, places: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which places (clip * n_classes + class) are explicit labels, and which positives."""
    explicit = labels.clip_rows * labels.n_classes + labels.columns  # ascending
    nearest = np.searchsorted(explicit, places)
    is_explicit = np.append(explicit, -1)[nearest] == places
    return is_explicit, is_explicit & np.append(labels.present, False)[nearest]
