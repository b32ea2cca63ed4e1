"""The verbs of students: ``sweep``, ``compare``, ``iterate`` and ``report``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from earmark.cli.options import (
    AsJson,
    Details,
    EngineOption,
    LabelsOption,
    RecipeOption,
    TrackerOption,
    Work,
    Workers,
    engine_for,
    numbers,
    table_lines,
    tell,
)
from earmark.errors import quoted

if TYPE_CHECKING:
    import polars as pl

experiments_app = typer.Typer()

_N_ROWS = 7
"""Strategies, or rounds, that are printed without ``--details``."""

Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", help="Such as mask, precision/soft, hill, mask+adjust; repeatable."),
]
Seeds = Annotated[str | None, typer.Option(help="Numbers with commas between: 0,1,2.")]
Percents = Annotated[
    str | None, typer.Option("--points", help="Discard percents with commas between.")
]


@experiments_app.command()
def sweep(
    work: Work,
    labels: LabelsOption = None,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    tracker: TrackerOption = None,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Train a student at every operating point, and evaluate them all.

    With ``--labels NAME`` also on the labels that ``relabel`` wrote as NAME, alone and ignoring.
    """
    from earmark import stages

    where = engine_for(work, recipe, workers, engine, tracker)
    swept = stages.sweep(work, labels=labels, engine=where)
    tell(
        as_json,
        next_command=f"earmark report {quoted(work)}",
        **_swept_told(swept.found.summary, as_json, details),
        wrote=swept.path,
    )


@experiments_app.command()
def compare(
    work: Work,
    strategy: Strategies = None,
    points: Percents = None,
    seeds: Seeds = None,
    choose_by: Annotated[
        str | None, typer.Option(help="Metric on tune that chooses the point of a strategy.")
    ] = None,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    tracker: TrackerOption = None,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Compare strategies: points chosen on tune, differences on eval with honest intervals."""
    from earmark import stages

    where = engine_for(work, recipe, workers, engine, tracker)
    compared = stages.compare(
        work,
        strategies=strategy or None,
        discard_percents=numbers("--points", points),
        seeds=_seeds(seeds),
        choose_by=choose_by,
        engine=where,
    )
    facts: dict[str, Any] = {"strategies": len(compared.params.strategies)} if as_json else {}
    if not as_json:
        facts = _choices_told(compared.found.choices, details)
    following = f"earmark report {quoted(work)}"
    tell(as_json, following, details=details, wrote=compared.folder, **facts)


@experiments_app.command()
def iterate(
    work: Work,
    strategy: Annotated[str, typer.Option(help="One operating point, such as mask@1.")] = "mask@1",
    rounds: Annotated[int, typer.Option(min=1, help="How often a student becomes teacher.")] = 2,
    seeds: Seeds = None,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    tracker: TrackerOption = None,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Let students become teachers for some rounds, and measure every round."""
    from earmark import stages

    where = engine_for(work, recipe, workers, engine, tracker)
    iterated = stages.iterate(
        work, strategy=strategy, n_rounds=rounds, seeds=_seeds(seeds), engine=where
    )
    facts: dict[str, Any] = {"rounds": rounds} if as_json else _rounds_told(iterated.curve, details)
    following = f"earmark report {quoted(work)}"
    tell(as_json, following, details=details, wrote=iterated.path, **facts)


@experiments_app.command()
def report(work: Work, recipe: RecipeOption = None, as_json: AsJson = False) -> None:
    """Draw the figures and tables, and write the page with flags to hear."""
    from earmark import stages

    path = stages.make_report(work, recipe)
    tell(as_json, next_command=f"open {quoted(path)} in a browser", wrote=path)


def _seeds(text: str | None) -> list[int] | None:
    given = numbers("--seeds", text)
    return None if given is None else [int(seed) for seed in given]


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


def _rounds_told(curve: pl.DataFrame, details: bool) -> dict[str, Any]:
    """Return how far students are from the baseline in every round, to be printed."""
    from earmark.report import METRIC_NAMES, rounds_told

    shown = curve.filter(split="eval", labels="given", metric="lwlrap")
    keys = [name for name in ("student", "train_set") if shown[name].n_unique() > 1]
    rows = [
        [str(row["round"]), *(row[key] for key in keys), *_change_texts(row)]
        for row in shown.iter_rows(named=True)
    ]
    columns = ["round", *keys, METRIC_NAMES["lwlrap"], "90 % interval"]
    table = table_lines(columns, rows, 1 + len(keys), None if details else _N_ROWS)
    return {"told": [rounds_told(curve)], "table": table}


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
