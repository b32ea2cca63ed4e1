"""The verbs of raters' answers: exchange them with other programs, and weigh the raters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.options import (
    AsJson,
    Details,
    RecipeOption,
    Work,
    one_of,
    table_lines,
    tell,
)
from earmark.cli.verbs import Verbs
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.review import SelectionFormat, WeighedRaters

judgements_app = typer.Typer(cls=Verbs, help="Exchange raters' answers.", no_args_is_help=True)
raters_app = typer.Typer()

_RATED = ("sensitivity", "specificity")

_N_RATERS_SHOWN = 6
"""Raters that are printed without ``--details``."""

_NOT_COMPARED = (
    "Nothing can be said of how good these raters are: no label was heard by two of them, and no "
    "control by one. Let two raters hear the same blocks: `earmark review WORK --raters ann,bob`."
)


@judgements_app.command("export")
def export_judgements(
    work: Work,
    to: Annotated[
        Path, typer.Argument(help="File to write; a folder of Audacity's.", metavar="FILE")
    ],
    written_as: Annotated[
        str | None,
        typer.Option("--format", help="raven, audacity, dcase, aoef; else a table of answers."),
    ] = None,
    only_current: Annotated[
        bool, typer.Option("--current", help="Leave out what was retracted or answered anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write all answers as CSV or Parquet, or where classes are heard for other programs."""
    from earmark import stages

    selections = _selection_format(written_as)
    n_rows = stages.export_judgements(work, to, only_current=only_current, selections=selections)
    tell(as_json, rows=n_rows, wrote=to)


@judgements_app.command("import")
def import_judgements(
    work: Work,
    source: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet, Label Studio's JSON, another store, or selections: Raven's table, "
            "Audacity's labels, DCASE's TSV, AOEF."
        ),
    ],
    rater: Annotated[str, typer.Option(help="Where the file names none.")] = "imported",
    written_as: Annotated[
        str | None,
        typer.Option("--format", help="raven, audacity, dcase or aoef; else told by content."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add answers given elsewhere; what is there already is not added twice."""
    from earmark import stages

    n_new = stages.import_judgements(work, source, rater, _selection_format(written_as))
    store = stages.open_workspace(work).judgements_path
    tell(as_json, next_command=f"earmark precision {quoted(work)}", new=n_new, wrote=store)


@raters_app.command()
def raters(
    work: Work,
    with_teacher: Annotated[
        bool, typer.Option("--with-teacher", help="Let the teacher vote on labels, too.")
    ] = False,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Say how good each rater is, by one another and by the controls, with intervals."""
    from earmark import stages

    heard = stages.weigh_raters(work, recipe, with_teacher=with_teacher)
    weighed = heard.weighed
    facts: dict[str, Any] = {"labels": len(weighed.labels), "disputed": len(weighed.disputed)}
    if as_json:
        teacher = None if weighed.teacher is None else weighed.teacher.to_dicts()
        own: dict[str, Any] = {"raters": weighed.raters.to_dicts(), "teacher": teacher}
    else:
        own = _raters_told(weighed, details)
    decide = f"earmark queue {quoted(work)} --adjudicate"
    tell(
        as_json,
        next_command=decide if facts["disputed"] else f"earmark relabel {quoted(work)}",
        details=details,
        **facts,
        wrote=heard.raters_path,
        chances=heard.labels_path,
        **own,
    )


def _selection_format(written_as: str | None) -> SelectionFormat | None:
    from earmark.review import SELECTION_FORMATS

    chosen: SelectionFormat | None = one_of("--format", written_as, SELECTION_FORMATS)
    return chosen


def _raters_told(weighed: WeighedRaters, details: bool) -> dict[str, Any]:
    """Return the raters with most answers as a table, and what is doubtful, to be printed."""
    ordered = weighed.raters.sort("n_labels", "rater", descending=[True, False]).to_dicts()
    columns = ["rater", "heard", "compared", "alike", *_RATED, "unsure"]
    rows = [
        [
            row["rater"],
            *(f"{row[name]:,}" for name in ("n_labels", "n_compared")),
            "-" if row["alike"] is None else f"{row['alike']:.2f}",
            *(_share_told(row, name) for name in _RATED),
            f"{row['unsure']:.2f}",
        ]
        for row in ordered
    ]
    doubts = [f"{row['rater']}: {row['doubt']}" for row in ordered if row["doubt"]]
    if not weighed.raters["n_compared"].sum():
        doubts = [_NOT_COMPARED]
    teacher = weighed.teacher
    return {
        "table": table_lines(columns, rows, most=None if details else _N_RATERS_SHOWN),
        "more": [*([] if teacher is None else [_teacher_told(teacher["odds"].to_list())]), *doubts],
    }


def _share_told(row: dict[str, Any], name: str) -> str:
    """Return a share with its interval, such as ``0.91 (0.85-0.95)``."""
    if row[name] is None:
        return "unknown"
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f}-{row[f'{name}_high']:.2f})"


def _teacher_told(odds: list[float]) -> str:
    """Say what the teacher's vote is worth."""
    if not odds:
        return "teacher: it knows none of the labels that were heard"
    return (
        f"teacher: a high score multiplies the odds of a label by {odds[-1]:.1f}, a low one by "
        f"{odds[0]:.1f}, by what raters say of such labels"
    )
