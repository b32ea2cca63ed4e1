"""What ignoring flagged labels did to each student, in numbers and in one plain sentence.

Operating points are chosen on the ``tune`` split and judged on ``eval``; a gain counts as due to
the labels only as far as the random control and the calibration control leave it standing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from earmark.errors import EarmarkError
from earmark.figures import count_seeds, mean_over_seeds, within_class_metric
from earmark.intervals import Interval


@dataclass(frozen=True)
class Verdict:
    """What ignoring flagged labels did to one student on one train set, by lwlrap on ``eval``.

    ``percent`` is the point chosen on ``tune``; gains are differences from the baseline at that
    point. The random control is taken at the point nearest to it. Controls that were not run
    are None.
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

    @property
    def is_gain(self) -> bool:
        """Whether the interval of the gain lies above zero."""
        return self.percent > 0 and self.gain.low > 0

    @property
    def survives(self) -> bool:
        """Whether the gain is more than chance, and more than either control explains.

        The random control's gain must lie below the interval of the gain, and the gain after
        calibration must have an interval above zero. A control that was not run fails.
        """
        return (
            self.is_gain
            and self.random_gain is not None
            and self.random_gain.value < self.gain.low
            and self.calibrated_gain is not None
            and self.calibrated_gain.low > 0
        )

    @property
    def answer(self) -> str:
        """Whether ignoring labels helped: ``Yes``, ``Only in part`` or ``No``.

        Yes needs a gain that survives both controls and of which either leaves at least half.
        """
        if not self.is_gain:
            return "No"
        left = (self.left_after_random or 0, self.left_after_calibration or 0)
        return "Yes" if self.survives and min(left) >= 0.5 else "Only in part"

    @property
    def left_after_random(self) -> float | None:
        """Share of the gain that ignoring as many labels at random does not give."""
        if self.random_gain is None or self.gain.value <= 0:
            return None
        return 1 - self.random_gain.value / self.gain.value

    @property
    def left_after_calibration(self) -> float | None:
        """Share of the gain that is left when every student has its best prior offset."""
        if self.calibrated_gain is None or self.gain.value <= 0:
            return None
        return self.calibrated_gain.value / self.gain.value


def best_point(
    results: pl.DataFrame, metric: str, split: str = "tune", labels: str = "given"
) -> float:
    """Return the discard percent with the best mean of a metric; the smaller one of a tie.

    Give the results of one student and train set: the mean is over all rows of a point, which
    are then its seeds.
    """
    rows = results.filter(kind="mask", metric=metric, split=split, labels=labels)
    means = rows.group_by("discard_percent").agg(pl.col("value").mean())
    means = means.filter(pl.col("value").is_finite())
    if means.is_empty():
        raise EarmarkError(
            f"no operating point can be chosen: the results hold no {metric} on the split "
            f"{split!r} by the labels {labels!r}; does the dataset have clips of that split?"
        )
    ranked = means.sort("value", "discard_percent", descending=[True, False])
    return float(ranked["discard_percent"][0])


def verdicts(results: pl.DataFrame, labels: str = "given") -> list[Verdict]:
    """Return one verdict per student and train set, judged by the labels as given or the truth."""
    return [_verdict(own, labels) for own in by_line(results)]


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


def by_line(results: pl.DataFrame) -> list[pl.DataFrame]:
    """Part rows by student and train set: each is one line of figure 2."""
    if results.is_empty():
        raise EarmarkError("there are no results to report: run `earmark sweep` first")
    return results.partition_by("student", "train_set", maintain_order=True)


def at_point(means: pl.DataFrame, percent: float, column: str = "value") -> Interval:
    """Return one number of one operating point, with its interval."""
    row = means.row(by_predicate=pl.col("discard_percent") == percent, named=True)
    ends = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
    return Interval(row[column], row[ends[0]], row[ends[1]])


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number as people read it; a dash where it is not known."""
    is_known = value is not None and np.isfinite(value)
    return f"{value:z.{digits}f}".replace("-", "−") if is_known else "–"


def signed_text(value: float | None, digits: int = 3) -> str:
    """Return a difference with its sign; a dash where it is not known."""
    is_known = value is not None and np.isfinite(value)
    return f"{value:+z.{digits}f}".replace("-", "−") if is_known else "–"


def change_text(interval: Interval) -> str:
    """Return a difference and its interval in words."""
    low, high = signed_text(interval.low), signed_text(interval.high)
    return f"{signed_text(interval.value)}, 90 % interval {low} to {high}"


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


def _gain_at(means: pl.DataFrame, percent: float | None) -> Interval | None:
    """Return the difference from the baseline at a point, or None where nothing was measured."""
    if percent is None or means.is_empty():
        return None
    return at_point(means, percent, "difference")


def _sentence(verdict: Verdict) -> str:
    """Say what happened to one student on one train set."""
    if verdict.percent == 0:
        return "No: on the tune clips no operating point beat the baseline, which ignores nothing."
    what = f"ignoring the top-scored {verdict.percent:g} % of implicit labels"
    moved = (
        f"lwlrap on the evaluation clips from {number_text(verdict.baseline.value)} to "
        f"{number_text(verdict.best.value)} ({change_text(verdict.gain)})"
    )
    if verdict.gain.high < 0:
        return f"No: {what} lowered {moved}."
    if not verdict.is_gain:
        return f"No: {what} took {moved}, an interval that includes zero."
    link = "and" if verdict.survives else "but"
    return f"{verdict.answer}: {what} raised {moved}, {link} {_controls_clause(verdict)}."


def _controls_clause(verdict: Verdict) -> str:
    clauses = ["the random control was not run", "the calibration control was not run"]
    if verdict.random_gain is not None:
        clauses[0] = (
            f"{_share(verdict.left_after_random)} of it is left after the random control "
            f"({change_text(verdict.random_gain)}, at {verdict.random_percent:g} %)"
        )
    if verdict.calibrated_gain is not None:
        clauses[1] = (
            f"{_share(verdict.left_after_calibration)} of it is left after the calibration control "
            f"({change_text(verdict.calibrated_gain)})"
        )
    return " and ".join(clauses)


def _summary_sentence(found: Sequence[Verdict]) -> str:
    """Say what happened to several students; averages are over those that gained."""
    gained = [verdict for verdict in found if verdict.is_gain]
    answers = {verdict.answer for verdict in found}
    answer = answers.pop() if len(answers) == 1 else "Only in part" if gained else "No"
    told = (
        f"{answer}: ignoring flagged labels raised lwlrap on the evaluation clips beyond chance "
        f"(90 % interval above zero) for {_count(len(gained), len(found))} pairs of student and "
        "train set"
    )
    if not gained:
        n_lost = sum(verdict.gain.high < 0 for verdict in found)
        return f"{told} and lowered it for {n_lost}." if n_lost else f"{told}."
    return (
        f"{told}, by {signed_text(_mean(verdict.gain.value for verdict in gained))} on average; "
        f"{_mean_share(verdict.left_after_random for verdict in gained)} of that is left after the "
        f"random control and {_mean_share(verdict.left_after_calibration for verdict in gained)} "
        "after the calibration control, and the gain survives both for "
        f"{_count(sum(verdict.survives for verdict in gained), len(gained))}."
    )


def _count(n: int, n_all: int) -> str:
    return f"all {n_all}" if n == n_all else f"{n or 'none'} of the {n_all}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _mean_share(shares: Iterable[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return _share(_mean(known)) if known else "an unknown part"


def _share(share: float | None) -> str:
    if share is None:
        return "an unknown part"
    if share <= 0:
        return "nothing"
    return "all" if share >= 1 else f"{100 * share:.0f} %"
