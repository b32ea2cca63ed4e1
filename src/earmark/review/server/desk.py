"""What the page asks, answered: the rater's blocks, a clip's sound, a summary, and what to store.

Answers are plain dictionaries, ready to be sent as JSON. A rater sees nothing that could sway the
next answer: not the kind of an item, not its clip's name, not its score unless asked for (which is
stored with the answer), not what others said, and no precision before a block is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.datasets import Workspace, scored_frames, scores_of
from earmark.errors import EarmarkError, quoted
from earmark.review.judgements import Judgement, JudgementStore
from earmark.review.peaks import Peaks, find_peaks
from earmark.review.queues.drawn import DrawnBlock
from earmark.review.queues.live import LiveQueue
from earmark.review.queues.queue import Queue, blocks_of, item_id
from earmark.review.server.dealt import ANOTHERS, Conflict, Dealt
from earmark.review.server.media import Media
from earmark.review.server.posted import Posted
from earmark.review.server.shelf import Shelf, Unknown
from earmark.runs import SILENT, Progress, Recipe, digest
from earmark.scores import ScoreFolder


@dataclass(frozen=True, eq=False)
class Desk:
    """One review of a workspace; ``classes`` (identifiers) narrows it down where given.

    What is asked is a queue that was drawn, or one that grows; ``find_more`` finds where to listen
    for labels that are drawn later.
    """

    workspace: Workspace
    recipe: Recipe
    asked: Queue | LiveQueue
    scores: ScoreFolder
    peaks: Peaks
    media: Media
    judgements: JudgementStore
    raters: tuple[str, ...]
    classes: tuple[str, ...] = ()
    find_more: Callable[[pl.DataFrame], Peaks] | None = None

    @property
    def live(self) -> LiveQueue | None:
        """The queue, if it grows."""
        return self.asked if isinstance(self.asked, LiveQueue) else None

    @property
    def queue(self) -> Queue:
        """The queue, as far as it was drawn."""
        return self.asked if isinstance(self.asked, Queue) else self.asked.queue

    def session(self, rater: str) -> dict[str, Any]:
        """Return the rater's blocks and the answers given so far, in the order of time."""
        names = ("id", "item", "block", "answer", "span_start", "span_end")
        answered = self.answers_of(rater).select(names).iter_rows(named=True)
        return {
            "rater": rater,
            "queue": self.queue_digest,
            "aim": self.queue.aim,
            "mode": "class" if self.live is None else self.live.mode,
            "grows": self.live is not None,
            "only": self.only_told(rater),
            "blocks": [self._planned(row) for row in self.blocks_for(rater).iter_rows(named=True)],
            "history": [{k: v for k, v in row.items() if v is not None} for row in answered],
            "bands": {
                "low_hz": self.recipe.front_end.low_hz,
                "high_hz": self.recipe.front_end.high_hz,
            },
        }

    def next_block(self, rater: str, after: int | None = None) -> dict[str, Any]:
        """Return the rater's next block of a queue that grows, drawn now if need be.

        It is one besides ``after``, which the rater is about to finish.
        None of it is left when there is nothing more to ask about.
        """
        if self.live is None:
            raise Conflict("this queue was drawn at once; its blocks are those of the session")
        return self._drawn_told(self.live.next_block(rater, after))

    def block(self, rater: str, number: int) -> dict[str, Any]:
        """Return a block's class cards and its items, with start and end of their peaks in seconds.

        An item without peaks is one of which nobody knows where to listen. Of a block of clips the
        items are clips, with the labels they were given and those that are offered.
        """
        items = self.items_of(rater, number)
        class_ids = dict.fromkeys(items["class_id"])
        is_by_clip = self.live is not None and self.live.mode_of(number) == "clip"
        return {
            "block": number,
            "mode": "clip" if is_by_clip else "class",
            "cards": [] if is_by_clip else [self.shelf.card(class_id) for class_id in class_ids],
            "items": self._clips(rater, items) if is_by_clip else self._single(items),
        }

    def offer(self, rater: str, sound_id: str, class_id: str) -> dict[str, Any]:
        """Let a rater answer about a class of a clip that was not offered; return the offer."""
        if self.live is None:
            raise Conflict("labels can be added to a queue that grows alone")
        if class_id not in self.workspace.ontology.index:
            raise Unknown("there is no such class")
        clip_id = self.shelf.clip_of(sound_id)
        block = self.live.block_of_clip(rater, clip_id)
        if block is None:
            raise Unknown(f"no block of {rater} has this clip")
        item = item_id(clip_id, class_id)
        logit = self._logit(clip_id, class_id)
        self.live.add_label(block, item, clip_id, class_id, logit, rater)
        row = {"item": item, "clip_id": clip_id, "class_id": class_id, "block": block}
        return self._offer(row)

    def alike(self, rater: str, item: str) -> dict[str, Any]:
        """Draw a block of clips that are most like an item's, for the same class."""
        if self.live is None:
            raise Conflict("more like this comes in a queue that grows alone")
        row = self._own(rater, item)
        pair = pl.DataFrame({"clip_id": [row["clip_id"]], "class_id": [row["class_id"]]})
        places = self.live.population.places(pair)
        if not len(places):
            raise Unknown("nothing is known of this label's class")
        names = self.live.population.names["clip_id"]

        def likeness(others: NDArray[np.int64]) -> NDArray[np.floating]:
            return self.shelf.likeness(row["clip_id"], names.gather(others).to_list())

        return self._drawn_told(self.live.draw_alike(rater, int(places[0]), likeness))

    def limit(self, rater: str, class_ids: Sequence[str]) -> dict[str, Any]:
        """Ask a rater about some classes alone, until told otherwise; return the next block.

        Where nothing is left to ask about them, it stays as it was.
        """
        if self.live is None:
            raise Conflict("classes are chosen from a queue that grows alone")
        if unknown := set(class_ids) - set(self.live.population.class_ids.values()):
            raise Unknown(f"nothing is known of {', '.join(sorted(unknown))}")
        before = self.live.only(rater)
        self.live.limit(rater, class_ids)
        told = self.next_block(rater)
        if told["block"] is None:
            self.live.limit(rater, before)
        return told | {"only": self.only_told(rater)}

    def only_told(self, rater: str) -> str:
        """Return the names of the classes that a rater is asked about alone; empty for all."""
        return "" if self.live is None else self.names_told(sorted(self.live.only(rater)))

    def gained(self, rater: str) -> dict[str, Any]:
        """Return what listening has found, and what more of it would find."""
        if self.live is None:
            raise Conflict("only of a queue that grows is it known what an hour buys")
        self.live.learn_or_warn()  # what was answered since the last time
        return self.live.gains_of(rater, self.workspace.ontology.name).to_dict()

    def score(self, rater: str, item: str) -> dict[str, Any]:
        """Return the teacher's score of an item and its output for each patch."""
        row = self._own(rater, item)
        patches = self._peaks_of(row["block"]).patches(row["clip_id"], row["class_id"])
        return {"logit": row["logit"], "patches": patches}

    def about(self, rater: str, item: str) -> dict[str, Any]:
        """Return the name of an item's clip and the classes that it was given.

        Not the classes that are asked for: known labels would be told from the others by them.
        """
        row = self._own(rater, item)
        asked = self.queue.items.filter(block=row["block"], clip_id=row["clip_id"])
        labels = self.shelf.given(row["clip_id"], besides=asked["class_id"])
        return {"clip_id": row["clip_id"], "labels": labels}

    def check_heard_by(self, rater: str, sound_id: str) -> None:
        """Refuse a sound that belongs to another rater's block; examples are everybody's."""
        if sound_id in self.queue.by_item:
            self._own(rater, sound_id)
        elif not self.shelf.is_for(rater, sound_id):
            raise Conflict(ANOTHERS)

    def record(self, rater: str, posted: Posted) -> bool:
        """Store what a rater said; False if it was stored before. Returns once it is on disk."""
        if posted.rater != rater:
            raise Conflict(
                f"this browser is signed in as {rater!r}, but the answer is {posted.rater!r}'s; "
                "give each rater a browser, or a private window, of their own"
            )
        row = self._own(rater, posted.item)
        if posted.retracts is not None:
            self._check_retraction(rater, posted)
        if (posted.answer is None) == (posted.retracts is None):
            raise Conflict("a judgement has either an answer or the id that it retracts")
        label = {name: row[name] for name in ("clip_id", "class_id")}
        given = Judgement(**posted.model_dump(), **label, queue_digest=self.queue_digest)
        is_new = self.judgements.add(given)
        if self.live is not None:
            self.live.note_answer()
        return is_new

    @cached_property
    def queue_digest(self) -> str:
        """Identifies the queue; stored with every answer."""
        return self.queue.digest

    def blocks_for(self, rater: str) -> pl.DataFrame:
        """Return the plan of the rater's blocks, of the chosen classes."""
        plan = self.queue.plan
        if self.live is not None:
            own = [block.block for block in self.live.blocks_of(rater)]
        else:
            own = blocks_of(plan, rater, self.raters)
        chosen = plan.filter(pl.col("block").is_in(own))
        is_narrow = self.classes and self.live is None
        return chosen.filter(pl.col("class_id").is_in(self.classes)) if is_narrow else chosen

    def _drawn_told(self, drawn: DrawnBlock | None) -> dict[str, Any]:
        """Return what the page is told of a block that was just drawn, or that there is none."""
        if drawn is None:
            return {"block": None}
        self._peaks_of(drawn.block)
        row = self.queue.plan.row(by_predicate=pl.col("block") == drawn.block, named=True)
        return {"block": self._planned(row)}

    def _planned(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return what the page is told of a block before it opens it."""
        told = self.names_told(row["class_ids"])
        return {"name": told, **{name: row[name] for name in ("block", "class_id", "n_items")}}

    def names_told(self, class_ids: Iterable[str]) -> str:
        """Return the names of some classes, the first two of many."""
        names = [self.workspace.ontology.name(class_id) for class_id in class_ids]
        return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")

    def _single(self, items: pl.DataFrame) -> list[dict[str, Any]]:
        """Return labels to be heard one by one."""
        peaks = self._peaks_of(items["block"][0])
        rows = items.select("item", "clip_id", "class_id").iter_rows()
        return [
            {
                "item": self.shelf.put(item, clip_id),
                "class_id": class_id,
                "peaks": peaks.spans(clip_id, class_id),
            }
            for item, clip_id, class_id in rows
        ]

    def _clips(self, rater: str, items: pl.DataFrame) -> list[dict[str, Any]]:
        """Return clips with the labels that each is heard for.

        A known label is not among those given. Where none is left, ``labels`` is null, as it is
        then for some other clips of the block, so that nobody can tell them apart.
        """
        clips = {str(clip): own for (clip,), own in items.group_by("clip_id", maintain_order=True)}
        labels = {clip: self.shelf.given(clip, own["class_id"]) for clip, own in clips.items()}
        hidden = {clip for clip in clips if not labels[clip] and self.shelf.given(clip)}
        if hidden:
            hidden |= {clip for clip in clips if int(digest("hidden", clip), 16) % 3 == 0}
        return [
            {
                "clip": self.shelf.put_clip(clip, rater),
                "labels": None if clip in hidden else labels[clip],
                "offers": [self._offer(row) for row in own.iter_rows(named=True)],
            }
            for clip, own in clips.items()
        ]

    def _offer(self, row: dict[str, Any]) -> dict[str, Any]:
        ontology, class_id = self.workspace.ontology, row["class_id"]
        return {
            "item": self.shelf.put(row["item"], row["clip_id"]),
            "class_id": class_id,
            "name": ontology.name(class_id),
            "path": ontology.path(class_id),
            "peaks": self._peaks_of(row["block"]).spans(row["clip_id"], class_id),
        }

    def _logit(self, clip_id: str, class_id: str) -> float | None:
        row = self.scores.clip_ids.index_of(clip_id)
        if row is None or class_id not in self.scores.class_ids:
            return None
        return float(self.scores.logits[row, self.scores.class_ids.index(class_id)])

    def _peaks_of(self, number: int) -> Peaks:
        """Return where to listen in a block; found when it is drawn."""
        if self.find_more is None:
            return self.peaks
        if number not in self._found_peaks:
            items = self.queue.items.filter(pl.col("block") == number)
            self._found_peaks[number] = self.find_more(items)
        return self._found_peaks[number]

    @cached_property
    def _found_peaks(self) -> dict[int, Peaks]:
        return {}

    @cached_property
    def shelf(self) -> Shelf:
        """What the page may hear and see."""
        in_queue = self.queue.items.select("clip_id", "class_id")
        has_embeddings = self.recipe.teacher.model.is_probe
        known = (self.workspace, self.scores, self.peaks, self.media, in_queue, has_embeddings)
        shelf = Shelf(*known)
        for item, clip_id in self.queue.items.select("item", "clip_id").iter_rows():
            shelf.put(item, clip_id)
        return shelf

    def items_of(self, rater: str, number: int) -> pl.DataFrame:
        """Return the items of one of a rater's blocks, in their order."""
        items = self.queue.items.filter(pl.col("block") == number).sort("place")
        if items.is_empty() or number not in self.blocks_for(rater)["block"]:
            raise Unknown(f"there is no block {number} for {rater}")
        return items

    def _own(self, rater: str, item: str) -> dict[str, Any]:
        return self._dealt.item(rater, item)

    @cached_property
    def _dealt(self) -> Dealt:
        return Dealt(self.asked, self.raters, self.judgements)

    def answers_of(self, rater: str) -> pl.DataFrame:
        """Return the rater's current judgements of this queue, with the block of each."""
        blocks = self.blocks_for(rater).select("block")
        places = self.queue.items.join(blocks, on="block", how="semi").select("item", "block")
        return self.judgements.current(rater).join(places, on="item", maintain_order="left")

    def finished_of(self, rater: str) -> pl.DataFrame:
        """Return the rater's judgements in blocks that are finished."""
        own = self.answers_of(rater)
        counts = own.group_by("block").len().join(self.queue.plan, on="block")
        done = counts.filter(pl.col("len") >= pl.col("n_items")).select("block")
        return own.join(done, on="block", how="semi", maintain_order="left")

    def _check_retraction(self, rater: str, posted: Posted) -> None:
        rows = self.judgements.rows().filter(id=str(posted.retracts), rater=rater, item=posted.item)
        if rows.is_empty():
            raise Conflict(f"{rater} has stored no judgement {posted.retracts} of this item")


def open_desk(
    workspace: Workspace,
    recipe: Recipe,
    asked: Queue | LiveQueue,
    judgements: JudgementStore,
    raters: Sequence[str],
    classes: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Desk:
    """Open the review of a queue; ``classes`` are names or identifiers, all by default.

    Runs the teacher over the queue's clips to find their peaks, unless that was done before; over
    those of a queue that grows when they are drawn.
    """
    is_live = isinstance(asked, LiveQueue)
    names = asked.population.names if isinstance(asked, LiveQueue) else asked.items
    scores = scores_of(workspace, recipe.scores_name, names["clip_id"].unique())
    chosen = tuple(workspace.ontology.find(name) for name in classes)
    _check_queued(workspace, names, chosen)
    store = scored_frames(workspace, recipe)
    media = Media(workspace, recipe.front_end, store)

    def find_more(items: pl.DataFrame, shown: Progress = SILENT) -> Peaks:
        return find_peaks(workspace, recipe, scores, store, items, media.seconds, shown)

    wanted_queue = asked.queue if isinstance(asked, LiveQueue) else asked
    peaks = find_more(wanted_queue.items, progress)
    more = find_more if is_live else None
    named = tuple(raters)
    _ = wanted_queue.by_item  # made now, so that no answer waits for it
    return Desk(workspace, recipe, asked, scores, peaks, media, judgements, named, chosen, more)


def _check_queued(workspace: Workspace, names: pl.DataFrame, classes: Sequence[str]) -> None:
    known = set(names["class_id"].unique())
    if not known:
        raise EarmarkError("the queue is empty: no class has scores, or no label is implicit")
    for class_id in classes:
        if class_id not in known:
            raise EarmarkError(
                f"class {class_id!r} is not in the queue; draw it anew with `earmark queue "
                f"{quoted(workspace.root)}` (answers are kept)"
            )
