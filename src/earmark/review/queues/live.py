"""The queue while people answer: blocks are drawn one after the other, by what was heard so far.

After every few answers chances are learnt anew in a thread of its own. A block is drawn from the
chances of that moment, stored (:mod:`earmark.review.queues.drawn`) and only then handed out, so
nobody waits for learning, and learning that fails leaves the chances of before.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkWarning
from earmark.review.judgements import JudgementStore
from earmark.review.queues.candidates import Ints
from earmark.review.queues.drawn import DrawnBlock, DrawnBlocks, Mode
from earmark.review.queues.gains import Gains, find_gains
from earmark.review.queues.heard import HeardSoFar, heard_of, learn_from
from earmark.review.queues.population import Population
from earmark.review.queues.portions import (
    Portion,
    next_alike,
    next_by_class,
    next_by_clip,
    turns_due,
)
from earmark.review.queues.promise import (
    Promise,
    advise_change,
    find_promise,
    limited_forecast,
)
from earmark.review.queues.queue import CONTROLS, Queue
from earmark.runs import ReviewParams

N_CLIPS, N_OFFERS = 10, 7
"""Clips in a block of clips, and labels offered for each."""

N_ALIKE, MOST_COMPARED = 10, 300
"""Labels in a block of clips that are alike, and how many of the likeliest are compared."""

REFIT_EVERY = 5
"""Answers after which chances are learnt anew."""


class LiveQueue:
    """A queue that goes on as people answer; close it, or use it in a ``with``.

    With ``classes`` (identifiers) only these are asked about, until :meth:`limit` says otherwise.
    """

    def __init__(
        self,
        population: Population,
        params: ReviewParams,
        drawn: DrawnBlocks,
        judgements: JudgementStore,
        raters: Sequence[str],
        mode: Mode = "class",
        classes: Iterable[str] = (),
    ) -> None:
        self.population, self.params, self.mode = population, params, mode
        self._drawn, self._judgements, self._raters = drawn, judgements, tuple(raters)
        self._blocks: list[DrawnBlock] = []
        self._queue: Queue | None = None
        # Drawing takes a while; who wants to know what was drawn does not wait for it.
        self._lock, self._drawing, self._learning = (threading.RLock() for _ in range(3))
        self._wake, self._learnt, self._is_closed = threading.Event(), threading.Event(), False
        self._chances = population.candidates.chances(None)
        self._heard: HeardSoFar | None = None
        self._n_noted = 0
        self._gains: Gains | None = None
        self._only: dict[str, frozenset[str]] = dict.fromkeys(raters, frozenset(classes))
        self.learn()
        self._thread = threading.Thread(target=self._keep_learning, daemon=True)
        self._thread.start()

    @property
    def queue(self) -> Queue:
        """What was drawn so far."""
        with self._lock:
            self._read_on()
            if self._queue is None:
                blocks = [block.items for block in self._blocks]
                self._queue = self.population.queue(blocks, self._drawn)
            return self._queue

    def mode_of(self, number: int) -> Mode:
        """Return how a block is heard."""
        with self._lock:
            return self._blocks[number].mode

    def is_dealt(self, rater: str, number: int) -> bool:
        """Tell whether a block is a rater's own, or one that every rater judges."""
        with self._lock:
            block = self._blocks[number]
            return block.is_shared or block.rater == rater

    def block_of_clip(self, rater: str, clip_id: str) -> int | None:
        """Return the last block of a rater that has a clip."""
        own = [one for one in self.blocks_of(rater) if clip_id in one.items["clip_id"]]
        return own[-1].block if own else None

    def add_label(
        self, block: int, item: str, clip_id: str, class_id: str, logit: float | None, rater: str
    ) -> None:
        """Let a label be answered that a rater wants to answer; an item that is there stays."""
        with self._lock:
            if item not in self.queue.by_item:
                self._drawn.add_label(block, item, clip_id, class_id, logit, rater)
                self._queue = None

    @property
    def gains(self) -> Gains:
        """What listening has found by the last time that chances were learnt.

        Found when it is asked for: it takes several times as long as learning.
        """
        with self._learning:
            assert self._heard is not None
            if self._gains is None:
                own, share = self.population, self.params.sample_share
                asked = (own.candidates, self._heard, self._chances, own.flags, share)
                self._gains = find_gains(*asked)
            return self._gains

    def only(self, rater: str) -> frozenset[str]:
        """Return the classes that a rater is asked about alone; none where it is all of them."""
        return self._only.get(rater, frozenset())

    def limit(self, rater: str, classes: Iterable[str]) -> None:
        """Ask a rater about some classes alone from the next block on; about all without any.

        The sample waits meanwhile: it is of all classes.
        """
        self._only[rater] = frozenset(classes)

    def gains_of(self, rater: str, name: Callable[[str], str]) -> Gains:
        """Return the gains with the forecast of what a rater is asked about.

        Where another class promises far more, they say so; ``name`` names a class.
        """
        own, only = self.population, self.only(rater)
        chances, heard = self._chances, self._heard
        if not only or heard is None:
            return self.gains
        is_wanted, class_ids = own.is_of(only), own.class_ids
        limited = limited_forecast(self.gains, heard, chances, is_wanted)
        columns = set(own.candidates.columns[is_wanted].tolist())
        change = advise_change(
            own.candidates, heard, chances, lambda one: name(class_ids[one]), columns
        )
        return replace(limited, change=change)

    @property
    def promise(self) -> Promise:
        """What every class promises by now."""
        assert self._heard is not None
        return find_promise(self.population.candidates, self._heard, self._chances)

    def blocks_of(self, rater: str) -> list[DrawnBlock]:
        """Return the blocks of a rater: their own, and those that every rater judges.

        A block that is heard in the other way, and was not begun, waits until that is asked for.
        """
        with self._lock:
            self._read_on()
            own = [one for one in self._blocks if one.is_shared or one.rater == rater]
            if all(one.mode == self.mode for one in own):
                return own
            answered = set(self._judgements.current(rater)["item"])
            return [
                one
                for one in own
                if one.mode == self.mode or not answered.isdisjoint(one.items["item"])
            ]

    def next_block(self, rater: str, after: int | None = None) -> DrawnBlock | None:
        """Return the rater's first block that is not finished, drawn now if there is none.

        ``after`` is a block that is about to be finished: the one that comes next is asked for
        ahead. None when there is nothing left to ask about.
        """
        with self._drawing:
            answered, only = set(self._judgements.current(rater)["item"]), self.only(rater)
            for block in self.blocks_of(rater):
                if only and not only.issuperset(block.items["class_id"]):
                    continue  # it waits until all classes are asked about again
                if block.block != after and not answered.issuperset(block.items["item"]):
                    return block
            return next(iter(self.draw_blocks(rater, 1)), None)

    def draw_blocks(self, rater: str, n_blocks: int) -> list[DrawnBlock]:
        """Draw blocks for a rater, whether those of before are finished or not."""
        found: list[DrawnBlock] = []
        with self._drawing:
            while len(found) < n_blocks:
                drawn = self._draw(rater, self._known())
                if drawn is None:
                    break
                if self._drawn.add(drawn):  # or another process has taken the number
                    found.append(drawn)
        return found

    def draw_alike(
        self, rater: str, label: int, likeness: Callable[[Ints], NDArray[np.floating]]
    ) -> DrawnBlock | None:
        """Draw a block of labels of a class whose clips are most like that of one; None without.

        ``likeness`` says how much the clips of some candidates are; only the likeliest are asked
        for. The block holds no sample and no controls.
        """
        own = self.population.candidates
        with self._drawing:
            blocks = self._known()
            is_open = self._is_open(blocks)
            (near,) = np.nonzero(is_open & (own.columns == own.columns[label]))
            near = near[np.argsort(-self._chances[near], kind="stable")][:MOST_COMPARED]
            alike = np.full(len(own), np.nan)
            alike[near] = likeness(near)
            n_turns = blocks[-1].n_turns if blocks else 0
            portion = next_alike(own, label, alike, is_open, N_ALIKE, n_turns)
            if not len(portion.places):
                return None
            items = self.population.items(portion, self._chances)
            drawn = self._block(len(blocks), rater, portion, items, is_shared=False)
            is_added = self._drawn.add(drawn)
            return drawn if is_added else self.draw_alike(rater, label, likeness)

    def note_answer(self) -> None:
        """Say that an answer was stored: chances are learnt anew after every few."""
        self._n_noted += 1
        if self._n_noted % REFIT_EVERY == 0:
            self._learnt.clear()
            self._wake.set()

    def learn(self) -> None:
        """Learn chances from what was heard by now."""
        with self._learning:
            heard = self.heard()
            if self._heard is not None and heard.is_same(self._heard):
                return
            own = self.population
            chances = own.candidates.chances(learn_from(own.candidates, heard))
            self._chances, self._heard, self._gains = chances, heard, None

    def learn_or_warn(self) -> None:
        """Learn, and go on by what was known before where that fails."""
        try:
            self.learn()
        except Exception as error:
            told = f"chances could not be learnt from the last answers: {error}; older ones stay"
            warnings.warn(told, EarmarkWarning, stacklevel=2)

    def wait_until_learnt(self, seconds: float) -> bool:
        """Wait until what answers have asked for was learnt; False if it takes longer."""
        return self._learnt.wait(seconds)

    def heard(self) -> HeardSoFar:
        """Return what people said of candidates by now."""
        return heard_of(self.population, self._known(), self._judgements.current())

    def close(self) -> None:
        """Stop learning."""
        self._is_closed = True
        self._wake.set()
        self._thread.join()
        self._drawn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_learning(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._is_closed:
                return
            self.learn_or_warn()
            self._learnt.set()

    def _read_on(self) -> None:
        more = self._drawn.since(len(self._blocks))
        if more:
            self._blocks += more
            self._queue = None

    def _known(self) -> list[DrawnBlock]:
        """Return all blocks that were drawn by now."""
        with self._lock:
            self._read_on()
            return list(self._blocks)

    def _draw(self, rater: str, blocks: Sequence[DrawnBlock]) -> DrawnBlock | None:
        """Draw the block after those that are known, from the chances of now."""
        own, number = self.population, len(blocks)
        n_drawn = sum(len(_labels(block.items)) for block in blocks)
        n_most = self.params.n_items
        n_labels = self.params.flags_per_block if self.mode == "class" else N_CLIPS * N_OFFERS
        if n_most is not None:
            n_labels = min(n_labels, n_most - n_drawn)
        only = self.only(rater)
        is_open = self._is_open(blocks)
        if only:
            is_open &= own.is_of(only)
        if n_labels <= 0 or not is_open.any():
            return None
        start = blocks[-1].n_turns if blocks else 0
        end = start if only else self._turns_end(start, n_drawn, n_labels)
        portion = self._portion(is_open, (start, end), n_labels)
        if not len(portion.places):
            return None
        items = own.items(portion, self._chances)
        used = [block.items["item"] for block in blocks]
        add = own.with_controls if self.mode == "class" else own.with_known
        items = add(items, number, used, self.params)
        is_shared = len(self._raters) > 1 and _is_shared(number, self.params.overlap)
        return self._block(number, rater, portion, items, is_shared=is_shared, mode=self.mode)

    def _block(
        self,
        number: int,
        rater: str,
        portion: Portion,
        items: pl.DataFrame,
        *,
        is_shared: bool,
        mode: Mode = "class",
    ) -> DrawnBlock:
        n_answers = len(self._heard) if self._heard else 0
        return DrawnBlock(number, rater, is_shared, mode, n_answers, portion.n_turns, items)

    def _turns_end(self, start: int, n_drawn: int, n_labels: int) -> int:
        """Return the turn of the sample before which a block ends that begins with ``start``.

        A sample that had to wait catches up, at twice its share.
        """
        share = self.params.sample_share
        if self.mode == "clip":
            return start + max(round(share * -(-n_labels // N_OFFERS)), 1)
        most = start + turns_due(2 * share, 0, n_labels)
        return min(turns_due(share, n_drawn, n_labels), most)

    def _portion(
        self, is_open: NDArray[np.bool_], turns: tuple[int, int], n_labels: int
    ) -> Portion:
        own = self.population.candidates
        worth = self._chances * own.worth[own.columns]
        if self.mode == "class":
            return next_by_class(own, worth, is_open, turns, n_labels)
        return next_by_clip(own, worth, is_open, turns, -(-n_labels // N_OFFERS), N_OFFERS)

    def _is_open(self, blocks: Sequence[DrawnBlock]) -> NDArray[np.bool_]:
        """Return which candidates [label] were neither drawn nor heard of."""
        own = self.population
        is_open = np.ones(len(own.candidates), bool)
        is_open[self.heard().places] = False
        if blocks:
            is_open[own.places(pl.concat(block.items for block in blocks))] = False
        return is_open


def _labels(items: pl.DataFrame) -> pl.DataFrame:
    return items.filter(~pl.col("kind").is_in(CONTROLS))


def _is_shared(number: int, overlap: float) -> bool:
    """Tell whether every rater judges a block: the first, then evenly spread."""
    return bool(np.ceil((number + 1) * overlap) > np.ceil(number * overlap))
