"""A queue that learns, heard by raters who answer from the truth."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earmark.config import ReviewParams
from earmark.errors import EarmarkWarning
from earmark.flags import Answers
from earmark.labels import LabelSet, Ontology
from earmark.review import (
    CONTROLS,
    DrawnBlock,
    DrawnBlocks,
    JudgedLabels,
    JudgementStore,
    NoChances,
    Population,
    ReviewQueue,
    find_gains,
    find_population,
    judged_labels,
    learn_from,
    next_by_class,
    queue_items,
    turns_due,
)
from earmark.review import queue as queue_module
from earmark.review.candidates import _sequence
from reviews import START, judgement, uuid

FIND = ReviewParams(flags_per_block=20)
PAIR = ["clip_id", "class_id"]


def make_world(
    n_clips: int = 1_500, n_classes: int = 6, seed: int = 100
) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Return labels, scores and truth: half of the positives were labelled, all of them right."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((n_clips, n_classes)) < np.linspace(0.05, 0.25, n_classes)
    scores = rng.normal(2.2 * is_present, 1).astype(np.float32)
    is_given = is_present & (rng.random(is_present.shape) < 0.5)
    was_denied = ~is_present & (rng.random(is_present.shape) < 0.02)
    states = np.where(is_given, 1, np.where(was_denied, -1, 0)).astype(np.int8)
    names = [f"clip{i}" for i in range(n_clips)], [f"class{i}" for i in range(n_classes)]
    return LabelSet.from_dense(states, *names), scores, is_present


LABELS, SCORES, PRESENT = make_world()


@pytest.fixture(scope="module")
def population() -> Population:
    found = find_population(LABELS, SCORES, Ontology(LABELS.class_ids), FIND)
    return replace(found, digest="made up", population="made up")


class Sitting:
    """A queue with raters who answer from the truth."""

    def __init__(
        self,
        folder: Path,
        population: Population,
        params: ReviewParams = FIND,
        raters: tuple[str, ...] = ("ann",),
        mode: str = "class",
    ) -> None:
        self.store = JudgementStore(folder / "judgements.sqlite")
        drawn = DrawnBlocks(folder / "drawn.sqlite", population.digest)
        self.live = ReviewQueue.growing(population, params, drawn, self.store, raters, mode)
        self.number = len(self.store.rows())

    def answer(self, block: DrawnBlock, rater: str = "ann", n_most: int | None = None) -> None:
        given = []
        for row in block.items.head(n_most or len(block.items)).iter_rows(named=True):
            clip, column = int(row["clip_id"][4:]), LABELS.class_ids.index(row["class_id"])
            answer = "present" if PRESENT[clip, column] else "not_present"
            self.number += 1
            known = {"item": row["item"], **{name: row[name] for name in PAIR}}
            at = START + timedelta(seconds=self.number)
            given.append(judgement(self.number, answer, rater=rater, at=at, **known))
        self.store.add_all(given)
        self.live.drawer.learn()

    def go_on(self, n_blocks: int, rater: str = "ann") -> list[DrawnBlock]:
        blocks = []
        for _ in range(n_blocks):
            block = self.live.next_block(rater)
            assert block is not None
            self.answer(block, rater)
            blocks.append(block)
        return blocks

    def close(self) -> None:
        self.live.close()
        self.store.close()


@pytest.fixture
def sitting(tmp_path: Path, population: Population):
    found = Sitting(tmp_path, population)
    yield found
    found.close()


def labels_in(block: DrawnBlock) -> pl.DataFrame:
    return block.items.filter(~pl.col("kind").is_in(CONTROLS))


def test_the_first_block_holds_likely_ones_and_a_stated_share_of_the_sample(sitting: Sitting):
    block = sitting.live.next_block("ann")
    asked = labels_in(block)
    assert len(asked) == 20
    assert len(asked.filter(kind="sample")) == turns_due(FIND.sample_share, 0, 20) == 2
    likely = asked.filter(kind="likely")
    assert likely["chance"].mean() > 0.6
    assert (likely["probability"] == 1).all()
    assert asked.filter(kind="sample")["probability"].is_between(0, 1).all()
    runs = block.items["class_id"].rle_id().max() + 1
    assert runs == block.items["class_id"].n_unique(), "each class is heard in one run"
    assert block.items.filter(pl.col("kind").is_in(CONTROLS)).height == FIND.n_controls == 3


def test_a_block_comes_again_until_it_is_answered(sitting: Sitting) -> None:
    first = sitting.live.next_block("ann")
    sitting.answer(first, n_most=7)
    assert sitting.live.next_block("ann").block == first.block
    ahead = sitting.live.next_block("ann", first.block)
    assert ahead.block == 1, "drawn ahead, while the first is about to be finished"
    assert sitting.live.next_block("ann", first.block).block == 1
    assert sitting.live.next_block("ann").block == first.block
    sitting.answer(first)
    assert sitting.live.next_block("ann").block == 1


def test_nothing_is_asked_twice_and_answers_teach(sitting: Sitting) -> None:
    blocks = sitting.go_on(12)
    asked = pl.concat([labels_in(block) for block in blocks])
    assert asked.select(PAIR).is_duplicated().sum() == 0
    assert [block.n_answers for block in blocks] == list(range(0, 240, 20))
    assert sitting.live.drawer.gains.n_answered == 240
    own = sitting.live.drawer.population.candidates
    before = own.p_missing(own.given.model)
    assert not np.allclose(before, sitting.live.drawer._p_missing)
    n_sampled = len(asked.filter(kind="sample"))
    assert n_sampled <= turns_due(FIND.sample_share, 220, 20)
    assert n_sampled > 0.7 * turns_due(FIND.sample_share, 220, 20)


def test_what_was_drawn_can_be_read_again(tmp_path: Path, population: Population) -> None:
    first = Sitting(tmp_path, population)
    blocks = first.go_on(3)
    queue = first.live.snapshot
    first.close()
    with DrawnBlocks(tmp_path / "drawn.sqlite", population.digest) as drawn:
        again = drawn.since(0)
    assert [block.block for block in again] == [0, 1, 2]
    for one, other in zip(blocks, again, strict=True):
        assert one.items.drop("block", "is_shared").equals(other.items.drop("block", "is_shared"))
        assert (one.n_answers, one.n_turns, one.rater) == (
            other.n_answers,
            other.n_turns,
            other.rater,
        )
    second = Sitting(tmp_path, population)
    assert second.live.snapshot.items.equals(queue.items)
    assert second.live.next_block("ann").block == 3
    second.close()
    with DrawnBlocks(tmp_path / "drawn.sqlite", "another queue") as drawn:
        assert drawn.since(0) == []


def test_raters_share_some_blocks_and_have_others_of_their_own(
    tmp_path: Path, population: Population
) -> None:
    params = FIND.model_copy(update={"overlap": 0.5})
    sitting = Sitting(tmp_path, population, params, ("ann", "bob"))
    anns = sitting.go_on(3)
    bobs = sitting.go_on(3, "bob")
    shared = [block.block for block in anns if block.is_shared]
    assert shared
    assert set(shared) <= {block.block for block in bobs}
    assert {b.block for b in anns} != {b.block for b in bobs}
    sitting.close()


def test_two_pages_of_one_review_draw_no_block_twice(
    tmp_path: Path, population: Population
) -> None:
    one = Sitting(tmp_path, population, raters=("ann", "bob"))
    other = Sitting(tmp_path, population, raters=("ann", "bob"))
    params = {"overlap": 0.0}
    for page in (one, other):
        page.live.drawer.params = FIND.model_copy(update=params)
    first, second = one.live.next_block("ann"), other.live.next_block("bob")
    assert (first.block, second.block) == (0, 1)
    both = pl.concat([labels_in(first), labels_in(second)])
    assert both.select(PAIR).is_duplicated().sum() == 0
    one.close()
    other.close()


def test_by_clip_the_likely_labels_of_a_clip_are_offered_at_once(
    tmp_path: Path, population: Population
) -> None:
    sitting = Sitting(tmp_path, population, mode="clip")
    block = sitting.go_on(4)[-1]
    assert block.mode == "clip"
    assert block.items["clip_id"].n_unique() == queue_module.N_CLIPS
    runs = block.items["clip_id"].rle_id().max() + 1
    assert runs == queue_module.N_CLIPS
    known = block.items.filter(pl.col("kind").is_in(CONTROLS))
    assert sorted(known["kind"]) == ["negative", "positive"], "a tenth of the clips, rounded up"
    assert known["clip_id"].n_unique() == 2
    assert known.join(LABELS.rows(), on=PAIR).height == 2
    assert block.items.group_by("clip_id").len()["len"].n_unique() <= 2, "no clip has a row more"
    drawn = pl.concat([one.items for one in sitting.live.blocks_of("ann")])
    assert drawn.group_by("clip_id").len()["len"].max() <= LABELS.n_classes
    assert len(drawn.filter(kind="sample")) >= 3
    sitting.close()


def test_a_block_of_the_other_way_waits_unless_it_was_begun(
    tmp_path: Path, population: Population
) -> None:
    by_class = Sitting(tmp_path, population)
    by_class.go_on(1)
    by_class.answer(by_class.live.next_block("ann"), n_most=3)
    by_class.live.draw_blocks("ann", 1)
    by_class.close()
    by_clip = Sitting(tmp_path, population, mode="clip")
    assert [block.block for block in by_clip.live.blocks_of("ann")] == [0, 1]
    begun = by_clip.live.next_block("ann")
    assert (begun.block, begun.mode) == (1, "class")
    by_clip.answer(begun)
    assert by_clip.live.next_block("ann").mode == "clip"
    by_clip.close()
    again = Sitting(tmp_path, population)
    assert again.live.next_block("ann").block == 2
    again.close()


def test_more_like_this_is_of_the_same_class_and_the_most_alike(
    sitting: Sitting, population: Population
) -> None:
    sitting.go_on(1)
    first = sitting.live.blocks_of("ann")[0].items.filter(kind="likely")
    label = int(population.places(first.head(1))[0])
    n_asked = []

    def likeness(others: np.ndarray) -> np.ndarray:
        n_asked.append(len(others))
        return -np.abs(others - label).astype(float)

    drawn = sitting.live.draw_alike("ann", label, likeness)
    assert drawn.items["class_id"].unique().to_list() == [first["class_id"][0]]
    assert len(drawn.items) == queue_module.N_ALIKE
    assert drawn.items["kind"].unique().to_list() == ["likely"]
    places = population.places(drawn.items)
    gaps = np.abs(places - label)
    assert (np.diff(gaps) >= 0).all()
    assert n_asked[0] > queue_module.N_ALIKE
    assert sitting.live.next_block("ann").block == drawn.block
    assert drawn.n_turns == sitting.live.blocks_of("ann")[0].n_turns, "the sample waits"


def test_a_rater_may_add_a_label_that_was_not_asked_about(
    tmp_path: Path, population: Population
) -> None:
    sitting = Sitting(tmp_path, population, mode="clip")
    block = sitting.live.next_block("ann")
    clip = block.items["clip_id"][0]
    assert sitting.live.block_of_clip("ann", clip) == 0
    sitting.live.add_label(0, "an item", clip, "class0", None, "ann")
    added = sitting.live.snapshot.items.filter(kind="added")
    assert added["item"].to_list() == ["an item"]
    assert sitting.live.by_item["an item"]["block"] == 0
    sitting.close()
    again = Sitting(tmp_path, population, mode="clip")
    assert "an item" in again.live.by_item
    again.close()


def test_a_fit_that_fails_leaves_the_model_of_before(
    sitting: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting.go_on(2)
    before = sitting.live.drawer._p_missing

    def fail(*_: object) -> None:
        raise np.linalg.LinAlgError("made up")

    monkeypatch.setattr(queue_module, "learn_from", fail)
    block = sitting.live.next_block("ann")
    with pytest.raises(np.linalg.LinAlgError):
        sitting.answer(block)
    with pytest.warns(EarmarkWarning, match="could not be fitted.*made up"):
        sitting.live.drawer.learn_or_warn()
    assert sitting.live.drawer._p_missing is before
    assert sitting.live.next_block("ann").block == 3


def test_answers_wake_the_learner_in_the_background(sitting: Sitting) -> None:
    block = sitting.live.next_block("ann")
    learnt = sitting.live.drawer.learn
    sitting.live.drawer.learn = lambda: None  # type: ignore[method-assign]
    sitting.answer(block)
    sitting.live.drawer.learn = learnt  # type: ignore[method-assign]
    for _ in range(queue_module.REFIT_EVERY):
        sitting.live.note_answer()
    until = time.monotonic() + 30
    while sitting.live.drawer.gains.n_answered < 20 and time.monotonic() < until:
        time.sleep(0.05)
    assert sitting.live.drawer.gains.n_answered == 20


def test_a_sound_that_cannot_be_played_is_no_answer_and_holds_nothing_up(
    sitting: Sitting, population: Population
) -> None:
    block = sitting.live.next_block("ann")
    sitting.answer(block)
    sample = block.items.filter(kind="sample").row(0, named=True)
    known = {"item": sample["item"], **{name: sample[name] for name in PAIR}}
    at = START + timedelta(days=1)
    sitting.store.add(judgement(9_999, "cannot_play", at=at, **known))
    heard = sitting.live.drawer.judged()
    place = population.places(block.items.filter(item=sample["item"]))
    assert place not in heard.places
    assert heard.is_random.sum() == block.n_turns - 1
    shares = population.candidates.probabilities(block.n_turns)[heard.places[heard.is_random]]
    expected = block.n_turns / (block.n_turns - 1) / shares
    assert np.allclose(heard.stands_for[heard.is_random], expected), "the others represent it, too"


def test_without_chances_there_is_nothing_to_choose_by() -> None:
    rng = np.random.default_rng(100)
    scores = rng.normal(0, 1, SCORES.shape).astype(np.float32)
    with pytest.raises(NoChances):
        find_population(LABELS, scores, Ontology(LABELS.class_ids), FIND)


def test_rare_classes_are_worth_more_to_who_trains() -> None:
    params = FIND.model_copy(update={"aim": "train"})
    found = find_population(LABELS, SCORES, Ontology(LABELS.class_ids), params)
    order = np.argsort(LABELS.n_positives)
    assert (np.diff(found.candidates.worth[order]) < 0).all()


def simulate(population: Population, seed: int, n_blocks: int, share: float, is_by_model: bool):
    """Answer blocks by the truth, without files.

    Return what is known in the end, the number of missing labels, and of right flags that are left.
    """
    rng = np.random.default_rng(seed)
    own = population.candidates
    own = replace(own, sample=_sequence(own.sizes, rng.random(len(own))))
    chosen = replace(population, candidates=own).with_flags(population.names.head(300))
    truth = PRESENT[own.rows, own.columns].astype(float)
    model, is_open = own.given.model, np.ones(len(own), bool)
    places: list[int] = []
    drawn_at: list[float] = []
    n_turns = 0
    for number in range(n_blocks):
        turns = (n_turns, turns_due(share, len(places), 20))
        p = own.p_missing(model)
        selection = next_by_class(own, p if is_by_model else 1 - p, is_open, turns, 20)
        n_turns = selection.n_turns
        is_open[selection.places] = False
        places += selection.places.tolist()
        drawn_at += np.where(selection.is_sample, np.nan, p[selection.places]).tolist()
        stands_for = np.full(len(own), np.nan)
        passed = own.sample[:n_turns]
        stands_for[passed] = 1 / own.probabilities(n_turns)[passed]
        judged = JudgedLabels(
            np.array(places), truth[places], np.array(drawn_at), stands_for[places]
        )
        if number % 3 == 2 or number == n_blocks - 1:
            model = learn_from(own, judged)
    gains = find_gains(chosen, judged, model, share)
    left = np.setdiff1d(np.arange(300), places)
    return gains, truth.sum(), truth[left].sum()


def test_the_forecast_is_near_what_comes(population: Population) -> None:
    gains, _, _ = simulate(population, 100, 10, 0.12, True)
    later, _, _ = simulate(population, 100, 15, 0.12, True)
    assert gains.n_next_found == pytest.approx(later.n_found - gains.n_found, abs=20)
    assert gains.curve[0] == (0, 0)
    assert gains.curve[-1] == (200, gains.n_found)
    assert "The next 100 answers would find about " in gains.describe()


def test_p_missing_learns_from_what_others_answered_before() -> None:
    rows, columns = np.nonzero(LABELS.states() == 0)
    chosen = np.arange(0, len(rows), 37)
    present = PRESENT[rows[chosen], columns[chosen]].astype(float)
    answers = Answers(rows[chosen], columns[chosen], present)
    found = find_population(LABELS, SCORES, Ontology(LABELS.class_ids), FIND, answers)
    plain = find_population(LABELS, SCORES, Ontology(LABELS.class_ids), FIND)
    names = found.names[found.candidates.sample]
    assert names.equals(plain.names[plain.candidates.sample]), "the sample knows of no answer"
    current = pl.DataFrame(
        {
            "id": [str(uuid(i)) for i in range(len(chosen))],
            "rater": "bob",
            "item": [f"i{i}" for i in range(len(chosen))],
            "clip_id": LABELS.clip_ids.gather(rows[chosen]),
            "class_id": [LABELS.class_ids[c] for c in columns[chosen]],
            "answer": np.where(present > 0, "present", "not_present").tolist(),
        }
    )
    heard = judged_labels(found, [], current)
    assert len(heard) == len(chosen)
    assert not heard.is_random.any()


def test_a_forecast_that_takes_long_holds_nobody_up(
    sitting: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting.go_on(2)
    first, is_current = sitting.live.drawer.latest_gains(seconds=30)
    assert is_current
    assert first is not None
    may_end = threading.Event()

    def slow(*asked: object) -> object:
        may_end.wait(30)
        return find_gains(*asked)

    monkeypatch.setattr(queue_module, "find_gains", slow)
    sitting.go_on(1)
    assert sitting.live.drawer.latest_gains(seconds=0.01) == (first, False)
    (item, *_) = sitting.live.by_item
    assert sitting.live.by_item[item]["block"] == 0, "answers are let through meanwhile"
    may_end.set()
    latest, is_current = sitting.live.drawer.latest_gains(seconds=30)
    assert is_current
    assert latest is not None
    assert latest.n_answered > first.n_answered


def test_a_new_block_adds_to_the_items_that_are_known(
    sitting: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer looks up its item without the queue being put together anew."""
    sitting.go_on(3)
    assert sitting.live.by_item == sitting.live.by_item
    listed: list[int] = []

    def items_by_name(items: pl.DataFrame) -> dict[str, dict[str, object]]:
        listed.append(len(items))
        return queue_items.items_by_name(items)

    monkeypatch.setattr(queue_module, "items_by_name", items_by_name)
    monkeypatch.setattr(Population, "snapshot", lambda *_: pytest.fail("put together anew"))
    block = sitting.live.next_block("ann")
    assert block is not None
    assert set(block.items["item"]) <= set(sitting.live.by_item)
    assert sum(listed) == len(block.items)


def test_with_many_answers_chances_are_learnt_less_often(
    sitting: Sitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "REFIT_SHARE", 0.5)
    sitting.go_on(2)
    n_heard = len(sitting.live.drawer.judged())
    woken: list[int] = []
    monkeypatch.setattr(sitting.live.drawer, "_wake", threading.Event())
    for number in range(1, n_heard // 2 + 1):
        sitting.live.note_answer()
        if sitting.live.drawer._wake.is_set():
            woken.append(number)
            break
    assert woken == [n_heard // 2]
