"""How good scores are, and how sure that is.

Every metric takes labels and scores [clip, class] in the same order of clips and classes. What is
measured per class and what overall, how intervals are made, and the offsets by class that lwlrap
has to be held against live here; what a student is, and which labels it is held against, does not.
How good raters are, by one another's votes, is a metric without labels or scores.
"""

from earmark.metrics.dawid_skene import NO_ANSWER, UNSURE, Votes, Weighed, weigh
from earmark.metrics.evaluation import BOOTSTRAP_METRICS, Evaluation, bootstrap, evaluate
from earmark.metrics.intervals import (
    Draws,
    Interval,
    check_level,
    holm,
    over_classes,
    p_value,
    resample_weights,
    stratified,
    wilson_interval,
    with_seeds,
)
from earmark.metrics.lwlrap import (
    lwlrap,
    lwlrap_label_weighted,
    lwlrap_per_class,
    resampled_lwlrap_per_class,
)
from earmark.metrics.matrices import Floats, mean_over_classes
from earmark.metrics.prior_offsets import (
    apply_offset,
    fit_class_offsets,
    fit_prior_offset,
    smoothed_priors,
)
from earmark.metrics.within_class import (
    Negatives,
    Resampled,
    auc_per_class,
    average_precision_per_class,
    d_prime,
    resampled_auc_and_ap,
)

__all__ = [
    "BOOTSTRAP_METRICS",
    "NO_ANSWER",
    "UNSURE",
    "Draws",
    "Evaluation",
    "Floats",
    "Interval",
    "Negatives",
    "Resampled",
    "Votes",
    "Weighed",
    "apply_offset",
    "auc_per_class",
    "average_precision_per_class",
    "bootstrap",
    "check_level",
    "d_prime",
    "evaluate",
    "fit_class_offsets",
    "fit_prior_offset",
    "holm",
    "lwlrap",
    "lwlrap_label_weighted",
    "lwlrap_per_class",
    "mean_over_classes",
    "over_classes",
    "p_value",
    "resample_weights",
    "resampled_auc_and_ap",
    "resampled_lwlrap_per_class",
    "smoothed_priors",
    "stratified",
    "weigh",
    "wilson_interval",
    "with_seeds",
]
