"""What a run found in plain words: the head of the report, and the last lines on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from earmark.errors import EarmarkError
from earmark.metrics import Interval
from earmark.report.numerals import count_text, interval_text, ranged_text, share_text, signed_text
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    flags_judged_table,
    performance_table,
    teaching_told,
    within_class_metric,
)
from earmark.report.verdict import (
    ALPHA,
    Verdict,
    headline,
    noise_note,
    strategy_verdicts,
    verdicts,
)

_N_TOLD = 3
"""Strategies whose gains the first sentence tells one by one."""


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


def comparison_headline(choices: pl.DataFrame) -> str:
    """Say in one sentence which strategies gain, and how much of that the controls leave."""
    found = strategy_verdicts(choices)
    if not found:
        return "Unknown: nothing but controls and oracles was compared, and these are not tested."
    gained = sorted((one for one in found if one.is_gain), key=lambda one: -one.gain.value)
    n_lost = sum(one.is_loss for one in found)
    has_lines = len({(one.student, one.train_set) for one in found}) > 1
    told = (
        f"{_best_answer(found)}: {count_text(len(gained), len(found))} tested strategies"
        f"{' (counted for each student and train set)' if has_lines else ''} raised lwlrap on the "
        f"evaluation clips beyond chance (Holm-corrected p below {ALPHA:g})"
        f"{f', and {n_lost} lowered it' if n_lost else ''}"
    )
    if not gained:
        return f"{told}."
    listed = "; ".join(_gain_told(one, has_lines) for one in gained[:_N_TOLD])
    more = f"; and {len(gained) - _N_TOLD} more" if len(gained) > _N_TOLD else ""
    surviving = [_title(one, has_lines) for one in gained if one.survives]
    return f"{told}: {listed}{more}. Both controls are survived by {_listed(surviving)}."


def comparison_told(choices: pl.DataFrame) -> str:
    """Say which strategies gain beyond chance in lwlrap, once calibrated, in d' and in mAP.

    A gain counts if its p-value, corrected for the number of strategies, is below 0.1, as befits
    90 % intervals. Several students or train sets are counted each for itself. Oracles, which
    nobody can use, are told apart, as what the best of strategies could reach.
    """
    given = choices.filter(labels="given")
    there = [metric for metric in SHOWN_METRICS if metric in given["metric"]]
    told = [f"{METRIC_NAMES[metric]}: {_names(given.filter(metric=metric))}" for metric in there]
    return (
        "Strategies that gain beyond chance by the labels as given (Holm-corrected p below "
        f"{ALPHA:g}): {'; '.join(told)}.{_oracles_told(given)}"
    )


def rounds_told(rounds: pl.DataFrame) -> str:
    """Say how far lwlrap is from the baseline with the first teacher and after the last round."""
    shown = rounds.filter(split="eval", labels="given").sort("round", maintain_order=True)
    told = []
    for line in shown.partition_by("student", "train_set", maintain_order=True):
        number = line["round"][-1]
        first, last = (_metrics_told(line.filter(round=end)) for end in (0, number))
        told.append(
            f"{line['student'][0]}, {line['train_set'][0]}: {first} with the first teacher's "
            f"flags; {last} after {number} round{'s' if number > 1 else ''}"
        )
    return (
        f"The student as the next teacher ({teaching_told(rounds)}), change from the baseline on "
        f"the evaluation clips: {'; '.join(told)}."
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
    numbers = [
        f"{name} {interval_text(gain, signed_text)}" for name, gain in changes.items() if gain
    ]
    return f"at {verdict.percent:g} %, change from the baseline: {'; '.join(numbers)}."


def _best_answer(found: Sequence[Verdict]) -> str:
    """Return the answer of the strategy that fares best."""
    answers = {verdict.answer for verdict in found}
    order = ("Yes", "Only in part", "Unsure", "No", "Unknown")
    return next(answer for answer in order if answer in answers)


def _gain_told(verdict: Verdict, has_lines: bool) -> str:
    left = {
        "random": verdict.left_after_random,
        "calibration": verdict.left_after_calibration,
    }
    clauses = [
        f"the {name} control was not run"
        if share is None
        else f"{share_text(share)} of it left after the {name} control"
        for name, share in left.items()
    ]
    gain = signed_text(verdict.gain.value)
    return f"{_title(verdict, has_lines)} by {gain} ({' and '.join(clauses)})"


def _title(verdict: Verdict, has_lines: bool) -> str:
    line = f" for {verdict.student}, {verdict.train_set}" if has_lines else ""
    return f"{verdict.strategy}{line}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none of them"


def _metrics_told(rows: pl.DataFrame) -> str:
    changes = {
        row["metric"]: ranged_text(row, "difference", signed_text)
        for row in rows.iter_rows(named=True)
    }
    calibrated = changes.get("lwlrap_calibrated")
    return f"lwlrap {changes['lwlrap']}" + (f" (calibrated {calibrated})" if calibrated else "")


def _oracles_told(given: pl.DataFrame) -> str:
    oracles = given.filter(role="oracle", metric="lwlrap")
    told = [
        f"{row['strategy']} by {ranged_text(row, 'difference', signed_text)}"
        for row in oracles.iter_rows(named=True)
    ]
    return f" Oracles, which know the truth, change lwlrap: {'; '.join(told)}." if told else ""


def _names(rows: pl.DataFrame) -> str:
    gained = rows.filter((pl.col("p_holm") < ALPHA) & (pl.col("difference") > 0))
    best_first = gained.sort("difference", descending=True)["strategy"]
    return ", ".join(best_first.unique(maintain_order=True)) or "none"
