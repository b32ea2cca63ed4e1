"""What ignoring flagged labels did to each student, in numbers and in one plain sentence.

Operating points are chosen on the ``tune`` split and judged on ``eval``; a gain counts as due to
the labels only as far as the random control and the calibration control leave it standing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from earmark.experiments import best_point
from earmark.metrics import Interval
from earmark.report.numerals import (
    change_text,
    count_text,
    interval_in,
    number_text,
    share_text,
    signed_text,
)
from earmark.report.results import (
    at_point,
    by_line,
    count_seeds,
    mean_over_seeds,
    within_class_metric,
)

Answer = Literal["Yes", "Only in part", "Unsure", "No", "Unknown"]
"""Whether ignoring labels helped; see :attr:`Verdict.answer`."""


ALPHA = 0.1
"""Corrected p-values below this are beyond chance, as 90 % intervals above zero are."""


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
    d_prime_gain: Interval | None = None
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
    def beyond_random(self) -> Interval | None:
        """How far the gain exceeds the random control's.

        The two intervals are joined as if they were independent. That errs on the wide side: they
        share their baseline and their clips.
        """
        if self.random_gain is None:
            return None
        gain, control = self.gain, self.random_gain
        value = gain.value - control.value
        return Interval(
            value,
            value - math.hypot(gain.value - gain.low, control.high - control.value),
            value + math.hypot(gain.high - gain.value, control.value - control.low),
        )

    @property
    def survives(self) -> bool:
        """Whether the gain is more than chance, and more than either control explains.

        What it has beyond the random control, and what is left of it after calibration, must both
        have an interval above zero. A control that was not run fails.
        """
        return self.is_gain and all(
            left is not None and left.low > 0 for left in (self.beyond_random, self.calibrated_gain)
        )

    @property
    def answer(self) -> Answer:
        """Whether it helped.

        No: there is no gain beyond chance, or a control leaves nothing of it. Unsure: a control
        was not run, or what it leaves may be chance. Only in part: the gain survives both
        controls, but one of them leaves less than half. Yes: both leave at least half. Unknown:
        there was nothing to measure by.
        """
        if not math.isfinite(self.gain.value):
            return "Unknown"
        left = [self.left_after_random, self.left_after_calibration]
        if not self.is_gain or 0 in left:
            return "No"
        if not self.survives:
            return "Unsure"
        return "Yes" if min(share for share in left if share is not None) >= 0.5 else "Only in part"

    @property
    def left_after_random(self) -> float | None:
        """Share of the gain, 0 to 1, that ignoring as many labels at random does not give.

        None without the control, or without a gain beyond chance to take a share of.
        """
        return self._share(self.beyond_random)

    @property
    def left_after_calibration(self) -> float | None:
        """Share of the gain, 0 to 1, that is left when every student has its best prior offset."""
        return self._share(self.calibrated_gain)

    @property
    def _is_sure(self) -> bool:
        return self.p is None or self.p < ALPHA

    def _share(self, left: Interval | None) -> float | None:
        if left is None or not self.is_gain:
            return None
        return min(max(left.value / self.gain.value, 0.0), 1.0)


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


def headline(results: pl.DataFrame) -> str:
    """Say in one sentence what happened: how much was gained, and how much the controls leave."""
    found = verdicts(results)
    return _sentence(found[0]) if len(found) == 1 else _summary_sentence(found)


def noise_note(results: pl.DataFrame) -> str:
    """Say how far training alone moves a student: what the random control did, beside the gain.

    Labels ignored at random hold next to nothing, so whatever that student differs by is mostly
    the chaos of training, which intervals over clips do not contain. Empty without the control.
    """
    told = [
        f"{verdict.student}, {verdict.train_set}: lwlrap by "
        f"{signed_text(verdict.random_gain.value)} and d' by "
        f"{signed_text(verdict.random_d_prime_gain.value)}"
        for verdict in verdicts(results)
        if verdict.random_gain is not None and verdict.random_d_prime_gain is not None
    ]
    if not told:
        return ""
    n_seeds = count_seeds(results)
    over = "and over training runs" if "n_seeds" in results.columns and n_seeds > 1 else "only"
    return (
        f"Intervals are over clips {over} ({n_seeds} seed{'s' if n_seeds > 1 else ''}). Ignoring "
        "labels at random, which should change little, "
        f"moved {'; '.join(told)}: take differences of that size for noise."
    )


def _verdict(own: pl.DataFrame, labels: str) -> Verdict:
    percent = best_point(own, "lwlrap")
    means = mean_over_seeds(own.filter(split="eval", labels=labels))
    masked, lwlrap = means.filter(kind="mask"), means.filter(metric="lwlrap")
    curve, control = lwlrap.filter(kind="mask"), lwlrap.filter(kind="random")
    within = within_class_metric(masked)
    d_prime = masked.filter(metric=within)
    calibrated = masked.filter(metric="lwlrap_calibrated")
    nearest = control.sort((pl.col("discard_percent") - percent).abs(), "discard_percent")
    random_percent = None if control.is_empty() else float(nearest["discard_percent"][0])
    return Verdict(
        student=own["student"][0],
        train_set=own["train_set"][0],
        percent=percent,
        baseline=at_point(curve, 0.0),
        best=at_point(curve, percent),
        gain=at_point(curve, percent, "difference"),
        d_prime_gain=_gain_at(d_prime, percent),
        calibrated_gain=_gain_at(calibrated, percent),
        random_gain=_gain_at(control, random_percent),
        random_d_prime_gain=_gain_at(means.filter(kind="random", metric=within), random_percent),
        random_percent=random_percent,
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


def _gain_at(means: pl.DataFrame, percent: float | None) -> Interval | None:
    """Return the difference from the baseline at a point, or None where nothing was measured."""
    if percent is None or means.is_empty():
        return None
    return at_point(means, percent, "difference")


def _sentence(verdict: Verdict) -> str:
    """Say what happened to one student on one train set."""
    if verdict.answer == "Unknown":
        return (
            "Unknown: lwlrap could not be measured on the evaluation clips; do they have labels "
            "that are present?"
        )
    if verdict.percent == 0:
        return "No: on the tune clips no operating point beat the baseline, which ignores nothing."
    what = f"ignoring the top-scored {verdict.percent:g} % of implicit labels"
    moved = (
        f"lwlrap on the evaluation clips from {number_text(verdict.baseline.value)} to "
        f"{number_text(verdict.best.value)} ({change_text(verdict.gain)})"
    )
    if verdict.is_loss:
        return f"No: {what} lowered {moved}."
    if not verdict.is_gain:
        return f"No: {what} took {moved}, an interval that includes zero."
    link = "and" if verdict.answer == "Yes" else "but"
    return f"{verdict.answer}: {what} raised {moved}, {link} {_controls_clause(verdict)}."


def _controls_clause(verdict: Verdict) -> str:
    clauses = ["the random control was not run", "the calibration control was not run"]
    if verdict.random_gain is not None and verdict.beyond_random is not None:
        clauses[0] = (
            f"{_left(verdict.left_after_random, verdict.beyond_random)} after the random control, "
            f"which by itself gives {change_text(verdict.random_gain)}, "
            f"at {verdict.random_percent:g} %"
        )
    if verdict.calibrated_gain is not None:
        clauses[1] = (
            f"{_left(verdict.left_after_calibration, verdict.calibrated_gain)} after the "
            f"calibration control ({change_text(verdict.calibrated_gain)})"
        )
    return ", and ".join(clauses)


def _left(share: float | None, left: Interval) -> str:
    may_be_chance = " (which may be chance)" if share and left.low <= 0 else ""
    return f"{share_text(share)} of it{may_be_chance} is left"


def _summary_sentence(found: Sequence[Verdict]) -> str:
    """Say what happened to several students; averages are over those that gained."""
    gained = [verdict for verdict in found if verdict.is_gain]
    n_lost = sum(verdict.is_loss for verdict in found)
    lost = f", and lowered it for {n_lost}" if n_lost else ""
    told = (
        f"{_joint_answer(found)}: ignoring flagged labels raised lwlrap on the evaluation clips "
        f"beyond chance (90 % interval above zero) for {count_text(len(gained), len(found))} pairs "
        "of student and train set"
    )
    if not gained:
        return f"{told}{lost}."
    mean = float(np.mean([verdict.gain.value for verdict in gained]))
    n_survive = sum(verdict.survives for verdict in gained)
    return (
        f"{told}, by {signed_text(mean)} on average{lost}; {_left_on_average(gained)}; the gain "
        f"survives both controls for {count_text(n_survive, len(gained))}."
    )


def _joint_answer(found: Sequence[Verdict]) -> Answer:
    answers = {verdict.answer for verdict in found}
    if len(answers) == 1:
        return answers.pop()
    if answers & {"Yes", "Only in part"}:
        return "Only in part"
    return "Unsure" if "Unsure" in answers else "No"


def _left_on_average(gained: Sequence[Verdict]) -> str:
    """Say what the controls leave of the mean gain: a ratio of means, not a mean of ratios."""
    controls = {
        "random": [verdict.beyond_random for verdict in gained],
        "calibration": [verdict.calibrated_gain for verdict in gained],
    }
    clauses = []
    for name, left in controls.items():
        values = [one.value for one in left if one is not None]
        if len(values) < len(gained):
            clauses.append(f"the {name} control was not run")
            continue
        share = sum(values) / sum(verdict.gain.value for verdict in gained)
        clauses.append(f"{share_text(share)} of that is left after the {name} control")
    return " and ".join(clauses)
