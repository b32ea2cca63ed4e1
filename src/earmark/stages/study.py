"""Students: at every operating point, by every strategy, and as the next teachers.

Networks are imported inside the functions: torch takes seconds to load, and is an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from earmark.errors import EarmarkError, short_repr
from earmark.runs import HERE, CompareParams, Engine, Progress, shown, writes
from earmark.stages.opening import (
    RecipeLike,
    Scored,
    WorkLike,
    check_held_out,
    open_scored,
    open_workspace,
)
from earmark.stages.teaching import check_frames

if TYPE_CHECKING:
    from earmark.experiments import Comparison, SweepResults


@dataclass(frozen=True)
class Swept:
    """The results of a sweep, and the table of all of them."""

    path: Path
    found: SweepResults

    __repr__ = short_repr


@dataclass(frozen=True)
class Compared:
    """A comparison of strategies, what it was asked, and the folder of its tables."""

    folder: Path
    params: CompareParams
    found: Comparison

    __repr__ = short_repr


@dataclass(frozen=True)
class Iterated:
    """What became of students as teachers, round by round, and the table of it."""

    path: Path
    curve: pl.DataFrame

    __repr__ = short_repr


@writes("sweep")
def sweep(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: str | None = None,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Swept:
    """Train a student at every operating point, and evaluate them all.

    ``labels`` names a corrected label set to train on as well, alone and ignoring.
    """
    from earmark.experiments import run_sweep

    scored = _open(work, recipe)
    chosen = scored.recipe
    params = chosen.sweep.model_copy(update={"labels": labels or chosen.sweep.labels})
    with shown(progress) as display:
        found = run_sweep(
            scored.workspace,
            chosen.students,
            params,
            scored.scores,
            chosen.cross_fit,
            engine=engine,
            progress=display,
        )
    return Swept(scored.workspace.sweep_table_path("results"), found)


@writes("compare")
def compare(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    strategies: Sequence[str] | None = None,
    discard_percents: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    choose_by: str | None = None,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Compared:
    """Compare strategies: points chosen on tune, differences on eval with honest intervals.

    What is None is as the recipe has it.
    """
    from earmark.experiments import run_compare

    scored = _open(work, recipe)
    params = _params(
        scored,
        strategies=strategies,
        discard_percents=discard_percents,
        seeds=seeds,
        choose_by=choose_by,
    )
    with shown(progress) as display:
        found = run_compare(
            scored.workspace,
            scored.recipe.students,
            params,
            scored.scores,
            scored.recipe.cross_fit,
            engine=engine,
            progress=display,
        )
    return Compared(scored.workspace.compare_folder, params, found)


@writes("iterate")
def iterate(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    strategy: str = "mask@1",
    n_rounds: int = 2,
    seeds: Sequence[int] | None = None,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Iterated:
    """Let students become teachers for some rounds, and measure every round."""
    from earmark.experiments import run_rounds

    scored = _open(work, recipe)
    with shown(progress) as display:
        curve = run_rounds(
            scored.workspace,
            scored.recipe.students[0],
            _params(scored, seeds=seeds),
            strategy,
            scored.scores,
            scored.recipe.cross_fit,
            n_rounds,
            engine=engine,
            progress=display,
        )
    return Iterated(scored.workspace.compare_table_path("rounds"), curve)


def _open(work: WorkLike, recipe: RecipeLike) -> Scored:
    workspace = open_workspace(work)
    check_held_out(workspace)
    scored = open_scored(workspace, recipe)
    check_frames(scored.workspace, scored.recipe)
    return scored


def _params(scored: Scored, **given: object) -> CompareParams:
    """Return the recipe's comparison with what is given in place of it."""
    changes = {name: value for name, value in given.items() if value is not None}
    try:
        return CompareParams.model_validate({**scored.recipe.compare.model_dump(), **changes})
    except ValueError as error:
        raise EarmarkError(f"the comparison makes no sense: {error}") from None
