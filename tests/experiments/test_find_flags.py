"""Flags of students by policy, where there are no answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.experiments import FlagSources, find_flags
from earmark.flags import POLICIES, flag
from earmark.labels import LabelSet, Ontology
from earmark.scores import MappedScores
from earmark.training import Flags, LabelTreatment, TargetProvider


def scores_in(folder: Path, logits: np.ndarray) -> dict[str, Any]:
    """Write a teacher's scores; the others are not asked for."""
    np.save(folder / "logits.npy", logits.astype(np.float32))
    teacher = MappedScores(folder / "logits.npy", "logits")
    return {"teacher": lambda: teacher, "chances": lambda: teacher, "random": lambda _: teacher}


def sources(folder: Path, **changes) -> FlagSources:
    random = np.random.default_rng(5)
    truth = random.random((400, 2)) < [0.3, 0.2]
    states = np.where(truth & (random.random((400, 2)) < 0.6), 1, 0)
    logits = random.normal(size=(400, 2)) + 3 * truth
    given = {
        "labels": LabelSet.from_dense(states, class_ids=["dog", "bark"]),
        "rows": np.arange(400),
        **scores_in(folder, logits),
        "ontology": Ontology(("dog", "bark"), parents={"bark": ("dog",)}),
        "truth": LabelSet.from_dense(np.where(truth, 1, -1), class_ids=["dog", "bark"]),
    }
    return FlagSources(**(given | changes))


def flagged(given: FlagSources, flags: Flags) -> set[tuple[str, str]]:
    treated = TargetProvider(given.labels, (LabelTreatment(flags),), given.rows)
    weight = treated.targets(np.arange(400)).weight[0].numpy()
    return {(str(row), given.labels.class_ids[column]) for row, column in np.argwhere(weight == 0)}


def pairs(flags: pl.DataFrame) -> set[tuple[str, str]]:
    return set(flags.select("clip_id", "class_id").rows())


@pytest.mark.parametrize(
    ("policy", "point"),
    [
        ("percentile", 5.0),
        ("precision", 0.6),
        ("positives_quantile", 0.25),
        ("global", 0.9),
        ("count", 1.0),
        ("confident", 1.0),
    ],
)
def test_students_ignore_what_the_policy_flags(tmp_path: Path, policy: str, point: float) -> None:
    given = sources(tmp_path)
    option = POLICIES[policy].point
    options = {} if option is None else {option: point}
    listed = flag(given.labels, given.teacher().path, policy, ontology=given.ontology, **options)
    assert len(listed) > 0
    flags = find_flags(given, given.teacher(), policy, [point])[point]
    assert flagged(given, flags) == pairs(listed)


def test_a_budget_is_a_share_of_all_implicit_labels(tmp_path: Path) -> None:
    given = sources(tmp_path)
    n_flags = int(0.05 * given.labels.n_implicit.sum())
    tree = given.ontology
    listed = flag(given.labels, given.teacher().path, "budget", ontology=tree, n_flags=n_flags)
    assert flagged(given, find_flags(given, given.teacher(), "budget", [5.0])[5.0]) == pairs(listed)


def test_the_gate_of_psla_gives_a_list(tmp_path: Path) -> None:
    given = sources(tmp_path)
    flags = find_flags(given, given.teacher(), "psla", [0.25])[0.25]
    options = {"quantile": 0.25, "gate": given.ontology}
    listed = flag(given.labels, given.teacher().path, "positives_quantile", **options)
    assert len(listed) > 0
    assert flagged(given, flags) == pairs(listed)


def test_the_oracle_knows_what_is_missing(tmp_path: Path) -> None:
    given = sources(tmp_path)
    found = flagged(given, find_flags(given, given.teacher(), "oracle", [1.0])[1.0])
    is_missing = (given.truth.states() > 0) & (given.labels.states() == 0)
    assert len(found) == is_missing.sum() > 0
    assert all(is_missing[int(clip), ("dog", "bark").index(name)] for clip, name in found)
    given = sources(tmp_path, truth=None)
    with pytest.raises(EarmarkError, match="needs the truth"):
        find_flags(given, given.teacher(), "oracle", [1.0])


def test_distillation_flags_every_implicit_label(tmp_path: Path) -> None:
    given = sources(tmp_path)
    assert (
        len(flagged(given, find_flags(given, given.teacher(), "all", [1.0])[1.0]))
        == given.labels.n_implicit.sum()
    )


def test_a_train_set_finds_its_clips_in_the_score_matrix(tmp_path: Path) -> None:
    whole = sources(tmp_path)
    rows = np.arange(100, 300)
    part = sources(tmp_path, labels=whole.labels.select(rows), rows=rows)
    (edges,) = (
        flags.thresholds for flags in find_flags(part, part.teacher(), "percentile", [5.0]).values()
    )
    logits = np.load(whole.teacher().path)[rows]
    n_above = ((logits > edges) & (part.labels.states() == 0)).sum(axis=0)
    assert n_above.tolist() == (part.labels.n_implicit * 5 // 100).tolist()


CLASS_IDS = ("animal", "dog", "bark", "car")
TREE = Ontology(CLASS_IDS, {"bark": ("dog",), "dog": ("animal",)})
STATES = np.array(
    [[0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
)
IMPLIED = [(0, 0), (0, 1), (1, 0), (2, 1)]


@pytest.fixture
def tree_sources(tmp_path: Path) -> FlagSources:
    logits = np.random.default_rng(0).normal(size=STATES.shape).astype(np.float32)
    labels = LabelSet.from_dense(STATES, class_ids=CLASS_IDS)
    rows = np.arange(len(STATES))
    return FlagSources(labels, rows, **scores_in(tmp_path, logits), ontology=TREE)


@pytest.mark.parametrize("treatment", ["flip", "soft", "hedge", "mask"])
def test_ancestors_are_treated(tree_sources: FlagSources, treatment: str) -> None:
    """Label by label: where a descendant is present and nobody was asked about the ancestor."""
    flags = find_flags(tree_sources, tree_sources.teacher(), "ancestors", [1.0])[1.0]
    treated = TargetProvider(tree_sources.labels, (LabelTreatment(flags, treatment),))
    found = treated.targets(np.arange(len(STATES)))
    p = 1 / (1 + np.exp(-np.load(tree_sources.teacher().path).astype(float)))
    for label in np.ndindex(STATES.shape):
        expected = (float(STATES[label] > 0), 1.0)
        if label in IMPLIED:
            expected = {"flip": (1, 1), "soft": (p[label], 1), "hedge": (p[label] / 2, 1)}.get(
                treatment, (0, 0)
            )
        target, weight = found.target[0][label].item(), found.weight[0][label].item()
        assert (target, weight) == pytest.approx(expected, abs=1e-6), label


@pytest.mark.parametrize("point", [0.0, 0.1, 0.5, 0.9])
def test_a_global_limit_flags_what_is_likelier(tree_sources: FlagSources, point: float) -> None:
    flags = find_flags(tree_sources, tree_sources.teacher(), "global", [point])[point]
    treated = TargetProvider(tree_sources.labels, (LabelTreatment(flags, "mask"),))
    weight = treated.targets(np.arange(len(STATES))).weight[0].numpy()
    p = 1 / (1 + np.exp(-np.load(tree_sources.teacher().path).astype(float)))
    np.testing.assert_array_equal(weight == 0, (STATES == 0) & (p > point))
