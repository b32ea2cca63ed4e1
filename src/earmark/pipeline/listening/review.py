"""Listening: draw a queue, serve the page, measure precision, correct labels, exchange answers."""

from __future__ import annotations

import getpass
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl

from earmark.compute import Progress, shown
from earmark.datasets import Relabelled, Workspace, is_label_studio, stamp_path, write_stamp
from earmark.errors import EarmarkError, EarmarkWarning, counted, quoted, short_repr
from earmark.flags import MissingEstimates
from earmark.options import Option, read_names
from earmark.pipeline.listening.queue import draw_queue, open_judgements, open_queue
from earmark.pipeline.opening import RecipeLike, WorkLike, choose_recipe, open_workspace
from earmark.review import (
    Agreement,
    Gains,
    JudgementStore,
    Mode,
    QueueSnapshot,
    ReviewQueue,
    Scope,
    SelectionFormat,
    advise_change,
    agreement,
    controls,
    export_selections,
    find_gains,
    flags_asked,
    import_selections,
    judged_labels,
    learn_from,
    open_drawn,
    params_of,
    precision_table,
    read_judgements,
    read_label_studio_answers,
    read_population,
    read_queue,
    relabel,
    selection_format,
    without_failed_blocks,
    write_judgements,
    write_relabelled,
)
from earmark.review.server import check_server
from earmark.storage import write_table, writes, writing_in

if TYPE_CHECKING:
    from earmark.review.server.app import Place


SelectionsAs = Annotated[
    SelectionFormat | None,
    Option("raven, audacity, dcase; else a table, or told by content.", "--format"),
]


@dataclass(frozen=True)
class HeardPrecision:
    """How many of the flags are right by what raters heard, by class and by band."""

    path: Path
    table: pl.DataFrame
    agreements: tuple[Agreement, ...]
    n_failed_blocks: int
    flags: str
    """Which labels the table calls flags, in words."""
    is_estimate: bool = True
    """Whether the labels heard are a sample of every class's flags, or speak for themselves."""

    __repr__ = short_repr

    @property
    def overall(self) -> dict[str, object]:
        """The row of all flags together."""
        return self.table.filter(scope="flags").row(-1, named=True)


@dataclass(frozen=True)
class CorrectedLabels:
    """A label set corrected by judgements, and its folder."""

    folder: Path
    relabelled: Relabelled

    __repr__ = short_repr


def serve_review(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    raters: Annotated[
        Sequence[str], Option("Names with commas; you, by default.", read=read_names)
    ] = (),
    classes: Annotated[
        Sequence[str],
        Option("Names or identifiers, with commas; all with scores.", read=read_names),
    ] = (),
    mode: Mode = "class",
    host: Annotated[str, Option("Whose network may reach the page.")] = "127.0.0.1",
    port: Annotated[int, Option("0 takes any free one.", low=0, high=65_535)] = 8321,
    when_ready: Callable[[Place, Mapping[str, str]], None] | None = None,
    progress: Progress | None = None,
) -> tuple[int, signal.Signals | None]:
    """Serve the listening page; return how many answers there are at its end, and what ended it.

    Ctrl-C and SIGTERM end it. In a thread that is not the main one it does not catch them.

    With ``classes`` only these are asked about. In the ``mode`` clip, whole clips are heard and all
    likely labels of each are answered at once.
    ``when_ready`` is told the page's place and the raters' tokens, once they can listen; port 0
    takes any free one. Without names the rater is whoever runs this.
    """
    check_server()
    from earmark.review.server.app import Place, make_app, make_server, make_tokens, open_socket
    from earmark.review.server.session import open_review_session

    workspace = open_workspace(work)
    _check_sound(workspace)
    chosen = choose_recipe(workspace, recipe)
    names = _rater_names(raters)
    draw_queue(workspace)
    with (
        open_judgements(workspace) as store,
        open_socket(host, port) as listener,
        open_queue(workspace, store, names, mode, classes) as queue,
    ):
        if not raters:
            _warn_of_other_raters(workspace, queue, store, names[0])
        with shown(progress) as display:
            session = open_review_session(workspace, chosen, queue, display)
        place, tokens = Place(host, listener.getsockname()[1]), make_tokens(names)
        server = make_server(make_app(session, tokens, place))
        with _caught_signals(server) as caught:
            if when_ready is not None:
                when_ready(place, tokens)
            server.run(sockets=[listener])
        return len(store.current()), caught[0] if caught else None


def measure_precision(
    work: WorkLike,
    *,
    discard_percent: float | None = None,
    drop_failed_blocks: bool = False,
    is_written: bool = True,
) -> HeardPrecision:
    """Say how many of the flags are right, by class and by band, with intervals.

    The table is written to the workspace, unless ``is_written`` is False.

    Of the labels up to ``discard_percent``; by default of the flags that were written, or of all
    bands where there are none: the same that the listening page sums up. Of a queue that learns the
    table speaks of the labels heard alone.
    """
    workspace, queue, judgements = _open_judged(work, drop_failed_blocks)
    scope = flags_asked(workspace, queue)
    if discard_percent is not None:
        _check_sample(workspace, queue)
        scope = Scope.up_to(discard_percent)
    table = precision_table(queue, judgements, scope)
    if not table["n_judged"].sum() and not drop_failed_blocks:
        raise EarmarkError(
            f"{workspace.root}: none of {counted(len(judgements), 'answer')} is about a label of "
            f"the queue; listen with `earmark review {quoted(workspace.root)}`"
        )
    path = workspace.precision_path
    if is_written:
        with writing_in(workspace, "answers"):
            write_table(path, table, for_people=True)
            write_stamp(workspace, stamp_path(path))
    return HeardPrecision(
        path,
        table,
        tuple(agreement(queue, judgements)),
        int(controls(queue, judgements)["is_failed"].sum()),
        scope.told,
        queue.aim == "measure",
    )


@writes("relabel")
def correct_labels(
    work: WorkLike,
    name: Annotated[str, Option("Name of the corrected label set.", "--out")] = "corrected",
    *,
    drop_failed_blocks: Annotated[bool, Option("Leave out blocks with a failed control.")] = False,
) -> CorrectedLabels:
    """Write the label set that the judgements make of the labels, every change with its origin.

    Answers about clips and classes that the dataset no longer has are kept, and left out here.
    """
    workspace, queue, judgements = _open_judged(work, drop_failed_blocks)
    judgements = still_there(workspace, judgements)
    relabelled = relabel(workspace.labels, judgements, queue)
    is_idle = relabelled.changes.is_empty() and relabelled.conflicts.is_empty()
    if is_idle and not drop_failed_blocks:
        raise EarmarkError(
            f"{workspace.root}: nothing changes by {counted(len(judgements), 'answer')}: none is "
            "about a label "
            f"that nobody was asked about; listen with `earmark review {quoted(workspace.root)}`"
        )
    write_relabelled(workspace, name, relabelled, judgements)
    return CorrectedLabels(workspace.relabelled_folder(name), relabelled)


def export_judgements(
    work: WorkLike,
    path: Annotated[
        str | Path,
        Option("Write all answers here; a folder of Audacity's.", "--export", default=None),
    ],
    *,
    only_current: Annotated[
        bool, Option("export: leave out what was retracted or answered anew.", "--current")
    ] = False,
    selections: SelectionsAs = None,
) -> int:
    """Write all answers as a table, retractions included unless ``only_current``; return rows.

    With a format of ``selections`` it is written for Raven, Audacity, DCASE's tools or whombat
    where classes are heard: the labels that current answers call present, with times of the file.
    """
    workspace = open_workspace(work)
    with open_judgements(workspace, must_exist=True) as store:
        rows = store.current() if only_current or selections else store.rows()
    if selections is not None:
        known = still_there(workspace, rows)
        return export_selections(workspace, choose_recipe(workspace), known, path, selections)
    write_judgements(Path(path), rows)
    return len(rows)


def import_judgements(
    work: WorkLike,
    source: Annotated[
        str | Path,
        Option(
            "Add answers given elsewhere: CSV, Parquet, Label Studio's JSON, another store, or "
            "selections: Raven's table, Audacity's labels, DCASE's TSV.",
            "--import",
            default=None,
        ),
    ],
    rater: Annotated[str, Option("import: where the file names none.")] = "imported",
    selections: SelectionsAs = None,
) -> int:
    """Add answers given elsewhere; return how many were new.

    The source is a table, Label Studio's JSON export, another store, or a file or folder of
    ``selections``, whose format is told by what is in it; ``rater`` names who answered where it
    does not.
    """
    source, workspace = Path(source), open_workspace(work)
    with open_judgements(workspace) as store:
        if source.suffix == ".sqlite":
            return store.merge(source)
        is_exported = is_label_studio(source) and selections is None
        if is_exported and selection_format(source) in (None, "audacity"):
            answers = read_label_studio_answers(source)
        elif written_as := selections or selection_format(source):
            now = datetime.now(UTC)
            answers = import_selections(workspace, source, written_as, now, rater)
        else:
            answers = read_judgements(source, datetime.now(UTC), rater)
        if not answers:
            raise EarmarkError(f"{source}: there is not one answer in it")
        return store.add_all(answers)


def still_there(workspace: Workspace, judgements: pl.DataFrame) -> pl.DataFrame:
    """Leave out answers about clips and classes that are gone, and say so; not where all are."""
    class_ids = list(workspace.ontology.class_ids)
    is_known = judgements["clip_id"].is_in(workspace.clips["clip_id"].implode())
    is_known &= judgements["class_id"].is_in(class_ids)
    if is_known.all() or not is_known.any():
        return judgements
    warnings.warn(
        f"{(~is_known).sum():,} of {len(judgements):,} answers are about clips or classes that the "
        "dataset no longer has; they are kept, and left out",
        EarmarkWarning,
        stacklevel=3,
    )
    return judgements.filter(is_known)


def gains_so_far(workspace: Workspace, estimates: MissingEstimates) -> Gains | None:
    """Return what a queue that learns has found by now; None where none was heard.

    ``estimates`` are what is known of the missing labels. A queue that cannot be read any more is
    said to be so, and has found nothing.
    """
    if not (workspace.judgements_path.exists() and workspace.queue_seal_path.exists()):
        return None
    try:
        _, queue, judgements = _open_judged(workspace, drop_failed_blocks=False)
        if not queue.grows:
            return None
        population, share = read_population(workspace), params_of(workspace).sample_share
        with open_drawn(workspace, population) as drawn:
            judged = judged_labels(population, drawn.since(0), judgements)
    except EarmarkError as error:
        warnings.warn(f"what listening found is left out: {error}", EarmarkWarning, stacklevel=2)
        return None
    candidates, model = population.candidates, learn_from(population.candidates, judged)
    ontology, class_ids = workspace.ontology, population.class_ids
    change = advise_change(
        candidates,
        judged,
        candidates.p_missing(model),
        lambda column: ontology.name(class_ids[column]),
    )
    found = find_gains(population, judged, model, share)
    return replace(found, estimates=estimates, change=change)


def _open_judged(
    work: WorkLike, drop_failed_blocks: bool
) -> tuple[Workspace, QueueSnapshot, pl.DataFrame]:
    """Return the workspace, its queue and the current judgements."""
    workspace = open_workspace(work)
    queue = read_queue(workspace)
    with open_judgements(workspace, must_exist=True) as store:
        judgements = store.current()
    if drop_failed_blocks:
        judgements = without_failed_blocks(queue, judgements)
    return workspace, queue, judgements


@contextmanager
def _caught_signals(server: Any) -> Iterator[list[signal.Signals]]:
    """End the server at Ctrl-C and SIGTERM, also before it runs; yield those that came.

    While it runs the server catches them itself, and raises them anew at its end.
    """
    caught: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def keep(number: int, frame: object) -> None:
        del frame
        server.should_exit = True
        caught.append(signal.Signals(number))

    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_sound(workspace: Workspace) -> None:
    if not workspace.has_sound():
        raise EarmarkError(
            f"{workspace.root}: no clip has a sound file, so there is nothing to hear; import the "
            "dataset with its sounds (--audio FOLDER), scan with --sounds FOLDER, or bring answers "
            f"from elsewhere: `earmark answers {quoted(workspace.root)} --import FILE`"
        )


def _check_sample(workspace: Workspace, queue: QueueSnapshot) -> None:
    if queue.aim != "measure":
        raise EarmarkError(
            "this queue is no sample of the labels up to a discard percent; draw one with "
            f"`earmark review {quoted(workspace.root)} --aim measure` and listen"
        )


def _warn_of_other_raters(
    workspace: Workspace, queue: ReviewQueue, store: JudgementStore, name: str
) -> None:
    """Say who answered before, where a rater without a name would begin anew."""
    answered = store.current().join(queue.items.select("item"), on="item", how="semi")
    others = sorted(answered["rater"].unique())
    if others and name not in others:
        warnings.warn(
            f"answers of this queue are by {', '.join(others)}: {len(answered):,}; none by {name}, "
            "who begins anew. To go on as before: `earmark review "
            f"{quoted(workspace.root)} --raters {quoted(','.join(others))}`",
            EarmarkWarning,
            stacklevel=3,
        )


def _rater_names(raters: Sequence[str]) -> tuple[str, ...]:
    """Return the raters asked for, or whoever is at the keyboard."""
    names = tuple(raters) or (getpass.getuser(),)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise EarmarkError(f"rater {twice[0]!r} is named twice; each needs a name of their own")
    return names
