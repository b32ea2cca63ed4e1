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

from earmark.metrics import Interval
from earmark.report.numerals import (
    change_text,
    count_text,
    gain_text,
    interval_in,
    share_text,
    signed_text,
)
from earmark.report.results import (
    at_point,
    by_line,
    chosen_point,
    count_seeds,
    mean_over_seeds,
    within_class_metric,
)

Answer = Literal["Yes", "No", "Cannot tell"]
"""Whether ignoring labels helped; see :attr:`Verdict.answer`."""


ALPHA = 0.1
"""Corrected p-values below this are beyond chance, as 90 % intervals above zero are."""

LEAST_GAIN = 0.01
"""A gain in lwlrap that somebody would notice; an interval that ends below it says No."""

_CONTROLS = {"random": "ignoring as many at random", "calibration": "calibration alone"}
"""What each control does, in place of ignoring what is likely."""


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
    def left(self) -> dict[str, Interval | None]:
        """What each control leaves of the gain; None where it was not run."""
        return {"random": self.beyond_random, "calibration": self.calibrated_gain}

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


def headline(results: pl.DataFrame) -> str:
    """Say in one short sentence whether ignoring labels helped, and by how much."""
    found = verdicts(results)
    return verdict_sentence(found[0]) if len(found) == 1 else _joint_sentence(found)


def controls_told(results: pl.DataFrame) -> list[str]:
    """Say of each student that gained how much of its gain both controls leave."""
    return [
        f"{verdict.student}, {verdict.train_set}: {told}."
        for verdict in verdicts(results)
        if (told := control_clauses(verdict))
    ]


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
    percent = chosen_point(own)
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
        p=_p_at(curve, percent),
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


def _p_at(means: pl.DataFrame, percent: float) -> float | None:
    """Return the p-value of the difference at a point; None where the results have none."""
    if "p" not in means.columns:
        return None
    p = float(means.row(by_predicate=pl.col("discard_percent") == percent, named=True)["p"])
    return p if math.isfinite(p) else None


def verdict_sentence(verdict: Verdict, *, is_named: bool = False) -> str:
    """Say in one short sentence what became of one student on one train set."""
    gain = verdict.gain
    lwlrap = f"lwlrap of {verdict.student}, {verdict.train_set}" if is_named else "lwlrap"
    if not math.isfinite(gain.value):
        why = "lwlrap could not be measured; do the evaluation clips have labels that are present?"
    elif verdict.percent == 0 and verdict.strategy == "mask":
        why = "on the clips set apart for choosing, no share of ignored labels beats ignoring none."
    elif gain.value == 0 and gain.low == gain.high:
        why = f"on the clips set apart for choosing, nothing {verdict.strategy} does beats nothing."
    elif verdict.is_gain:
        why = f"{_act(verdict)} raises {lwlrap} by {gain_text(gain)}{_but(verdict)}."
    elif verdict.is_loss:
        why = f"{_act(verdict)} lowers {lwlrap} by {gain_text(_negative(gain))}."
    else:
        why = (
            f"{_act(verdict)} changes {lwlrap} by {gain_text(gain, signed_text)}{_doubt(verdict)}."
        )
    return f"{verdict.answer}: {why}"


def control_clauses(verdict: Verdict) -> str:
    """Say what both controls leave of a gain, with intervals; empty without a gain."""
    if not verdict.is_gain:
        return ""
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


def _act(verdict: Verdict) -> str:
    """Say what was done to the labels."""
    if verdict.strategy == "mask":
        return f"ignoring the likeliest {verdict.percent:g} % of labels nobody was asked about"
    return f"the strategy {verdict.strategy}@{verdict.percent:g}"


def _but(verdict: Verdict) -> str:
    """Say what the controls make of a gain that is beyond chance."""
    if verdict.survives:
        shares = {
            "random": verdict.left_after_random,
            "calibration": verdict.left_after_calibration,
        }
        name, least = min(shares.items(), key=lambda item: item[1] or 0.0)
        if least is None or least >= 0.5:
            return "; both controls agree"
        return f"; {_CONTROLS[name]} gives {share_text(1 - least)} of it"
    if verdict.explained_by:
        return f", but {_CONTROLS[verdict.explained_by]} does as much"
    unrun = [name for name, left in verdict.left.items() if left is None]
    if unrun:
        return f", but the {' and the '.join(unrun)} control was not run"
    name = next(name for name, left in verdict.left.items() if left is None or left.low <= 0)
    return f"; to rule out the {name} control, more seeds or clips are needed"


def _doubt(verdict: Verdict) -> str:
    """Say why a change is neither a gain nor a loss."""
    if verdict.answer == "No":
        return ", too little to matter"
    if verdict.gain.low > 0 or verdict.gain.high < 0:
        return ", which may be chance among so many strategies"
    return "; more seeds or clips are needed"


def _negative(gain: Interval) -> Interval:
    return Interval(-gain.value, -gain.high, -gain.low)


def _left(share: float | None, left: Interval) -> str:
    may_be_chance = " (which may be chance)" if share and left.low <= 0 else ""
    return f"{share_text(share)} of it{may_be_chance} is left"


def _joint_sentence(found: Sequence[Verdict]) -> str:
    """Say what became of several students; the average is over those that gained."""
    answers = {verdict.answer for verdict in found}
    answer: Answer = answers.pop() if len(answers) == 1 else "Cannot tell"
    gained = [verdict for verdict in found if verdict.is_gain]
    n_lost = sum(verdict.is_loss for verdict in found)
    lost = f" and lowers it for {n_lost}" if n_lost else ""
    told = f"{answer}: ignoring the likeliest labels nobody was asked about raises lwlrap for"
    if not gained:
        return f"{told} none of the {len(found)} students{lost}."
    mean = float(np.mean([verdict.gain.value for verdict in gained]))
    n_survive = sum(verdict.survives for verdict in gained)
    return (
        f"{told} {count_text(len(gained), len(found))} students (by {mean:.3f} on average){lost}; "
        f"both controls agree for {count_text(n_survive, len(gained))}."
    )
