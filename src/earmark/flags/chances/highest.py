"""The likeliest labels, found among the highest-scored of each class: without a pass over all.

By labels and scores alone a chance rises with the score. So no label that is left out of a list of
a class's highest scores is likelier than the last of that list. What is likelier than the last ones
of all lists is known from the lists. Where a class tree raises chances, a pass over the scores
looks up the raised labels, which are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from earmark.flags.chances.chances import Chances
from earmark.flags.chances.sums import Listed
from earmark.flags.suspects import Suspects
from earmark.scores import Chunk

ROUNDED = 1e-5
"""Log-odds that differ by more differ in their chances, too, which are rounded to float32."""

MOST_RAISED = 1 << 16
"""Raised labels that are held until all but the likeliest are let go; twice as many as those, if
they are more."""


@dataclass(frozen=True)
class Highest:
    """The highest-scored implicit labels of each class: ``suspects``, from high to low.

    All that score higher than the last of a class are among them.
    """

    suspects: Suspects
    chances: Chances

    @cached_property
    def listed(self) -> Listed:
        """The same with their log-odds, as if none were raised; NaN where there are no chances."""
        suspects = self.suspects
        columns = np.repeat(np.arange(len(suspects.n_each), dtype=np.int32), suspects.n_each)
        log_odds = self.chances.clues.first(columns, suspects.logits)
        return Listed(suspects.rows.astype(np.int64), columns, suspects.logits, log_odds)

    @property
    def n_expected(self) -> float:
        """How many of them are expected to be missing, at the least."""
        return float(np.nansum(expit(self.listed.log_odds), dtype=np.float64))

    def best(self, n_labels: int, least: float) -> Listed | None:
        """Return the likeliest of all implicit labels: ``n_labels``, those as likely, perhaps more.

        All have log-odds of ``least`` or more. None where labels that are not listed may be among
        the likeliest.
        """
        clues, known = self.chances.clues, self._known
        found = self.listed.where(self.listed.log_odds >= known)
        if clues.has_raised:
            if known > clues.highest_raised:
                return None
            found = _with_raised(found, self._raised(known, n_labels), self.suspects)
        limit = np.float64(max(_limit(found, n_labels), least))  # in which float32 is compared
        return found.where(found.log_odds >= limit) if limit >= known else None

    @property
    def _known(self) -> float:
        """The log-odds from which on all labels are listed, or raised."""
        suspects, clues = self.suspects, self.chances.clues
        is_cut = suspects.n_each < suspects.labels.n_implicit
        ends = suspects.starts[1:][is_cut]
        last = np.append(suspects.logits, np.float32(np.inf))[ends - 1]
        last = np.where(suspects.n_each[is_cut] > 0, last, np.float32(np.inf))
        log_odds = clues.first(np.flatnonzero(is_cut), last)
        return float(np.nanmax(log_odds, initial=-np.inf)) + ROUNDED

    def _raised(self, known: float, n_labels: int) -> Listed:
        """List the raised labels of such log-odds, or the likeliest of them, in a pass."""
        clues = self.chances.clues
        starts, above = clues.raised

        def keep(chunks: Iterator[Chunk]) -> Listed:
            least, held, n_held, n_most = known, [Listed.none()], 0, MOST_RAISED
            for rows, block in chunks:
                own = starts[rows.start : rows.stop + 1]
                clips = np.repeat(np.arange(len(block)), np.diff(own))
                columns = above[own[0] : own[-1]]
                logits = block[clips, columns] + np.float32(0)  # which makes 0 of -0, as lists do
                log_odds = clues.first(columns, logits, is_raised=True)
                mine = Listed(clips + rows.start, columns, logits, log_odds)
                held.append(mine.where(log_odds >= least))
                n_held += len(held[-1].rows)
                if n_held > n_most:
                    every = Listed.joined(held)
                    least = max(_limit(every, n_labels), least)
                    held = [every.where(every.log_odds >= least)]
                    n_held = len(held[0].rows)
                    n_most = max(MOST_RAISED, 2 * n_held)
            return Listed.joined(held)

        return Listed.joined(self.chances.scores.map(keep))


def _limit(listed: Listed, n_labels: int) -> float:
    """Return log-odds that so many labels, and those as likely, reach; -inf if there are fewer."""
    if not 0 < n_labels <= len(listed.rows):
        return -np.inf
    place = len(listed.rows) - n_labels
    return float(np.partition(listed.log_odds, place)[place]) - ROUNDED


def _with_raised(listed: Listed, raised: Listed, suspects: Suspects) -> Listed:
    """Put raised labels in the place of the same labels as if they were not."""
    n_classes = len(suspects.n_each)
    keys, known = (one.rows * n_classes + one.columns for one in (listed, raised))
    return Listed.joined([listed.where(~np.isin(keys, known)), raised])
