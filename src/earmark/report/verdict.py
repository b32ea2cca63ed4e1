"""What ignoring flagged labels did to each student, in numbers.

Operating points are chosen on the ``tune`` split and judged on ``eval``; a gain counts as due to
the labels only as far as the random control and the calibration control leave it standing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from earmark.metrics import Interval
from earmark.report.numerals import interval_in, is_known
from earmark.report.results import (
    by_line,
    chosen_point,
    mean_over_seeds,
    within_class_metric,
)

Answer = Literal["Yes", "No", "Cannot tell"]
"""Whether ignoring labels helped; see :attr:`Verdict.answer`."""


ALPHA = 0.1
"""Corrected p-values below this are beyond chance, as 90 % intervals above zero are."""

_BEST_FIRST: tuple[Answer, ...] = ("Yes", "Cannot tell", "No")

LEAST_GAIN = 0.01
"""A gain in lwlrap that somebody would notice; an interval that ends below it says No."""


@dataclass(frozen=True)
class Verdict:
    """What a strategy did to one student on one train set, by lwlrap on ``eval``.

    ``percent`` is the point chosen on ``tune``; gains are differences from the baseline at that
    point. The random control is taken at the point nearest to it. Controls that were not run
    are None. ``p`` is the p-value of the gain, corrected where several strategies were tested.
    """

    student: str
    train_set: str
    percent: float
    baseline: Interval
    best: Interval
    gain: Interval
    calibrated_gain: Interval | None = None
    random_gain: Interval | None = None
    random_d_prime_gain: Interval | None = None
    random_percent: float | None = None
    strategy: str = "mask"
    p: float | None = None

    @property
    def is_gain(self) -> bool:
        """Whether the gain is beyond chance: its interval above zero, and p below ``ALPHA``."""
        return self.gain.low > 0 and self._is_sure

    @property
    def is_loss(self) -> bool:
        """Whether it is a loss beyond chance."""
        return self.gain.high < 0 and self._is_sure

    @property
    def left(self) -> dict[str, Interval | None]:
        """What each control leaves of the gain; None where it was not run.

        What is beyond the random control has an interval as if both were independent. That errs on
        the wide side: they share their baseline and their clips.
        """
        gain, control = self.gain, self.random_gain
        beyond_random = None
        if control is not None:
            value = gain.value - control.value
            beyond_random = Interval(
                value,
                value - math.hypot(gain.value - gain.low, control.high - control.value),
                value + math.hypot(gain.high - gain.value, control.value - control.low),
            )
        return {"random": beyond_random, "calibration": self.calibrated_gain}

    @property
    def survives(self) -> bool:
        """Whether the gain is more than chance, and more than either control explains.

        What it has beyond the random control, and what is left of it after calibration, must both
        have an interval above zero. A control that was not run fails.
        """
        is_left = (left is not None and left.low > 0 for left in self.left.values())
        return self.is_gain and all(is_left)

    @property
    def explained_by(self) -> str | None:
        """The control that leaves none of the gain that anyone would notice, if there is one."""
        return next((name for name, left in self.left.items() if left and _is_none(left)), None)

    @property
    def answer(self) -> Answer:
        """Whether it helped.

        Yes: there is a gain beyond chance, and both controls leave one. No: there is none that
        anyone would notice (``LEAST_GAIN``), there is a loss, or a control leaves none. Cannot
        tell: anything else, such as an interval that is too wide or a control that was not run.
        """
        if not math.isfinite(self.gain.value):
            return "Cannot tell"
        if self.survives:
            return "Yes"
        if self.is_gain:
            return "No" if self.explained_by else "Cannot tell"
        return "No" if self.is_loss or _is_none(self.gain) else "Cannot tell"

    @property
    def shares_left(self) -> dict[str, float | None]:
        """The share of the gain, 0 to 1, that each control leaves.

        None without the control, or without a gain beyond chance to take a share of.
        """
        return {
            name: None
            if left is None or not self.is_gain
            else min(max(left.value / self.gain.value, 0.0), 1.0)
            for name, left in self.left.items()
        }

    @property
    def _is_sure(self) -> bool:
        return self.p is None or self.p < ALPHA


def _is_none(gain: Interval) -> bool:
    """Whether there is no gain that anyone would notice."""
    return gain.low <= 0 and gain.high < LEAST_GAIN


def verdicts(results: pl.DataFrame, labels: str = "given") -> list[Verdict]:
    """Return one verdict per student and train set, judged by the labels as given or the truth."""
    return [_verdict(own, labels) for own in by_line(results)]


def strategy_verdicts(choices: pl.DataFrame, labels: str = "given") -> list[Verdict]:
    """Return a verdict for each tested strategy, student and train set, in the table's order.

    A strategy that does nothing, since no point of it was better on ``tune``, has a gain of 0.
    """
    given = choices.filter(labels=labels)
    return [
        _strategy_verdict(own, line)
        for line in given.partition_by("student", "train_set", maintain_order=True)
        for own in line.filter(role="tested").partition_by("strategy", maintain_order=True)
    ]


def _verdict(own: pl.DataFrame, labels: str) -> Verdict:
    """Judge one student on one train set."""
    means = mean_over_seeds(own.filter(split="eval", labels=labels))
    rows = {
        (row["kind"], row["metric"], row["discard_percent"]): row
        for row in means.iter_rows(named=True)
    }

    def gain(kind: str, metric: str, percent: float | None) -> Interval | None:
        row = rows.get((kind, metric, percent))
        return None if row is None else interval_in(row, "difference")

    percent = chosen_point(own)
    drawn = [point for kind, metric, point in rows if (kind, metric) == ("random", "lwlrap")]
    nearest = min(drawn, key=lambda point: (abs(point - percent), point), default=None)
    chosen = rows["mask", "lwlrap", percent]
    p = chosen.get("p")
    return Verdict(
        student=own["student"][0],
        train_set=own["train_set"][0],
        percent=percent,
        baseline=interval_in(rows["mask", "lwlrap", 0.0]),
        best=interval_in(chosen),
        gain=interval_in(chosen, "difference"),
        calibrated_gain=gain("mask", "lwlrap_calibrated", percent),
        random_gain=gain("random", "lwlrap", nearest),
        random_d_prime_gain=gain("random", within_class_metric(means.filter(kind="mask")), nearest),
        random_percent=nearest,
        p=p if is_known(p) else None,
    )


def _strategy_verdict(own: pl.DataFrame, line: pl.DataFrame) -> Verdict:
    """Judge the rows of one strategy by those of its student and train set."""
    rows = {row["metric"]: row for row in own.iter_rows(named=True)}
    firsts = line.filter(metric="lwlrap").unique("role", keep="first")
    others = {row["role"]: row for row in firsts.iter_rows(named=True)}
    row, calibrated, control = rows["lwlrap"], rows.get("lwlrap_calibrated"), others.get("control")
    return Verdict(
        student=row["student"],
        train_set=row["train_set"],
        percent=row["point"] or 0.0,
        baseline=interval_in(others["baseline"]),
        best=interval_in(row),
        gain=interval_in(row, "difference"),
        calibrated_gain=None if calibrated is None else interval_in(calibrated, "difference"),
        random_gain=None if control is None else interval_in(control, "difference"),
        random_percent=None if control is None else control["point"],
        strategy=row["strategy"],
        p=row["p_holm"],
    )


def best_verdict(tested: Sequence[Verdict]) -> Verdict:
    """Return the verdict that speaks most for what was done: by its answer, then by its gain."""

    def rank(verdict: Verdict) -> tuple[int, float]:
        gain = verdict.gain.value
        return _BEST_FIRST.index(verdict.answer), -gain if math.isfinite(gain) else math.inf

    return min(tested, key=rank)
