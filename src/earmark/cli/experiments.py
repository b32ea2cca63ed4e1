"""The verbs of students: ``sweep``, ``compare`` and ``report``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeGuard

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.printing import table_lines, tell
from earmark.errors import quoted

if TYPE_CHECKING:
    import polars as pl

    from earmark.pipeline import Outcome

_N_ROWS = 7
"""Strategies that are printed without ``--details``."""


@offers("pipeline.run_demo")
def demo(call: Call, as_json: AsJson = False) -> None:
    """Try it: find hidden labels in simulated scenes, train with and without them."""
    from earmark.report import demo_lines

    done = call()
    facts = done.found.facts if as_json else {}
    following = f"earmark review {quoted(call['work'])}"
    tell(as_json, following, told=demo_lines(done.found), report=done.page, **facts)


@offers("pipeline.run")
def run(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Run a whole experiment from a recipe, from the data to the report."""
    outcome = call()
    if as_json:
        facts: dict[str, Any] = {"report": outcome.report, "n_flags": outcome.n_flags}
        tell(as_json, next_command=_after_run(outcome), **facts)
    else:
        _print_outcome(outcome, details)


@offers("pipeline.sweep")
def sweep(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Train and evaluate a student at every operating point.

    With ``--labels NAME`` also on the labels that ``relabel`` wrote as NAME, alone and ignoring.
    """
    swept = call()
    tell(
        as_json,
        next_command=f"earmark report {quoted(call['work'])}",
        **_swept_told(swept.found.summary, as_json, details),
        wrote=swept.path,
    )


@offers("pipeline.compare")
def compare(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Compare strategies: choose points on tune, report differences on eval."""
    compared = call()
    facts: dict[str, Any] = {"strategies": len(compared.params.strategies)} if as_json else {}
    if not as_json:
        facts = _choices_told(compared.found.choices, details)
    following = f"earmark report {quoted(call['work'])}"
    tell(as_json, following, details=details, wrote=compared.folder, **facts)


@offers("pipeline.make_report", "pipeline.write_card")
def report(call: Call, as_json: AsJson = False) -> None:
    """Write the report: figures, tables, and flags with players; or a card."""
    card = call["out"]
    if card is None:
        path = call("make_report", because="a page; it needs --card FILE")
        tell(as_json, next_command=f"open {quoted(path)} in a browser", wrote=path)
        return
    written = call("write_card")
    unsaid = written.contents.description.unsaid
    tell(
        as_json,
        told=[written.contents.evidence.estimates.describe()],
        more=[f"not said: {', '.join(unsaid)}; each has an option"] if unsaid else [],
        wrote=card,
    )


def _swept_told(summary: pl.DataFrame, as_json: bool, details: bool) -> dict[str, Any]:
    """Return what a sweep found, to be printed."""
    from earmark.report import detail_lines, summary_lines

    if as_json:
        return {}
    verdict, *sure = summary_lines(summary, None, 0.0)
    more = [*sure, *detail_lines(summary)] if details else sure
    return {"told": [verdict], "more": more, "details": details}


def _choices_told(choices: pl.DataFrame, details: bool) -> dict[str, Any]:
    """Return each strategy's worth on eval, at the point chosen on tune, to be printed."""
    from earmark.report import (
        SHOWN_METRICS,
        comparison_headline,
        named_by_role,
        strategies_told,
    )

    given = named_by_role(choices.filter(labels="given"))
    metrics = [metric for metric in SHOWN_METRICS if metric in given["metric"]]
    tables = [_choices_table(given.filter(metric=metric), details) for metric in metrics]
    return {
        "told": [comparison_headline(choices)],
        "table": [line for table in tables for line in table] if details else tables[0],
        "more": [strategies_told(choices)],
    }


def _choices_table(given: pl.DataFrame, details: bool) -> list[str]:
    """Return how far every strategy is from the baseline by one metric."""
    import polars as pl

    from earmark.report import METRIC_NAMES

    keys = [name for name in ("student", "train_set") if given[name].n_unique() > 1]
    if len(given) > _N_ROWS and not details:  # those that matter: the best
        given = given.filter(pl.col("role") != "baseline")
        given = given.sort(pl.col("difference").fill_nan(None), descending=True, nulls_last=True)
    rows = [
        [
            row["strategy"],
            *(row[key] for key in keys),
            "-" if row["point"] is None else f"{row['point']:g}",
            *_change_texts(row),
            _decimal(row["p_holm"]),
        ]
        for row in given.iter_rows(named=True)
    ]
    columns = ["strategy", *keys, "point", METRIC_NAMES[given["metric"][0]], "90 % interval", "p"]
    return table_lines(columns, rows, 1 + len(keys), None if details else _N_ROWS)


def _change_texts(row: dict[str, float]) -> tuple[str, str]:
    """Return a change and its interval; a dash where nothing was measured."""
    low, high = _signed(row["difference_low"]), _signed(row["difference_high"])
    return _signed(row["difference"]), f"{low} to {high}" if "-" not in (low, high) else "-"


def _is_number(number: float | None) -> TypeGuard[float]:
    return number is not None and math.isfinite(number)


def _signed(number: float | None) -> str:
    return f"{number:+.3f}" if _is_number(number) else "-"


def _decimal(number: float | None) -> str:
    return f"{number:.3f}" if _is_number(number) else "-"


def _print_outcome(outcome: Outcome, details: bool) -> None:
    """Print what a newcomer wants to see at the end of a run."""
    from earmark.report import detail_lines, summary_lines

    results, flag_percent = outcome.sweep.summary, outcome.recipe.report.flag_percent
    verdict, *sure = summary_lines(results, outcome.judged, flag_percent)
    more = [*sure, *detail_lines(results)] if details else sure
    following = _after_run(outcome)
    tell(False, following, told=[verdict], more=more, details=details, report=outcome.report)


def _after_run(outcome: Outcome) -> str | None:
    """Return the next command: flags with sound are there to be heard."""
    workspace = outcome.workspace
    return f"earmark review {quoted(workspace.root)}" if workspace.has_sound() else None
