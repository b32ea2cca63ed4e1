"""What a run's tables of results say: metrics and their names, means, points, classes.

All statistics of a report are computed here; tables, sentences, charts and figures only show them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from earmark.errors import EarmarkError
from earmark.experiments import best_point
from earmark.labels import LabelSet, Ontology
from earmark.metrics import Interval, wilson_interval
from earmark.report.numerals import interval_in

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


def class_changes(
    per_class: pl.DataFrame,
    classes: pl.DataFrame,
    percent: float,
    cutoffs: tuple[float, float] | None = None,
) -> pl.DataFrame:
    """Return every class's lwlrap on ``eval`` at baseline and at a point, and its size group.

    ``per_class`` holds one student and train set; values are means over seeds. Classes whose
    lwlrap is undefined (no positives) are left out. Columns: class_id, name, prior, group,
    baseline, chosen, change.
    """
    rows = per_class.filter(kind="mask", split="eval", labels="given")
    priors = classes["prior"].to_numpy()
    groups = prior_groups(priors, cutoffs or prior_cutoffs(priors))
    changes = classes.select("class_id", "name", "prior", group=pl.Series(groups, dtype=pl.String))
    for name, point in (("baseline", 0.0), ("chosen", percent)):
        at_point = rows.filter(discard_percent=point).group_by("class_id")
        means = at_point.agg(pl.col("lwlrap").mean().alias(name))
        changes = changes.join(means, on="class_id", maintain_order="left")
    changes = changes.filter(pl.col("baseline").is_finite() & pl.col("chosen").is_finite())
    return changes.with_columns(change=pl.col("chosen") - pl.col("baseline"))


def group_table(changes: pl.DataFrame) -> pl.DataFrame:
    """Return, for large, medium and small classes, how many improved and by how much.

    ``mean_change_improved`` averages over the improved classes only: the paper's "average
    improvement", which cannot be negative. ``mean_change`` averages over all of the group.
    A group without (improved) classes has null means.
    """
    change, is_improved = pl.col("change"), pl.col("change") > 0
    found = changes.group_by("group").agg(
        n_classes=pl.len().cast(pl.Int64),
        n_improved=is_improved.sum().cast(pl.Int64),
        improved_percent=100 * is_improved.mean(),
        mean_change=change.mean(),
        mean_change_improved=change.filter(is_improved).mean(),
    )
    order = pl.DataFrame({"group": PRIOR_GROUPS})
    table = order.join(found, on="group", how="left", maintain_order="left")
    return table.with_columns(pl.col("n_classes", "n_improved").fill_null(0))


def class_table(
    changes: pl.DataFrame, per_class: pl.DataFrame, counts: pl.DataFrame, percent: float
) -> pl.DataFrame:
    """Return everything that is known of the classes of one student and train set.

    ``changes`` come from :func:`class_changes`, ``counts`` (class_id, positives, to_ignore) from
    the train split. d' (over all labels) and AP are added where ``per_class`` has them: at the
    baseline and how they change, by the labels as given.
    """
    table = counts.join(changes, on="class_id", how="left", maintain_order="left")
    rows = per_class.filter(kind="mask", split="eval", labels="given")
    for metric in ("d_prime_all", "ap"):
        if metric not in rows.columns:
            continue
        at = [
            rows.filter(discard_percent=point)
            .group_by("class_id")
            .agg(pl.col(metric).mean().alias(f"{metric}_{name}"))
            for name, point in (("baseline", 0.0), ("chosen", percent))
        ]
        for means in at:
            table = table.join(means, on="class_id", how="left", maintain_order="left")
        change = pl.col(f"{metric}_chosen") - pl.col(f"{metric}_baseline")
        table = table.with_columns(change.alias(f"{metric}_change"))
    return table


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
