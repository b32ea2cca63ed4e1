"""What the page asks, answered: the rater's blocks, a clip's sound, a summary, and what to store.

Answers are plain dictionaries, ready to be sent as JSON. A rater sees nothing that could sway the
next answer: not the kind of an item, not its clip's name, not its score unless asked for (which is
stored with the answer), not what others said, and no precision before a block is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import polars as pl
from pydantic import AwareDatetime, ConfigDict, Field, model_validator
from pydantic.types import UUID4

from earmark.datasets import Workspace, scored_frames, scores_of, whole_scores
from earmark.errors import EarmarkError, quoted
from earmark.flags import count_missing
from earmark.review.answers import read_heard
from earmark.review.class_card import Cards
from earmark.review.flag_precision import PRECISION_SCHEMA, controls, curve, precision_table
from earmark.review.judgements import ANSWERS, Answer, Judgement, JudgementStore, check_span
from earmark.review.peaks import Peaks, find_peaks
from earmark.review.queue import Queue, block_plan, blocks_of
from earmark.review.scope import Scope, flags_asked
from earmark.review.server.media import Media
from earmark.runs import SILENT, Params, Progress, Recipe, digest
from earmark.scores import ScoreFolder, scored_labels

_NOT_JUDGED = {"n_judged": 0} | dict.fromkeys(("low", "high", "interval_low", "interval_high"))


class Unknown(EarmarkError):  # noqa: N818 - named for what it is
    """There is no such block, item or clip."""


class Conflict(EarmarkError):  # noqa: N818 - named for what it is
    """The request contradicts what is stored."""


class Posted(Params):
    """What the page sends for every key press; clip, class and queue are the server's to add."""

    model_config = ConfigDict(strict=True)

    id: UUID4
    at: AwareDatetime
    rater: str = Field(max_length=100)
    item: str = Field(max_length=100)
    answer: Answer | None
    span_start: float | None = Field(None, ge=0, le=86_400, allow_inf_nan=False)
    span_end: float | None = Field(None, ge=0, le=86_400, allow_inf_nan=False)
    heard_seconds: float = Field(0.0, ge=0, le=86_400, allow_inf_nan=False)
    whole_clip: bool = False
    shown_score: bool = False
    shown_picture: bool = True
    retracts: UUID4 | None

    @model_validator(mode="after")
    def _span_is_a_part(self) -> Self:
        check_span(self.span_start, self.span_end)
        return self


@dataclass(frozen=True, eq=False)
class Desk:
    """One review of a workspace; ``classes`` (identifiers) narrows it down where given."""

    workspace: Workspace
    recipe: Recipe
    queue: Queue
    scores: ScoreFolder
    peaks: Peaks
    media: Media
    judgements: JudgementStore
    raters: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def session(self, rater: str) -> dict[str, Any]:
        """Return the rater's blocks and the answers given so far, in the order of time."""
        blocks = self._blocks(rater)
        names = pl.Series([self.workspace.ontology.name(c) for c in blocks["class_id"]])
        history = self._own(rater).select("id", "item", "block", "answer")
        return {
            "rater": rater,
            "queue": self.queue_digest,
            "blocks": blocks.select("block", "class_id", "n_items", name=names).to_dicts(),
            "history": history.to_dicts(),
            "bands": {
                "low_hz": self.recipe.front_end.low_hz,
                "high_hz": self.recipe.front_end.high_hz,
            },
        }

    def block(self, rater: str, number: int) -> dict[str, Any]:
        """Return a block's class card and its items, with start and end of their peaks in seconds.

        An item without peaks is one of which nobody knows where to listen.
        """
        items = self._items(rater, number)
        class_id = items["class_id"][0]
        return {
            "block": number,
            "card": self._card(class_id),
            "items": [
                {"item": item, "peaks": self.peaks.spans(clip_id, class_id)}
                for item, clip_id in items.select("item", "clip_id").iter_rows()
            ],
        }

    def score(self, item: str) -> dict[str, Any]:
        """Return the teacher's score of an item and its output for each patch."""
        row = self._item(item)
        patches = self.peaks.patches(row["clip_id"], row["class_id"])
        return {"logit": row["logit"], "patches": patches}

    def about(self, item: str) -> dict[str, Any]:
        """Return the name of an item's clip and the classes that it was given."""
        clip_id, ontology = self._item(item)["clip_id"], self.workspace.ontology
        given = self.workspace.labels.rows().filter(clip_id=clip_id, present=True)
        return {"clip_id": clip_id, "labels": [ontology.name(c) for c in given["class_id"]]}

    def summary(self, rater: str, number: int) -> dict[str, Any]:
        """Return how a finished block went, and the precision of the class's flags so far."""
        items, own = self._items(rater, number), self._own(rater)
        answered = own.filter(pl.col("block") == number)
        if len(answered) < len(items):
            raise Conflict(
                f"block {number}: {len(answered)} of {len(items)} items have an answer; "
                "its summary comes when all have"
            )
        class_id = items["class_id"][0]
        queue = self._only(class_id)
        finished = self._finished(rater)
        table = precision_table(queue, finished, self.flags)
        flags = table.filter(scope="flags", class_id=class_id)
        is_sample = self.queue.order == "random"
        points = curve(queue, finished, class_id) if is_sample else PRECISION_SCHEMA.to_frame()
        known = controls(self.queue, answered).filter(block=number)
        return {
            "name": self.workspace.ontology.name(class_id),
            "answers": {name: int((answered["answer"] == name).sum()) for name in ANSWERS},
            "flags": self.flags.told,
            "is_sample": is_sample,
            **(_precision(flags.row(0, named=True)) if len(flags) else _NOT_JUDGED),
            "gold": {
                "passed": int(known["n_passed"].sum()),
                "total": int(known.select(pl.sum_horizontal("^n_.*$").sum()).item()),
                "is_failed": bool(known["is_failed"].any()),
            },
            "points": [
                {"percent": row["discard_percent"], **_precision(row)}
                for row in points.iter_rows(named=True)
            ],
        }

    def overview(self, rater: str) -> dict[str, Any]:
        """Return a row for each class: flags, progress, precision, estimated missing labels."""
        counts = self._own(rater).group_by("class_id").agg(n_answered=pl.len())
        classes = self._blocks(rater).group_by("class_id", maintain_order=True).agg(
            pl.col("n_items").sum()
        )  # fmt: skip
        found = precision_table(self.queue, self._finished(rater), self.flags)
        found = found.filter(pl.col("class_id").is_not_null(), scope="flags").drop("scope")
        table = classes
        found = found.rename({"n_labels": "n_flags"})
        for more in (counts, found, self._missing):
            table = table.join(more, on="class_id", how="left", maintain_order="left")
        rows = [self._class_row(row) for row in table.iter_rows(named=True)]
        is_sample = self.queue.order == "random"
        return {"flags": self.flags.told, "is_sample": is_sample, "classes": rows}

    def record(self, rater: str, posted: Posted) -> bool:
        """Store what a rater said; False if it was stored before. Returns once it is on disk."""
        if posted.rater != rater:
            raise Conflict(
                f"this browser is signed in as {rater!r}, but the answer is {posted.rater!r}'s; "
                "give each rater a browser, or a private window, of their own"
            )
        row = self._item(posted.item)
        if posted.retracts is not None:
            self._check_retraction(rater, posted)
        if (posted.answer is None) == (posted.retracts is None):
            raise Conflict("a judgement has either an answer or the id that it retracts")
        label = {name: row[name] for name in ("clip_id", "class_id")}
        given = Judgement(**posted.model_dump(), **label, queue_digest=self.queue_digest)
        return self.judgements.add(given)

    def sound(self, sound_id: str) -> bytes:
        """Return the WAV of an item or example; raises UnreadableAudio with the reason."""
        return self.media.sound(self._clip_id(sound_id))

    def picture(self, sound_id: str) -> bytes:
        """Return the PNG of an item or example; raises UnreadableAudio with the reason."""
        return self.media.picture(self._clip_id(sound_id))

    @cached_property
    def queue_digest(self) -> str:
        """Identifies the queue; stored with every answer."""
        return self.queue.digest

    @cached_property
    def flags(self) -> Scope:
        """The flags that are summed up: those that `earmark flag` wrote, if there are any."""
        return flags_asked(self.workspace, self.queue)

    def _blocks(self, rater: str) -> pl.DataFrame:
        """Return the plan of the rater's blocks, of the chosen classes."""
        own = self._plan.filter(pl.col("block").is_in(blocks_of(self._plan, rater, self.raters)))
        return own.filter(pl.col("class_id").is_in(self.classes)) if self.classes else own

    @cached_property
    def _plan(self) -> pl.DataFrame:
        return block_plan(self.queue.items)

    def _items(self, rater: str, number: int) -> pl.DataFrame:
        items = self.queue.items.filter(pl.col("block") == number).sort("place")
        if items.is_empty() or number not in self._blocks(rater)["block"]:
            raise Unknown(f"there is no block {number} for {rater}")
        return items

    @cached_property
    def _by_item(self) -> dict[str, dict[str, Any]]:
        columns = self.queue.items.select("item", "clip_id", "class_id", "logit", "block")
        return {row["item"]: row for row in columns.iter_rows(named=True)}

    def _item(self, item: str) -> dict[str, Any]:
        if item not in self._by_item:
            raise Unknown("there is no such item in the queue")
        return self._by_item[item]

    def _own(self, rater: str) -> pl.DataFrame:
        """Return the rater's current judgements of this queue, with the block of each."""
        blocks = self._blocks(rater).select("block")
        places = self.queue.items.join(blocks, on="block", how="semi").select("item", "block")
        return self.judgements.current(rater).join(places, on="item", maintain_order="left")

    def _finished(self, rater: str) -> pl.DataFrame:
        """Return the rater's judgements in blocks that are finished."""
        own = self._own(rater)
        counts = own.group_by("block").len().join(self._plan, on="block")
        done = counts.filter(pl.col("len") >= pl.col("n_items")).select("block")
        return own.join(done, on="block", how="semi", maintain_order="left")

    def _only(self, class_id: str) -> Queue:
        is_own = pl.col("class_id") == class_id
        items, sizes = self.queue.items.filter(is_own), self.queue.sizes.filter(is_own)
        return replace(self.queue, items=items, sizes=sizes)

    def _check_retraction(self, rater: str, posted: Posted) -> None:
        rows = self.judgements.rows().filter(id=str(posted.retracts), rater=rater, item=posted.item)
        if rows.is_empty():
            raise Conflict(f"{rater} has stored no judgement {posted.retracts} of this item")

    @cached_property
    def _cards(self) -> Cards:
        labels = scored_labels(self.scores, self.workspace.labels)
        clips = pl.DataFrame({"clip_id": labels.clip_ids}).join(
            self.workspace.clips, on="clip_id", how="left", maintain_order="left"
        )
        return Cards(
            labels,
            self.scores.logits,
            self.workspace.ontology,
            clips["source"],
            clips["audio"].is_not_null().to_numpy(),
            self.queue.items.select("clip_id", "class_id"),
        )

    def _card(self, class_id: str) -> dict[str, Any]:
        card = self._cards.make(class_id)
        decoy = None if card.decoy is None else self._example(card.decoy, class_id)
        return {
            "class_id": class_id,
            "name": card.name,
            "path": card.path,
            "definition": card.definition,
            "confused": card.confused,
            "examples": [self._example(clip_id, class_id) for clip_id in card.examples],
            "decoy": decoy,
        }

    def _example(self, clip_id: str, class_id: str) -> dict[str, Any]:
        name = digest("example", clip_id, class_id)
        self._example_clips[name] = clip_id
        return {"id": name, "peak": next(iter(self.peaks.spans(clip_id, class_id)), None)}

    def _clip_id(self, sound_id: str) -> str:
        row = self._by_item.get(sound_id)
        clip_id = self._example_clips.get(sound_id) if row is None else row["clip_id"]
        if clip_id is None:
            raise Unknown("there is no such clip")
        return str(clip_id)

    @cached_property
    def _missing(self) -> pl.DataFrame:
        # As `earmark flag` counts: in every scored clip, whichever of them are in the queue.
        of_train = ScoreFolder.open(self.workspace.scores_folder(self.recipe.scores_name))
        whole = whole_scores(self.workspace, of_train)
        labels = scored_labels(whole, self.workspace.labels)
        heard = read_heard(self.workspace, labels)
        counted = count_missing(
            labels,
            whole.logits,
            ontology=self.workspace.ontology,
            answers=heard.answers if heard else None,
        ).table.fill_nan(None)
        return counted.select("class_id", "n_missing", missing_low="low", missing_high="high")

    def _class_row(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "class_id": row["class_id"],
            "name": self.workspace.ontology.name(row["class_id"]),
            "n_flags": row["n_flags"] or 0,
            "n_items": row["n_items"],
            "n_answered": row["n_answered"] or 0,
            **_precision(row),
            **{name: row[name] for name in ("n_missing", "missing_low", "missing_high")},
        }

    @cached_property
    def _example_clips(self) -> dict[str, str]:
        return {}


def _precision(row: dict[str, Any]) -> dict[str, Any]:
    """Return bounds and interval of a row of a precision table; null where nothing was judged."""
    if not row["n_judged"]:
        return _NOT_JUDGED
    return {
        "n_judged": row["n_judged"],
        "low": row["precision_low"],
        "high": row["precision_high"],
        "interval_low": row["low"],
        "interval_high": row["high"],
    }


def open_desk(
    workspace: Workspace,
    recipe: Recipe,
    queue: Queue,
    judgements: JudgementStore,
    raters: Sequence[str],
    classes: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Desk:
    """Open the review of a queue; ``classes`` are names or identifiers, all by default.

    Runs the teacher over the queue's clips to find their peaks, unless that was done before.
    """
    scores = scores_of(workspace, recipe.scores_name, queue.items["clip_id"])
    chosen = tuple(workspace.ontology.find(name) for name in classes)
    _check_queued(workspace, queue, chosen)
    store = scored_frames(workspace, recipe)
    media = Media(workspace, recipe.front_end, store)
    peaks = find_peaks(workspace, recipe, scores, store, queue.items, media.seconds, progress)
    return Desk(workspace, recipe, queue, scores, peaks, media, judgements, tuple(raters), chosen)


def _check_queued(workspace: Workspace, queue: Queue, classes: Sequence[str]) -> None:
    known = set(queue.items["class_id"].unique())
    if not known:
        raise EarmarkError("the queue is empty: no class has scores, or no label is implicit")
    for class_id in classes:
        if class_id not in known:
            raise EarmarkError(
                f"class {class_id!r} is not in the queue; draw it anew with `earmark queue "
                f"{quoted(workspace.root)}` (answers are kept)"
            )
