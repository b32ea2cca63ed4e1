"""How the command line speaks: shared options, what was written, what to do next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.errors import EarmarkError
from earmark.runs.engine import Engine, LocalEngine, ResourceParams
from earmark.runs.ray import RayEngine
from earmark.runs.recipe import Recipe, find_recipe, keep_recipe, kept_recipe

if TYPE_CHECKING:
    from earmark.datasets.workspace import Workspace
    from earmark.scores.folder import ScoreFolder

Work = Annotated[Path, typer.Argument(help="The workspace folder.", metavar="WORK")]
WorkOption = Annotated[Path, typer.Option("--work", help="The workspace folder to write.")]
Root = Annotated[Path, typer.Argument(help="The dataset's folder.", metavar="ROOT")]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", help="A shipped recipe's name or a TOML file; the last one used."),
]
LabelsOption = Annotated[
    str | None, typer.Option("--labels", help="A corrected label set; the labels as given.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; all cores.")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where work runs: local, ray, ray://HOST:PORT.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


def chosen_engine(
    workers: int | None, engine: str = "local", resources: ResourceParams | None = None
) -> Engine:
    """Return the engine asked for: processes on this machine, one for each core, or a cluster.

    On a cluster the recipe's ``resources`` say how many tasks fit, in place of ``workers``.
    """
    if engine == "local":
        return LocalEngine() if workers is None else LocalEngine(workers)
    if workers is not None:
        raise EarmarkError(
            "--workers counts processes on this machine; on a cluster [resources] in the recipe "
            "says what a task takes, and as many run at once as fit"
        )
    return chosen_cluster(engine, resources)


def chosen_cluster(engine: str, resources: ResourceParams | None = None) -> RayEngine:
    """Return the cluster asked for: ``ray``, or ``ray://HOST:PORT``."""
    if engine != "ray" and not engine.startswith("ray://"):
        raise EarmarkError(f"--engine is local, ray or ray://HOST:PORT, got {engine!r}")
    return RayEngine(None if engine == "ray" else engine, resources or ResourceParams())


def chosen_recipe(work: Path, recipe: str | None) -> Recipe:
    """Return the recipe asked for, or the one that the workspace was last run with."""
    if recipe is None:
        return kept_recipe(work)
    chosen = find_recipe(recipe)
    keep_recipe(work, chosen)
    return chosen


def open_scored(work: Path, recipe: str | None) -> tuple[Workspace, Recipe, ScoreFolder]:
    """Open a workspace, the recipe asked for, and its teacher's scores of the train split."""
    from earmark.datasets.workspace import Workspace
    from earmark.scores.folder import ScoreFolder

    workspace, chosen = Workspace.open(work), chosen_recipe(work, recipe)
    return workspace, chosen, ScoreFolder.open(workspace.scores_folder(chosen.teacher.name))


def check_frames(workspace: Workspace, recipe: Recipe) -> None:
    """Refuse a workspace whose frames were made with another front end than the recipe's."""
    from earmark.audio.frame_store import FrameStore
    from earmark.networks.examples import check_front_end

    check_front_end(FrameStore.open(workspace.frames_folder), recipe.front_end)


def tell(as_json: bool, next_command: str | None = None, **facts: Any) -> None:
    """Print what was written, in words or as JSON, and the next command."""
    if as_json:
        print(json.dumps({**facts, "next": next_command}, default=str))
        return
    for name, value in facts.items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    if next_command:
        print(f"next: {next_command}")


def after_import(work: Path) -> str:
    """Return the next command: datasets that bring frames of their own need no features stage."""
    return f"earmark {'score' if (work / 'frames' / 'meta.json').exists() else 'features'} {work}"
