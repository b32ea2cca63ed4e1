"""How the command line is told what to do, and how it speaks.

A verb prints at most ``MOST_LINES`` lines of ``WIDTH`` columns: first what was found, then how sure
that is, then what was written and the next command. What does not fit is left out and counted;
``--details`` prints it all. Paths and commands are never broken.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.errors import EarmarkError, quoted
from earmark.text import printable

if TYPE_CHECKING:
    from earmark.compute import Engine
    from earmark.config import ResourceParams
    from earmark.datasets import Stale, Workspace
    from earmark.labels import Reading

Work = Annotated[Path, typer.Argument(help="The workspace folder.", metavar="WORK")]
WorkOption = Annotated[Path, typer.Option("--work", help="The workspace folder to write.")]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", help="A shipped recipe's name or a TOML file; the last one used."),
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; all cores.")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where work runs: local, ray, ray://HOST:PORT.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", help="ROLE=NAME where a guess would be wrong; repeatable."),
]


def hide_progress_for_json(context: typer.Context, as_json: bool) -> bool:
    """Show no progress while a command that prints JSON runs."""
    if as_json:
        from earmark.compute import hide_progress

        context.with_resource(hide_progress())
    return as_json


AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the result as JSON, for programs.", callback=hide_progress_for_json
    ),
]
Details = Annotated[bool, typer.Option("--details", help="Print all, however long it is.")]


WIDTH, MOST_LINES = 80, 15
"""Columns and lines of what a verb prints."""

_GAP = "  "
"""What stands between two columns of a table."""

_WHOLE = re.compile(r"`[^`]*`|pip install '[^']*'|(?<=: )earmark [a-z].*$")
"""What is never broken over two lines: commands."""


def chosen_engine(
    workers: int | None, engine: str = "local", resources: ResourceParams | None = None
) -> Engine:
    """Return the engine asked for: processes on this machine, one for each core, or a cluster.

    On a cluster the recipe's ``resources`` say how many tasks fit, in place of ``workers``.
    """
    from earmark.compute import LocalEngine, RayEngine
    from earmark.config import ResourceParams

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
) -> Engine:
    """Open a workspace, remember the recipe asked for, and return the engine for its tasks."""
    from earmark import pipeline

    chosen = pipeline.choose_recipe(pipeline.open_workspace(work), recipe)
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


def stale_facts(stale: Sequence[Stale]) -> list[dict[str, str]]:
    """Return what is older than the dataset, with the commands that renew it, for programs."""
    return [{"path": str(one.path), "renew": one.command} for one in stale]


def stale_told(stale: Sequence[Stale]) -> list[str]:
    """Say what is older than the dataset now, with the commands that renew it."""
    return [f"older than the dataset now: {one.path} (`{one.command}`)" for one in stale]


def wrapped(sentence: str) -> list[str]:
    """Return a sentence as lines that fit a terminal; commands and long words are not broken.

    >>> wrapped("no score yet; " * 4 + "have them all first: `earmark score work`")[1:]
    ['  `earmark score work`']
    """
    kept = _WHOLE.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), sentence)
    start = " " * (len(kept) - len(kept.lstrip(" ")))
    lines = textwrap.wrap(
        kept.strip(" "),
        WIDTH,
        initial_indent=start,
        subsequent_indent=f"{start}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [printable(line.replace("\N{NO-BREAK SPACE}", " ")) for line in lines]


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], n_text: int = 1, most: int | None = None
) -> list[str]:
    """Return a table as lines that fit a terminal: a heading, and a line for each row.

    The first ``n_text`` columns hold text, and are cut where there is no room; the others hold
    numbers, which are whole. Of more than ``most`` rows the rest is counted.
    """
    from rich.cells import cell_len

    kept = rows if most is None else rows[:most]
    lines = [columns, *kept]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(columns))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH and max(widths[:n_text]) > 1:
        widths[widths.index(max(widths[:n_text]))] -= 1
    shown = [
        _GAP.join(
            _cell_text(cell, width, is_number=place >= n_text)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return shown + ([f"and {len(rows) - len(kept):,} more"] if len(rows) > len(kept) else [])


def _cell_text(cell: str, width: int, *, is_number: bool) -> str:
    """Return text from the left, cut where it is too long, or a number from the right."""
    from rich.cells import cell_len, set_cell_size

    if is_number:
        return " " * (width - cell_len(cell)) + cell
    return set_cell_size(cell, width) if cell_len(cell) <= width else (
        set_cell_size(cell, width - 1) + "…"
    )  # fmt: skip


def tell(
    as_json: bool,
    next_command: str | None = None,
    *,
    told: Iterable[str] = (),
    table: Sequence[str] = (),
    more: Iterable[str] = (),
    details: bool | None = None,
    then: str | None = None,
    **facts: Any,
) -> None:
    """Print what was found, how sure that is, what was written and the next command.

    ``told`` and ``table`` (lines) come first; of ``more`` as many sentences as there is room for,
    all with ``details``, which is None where a verb has no such option. For programs, print
    ``facts`` and the next command as JSON.
    """
    if as_json:
        print(json.dumps({**facts, "next": next_command}, default=str))
        return
    head = [*(line for sentence in told for line in wrapped(sentence)), *table]
    known = {name: value for name, value in facts.items() if value is not None}
    tail = [f"{name}: {_fact_text(value)}" for name, value in known.items()]
    tail += [f"next: {next_command}"] if next_command else []
    tail += [f"then: {then}"] if then else []
    room = MOST_LINES - len(head) - len(tail)
    body = _fitting([wrapped(one) for one in more], None if details else room, details is not None)
    print("\n".join(map(printable, [*head, *body, *tail])))


def _fact_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _fitting(sentences: Sequence[list[str]], room: int | None, has_details: bool) -> list[str]:
    """Return lines of as many sentences as there is room for, and how many were left out."""
    n_lines = sum(map(len, sentences))
    if room is None or n_lines <= room:
        return [line for sentence in sentences for line in sentence]
    lines: list[str] = []
    for place, sentence in enumerate(sentences):
        if room < 1:
            break
        if len(lines) + len(sentence) > room - 1:
            n_left = len(sentences) - place
            where = " (--details)" if has_details else ""
            return [*lines, f"and {n_left:,} more{where}"]
        lines += sentence
    return lines


def after_import(workspace: Workspace) -> str:
    """Return the next command: sound is heard by a pretrained teacher, or becomes frames.

    Without either, scores come from elsewhere.
    """
    work = workspace.root
    if workspace.has_frames():
        return f"earmark score {quoted(work)}"
    if workspace.has_sound():
        from earmark import pipeline

        verb = "features" if pipeline.default_teacher(workspace) is None else "score"
        return f"earmark {verb} {quoted(work)}"
    return f"earmark score {quoted(work)} --from scores.npy"
