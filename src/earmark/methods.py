"""The methods paragraph of a report: what was done, with versions, seeds and digests."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from earmark.figures import count_seeds


def methods_text(
    results: pl.DataFrame, provenance: Mapping[str, str], choices: pl.DataFrame | None = None
) -> str:
    """Return a paragraph to paste into a paper.

    It says how students were trained, chosen and judged, which controls were run, how strategies
    were compared where ``choices`` tells of it, and from what (``provenance``).
    """
    told = [_trained(results), _judged(results), _controls(results)]
    if choices is not None:
        told.append(_compared(choices))
    if provenance:
        facts = "; ".join(f"{name}: {value}" for name, value in provenance.items())
        told.append(f"Provenance: {facts}.")
    return " ".join(filter(None, told))


def _trained(results: pl.DataFrame) -> str:
    students, train_sets = (
        ", ".join(results[name].unique(maintain_order=True)) for name in ("student", "train_set")
    )
    points = results.filter(kind="mask")["discard_percent"].unique().sort()
    n_seeds = count_seeds(results)
    times = "once" if n_seeds == 1 else f"{n_seeds} times (seeds)"
    return (
        f"Students ({students}) were trained on {train_sets}, each {times}, ignoring the "
        f"top-scored implicit labels of every class at {len(points)} operating points from "
        f"{points[0]:g} to {points[-1]:g} percent (Fonseca et al. 2020); students of one seed "
        "share their initial weights and batches."
    )


def _judged(results: pl.DataFrame) -> str:
    seeds = " and over seeds" if count_seeds(results) > 1 else ""
    return (
        "Points were chosen on the tune split and are reported on the eval split. Overall lwlrap, "
        "d′ and mAP are equal-weight means over classes. Intervals are 90 % bootstrap intervals "
        f"over clips{seeds}, centred on the value; differences are paired with the baseline of the "
        "same student, train set and seed."
    )


def _controls(results: pl.DataFrame) -> str:
    told = []
    if "random" in results["kind"]:
        told.append("The random control ignores as many labels of each class chosen at random.")
    if "lwlrap_calibrated" in results["metric"]:
        told.append(
            "The calibration control subtracts τ log(prior) from every logit, with the τ that is "
            "best on tune for each student, the baseline included."
        )
    return " ".join(told)


def _compared(choices: pl.DataFrame) -> str:
    names = choices["strategy"].unique(maintain_order=True)
    strategies = ", ".join(name for name in names if name != "baseline")
    n_seeds = max(choices["n_seeds"], default=0)
    times = "1 seed" if n_seeds == 1 else f"{n_seeds} seeds"
    return (
        f"Strategies compared ({times}): {strategies}; the point of each is the mildest within "
        "one standard error of its best on tune; p-values are Holm-corrected over strategies."
    )
