"""All stages of one run, from a recipe and a folder to the report.

Each stage finds its finished work again, so a run that was interrupted, or whose recipe changed in
one place, repeats only what has to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl

from earmark.compute import HERE, Engine, Progress, shown
from earmark.config import Recipe
from earmark.datasets import Workspace
from earmark.errors import check_libraries, short_repr
from earmark.options import Argument, Option
from earmark.pipeline.flag import judged_flags, write_flags
from earmark.pipeline.opening import check_held_out, choose_recipe
from earmark.pipeline.prepare import make_dataset, make_features
from earmark.pipeline.report import make_report
from earmark.pipeline.study import sweep
from earmark.pipeline.teaching import score
from earmark.storage import writes

if TYPE_CHECKING:
    from earmark.experiments import SweepResults


@dataclass(frozen=True)
class Outcome:
    """What a run found."""

    workspace: Workspace
    recipe: Recipe
    n_flags: int
    judged: pl.DataFrame | None
    sweep: SweepResults
    report: Path

    __repr__ = short_repr


def _looks_at_frames(recipe: Recipe) -> bool:
    """Tell whether any network of a recipe looks at log-mel frames, or embeddings of one's own."""
    others = [one for one in recipe.students if not one.model.is_probe]
    return recipe.pretrained is None or recipe.way == "fine-tuned" or bool(others)


@writes("run", makes=True)
def run(
    recipe: Annotated[
        str | Path | Recipe, Argument("A shipped recipe's name or a TOML file.", read=str)
    ],
    work: Annotated[str | Path, Option("The workspace folder.", default=Path("work"))] = "work",
    *,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Outcome:
    """Run every stage of a recipe in a workspace folder: a recipe, a shipped one's name, or TOML.

    Scenes are made where the recipe has them; otherwise the folder holds an imported dataset.
    """
    check_libraries("a whole run", "soundfile", "torch", "PIL")
    chosen = choose_recipe(work, recipe)
    with shown(progress) as display:
        workspace = make_dataset(work, chosen, engine=engine, progress=display)
        check_held_out(workspace)
        if _looks_at_frames(chosen):
            make_features(workspace, engine=engine, progress=display)
        scores = score(workspace, engine=engine, progress=display)
        flagged = write_flags(workspace, discard_percent=chosen.report.flag_percent)
        swept = sweep(workspace, engine=engine, progress=display)
    report = make_report(workspace)
    judged = judged_flags(workspace, scores)
    return Outcome(workspace, chosen, flagged.findings.n_flags, judged, swept.found, report)
