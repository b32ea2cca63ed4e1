"""The verbs that exchange raters' answers with other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earmark.cli.options import AsJson, Work, one_of, tell
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.review import SelectionFormat

judgements_app = typer.Typer(help="Exchange raters' answers.", no_args_is_help=True)


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
    tell(as_json, wrote=to, rows=n_rows)


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
    tell(as_json, next_command=f"earmark precision {quoted(work)}", wrote=store, new=n_new)


def _selection_format(written_as: str | None) -> SelectionFormat | None:
    from earmark.review import SELECTION_FORMATS

    chosen: SelectionFormat | None = one_of("--format", written_as, SELECTION_FORMATS)
    return chosen
