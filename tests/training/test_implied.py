from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.scores.matrix import MappedScores
from earmark.training.treatments import FlagSources, Told, Treated, find_flags

CLASS_IDS = ("animal", "dog", "bark", "car")
TREE = Ontology(CLASS_IDS, {"bark": ("dog",), "dog": ("animal",)})
STATES = np.array(
    [[0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
)
IMPLIED = [(0, 0), (0, 1), (1, 0), (2, 1)]


@pytest.fixture
def sources(tmp_path: Path) -> FlagSources:
    logits = np.random.default_rng(0).normal(size=STATES.shape).astype(np.float32)
    np.save(tmp_path / "logits.npy", logits)
    teacher = MappedScores(tmp_path / "logits.npy", "logits")
    labels = LabelSet.from_dense(STATES, class_ids=CLASS_IDS)
    return FlagSources(labels, np.arange(len(STATES)), teacher, TREE)


@pytest.mark.parametrize("treatment", ["flip", "soft", "hedge", "mask"])
def test_ancestors_are_told_what_the_treatment_says(sources: FlagSources, treatment: str) -> None:
    """Label by label: where a descendant is present and nobody was asked about the ancestor."""
    flags = find_flags(sources, "ancestors", [1.0])[1.0]
    treated = Treated(sources.labels, sources.rows, (Told(flags, treatment),))
    found = treated.targets(np.arange(len(STATES)))
    p = 1 / (1 + np.exp(-np.load(sources.teacher.path).astype(float)))
    for label in np.ndindex(STATES.shape):
        expected = (float(STATES[label] > 0), 1.0)
        if label in IMPLIED:
            expected = {"flip": (1, 1), "soft": (p[label], 1), "hedge": (p[label] / 2, 1)}.get(
                treatment, (0, 0)
            )
        target, weight = found.target[0][label].item(), found.weight[0][label].item()
        assert (target, weight) == pytest.approx(expected, abs=1e-6), label


@pytest.mark.parametrize("point", [0.0, 0.1, 0.5, 0.9])
def test_a_global_limit_flags_what_is_likelier(sources: FlagSources, point: float) -> None:
    flags = find_flags(sources, "global", [point])[point]
    treated = Treated(sources.labels, sources.rows, (Told(flags, "mask"),))
    weight = treated.targets(np.arange(len(STATES))).weight[0].numpy()
    p = 1 / (1 + np.exp(-np.load(sources.teacher.path).astype(float)))
    np.testing.assert_array_equal(weight == 0, (STATES == 0) & (p > point))
