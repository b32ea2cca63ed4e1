"""What a report is made of, and what its tables say: metrics and names, means, points, classes.

All statistics of a report are computed here; tables, sentences and charts only show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from earmark.errors import EarmarkError
from earmark.experiments import best_point
from earmark.labels import LabelSet, Ontology
from earmark.metrics import Interval, wilson_interval
from earmark.report.numerals import interval_in
from earmark.report.rendering import HeardFlag

if TYPE_CHECKING:
    from earmark.flags import MissingEstimates
    from earmark.review import Gains

METRIC_NAMES = {
    "d_prime_explicit": "d′ (explicit labels)",
    "lwlrap": "lwlrap",
    "lwlrap_calibrated": "lwlrap, calibrated",
    "lwlrap_fitted": "lwlrap, fitted offsets",
    "d_prime_all": "d′ (all labels)",
    "map": "mAP",
}
"""How metrics are called where people read, in the order in which they are shown."""


_TABLE_METRICS = ("d_prime_explicit", "lwlrap", "d_prime_all", "map")


SHOWN_METRICS = ("lwlrap", "lwlrap_calibrated", "d_prime_all", "map")
"""The metrics of a comparison that people read; the CSV file has all."""


COURSE_NAMES = {
    "loss": "loss",
    "tune_lwlrap": "lwlrap on tune",
    "tune_loss": "loss on tune",
    "learning_rate": "learning rate",
}
"""How the columns of a history are called where people read."""


BASIS_NAMES = {
    "given": "the labels as given",
    "ignored": "the labels as given, flagged ones left out",
    "corrected": "the labels as corrected by judgements",
    "truth": "the complete labels of the simulator",
}
"""How the labels that students are judged by are called, in the order in which they are shown."""


PAPER_PRIOR_CUTOFFS = (0.00325, 0.01)
"""The paper's limits of small and large classes in AudioSet: prior below, prior above."""


PRIOR_GROUPS = ("large", "medium", "small")


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
    sample_rate_hz: int = 16_000
    teacher: TeacherGrade | None = None
    """None where it was not measured: its scores are in-sample, or of unknown origin."""
    estimates: MissingEstimates | None = None
    """What is known of the missing labels."""
    gains: Gains | None = None
    """What listening has found, where a queue that learns was heard."""

    def line_changes(self) -> list[LineChanges]:
        """Return the per-class changes of every student and train set.

        The point is the one chosen on ``tune`` among those that ignore something.
        """
        if self.results is None or self.per_class is None:
            return []
        lines = []
        for results in by_line(self.results.filter(pl.col("discard_percent") > 0)):
            student, train_set = results["student"][0], results["train_set"][0]
            percent = chosen_point(results)
            rows = self.per_class.filter(student=student, train_set=train_set)
            changes = class_changes(rows, self.classes, percent)
            lines.append(LineChanges(student, train_set, percent, changes))
        return lines


def mean_over_seeds(results: pl.DataFrame) -> pl.DataFrame:
    """Return one row per student, point, basis and metric, whatever the seeds.

    A sweep's summary is that already, its intervals over clips and seeds. Of rows by seed, values
    and the ends of intervals are averaged: they tell how results vary with the clips alone.
    """
    if "n_seeds" in results.columns:
        return results
    keys = ["student", "train_set", "kind", "discard_percent", "split", "labels", "metric"]
    numbers = ["value", "low", "high", "difference", "difference_low", "difference_high"]
    return results.group_by(keys, maintain_order=True).agg(pl.col(numbers).mean())


def count_seeds(results: pl.DataFrame) -> int:
    """Return the number of training runs behind each point, by seed or summarised."""
    if "n_seeds" in results.columns:
        return int(results["n_seeds"].max() or 0)  # type: ignore[arg-type]
    return results["seed"].n_unique()


def within_class_metric(results: pl.DataFrame) -> str:
    """Return the d′ of the paper, or d′ over all labels where explicit ones do not suffice."""
    explicit = results.filter(pl.col("metric") == "d_prime_explicit")["value"]
    return "d_prime_explicit" if explicit.is_finite().any() else "d_prime_all"


def bases_of(results: pl.DataFrame) -> list[str]:
    """List the labels that results on eval are judged by, in the order in which they are shown."""
    there = set(results.filter(split="eval")["labels"])
    return [labels for labels in BASIS_NAMES if labels in there]


def by_line(results: pl.DataFrame) -> list[pl.DataFrame]:
    """Part rows by student and train set: each is one line of figure 2."""
    if results.is_empty():
        raise EarmarkError("there are no results to report: run `earmark sweep` first")
    return results.partition_by("student", "train_set", maintain_order=True)


def at_point(means: pl.DataFrame, percent: float, column: str = "value") -> Interval:
    """Return one number of one operating point, with its interval."""
    row = means.row(by_predicate=pl.col("discard_percent") == percent, named=True)
    return interval_in(row, column)


def chosen_point(own: pl.DataFrame) -> float:
    """Return the discard percent of one student and train set: the best by lwlrap on ``tune``.

    There is one point for all that is said of a student, whichever the metric.
    """
    return best_point(own, "lwlrap")


def performance_table(results: pl.DataFrame, labels: str = "given") -> pl.DataFrame:
    """Return Table II: baseline, chosen point, difference and relative gain on ``eval``.

    One row per student, train set and metric that could be computed, all at the point that lwlrap
    on ``tune`` chooses; ``best_on_eval`` is the paper's choice: by each metric, on ``eval`` itself.
    """
    return pl.DataFrame(
        [
            _performance_row(own, metric, labels)
            for own in by_line(results)
            for metric in _TABLE_METRICS
            if _has(own, metric, "tune", "given") and _has(own, metric, "eval", labels)
        ]
    )


def flags_judged_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Return precision and recall of the flags at every point, with 90 % Wilson intervals."""
    table = judged.filter(pl.col("n_flags") > 0).sort("discard_percent")
    for name, total in (("precision", "n_flags"), ("recall", "n_missing")):
        low, high = wilson_interval(table["n_right"].to_numpy(), table[total].to_numpy())
        share = pl.col("n_right") / pl.col(total)
        ends = {f"{name}_low": pl.Series(low), f"{name}_high": pl.Series(high)}
        table = table.with_columns(share.alias(name), **ends)
    return table


def named_by_role(choices: pl.DataFrame) -> pl.DataFrame:
    """Return choices whose oracles and controls are called so: people must not pick from them."""
    is_marked = pl.col("role").is_in(["oracle", "control"])
    marked = pl.format("{} ({})", "strategy", "role")
    return choices.with_columns(strategy=pl.when(is_marked).then(marked).otherwise("strategy"))


def class_summary(labels: LabelSet, ontology: Ontology) -> pl.DataFrame:
    """Return names and label counts of all classes: class_id, name, n_total, ..., prior."""
    return pl.DataFrame(
        {
            "class_id": list(labels.class_ids),
            "name": [ontology.name(class_id) for class_id in labels.class_ids],
            "n_total": [labels.n_clips] * labels.n_classes,
            "n_positives": labels.n_positives,
            "n_negatives": labels.n_negatives,
            "n_implicit": labels.n_implicit,
            "prior": labels.priors,
        }
    )


def label_counts(thresholds: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Return the supplement's table for every operating point and class.

    Columns: discard_percent, class_id, name, total, explicit (present or not), implicit and
    to_ignore.
    """
    names = classes.select("class_id", "name", total="n_total")
    joined = thresholds.join(names, on="class_id", maintain_order="left")
    explicit = pl.col("total") - pl.col("n_implicit")
    return joined.select(
        "discard_percent", "class_id", "name", "total", explicit.alias("explicit"),
        implicit="n_implicit", to_ignore="n_ignored",
    )  # fmt: skip


def prior_cutoffs(priors: ArrayLike) -> tuple[float, float]:
    """Return the priors below which a class is small and above which it is large.

    These are the paper's where they leave none of the three groups empty; elsewhere the priors'
    terciles.

    >>> prior_cutoffs([0.001, 0.005, 0.02])
    (0.00325, 0.01)
    >>> prior_cutoffs([0.1, 0.2, 0.3, 0.4])
    (0.2, 0.3)
    """
    priors = np.asarray(priors, np.float64)
    groups = set(prior_groups(priors, PAPER_PRIOR_CUTOFFS))
    if not groups or groups == set(PRIOR_GROUPS):
        return PAPER_PRIOR_CUTOFFS
    low, high = np.quantile(priors, [1 / 3, 2 / 3])
    return round(float(low), 12), round(float(high), 12)


def prior_groups(priors: ArrayLike, cutoffs: tuple[float, float]) -> list[str]:
    """Return ``small``, ``medium`` or ``large`` for each class: strictly below, strictly above."""
    small_below, large_above = cutoffs
    priors = np.asarray(priors, np.float64)
    groups = np.where(priors < small_below, "small", "medium")
    return [str(group) for group in np.where(priors > large_above, "large", groups)]


def class_changes(per_class: pl.DataFrame, classes: pl.DataFrame, percent: float) -> pl.DataFrame:
    """Return every class's metrics on ``eval`` at the baseline and at a point, by given labels.

    ``per_class`` holds one student and train set; values are means over seeds, and not finite where
    a class has no positives to measure by. Columns: class_id, name, prior, group, and the
    baseline, chosen and change of lwlrap; d' over all labels and AP have the same with their names
    before them, where ``per_class`` has them.
    """
    rows = per_class.filter(kind="mask", split="eval", labels="given")
    names = {"lwlrap": "", "d_prime_all": "d_prime_all_", "ap": "ap_"}
    starts = {metric: start for metric, start in names.items() if metric in rows.columns}
    means = rows.group_by("class_id", "discard_percent").agg(pl.col(*starts).mean())
    priors = classes["prior"].to_numpy()
    groups = pl.Series(prior_groups(priors, prior_cutoffs(priors)), dtype=pl.String)
    changes = classes.select("class_id", "name", "prior", group=groups)
    for name, point in (("baseline", 0.0), ("chosen", percent)):
        columns = {f"{start}{name}": metric for metric, start in starts.items()}
        at_point = means.filter(discard_percent=point).select("class_id", **columns)
        changes = changes.join(at_point, on="class_id", how="left", maintain_order="left")
    return changes.with_columns(
        (pl.col(f"{start}chosen") - pl.col(f"{start}baseline")).alias(f"{start}change")
        for start in starts.values()
    )


def group_table(changes: pl.DataFrame) -> pl.DataFrame:
    """Return, for large, medium and small classes, how many improved and by how much.

    ``mean_change_improved`` averages over the improved classes only: the paper's "average
    improvement", which cannot be negative. ``mean_change`` averages over all of the group.
    A group without (improved) classes has null means.
    """
    change, is_improved = pl.col("change"), pl.col("change") > 0
    measured = changes.filter(pl.col("change").is_finite())
    found = measured.group_by("group").agg(
        n_classes=pl.len().cast(pl.Int64),
        n_improved=is_improved.sum().cast(pl.Int64),
        improved_percent=100 * is_improved.mean(),
        mean_change=change.mean(),
        mean_change_improved=change.filter(is_improved).mean(),
    )
    order = pl.DataFrame({"group": PRIOR_GROUPS})
    table = order.join(found, on="group", how="left", maintain_order="left")
    return table.with_columns(pl.col("n_classes", "n_improved").fill_null(0))


def _has(own: pl.DataFrame, metric: str, split: str, labels: str) -> bool:
    rows = own.filter(kind="mask", metric=metric, split=split, labels=labels)
    return bool(rows["value"].is_finite().any())


def _performance_row(own: pl.DataFrame, metric: str, labels: str) -> dict[str, Any]:
    rows = own.filter(kind="mask", split="eval", labels=labels, metric=metric)
    means = mean_over_seeds(rows)
    percent = chosen_point(own)
    papers_percent = best_point(own, metric, split="eval", labels=labels)
    baseline, difference = at_point(means, 0.0), at_point(means, percent, "difference")
    return {
        "student": own["student"][0],
        "train_set": own["train_set"][0],
        "metric": metric,
        **spread("baseline", baseline),
        "best_percent": percent,
        **spread("best", at_point(means, percent)),
        **spread("difference", difference),
        "relative_gain_percent": 100 * difference.value / baseline.value,
        "best_on_eval_percent": papers_percent,
        "best_on_eval": at_point(means, papers_percent).value,
    }


def spread(name: str, interval: Interval | None) -> dict[str, float | None]:
    """Return a number and the ends of its interval as cells of a row."""
    value, low, high = interval or (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
