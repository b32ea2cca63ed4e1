"""Scores and labels to results: per class, overall, and how sure we are.

:func:`evaluate` gives the paper's metrics and what its peers print. :func:`bootstrap` repeats the
overall ones on resamples of the clips; draw the weights once, use them for every student, and the
difference of two students' arrays is a paired difference. :func:`fit_prior_offset` is the
calibration control: lwlrap compares classes with one another, so lifting rare classes' scores by
their prior alone can raise it, and a gain counts only beyond what that brings the baseline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from earmark import metrics
from earmark.errors import EarmarkError
from earmark.flagging import Thresholds, ignored
from earmark.labels import LabelSet
from earmark.metrics import Floats, Negatives, mean_over_classes

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

OFFSET_STRENGTHS = tuple(step / 10 for step in range(11))
"""The values of tau among which :func:`fit_prior_offset` chooses."""


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


def evaluate(
    states: ArrayLike | LabelSet, scores: ArrayLike, class_ids: Iterable[str] | None = None
) -> Evaluation:
    """Compute all metrics, per class and overall.

    ``states`` [clip, class] holds +1, -1 and 0, or is a label set; ``scores`` [clip, class] are
    logits or probabilities of the same clips and classes in the same order. Classes are named by
    their number where neither ``class_ids`` nor a label set names them. An overall metric is the
    equal-weight mean over the classes that can be measured, except for the label-weighted lwlrap,
    and d' of the mean AUC, which PANNs, AST and PSLA print; with nothing to measure it is NaN.
    """
    matrix = _dense(states)
    table = _per_class(matrix, scores, _class_names(states, class_ids, matrix))
    kinds: tuple[Negatives, Negatives] = ("explicit", "all")
    n_negatives = {"explicit": table["n_negatives"], "all": len(matrix) - table["n_positives"]}
    return Evaluation(
        per_class=table,
        overall=_overall(table, metrics.lwlrap_label_weighted(matrix, scores)),
        n_without_positives=int((table["n_positives"] == 0).sum()),
        n_without_negatives={kind: int((n_negatives[kind] == 0).sum()) for kind in kinds},
        n_clipped={kind: int(table[f"auc_{kind}"].is_in([0.0, 1.0]).sum()) for kind in kinds},
    )


def resample_weights(n_clips: int, n_resamples: int, seed: int) -> NDArray[np.uint16]:
    """Draw how often each resample contains each clip: uint16 [resample, clip].

    A resample draws ``n_clips`` clips with replacement, so each row adds up to ``n_clips``. More
    resamples with the same seed begin with the same rows.
    """
    if n_clips < 1:
        raise EarmarkError("there are no clips to draw from")
    random = np.random.default_rng(seed)
    weights = np.empty((n_resamples, n_clips), np.uint16)
    for row in weights:
        row[:] = np.bincount(random.integers(n_clips, size=n_clips), minlength=n_clips)
    return weights


def bootstrap(
    states: ArrayLike | LabelSet, scores: ArrayLike, weights: ArrayLike
) -> dict[str, Floats]:
    """Repeat the overall metrics on resamples: the name in :data:`BOOTSTRAP_METRICS` -> [resample].

    ``weights`` [resample, clip] come from :func:`resample_weights`. A class without positives or
    negatives in a resample is left out of that resample's mean. That depends on labels and weights
    alone, so students that share both leave out the same classes, and subtracting their arrays
    gives paired differences.
    """
    matrix = _dense(states)
    explicit = metrics.resampled_auc_and_ap(matrix, scores, weights, "explicit")
    every = metrics.resampled_auc_and_ap(matrix, scores, weights, "all")
    per_class = {
        "d_prime_explicit": _d_prime(explicit),
        "d_prime_all": _d_prime(every),
        "lwlrap": metrics.resampled_lwlrap_per_class(matrix, scores, weights),
        "map": every.average_precision,
    }
    return {name: mean_over_classes(per_class[name]) for name in BOOTSTRAP_METRICS}


def interval(values: ArrayLike, level: float = 0.9) -> tuple[float, float]:
    """Return the percentile interval of bootstrapped values or differences [resample].

    Resamples that could not be measured (NaN) are left out; with none left it is (NaN, NaN).
    """
    metrics.check_level(level)
    array = np.asarray(values, np.float64)
    measured = array[~np.isnan(array)]
    if not len(measured):
        return float("nan"), float("nan")
    low, high = np.quantile(measured, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def smoothed_priors(n_positives: ArrayLike, n_clips: int) -> Floats:
    """Return class priors [class] that are never 0 or 1: (n + 0.5) / (N + 1).

    >>> smoothed_priors([0, 3], 9)
    array([0.05, 0.35])
    """
    return (np.asarray(n_positives, np.float64) + 0.5) / (n_clips + 1)


def apply_offset(scores: ArrayLike, priors: ArrayLike, tau: float) -> NDArray[Any]:
    """Return logits z_c - tau * log(prior_c) [clip, class]: rarer classes are lifted more.

    ``priors`` [class] are shares of the training clips, best from :func:`smoothed_priors`, since
    a prior of 0 would lift its class above all others and is refused. float16 becomes float32.
    No metric within a class (AUC, d', average precision) can change.
    """
    logits, shares = np.asarray(scores), np.asarray(priors, np.float64)
    if logits.ndim != 2 or shares.shape != logits.shape[1:]:
        raise EarmarkError(
            f"one prior per class is needed, got priors {shares.shape} for scores {logits.shape}"
        )
    is_odd = ~((shares > 0) & (shares <= 1))
    if is_odd.any():
        column = int(np.argmax(is_odd))
        raise EarmarkError(
            f"the prior of class {column} (counted from 0) is {shares[column]}; expected a share "
            "above 0 and up to 1: make priors from counts with smoothed_priors"
        )
    kind = np.result_type(logits, np.float32)
    lifted: NDArray[Any] = logits.astype(kind) - (tau * np.log(shares)).astype(kind)
    return lifted


def fit_prior_offset(states: ArrayLike | LabelSet, scores: ArrayLike, priors: ArrayLike) -> float:
    """Choose tau from :data:`OFFSET_STRENGTHS` so that :func:`apply_offset` maximises lwlrap.

    Fit it on the ``tune`` split, for every student and the baseline alike, and compare lwlrap on
    ``eval`` after applying each one's own. ``scores`` are logits. The smallest of equals wins.
    """
    is_positive = _dense(states) > 0
    if not is_positive.any():
        raise EarmarkError("no label is positive: an offset cannot be fitted to these clips")
    values = [
        metrics.lwlrap(is_positive, apply_offset(scores, priors, tau)) for tau in OFFSET_STRENGTHS
    ]
    return OFFSET_STRENGTHS[int(np.argmax(values))]


def judge_flags(
    labels: LabelSet, truth: LabelSet, logits: NDArray[np.float32], found: Thresholds
) -> pl.DataFrame:
    """Count the flags of each operating point that are missing labels, by the known truth.

    ``logits`` [clip, class] are the teacher's. Returns discard_percent, n_flags, n_right (missing
    labels) and n_missing (all of them); the other flags are decoys.
    """
    states = labels.states()
    is_missing = (states == 0) & (truth.states() > 0)
    rows = []
    for percent, row in zip(found.discard_percents, found.values, strict=True):
        is_flagged = ignored(states, logits, row)
        rows.append(
            {
                "discard_percent": float(percent),
                "n_flags": int(is_flagged.sum()),
                "n_right": int((is_flagged & is_missing).sum()),
                "n_missing": int(is_missing.sum()),
            }
        )
    return pl.DataFrame(rows)


def _per_class(states: NDArray[Any], scores: ArrayLike, class_ids: list[str]) -> pl.DataFrame:
    auc_explicit = metrics.auc_per_class(states, scores, "explicit")
    auc_all = metrics.auc_per_class(states, scores, "all")
    n_positives, n_explicit = (states > 0).sum(axis=0), (states < 0).sum(axis=0)
    return pl.DataFrame(
        {
            "class_id": pl.Series(class_ids, dtype=pl.String),
            "n_positives": n_positives,
            "n_negatives": n_explicit,
            "auc_explicit": auc_explicit,
            "auc_all": auc_all,
            "d_prime_explicit": metrics.d_prime(auc_explicit, n_positives, n_explicit),
            "d_prime_all": metrics.d_prime(auc_all, n_positives, len(states) - n_positives),
            "lwlrap": metrics.lwlrap_per_class(states, scores),
            "ap_explicit": metrics.average_precision_per_class(states, scores, "explicit"),
            "ap": metrics.average_precision_per_class(states, scores, "all"),
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
    return float(metrics.d_prime(mean_auc, np.inf, np.inf))


def _d_prime(resampled: metrics.Resampled) -> Floats:
    return metrics.d_prime(resampled.auc, resampled.n_positives, resampled.n_negatives)


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
