"""What the paper says, held against a sweep: one row for each finding, network and train set.

A finding becomes a number that is above zero where it is true: a gain, or what a gain has beyond
half of the best. Numbers are paired over clips and seeds (:func:`earmark.metrics.with_seeds`), best
points are chosen on ``tune`` and measured on ``eval``. How far seeds stray is estimated over all
networks and train sets together, finding by finding: three seeds of one that happen to agree prove
nothing. P-values are corrected by Holm's rule over all rows by the same labels: with fewer
resamples than twenty for each row nothing can be established. Findings of another kind (where the
best point lies, whether two networks gain alike) are judged by their interval alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import GIVEN
from earmark.experiments.evaluation import Basis, Evaluations
from earmark.experiments.strategies import Student, choose_point
from earmark.metrics import Draws, holm, over_classes, p_value, with_seeds

Floats = NDArray[np.float64]
Verdict = Literal["holds", "holds in part", "does not hold", "cannot be told"]

BEST_PERCENTS = {"d_prime_explicit": (3.0, 6.0), "d_prime_all": (3.0, 6.0), "lwlrap": (1.0, 4.0)}
"""Where the paper finds the best points."""

FINDINGS = (
    "gain", "random", "calibrated", "first_percent", "first_fifth", "best_point", "smaller_set",
    "alike", "decay", "large_classes", "small_classes",
)  # fmt: skip
"""What is held against a sweep, in the order of the table; the report has their words."""

_FEWEST_SEEDS = 3
"""Of fewer runs nobody knows how far other seeds would have strayed: two may agree by chance."""

_SCHEMA = {
    "finding": pl.String, "labels": pl.String, "metric": pl.String, "student": pl.String,
    "train_set": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "p": pl.Float64, "verdict": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class _Line:
    """The students of one network and train set by what they ignore, each a list of seeds."""

    evaluations: Evaluations
    network: str
    train_set: str
    masked: Mapping[float, Sequence[Student]]
    at_random: Mapping[float, Sequence[Student]]

    def gains(self, basis: Basis, metric: str, percent: float) -> list[Draws]:
        """Return the difference from the baseline, seed by seed."""
        return [self.evaluations.gain(basis, one, metric) for one in self.masked[percent]]

    def is_measured(self, basis: Basis, metric: str) -> bool:
        """Tell whether a metric could be measured on tune and on eval; few clips may not do."""
        students = [one for runs in self.masked.values() for one in runs]
        return all(
            np.isfinite(self.evaluations.value(where, one, metric).value)
            for where in (self._tune(basis), basis)
            for one in students
        )

    def best(self, basis: Basis, metric: str) -> float:
        """Return the percentage that is best on tune by the same labels, 0 not among them."""
        tune = self._tune(basis)
        percents = [percent for percent in self.masked if percent > 0]
        return choose_point(
            {one: self.evaluations.values(tune, self.masked[one], metric).value for one in percents}
        )

    def _tune(self, basis: Basis) -> Basis:
        """Return the basis of the same labels on tune, or of those given."""
        tunes = {one.labels: one for one in self.evaluations.bases if one.split == "tune"}
        return tunes.get(basis.labels, tunes[GIVEN])

    @cached_property
    def keys(self) -> dict[str, str]:
        """The columns that name the line."""
        return {"student": self.network, "train_set": self.train_set}


@dataclass(frozen=True)
class _Found:
    """A finding that is true where a number is above zero, seed by seed."""

    finding: str
    keys: Mapping[str, str]
    runs: Sequence[Draws]


def hold_claims(evaluations: Evaluations, wanted: Sequence[Student]) -> pl.DataFrame:
    """Return a row for each finding that can be held against a sweep, with value and verdict.

    Columns: finding (one of ``FINDINGS``), labels, metric, student, train_set, value, low and high
    (90 %), p, p_holm and verdict. Rows that compare two lines name both.
    """
    lines = _lines(evaluations, wanted)
    rows = [
        {"labels": basis.labels, "metric": metric, **row}
        for basis in evaluations.bases
        if basis.split == "eval"
        for metric in _metrics(lines, basis)
        for row in _rows([o for o in lines if o.is_measured(basis, metric)], basis, metric)
    ]
    judged = _judged(pl.DataFrame(rows, schema=_SCHEMA))
    is_told = len({one.seed for one in wanted}) >= _FEWEST_SEEDS
    return judged if is_told else judged.with_columns(verdict=pl.lit("cannot be told"))


def _lines(evaluations: Evaluations, wanted: Sequence[Student]) -> list[_Line]:
    names = dict.fromkeys((one.network.name, one.train_set) for one in wanted)
    found = []
    for network, train_set in names:
        own = [o for o in wanted if (o.network.name, o.train_set) == (network, train_set)]
        by_kind: dict[str, dict[float, list[Student]]] = {"mask": {}, "random": {}}
        for one in own:
            kind = "mask" if one == one.baseline else one.strategy.name
            if kind in by_kind:
                by_kind[kind].setdefault(one.point, []).append(one)
        if any(percent > 0 for percent in by_kind["mask"]):
            found.append(_Line(evaluations, network, train_set, by_kind["mask"], by_kind["random"]))
    return found


def _metrics(lines: Sequence[_Line], basis: Basis) -> list[str]:
    """Return the paper's metrics: d' by all labels where nobody was asked about absent sounds."""
    if not lines:
        return []
    first = next(iter(lines[0].masked.values()))[0]
    value = lines[0].evaluations.value(basis, first.baseline, "d_prime_explicit").value
    return ["d_prime_explicit" if np.isfinite(value) else "d_prime_all", "lwlrap"]


def _rows(lines: Sequence[_Line], basis: Basis, metric: str) -> Iterator[dict[str, object]]:
    """Yield all findings by a metric; seeds of one finding are taken to stray alike."""
    made = [
        row
        for make in (_single_rows, _size_rows, _network_rows)
        for row in make(lines, basis, metric)
    ]
    found = [row for row in made if isinstance(row, _Found)]
    for row in made:
        if isinstance(row, _Found):
            alike = [one.runs for one in found if one.finding == row.finding]
            yield _tested(row.finding, row.keys, with_seeds(row.runs, alike=alike))
        else:
            yield row


def _single_rows(
    lines: Sequence[_Line], basis: Basis, metric: str
) -> Iterator[dict[str, object] | _Found]:
    """Yield the findings about one network and train set at a time."""
    for line in lines:
        best = line.best(basis, metric)
        gains = line.gains(basis, metric, best)
        yield _Found("gain", line.keys, gains)
        for percent in line.at_random:
            drawn = [line.evaluations.gain(basis, one, metric) for one in line.at_random[percent]]
            same = line.gains(basis, metric, percent) if percent in line.masked else []
            if len(same) == len(drawn):
                yield _Found("random", line.keys, _less(same, drawn))
        if metric == "lwlrap":
            calibrated = line.gains(basis, "lwlrap_calibrated", best)
            yield _Found("calibrated", line.keys, calibrated)
            metrics = _metrics(lines, basis)
            if line.is_measured(basis, metrics[0]):
                yield _decay_row(line, basis, metrics)
        for finding, percent in (("first_percent", 1.0), ("first_fifth", 0.2)):
            if percent in line.masked:
                early = line.gains(basis, metric, percent)
                yield _Found(finding, line.keys, _less(early, gains, 0.5))
        yield _best_point_row(line, basis, metric)
        if metric == "lwlrap":
            yield from _class_rows(line, basis, best)


def _class_rows(line: _Line, basis: Basis, percent: float) -> Iterator[dict[str, object]]:
    """Compare the third of the classes with most positives on eval with that of fewest."""
    changes = np.mean(
        [_changes(line.evaluations, basis, one) for one in line.masked[percent]], axis=0
    )
    n_positives = line.evaluations.results[basis, line.masked[percent][0]].per_class["n_positives"]
    order = np.argsort(n_positives.to_numpy(), kind="stable")
    order = order[np.isfinite(changes[order])]
    n_third = len(order) // 3
    if n_third < 2:
        return
    n_draws = len(line.gains(basis, "lwlrap", percent)[0].resamples)
    few, many = (
        over_classes(changes[own], n_draws, seed)
        for seed, own in enumerate((order[:n_third], order[-n_third:]))
    )
    yield _tested("large_classes", line.keys, _scaled(many, -1))
    yield _tested("small_classes", line.keys, few - many)


def _changes(evaluations: Evaluations, basis: Basis, student: Student) -> Floats:
    """Return how much lwlrap changes from the baseline [class]."""
    own, base = (evaluations.results[basis, one].per_class for one in (student, student.baseline))
    changed: Floats = own["lwlrap"].to_numpy() - base["lwlrap"].to_numpy()
    return changed


def _decay_row(line: _Line, basis: Basis, metrics: Sequence[str]) -> _Found:
    """Compare the falls from the best point to the last, each relative to the baseline's value."""
    last = max(line.masked)
    falls = []
    for metric in metrics:
        best = line.gains(basis, metric, line.best(basis, metric))
        base = [
            line.evaluations.value(basis, one.baseline, metric).value for one in line.masked[last]
        ]
        fallen = zip(_less(best, line.gains(basis, metric, last)), base, strict=True)
        falls.append([_scaled(gap, 1 / value) for gap, value in fallen])
    return _Found("decay", line.keys, _less(falls[1], falls[0]))


def _best_point_row(line: _Line, basis: Basis, metric: str) -> dict[str, object]:
    """Say where the best point on eval lies, and where it lies on the resamples."""
    percents = [percent for percent in line.masked if percent > 0]
    draws = [line.evaluations.gains(basis, line.masked[percent], metric) for percent in percents]
    where = np.array(percents)[np.stack([one.resamples for one in draws]).argmax(axis=0)]
    low, high = np.quantile(where, [0.05, 0.95], method="nearest")
    value = percents[int(np.argmax([one.value for one in draws]))]
    first, last = BEST_PERCENTS[metric]
    verdict: Verdict = "holds in part" if first <= value <= last else "cannot be told"
    if first <= low and high <= last:
        verdict = "holds"
    elif high < first or low > last:
        verdict = "does not hold"
    return _row("best_point", line.keys, (value, float(low), float(high)), verdict=verdict)


def _size_rows(lines: Sequence[_Line], basis: Basis, metric: str) -> Iterator[_Found]:
    """Compare the gains on the smallest and the largest train set of each network."""
    for network in dict.fromkeys(line.network for line in lines):
        own = [line for line in lines if line.network == network]
        if len(own) < 2:
            continue
        small, large = own[0], own[-1]
        pair = [one.gains(basis, metric, one.best(basis, metric)) for one in (small, large)]
        if len(pair[0]) == len(pair[1]):
            both = f"{small.train_set} - {large.train_set}"
            keys = {"student": network, "train_set": both}
            yield _Found("smaller_set", keys, _less(pair[0], pair[1]))


def _network_rows(lines: Sequence[_Line], basis: Basis, metric: str) -> Iterator[dict[str, object]]:
    """Compare the gains of two networks on one train set: alike within half of their mean."""
    for train_set in dict.fromkeys(line.train_set for line in lines):
        own = [line for line in lines if line.train_set == train_set]
        if len(own) < 2:
            continue
        first, second = own[:2]
        gains = [one.gains(basis, metric, one.best(basis, metric)) for one in (first, second)]
        if len(gains[0]) != len(gains[1]):
            continue
        apart = with_seeds(_less(gains[0], gains[1])).interval()
        within = abs(sum(with_seeds(one).value for one in gains)) / 4
        verdict: Verdict = "cannot be told"
        if -within <= apart.low and apart.high <= within:
            verdict = "holds"
        elif apart.low > within or apart.high < -within:
            verdict = "does not hold"
        names = {"student": f"{first.network} - {second.network}", "train_set": train_set}
        yield _row("alike", names, apart, verdict=verdict)


def _row(
    finding: str,
    keys: Mapping[str, str],
    interval: tuple[float, float, float],
    p: float | None = None,
    verdict: Verdict | None = None,
) -> dict[str, object]:
    """Return a finding with its value and interval; Holm's rule judges those with a p-value."""
    value, low, high = interval
    numbers = {"value": value, "low": low, "high": high, "p": p}
    return {"finding": finding, **keys, **numbers, "verdict": verdict}


def _tested(finding: str, keys: Mapping[str, str], draws: Draws) -> dict[str, object]:
    """Return a finding that is true where a number is above zero."""
    return _row(finding, keys, draws.interval(), p_value(draws))


def _less(some: Sequence[Draws], others: Sequence[Draws], share: float = 1.0) -> list[Draws]:
    """Return the differences of runs, seed by seed, from a share of others."""
    return [one - _scaled(other, share) for one, other in zip(some, others, strict=True)]


def _scaled(draws: Draws, factor: float) -> Draws:
    return Draws(draws.value * factor, draws.resamples * factor)


def _judged(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``p_holm``, over all rows by the same labels that have a p-value, and their verdicts."""
    has_p, is_sure = pl.col("p").is_not_null(), pl.col("p_holm") < 0.05
    judged = with_holm(rows, ["labels"], has_p).with_columns(
        verdict=pl.when(~has_p)
        .then("verdict")
        .when(is_sure & (pl.col("value") > 0))
        .then(pl.lit("holds"))
        .when(is_sure)
        .then(pl.lit("does not hold"))
        .otherwise(pl.lit("cannot be told"))
    )
    order = {finding: place for place, finding in enumerate(FINDINGS)}
    by_finding = pl.col("finding").replace_strict(order, return_dtype=pl.Int64)
    return judged.sort("labels", by_finding, maintain_order=True)


def with_holm(rows: pl.DataFrame, groups: Sequence[str], is_tested: pl.Expr) -> pl.DataFrame:
    """Add ``p_holm``: p-values of the tested rows, corrected for their number in each group."""
    numbered = rows.with_row_index("row")
    parts = [
        part.select("row", p_holm=pl.Series(holm(part["p"].to_list()), dtype=pl.Float64))
        for part in numbered.filter(is_tested).partition_by(*groups, maintain_order=True)
    ]
    if not parts:
        return rows.with_columns(p_holm=pl.lit(None, pl.Float64))
    joined = numbered.join(pl.concat(parts), on="row", how="left", maintain_order="left")
    return joined.drop("row")
