"""What a child's label says of its ancestors.

A clip in which a dog barks holds a sound of an animal. So where a class is an explicit positive,
the implicit labels of its ancestors are *certain*: nobody was asked, but the answer is known. An
ancestor that somebody marked absent *contradicts* the child; one of the two labels is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology

IMPLIED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "clip_id": pl.String,
    "class_id": pl.String,
    "child_id": pl.String,
    "kind": pl.Enum(["certain", "contradiction"]),
}


@dataclass(frozen=True)
class Implied:
    """Labels of ancestors that a positive child decides, sorted by clip and class.

    Label i is that of clip ``rows[i]`` and class ``columns[i]``, which ``children[i]`` (the first
    such class) implies. Where ``is_absent[i]`` it was marked absent, which is a contradiction;
    otherwise it is implicit, and certain. Ancestors that are positives already are left out.
    """

    labels: LabelSet
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    children: NDArray[np.int32]
    is_absent: NDArray[np.bool_]

    @property
    def n_certain(self) -> int:
        """Number of implicit labels that are certain."""
        return int(np.count_nonzero(~self.is_absent))

    @property
    def n_contradictions(self) -> int:
        """Number of ancestors marked absent though a descendant is present."""
        return int(np.count_nonzero(self.is_absent))

    def table(self) -> pl.DataFrame:
        """Return clip_id, class_id, child_id and kind (``certain`` or ``contradiction``)."""
        names = pl.Series(self.labels.class_ids, dtype=pl.String)
        return pl.DataFrame(
            {
                "clip_id": self.labels.clip_ids.gather(self.rows),
                "class_id": names.gather(self.columns),
                "child_id": names.gather(self.children),
                "kind": np.where(self.is_absent, "contradiction", "certain"),
            },
            schema=IMPLIED_SCHEMA,
        )

    def fill(self) -> LabelSet:
        """Return the labels with the certain ones as positives; contradictions stay as they are."""
        certain = self.table().filter(pl.col("kind") == "certain").select("clip_id", "class_id")
        rows = pl.concat([self.labels.rows(), certain.with_columns(present=pl.lit(True))])
        return LabelSet.from_rows(rows, self.labels.clip_ids, self.labels.class_ids)


def find_implied(labels: LabelSet, ontology: Ontology) -> Implied:
    """Find what the positives say of their ancestors among the labels' classes.

    Ancestors without a column of their own are passed through. Classes that the ontology does not
    know have no ancestors; without positives nothing is implied.

    >>> labels = LabelSet.from_dense([[1, 0], [1, -1]], class_ids=["dog", "animal"])
    >>> implied = find_implied(labels, Ontology(("dog", "animal"), {"dog": ("animal",)}))
    >>> implied.n_certain, implied.n_contradictions
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
