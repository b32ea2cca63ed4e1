"""How good scores are, and how sure that is.

Every metric takes labels and scores [clip, class] in the same order of clips and classes. What is
measured per class and what overall, how intervals are made, and the offsets by class that lwlrap
has to be held against live here; what a student is, and which labels it is held against, does not.
"""

from earmark.metrics.intervals import check_level, wilson_interval
from earmark.metrics.lwlrap import (
    lwlrap,
    lwlrap_label_weighted,
    lwlrap_per_class,
    resampled_lwlrap_per_class,
)
from earmark.metrics.matrices import Floats, mean_over_classes
from earmark.metrics.within_class import (
    Negatives,
    Resampled,
    auc_per_class,
    average_precision_per_class,
    d_prime,
    resampled_auc_and_ap,
)

__all__ = [
    "Floats",
    "Negatives",
    "Resampled",
    "auc_per_class",
    "average_precision_per_class",
    "check_level",
    "d_prime",
    "lwlrap",
    "lwlrap_label_weighted",
    "lwlrap_per_class",
    "mean_over_classes",
    "resampled_auc_and_ap",
    "resampled_lwlrap_per_class",
    "wilson_interval",
]
