"""The tables of a comparison of strategies and of rounds, and what they say in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from earmark.report.figures import METRIC_NAMES
from earmark.report.tables import BASIS_NAMES, Table, named_by, ranged_text
from earmark.report.verdict import (
    ALPHA,
    Verdict,
    count_text,
    interval_in,
    number_text,
    share_text,
    signed_text,
)

SHOWN_METRICS = ("lwlrap", "lwlrap_calibrated", "d_prime_all", "map")
"""The metrics of a comparison that people read; the CSV file has all."""

N_TOLD = 3
"""Strategies whose gains the first sentence tells one by one."""


def named_by_role(choices: pl.DataFrame) -> pl.DataFrame:
    """Return choices whose oracles and controls are called so: people must not pick from them."""
    is_marked = pl.col("role").is_in(["oracle", "control"])
    marked = pl.format("{} ({})", "strategy", "role")
    return choices.with_columns(strategy=pl.when(is_marked).then(marked).otherwise("strategy"))


def show_comparison(choices: pl.DataFrame, labels: str) -> Table:
    """Return what every strategy is worth on eval by some labels, at its point chosen on tune."""
    values = choices.filter(labels=labels)
    shown = [
        _shown({row["metric"]: row for row in own.iter_rows(named=True)})
        for own in named_by_role(values).partition_by(
            "student", "train_set", "strategy", maintain_order=True
        )
    ]
    caption = (
        "Strategies at the operating points chosen on tune, measured on eval by "
        f"{BASIS_NAMES[labels]}: differences from the baseline with 90 % intervals over clips and "
        "seeds, and of lwlrap over classes; p is corrected for the number of strategies (Holm); "
        "the last column chooses the point on eval itself, as the paper did. Oracles know the "
        "truth and controls nothing: neither is tested, and no point is chosen for them."
    )
    return Table(
        named_by(labels, "comparison"), caption, values, pl.DataFrame(shown), n_text_columns=3
    )


def show_rounds(rounds: pl.DataFrame) -> Table:
    """Return the rounds in which students became teachers, on eval."""
    values = rounds.filter(split="eval")
    keys = ("student", "train_set", "labels", "round")
    shown = []
    for own in values.partition_by(*keys, maintain_order=True):
        cells = {row["metric"]: row for row in own.iter_rows(named=True)}
        first = own.row(0, named=True)
        shown.append(
            {
                "Student": f"{first['student']}, {first['train_set']}",
                "Judged by": BASIS_NAMES[first["labels"]],
                "Round": str(first["round"]),
                **_changes(cells),
            }
        )
    caption = (
        f"The student as the next teacher ({_taught(rounds)}), round by round: differences from "
        "the baseline on eval, with 90 % intervals over clips and seeds."
    )
    return Table("rounds", caption, values, pl.DataFrame(shown), n_text_columns=2)


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
    listed = "; ".join(_gain_told(one, has_lines) for one in gained[:N_TOLD])
    more = f"; and {len(gained) - N_TOLD} more" if len(gained) > N_TOLD else ""
    surviving = [_title(one, has_lines) for one in gained if one.survives]
    return f"{told}: {listed}{more}. Both controls are survived by {_listed(surviving)}."


def strategy_verdicts(choices: pl.DataFrame, labels: str = "given") -> list[Verdict]:
    """Return a verdict for each tested strategy, student and train set, in the table's order.

    A strategy that does nothing, since no point of it was better on ``tune``, has a gain of 0.
    """
    given = choices.filter(labels=labels)
    return [
        _strategy_verdict(own, line)
        for line in given.partition_by("student", "train_set", maintain_order=True)
        for own in line.filter(role="tested").partition_by("strategy", maintain_order=True)
    ]


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
        f"The student as the next teacher ({_taught(rounds)}), change from the baseline on the "
        f"evaluation clips: {'; '.join(told)}."
    )


def _strategy_verdict(own: pl.DataFrame, line: pl.DataFrame) -> Verdict:
    """Judge the rows of one strategy by those of its student and train set."""
    rows = {row["metric"]: row for row in own.iter_rows(named=True)}
    firsts = line.filter(metric="lwlrap").unique("role", keep="first")
    others = {row["role"]: row for row in firsts.iter_rows(named=True)}
    row, calibrated, control = rows["lwlrap"], rows.get("lwlrap_calibrated"), others.get("control")
    return Verdict(
        student=row["student"],
        train_set=row["train_set"],
        percent=row["point"] or 0.0,
        baseline=interval_in(others["baseline"]),
        best=interval_in(row),
        gain=interval_in(row, "difference"),
        calibrated_gain=None if calibrated is None else interval_in(calibrated, "difference"),
        random_gain=None if control is None else interval_in(control, "difference"),
        random_percent=None if control is None else control["point"],
        strategy=row["strategy"],
        p=row["p_holm"],
    )


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


def _taught(rounds: pl.DataFrame) -> str:
    """Name the strategy and point of students as teachers."""
    row = named_by_role(rounds.head(1)).row(0, named=True)
    return f"{row['strategy']} at {row['point']:g}"


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


def _shown(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    row = cells["lwlrap"]
    point = "none" if row["point"] is None else f"{row['point']:g}"
    by_class = (row["classes_low"], row["classes_high"])
    over = "–" if None in by_class else f"[{', '.join(signed_text(end) for end in by_class)}]"
    return {
        "Strategy": row["strategy"],
        "Student": row["student"],
        "Train set": row["train_set"],
        "Point": point,
        **_changes(cells),
        "lwlrap over classes": over,
        "p (Holm)": number_text(row["p_holm"]),
        "Chosen on eval": f"{number_text(row['chosen_on_eval'])} at "
        f"{row['chosen_on_eval_point']:g}",
    }


def _changes(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    there: Sequence[str] = [metric for metric in SHOWN_METRICS if metric in cells]
    return {
        METRIC_NAMES[metric]: ranged_text(cells[metric], "difference", signed_text)
        for metric in there
    }
