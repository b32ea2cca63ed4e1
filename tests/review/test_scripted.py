"""A rater made of a truth: asked as many labels as wanted, and no label twice."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.config import ReviewParams
from earmark.labels import LabelSet, Ontology
from earmark.review import answer_from_truth, find_population


@pytest.mark.parametrize("n_answers", [30, 60])
def test_it_answers_from_the_truth_and_finds_more_than_chance(n_answers: int) -> None:
    rng = np.random.default_rng(0)
    is_present = rng.random((500, 4)) < 0.2
    scores = (3.0 * is_present - 2 + rng.normal(size=(500, 4))).astype(np.float32)
    states = np.where(is_present & (rng.random((500, 4)) < 0.5), 1, 0)
    names = tuple("abcd")
    labels = LabelSet.from_dense(states, None, names)
    params = ReviewParams(seed=1)
    population = find_population(labels, scores, Ontology(names, {}, {}, {}), params)
    asked_of: list[tuple[str, str]] = []

    def is_there(clip_id: str, class_id: str) -> bool:
        asked_of.append((clip_id, class_id))
        return bool(is_present[int(clip_id), names.index(class_id)])

    places = answer_from_truth(population, params, n_answers, is_there)
    assert len(set(places.tolist())) == len(places) == n_answers
    rows, columns = population.candidates.rows[places], population.candidates.columns[places]
    assert (states[rows, columns] == 0).all()
    by_chance = is_present[states == 0].mean()
    assert is_present[rows, columns].mean() > 2 * by_chance
    assert {(str(row), names[column]) for row, column in zip(rows, columns, strict=True)} <= set(
        asked_of
    )
