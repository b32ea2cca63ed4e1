"""What a run found in plain words: the head of the report, a terminal's last lines, the methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from earmark.errors import EarmarkError
from earmark.metrics import Interval
from earmark.report.numerals import (
    count_text,
    interval_text,
    percent_text,
    ranged_text,
    signed_text,
)
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    count_seeds,
    flags_judged_table,
    performance_table,
    within_class_metric,
)
from earmark.report.verdict import (
    ALPHA,
    Answer,
    Verdict,
    controls_told,
    headline,
    noise_note,
    strategy_verdicts,
    verdict_sentence,
    verdicts,
)

_N_TOLD = 3
"""Strategies whose gains are told one by one."""

_BEST_FIRST: tuple[Answer, ...] = ("Yes", "Cannot tell", "No")


def page_verdict(results: pl.DataFrame | None, choices: pl.DataFrame | None) -> str:
    """Say the one thing that a report says first: what its sweep found, else its comparison.

    A sweep asks one question, so its answer is not corrected for the number of strategies.
    """
    if results is not None:
        return headline(results)
    if choices is not None:
        return comparison_headline(choices)
    raise EarmarkError("there is nothing to tell: no sweep and no comparison")


def summary_lines(
    results: pl.DataFrame, judged: pl.DataFrame | None, flag_percent: float
) -> list[str]:
    """Say in a few sentences what a run found: the verdict, the flags, and how sure that is."""
    flags = [] if judged is None else [flags_told(flags_judged_table(judged), flag_percent)]
    return [headline(results), *flags, *filter(None, [noise_note(results)])]


def detail_lines(results: pl.DataFrame) -> list[str]:
    """Say what the controls leave, and how every metric changed by every kind of labels."""
    lines = controls_told(results)
    for labels in bases_of(results):
        lines.append(f"On the evaluation clips, by {BASIS_NAMES[labels]} (90 % intervals):")
        lines += [
            f"  {row['student']}, {row['train_set']}: {METRIC_NAMES[row['metric']]} "
            f"{row['baseline']:.3f} -> {row['best']:.3f} at {row['best_percent']:g} %, change "
            f"{ranged_text(row, 'difference', signed_text)}"
            for row in performance_table(results, labels).iter_rows(named=True)
        ]
    return lines


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
    low, high = (100 * row[f"precision_{end}"] for end in ("low", "high"))
    return (
        f"At {percent:g} %, {row['n_right']:,} of {row['n_flags']:,} flags are missing labels "
        f"({100 * row['precision']:.0f} %, {low:.0f} to {high:.0f}); that is "
        f"{percent_text(row['recall'])} of the {row['n_missing']:,} that are missing."
    )


def comparison_headline(choices: pl.DataFrame) -> str:
    """Say in one short sentence what the strategy that fares best did to its student."""
    found = strategy_verdicts(choices)
    if not found:
        return "Cannot tell: only controls and oracles were compared, and these are not tested."
    return verdict_sentence(best_verdict(found), is_named=_has_lines(found))


def best_verdict(found: Sequence[Verdict]) -> Verdict:
    """Return the verdict that speaks most for what was done: by its answer, then by its gain."""
    return min(found, key=lambda one: (_BEST_FIRST.index(one.answer), -_known(one.gain.value)))


def strategies_told(choices: pl.DataFrame) -> str:
    """Say how many strategies gain beyond chance, by how much, and which survive the controls."""
    found = strategy_verdicts(choices)
    gained = sorted((one for one in found if one.is_gain), key=lambda one: -one.gain.value)
    n_lost = sum(one.is_loss for one in found)
    has_lines = _has_lines(found)
    each = " (each student and train set counts)" if has_lines else ""
    lost = f", {n_lost} lower it" if n_lost else ""
    told = f"{count_text(len(gained), len(found))} strategies{each} raise lwlrap{lost}"
    told = f"{told[:1].upper()}{told[1:]}, beyond chance (p < {ALPHA:g}, corrected by Holm)"
    if not gained:
        return f"{told}."
    listed = ", ".join(_gain_told(one, has_lines) for one in gained[:_N_TOLD])
    more = f" and {len(gained) - _N_TOLD} more" if len(gained) > _N_TOLD else ""
    surviving = [_title(one, has_lines) for one in gained if one.survives]
    agree = ", ".join(surviving) or "none of them"
    return f"{told}: {listed}{more}. Both controls agree for {agree}."


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


def _has_lines(found: Sequence[Verdict]) -> bool:
    """Whether there are several students or train sets to tell apart."""
    return len({(one.student, one.train_set) for one in found}) > 1


def _known(gain: float) -> float:
    return gain if math.isfinite(gain) else -math.inf


def _gain_told(verdict: Verdict, has_lines: bool) -> str:
    return f"{_title(verdict, has_lines)} by {verdict.gain.value:.3f}"


def _title(verdict: Verdict, has_lines: bool) -> str:
    line = f" for {verdict.student}, {verdict.train_set}" if has_lines else ""
    return f"{verdict.strategy}{line}"


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


def methods_text(
    results: pl.DataFrame | None,
    provenance: Mapping[str, str],
    choices: pl.DataFrame | None = None,
) -> str:
    """Return a paragraph to paste into a paper.

    It says how students were trained, chosen and judged, which controls were run, how strategies
    were compared where ``choices`` tells of it, and from what (``provenance``).
    """
    ran = [table for table in (results, choices) if table is not None]
    told = [] if results is None else [_trained(results)]
    told += [_compared(choices)] if choices is not None else []
    told += [_judged(ran), _controls(ran)]
    if provenance:
        facts = "; ".join(f"{name}: {value}" for name, value in provenance.items())
        told.append(f"Provenance: {facts}.")
    return " ".join(filter(None, told))


def _trained(results: pl.DataFrame) -> str:
    points = results.filter(kind="mask")["discard_percent"].unique().sort()
    n_seeds = count_seeds(results)
    times = "once" if n_seeds == 1 else f"{n_seeds} times (seeds)"
    return (
        f"{_students(results)}, each {times}, ignoring the top-scored implicit labels of every "
        f"class at {len(points)} operating points from {points[0]:g} to {points[-1]:g} percent "
        "(Fonseca et al. 2020)."
    )


def _compared(choices: pl.DataFrame) -> str:
    names = {
        role: ", ".join(choices.filter(role=role)["strategy"].unique(maintain_order=True))
        for role in ("tested", "control", "oracle")
    }
    told = [
        f"{_students(choices)} by several strategies ({_seeds(choices)}): {names['tested']}; the "
        "point of each is its best on tune, which may be to do nothing; p-values are "
        "Holm-corrected over strategies."
    ]
    if names["control"]:
        told.append(
            f"The control ({names['control']}) ignores as many labels of each class as the mask, "
            "chosen at random, and is not tested."
        )
    if names["oracle"]:
        told.append(f"Oracles ({names['oracle']}) know the truth, and are not tested either.")
    return " ".join(told)


def _students(ran: pl.DataFrame) -> str:
    students, train_sets = (
        ", ".join(ran[name].unique(maintain_order=True)) for name in ("student", "train_set")
    )
    return f"Students ({students}) were trained on {train_sets}"


def _seeds(ran: pl.DataFrame) -> str:
    n_seeds = count_seeds(ran)
    return f"{n_seeds} seed{'s' if n_seeds > 1 else ''}: {ran['seeds'][0]}"


def _judged(ran: Sequence[pl.DataFrame]) -> str:
    seeds = " and over seeds" if max(map(count_seeds, ran)) > 1 else ""
    there = {labels for table in ran for labels in bases_of(table)}
    bases = "; ".join(name for labels, name in BASIS_NAMES.items() if labels in there)
    return (
        "Students of one seed share their initial weights and batches. Points were chosen on the "
        f"tune split and are reported on the eval split, by {bases}. Overall lwlrap, d′ and mAP "
        "are equal-weight means over classes. Intervals are 90 % bootstrap intervals over "
        f"clips{seeds}, centred on the value; differences are paired with the baseline of the "
        "same student, train set and seed."
    )


def _controls(ran: Sequence[pl.DataFrame]) -> str:
    told = []
    if any("random" in table.get_column("kind", default=[]) for table in ran):
        told.append("The random control ignores as many labels of each class chosen at random.")
    if any("lwlrap_calibrated" in table["metric"] for table in ran):
        told.append(
            "The calibration control subtracts τ log(prior) from every logit, with the τ that is "
            "best on tune for each student, the baseline included."
        )
    return " ".join(told)
