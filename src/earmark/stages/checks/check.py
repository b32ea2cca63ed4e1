"""A dataset held to limits: how many labels may be missing, and how right flags have to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.errors import short_repr
from earmark.report import HeldLimit, Limits, MissingEvidence, hold_limits
from earmark.stages.checks.evidence import evidence_of_files, gather_evidence
from earmark.stages.opening import RecipeLike, WorkLike

NO_LIMITS = Limits()


@dataclass(frozen=True)
class CheckedDataset:
    """What is known of a dataset's missing labels, and which limits it keeps.

    ``notes`` say how files were read.
    """

    evidence: MissingEvidence
    limits: tuple[HeldLimit, ...]
    notes: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def is_passed(self) -> bool:
        """Whether every limit is kept; without limits, it is."""
        return all(one.is_passed for one in self.limits)

    def facts(self, *, by_class: bool = False) -> dict[str, Any]:
        """Return everything as plain values, for programs; with every class if it is asked for."""
        told = {
            "verdict": "passed" if self.is_passed else "failed",
            "limits": [one.facts() for one in self.limits],
            **self.evidence.facts(),
            "notes": list(self.notes),
        }
        return told | ({"classes": self.evidence.classes.to_dicts()} if by_class else {})


def check_dataset(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: str | None = None,
    limits: Limits = NO_LIMITS,
) -> CheckedDataset:
    """Hold a workspace to limits; without limits it passes, and is told of all the same.

    ``labels`` names the label set: that of the flags written last, else the labels as given.
    """
    evidence = gather_evidence(work, recipe, labels)
    return CheckedDataset(evidence, hold_limits(evidence, limits))


def check_files(
    labels: str | Path, scores: str | Path, *, limits: Limits = NO_LIMITS, **options: Any
) -> CheckedDataset:
    """Hold a file of labels and one of scores to limits; ``options`` are those of a scan."""
    evidence, notes = evidence_of_files(labels, scores, **options)
    return CheckedDataset(evidence, hold_limits(evidence, limits), notes)
