"""The class tree: names, definitions, parents, ancestors and siblings.

AudioSet's ontology is a graph in which a class may have several parents; nothing here assumes a
tree. Classes are known by ``class_id``; ``classes.parquet`` holds one row for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from earmark.errors import EarmarkError, nearest

CLASS_SCHEMA = pl.Schema(
    {
        "class_id": pl.String(),
        "name": pl.String(),
        "definition": pl.String(),
        "parents": pl.List(pl.String),
    }
)


@dataclass(frozen=True)
class Ontology:
    """Classes in the order of the label columns, with their parents.

    A parent may be a class without a column of its own (AudioSet has such abstract nodes).
    """

    class_ids: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_table(cls, classes: pl.DataFrame) -> Ontology:
        """Build from a table with columns class_id, name, definition, parents."""
        ids = tuple(classes["class_id"].to_list())
        if len(set(ids)) < len(ids):
            twice = sorted({class_id for class_id in ids if ids.count(class_id) > 1})
            raise EarmarkError(f"classes listed twice: {', '.join(twice)}")
        ontology = cls(
            class_ids=ids,
            parents={row["class_id"]: tuple(row["parents"] or ()) for row in classes.to_dicts()},
            names=dict(zip(ids, classes["name"].to_list(), strict=True)),
            definitions={r["class_id"]: r["definition"] or "" for r in classes.to_dicts()},
        )
        for class_id in ids:
            ontology.ancestors(class_id)  # refuses a cycle here rather than in a later stage
        return ontology

    def to_table(self) -> pl.DataFrame:
        """Return one row per class, as stored in ``classes.parquet``."""
        return pl.DataFrame(
            {
                "class_id": list(self.class_ids),
                "name": [self.name(class_id) for class_id in self.class_ids],
                "definition": [self.definitions.get(class_id, "") for class_id in self.class_ids],
                "parents": [list(self.parents.get(class_id, ())) for class_id in self.class_ids],
            },
            schema=CLASS_SCHEMA,
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

    def ancestors(self, class_id: str) -> set[str]:
        """Return parents, their parents and so on; refuse a class that is its own ancestor."""
        found: set[str] = set()
        waiting = list(self.parents.get(class_id, ()))
        while waiting:
            parent = waiting.pop()
            if parent == class_id:
                raise EarmarkError(f"class {class_id!r} is its own ancestor: mend its parents")
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
