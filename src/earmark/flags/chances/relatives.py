"""The relatives of each class in the class tree, as columns of the labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earmark.labels import Ontology


@dataclass(frozen=True)
class Lists:
    """Columns for each class, one class after another: those of c are ``[starts[c]:starts[c+1]]``.

    >>> Lists.of([[1, 2], [], [0]]).columns.tolist()
    [1, 2, 0]
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]

    @classmethod
    def of(cls, each: Iterable[Iterable[int]]) -> Lists:
        """Join the columns of every class."""
        lists = [sorted(columns) for columns in each]
        starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(starts, np.array([one for columns in lists for one in columns], np.int32))

    @property
    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """``starts`` and ``columns``."""
        return self.starts, self.columns

    def turned(self) -> Lists:
        """Return who names each class, in place of whom it names."""
        owners = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.columns, kind="stable")
        counts = np.bincount(self.columns, minlength=len(self.starts) - 1)
        return Lists(np.concatenate([[0], np.cumsum(counts)]), owners[order])


@dataclass(frozen=True)
class Relatives:
    """Whom each class is related to among the labels' classes.

    ``parents`` are the nearest ancestors that have a column, ``children`` those whose parents they
    are; ``siblings`` share a parent, be it one without a column.
    """

    ancestors: Lists
    descendants: Lists
    parents: Lists
    children: Lists
    siblings: Lists

    @classmethod
    def of(cls, class_ids: tuple[str, ...], ontology: Ontology | None) -> Relatives:
        """Find the relatives of every class; a class that the ontology does not know has none."""
        tree = ontology if ontology is not None else Ontology(class_ids)
        index = {class_id: column for column, class_id in enumerate(class_ids)}

        def columns(names: Iterable[str]) -> list[int]:
            return [index[name] for name in names if name in index]

        ancestors = Lists.of(columns(tree.ancestors(name)) for name in class_ids)
        parents = Lists.of(columns(_nearest(tree, name, index)) for name in class_ids)
        siblings = Lists.of(columns(tree.siblings(name)) for name in class_ids)
        return cls(ancestors, ancestors.turned(), parents, parents.turned(), siblings)

    @property
    def is_empty(self) -> bool:
        """Whether no class has a relative."""
        return not len(self.ancestors.columns) and not len(self.siblings.columns)


def _nearest(tree: Ontology, class_id: str, index: dict[str, int]) -> set[str]:
    """Return the nearest ancestors with a column; those without are passed through, once each."""
    found: set[str] = set()
    passed: set[str] = set()
    waiting = list(tree.parents.get(class_id, ()))
    while waiting:
        parent = waiting.pop()
        if parent in index:
            found.add(parent)
        elif parent not in passed:
            passed.add(parent)
            waiting.extend(tree.parents.get(parent, ()))
    return found
