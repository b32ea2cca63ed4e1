"""What a run found in plain words: the head of the report, a terminal's last lines, the methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from earmark.errors import EarmarkError, counted
from earmark.metrics import Interval
from earmark.report.numerals import (
    change_text,
    count_text,
    gain_text,
    percent_text,
    ranged_text,
    share_text,
    signed_text,
)
from earmark.report.results import (
    BASIS_NAMES,
    METRIC_NAMES,
    bases_of,
    count_seeds,
    flags_judged_table,
    performance_table,
)
from earmark.report.verdict import (
    ALPHA,
    Answer,
    Verdict,
    best_verdict,
    strategy_verdicts,
    verdicts,
)

_CONTROLS = {"random": "ignoring as many at random", "calibration": "calibration alone"}
"""What each control does, in place of ignoring what is likely."""

_N_NAMED = 3
"""Strategies whose gains are named one by one."""


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


def headline(results: pl.DataFrame) -> str:
    """Say in one short sentence whether ignoring labels helped, and by how much.

    Of several students, the average is over those that gained.
    """
    students = verdicts(results)
    if len(students) == 1:
        return verdict_sentence(students[0])
    answers = {verdict.answer for verdict in students}
    answer: Answer = answers.pop() if len(answers) == 1 else "Cannot tell"
    gained = [verdict for verdict in students if verdict.is_gain]
    n_lost = sum(verdict.is_loss for verdict in students)
    lost = f" and lowers it for {n_lost}" if n_lost else ""
    start = f"{answer}: ignoring the likeliest labels nobody was asked about raises lwlrap for"
    if not gained:
        return f"{start} none of the {len(students)} students{lost}."
    mean = float(np.mean([verdict.gain.value for verdict in gained]))
    n_survive = sum(verdict.survives for verdict in gained)
    return (
        f"{start} {count_text(len(gained), len(students))} students (by {mean:.3f} on average)"
        f"{lost}; both controls agree for {count_text(n_survive, len(gained))}."
    )


def comparison_headline(choices: pl.DataFrame) -> str:
    """Say in one short sentence what the strategy that fares best did to its student."""
    tested = strategy_verdicts(choices)
    if not tested:
        return "Cannot tell: only controls and oracles were compared, and these are not tested."
    return verdict_sentence(best_verdict(tested), is_named=_has_lines(tested))


def verdict_sentence(verdict: Verdict, *, is_named: bool = False) -> str:
    """Say in one short sentence what became of one student on one train set."""
    gain = verdict.gain
    lwlrap = f"lwlrap of {verdict.student}, {verdict.train_set}" if is_named else "lwlrap"
    act = f"the strategy {verdict.strategy}@{verdict.percent:g}"
    if verdict.strategy == "mask":
        act = f"ignoring the likeliest {verdict.percent:g} % of labels nobody was asked about"
    if not math.isfinite(gain.value):
        why = "lwlrap could not be measured; do the evaluation clips have labels that are present?"
    elif verdict.percent == 0 and verdict.strategy == "mask":
        why = "on the clips set apart for choosing, no share of ignored labels beats ignoring none."
    elif gain.value == 0 and gain.low == gain.high:
        why = f"on the clips set apart for choosing, nothing {verdict.strategy} does beats nothing."
    elif verdict.is_gain:
        why = f"{act} raises {lwlrap} by {gain_text(gain)}{_but(verdict)}."
    elif verdict.is_loss:
        loss = Interval(-gain.value, -gain.high, -gain.low)
        why = f"{act} lowers {lwlrap} by {gain_text(loss)}."
    else:
        why = f"{act} changes {lwlrap} by {change_text(gain)}{_doubt(verdict)}."
    return f"{verdict.answer}: {why}"


def _but(verdict: Verdict) -> str:
    """Say what the controls make of a gain that is beyond chance."""
    if verdict.survives:
        name, least = min(verdict.shares_left.items(), key=lambda item: item[1] or 0.0)
        if least is None or least >= 0.5:
            return "; both controls agree"
        return f"; {_CONTROLS[name]} gives {share_text(1 - least)} of it"
    if verdict.explained_by:
        return f", but {_CONTROLS[verdict.explained_by]} does as much"
    not_run = [name for name, left in verdict.left.items() if left is None]
    if not_run:
        return f", but the {' and the '.join(not_run)} control was not run"
    name = next(name for name, left in verdict.left.items() if left and left.low <= 0)
    return f"; to rule out the {name} control, more seeds or clips are needed"


def _doubt(verdict: Verdict) -> str:
    """Say why a change is neither a gain nor a loss."""
    if verdict.answer == "No":
        return ", too little to matter"
    if verdict.gain.low > 0 or verdict.gain.high < 0:
        return ", which may be chance among so many strategies"
    return "; more seeds or clips are needed"


def controls_told(results: pl.DataFrame) -> list[str]:
    """Say of each student that gained how much of its gain both controls leave."""
    return [
        f"{verdict.student}, {verdict.train_set}: {_left(verdict, 'random')}, and "
        f"{_left(verdict, 'calibration')}."
        for verdict in verdicts(results)
        if verdict.is_gain
    ]


def _left(verdict: Verdict, control: str) -> str:
    """Say what a control leaves of a gain, with the interval."""
    left, share = verdict.left[control], verdict.shares_left[control]
    if left is None:
        return f"the {control} control was not run"
    chance = ", which may be chance" if share and left.low <= 0 else ""
    at = f" at {verdict.random_percent:g} %" if control == "random" else ""
    return (
        f"{share_text(share)} of it is left after the {control} control{at}, "
        f"{change_text(left)}{chance}"
    )


def noise_note(results: pl.DataFrame) -> str:
    """Say how far training alone moves a student: what the random control did, beside the gain.

    Labels ignored at random hold next to nothing, so whatever that student differs by is mostly
    the chaos of training, which intervals over clips do not contain. Empty without the control.
    """
    moved = [
        f"{verdict.student}, {verdict.train_set}: lwlrap by "
        f"{signed_text(verdict.random_gain.value)} and d' by "
        f"{signed_text(verdict.random_d_prime_gain.value)}"
        for verdict in verdicts(results)
        if verdict.random_gain is not None and verdict.random_d_prime_gain is not None
    ]
    if not moved:
        return ""
    n_seeds = count_seeds(results)
    over = "and over training runs" if "n_seeds" in results.columns and n_seeds > 1 else "only"
    return (
        f"Intervals are over clips {over} ({counted(n_seeds, 'seed')}). Ignoring labels at random, "
        f"which should change little, moved {'; '.join(moved)}: take differences of that size for "
        "noise."
    )


def strategies_told(choices: pl.DataFrame) -> str:
    """Say how many strategies gain beyond chance, by how much, and which survive the controls."""
    tested = strategy_verdicts(choices)
    gained = sorted((one for one in tested if one.is_gain), key=lambda one: -one.gain.value)
    n_lost = sum(verdict.is_loss for verdict in tested)
    has_lines = _has_lines(tested)

    def title(verdict: Verdict) -> str:
        line = f" for {verdict.student}, {verdict.train_set}" if has_lines else ""
        return f"{verdict.strategy}{line}"

    each = " (each student and train set counts)" if has_lines else ""
    lost = f", {n_lost} lower it" if n_lost else ""
    counts = f"{count_text(len(gained), len(tested))} strategies{each} raise lwlrap{lost}"
    start = f"{counts[:1].upper()}{counts[1:]}, beyond chance (p < {ALPHA:g}, corrected by Holm)"
    if not gained:
        return f"{start}."
    named = ", ".join(f"{title(one)} by {one.gain.value:.3f}" for one in gained[:_N_NAMED])
    more = f" and {len(gained) - _N_NAMED} more" if len(gained) > _N_NAMED else ""
    agree = ", ".join(title(one) for one in gained if one.survives) or "none of them"
    return f"{start}: {named}{more}. Both controls agree for {agree}."


def _has_lines(tested: Sequence[Verdict]) -> bool:
    """Whether there are several students or train sets to tell apart."""
    return len({(verdict.student, verdict.train_set) for verdict in tested}) > 1


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
        f"{_students(choices)} by several strategies ({counted(count_seeds(choices), 'seed')}: "
        f"{choices['seeds'][0]}): {names['tested']}; the point of each is its best on tune, which "
        "may be to do nothing; p-values are Holm-corrected over strategies."
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
