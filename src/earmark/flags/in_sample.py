"""Whether scores look as if the teacher had been trained on the very labels that it scores."""

from __future__ import annotations

import numpy as np

from earmark.flags.counts import MOST_TILT
from earmark.flags.histograms import Histograms, Matrix, smoothed
from earmark.flags.mixture import EXPECTED_PER_POSITIVE, EXPECTED_SD, MIN_POSITIVES, fit, mixture
from earmark.labels import LabelSet

IN_SAMPLE_RATIO = 0.05
"""Implicit labels per positive, above the positives' median, that make scores look in-sample."""


def in_sample_warning(
    labels: LabelSet, histograms: Histograms, *, out_of_fold: bool = False
) -> str | None:
    """Say so if the scores look as if the teacher had been trained on these very labels.

    A teacher that saw the missing labels as negatives has pushed their scores down. Of the classes
    with at least 30 positives, half then have under a twentieth as many implicit labels as
    positives above the positives' median, if the teacher has learnt the labels by heart; or half
    show missing labels more than one standard deviation below the positives, on the way there.
    ``histograms`` are those of the counts (``survey(...).counts``). None without such a class.
    Scores that are called ``out_of_fold`` are doubted without the advice to make them so.
    """
    is_scored = histograms.positives.sum(axis=1) > 0
    large = histograms.of((labels.n_positives >= MIN_POSITIVES) & is_scored)
    ratios = large.implicit_per_positive(0.5)
    if not len(ratios):
        return None
    advice = ", though its scores are called out of fold" if out_of_fold else "; score out of fold"
    if np.median(ratios) < IN_SAMPLE_RATIO:
        return (
            f"in half of the classes fewer than {IN_SAMPLE_RATIO:.0%} as many implicit labels as "
            "positives score above the positives' median: either hardly a label is missing, or the "
            f"teacher was trained on these labels and hides what is missing{advice}"
        )
    tilts = tilts_of_missing(large)
    if len(tilts) and np.median(tilts) > MOST_TILT:
        return (
            f"in half of the classes missing labels score more than {MOST_TILT:g} standard "
            "deviations below the positives: either labels are missing where the sound is faint, "
            f"or the teacher was trained on these labels and pushed them down{advice}"
        )
    return None


def tilts_of_missing(histograms: Histograms) -> Matrix:
    """Return how much lower missing labels score than positives, in the positives' sds [class].

    For the classes of ``histograms`` with 30 positives or more. About 0 if labels go missing at
    random and the teacher never saw them; above 1 in most classes if the teacher was trained on
    them as negatives and has pushed them down.
    """
    n = np.minimum(histograms.positives.sum(axis=1), histograms.implicit.sum(axis=1))
    chosen = histograms.of(n >= MIN_POSITIVES)
    n_expected = EXPECTED_PER_POSITIVE * chosen.positives.sum(axis=1)
    shape = smoothed(chosen.positives)
    return fit(mixture(chosen, shape, n_expected, EXPECTED_SD, tilt_sd=1.5 * MOST_TILT)).tilt
