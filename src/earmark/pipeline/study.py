"""Students: at every operating point, by every strategy, and as the next teachers.

Networks are imported inside the functions: torch takes seconds to load, and is an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from earmark.compute import HERE, Engine, Progress, shown
from earmark.config import CompareParams
from earmark.errors import EarmarkError, short_repr
from earmark.options import Option, read_numbers, read_whole_numbers
from earmark.pipeline.opening import (
    RecipeLike,
    Scored,
    WorkLike,
    check_held_out,
    open_scored,
    open_workspace,
)
from earmark.pipeline.teaching import check_frames
from earmark.storage import writes

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


@writes("sweep")
def sweep(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    labels: Annotated[str | None, Option("A corrected label set; the labels as given.")] = None,
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
    strategies: Annotated[
        Sequence[str] | None,
        Option("Such as mask, precision/soft, splc, mask+adjust; repeatable.", "--strategy"),
    ] = None,
    discard_percents: Annotated[
        Sequence[float] | None,
        Option("Discard percents with commas between.", "--points", read=read_numbers),
    ] = None,
    seeds: Annotated[
        Sequence[int] | None,
        Option("Numbers with commas between: 0,1,2.", read=read_whole_numbers),
    ] = None,
    choose_by: Annotated[
        str | None, Option("Metric on tune that chooses the point of a strategy.")
    ] = None,
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
