"""Answers to the page's requests: a rater's blocks, what to show of a clip, and what to store.

Answers are plain dictionaries, ready to be sent as JSON. A rater sees nothing that could influence
the next answer: no kinds of items, no names of clips, no scores unless asked for (which is stored
with the answer), no answers of others, and no precision before a block is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.types import UUID4

from earmark.compute import SILENT, Progress
from earmark.config import Params, Recipe
from earmark.datasets import Workspace, scored_frames, scores_of
from earmark.errors import EarmarkError, quoted
from earmark.review.judgements import Answer, Conflict, Judgement, JudgementFields, JudgementStore
from earmark.review.peaks import Peaks, find_peaks
from earmark.review.queue import ReviewQueue
from earmark.review.queue_items import DrawnBlock, item_id
from earmark.review.server.clips import ClipRegistry, Media, Unknown
from earmark.scores import ScoreFolder
from earmark.storage import digest


class Posted(JudgementFields):
    """What the page sends for every key press; clip, class and queue are the server's to add."""

    model_config = ConfigDict(strict=True)

    id: UUID4
    answer: Answer | None
    retracts: UUID4 | None


class Ahead(Params):
    """What the page sends to have the next block: the one that it is in, if any."""

    model_config = ConfigDict(strict=True)

    after: int | None = None


class Only(Params):
    """What the page sends to be asked about some classes alone; about all of them without any."""

    model_config = ConfigDict(strict=True)

    class_ids: list[str] = Field(max_length=20)


class Wanted(Params):
    """What the page sends to answer about a class that was not offered."""

    model_config = ConfigDict(strict=True)

    class_id: str = Field(max_length=200)


FORECAST_SECONDS = 0.5
"""How long the page waits for a forecast of all answers before it shows the last one."""


_OTHER_RATER = "this is in the block of another rater"


@dataclass(frozen=True, eq=False)
class ReviewSession:
    """The review of a workspace, as the page sees it.

    ``peaks`` locate the labels of the blocks ``located``; ``find_more`` finds the peaks of blocks
    that are drawn later.
    """

    workspace: Workspace
    recipe: Recipe
    queue: ReviewQueue
    scores: ScoreFolder
    peaks: Peaks
    media: Media
    located: frozenset[int]
    find_more: Callable[[pl.DataFrame], Peaks]

    @property
    def judgements(self) -> JudgementStore:
        """The store of answers."""
        return self.queue.judgements

    @property
    def raters(self) -> tuple[str, ...]:
        """The names of the raters."""
        return self.queue.raters

    def describe(self, rater: str) -> dict[str, Any]:
        """Return the rater's blocks and the answers given so far, in the order of storing."""
        names = ("id", "item", "block", "answer", "span_start", "span_end")
        answered = self.answers_of(rater).select(names).iter_rows(named=True)
        return {
            "rater": rater,
            "workspace": digest(str(self.workspace.root.resolve())),
            "queue": self.queue.digest,
            "aim": self.queue.aim,
            "mode": self.queue.mode,
            "grows": self.queue.grows,
            "only": self.describe_only(rater),
            "blocks": [
                self._planned(row) for row in self.queue.plan_of(rater).iter_rows(named=True)
            ],
            "history": [{k: v for k, v in row.items() if v is not None} for row in answered],
            "bands": {
                "low_hz": self.recipe.front_end.low_hz,
                "high_hz": self.recipe.front_end.high_hz,
            },
        }

    def next_block(self, rater: str, after: int | None = None) -> dict[str, Any]:
        """Return the rater's next unfinished block, which is drawn now if there is none.

        It is another block than ``after``, which the rater is about to finish. The block is None
        when nothing is left to ask about.
        """
        return self._describe_drawn(self.queue.next_block(rater, after))

    def block(self, rater: str, number: int) -> dict[str, Any]:
        """Return a block's class cards and its items, with start and end of their peaks in seconds.

        An item without peaks is one of which nobody knows where to listen. Of a block of clips the
        items are clips, with the labels they were given and those that are offered.
        """
        items = self.items_of(rater, number)
        class_ids = dict.fromkeys(items["class_id"])
        is_by_clip = self.queue.mode_of(number) == "clip"
        return {
            "block": number,
            "mode": "clip" if is_by_clip else "class",
            "cards": [] if is_by_clip else [self.registry.card(class_id) for class_id in class_ids],
            "items": self._clips(rater, items) if is_by_clip else self._single(items),
        }

    def offer(self, rater: str, sound_id: str, class_id: str) -> dict[str, Any]:
        """Let a rater answer about a class of a clip that was not offered; return the offer."""
        _ = self.queue.drawer  # refused for a queue that was drawn at once
        if class_id not in self.workspace.ontology.index:
            raise Unknown("there is no such class")
        clip_id = self.registry.clip_of(sound_id)
        block = self.queue.block_of_clip(rater, clip_id)
        if block is None:
            raise Unknown(f"no block of {rater} has this clip")
        item = item_id(clip_id, class_id)
        logit = self._logit(clip_id, class_id)
        self.queue.add_label(block, item, clip_id, class_id, logit, rater)
        row = {"item": item, "clip_id": clip_id, "class_id": class_id, "block": block}
        return self._offer(row)

    def alike(self, rater: str, item: str) -> dict[str, Any]:
        """Draw a block of clips that are most like an item's, for the same class."""
        population = self.queue.drawer.population
        row = self._item(rater, item)
        pair = pl.DataFrame({"clip_id": [row["clip_id"]], "class_id": [row["class_id"]]})
        places = population.places(pair)
        if not len(places):
            raise Unknown("nothing is known of this label's class")
        names = population.names["clip_id"]

        def likeness(others: NDArray[np.int64]) -> NDArray[np.floating]:
            return self.registry.likeness(row["clip_id"], names.gather(others).to_list())

        return self._describe_drawn(self.queue.draw_alike(rater, int(places[0]), likeness))

    def limit(self, rater: str, class_ids: Sequence[str]) -> dict[str, Any]:
        """Ask a rater about some classes alone, until told otherwise; return the next block.

        Where nothing is left to ask about them, it stays as it was.
        """
        if unknown := set(class_ids) - set(self.queue.drawer.population.class_ids.values()):
            raise Unknown(f"nothing is known of {', '.join(sorted(unknown))}")
        before = self.queue.only(rater)
        self.queue.limit(rater, class_ids)
        described = self.next_block(rater)
        if described["block"] is None:
            self.queue.limit(rater, before)
        return described | {"only": self.describe_only(rater)}

    def describe_only(self, rater: str) -> str:
        """Return the names of the classes that a rater is asked about alone; empty for all."""
        return self.describe_classes(sorted(self.queue.only(rater)))

    def gained(self, rater: str) -> dict[str, Any]:
        """Return what listening has found, and what more of it would find.

        Where finding it takes long, that of before comes with ``is_current`` False, or, the first
        time, nothing else.
        """
        gains, is_current = self.queue.drawer.latest_gains(FORECAST_SECONDS)
        if gains is None:
            return {"is_current": False}
        forecast = self.queue.gains_of(rater, self.workspace.ontology.name, gains)
        return {**forecast.to_dict(), "is_current": is_current}

    def score(self, rater: str, item: str) -> dict[str, Any]:
        """Return the teacher's score of an item and its output for each patch."""
        row = self._item(rater, item)
        patches = self._peaks_of(row["block"]).patches(row["clip_id"], row["class_id"])
        return {"logit": row["logit"], "patches": patches}

    def about(self, rater: str, item: str) -> dict[str, Any]:
        """Return the name of an item's clip and the classes that it was given.

        Not the classes that are asked for: known labels would be told from the others by them.
        """
        row = self._item(rater, item)
        asked = self.queue.items.filter(block=row["block"], clip_id=row["clip_id"])
        labels = self.registry.given(row["clip_id"], besides=asked["class_id"])
        return {"clip_id": row["clip_id"], "labels": labels}

    def check_heard_by(self, rater: str, sound_id: str) -> None:
        """Refuse a sound that belongs to another rater's block; examples are everybody's."""
        if sound_id in self.queue.by_item:
            self._item(rater, sound_id)
        elif not self.registry.is_for(rater, sound_id):
            raise Conflict(_OTHER_RATER)

    def record(self, rater: str, posted: Posted) -> bool:
        """Store what a rater said; False if it was stored before. Returns once it is on disk."""
        if posted.rater != rater:
            raise Conflict(
                f"this browser is signed in as {rater!r}, but the answer is {posted.rater!r}'s; "
                "give each rater a browser, or a private window, of their own"
            )
        row = self._item(rater, posted.item)
        retracts = posted.retracts
        if retracts is not None and not self.judgements.has(retracts, rater, posted.item):
            raise Conflict(f"{rater} has stored no judgement {retracts} of this item")
        label = {name: row[name] for name in ("clip_id", "class_id")}
        given = Judgement(**posted.model_dump(), **label, queue_digest=self.queue.digest)
        is_new = self.judgements.add(given)
        self.queue.note_answer()
        return is_new

    def _describe_drawn(self, drawn: DrawnBlock | None) -> dict[str, Any]:
        """Return what the page is told of a block that was just drawn, or that there is none."""
        if drawn is None:
            return {"block": None}
        self._peaks_of(drawn.block)
        row = self.queue.snapshot.plan.row(by_predicate=pl.col("block") == drawn.block, named=True)
        return {"block": self._planned(row)}

    def _planned(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return what the page is told of a block before it opens it."""
        told = self.describe_classes(row["class_ids"])
        return {"name": told, **{name: row[name] for name in ("block", "class_id", "n_items")}}

    def describe_classes(self, class_ids: Iterable[str]) -> str:
        """Return the names of some classes, the first two of many."""
        names = [self.workspace.ontology.name(class_id) for class_id in class_ids]
        return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")

    def _single(self, items: pl.DataFrame) -> list[dict[str, Any]]:
        """Return labels to be heard one by one."""
        peaks = self._peaks_of(items["block"][0])
        rows = items.select("item", "clip_id", "class_id").iter_rows()
        return [
            {
                "item": self.registry.put(item, clip_id),
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
        labels = {clip: self.registry.given(clip, own["class_id"]) for clip, own in clips.items()}
        hidden = {clip for clip in clips if not labels[clip] and self.registry.given(clip)}
        if hidden:
            hidden |= {clip for clip in clips if int(digest("hidden", clip), 16) % 3 == 0}
        return [
            {
                "clip": self.registry.put_clip(clip, rater),
                "labels": None if clip in hidden else labels[clip],
                "offers": [self._offer(row) for row in own.iter_rows(named=True)],
            }
            for clip, own in clips.items()
        ]

    def _offer(self, row: dict[str, Any]) -> dict[str, Any]:
        ontology, class_id = self.workspace.ontology, row["class_id"]
        return {
            "item": self.registry.put(row["item"], row["clip_id"]),
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
        """Return the peaks of a block's labels; they are found when the block is drawn."""
        if number in self.located:
            return self.peaks
        if number not in self._later_peaks:
            items = self.queue.items.filter(pl.col("block") == number)
            self._later_peaks[number] = self.find_more(items)
        return self._later_peaks[number]

    @cached_property
    def _later_peaks(self) -> dict[int, Peaks]:
        return {}

    @cached_property
    def registry(self) -> ClipRegistry:
        """What the page may hear and see."""
        in_queue = self.queue.items.select("clip_id", "class_id")
        has_embeddings = self.recipe.teacher.model.is_probe
        known = (self.workspace, self.scores, self.peaks, self.media, in_queue, has_embeddings)
        registry = ClipRegistry(*known)
        for item, clip_id in self.queue.items.select("item", "clip_id").iter_rows():
            registry.put(item, clip_id)
        return registry

    def items_of(self, rater: str, number: int) -> pl.DataFrame:
        """Return the items of one of a rater's blocks, in their order."""
        items = self.queue.items.filter(pl.col("block") == number).sort("place")
        if items.is_empty() or number not in self.queue.plan_of(rater)["block"]:
            raise Unknown(f"there is no block {number} for {rater}")
        return items

    def _item(self, rater: str, item: str) -> dict[str, Any]:
        """Return an item that a rater may judge; refuse others."""
        row = self.queue.by_item.get(item)
        if row is None:
            raise Unknown("there is no such item in the queue")
        if not self.queue.may_answer(rater, item):
            raise Conflict(_OTHER_RATER)
        return row

    def answers_of(self, rater: str) -> pl.DataFrame:
        """Return the rater's current judgements of this queue, with the block of each."""
        blocks = self.queue.plan_of(rater).select("block")
        places = self.queue.items.join(blocks, on="block", how="semi").select("item", "block")
        return self.judgements.current(rater).join(places, on="item", maintain_order="left")

    def finished_of(self, rater: str) -> pl.DataFrame:
        """Return the rater's judgements in blocks that are finished."""
        own = self.answers_of(rater)
        counts = own.group_by("block").len().join(self.queue.snapshot.plan, on="block")
        done = counts.filter(pl.col("len") >= pl.col("n_items")).select("block")
        return own.join(done, on="block", how="semi", maintain_order="left")


def open_review_session(
    workspace: Workspace, recipe: Recipe, queue: ReviewQueue, progress: Progress = SILENT
) -> ReviewSession:
    """Open the review of a queue.

    Runs the teacher over the clips of the queue to find their peaks, unless that was done before.
    The peaks of blocks that are drawn later are found then.
    """
    labels = queue.labels
    scores = scores_of(workspace, recipe.scores_name, labels["clip_id"].unique())
    _check_queued(workspace, labels, queue.classes)
    store = scored_frames(workspace, recipe)
    media = Media(workspace, recipe.front_end, store)

    def find_more(items: pl.DataFrame, shown: Progress = SILENT) -> Peaks:
        return find_peaks(workspace, recipe, scores, store, items, media.seconds, shown)

    items = queue.items
    located = frozenset(items["block"].to_list())
    peaks = find_more(items, progress)
    return ReviewSession(workspace, recipe, queue, scores, peaks, media, located, find_more)


def _check_queued(workspace: Workspace, labels: pl.DataFrame, classes: Sequence[str]) -> None:
    queued = set(labels["class_id"].unique())
    if not queued:
        raise EarmarkError("the queue is empty: no class has scores, or no label is implicit")
    for class_id in classes:
        if class_id not in queued:
            raise EarmarkError(
                f"class {class_id!r} is not in the queue; draw it anew with `earmark review "
                f"{quoted(workspace.root)} --write-only` (answers are kept)"
            )
