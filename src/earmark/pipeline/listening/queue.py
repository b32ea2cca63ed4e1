"""Draw what raters listen to: a queue that learns, or a random sample."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import polars as pl

from earmark.compute import HERE, SILENT, Engine, Progress, shown
from earmark.config import ReviewParams
from earmark.datasets import Workspace, any_frames, tell_replaced
from earmark.errors import EarmarkError, EarmarkWarning, quoted, short_repr
from earmark.flags import made_from
from earmark.options import Fields, Option
from earmark.pipeline.opening import RecipeLike, WorkLike, open_scored, open_workspace
from earmark.review import (
    GROWING,
    JudgementStore,
    Mode,
    NoChances,
    QueueSnapshot,
    ReviewQueue,
    find_population,
    is_drawn_from,
    make_queue,
    open_drawn,
    params_of,
    read_heard,
    read_population,
    read_queue,
    write_label_studio_tasks,
    write_population,
    write_queue,
)
from earmark.scores import scored_labels
from earmark.storage import digest, writing_in

N_AHEAD = 10
"""Blocks that are drawn at once for those who answer in another program."""

ELSEWHERE = "elsewhere"
"""For whom blocks are drawn that are answered in another program."""


@dataclass(frozen=True)
class DrawnQueue:
    """The labels that raters will listen to, and the file that holds them."""

    path: Path
    queue: QueueSnapshot
    n_tasks: int | None = None
    """Label Studio's tasks that were written, where they were asked for."""
    n_candidates: int | None = None
    """Labels that a queue that learns may ask about."""

    __repr__ = short_repr


def draw_queue(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    params: Annotated[ReviewParams | None, Fields()] = None,
    label_studio: Annotated[
        str | Path | None, Option("Write the queue as Label Studio's tasks; no page.")
    ] = None,
    document_root: Annotated[str | Path, Option("Label Studio's, for local files.")] = "/",
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> DrawnQueue:
    """Draw the labels that raters will listen to, with blind controls.

    To find missing labels, in a queue that learns while it is heard, or to measure flags, in one
    fixed random order (``params.aim``). A queue that is there is taken as it is, unless other
    ``params`` ask for another. ``label_studio`` names a file that gets the queue as Label Studio's
    tasks, too; of one that learns they are the next blocks without an answer: as many as hold
    ``params.n_items`` labels, or N_AHEAD.
    """
    workspace = open_workspace(work)
    with suppress(EarmarkError):  # of frames that are damaged others speak, who need them
        tell_replaced(workspace, any_frames(workspace))
    with shown(progress) as display:
        queue = _there_or_drawn(workspace, recipe, params, engine, display)
    n_tasks = None
    is_heard_elsewhere = label_studio is not None or not workspace.has_sound()
    if queue.grows and is_heard_elsewhere:
        own = params_of(workspace)
        wanted = None if own.n_items is None else math.ceil(own.n_items / own.flags_per_block)
        queue = draw_ahead(workspace, wanted or N_AHEAD).queue
    if label_studio is not None:
        root = Path(document_root)
        n_tasks = write_label_studio_tasks(Path(label_studio), queue, workspace, root)
    if not queue.grows:
        return DrawnQueue(workspace.queue_path, queue, n_tasks)
    n_candidates = len(read_population(workspace).candidates)
    return DrawnQueue(workspace.candidates_path, queue, n_tasks, n_candidates)


def open_judgements(workspace: Workspace, *, must_exist: bool = False) -> JudgementStore:
    """Open the judgements of a workspace's review."""
    path = workspace.judgements_path
    if must_exist and not path.exists():
        heard_here = f"make some with `earmark review {quoted(workspace.root)}`"
        elsewhere = f"bring some: `earmark answers {quoted(workspace.root)} --import FILE`"
        how = heard_here if workspace.has_sound() else elsewhere
        raise EarmarkError(f"{path}: no judgements there yet; {how}")
    return JudgementStore(path, must_exist=must_exist)


def draw_ahead(work: WorkLike, n_blocks: int = N_AHEAD) -> DrawnQueue:
    """Draw blocks of a queue that learns for those who answer in another program.

    There are so many blocks then that are not answered as a whole, and the queue returned holds
    what is open in them. What is answered teaches those that are drawn later. A queue is prepared
    if there is none; one that was drawn at once stays as it is.
    """
    workspace = open_workspace(work)
    there = _there_or_drawn(workspace, None, None, HERE, SILENT)
    if not there.grows:
        return DrawnQueue(workspace.queue_path, there)
    has_answers = workspace.judgements_path.exists()
    with (
        JudgementStore(workspace.judgements_path if has_answers else ":memory:") as store,
        open_queue(workspace, store, [ELSEWHERE]) as queue,
    ):
        answered = set(store.current()["item"])
        blocks = queue.blocks_of(ELSEWHERE)
        ahead = [block for block in blocks if not answered.issuperset(block.items["item"])]
        ahead = ahead[:n_blocks]
        ahead += queue.draw_blocks(ELSEWHERE, n_blocks - len(ahead))
        is_open = ~pl.col("item").is_in(list(answered))
        is_open &= pl.col("block").is_in([block.block for block in ahead])
        snapshot = queue.snapshot
        items = snapshot.items.filter(is_open)
        return DrawnQueue(workspace.drawn_path, replace(snapshot, items=items))


def open_queue(
    workspace: Workspace,
    store: JudgementStore,
    raters: Sequence[str],
    mode: Mode = "class",
    classes: Sequence[str] = (),
) -> ReviewQueue:
    """Open the workspace's queue; close it, or use it in a ``with``.

    With ``classes`` (names or identifiers) only these are asked about. The ``mode`` is that of
    blocks drawn from now on; a queue that was drawn at once has all its blocks by class.
    """
    chosen = [workspace.ontology.find(name) for name in classes]
    snapshot = read_queue(workspace)
    if not snapshot.grows:
        return ReviewQueue(snapshot, store, raters, chosen)
    population = read_population(workspace)
    drawn = open_drawn(workspace, population)
    params = params_of(workspace)
    return ReviewQueue.growing(population, params, drawn, store, raters, mode, chosen)


def _there_or_drawn(
    workspace: Workspace,
    recipe: RecipeLike,
    params: ReviewParams | None,
    engine: Engine,
    progress: Progress,
) -> QueueSnapshot:
    """Return the queue that is there, or draw one if there is none or another is asked for."""
    if params is None and workspace.queue_seal_path.exists():
        return read_queue(workspace)
    with writing_in(workspace, "review"):
        return _drawn(workspace, recipe, params or ReviewParams(), engine, progress)


def _drawn(
    workspace: Workspace,
    recipe: RecipeLike,
    params: ReviewParams,
    engine: Engine,
    progress: Progress,
) -> QueueSnapshot:
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
    population = made_from(labels, scores.digest)
    if params.aim in GROWING:
        heard = read_heard(workspace, labels)
        answers = heard.answers if heard else None
        try:
            found = find_population(labels, scores.logits, workspace.ontology, params, answers)
        except NoChances as error:
            told = f"{error}; a random sample is drawn instead, as with --aim measure"
            warnings.warn(told, EarmarkWarning, stacklevel=3)
        else:
            found = replace(found, digest=origin, population=population)
            write_population(workspace, found, params)
            return read_queue(workspace)
    queue = make_queue(labels, scores.logits, workspace.ontology, params)
    if queue.items.is_empty():
        raise EarmarkError(
            f"{workspace.root}: there is nothing to listen to: no class with scores has a label "
            "that nobody was asked about"
        )
    queue = replace(queue, population=population)
    write_queue(workspace, queue, origin)
    return queue
