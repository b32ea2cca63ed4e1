"""What an import did, in numbers that add up."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from earmark.datasets.workspace import SPLITS, Workspace
from earmark.errors import EarmarkError


@dataclass(frozen=True)
class ImportSummary:
    """The outcome of one import: every listed clip was either found or is missing.

    ``notes`` are whole sentences about whatever a user should know: what was passed over and why,
    how columns were understood, what was written where.
    """

    workspace: Workspace
    n_listed: int
    n_found: int
    n_missing: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n_found + self.n_missing != self.n_listed:
            raise EarmarkError(
                f"{self.workspace.root}: {self.n_found:,} clips found and {self.n_missing:,} "
                f"missing do not add up to the {self.n_listed:,} listed; please report this"
            )

    @property
    def split_counts(self) -> dict[str, int]:
        """Listed clips of each split, in the order train, tune, eval; 0 where there are none."""
        counts = self.workspace.clips["split"].value_counts()
        by_split = dict(counts.select(pl.col("split"), pl.col("count")).iter_rows())
        return {split: by_split.get(split, 0) for split in SPLITS}

    def lines(self) -> list[str]:
        """Return the summary as lines to print: the sum, the splits, then each note."""
        splits = ", ".join(f"{split} {n:,}" for split, n in self.split_counts.items())
        return [
            f"{self.n_listed:,} clips listed = {self.n_found:,} found + {self.n_missing:,} missing",
            splits,
            *self.notes,
        ]
