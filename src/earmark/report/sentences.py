"""What a run found in plain words: the head of the report, and the last lines on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from earmark.errors import EarmarkError
from earmark.metrics.intervals import Interval
from earmark.report.charts import bases_of
from earmark.report.comparison_tables import comparison_headline, rounds_told
from earmark.report.figures import METRIC_NAMES, within_class_metric
from earmark.report.tables import BASIS_NAMES, flags_judged_table, performance_table, ranged_text
from earmark.report.verdict import Verdict, headline, noise_note, signed_text, verdicts


def sentences(
    results: pl.DataFrame | None, choices: pl.DataFrame | None, rounds: pl.DataFrame | None
) -> list[str]:
    """Say what a sweep, a comparison and rounds of teaching found: a sentence for each that ran."""
    told = []
    if results is not None:
        told.append(headline(results))
    if choices is not None:
        told.append(comparison_headline(choices))
    if rounds is not None:
        told.append(rounds_told(rounds))
    if not told:
        raise EarmarkError("there is nothing to tell: no sweep, no comparison and no rounds")
    return told


def summary_lines(
    results: pl.DataFrame, judged: pl.DataFrame | None, flag_percent: float
) -> list[str]:
    """Say in a few lines of plain text what a run found: the flags, the metrics, the verdict."""
    lines = []
    if judged is not None:
        lines += [flags_told(flags_judged_table(judged), flag_percent), ""]
    for labels in bases_of(results):
        lines.append(f"On the evaluation clips, by {BASIS_NAMES[labels]} (90 % intervals):")
        for row in performance_table(results, labels).iter_rows(named=True):
            lines.append(
                f"  {row['student']}, {row['train_set']}: {METRIC_NAMES[row['metric']]} "
                f"{ranged_text(row, 'baseline')} -> {ranged_text(row, 'best')} "
                f"at {row['best_percent']:g} %, change "
                f"{ranged_text(row, 'difference', signed_text)}"
            )
        lines.append("")
    return [*lines, headline(results), *filter(None, [noise_note(results)])]


def numbers_told(results: pl.DataFrame) -> dict[str, str]:
    """Say, for each student and train set, what changed at its point by every kind of labels."""
    by_basis = {labels: verdicts(results, labels) for labels in bases_of(results)}
    d_prime = METRIC_NAMES[within_class_metric(results)]
    told = {}
    for place, verdict in enumerate(by_basis.pop("given")):
        others = {labels: found[place].gain for labels, found in by_basis.items()}
        told[f"{verdict.student}, {verdict.train_set}"] = _changes_told(verdict, others, d_prime)
    return told


def flags_told(judged: pl.DataFrame, percent: float) -> str:
    """Say how many flags of one operating point were right."""
    rows = judged.filter(discard_percent=percent)
    if rows.is_empty():
        return "Flags are judged by the truth, which the simulator knows."
    row = rows.row(0, named=True)
    return (
        f"At {percent:g} %, {row['n_right']:,} of {row['n_flags']:,} flags are missing labels "
        f"(precision {ranged_text(row, 'precision')}), out of {row['n_missing']:,} that are "
        f"missing (recall {ranged_text(row, 'recall')}); the other flags are decoys."
    )


def _changes_told(verdict: Verdict, others: Mapping[str, Interval], d_prime: str) -> str:
    """List changes by the labels as given, and how lwlrap changed by the others."""
    changes = {
        "lwlrap": verdict.gain,
        f"random control (at {verdict.random_percent or 0:g} %)": verdict.random_gain,
        "calibrated": verdict.calibrated_gain,
        d_prime: verdict.d_prime_gain,
        f"{d_prime} of the random control": verdict.random_d_prime_gain,
        **{f"lwlrap by {BASIS_NAMES[labels]}": gain for labels, gain in others.items()},
    }
    numbers = [f"{name} {_bracketed(gain)}" for name, gain in changes.items() if gain]
    return f"at {verdict.percent:g} %, change from the baseline: {'; '.join(numbers)}."


def _bracketed(interval: Interval) -> str:
    value, low, high = (signed_text(number) for number in interval)
    return f"{value} [{low}, {high}]"
