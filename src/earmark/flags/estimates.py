"""What is known of the missing labels: one statement for every command, page, report and card.

It is computed from the labels as given, the flags as written and the answers:

- before listening, about how many of the flags are right, as a range over r, the missing labels per
  given one, and nothing about totals;
- after answers, how many missing labels are confirmed and the precision of the flags that nobody
  has judged yet; and, from twenty random answers on, how many labels are missing in all.

Totals come from answers alone, by the difference estimator: the sum of p_missing over the labels
plus the weighted residuals of a random sample of answers (prediction-powered inference with known
sampling probabilities). It is right on average however wrong the model is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from earmark.errors import counted
from earmark.flags.p_missing import Z90, Floats, Matrix
from earmark.metrics import Interval

LEAST_RANDOM = 20
"""Random answers from which on a total is estimated."""

INFLATION = 1.0
"""Factor on the standard error of a total. Chosen on AudioSet's part A, so that the 90 % interval
is right in 85 to 95 % of samples."""

VAGUE = 10.0
"""How many times the low end of an interval its high end may be before the middle is left out."""

N_FIRST, WEAK_SHARE = 100, 0.2
"""Flags that a newcomer listens to first; the share of right ones below which scores are weak."""


@dataclass(frozen=True)
class MissingEstimates:
    """What is known of the missing labels of a dataset.

    ``n_flags`` were written, of which ``n_left`` have no answer yet. ``n_right`` is how many of
    those are missing labels: a range over r before listening, a 90 % interval after; None where the
    scores do not know the labels. ``n_answers`` labels were judged; ``n_confirmed`` of them are
    present, ``n_random`` of them were drawn at random. ``total`` is the number of missing labels
    among ``n_labels`` implicit ones of ``n_classes`` classes with ``n_positives`` given labels,
    with its 90 % interval; ``class_totals`` are parts of its value by class identifier.
    """

    n_flags: int
    n_left: int
    n_right: Interval | None = None
    n_answers: int = 0
    n_confirmed: int = 0
    n_random: int = 0
    total: Interval | None = None
    n_labels: int = 0
    n_classes: int = 0
    n_positives: int = 0
    class_totals: dict[str, float] = field(default_factory=dict)

    @property
    def precision_left(self) -> Interval | None:
        """The share of missing labels among the flags without an answer; None if not known."""
        if self.n_right is None or not self.n_left:
            return None
        value, low, high = (min(max(end / self.n_left, 0.0), 1.0) for end in self.n_right)
        return Interval(value, low, high)

    @property
    def share(self) -> Interval | None:
        """The share of missing labels among all that should be there; None without a total."""
        if self.total is None:
            return None
        value, low, high = (end / max(end + self.n_positives, 1) for end in self.total)
        return Interval(value, low, high)

    @property
    def is_vague(self) -> bool:
        """Whether the interval of the total is too wide for its middle to mean anything."""
        return self.total is not None and self.total.high > VAGUE * max(self.total.low, 1e-9)

    def describe(self) -> str:
        """Return all of it in a few sentences.

        >>> MissingEstimates(250, 250, Interval(180.2, 110.0, 221.0)).describe()
        '250 flags, about 180 of them right (110 to 221).'
        >>> after = MissingEstimates(250, 200, Interval(90.0, 60.0, 118.0), 80, 52)
        >>> after.describe()
        '52 missing labels confirmed in 80 answers. 200 flags left, about 90 of them right (60 to \
118). No total: that takes 20 random answers, there are 0.'
        """
        if not self.n_answers:
            return self._describe_flags("flag")
        parts = [
            f"{counted(self.n_confirmed, 'missing label')} confirmed in "
            f"{counted(self.n_answers, 'answer')}.",
            self._describe_flags("flag") if self.n_left == self.n_flags else self._describe_left(),
            self.describe_total(),
        ]
        return " ".join(part for part in parts if part)

    def describe_total(self) -> str:
        """Say how many labels are missing in all, or what it takes to know that."""
        if self.total is None:
            return f"No total: that takes {LEAST_RANDOM} random answers, there are {self.n_random}."
        value, low, high = (f"{round(end):,}" for end in self.total)
        where = f"in {counted(self.n_classes, 'class', 'classes')}"
        beside = f"beside {counted(self.n_positives, 'given label')}"
        if self.is_vague:
            return f"In all {low} to {high} labels are missing {where}, {beside}."
        return f"In all about {value} labels are missing ({low} to {high}) {where}, {beside}."

    def _describe_left(self) -> str:
        return self._describe_flags("flag", " left") if self.n_left else "No flag is left."

    def _describe_flags(self, word: str, left: str = "") -> str:
        flags = f"{counted(self.n_left, word)}{left}"
        if self.n_right is None or not self.n_left:
            return f"{flags}."
        value, low, high = (f"{round(end):,}" for end in self.n_right)
        return f"{flags}, about {value} of them right ({low} to {high})."

    def facts(self) -> dict[str, Any]:
        """Return it as plain values for programs."""
        plain = asdict(self)
        for name, value in (
            ("n_right", self.n_right),
            ("total", self.total),
            ("precision_left", self.precision_left),
            ("share", self.share),
        ):
            plain[name] = None if value is None else value._asdict()
        return plain


def estimate_total(
    predicted_sum: float, predicted: Matrix, present: Matrix, stands_for: Matrix
) -> Interval:
    """Estimate how many of some labels are missing by the difference estimator.

    ``predicted_sum`` is the sum of p_missing over all of them. ``predicted``, ``present`` and
    ``stands_for`` [answer] belong to a random sample drawn with known probabilities, whose inverses
    are ``stands_for``. p_missing must come from a model that did not see the answers. The 90 %
    interval is normal; its upper end allows for one more missing label among those that few answers
    speak for, since such a sample often has none.
    """
    n, differences = len(present), stands_for * (present - predicted)
    estimate = predicted_sum + float(differences.sum())
    # A label drawn for sure stands for itself alone, and adds nothing to the variance.
    left = np.clip(1 - 1 / np.maximum(stands_for, 1), 0, 1)
    variance = n / max(n - 1, 1) * float((left * differences**2).sum()) * INFLATION**2
    unseen = float((left * stands_for**2).sum() / max(float(stands_for.sum()), 1.0))
    low = estimate - Z90 * np.sqrt(variance)
    high = estimate + Z90 * np.sqrt(variance + unseen**2)
    return Interval(max(estimate, 0.0), max(float(low), 0.0), max(float(high), 0.0))


def bound(interval: Interval, least: float, most: float) -> Interval:
    """Keep an interval within what is known for sure.

    >>> bound(Interval(3.0, 0.0, 8.0), 5, 7)
    Interval(value=5, low=5, high=7)
    """
    value, low, high = (min(max(end, least), most) for end in interval)
    return Interval(value, low, high)


def allocate(sizes: Matrix, n_answers: float) -> Matrix:
    """Return the probability [label] with which each label is drawn, proportional to its size.

    Their sum is ``n_answers``, as far as no probability exceeds 1.
    """
    probability = np.zeros(len(sizes))
    is_certain = np.zeros(len(sizes), bool)
    for _ in range(50):
        left = n_answers - int(is_certain.sum())
        share = left / max(float(sizes[~is_certain].sum()), 1e-300)
        probability = np.where(is_certain, 1.0, sizes * share)
        if not (probability > 1).any():
            break
        is_certain |= probability >= 1
    return np.minimum(probability, 1.0)


def sampling_sizes(p_missing: Floats | Matrix, least_p: float) -> Matrix:
    """Return sizes by Neyman's allocation: the standard deviation of an answer, sqrt(p (1 - p)).

    p is no lower than ``least_p``, so that the sample is right about labels that the model
    overlooks.
    """
    p = np.clip(np.asarray(p_missing, np.float64), least_p, 1 - least_p)
    return np.asarray(np.sqrt(p * (1 - p)))


def split_total(total: float, expected: Matrix, confirmed: Matrix) -> Matrix:
    """Split a total among classes, none below what is confirmed there.

    What is not confirmed yet is split in proportion to what is ``expected`` beyond ``confirmed``.
    """
    beyond = np.maximum(expected - confirmed, 0.0)
    left = max(total - float(confirmed.sum()), 0.0)
    return np.asarray(confirmed + beyond * (left / max(float(beyond.sum()), 1e-300)))
