"""The verbs of a review: draw a queue, listen, measure precision, correct the labels."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.options import AsJson, RecipeOption, Work, chosen_recipe, open_scored, tell
from earmark.errors import EarmarkError
from earmark.runs.parameters import ReviewParams, digest

if TYPE_CHECKING:
    import polars as pl

    from earmark.datasets.workspace import Workspace
    from earmark.review.judgements import JudgementStore
    from earmark.review.queue import Queue
    from earmark.review.server.guard import Place

review_app = typer.Typer()
judgements_app = typer.Typer(help="Exchange raters' answers.", no_args_is_help=True)
review_app.add_typer(judgements_app, name="judgements")

Classes = Annotated[
    str, typer.Option("--classes", help="Names or identifiers, with commas; all with scores.")
]

DropFailed = Annotated[
    bool, typer.Option("--drop-failed-blocks", help="Leave out blocks with a failed control.")
]


@review_app.command()
def queue(
    work: Work,
    classes: Classes = "",
    flags_per_block: Annotated[int, typer.Option(min=1, help="Labels in a block.")] = 25,
    blocks_per_class: Annotated[int, typer.Option(min=1)] = 4,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of blocks that all raters judge.")
    ] = 0.2,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Of the tune and eval splits, not of train.")
    ] = False,
    seed: int = 0,
    label_studio: Annotated[
        Path | None, typer.Option(help="Write the queue as Label Studio's tasks, too.")
    ] = None,
    document_root: Annotated[Path, typer.Option(help="Label Studio's, for local files.")] = Path(
        "/"
    ),
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw the labels that raters will listen to, in a fixed random order with blind controls."""
    from earmark.datasets.workspace import Workspace
    from earmark.review.judgement_files import write_label_studio_tasks
    from earmark.review.queue import block_plan

    params = ReviewParams(
        classes=split_names(classes),
        flags_per_block=flags_per_block,
        blocks_per_class=blocks_per_class,
        overlap=overlap,
        held_out=held_out,
        seed=seed,
    )
    workspace = Workspace.open(work)
    made = prepare_queue(workspace, recipe, params)
    facts = {"items": len(made.items), "blocks": len(block_plan(made.items))}
    if label_studio is not None:
        facts["tasks"] = write_label_studio_tasks(label_studio, made, workspace, document_root)
    tell(
        as_json,
        next_command=f"earmark review {work}",
        wrote=workspace.review_folder / "queue.parquet",
        **facts,
    )


@review_app.command()
def review(
    work: Work,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any free one.")] = 8321,
    raters: Annotated[str, typer.Option(help="Names with commas; you, by default.")] = "",
    host: Annotated[str, typer.Option(help="Whose network may reach the page.")] = "127.0.0.1",
    classes: Classes = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    recipe: RecipeOption = None,
) -> None:
    """Listen to flags on a local page and judge them, one key each."""
    import webbrowser

    from earmark.datasets.workspace import Workspace
    from earmark.review.server.app import make_app, make_server, make_tokens, open_socket
    from earmark.review.server.desk import open_desk
    from earmark.review.server.guard import Place
    from earmark.runs.progress import Display

    workspace, chosen = Workspace.open(work), chosen_recipe(work, recipe)
    names = _rater_names(raters)
    drawn = prepare_queue(workspace, recipe)
    with open_store(workspace) as store, open_socket(host, port) as listener:
        with Display() as progress:
            wanted = split_names(classes)
            desk = open_desk(workspace, chosen, drawn, store, names, wanted, progress)
        place, tokens = Place(host, listener.getsockname()[1]), make_tokens(names)
        _print_addresses(place, tokens)
        print(f"answers: {store.path}\nnext: earmark precision {work}", flush=True)
        if not no_open:
            webbrowser.open(place.url(next(iter(tokens))))
        make_server(make_app(desk, tokens, place)).run(sockets=[listener])


@review_app.command()
def precision(
    work: Work,
    discard_percent: Annotated[
        float | None, typer.Option(min=0, max=100, help="Flags up to this point; all flagged.")
    ] = None,
    drop_failed_blocks: DropFailed = False,
    as_json: AsJson = False,
) -> None:
    """Say how many of the flags are right, by class and by band, with intervals."""
    from earmark.review.flag_precision import agreement, controls, precision_table
    from earmark.runs.artefacts import write_table

    workspace, drawn, judgements = _open_judged(work, drop_failed_blocks)
    table = precision_table(drawn, judgements, discard_percent)
    path = workspace.review_folder / "precision.csv"
    write_table(path, table)
    if not as_json:
        _print_precision(workspace, table)
        for one in agreement(drawn, judgements):
            print(
                f"{one.kind}, {one.first} and {one.second}: {one.raw:.2f} alike in {one.n_items:,} "
                f"items, kappa {one.kappa:.2f}"
            )
    failed = int(controls(drawn, judgements)["is_failed"].sum())
    overall = table.filter(scope="flags").row(-1, named=True)
    facts = overall if as_json else {"judged": overall["n_judged"]}
    following = f"earmark relabel {work}"
    tell(as_json, next_command=following, wrote=path, failed_blocks=failed, **facts)


@review_app.command()
def relabel(
    work: Work,
    out: Annotated[str, typer.Option(help="Name of the corrected label set.")] = "corrected",
    drop_failed_blocks: DropFailed = False,
    as_json: AsJson = False,
) -> None:
    """Write the label set that the judgements make of the labels, every change with its origin."""
    from earmark.review.relabel import relabel as correct
    from earmark.review.relabel import write_relabelled

    workspace, drawn, judgements = _open_judged(work, drop_failed_blocks)
    relabelled = correct(workspace.labels, judgements, drawn)
    write_relabelled(workspace, out, relabelled, judgements)
    tell(
        as_json,
        next_command=f"earmark sweep {work} --labels {out}",
        wrote=workspace.relabelled_folder(out),
        **relabelled.n_by_outcome,
        conflicts=len(relabelled.conflicts),
    )


@judgements_app.command("export")
def export_judgements(
    work: Work,
    to: Annotated[Path, typer.Argument(help="CSV or Parquet file to write.", metavar="FILE")],
    only_current: Annotated[
        bool, typer.Option("--current", help="Leave out what was retracted or answered anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write all answers, retractions included, as a table."""
    from earmark.datasets.workspace import Workspace
    from earmark.review.judgement_files import write_judgements

    with open_store(Workspace.open(work), must_exist=True) as store:
        rows = store.current() if only_current else store.rows()
    write_judgements(to, rows)
    tell(as_json, wrote=to, rows=len(rows))


@judgements_app.command("import")
def import_judgements(
    work: Work,
    source: Annotated[
        Path, typer.Argument(help="CSV, Parquet, Label Studio's JSON export, or another store.")
    ],
    rater: Annotated[str, typer.Option(help="Where the file names none.")] = "imported",
    as_json: AsJson = False,
) -> None:
    """Add answers given elsewhere; what is there already is not added twice."""
    from earmark.datasets.workspace import Workspace
    from earmark.review.judgement_files import read_judgements, read_label_studio_answers

    workspace = Workspace.open(work)
    with open_store(workspace) as store:
        if source.suffix == ".sqlite":
            n_new = store.merge(source)
        elif source.suffix == ".json":
            n_new = store.add_all(read_label_studio_answers(source))
        else:
            n_new = store.add_all(read_judgements(source, datetime.now(UTC), rater))
    tell(as_json, next_command=f"earmark precision {work}", wrote=store.path, new=n_new)


def prepare_queue(
    workspace: Workspace, recipe: str | None = None, params: ReviewParams | None = None
) -> Queue:
    """Return the workspace's queue; draw one if there is none, or for other parameters.

    Without ``params`` a queue that is there is taken as it is.
    """
    from earmark.review.queue import make_queue, read_queue, write_queue
    from earmark.runs.artefacts import read_json
    from earmark.scores.alignment import scored_labels
    from earmark.training.teacher import score_held_out

    sealed = workspace.review_folder / "queue.json"
    if params is None and sealed.exists():
        return read_queue(workspace)
    wanted = params or ReviewParams()
    _, chosen, scores = open_scored(workspace.root, recipe)
    if wanted.held_out:
        scores = score_held_out(workspace, scores, chosen.cross_fit)
    labels = scored_labels(scores, workspace.labels)
    made_from = digest(labels.digest, scores.digest, wanted)
    if sealed.exists() and read_json(sealed).get("made_from") == made_from:
        return read_queue(workspace)
    drawn = make_queue(labels, scores.logits, workspace.ontology, wanted)
    write_queue(workspace, drawn, made_from)
    return drawn


def open_store(workspace: Workspace, *, must_exist: bool = False) -> JudgementStore:
    """Open the judgements of a workspace's review."""
    from earmark.review.judgements import JudgementStore

    return JudgementStore(workspace.judgements_path, must_exist=must_exist)


def split_names(names: str) -> tuple[str, ...]:
    """Split a list of names at its commas; AudioSet's names contain some, so use ; for those.

    >>> split_names("Bark; Male speech, man speaking"), split_names("Bark, Meow")
    (('Bark', 'Male speech, man speaking'), ('Bark', 'Meow'))
    """
    parts = names.split(";" if ";" in names else ",")
    return tuple(name.strip() for name in parts if name.strip())


def _rater_names(raters: str) -> tuple[str, ...]:
    """Return the raters asked for, or whoever is at the keyboard."""
    import getpass

    names = split_names(raters) or (getpass.getuser(),)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise EarmarkError(f"--raters: {twice[0]!r} is named twice; each needs a name of their own")
    return names


def _print_addresses(place: Place, tokens: Mapping[str, str]) -> None:
    """Print each rater's address, and who else could use it."""
    for token, rater in tokens.items():
        print(f"{rater}: {place.url(token)}")
    if not place.is_loopback:
        print(
            f"Listening on {place.host}: anyone in this network who has an address above can hear "
            "the clips and answer as that rater, and whoever reads the traffic, which is not "
            "encrypted, gets the address. Use it in networks that you trust."
        )


def _open_judged(work: Path, drop_failed_blocks: bool) -> tuple[Workspace, Queue, pl.DataFrame]:
    """Return the workspace, its queue and the current judgements."""
    from earmark.datasets.workspace import Workspace
    from earmark.review.flag_precision import without_failed_blocks
    from earmark.review.queue import read_queue

    workspace = Workspace.open(work)
    drawn = read_queue(workspace)
    with open_store(workspace, must_exist=True) as store:
        judgements = store.current()
    if drop_failed_blocks:
        judgements = without_failed_blocks(drawn, judgements)
    return workspace, drawn, judgements


def _print_precision(workspace: Workspace, table: pl.DataFrame) -> None:
    """Print the flags of every class that was listened to, and of all together."""
    shown = Table("class", "flags", "judged", "present", "not", "unsure", "precision", "interval")
    for row in table.filter(scope="flags").iter_rows(named=True):
        if not row["n_judged"]:
            continue
        counts = (
            row[f"n_{name}"] for name in ("labels", "judged", "present", "not_present", "unsure")
        )
        class_id = row["class_id"]
        shown.add_row(
            "all" if class_id is None else workspace.ontology.name(class_id),
            *(f"{n:,}" for n in counts),
            f"{row['precision_low']:.2f}-{row['precision_high']:.2f}",
            f"[{row['low']:.2f}, {row['high']:.2f}]",
        )
    Console().print(shown)
