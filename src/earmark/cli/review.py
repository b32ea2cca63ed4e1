"""The verbs of a review: draw a queue, listen, measure precision, correct the labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.options import AsJson, RecipeOption, Work, chosen_engine, names, one_of, say, tell
from earmark.errors import counted, quoted

if TYPE_CHECKING:
    from earmark.labels import Ontology
    from earmark.review import Agreement, Queue
    from earmark.review.server.guard import Place
    from earmark.stages import HeardPrecision

review_app = typer.Typer()
judgements_app = typer.Typer(help="Exchange raters' answers.", no_args_is_help=True)
review_app.add_typer(judgements_app, name="judgements")

Classes = Annotated[
    str, typer.Option("--classes", help="Names or identifiers, with commas; all with scores.")
]

DropFailed = Annotated[
    bool, typer.Option("--drop-failed-blocks", help="Leave out blocks with a failed control.")
]

_SOUNDLESS = (
    "sound: none, so `earmark review` cannot play these clips. Import the dataset with its sounds "
    "(--audio FOLDER; --sounds FOLDER of `earmark scan`), or have the queue heard elsewhere and "
    "bring the answers."
)


@review_app.command()
def queue(
    work: Work,
    classes: Classes = "",
    order: Annotated[
        str, typer.Option(help="random, to measure flags; likeliest, to find labels.")
    ] = "random",
    n_items: Annotated[
        int | None, typer.Option(min=1, help="Labels to hear; by blocks and classes.")
    ] = None,
    flags_per_block: Annotated[int, typer.Option(min=1, help="Labels in a block.")] = 25,
    blocks_per_class: Annotated[int, typer.Option(min=1)] = 4,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of blocks that all raters judge.")
    ] = 0.2,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Of the tune and eval splits alone.")
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
    """Draw the labels that raters will listen to, with blind controls among them."""
    from earmark import stages
    from earmark.runs import ReviewParams

    params = ReviewParams(
        classes=names(classes),
        order=one_of("--order", order, ("random", "likeliest")),
        n_items=n_items,
        flags_per_block=flags_per_block,
        blocks_per_class=blocks_per_class,
        overlap=overlap,
        held_out=held_out,
        seed=seed,
    )
    drawn = stages.draw_queue(
        work,
        recipe,
        params=params,
        label_studio=label_studio,
        document_root=document_root,
        engine=chosen_engine(None),
    )
    facts = {"items": len(drawn.queue.items), "blocks": drawn.n_blocks}
    if drawn.n_tasks is not None:
        facts["tasks"] = drawn.n_tasks
    has_sound = stages.open_workspace(work).has_sound()
    if not as_json:
        print(_order_told(drawn.queue))
        say([] if has_sound else [_SOUNDLESS])
    heard_here = f"earmark review {quoted(work)}"
    following = heard_here if has_sound else f"earmark judgements import {quoted(work)} FILE"
    tell(as_json, next_command=following, wrote=drawn.path, **facts)


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
    open_page(
        work,
        recipe,
        raters=names(raters),
        classes=names(classes),
        host=host,
        port=port,
        no_open=no_open,
    )


def open_page(
    work: Path,
    recipe: str | None = None,
    *,
    raters: tuple[str, ...] = (),
    classes: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    port: int,
    no_open: bool,
) -> None:
    """Serve the listening page until it is interrupted; say where it is, and open it."""
    import webbrowser

    from earmark import stages

    def when_ready(place: Place, tokens: Mapping[str, str]) -> None:
        _print_addresses(place, tokens)
        answers = stages.open_workspace(work).judgements_path
        print(f"answers: {answers}\nnext: earmark precision {quoted(work)}", flush=True)
        if not no_open:
            webbrowser.open(place.url(next(iter(tokens))))

    stages.serve_review(
        work,
        recipe,
        raters=raters,
        classes=classes,
        host=host,
        port=port,
        when_ready=when_ready,
    )


@review_app.command()
def precision(
    work: Work,
    discard_percent: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Labels up to this point; the flags that were written."),
    ] = None,
    drop_failed_blocks: DropFailed = False,
    as_json: AsJson = False,
) -> None:
    """Say how many of the flags are right, by class and by band, with intervals."""
    from earmark import stages

    heard = stages.measure_precision(
        work, discard_percent=discard_percent, drop_failed_blocks=drop_failed_blocks
    )
    if not as_json:
        _print_precision(stages.open_workspace(work).ontology, heard)
        for one in heard.agreements:
            print(_agreement_told(one))
    own = {"flags": heard.flags, "is_estimate": heard.is_estimate}
    facts = heard.overall | own if as_json else {"judged": heard.overall["n_judged"]}
    verb = "relabel" if heard.overall["n_judged"] else "review"
    following = f"earmark {verb} {quoted(work)}"
    failed = heard.n_failed_blocks
    tell(as_json, next_command=following, wrote=heard.path, failed_blocks=failed, **facts)


@review_app.command()
def relabel(
    work: Work,
    out: Annotated[str, typer.Option(help="Name of the corrected label set.")] = "corrected",
    drop_failed_blocks: DropFailed = False,
    as_json: AsJson = False,
) -> None:
    """Write the label set that the judgements make of the labels, every change with its origin."""
    from earmark import stages

    corrected = stages.correct_labels(work, out, drop_failed_blocks=drop_failed_blocks)
    verb = "sweep" if stages.open_workspace(work).has_held_out() else "flag"
    following = f"earmark {verb} {quoted(work)} --labels {quoted(out)}"
    tell(
        as_json,
        next_command=following,
        wrote=corrected.folder,
        **corrected.relabelled.n_by_outcome,
        conflicts=len(corrected.relabelled.conflicts),
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
    from earmark import stages

    n_rows = stages.export_judgements(work, to, only_current=only_current)
    tell(as_json, wrote=to, rows=n_rows)


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
    from earmark import stages

    n_new = stages.import_judgements(work, source, rater)
    store = stages.open_workspace(work).judgements_path
    tell(as_json, next_command=f"earmark precision {quoted(work)}", wrote=store, new=n_new)


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


def _order_told(queue: Queue) -> str:
    """Say in which order the labels of a queue come, and what that is good for."""
    if queue.order == "random":
        return "order: random, so what is heard tells of all flags"
    by_rank = f" ({queue.n_by_rank:,} without a chance by rank)" if queue.n_by_rank else ""
    return f"order: likeliest first{by_rank}; to find labels, not to measure flags"


def _agreement_told(one: Agreement) -> str:
    """Say how often two series of answers agree, with kappa or why there is none."""
    who = f"{one.first} again" if one.kind == "repeats" else f"{one.first} and {one.second}"
    kappa = one.no_kappa or f"kappa {one.kappa:.2f}"
    return f"{one.kind}, {who}: {one.raw:.2f} alike in {counted(one.n_items, 'item')}, {kappa}"


def _print_precision(ontology: Ontology, heard: HeardPrecision) -> None:
    """Print the flags of every class that was listened to, and of all together."""
    print(f"flags: {heard.flags}" if heard.is_estimate else f"Only of {heard.flags}:")
    if not heard.overall["n_judged"]:
        n_others = heard.table.filter(scope="all")["n_judged"][-1]
        print(f"None of them was judged yet, but {counted(n_others, 'other label')}.")
        return
    columns = ["class", "flags", "judged", "present", "not", "unsure", "precision", "interval"]
    if not heard.is_estimate:  # what was heard is all that is spoken of, so nothing is uncertain
        columns = ["class", "judged", "present", "not", "unsure", "share present"]
    shown = Table(*columns)
    for row in heard.table.filter(scope="flags").iter_rows(named=True):
        if not row["n_judged"]:
            continue
        class_id = row["class_id"]
        low, high = (f"{row[name]:.2f}" for name in ("precision_low", "precision_high"))
        cells = {
            "class": "all" if class_id is None else ontology.name(class_id),
            "flags": f"{row['n_labels']:,}",
            "judged": f"{row['n_judged']:,}",
            "present": f"{row['n_present']:,}",
            "not": f"{row['n_not_present']:,}",
            "unsure": f"{row['n_unsure']:,}",
            "precision": low if low == high else f"{low}-{high}",
            "share present": low if low == high else f"{low}-{high}",
            "interval": f"{row['low']:.2f}-{row['high']:.2f}",
        }
        shown.add_row(*(cells[name] for name in columns))
    Console().print(shown)
    if not heard.is_estimate:
        print("They were not drawn at random: this is no estimate for flags that were not heard.")
