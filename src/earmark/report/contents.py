"""What a report is made of, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

if TYPE_CHECKING:
    from earmark.flags import Findings
    from earmark.review import Gains

_N_HEARD = 40
"""Flags that a page lists to be heard."""

_FEW_OF_A_CLASS = 3
"""As many flags of a class are heard, or more where there are few classes."""


@dataclass(frozen=True)
class HeardFlag:
    """One flag to hear and see; ``is_missing`` is the truth about it, where it is known."""

    rank: int
    clip_id: str
    score: float
    chance: float | None = None
    is_missing: bool | None = None
    waveform: NDArray[np.float32] | None = None
    frames: NDArray[np.floating] | None = None
    """Log-mel frames [frame, band]."""
    best_patch: tuple[int, int] | None = None
    """First frame of the patch that scored best, and the frame after its last."""
    class_name: str = ""
    note: str = ""
    """Which part of a long clip it is, or why there is nothing to hear."""


@dataclass(frozen=True)
class TeacherGrade:
    """How good the teacher was, on clips that it was not trained on.

    ``auc`` is that of the class in the middle; ``found`` is the share of the labels given that the
    teacher finds again; both may be NaN. ``clips`` says on which.
    """

    name: str
    auc: float
    found: float
    clips: str


def first_to_hear(findings: Findings, n_most: int = _N_HEARD) -> pl.DataFrame:
    """Choose of what was found the flags that are worth hearing first (:func:`flags_to_hear`)."""
    # No class is heard more often than that.
    return flags_to_hear(findings.flag_table.first_of_each(max(n_most, _FEW_OF_A_CLASS)), n_most)


def flags_to_hear(flags: pl.DataFrame, n_most: int = _N_HEARD) -> pl.DataFrame:
    """Choose the flags that are worth hearing first: the likeliest, but only a few of each class.

    Flags without a chance come last, those at the top of their class first.
    """
    n_classes = max(flags["class_id"].n_unique(), 1)
    n_each = max(_FEW_OF_A_CLASS, -(-n_most // n_classes))
    # What is as likely, or as unknown, is taken by rank, so that classes take turns.
    likeliest = flags.sort(
        "chance", "rank", "class_id", descending=[True, False, False], nulls_last=True
    )
    return likeliest.filter(pl.int_range(pl.len()).over("class_id") < n_each).head(n_most)


@dataclass(frozen=True)
class LineChanges:
    """How the classes of one student and train set change at a point (see ``class_changes``)."""

    student: str
    train_set: str
    percent: float
    changes: pl.DataFrame

    @property
    def name(self) -> str:
        """How the student is called where people read."""
        return f"{self.student}, {self.train_set}"


@dataclass(frozen=True)
class ReportContents:
    """Everything that the report shows, as plain values.

    ``results`` and ``per_class`` are the sweep's tables, ``choices`` is that of a comparison; None
    where they were not run, but one of them must be there. ``thresholds`` is the table of
    operating points, ``classes`` comes from :func:`class_summary`, ``judged``
    (discard_percent, n_flags, n_right, n_missing) is there where the truth is known, ``heard`` are
    flags that can be heard, the likeliest first, and ``provenance`` holds versions, seeds and
    digests. ``courses`` are the histories of trainings by the name of the network.
    """

    title: str
    results: pl.DataFrame | None
    per_class: pl.DataFrame | None
    thresholds: pl.DataFrame
    classes: pl.DataFrame
    judged: pl.DataFrame | None = None
    heard: Sequence[HeardFlag] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    choices: pl.DataFrame | None = None
    claims: pl.DataFrame | None = None
    """The paper's findings held against the sweep."""
    courses: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    flag_percent: float = 1.0
    """The operating point at which labels are counted and flags listed."""
    prior_cutoffs: tuple[float, float] | None = None
    """Priors below which a class is small, above which large; None: see ``prior_cutoffs``."""
    sample_rate_hz: int = 16_000
    teacher: TeacherGrade | None = None
    """None where it was not measured: its scores are in-sample, or of unknown origin."""
    gains: Gains | None = None
    """What listening has found, where a queue that learns was heard."""

    def cutoffs(self) -> tuple[float, float]:
        """Return the priors below which a class is small and above which it is large."""
        from earmark.report.results import prior_cutoffs  # a scan's page has no students

        return self.prior_cutoffs or prior_cutoffs(self.classes["prior"].to_numpy())

    def line_changes(self) -> list[LineChanges]:
        """Return the per-class changes of every student and train set.

        The point is the one chosen on ``tune`` among those that ignore something.
        """
        if self.results is None or self.per_class is None:
            return []
        from earmark.report.results import by_line, chosen_point, class_changes

        found = []
        for own in by_line(self.results.filter(pl.col("discard_percent") > 0)):
            student, train_set = own["student"][0], own["train_set"][0]
            percent = chosen_point(own)
            rows = self.per_class.filter(student=student, train_set=train_set)
            changes = class_changes(rows, self.classes, percent, self.cutoffs())
            found.append(LineChanges(student, train_set, percent, changes))
        return found
