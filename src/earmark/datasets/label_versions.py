"""Label sets of a workspace by name: as given, filled up, corrected by judgements, or the truth.

``filled`` are the labels as given with the ancestors that the class tree implies as positives.
Corrected sets are made by :mod:`earmark.review.relabel`, under any other name; how they look on
disk is said here, where they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError, nearest, quoted
from earmark.labels import LabelSet, find_implied
from earmark.storage import is_finished, read_seal, read_table, write_table

GIVEN = "given"
FILLED = "filled"
TRUTH = "truth"
RESERVED_NAMES = (GIVEN, FILLED, TRUTH)
"""Labels that are there from the start; a corrected set has any other name."""

CORRECTED = "corrected"
"""The name under which ``earmark relabel`` writes corrected labels by default."""

PAIR = ["clip_id", "class_id"]

_LABELS_FILE = "labels.parquet"
_CHANGES_FILE = "changes.parquet"
_CONFLICTS_FILE = "conflicts.parquet"

CHANGE_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String(),
        "class_id": pl.String(),
        "before": pl.String(),
        "after": pl.String(),
        "rater": pl.String(),
        "at": pl.String(),
        "item": pl.String(),
        "score": pl.Float32(),
        "rank": pl.Int64(),
        "discard_percent": pl.Float64(),
    }
)

CONFLICT_SCHEMA = pl.Schema(
    {
        "clip_id": pl.String(),
        "class_id": pl.String(),
        "label": pl.String(),
        "answer": pl.String(),
        "rater": pl.String(),
        "at": pl.String(),
    }
)


@dataclass(frozen=True)
class Relabelled:
    """A corrected label set, and what was changed.

    ``changes`` has a row for each judged implicit label: clip_id, class_id, before (``implicit``),
    after (``present``, ``not_present``, ``cleared`` or ``ignored``), rater (names, joined by
    commas), at (UTC), item, and the flag's score, rank and discard_percent (the shallowest
    operating point that flags it; 100: none; null without a queue). ``conflicts`` has clip_id,
    class_id, label, answer, rater, at.
    """

    labels: LabelSet
    changes: pl.DataFrame
    conflicts: pl.DataFrame

    @cached_property
    def rulings(self) -> LabelSet:
        """What raters settled about implicit labels, beyond what the label set can say.

        A label set of the same clips and classes in which +1 stands for *ignored* (never in the
        loss), -1 for *cleared* (never flagged, never ignored, always in the loss as a negative).
        """
        settled = self.changes.filter(pl.col("after").is_in(["cleared", "ignored"]))
        rows = settled.select(*PAIR, present=pl.col("after") == "ignored")
        return LabelSet.from_rows(rows, self.labels.clip_ids, self.labels.class_ids, "rulings")

    @property
    def n_by_outcome(self) -> dict[str, int]:
        """How many labels became present, not_present, cleared or ignored."""
        outcomes = ("present", "not_present", "cleared", "ignored")
        return {name: int((self.changes["after"] == name).sum()) for name in outcomes}

    def write(self, folder: Path) -> None:
        """Write the tables of a corrected label set into its folder, without its seal."""
        self.labels.write(folder / _LABELS_FILE)
        write_table(folder / _CHANGES_FILE, self.changes)
        write_table(folder / _CONFLICTS_FILE, self.conflicts)


@dataclass(frozen=True)
class NamedLabels:
    """The labels of all clips, and what raters ruled about implicit ones beyond them.

    In ``rulings`` +1 stands for a label that is always ignored and -1 for one that is never
    flagged; None where nobody ruled.
    """

    labels: LabelSet
    rulings: LabelSet | None = None


def corrected_names(workspace: Workspace) -> list[str]:
    """Return the names of all corrected label sets, in alphabetical order."""
    there = workspace.relabelled_folder("any").parent.glob("*")
    return sorted(folder.name for folder in there if is_finished(folder))


def corrections_left_out(workspace: Workspace, name: str) -> str | None:
    """Say that there are corrected labels where those as given are used; None where all is well."""
    there = corrected_names(workspace) if name == GIVEN else []
    if not there:
        return None
    return (
        f"corrected labels are there ({', '.join(there)}): these are the labels as given; "
        f"--labels {quoted(there[0]) if len(there) == 1 else 'NAME'} takes the others"
    )


def label_names(workspace: Workspace) -> list[str]:
    """Return all that :func:`read_labels` can read in a workspace."""
    filled = [FILLED] if any(workspace.ontology.parents.values()) else []
    truth = [TRUTH] if workspace.truth_path.exists() else []
    return [GIVEN, *filled, *corrected_names(workspace), *truth]


def read_labels(workspace: Workspace, name: str) -> NamedLabels:
    """Return the labels called ``given``, ``filled`` or ``truth``, or a corrected set by its name.

    Without a class tree nothing is implied, and ``filled`` are the labels as given.
    """
    if name == GIVEN:
        return NamedLabels(workspace.labels)
    if name == FILLED:
        return NamedLabels(find_implied(workspace.labels, workspace.ontology).fill())
    if name == TRUTH:
        if workspace.truth is None:
            raise EarmarkError(f"{workspace.root}: only a simulated dataset knows the truth")
        return NamedLabels(workspace.truth)
    relabelled = read_relabelled(workspace, name)
    return NamedLabels(relabelled.labels, relabelled.rulings)


def read_relabelled(workspace: Workspace, name: str) -> Relabelled:
    """Read a corrected label set; refuse one that was made from other labels than there are now."""
    folder = workspace.relabelled_folder(name)
    command = f"`earmark relabel {quoted(workspace.root)} --out {quoted(name)}`"
    if not is_finished(folder):
        raise EarmarkError(
            f"{workspace.root}: no labels {name!r}{nearest(name, label_names(workspace))}; "
            f"{command} makes them from judgements"
        )
    if read_seal(folder)["original_labels"] != workspace.labels.digest:
        raise EarmarkError(
            f"{folder}: corrects other labels than the workspace's; run {command} again"
        )
    clips, class_ids = workspace.clips["clip_id"], workspace.ontology.class_ids
    labels = LabelSet.read(folder / _LABELS_FILE, clips, class_ids)
    return Relabelled(
        labels, read_table(folder / _CHANGES_FILE), read_table(folder / _CONFLICTS_FILE)
    )
