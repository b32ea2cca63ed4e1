"""The verbs of students: ``sweep``, ``compare``, ``iterate`` and ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from earmark.cli.options import (
    AsJson,
    EngineOption,
    LabelsOption,
    RecipeOption,
    TrackerOption,
    Work,
    Workers,
    engine_for,
    numbers,
    tell,
)
from earmark.errors import quoted

if TYPE_CHECKING:
    import polars as pl

experiments_app = typer.Typer()

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
) -> None:
    """Train a student at every operating point, and evaluate them all.

    With ``--labels NAME`` also on the labels that ``relabel`` wrote as NAME, alone and ignoring.
    """
    from earmark import stages

    where = engine_for(work, recipe, workers, engine, tracker)
    swept = stages.sweep(work, labels=labels, engine=where)
    tell(as_json, next_command=f"earmark report {quoted(work)}", wrote=swept.path)


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
    if not as_json:
        _print_choices(compared.found.choices, compared.params.choose_by)
    facts = {"wrote": compared.folder, "strategies": len(compared.params.strategies)}
    tell(as_json, next_command=f"earmark report {quoted(work)}", **facts)


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
) -> None:
    """Let students become teachers for some rounds, and measure every round."""
    from earmark import stages

    where = engine_for(work, recipe, workers, engine, tracker)
    iterated = stages.iterate(
        work, strategy=strategy, n_rounds=rounds, seeds=_seeds(seeds), engine=where
    )
    if not as_json:
        _print_rounds(iterated.curve)
    tell(as_json, next_command=f"earmark report {quoted(work)}", wrote=iterated.path, rounds=rounds)


@experiments_app.command()
def report(work: Work, recipe: RecipeOption = None, as_json: AsJson = False) -> None:
    """Draw the figures and tables, and write the page with flags to hear."""
    from earmark import stages

    path = stages.make_report(work, recipe)
    tell(as_json, next_command=f"open {quoted(path)} in a browser", wrote=path)


def _seeds(text: str | None) -> list[int] | None:
    given = numbers("--seeds", text)
    return None if given is None else [int(seed) for seed in given]


def _print_choices(choices: pl.DataFrame, choose_by: str) -> None:
    """Print each strategy's worth on eval, at the point chosen on tune."""
    from earmark.report import SHOWN_METRICS, bases_of, comparison_headline, named_by_role

    given = named_by_role(choices.filter(labels="given"))
    for line in given.partition_by("student", "train_set", maintain_order=True):
        title = f"{line['student'][0]}, {line['train_set'][0]}: eval, chosen by {choose_by} on tune"
        table = _table(["strategy", "point", *SHOWN_METRICS, "p (Holm)", "on eval*"], title)
        for own in line.partition_by("strategy", maintain_order=True):
            cells = {row["metric"]: row for row in own.iter_rows(named=True)}
            chosen = cells[choose_by]
            point = chosen["point"]
            table.add_row(
                chosen["strategy"],
                "none" if point is None else f"{point:g}",
                *(_cell(cells[metric]) for metric in SHOWN_METRICS),
                "" if chosen["p_holm"] is None else f"{chosen['p_holm']:.3f}",
                f"{chosen['chosen_on_eval']:.3f} at {chosen['chosen_on_eval_point']:g}",
            )
        Console().print(table)
    print("differences with 90 % intervals over clips and seeds; oracles and controls not tested;")
    print(f"* {choose_by} at the point chosen on eval itself, as the paper did")
    print(f"by the labels as given; the report has them by: {', '.join(bases_of(choices))}")
    print(comparison_headline(choices))


def _table(names: Sequence[str], title: str) -> Table:
    """Return an empty table that breaks numbers on a narrow terminal, and never cuts them off."""
    return Table(*(Column(name, overflow="fold") for name in names), title=title)


def _cell(row: dict[str, float]) -> str:
    low, high = row["difference_low"], row["difference_high"]
    return f"{row['value']:.3f} ({row['difference']:+.3f} [{low:+.3f}, {high:+.3f}])"


def _print_rounds(curve: pl.DataFrame) -> None:
    from earmark.report import SHOWN_METRICS, rounds_told

    table = _table(["round", *SHOWN_METRICS], "eval, labels as given")
    shown = curve.filter(split="eval", labels="given")
    for own in shown.partition_by("train_set", "round", maintain_order=True):
        cells = {row["metric"]: row for row in own.iter_rows(named=True)}
        table.add_row(str(own["round"][0]), *(_cell(cells[metric]) for metric in SHOWN_METRICS))
    Console().print(table)
    print(rounds_told(curve))
