"""The verbs of a review: draw a queue, listen, measure precision, correct the labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.judgements import judgements_app
from earmark.cli.options import AsJson, RecipeOption, Work, chosen_engine, names, one_of, say, tell
from earmark.errors import counted, quoted

if TYPE_CHECKING:
    from earmark.labels import Ontology
    from earmark.review import Agreement, Mode, WeighedRaters
    from earmark.review.server.guard import Place
    from earmark.stages import HeardPrecision

review_app = typer.Typer()
review_app.add_typer(judgements_app, name="judgements")

Classes = Annotated[
    str, typer.Option("--classes", help="Names or identifiers, with commas; all with scores.")
]

DropFailed = Annotated[
    bool, typer.Option("--drop-failed-blocks", help="Leave out blocks with a failed control.")
]

_AIMS_TOLD = {
    "find": "aim: find. The likeliest labels come first, and every few answers teach what is "
    "likely; {share:.0%} of every block is a random sample, which tells how many are missing.",
    "train": "aim: train. As to find, rare classes before common ones; {share:.0%} of every block "
    "is a random sample.",
    "measure": "aim: measure. A random sample of every class and band: what is heard tells of all.",
    "adjudicate": "aim: adjudicate. Labels about which raters are at odds; one answer decides.",
}

_RATED = ("sensitivity", "specificity")

_N_RATERS_SHOWN, _N_DOUBTS_SHOWN = 8, 3

_NOT_COMPARED = (
    "Nothing can be said of how good these raters are: no label was heard by two of them, and no "
    "control by one. Let two raters hear the same blocks: `earmark review WORK --raters ann,bob`."
)

_SOUNDLESS = (
    "sound: none, so `earmark review` cannot play these clips. Import the dataset with its sounds "
    "(--audio FOLDER; --sounds FOLDER of `earmark scan`), or have the queue heard elsewhere and "
    "bring the answers."
)


_AHEAD = (
    "{tasks}: the next blocks only, because a queue that learns has no end. Bring the answers "
    "(`earmark judgements import WORK EXPORT`), and the same command writes the blocks that follow "
    "from them. --n-items says how many labels."
)


@review_app.command()
def queue(
    work: Work,
    classes: Classes = "",
    aim: Annotated[
        str,
        typer.Option(help="find most, measure flags and counts, or find for those who train."),
    ] = "find",
    adjudicate: Annotated[
        bool, typer.Option("--adjudicate", help="Labels about which raters are at odds.")
    ] = False,
    n_items: Annotated[int | None, typer.Option(min=1, help="Labels to hear; no end.")] = None,
    sample_share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of a random sample in every block.")
    ] = 0.12,
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
        aim=one_of("--aim", aim, ("find", "measure", "train")),
        n_items=n_items,
        sample_share=sample_share,
        flags_per_block=flags_per_block,
        blocks_per_class=blocks_per_class,
        overlap=overlap,
        held_out=held_out,
        seed=seed,
    )
    if adjudicate:
        drawn = stages.draw_adjudication(
            work, recipe, n_items=n_items, flags_per_block=flags_per_block
        )
    else:
        drawn = stages.draw_queue(
            work,
            recipe,
            params=params,
            label_studio=label_studio,
            document_root=document_root,
            engine=chosen_engine(None),
        )
    facts: dict[str, Any] = {"aim": drawn.queue.aim}
    if drawn.n_candidates is None:
        facts["items"] = len(drawn.queue.items)
    else:
        facts["candidates"] = drawn.n_candidates
    if drawn.n_tasks is not None:
        facts["tasks"] = drawn.n_tasks
    has_sound = stages.open_workspace(work).has_sound()
    if not as_json:
        say([_AIMS_TOLD[drawn.queue.aim].format(share=sample_share)])
        say([] if has_sound else [_SOUNDLESS])
        is_ahead = drawn.n_tasks is not None and drawn.queue.grows
        say([_AHEAD.format(tasks=counted(drawn.n_tasks or 0, "task"))] if is_ahead else [])
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
    clips: Annotated[
        bool, typer.Option("--clips", help="Hear whole clips, all likely labels of each at once.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    recipe: RecipeOption = None,
) -> None:
    """Listen to flags on a local page and judge them, one key each."""
    open_page(
        work,
        recipe,
        raters=names(raters),
        classes=names(classes),
        mode="clip" if clips else "class",
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
    mode: Mode = "class",
    host: str = "127.0.0.1",
    port: int,
    no_open: bool,
) -> None:
    """Serve the listening page until it is interrupted; say where it is, and open it."""
    from earmark import stages

    answers = stages.open_workspace(work).judgements_path
    with ExitStack() as opened:

        def when_ready(place: Place, tokens: Mapping[str, str]) -> None:
            _print_addresses(place, tokens)
            print(f"answers: {answers}\nnext: earmark precision {quoted(work)}", flush=True)
            if not no_open:
                opened.enter_context(_opened(place.url(next(iter(tokens))), answers.parent))

        n_answers = stages.serve_review(
            work,
            recipe,
            raters=raters,
            classes=classes,
            mode=mode,
            host=host,
            port=port,
            when_ready=when_ready,
        )
    print(f"\nStopped; {counted(n_answers, 'answer')} {'is' if n_answers == 1 else 'are'} kept.")


@contextmanager
def _opened(address: str, folder: Path) -> Iterator[None]:
    """Open an address in the browser without a word of it in the list of processes.

    The browser is given a file that leads there, which nobody else may read; it goes at the end.
    """
    import webbrowser

    path = folder / "open_page.html"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
    try:
        webbrowser.open(path.absolute().as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)


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
    gains = None if heard.gains is None else heard.gains.to_dict()
    own = {"flags": heard.flags, "is_estimate": heard.is_estimate, "gains": gains}
    facts = heard.overall | own if as_json else {"judged": heard.overall["n_judged"]}
    verb = "relabel" if heard.overall["n_judged"] else "review"
    following = f"earmark {verb} {quoted(work)}"
    failed = heard.n_failed_blocks
    tell(as_json, next_command=following, wrote=heard.path, failed_blocks=failed, **facts)


@review_app.command()
def raters(
    work: Work,
    with_teacher: Annotated[
        bool, typer.Option("--with-teacher", help="Let the teacher vote on labels, too.")
    ] = False,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Say how good each rater is, by one another and by the controls, with intervals."""
    from earmark import stages

    heard = stages.weigh_raters(work, recipe, with_teacher=with_teacher)
    weighed = heard.weighed
    facts: dict[str, Any] = {"labels": len(weighed.labels), "disputed": len(weighed.disputed)}
    if as_json:
        teacher = None if weighed.teacher is None else weighed.teacher.to_dicts()
        facts |= {"raters": weighed.raters.to_dicts(), "teacher": teacher}
    else:
        _print_raters(weighed)
    decide = f"earmark queue {quoted(work)} --adjudicate"
    tell(
        as_json,
        next_command=decide if facts["disputed"] else f"earmark relabel {quoted(work)}",
        wrote=heard.raters_path,
        chances=heard.labels_path,
        **facts,
    )


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


def _agreement_told(one: Agreement) -> str:
    """Say how often two series of answers agree, with kappa or why there is none."""
    who = f"{one.first} again" if one.kind == "repeats" else f"{one.first} and {one.second}"
    kappa = one.no_kappa or f"kappa {one.kappa:.2f}"
    return f"{one.kind}, {who}: {one.raw:.2f} alike in {counted(one.n_items, 'item')}, {kappa}"


def _print_raters(weighed: WeighedRaters) -> None:
    """Print the raters with most answers, in lines that fit a terminal, and what is doubtful."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("rater", no_wrap=True, max_width=12)
    for name in ("heard", "compared", "alike", *_RATED, "unsure"):
        shown.add_column(name, no_wrap=True)
    ordered = weighed.raters.sort("n_labels", "rater", descending=[True, False])
    rows = ordered.to_dicts()[:_N_RATERS_SHOWN]
    for row in rows:
        counts = (f"{row[name]:,}" for name in ("n_labels", "n_compared"))
        alike = "-" if row["alike"] is None else f"{row['alike']:.2f}"
        rated = (_share_told(row, name) for name in _RATED)
        shown.add_row(row["rater"], *counts, alike, *rated, f"{row['unsure']:.2f}")
    Console(width=80).print(shown)
    if len(ordered) > len(rows):
        print(f"and {counted(len(ordered) - len(rows), 'rater')} more")
    if not weighed.raters["n_compared"].sum():
        say([_NOT_COMPARED])
    else:
        say([f"{row['rater']}: {row['doubt']}" for row in rows if row["doubt"]][:_N_DOUBTS_SHOWN])
    say([] if weighed.teacher is None else [_teacher_told(weighed.teacher["odds"].to_list())])


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
        print("Chosen, not drawn at random: no estimate for labels that were not heard.")
    if heard.gains is not None:
        say([f"{heard.gains.told}.", *([heard.gains.advice] if heard.gains.advice else [])])
