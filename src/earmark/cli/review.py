"""The verbs of a review: listen, see what the answers tell, correct the labels."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, Details, offers, one_of
from earmark.cli.printing import table_lines, tell
from earmark.errors import EarmarkError, counted, quoted

if TYPE_CHECKING:
    from earmark.labels import Ontology
    from earmark.pipeline import AnswerSummary, DrawnQueue, HeardPrecision
    from earmark.review import Agreement, Mode, WeighedRaters
    from earmark.review.server.app import Place

_AIMS_TOLD = {
    "find": "aim: find. The likeliest labels come first, and every few answers teach what is "
    "likely; {share:.0%} of every block is a random sample, which tells how many are missing.",
    "train": "aim: train. As to find, rare classes before common ones; {share:.0%} of every block "
    "is a random sample.",
    "measure": "aim: measure. A random sample of every class and band: what is heard tells of all.",
    "adjudicate": "aim: adjudicate. Labels about which raters are at odds; one answer decides.",
}

_RATED = ("sensitivity", "specificity")

_NOT_COMPARED = (
    "Nothing can be said of how good these raters are: no label was heard by two of them, and no "
    "control by one. Let two raters hear the same blocks: `earmark review WORK --raters ann,bob`."
)

_N_RATERS_SHOWN = 5
"""Raters that are printed without ``--details``."""

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
    "(`earmark answers WORK --import EXPORT`), and the same command writes the blocks that follow "
    "from them. --n-items says how many labels."
)


@offers("pipeline.draw_queue", "pipeline.serve_review")
def review(
    call: Call,
    clips: Annotated[
        bool, typer.Option("--clips", help="Hear whole clips, all likely labels of each at once.")
    ] = False,
    aim: Annotated[
        str | None,
        typer.Option(
            help="Draw a queue to find most, to measure flags and counts, to find for those who "
            "train, or to adjudicate where raters are at odds; find."
        ),
    ] = None,
    write_only: Annotated[
        bool, typer.Option("--write-only", help="Draw the queue, and open no page.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Listen to flags on a local page and answer with one key each.

    An existing queue is continued. Options of a queue, and --write-only, draw a new one.
    """
    from earmark.config import ReviewParams

    one_of("--aim", aim, ("find", "measure", "train", "adjudicate"))
    work, recipe = call["work"], call["recipe"]
    is_page = not write_only and call["label_studio"] is None
    if is_page and as_json:
        raise EarmarkError("a page has no JSON: --json goes with --write-only")
    before: dict[str, Any] = {}
    if call.given("params") - {"classes"} or not is_page:
        share = call["sample_share"] or ReviewParams().sample_share
        before = _drawn_lines(work, _draw(call, aim), share, as_json)
    if is_page:
        before.pop("wrote", None)
        open_page(
            work,
            recipe,
            raters=call["raters"],
            classes=call["classes"] or (),
            mode="clip" if clips else "class",
            host=call["host"],
            port=call["port"],
            no_open=no_open,
            before=before,
        )
        return
    has_sound = _has_sound(work)
    heard_here = f"earmark review {quoted(work)}"
    following = heard_here if has_sound else f"earmark answers {quoted(work)} --import FILE"
    tell(as_json, following, **before)


def _draw(call: Call, aim: str | None) -> DrawnQueue:
    from earmark import pipeline
    from earmark.config import ReviewParams

    if aim != "adjudicate":
        more: dict[str, Any] = {} if call.given("params") else {"params": ReviewParams()}
        drawn: DrawnQueue = call("draw_queue", "", **more)
        return drawn
    sizes = {"n_items", "flags_per_block"}
    if call.given("params") - {"aim", *sizes} or call["label_studio"] is not None:
        raise EarmarkError(
            "--aim adjudicate takes --n-items and --flags-per-block, and no other option of a queue"
        )
    asked = {name: call[name] for name in sizes & call.given("params")}
    return pipeline.draw_adjudication(call["work"], call["recipe"], **asked)


def _drawn_lines(work: Path, drawn: DrawnQueue, share: float, as_json: bool) -> dict[str, Any]:
    """Return what was drawn, to be printed, or for programs."""
    facts: dict[str, Any] = {"aim": drawn.queue.aim} if as_json else {}
    if drawn.n_candidates is None:
        facts["items"] = len(drawn.queue.items)
    else:
        facts["candidates"] = drawn.n_candidates
    if drawn.n_tasks is not None:
        facts["tasks"] = drawn.n_tasks
    told = [_AIMS_TOLD[drawn.queue.aim].format(share=share)]
    told += [] if _has_sound(work) else [_SOUNDLESS]
    if drawn.n_tasks is not None and drawn.queue.grows:
        told.append(_AHEAD.format(tasks=counted(drawn.n_tasks, "task")))
    return {"told": told, **facts, "wrote": drawn.path}


def _has_sound(work: Path) -> bool:
    from earmark import pipeline

    return pipeline.open_workspace(work).has_sound()


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

    ``before`` is what has to be said first: see :func:`~earmark.cli.printing.tell`.
    """
    from earmark import pipeline

    answers = pipeline.open_workspace(work).judgements_path
    with ExitStack() as opened:

        def when_ready(place: Place, tokens: Mapping[str, str]) -> None:
            said = dict(before or {})
            addresses = [f"{rater}: {place.url(token)}" for token, rater in tokens.items()]
            if not sys.stdout.isatty():  # others may read where it goes
                path = answers.with_name(f"addresses_{place.port}.txt")
                opened.enter_context(_private_file(path, "\n".join(addresses) + "\n"))
                addresses = []
                said["addresses"] = path
            said["told"] = [*said.get("told", ()), *addresses, *_network_warning(place)]
            tell(False, f"earmark answers {quoted(work)}", **said, answers=answers)
            sys.stdout.flush()
            if not no_open:
                leads = answers.with_name(f"open_page_{place.port}.html")
                opened.enter_context(_opened(place.url(next(iter(tokens))), leads))

        n_answers, ended_by = pipeline.serve_review(
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
    if ended_by is not None:
        signal.raise_signal(ended_by)  # for the exit code


@contextmanager
def _opened(address: str, path: Path) -> Iterator[None]:
    """Open an address in the browser without a word of it in the list of processes.

    The browser is given a file that leads there, which nobody else may read; it goes at the end.
    """
    import webbrowser

    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n'
    with _private_file(path, page):
        webbrowser.open(path.absolute().as_uri())
        yield


@contextmanager
def _private_file(path: Path, text: str) -> Iterator[None]:
    """Keep a file that nobody else may read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@offers("pipeline.summarize_answers", "pipeline.import_judgements", "pipeline.export_judgements")
def answers(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Summarise answers: missing labels, flags, agreement of raters; import, export."""
    from earmark import pipeline

    work, source, path = call["work"], call["source"], call["path"]
    if source is not None and path is not None:
        raise EarmarkError("--import FILE or --export FILE: give one of them")
    if source is not None:
        n_new = call("import_judgements", because="--import")
        store = pipeline.open_workspace(work).judgements_path
        tell(as_json, next_command=f"earmark answers {quoted(work)}", new=n_new, wrote=store)
    elif path is not None:
        tell(as_json, rows=call("export_judgements", because="--export"), wrote=path)
    else:
        known = call("summarize_answers", because="what answers tell: give --import or --export")
        _tell_answers(work, known, as_json, details)


@offers("pipeline.correct_labels")
def relabel(call: Call, as_json: AsJson = False) -> None:
    """Write corrected labels from answers, every change with its origin."""
    from earmark import pipeline

    corrected, work, out = call(), call["work"], call["name"]
    verb = "sweep" if pipeline.open_workspace(work).has_held_out() else "flag"
    following = f"earmark {verb} {quoted(work)} --labels {quoted(out)}"
    facts: dict[str, Any] = {
        **corrected.relabelled.n_by_outcome,
        "conflicts": len(corrected.relabelled.conflicts),
    }
    tell(as_json, following, **facts, wrote=corrected.folder)


def _network_warning(place: Place) -> list[str]:
    """Say who else could use the addresses."""
    if place.is_loopback:
        return []
    return [
        f"Listening on {place.host}: anyone in this network who has a rater's address can hear "
        "the clips and answer as that rater, and whoever reads the traffic, which is not "
        "encrypted, gets the address. Use it in networks that you trust."
    ]


def _agreement_told(one: Agreement) -> str:
    """Say how often two series of answers agree, with kappa or why there is none."""
    who = f"{one.first} again" if one.kind == "repeats" else f"{one.first} and {one.second}"
    kappa = one.no_kappa or f"kappa {one.kappa:.2f}"
    return f"{one.kind}, {who}: {one.raw:.2f} alike in {counted(one.n_items, 'item')}, {kappa}"


def _precision_told(ontology: Ontology, heard: HeardPrecision, details: bool) -> dict[str, Any]:
    """Return what was heard of every class's flags, to be printed."""
    import polars as pl

    rows = heard.table.filter(pl.col("class_id").is_not_null(), scope="flags")
    judged = rows.filter(pl.col("n_judged") > 0).sort("n_judged", descending=True)
    # Where the likeliest were heard, what was heard is all that is spoken of: nothing is uncertain.
    columns = [*_COUNTED, *(("right", "95 % interval") if heard.is_estimate else ("present",))]
    cells = [_precision_cells(ontology, row, heard.is_estimate) for row in judged.to_dicts()]
    failed = heard.n_failed_blocks
    more = [f"{counted(failed, 'block')} with a failed control"] if failed else []
    return {
        "told": [_describe_sample(heard)] if heard.is_estimate and cells else [],
        "table": table_lines(columns, cells, most=None if details else _N_CLASSES_SHOWN)
        if cells
        else [],
        "more": [*more, *map(_agreement_told, heard.agreements)],
    }


def _describe_sample(heard: HeardPrecision) -> str:
    """Say in a sentence how many of the flags asked about are right, and how sure that is."""
    from earmark.report import percent_text

    overall: dict[str, Any] = heard.overall
    ends = (overall["precision_low"], overall["precision_high"])
    share = " to ".join(dict.fromkeys(percent_text(end) for end in ends))
    low, high = (percent_text(overall[end]) for end in ("low", "high"))
    n_classes = len(heard.table.filter(scope="flags")) - 1
    return (
        f"Of {counted(overall['n_labels'], 'flag')} asked about in "
        f"{counted(n_classes, 'class', 'classes')} ({heard.flags}), {share} are right (95 % "
        f"interval {low} to {high}), by {counted(overall['n_judged'], 'random answer')}."
    )


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


def _tell_answers(work: Path, known: AnswerSummary, as_json: bool, details: bool) -> None:
    """Print what is known of the missing labels, and how good the raters are."""
    from earmark import pipeline

    heard, weighed = known.precision, known.raters.weighed
    is_judged = heard is None or bool(heard.overall["n_judged"])
    verb = "relabel" if is_judged else "review"
    following = f"earmark {verb} {quoted(work)}"
    if len(weighed.disputed):
        following = f"earmark review {quoted(work)} --aim adjudicate"
        following += "" if _has_sound(work) else " --write-only"
    facts: dict[str, Any] = {"labels": len(weighed.labels), "disputed": len(weighed.disputed)}
    if as_json:
        facts["missing"] = None if known.estimates is None else known.estimates.facts()
        facts["raters"] = weighed.raters.to_dicts()
        facts["teacher"] = None if weighed.teacher is None else weighed.teacher.to_dicts()
        facts["raters_file"] = known.raters.raters_path
        facts["labels_file"] = known.raters.labels_path
        facts["gains"] = None if known.gains is None else known.gains.to_dict()
        if heard is not None:
            facts |= heard.overall | {"flags": heard.flags, "is_estimate": heard.is_estimate}
            facts |= {"failed_blocks": heard.n_failed_blocks, "wrote": heard.path}
        tell(True, following, **facts)
        return
    lines: dict[str, Any] = {"told": []}
    if heard is not None:
        lines = _precision_told(pipeline.open_workspace(work).ontology, heard, details)
    lines["told"] = [*_estimates_told(known), *lines["told"]]
    if len(weighed.disputed):
        n_labels = counted(len(weighed.labels), "label")
        lines["told"].append(f"In dispute: {len(weighed.disputed):,} of {n_labels} heard.")
    if heard is None or details:
        most = None if details else _N_RATERS_SHOWN
        lines["table"] = [*lines.get("table", ()), *_raters_table(weighed, most)]
    more = [*lines.pop("more", ()), *_raters_told(weighed)]
    wrote = known.raters.raters_path.parent
    tell(False, following, details=details, more=more, **lines, wrote=wrote)


def _estimates_told(known: AnswerSummary) -> list[str]:
    """Say what is known of the missing labels, and what more answers would find."""
    if known.estimates is None:
        return [f"What the answers say of missing labels is not known: {known.unknown}"]
    if known.gains is None:
        return [known.estimates.describe()]
    advice = known.gains.advice
    return [known.gains.describe(), *([advice] if advice else [])]


def _raters_table(weighed: WeighedRaters, most: int | None) -> list[str]:
    """Return how good each rater is, those with most answers first."""
    columns = ["rater", "heard", "compared", "alike", *_RATED, "unsure"]
    rows = [
        [
            row["rater"],
            *(f"{row[name]:,}" for name in ("n_labels", "n_compared")),
            "-" if row["alike"] is None else f"{row['alike']:.2f}",
            *(_share_told(row, name) for name in _RATED),
            f"{row['unsure']:.2f}",
        ]
        for row in _by_answers(weighed)
    ]
    return table_lines(columns, rows, most=most)


def _by_answers(weighed: WeighedRaters) -> list[dict[str, Any]]:
    return weighed.raters.sort("n_labels", "rater", descending=[True, False]).to_dicts()


def _raters_told(weighed: WeighedRaters) -> list[str]:
    """Say what the teacher's vote is worth, and what is doubtful of raters."""
    doubts = [f"{row['rater']}: {row['doubt']}" for row in _by_answers(weighed) if row["doubt"]]
    if not weighed.raters["n_compared"].sum():
        doubts = [_NOT_COMPARED]
    teacher = weighed.teacher
    vote = [] if teacher is None else [_teacher_told(teacher["odds"].to_list())]
    return [*vote, *doubts]


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
