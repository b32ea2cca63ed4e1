"""Label sets of a workspace by name: as given, corrected by judgements, or the truth."""

from __future__ import annotations

from dataclasses import dataclass

from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.labels.label_set import LabelSet
from earmark.review.relabel import read_relabelled

CORRECTED = "corrected"
"""The name under which ``earmark relabel`` writes corrected labels by default."""


@dataclass(frozen=True)
class NamedLabels:
    """The labels of all clips, and what raters ruled about implicit ones beyond them.

    In ``rulings`` +1 stands for a label that is always ignored and -1 for one that is never
    flagged; None where nobody ruled.
    """

    labels: LabelSet
    rulings: LabelSet | None = None


def has_corrected(workspace: Workspace) -> bool:
    """Tell whether judgements have been turned into corrected labels."""
    return (workspace.relabelled_folder(CORRECTED) / "meta.json").exists()


def read_labels(workspace: Workspace, name: str) -> NamedLabels:
    """Return the labels called ``given``, ``corrected`` or ``truth``."""
    if name == "given":
        return NamedLabels(workspace.labels)
    if name == CORRECTED:
        relabelled = read_relabelled(workspace, CORRECTED)
        return NamedLabels(relabelled.labels, relabelled.rulings)
    if name != "truth":
        raise EarmarkError(f"there are no labels {name!r}; expected given, corrected or truth")
    if workspace.truth is None:
        raise EarmarkError(f"{workspace.root}: only a simulated dataset knows the truth")
    return NamedLabels(workspace.truth)
