"""The queue of a review: the blocks of every rater, and further blocks drawn while people answer.

p_missing is fitted again after every few answers, in a background thread. A block is drawn from the
latest p_missing, stored (:mod:`earmark.review.queue_items`) and only then given to the rater, so
nobody waits for the fit. When it fails, the previous p_missing stays in use.

:func:`answer_from_truth` lets a scripted rater answer such a queue from a known truth.
"""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.config import QueueAim, ReviewParams
from earmark.errors import EarmarkWarning
from earmark.review.candidates import (
    Ints,
    LabelSelection,
    Population,
    next_alike,
    next_by_class,
    next_by_clip,
    turns_due,
)
from earmark.review.estimates import (
    Gains,
    JudgedLabels,
    YieldForecast,
    advise_change,
    find_gains,
    forecast_yield,
    judged_labels,
    learn_from,
    limited_forecast,
)
from earmark.review.judgements import Conflict, Judgement, JudgementStore
from earmark.review.queue_items import (
    CONTROLS,
    DrawnBlock,
    DrawnBlocks,
    Mode,
    QueueSnapshot,
    items_by_name,
)

N_CLIPS, N_OFFERS = 10, 7
"""Clips in a block of clips, and labels offered for each."""

N_ALIKE, MOST_COMPARED = 10, 300
"""Labels in a block of clips that are alike, and how many of the likeliest are compared."""

REFIT_EVERY, REFIT_SHARE = 5, 0.001
"""Answers after which p_missing is fitted again: so many, or this share of all if more."""


class ReviewQueue:
    """The blocks of a review, by rater.

    All blocks of a queue that was drawn at once are in ``snapshot``; ``classes`` (identifiers)
    leave the blocks of other classes out. A queue with a ``drawer`` has the blocks that were drawn
    so far and draws the next block when a rater needs one; ``classes`` are those to ask about
    until :meth:`limit` changes that. Close the queue, or use it in a ``with``.
    """

    def __init__(
        self,
        snapshot: QueueSnapshot,
        judgements: JudgementStore,
        raters: Sequence[str],
        classes: Iterable[str] = (),
        drawer: BlockDrawer | None = None,
    ) -> None:
        self.aim: QueueAim = snapshot.aim
        self.digest = snapshot.digest
        self.judgements, self.raters, self.classes = judgements, tuple(raters), tuple(classes)
        self._drawer = drawer
        self._only: dict[str, frozenset[str]] = {}
        self._snapshot: QueueSnapshot | None = snapshot
        self._blocks: dict[int, DrawnBlock] = {}
        self._by_item: dict[str, dict[str, Any]] = {}
        # Drawing takes a while. Readers of what was drawn before do not wait for it.
        self._lock, self._drawing = threading.RLock(), threading.RLock()
        if drawer is None:
            self._blocks = {block.block: block for block in deal_blocks(snapshot, self.raters)}
            self._by_item = items_by_name(snapshot.items)
        else:
            self._only = dict.fromkeys(raters, frozenset(self.classes))

    @classmethod
    def growing(
        cls,
        population: Population,
        params: ReviewParams,
        drawn: DrawnBlocks,
        judgements: JudgementStore,
        raters: Sequence[str],
        mode: Mode = "class",
        classes: Iterable[str] = (),
    ) -> ReviewQueue:
        """Return a queue that draws blocks from a population while people answer."""
        drawer = BlockDrawer(population, params, drawn, judgements, len(raters), mode)
        return cls(drawer.snapshot(), judgements, raters, classes, drawer)

    @property
    def drawer(self) -> BlockDrawer:
        """The part that draws and learns; raises Conflict for a queue that was drawn at once."""
        if self._drawer is None:
            raise Conflict("this queue was drawn at once: nothing can be added to it")
        return self._drawer

    @property
    def grows(self) -> bool:
        """Whether blocks are drawn while people answer."""
        return self._drawer is not None

    @property
    def mode(self) -> Mode:
        """The mode of the blocks that are drawn next."""
        return "class" if self._drawer is None else self._drawer.mode

    @property
    def snapshot(self) -> QueueSnapshot:
        """The items drawn so far."""
        with self._lock:
            self._read_on()
            if self._snapshot is None:
                self._snapshot = self.drawer.snapshot()
            return self._snapshot

    @property
    def items(self) -> pl.DataFrame:
        """The table of the items drawn so far."""
        return self.snapshot.items

    @property
    def by_item(self) -> dict[str, dict[str, Any]]:
        """The items drawn so far by their names; a new block adds to it."""
        with self._lock:
            self._read_on()
            return self._by_item

    @property
    def labels(self) -> pl.DataFrame:
        """The labels (clip_id, class_id) that the queue asks about, or may ask about later."""
        return self.items if self._drawer is None else self._drawer.population.names

    def mode_of(self, number: int) -> Mode:
        """Return the mode of a block."""
        with self._lock:
            return self._blocks[number].mode

    def blocks_of(self, rater: str) -> list[DrawnBlock]:
        """Return the blocks of a rater: their own, and those that every rater judges.

        Unstarted blocks of the other mode stay hidden until the rater switches to it.
        """
        with self._lock:
            self._read_on()
            blocks = [block for block in self._blocks.values() if block.is_for(rater)]
        if self._drawer is None and self.classes:
            blocks = [block for block in blocks if block.items["class_id"][0] in self.classes]
        if all(block.mode == self.mode for block in blocks):
            return blocks
        answered = self._answered(rater)
        return [
            block
            for block in blocks
            if block.mode == self.mode or not answered.isdisjoint(block.items["item"])
        ]

    def plan_of(self, rater: str) -> pl.DataFrame:
        """Return the rows of the plan that are blocks of a rater."""
        numbers = [block.block for block in self.blocks_of(rater)]
        return self.snapshot.plan.filter(pl.col("block").is_in(numbers))

    def may_answer(self, rater: str, item: str) -> bool:
        """Tell whether a rater may judge an item.

        Raters judge the items of their blocks and of blocks that they began. Where labels can be
        added, they also judge any label of a clip that is in their blocks.
        """
        row = self.by_item[item]
        with self._lock:
            block = self._blocks[row["block"]]
        if block.is_for(rater):
            return True
        if self.grows and self.block_of_clip(rater, row["clip_id"]) is not None:
            return True
        items = self.items.filter(pl.col("block") == block.block)["item"]
        return not self._answered(rater).isdisjoint(items)

    def block_of_clip(self, rater: str, clip_id: str) -> int | None:
        """Return the last block of a rater that has a clip."""
        blocks = [one for one in self.blocks_of(rater) if clip_id in one.items["clip_id"]]
        return blocks[-1].block if blocks else None

    def next_block(self, rater: str, after: int | None = None) -> DrawnBlock | None:
        """Return the rater's first unfinished block; draw a block if there is none.

        ``after`` is a block that is about to be finished, so the one behind it is wanted. None when
        nothing is left to ask about.
        """
        with self._drawing:
            answered, only = self._answered(rater), self.only(rater)
            for block in self.blocks_of(rater):
                if only and not only.issuperset(block.items["class_id"]):
                    continue  # it waits until all classes are asked about again
                if block.block != after and not answered.issuperset(block.items["item"]):
                    return block
            return next(iter(self.draw_blocks(rater, 1)), None)

    def draw_blocks(self, rater: str, n_blocks: int) -> list[DrawnBlock]:
        """Draw up to ``n_blocks`` further blocks for a rater, whatever is finished."""
        blocks: list[DrawnBlock] = []
        if self._drawer is None:
            return blocks
        with self._drawing:
            while len(blocks) < n_blocks:
                block = self._drawer.draw(rater, self.only(rater))
                if block is None:
                    break
                blocks.append(block)
        return blocks

    def draw_alike(
        self, rater: str, label: int, likeness: Callable[[Ints], NDArray[np.floating]]
    ) -> DrawnBlock | None:
        """Draw a block of labels of a class whose clips are most like that of a label.

        ``likeness`` compares the clips of some candidates with it; it is called for the likeliest
        candidates only. The block holds no sample and no controls. None when no label is left.
        """
        with self._drawing:
            return self.drawer.draw_alike(rater, label, likeness)

    def add_label(
        self, block: int, item: str, clip_id: str, class_id: str, logit: float | None, rater: str
    ) -> None:
        """Add a label that a rater wants to answer; an item that is there stays."""
        with self._lock:
            if item not in self.by_item:
                self.drawer.add_label(block, item, clip_id, class_id, logit, rater)
                self._note_items([])

    def only(self, rater: str) -> frozenset[str]:
        """Return the classes that blocks are drawn from for a rater; empty means all classes."""
        return self._only.get(rater, frozenset())

    def limit(self, rater: str, classes: Iterable[str]) -> None:
        """Draw a rater's next blocks from some classes only; from all without any.

        The sample waits meanwhile, because it is of all classes.
        """
        _ = self.drawer
        self._only[rater] = frozenset(classes)

    def note_answer(self) -> None:
        """Count an answer that was stored; p_missing is fitted again after every few."""
        if self._drawer is not None:
            self._drawer.note_answer()

    def gains_of(self, rater: str, name: Callable[[str], str], gains: Gains | None = None) -> Gains:
        """Return gains, the latest by default, with the forecast of a rater's classes.

        They advise another class where that promises far more; ``name`` names a class.
        """
        return self.drawer.gains_of(self.only(rater), name, gains)

    def close(self) -> None:
        """Stop learning."""
        if self._drawer is not None:
            self._drawer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answered(self, rater: str) -> set[str]:
        return set(self.judgements.current(rater)["item"])

    def _read_on(self) -> None:
        """Take over the blocks that were drawn meanwhile, by whichever process."""
        if self._drawer is None:
            return
        blocks = self._drawer.blocks()[len(self._blocks) :]
        if blocks:
            self._blocks |= {block.block: block for block in blocks}
            self._note_items([block.items for block in blocks])

    def _note_items(self, blocks: Sequence[pl.DataFrame]) -> None:
        """Add the items of new blocks, and the labels that raters added."""
        for items in blocks:
            self._by_item |= items_by_name(items)
        for item, row in items_by_name(self.drawer.added()).items():
            self._by_item.setdefault(item, row)
        self._snapshot = None


def deal_blocks(snapshot: QueueSnapshot, raters: Sequence[str]) -> list[DrawnBlock]:
    """Return the blocks of a queue that was drawn at once, with a rater for each.

    Raters take turns at the blocks that are not shared.
    """
    parts = {
        int(number): items
        for (number,), items in snapshot.items.group_by("block", maintain_order=True)
    }
    blocks, turn = [], 0
    for number in sorted(parts):
        is_shared = bool(parts[number]["is_shared"][0])
        rater = "" if is_shared else raters[turn % len(raters)]
        turn += not is_shared
        blocks.append(DrawnBlock(number, rater, is_shared, "class", 0, 0, parts[number]))
    return blocks


class BlockDrawer:
    """Draws blocks from a population, by p_missing that is fitted again while people answer."""

    def __init__(
        self,
        population: Population,
        params: ReviewParams,
        drawn: DrawnBlocks,
        judgements: JudgementStore,
        n_raters: int = 1,
        mode: Mode = "class",
    ) -> None:
        self.population, self.params, self.mode = population, params, mode
        self._drawn, self._judgements, self._n_raters = drawn, judgements, n_raters
        self._blocks: list[DrawnBlock] = []
        self._lock, self._learning = threading.RLock(), threading.RLock()
        self._wake, self._is_closed = threading.Event(), False
        self._model = population.candidates.given.model
        self._p_missing = population.candidates.p_missing(self._model)
        self._judged: JudgedLabels | None = None
        self._n_noted = 0
        self._gains: Gains | None = None
        self._gains_from: JudgedLabels | None = None
        self._served, self._n_wanted, self._n_served = threading.Condition(), 0, 0
        self.learn()
        self._thread = threading.Thread(target=self._keep_learning, daemon=True)
        self._thread.start()

    def blocks(self) -> list[DrawnBlock]:
        """Return all blocks drawn so far, by whichever process."""
        with self._lock:
            self._blocks += self._drawn.since(len(self._blocks))
            return list(self._blocks)

    def added(self) -> pl.DataFrame:
        """Return the labels that raters added, as items at the ends of their blocks."""
        return self._drawn.added()

    def snapshot(self) -> QueueSnapshot:
        """Return the items drawn so far."""
        return self.population.snapshot([block.items for block in self.blocks()], self._drawn)

    def add_label(
        self, block: int, item: str, clip_id: str, class_id: str, logit: float | None, rater: str
    ) -> None:
        """Store a label that a rater wants to answer."""
        self._drawn.add_label(block, item, clip_id, class_id, logit, rater)

    def draw(self, rater: str, only: Collection[str] = ()) -> DrawnBlock | None:
        """Draw and store the next block for a rater, of some classes only if they are given.

        Returns None when nothing is left to ask about.
        """
        while (block := self._choose(rater, only)) is not None:
            if self._drawn.add(block):
                return block  # else another process has taken the number
        return None

    @property
    def gains(self) -> Gains:
        """What is known as of the last fit of p_missing.

        Found when it is asked for: it takes several times as long as learning.
        """
        with self._learning:
            assert self._judged is not None
            if self._gains is None or self._gains_from is not self._judged:
                share = self.params.sample_share
                self._gains = find_gains(self.population, self._judged, self._model, share)
                self._gains_from = self._judged
            return self._gains

    def latest_gains(self, seconds: float) -> tuple[Gains | None, bool]:
        """Return the gains found last, and whether they count every answer stored before the call.

        The thread that learns finds them; this waits for it at most so many seconds. None before
        the first were found.
        """
        with self._served:
            self._n_wanted += 1
            ticket = self._n_wanted
            self._wake.set()
            is_current = self._served.wait_for(lambda: self._n_served >= ticket, seconds)
            return self._gains, is_current

    def gains_of(
        self, only: Collection[str], name: Callable[[str], str], gains: Gains | None = None
    ) -> Gains:
        """Return gains, the latest by default, with the forecast of some classes.

        They advise another class where that promises far more; ``name`` names a class.
        """
        gains = self.gains if gains is None else gains
        population, p_missing, judged = self.population, self._p_missing, self._judged
        if not only or judged is None:
            return gains
        candidates, class_ids = population.candidates, population.class_ids
        is_wanted = population.is_of(only)
        limited = limited_forecast(gains, judged, p_missing, is_wanted)
        columns = set(candidates.columns[is_wanted].tolist())
        change = advise_change(
            candidates, judged, p_missing, lambda column: name(class_ids[column]), columns
        )
        return replace(limited, change=change)

    @property
    def forecast(self) -> YieldForecast:
        """How many of the next labels of each class would be present, by the latest p_missing."""
        assert self._judged is not None
        return forecast_yield(self.population.candidates, self._judged, self._p_missing)

    def draw_alike(
        self, rater: str, label: int, likeness: Callable[[Ints], NDArray[np.floating]]
    ) -> DrawnBlock | None:
        """Draw and store a block (see :meth:`ReviewQueue.draw_alike`)."""
        candidates, blocks = self.population.candidates, self.blocks()
        is_open = self._is_open(blocks)
        (near,) = np.nonzero(is_open & (candidates.columns == candidates.columns[label]))
        near = near[np.argsort(-self._p_missing[near], kind="stable")][:MOST_COMPARED]
        alike = np.full(len(candidates), np.nan)
        alike[near] = likeness(near)
        n_turns = blocks[-1].n_turns if blocks else 0
        selection = next_alike(candidates, label, alike, is_open, N_ALIKE, n_turns)
        if not len(selection.places):
            return None
        items = self.population.items(selection, self._p_missing)
        block = self._block(len(blocks), rater, selection, items, is_shared=False)
        is_added = self._drawn.add(block)
        return block if is_added else self.draw_alike(rater, label, likeness)

    def note_answer(self) -> None:
        """Say that an answer was stored: p_missing is fitted again after every few."""
        self._n_noted += 1
        n_judged = 0 if self._judged is None else len(self._judged)
        if self._n_noted % max(REFIT_EVERY, int(REFIT_SHARE * n_judged)) == 0:
            self._wake.set()

    def learn(self) -> None:
        """Fit p_missing to what was judged by now."""
        with self._learning:
            judged = self.judged()
            if self._judged is not None and judged.is_same(self._judged):
                return
            candidates = self.population.candidates
            self._model = learn_from(candidates, judged)
            self._p_missing, self._judged = candidates.p_missing(self._model), judged

    def learn_or_warn(self, *, with_gains: bool = False) -> None:
        """Learn, and go on by what was known before where that fails."""
        try:
            self.learn()
            if with_gains:
                _ = self.gains
        except Exception as error:
            told = f"p_missing could not be fitted to the last answers: {error}; older ones stay"
            warnings.warn(told, EarmarkWarning, stacklevel=2)

    def judged(self) -> JudgedLabels:
        """Return what people said of candidates by now."""
        return judged_labels(self.population, self.blocks(), self._judgements.current())

    def close(self) -> None:
        """Stop learning, and close the file of blocks."""
        self._is_closed = True
        self._wake.set()
        self._thread.join()
        self._drawn.close()

    def _keep_learning(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._is_closed:
                return
            n_wanted = self._n_wanted
            self.learn_or_warn(with_gains=n_wanted > self._n_served)
            with self._served:
                self._n_served = n_wanted
                self._served.notify_all()

    def _choose(self, rater: str, only: Collection[str]) -> DrawnBlock | None:
        """Choose the labels of the next block by the latest p_missing."""
        blocks = self.blocks()
        own, number = self.population, len(blocks)
        kinds = pl.concat([pl.Series(dtype=pl.String), *(block.items["kind"] for block in blocks)])
        n_drawn = int((~kinds.is_in(CONTROLS)).sum())
        n_most = self.params.n_items
        n_labels = self.params.flags_per_block if self.mode == "class" else N_CLIPS * N_OFFERS
        if n_most is not None:
            n_labels = min(n_labels, n_most - n_drawn)
        is_open = self._is_open(blocks)
        if only:
            is_open &= own.is_of(only)
        if n_labels <= 0 or not is_open.any():
            return None
        start = blocks[-1].n_turns if blocks else 0
        end = start if only else self._turns_end(start, n_drawn, n_labels)
        selection = self._selection(is_open, (start, end), n_labels)
        if not len(selection.places):
            return None
        items = own.items(selection, self._p_missing)
        used = [block.items["item"] for block in blocks]
        add = own.with_controls if self.mode == "class" else own.with_known
        items = add(items, number, used, self.params)
        is_shared = self._n_raters > 1 and _is_shared(number, self.params.overlap)
        return self._block(number, rater, selection, items, is_shared=is_shared, mode=self.mode)

    def _block(
        self,
        number: int,
        rater: str,
        selection: LabelSelection,
        items: pl.DataFrame,
        *,
        is_shared: bool,
        mode: Mode = "class",
    ) -> DrawnBlock:
        n_answers = len(self._judged) if self._judged else 0
        return DrawnBlock(number, rater, is_shared, mode, n_answers, selection.n_turns, items)

    def _turns_end(self, start: int, n_drawn: int, n_labels: int) -> int:
        """Return the turn of the sample before which a block ends that begins with ``start``.

        A sample that had to wait catches up, at twice its share.
        """
        share = self.params.sample_share
        if self.mode == "clip":
            return start + max(round(share * -(-n_labels // N_OFFERS)), 1)
        most = start + turns_due(2 * share, 0, n_labels)
        return min(turns_due(share, n_drawn, n_labels), most)

    def _selection(
        self, is_open: NDArray[np.bool_], turns: tuple[int, int], n_labels: int
    ) -> LabelSelection:
        own = self.population.candidates
        worth = self._p_missing * own.worth[own.columns]
        if self.mode == "class":
            return next_by_class(own, worth, is_open, turns, n_labels)
        return next_by_clip(own, worth, is_open, turns, -(-n_labels // N_OFFERS), N_OFFERS)

    def _is_open(self, blocks: Sequence[DrawnBlock]) -> NDArray[np.bool_]:
        """Return which candidates [label] were neither drawn nor judged of."""
        own = self.population
        is_open = np.ones(len(own.candidates), bool)
        is_open[self.judged().places] = False
        if blocks:
            is_open[own.places(pl.concat(block.items for block in blocks))] = False
        return is_open


def _is_shared(number: int, overlap: float) -> bool:
    """Tell whether every rater judges a block: the first, then evenly spread."""
    return bool(np.ceil((number + 1) * overlap) > np.ceil(number * overlap))


_RATER = "scripted"


def answer_from_truth(
    population: Population,
    params: ReviewParams,
    n_answers: int,
    is_present: Callable[[str, str], bool],
) -> NDArray[np.int64]:
    """Let a rater who knows the truth of (clip, class) answer so many labels, block by block.

    Chances are learnt anew after every block, as on the page, and nothing stays on disk. Returns
    the places, among the population's candidates, of the labels that were asked about.
    """
    asked = params.model_copy(update={"n_items": n_answers})
    with (
        tempfile.TemporaryDirectory() as folder,
        JudgementStore(":memory:") as store,
        DrawnBlocks(Path(folder) / "drawn.sqlite", "") as drawn,
        ReviewQueue.growing(population, asked, drawn, store, [_RATER]) as queue,
    ):
        while (block := queue.next_block(_RATER)) is not None:
            store.add_all(_answers(block, is_present))
            queue.drawer.learn()
        return queue.drawer.judged().places


def _answers(block: DrawnBlock, is_present: Callable[[str, str], bool]) -> list[Judgement]:
    now = datetime.now(UTC)
    return [
        Judgement(
            id=uuid4(),
            at=now,
            rater=_RATER,
            item=row["item"],
            clip_id=row["clip_id"],
            class_id=row["class_id"],
            answer="present" if is_present(row["clip_id"], row["class_id"]) else "not_present",
        )
        for row in block.items.iter_rows(named=True)
    ]
