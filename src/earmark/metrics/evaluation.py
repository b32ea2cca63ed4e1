"""Scores and labels to results: per class, overall, and on resamples of the clips.

:func:`evaluate` gives the paper's metrics and what its peers print. :func:`bootstrap` repeats the
overall ones on resamples; draw the weights once, use them for every student, and the difference of
two students' arrays is a paired difference.

Evaluation sets have missing labels too. Labels that are *left out* take no part: they are neither
negatives of their class nor rivals of their clip's positives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark.errors import EarmarkError
from earmark.labels import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet
from earmark.metrics.lwlrap import (
    lwlrap_label_weighted,
    lwlrap_per_class,
    resampled_lwlrap_per_class,
)
from earmark.metrics.matrices import Floats, mean_over_classes
from earmark.metrics.within_class import (
    Negatives,
    Resampled,
    auc_and_ap_per_class,
    d_prime,
    resampled_auc_and_ap,
)

METRICS = (
    "d_prime_explicit",
    "d_prime_all",
    "lwlrap",
    "lwlrap_label_weighted",
    "map",
    "d_prime_of_mean_auc_explicit",
    "d_prime_of_mean_auc_all",
)
"""Names of the overall metrics, the paper's own (``d_prime_explicit``, ``lwlrap``) among them."""

BOOTSTRAP_METRICS = ("d_prime_explicit", "d_prime_all", "lwlrap", "map")
"""The overall metrics that :func:`bootstrap` repeats."""


@dataclass(frozen=True)
class Evaluation:
    """The results of one student on one set of clips.

    ``per_class`` has one row per class: class_id, n_positives, n_negatives (explicit ones),
    auc_explicit, auc_all, d_prime_explicit, d_prime_all, lwlrap, ap_explicit, ap (all negatives);
    NaN where a class cannot be measured. ``overall`` has the names of :data:`METRICS`. The counts
    say how many classes the means leave out, and how many AUCs of exactly 0 or 1 were clipped
    before d' was taken, by kind of negatives (``explicit``, ``all``).
    """

    per_class: pl.DataFrame
    overall: Mapping[str, float]
    n_without_positives: int
    n_without_negatives: Mapping[Negatives, int]
    n_clipped: Mapping[Negatives, int]

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={value:.3f}" for name, value in self.overall.items())
        return f"Evaluation({len(self.per_class):,} classes; {means})"


def evaluate(
    states: ArrayLike | LabelSet,
    scores: ArrayLike,
    class_ids: Iterable[str] | None = None,
    left_out: NDArray[np.bool_] | None = None,
) -> Evaluation:
    """Compute all metrics, per class and overall.

    ``states`` [clip, class] holds +1, -1 and 0, or is a label set; ``scores`` [clip, class] are
    logits or probabilities of the same clips and classes in the same order. Classes are named by
    their number where neither ``class_ids`` nor a label set names them. An overall metric is the
    equal-weight mean over the classes that can be measured, except for the label-weighted lwlrap,
    and d' of the mean AUC, which PANNs, AST and PSLA print; with nothing to measure it is NaN.
    Implicit labels that are true in ``left_out`` [clip, class] take no part; explicit ones do.
    """
    matrix = _dense(states)
    counted = _Counted.of(matrix, scores, left_out)
    table = _per_class(matrix, scores, counted, _class_names(states, class_ids, matrix))
    kinds: tuple[Negatives, Negatives] = ("explicit", "all")
    n_negatives = {"explicit": table["n_negatives"], "all": pl.Series(counted.n_negatives)}
    return Evaluation(
        per_class=table,
        overall=_overall(table, lwlrap_label_weighted(matrix, counted.ranked)),
        n_without_positives=int((table["n_positives"] == 0).sum()),
        n_without_negatives={kind: int((n_negatives[kind] == 0).sum()) for kind in kinds},
        n_clipped={kind: int(table[f"auc_{kind}"].is_in([0.0, 1.0]).sum()) for kind in kinds},
    )


def bootstrap(
    states: ArrayLike | LabelSet,
    scores: ArrayLike,
    weights: ArrayLike,
    left_out: NDArray[np.bool_] | None = None,
) -> dict[str, Floats]:
    """Repeat the overall metrics on resamples: the name in :data:`BOOTSTRAP_METRICS` -> [resample].

    ``weights`` [resample, clip] come from :func:`earmark.metrics.intervals.resample_weights`. A
    class without positives or negatives in a resample is left out of that resample's mean. That
    depends on labels and weights alone, so students that share both leave out the same classes, and
    subtracting their arrays gives paired differences. For ``left_out`` see :func:`evaluate`.
    """
    matrix = _dense(states)
    counted = _Counted.of(matrix, scores, left_out)
    # Means are taken one after another: all classes of all resamples are large.
    explicit = _d_prime(resampled_auc_and_ap(matrix, scores, weights, "explicit"))
    found = {"d_prime_explicit": mean_over_classes(explicit)}
    every = resampled_auc_and_ap(counted.states, scores, weights, counted.negatives)
    found["d_prime_all"] = mean_over_classes(_d_prime(every))
    ranked = resampled_lwlrap_per_class(matrix, counted.ranked, weights)
    found["lwlrap"] = mean_over_classes(ranked)
    found["map"] = mean_over_classes(every.average_precision)
    return {name: found[name] for name in BOOTSTRAP_METRICS}


@dataclass(frozen=True)
class _Counted:
    """Labels without those that are left out, for metrics over all negatives and for lwlrap."""

    states: NDArray[Any]
    negatives: Negatives
    ranked: ArrayLike
    """Scores that rank what is left out below everything."""

    @classmethod
    def of(
        cls, states: NDArray[Any], scores: ArrayLike, left_out: NDArray[np.bool_] | None
    ) -> _Counted:
        if left_out is None:
            return cls(states, "all", scores)
        is_out = left_out & (states == IMPLICIT)
        # Where every negative that counts is explicit, "explicit" leaves out the others.
        counted = np.where(is_out, IMPLICIT, np.where(states > 0, PRESENT, NOT_PRESENT))
        return cls(counted.astype(np.int8), "explicit", np.where(is_out, -np.inf, scores))

    @property
    def n_negatives(self) -> NDArray[np.int64]:
        is_negative = self.states <= (NOT_PRESENT if self.negatives == "explicit" else IMPLICIT)
        return np.asarray(is_negative.sum(axis=0))


def _per_class(
    states: NDArray[Any], scores: ArrayLike, counted: _Counted, class_ids: list[str]
) -> pl.DataFrame:
    every = (counted.states, scores, counted.negatives)
    auc_explicit, ap_explicit = auc_and_ap_per_class(states, scores, "explicit")
    auc_all, ap_all = auc_and_ap_per_class(*every)
    n_positives, n_explicit = (states > 0).sum(axis=0), (states < 0).sum(axis=0)
    return pl.DataFrame(
        {
            "class_id": pl.Series(class_ids, dtype=pl.String),
            "n_positives": n_positives,
            "n_negatives": n_explicit,
            "auc_explicit": auc_explicit,
            "auc_all": auc_all,
            "d_prime_explicit": d_prime(auc_explicit, n_positives, n_explicit),
            "d_prime_all": d_prime(auc_all, n_positives, counted.n_negatives),
            "lwlrap": lwlrap_per_class(states, counted.ranked),
            "ap_explicit": ap_explicit,
            "ap": ap_all,
        }
    )


def _overall(table: pl.DataFrame, label_weighted: float) -> dict[str, float]:
    means = {
        name: float(mean_over_classes(table[name].to_numpy()))
        for name in table.columns
        if table[name].dtype == pl.Float64
    }
    return {
        "d_prime_explicit": means["d_prime_explicit"],
        "d_prime_all": means["d_prime_all"],
        "lwlrap": means["lwlrap"],
        "lwlrap_label_weighted": label_weighted,
        "map": means["ap"],
        "d_prime_of_mean_auc_explicit": _d_prime_unclipped(means["auc_explicit"]),
        "d_prime_of_mean_auc_all": _d_prime_unclipped(means["auc_all"]),
    }


def _d_prime_unclipped(mean_auc: float) -> float:
    # Infinitely many pairs leave nothing to clip; the mean is 1 only if every class is perfect.
    return float(d_prime(mean_auc, np.inf, np.inf))


def _d_prime(resampled: Resampled) -> Floats:
    return d_prime(resampled.auc, resampled.n_positives, resampled.n_negatives)


def _dense(states: ArrayLike | LabelSet) -> NDArray[Any]:
    return states.states() if isinstance(states, LabelSet) else np.asarray(states)


def _class_names(
    states: ArrayLike | LabelSet, class_ids: Iterable[str] | None, matrix: NDArray[Any]
) -> list[str]:
    n_classes = matrix.shape[1] if matrix.ndim == 2 else 0
    if class_ids is None:
        given = states.class_ids if isinstance(states, LabelSet) else range(n_classes)
        return [str(class_id) for class_id in given]
    names = list(class_ids)
    if len(names) != n_classes:
        raise EarmarkError(f"{len(names)} class_ids given for labels of {n_classes} classes")
    return names
