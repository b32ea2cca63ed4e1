"""The verbs of a review: draw a queue, listen, measure precision, correct the labels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.judgements import judgements_app, raters_app
from earmark.cli.options import (
    AsJson,
    Details,
    RecipeOption,
    Work,
    chosen_engine,
    names,
    one_of,
    table_lines,
    tell,
)
from earmark.errors import counted, quoted

if TYPE_CHECKING:
    from earmark.labels import Ontology
    from earmark.review import Agreement, Mode
    from earmark.review.server.guard import Place
    from earmark.stages import HeardPrecision

review_app = typer.Typer()
review_app.add_typer(judgements_app, name="judgements")
review_app.add_typer(raters_app)

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

_COUNTED = ("class", "flags", "heard", "present", "not", "unsure")

_N_CLASSES_SHOWN = 5
"""Classes that are printed without ``--details``."""

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
    facts: dict[str, Any] = {"aim": drawn.queue.aim} if as_json else {}
    if drawn.n_candidates is None:
        facts["items"] = len(drawn.queue.items)
    else:
        facts["candidates"] = drawn.n_candidates
    if drawn.n_tasks is not None:
        facts["tasks"] = drawn.n_tasks
    has_sound = stages.open_workspace(work).has_sound()
    told = [_AIMS_TOLD[drawn.queue.aim].format(share=sample_share)]
    told += [] if has_sound else [_SOUNDLESS]
    if drawn.n_tasks is not None and drawn.queue.grows:
        told.append(_AHEAD.format(tasks=counted(drawn.n_tasks, "task")))
    heard_here = f"earmark review {quoted(work)}"
    following = heard_here if has_sound else f"earmark judgements import {quoted(work)} FILE"
    tell(as_json, following, told=told, **facts, wrote=drawn.path)


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
    before: Mapping[str, Any] | None = None,
) -> None:
    """Serve the listening page until it is interrupted; say where it is, and open it.

    ``before`` is what has to be said first: see :func:`~earmark.cli.options.tell`.
    """
    from earmark import stages

    answers = stages.open_workspace(work).judgements_path
    with ExitStack() as opened:

        def when_ready(place: Place, tokens: Mapping[str, str]) -> None:
            said = dict(before or {})
            said["told"] = [*said.get("told", ()), *_addresses_told(place, tokens)]
            tell(False, f"earmark precision {quoted(work)}", **said, answers=answers)
            sys.stdout.flush()
            if not no_open:
                leads = answers.with_name(f"open_page_{place.port}.html")
                opened.enter_context(_opened(place.url(next(iter(tokens))), leads))

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
def _opened(address: str, path: Path) -> Iterator[None]:
    """Open an address in the browser without a word of it in the list of processes.

    The browser is given a file that leads there, which nobody else may read; it goes at the end.
    """
    import webbrowser

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
    details: Details = False,
) -> None:
    """Say how many of the flags are right, by class and by band, with intervals."""
    from earmark import stages

    heard = stages.measure_precision(
        work, discard_percent=discard_percent, drop_failed_blocks=drop_failed_blocks
    )
    gains = None if heard.gains is None else heard.gains.to_dict()
    own = {"flags": heard.flags, "is_estimate": heard.is_estimate, "gains": gains}
    if as_json:
        facts: dict[str, Any] = heard.overall | own | {"failed_blocks": heard.n_failed_blocks}
    else:
        facts = _precision_told(stages.open_workspace(work).ontology, heard, details)
    verb = "relabel" if heard.overall["n_judged"] else "review"
    following = f"earmark {verb} {quoted(work)}"
    tell(as_json, following, details=details, wrote=heard.path, **facts)


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
    facts: dict[str, Any] = {
        **corrected.relabelled.n_by_outcome,
        "conflicts": len(corrected.relabelled.conflicts),
    }
    tell(as_json, following, **facts, wrote=corrected.folder)


def _addresses_told(place: Place, tokens: Mapping[str, str]) -> list[str]:
    """Say each rater's address, and who else could use it."""
    told = [f"{rater}: {place.url(token)}" for token, rater in tokens.items()]
    if not place.is_loopback:
        told.append(
            f"Listening on {place.host}: anyone in this network who has an address above can hear "
            "the clips and answer as that rater, and whoever reads the traffic, which is not "
            "encrypted, gets the address. Use it in networks that you trust."
        )
    return told


def _agreement_told(one: Agreement) -> str:
    """Say how often two series of answers agree, with kappa or why there is none."""
    who = f"{one.first} again" if one.kind == "repeats" else f"{one.first} and {one.second}"
    kappa = one.no_kappa or f"kappa {one.kappa:.2f}"
    return f"{one.kind}, {who}: {one.raw:.2f} alike in {counted(one.n_items, 'item')}, {kappa}"


def _precision_told(ontology: Ontology, heard: HeardPrecision, details: bool) -> dict[str, Any]:
    """Return how many flags are right, in all and of every class listened to, to be printed."""
    import polars as pl

    overall: dict[str, Any] = heard.overall
    if not overall["n_judged"]:
        n_others = heard.table.filter(scope="all")["n_judged"][-1]
        others = counted(n_others, "other label")
        return {"told": [f"None of the flags ({heard.flags}) was judged yet, but {others}."]}
    rows = heard.table.filter(pl.col("class_id").is_not_null(), scope="flags")
    judged = rows.filter(pl.col("n_judged") > 0).sort("n_judged", descending=True)
    # Where the likeliest were heard, what was heard is all that is spoken of: nothing is uncertain.
    columns = [*_COUNTED, *(("right", "95 % interval") if heard.is_estimate else ("present",))]
    cells = [_precision_cells(ontology, row, heard.is_estimate) for row in judged.to_dicts()]
    gains = heard.gains
    found = [] if gains is None else [f"{gains.told}.", *([gains.advice] if gains.advice else [])]
    failed = heard.n_failed_blocks
    more = [f"{counted(failed, 'block')} with a failed control"] if failed else []
    return {
        "told": [_all_told(overall, heard), *found],
        "table": table_lines(columns, cells, most=None if details else _N_CLASSES_SHOWN),
        "more": [*more, *map(_agreement_told, heard.agreements)],
    }


def _all_told(overall: Mapping[str, Any], heard: HeardPrecision) -> str:
    """Say in a sentence how many flags are right, and how sure that is."""
    from earmark.report import percent_text

    ends = (overall["precision_low"], overall["precision_high"])
    share = " to ".join(dict.fromkeys(percent_text(end) for end in ends))
    answers = counted(overall["n_judged"], "label heard", "labels heard")
    if not heard.is_estimate:
        return (
            f"Of {answers} ({heard.flags}), {share} are present. They were chosen, not drawn at "
            "random: no estimate for labels that were not heard."
        )
    low, high = (percent_text(overall[end]) for end in ("low", "high"))
    sure = f"95 % interval {low} to {high}"
    return f"{share} of the flags ({heard.flags}) are right ({sure}), by {answers}."


def _precision_cells(ontology: Ontology, row: dict[str, Any], is_estimate: bool) -> list[str]:
    names = ("n_labels", "n_judged", "n_present", "n_not_present", "n_unsure")
    counts = [f"{row[name]:,}" for name in names]
    share = _ends_told(row["precision_low"], row["precision_high"])
    ends = [f"{row['low']:.2f}-{row['high']:.2f}"] if is_estimate else []
    return [ontology.name(row["class_id"]), *counts, share, *ends]


def _ends_told(low: float, high: float) -> str:
    """Return a share, or what it is with unsure answers as wrong and as right."""
    ends = f"{low:.2f}", f"{high:.2f}"
    return ends[0] if ends[0] == ends[1] else "-".join(ends)
