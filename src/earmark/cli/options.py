"""How the command line speaks: shared options, what was written, what to do next."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.errors import EarmarkError, quoted

if TYPE_CHECKING:
    from earmark.datasets import Stale, Workspace
    from earmark.labels import Reading
    from earmark.runs import Engine, ResourceParams

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
TrackerOption = Annotated[
    str | None,
    typer.Option("--tracker", help="Show training in tensorboard, wandb, mlflow or trackio."),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", help="ROLE=NAME where a guess would be wrong; repeatable."),
]
SeparatorOption = Annotated[
    str | None, typer.Option("--separator", help="Between labels in one cell.")
]
ZerosOption = Annotated[
    str, typer.Option("--zeros", help="What 0 means in a multi-hot table: implicit or absent.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


def chosen_engine(
    workers: int | None, engine: str = "local", resources: ResourceParams | None = None
) -> Engine:
    """Return the engine asked for: processes on this machine, one for each core, or a cluster.

    On a cluster the recipe's ``resources`` say how many tasks fit, in place of ``workers``.
    """
    from earmark.runs import LocalEngine, RayEngine, ResourceParams

    if engine == "local":
        return LocalEngine() if workers is None else LocalEngine(workers)
    if engine != "ray" and not engine.startswith("ray://"):
        raise EarmarkError(f"--engine is local, ray or ray://HOST:PORT, got {engine!r}")
    if workers is not None:
        raise EarmarkError(
            "--workers counts processes on this machine; on a cluster [resources] in the recipe "
            "says what a task takes, and as many run at once as fit"
        )
    return RayEngine(None if engine == "ray" else engine, resources or ResourceParams())


def engine_for(
    work: Path,
    recipe: str | None,
    workers: int | None,
    engine: str = "local",
    tracker: str | None = None,
) -> Engine:
    """Open a workspace, remember the recipe asked for, and return the engine for its tasks."""
    from earmark import stages

    chosen = stages.choose_recipe(stages.open_workspace(work), recipe)
    if tracker is not None:
        stages.choose_tracker(work, tracker)
    return chosen_engine(workers, engine, chosen.resources)


def reading_of(column: list[str] | None, separator: str | None, zeros: str) -> Reading:
    """Return how a table of labels is to be read: --column, --separator and --zeros."""
    from earmark.labels import Reading

    pairs = [pair.partition("=") for pair in column or []]
    for role, equals, name in pairs:
        if not (role and equals and name):
            raise EarmarkError(
                f"--column is ROLE=NAME, such as class_id=bird, got {role + equals!r}"
            )
    columns = {role: name for role, _, name in pairs}
    return Reading(columns, separator or None, one_of("--zeros", zeros, ("implicit", "absent")))


def one_of(option: str, value: str | None, choices: tuple[str, ...]) -> Any:
    """Return the value of an option, or refuse it and list the choices."""
    if value is not None and value not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise EarmarkError(f"{option} is {listed}, got {value!r}")
    return value


def numbers(option: str, text: str | None) -> list[float] | None:
    """Read numbers with commas between; None stays None.

    >>> numbers("--points", "0.5, 1")
    [0.5, 1.0]
    """
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise EarmarkError(f"{option} are numbers with commas between, got {text!r}") from None


def split_shares(text: str) -> dict[str, float]:
    """Read the shares of train, tune and eval; only their proportions count.

    >>> split_shares("80,10,10")
    {'train': 0.8, 'tune': 0.1, 'eval': 0.1}
    """
    given = numbers("--shares", text) or []
    if len(given) != 3 or min(given) <= 0:
        raise EarmarkError(f"--shares are three numbers above 0, such as 80,10,10, got {text!r}")
    return {name: n / sum(given) for name, n in zip(("train", "tune", "eval"), given, strict=True)}


def told_stale(stale: Sequence[Stale], as_json: bool) -> dict[str, Any]:
    """Return what is older than the dataset, with the commands that renew it; nothing if none."""
    if as_json:
        return {"stale": [{"path": str(one.path), "renew": one.command} for one in stale]}
    listed = "".join(f"\n  {one.path} ({one.command})" for one in stale)
    return {"older than the dataset now": listed} if stale else {}


def names(text: str) -> tuple[str, ...]:
    """Split a list of names at its commas; AudioSet's names contain some, so use ; for those.

    >>> names("Bark; Male speech, man speaking"), names("Bark, Meow")
    (('Bark', 'Male speech, man speaking'), ('Bark', 'Meow'))
    """
    parts = text.split(";" if ";" in text else ",")
    return tuple(name.strip() for name in parts if name.strip())


def say(sentences: Iterable[str]) -> None:
    """Print sentences, each on lines of its own that fit a terminal."""
    for sentence in sentences:
        print(
            textwrap.fill(
                sentence, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
        )


def tell(as_json: bool, next_command: str | None = None, **facts: Any) -> None:
    """Print what was written, in words or as JSON, and the next command."""
    if as_json:
        print(json.dumps({**facts, "next": next_command}, default=str))
        return
    for name, value in facts.items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    if next_command:
        print(f"next: {next_command}")


def after_import(workspace: Workspace) -> str:
    """Return the next command: sound is heard by a pretrained teacher, or becomes frames.

    Without either, scores come from elsewhere.
    """
    work = workspace.root
    if workspace.has_frames():
        return f"earmark score {quoted(work)}"
    if workspace.has_sound():
        from earmark import stages

        verb = "features" if stages.default_teacher(workspace) is None else "score"
        return f"earmark {verb} {quoted(work)}"
    return f"earmark score {quoted(work)} --from scores.npy"
