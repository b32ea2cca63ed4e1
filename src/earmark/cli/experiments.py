"""The verbs of the researcher's bench: ``compare`` and ``iterate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer
from rich.console import Console
from rich.table import Column, Table

from earmark.cli.options import (
    AsJson,
    EngineOption,
    RecipeOption,
    Work,
    Workers,
    check_frames,
    chosen_engine,
    open_scored,
    tell,
)
from earmark.errors import EarmarkError
from earmark.runs.engine import Engine
from earmark.runs.parameters import CompareParams
from earmark.runs.progress import Display, Progress
from earmark.runs.recipe import Recipe

if TYPE_CHECKING:
    from earmark.datasets.workspace import Workspace
    from earmark.scores.folder import ScoreFolder

compare_app = typer.Typer()

Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", help="Such as mask, precision/soft, hill, mask+adjust; repeatable."),
]
Seeds = Annotated[str | None, typer.Option(help="Numbers with commas between: 0,1,2.")]
Percents = Annotated[
    str | None, typer.Option("--points", help="Discard percents with commas between.")
]


@compare_app.command()
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
    as_json: AsJson = False,
) -> None:
    """Compare strategies: points chosen on tune, differences on eval with honest intervals."""
    from earmark.experiments.compare import run_compare

    with _open_bench(work, recipe, workers, engine) as bench:
        params = _params(bench.recipe, strategy, points, seeds, choose_by)
        comparison = run_compare(
            bench.workspace,
            bench.recipe.students,
            params,
            bench.scores,
            bench.recipe.cross_fit,
            engine=bench.engine,
            progress=bench.progress,
        )
    if not as_json:
        _print_choices(comparison.choices, params.choose_by)
    facts = {"wrote": bench.workspace.compare_folder, "strategies": len(params.strategies)}
    tell(as_json, next_command=f"earmark report {work}", **facts)


@compare_app.command()
def iterate(
    work: Work,
    strategy: Annotated[str, typer.Option(help="One operating point, such as mask@1.")] = "mask@1",
    rounds: Annotated[int, typer.Option(min=1, help="How often a student becomes teacher.")] = 2,
    seeds: Seeds = None,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Let students become teachers for some rounds, and measure every round."""
    from earmark.experiments.rounds import run_rounds

    with _open_bench(work, recipe, workers, engine) as bench:
        curve = run_rounds(
            bench.workspace,
            bench.recipe.students[0],
            _params(bench.recipe, None, None, seeds, None),
            strategy,
            bench.scores,
            bench.recipe.cross_fit,
            rounds,
            engine=bench.engine,
            progress=bench.progress,
        )
    if not as_json:
        _print_rounds(curve)
    facts = {"wrote": bench.workspace.compare_folder / "rounds.parquet", "rounds": rounds}
    tell(as_json, next_command=f"earmark report {work}", **facts)


@dataclass(frozen=True)
class _Bench:
    """What both verbs work on, and where they run."""

    workspace: Workspace
    recipe: Recipe
    scores: ScoreFolder
    engine: Engine
    progress: Progress


@contextmanager
def _open_bench(
    work: Path, recipe: str | None, workers: int | None, engine: str
) -> Iterator[_Bench]:
    workspace, chosen, scores = open_scored(work, recipe)
    check_frames(workspace, chosen)
    where = chosen_engine(workers, engine, chosen.resources)
    with Display() as progress:
        yield _Bench(workspace, chosen, scores, where, progress)


def _params(
    recipe: Recipe,
    strategies: list[str] | None,
    points: str | None,
    seeds: str | None,
    choose_by: str | None,
) -> CompareParams:
    """Return the recipe's comparison with what the command line says in place of it."""
    given: dict[str, object] = {
        "strategies": strategies or None,
        "discard_percents": None if points is None else _numbers("--points", points),
        "seeds": None if seeds is None else [int(seed) for seed in _numbers("--seeds", seeds)],
        "choose_by": choose_by,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    try:
        return CompareParams.model_validate({**recipe.compare.model_dump(), **changes})
    except ValueError as error:
        raise EarmarkError(f"the comparison makes no sense: {error}") from None


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise EarmarkError(f"{option} are numbers with commas between, got {text!r}") from None


def _print_choices(choices: pl.DataFrame, choose_by: str) -> None:
    """Print each strategy's worth on eval, at the point chosen on tune."""
    from earmark.report.results import SHOWN_METRICS, bases_of, named_by_role
    from earmark.report.sentences import comparison_headline

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
    from earmark.report.results import SHOWN_METRICS
    from earmark.report.sentences import rounds_told

    table = _table(["round", *SHOWN_METRICS], "eval, labels as given")
    shown = curve.filter(split="eval", labels="given")
    for own in shown.partition_by("train_set", "round", maintain_order=True):
        cells = {row["metric"]: row for row in own.iter_rows(named=True)}
        table.add_row(str(own["round"][0]), *(_cell(cells[metric]) for metric in SHOWN_METRICS))
    Console().print(table)
    print(rounds_told(curve))
