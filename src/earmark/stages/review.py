"""Listening: draw a queue, serve the page, measure precision, correct labels, exchange answers."""

from __future__ import annotations

import getpass
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from earmark.datasets import Relabelled, Workspace, stamp_path, write_stamp
from earmark.errors import EarmarkError, EarmarkWarning, counted, quoted
from earmark.flags import made_from
from earmark.review import (
    Agreement,
    JudgementStore,
    Queue,
    Scope,
    agreement,
    block_plan,
    controls,
    flags_asked,
    is_drawn_from,
    make_queue,
    precision_table,
    read_heard,
    read_judgements,
    read_label_studio_answers,
    read_queue,
    relabel,
    without_failed_blocks,
    write_judgements,
    write_label_studio_tasks,
    write_queue,
    write_relabelled,
)
from earmark.review.server import check_server
from earmark.runs import HERE, Engine, Progress, ReviewParams, digest, shown, write_table
from earmark.scores import scored_labels
from earmark.stages.opening import RecipeLike, WorkLike, choose_recipe, open_scored, open_workspace

if TYPE_CHECKING:
    from earmark.review.server.guard import Place


@dataclass(frozen=True)
class DrawnQueue:
    """The labels that raters will listen to, and the file that holds them."""

    path: Path
    queue: Queue
    n_tasks: int | None = None
    """Label Studio's tasks that were written, where they were asked for."""

    @property
    def n_blocks(self) -> int:
        """Portions in which they are heard."""
        return len(block_plan(self.queue.items))


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
    """Whether the labels heard are a sample of the flags, or (likeliest first) speak for none."""

    @property
    def overall(self) -> dict[str, object]:
        """The row of all flags together."""
        return self.table.filter(scope="flags").row(-1, named=True)


@dataclass(frozen=True)
class CorrectedLabels:
    """A label set corrected by judgements, and its folder."""

    folder: Path
    relabelled: Relabelled


def draw_queue(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    params: ReviewParams | None = None,
    label_studio: str | Path | None = None,
    document_root: str | Path = "/",
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> DrawnQueue:
    """Draw the labels that raters will listen to, with blind controls.

    In a fixed random order, to measure, or the likeliest first, to find (``params.order``). A
    queue that is there is taken as it is, unless other ``params`` ask for another.
    ``label_studio`` names a file that gets the queue as Label Studio's tasks, too.
    """
    workspace = open_workspace(work)
    if params is None and workspace.queue_seal_path.exists():
        queue = read_queue(workspace)
    else:
        with shown(progress) as display:
            queue = _drawn(workspace, recipe, params or ReviewParams(), engine, display)
    n_tasks = None
    if label_studio is not None:
        root = Path(document_root)
        n_tasks = write_label_studio_tasks(Path(label_studio), queue, workspace, root)
    return DrawnQueue(workspace.queue_path, queue, n_tasks)


def serve_review(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    raters: Sequence[str] = (),
    classes: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 8321,
    when_ready: Callable[[Place, Mapping[str, str]], None] | None = None,
    progress: Progress | None = None,
) -> None:
    """Serve the listening page until it is interrupted.

    ``when_ready`` is told the page's place and the raters' tokens, once they can listen; port 0
    takes any free one. Without names the rater is whoever runs this.
    """
    check_server()
    from earmark.review.server.app import make_app, make_server, make_tokens, open_socket
    from earmark.review.server.desk import open_desk
    from earmark.review.server.guard import Place

    workspace = open_workspace(work)
    _check_sound(workspace)
    chosen = choose_recipe(workspace, recipe)
    names = _rater_names(raters)
    queue = draw_queue(workspace).queue
    with open_judgements(workspace) as store, open_socket(host, port) as listener:
        if not raters:
            _warn_of_other_raters(workspace, queue, store, names[0])
        with shown(progress) as display:
            desk = open_desk(workspace, chosen, queue, store, names, tuple(classes), display)
        place, tokens = Place(host, listener.getsockname()[1]), make_tokens(names)
        if when_ready is not None:
            when_ready(place, tokens)
        make_server(make_app(desk, tokens, place)).run(sockets=[listener])


def measure_precision(
    work: WorkLike,
    *,
    discard_percent: float | None = None,
    drop_failed_blocks: bool = False,
) -> HeardPrecision:
    """Say how many of the flags are right, by class and by band, with intervals.

    Of the labels up to ``discard_percent``; by default of the flags that were written, or of all
    bands where there are none: the same that the listening page sums up. Of a queue in the order
    ``likeliest`` only the labels heard are spoken of.
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
    write_table(path, table)
    write_stamp(workspace, stamp_path(path))
    return HeardPrecision(
        path,
        table,
        tuple(agreement(queue, judgements)),
        int(controls(queue, judgements)["is_failed"].sum()),
        scope.told,
        queue.order == "random",
    )


def correct_labels(
    work: WorkLike, name: str = "corrected", *, drop_failed_blocks: bool = False
) -> CorrectedLabels:
    """Write the label set that the judgements make of the labels, every change with its origin.

    Answers about clips and classes that the dataset no longer has are kept, and left out here.
    """
    workspace, queue, judgements = _open_judged(work, drop_failed_blocks)
    judgements = _still_there(workspace, judgements)
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


def export_judgements(work: WorkLike, path: str | Path, *, only_current: bool = False) -> int:
    """Write all answers as a table, retractions included unless ``only_current``; return rows."""
    with open_judgements(open_workspace(work), must_exist=True) as store:
        rows = store.current() if only_current else store.rows()
    write_judgements(Path(path), rows)
    return len(rows)


def import_judgements(work: WorkLike, source: str | Path, rater: str = "imported") -> int:
    """Add answers given elsewhere; return how many were new.

    The source is a table, Label Studio's JSON export or another store; ``rater`` names who
    answered where a table does not.
    """
    source = Path(source)
    with open_judgements(open_workspace(work)) as store:
        if source.suffix == ".sqlite":
            return store.merge(source)
        if source.suffix == ".json":
            answers = read_label_studio_answers(source)
        else:
            answers = read_judgements(source, datetime.now(UTC), rater)
        if not answers:
            raise EarmarkError(f"{source}: there is not one answer in it")
        return store.add_all(answers)


def open_judgements(workspace: Workspace, *, must_exist: bool = False) -> JudgementStore:
    """Open the judgements of a workspace's review."""
    path = workspace.judgements_path
    if must_exist and not path.exists():
        heard_here = f"make some with `earmark review {quoted(workspace.root)}`"
        elsewhere = f"bring some: `earmark judgements import {quoted(workspace.root)} FILE`"
        how = heard_here if workspace.has_sound() else elsewhere
        raise EarmarkError(f"{path}: no judgements there yet; {how}")
    return JudgementStore(path, must_exist=must_exist)


def _drawn(
    workspace: Workspace,
    recipe: RecipeLike,
    params: ReviewParams,
    engine: Engine,
    progress: Progress,
) -> Queue:
    scored = open_scored(workspace, recipe)
    scores = scored.whole
    if params.held_out:
        from earmark.training import score_held_out  # torch, for this alone

        folds = scored.recipe.cross_fit
        scores = score_held_out(workspace, scored.scores, folds, engine=engine, progress=progress)
    labels = scored_labels(scores, workspace.labels)
    origin = digest(labels.digest, scores.digest, params)
    if is_drawn_from(workspace, origin):
        return read_queue(workspace)
    heard = read_heard(workspace, labels)
    answers = heard.answers if heard else None
    queue = make_queue(labels, scores.logits, workspace.ontology, params, answers)
    if queue.items.is_empty():
        raise EarmarkError(
            f"{workspace.root}: there is nothing to listen to: no class with scores has a label "
            "that nobody was asked about"
        )
    queue = replace(queue, population=made_from(labels, scores.digest))
    write_queue(workspace, queue, origin)
    return queue


def _open_judged(work: WorkLike, drop_failed_blocks: bool) -> tuple[Workspace, Queue, pl.DataFrame]:
    """Return the workspace, its queue and the current judgements."""
    workspace = open_workspace(work)
    queue = read_queue(workspace)
    with open_judgements(workspace, must_exist=True) as store:
        judgements = store.current()
    if drop_failed_blocks:
        judgements = without_failed_blocks(queue, judgements)
    return workspace, queue, judgements


def _still_there(workspace: Workspace, judgements: pl.DataFrame) -> pl.DataFrame:
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


def _check_sound(workspace: Workspace) -> None:
    if not workspace.has_sound():
        raise EarmarkError(
            f"{workspace.root}: no clip has a sound file, so there is nothing to hear; import the "
            "dataset with its sounds (--audio FOLDER), scan with --sounds FOLDER, or bring answers "
            f"from elsewhere: `earmark judgements import {quoted(workspace.root)} FILE`"
        )


def _check_sample(workspace: Workspace, queue: Queue) -> None:
    if queue.order != "random":
        raise EarmarkError(
            "this queue has the likeliest labels first, so it is no sample of the labels up to a "
            f"discard percent; draw one with `earmark queue {quoted(workspace.root)}` and listen"
        )


def _warn_of_other_raters(
    workspace: Workspace, queue: Queue, store: JudgementStore, name: str
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
