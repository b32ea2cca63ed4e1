"""Some classes alone, what each promises, and the advice to change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.review import JudgedLabels, Population, advise_change, forecast_yield
from tests.review.test_queue import FIND, Sitting, labels_in, population

__all__ = ["population"]


@pytest.fixture
def sitting(tmp_path: Path, population: Population):
    found = Sitting(tmp_path, population)
    yield found
    found.close()


def test_only_the_classes_asked_for_are_drawn_until_told_otherwise(sitting: Sitting) -> None:
    live = sitting.live
    (begun,) = sitting.go_on(1)
    waiting = live.next_block("ann")
    live.limit("ann", ["class2"])
    blocks = sitting.go_on(3)
    for block in blocks:
        assert block.items["class_id"].unique().to_list() == ["class2"]
        assert block.n_turns == waiting.n_turns, "the sample is of all classes, and waits"
    assert live.next_block("bob").items["class_id"].n_unique() > 1, "of this rater alone"
    live.limit("ann", [])
    assert live.next_block("ann").block == waiting.block
    sitting.answer(waiting)
    later = live.next_block("ann")
    n_sampled = len(labels_in(later).filter(kind="sample"))
    assert n_sampled <= np.ceil(2 * FIND.sample_share * 20), "it catches up at twice its share"
    assert begun.n_turns < later.n_turns


def test_by_clip_only_the_classes_asked_for_are_offered(
    tmp_path: Path, population: Population
) -> None:
    sitting = Sitting(tmp_path, population, mode="clip")
    sitting.live.limit("ann", ["class1", "class4"])
    (block,) = sitting.go_on(1)
    likely = block.items.filter(kind="likely")
    assert set(likely["class_id"]) == {"class1", "class4"}
    sitting.close()


def test_a_promise_is_the_sum_of_the_best_chances(population: Population) -> None:
    own = population.candidates
    nothing = JudgedLabels(*(np.empty(0, dtype) for dtype in (np.int64, float, float, float)))
    chances = own.p_missing(own.given.model)
    promise = forecast_yield(own, nothing, chances)
    for column in range(own.n_classes):
        mine = np.sort(chances[own.columns == column])[::-1][:100]
        assert promise.n_asked[column] == len(mine)
        assert promise.n_found[column] == pytest.approx(mine.sum(), rel=1e-5)


def test_another_class_is_advised_when_the_yield_falls(sitting: Sitting) -> None:
    live, own = sitting.live, sitting.live.drawer.population.candidates
    live.limit("ann", ["class0"])
    told = ""
    for _ in range(40):
        sitting.go_on(1)
        gains = live.gains_of("ann", str.upper)
        if told := gains.change:
            break
    assert told.startswith("Change class: of the next 100 answers about CLASS0 some ")
    assert gains.advice == told
    promise = live.drawer.forecast
    best = int(np.argmax(promise.n_found * (np.arange(own.n_classes) != 0)))
    assert told.endswith(f"about CLASS{best} some {round(promise.n_found[best])}.")
    assert promise.n_found[0] < promise.n_found[best] / 2
    heard = live.drawer.judged()
    found = advise_change(own, heard, live.drawer._p_missing, str)
    assert "Change class" in found, "by what was heard last"
    assert live.gains_of("bob", str.upper).change == "", "the whole queue changes by itself"
