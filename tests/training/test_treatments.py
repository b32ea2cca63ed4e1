from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.flags.flag import flag
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.losses import Moment, by_student, norms
from earmark.scores.matrix import HeldScores, MappedScores
from earmark.training.treatments import (
    KNOBS,
    Flags,
    FlagSources,
    Told,
    Treated,
    find_flags,
    lowest_flagged,
)

TREATMENTS = ("mask", "flip", "soft", "hedge", "weight")
NEVER = np.float32(np.inf)


def scores_file(folder: Path, logits: np.ndarray, name: str = "logits") -> MappedScores:
    path = folder / f"{name}.npy"
    np.save(path, logits.astype(np.float32))
    return MappedScores(path, name)


def slow_treatment(
    state: int, logit: float, is_flagged: bool, treatment: str
) -> tuple[float, float]:
    """The table of treatments, label by label: (target, weight)."""
    if state != 0 or not is_flagged:
        return float(state > 0), 1.0
    p = 1 / (1 + np.exp(-logit))
    treated = {"mask": (0, 0), "flip": (1, 1), "soft": (p, 1), "hedge": (p / 2, 1)}
    return {**treated, "weight": (0, 1 - p)}[treatment]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_batch_is_told_what_the_table_of_treatments_says(tmp_path_factory, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = (9, 4)
    states = random.integers(-1, 2, shape).astype(np.int8)
    logits = random.normal(0, 2, shape).astype(np.float32)
    logits[:, 3] = np.nan  # a class that the teacher does not know
    is_listed = random.random(shape) < 0.5
    rulings = np.where(random.random(shape) < 0.3, random.choice([-1, 1], shape), 0)
    edges = random.normal(0, 1, 4).astype(np.float32)
    file = scores_file(tmp_path_factory.mktemp("treat"), logits)
    everything = np.full(4, -np.inf, np.float32)
    by_edges, by_list = Flags(file, edges), Flags(file, everything, LabelSet.from_dense(is_listed))
    told = [Told(flags, name) for flags in (by_edges, by_list) for name in TREATMENTS]
    treated = Treated(
        LabelSet.from_dense(states), np.arange(9), (Told(), *told), LabelSet.from_dense(rulings)
    )
    rows = random.permutation(9)[:5]
    found = treated.targets(rows)
    may_be_flagged = (rulings != -1) & ~np.isnan(logits)
    suspects = [(np.zeros(shape, bool), "mask")]
    suspects += [(chosen, name) for chosen in (logits > edges, is_listed) for name in TREATMENTS]
    for student, (is_flagged, name) in enumerate(suspects):
        for place, column in np.ndindex(5, 4):
            label = (rows[place], column)
            target, weight = slow_treatment(
                states[label], logits[label], is_flagged[label] and may_be_flagged[label], name
            )
            weight = 0.0 if states[label] == 0 and rulings[label] == 1 else weight
            place_of = (student, place, column)
            assert found.weight[place_of].item() == pytest.approx(weight, abs=1e-6)
            assert found.target[place_of].item() == pytest.approx(target, abs=1e-6)
    np.testing.assert_array_equal(found.implicit.numpy(), states[rows] == 0)


def test_students_that_only_mask_share_their_targets(tmp_path: Path) -> None:
    file = scores_file(tmp_path, np.zeros((3, 2)))
    labels = LabelSet.from_dense([[1, 0], [0, 0], [-1, 0]])
    masks = tuple(Told(Flags(file, np.full(2, edge, np.float32))) for edge in (-1.0, 1.0))
    found = Treated(labels, np.arange(3), masks).targets(np.arange(3))
    assert found.target.shape == (1, 3, 2)
    assert found.weight[0].tolist() == [[1, 0], [0, 0], [1, 0]]
    assert found.weight[1].tolist() == [[1, 1], [1, 1], [1, 1]]


@pytest.mark.parametrize("with_rulings", [False, True])
def test_masks_made_in_one_pass_are_those_made_one_by_one(with_rulings: bool) -> None:
    """Scores of 64 bits, or of two teachers, are beyond the one pass, and say the same."""
    random = np.random.default_rng(0)
    states = random.integers(-1, 2, (40, 9)) * (random.random((40, 9)) < 0.3)
    logits = random.normal(0, 2, (50, 9)).round(1).astype(np.float32)
    logits[::7, 2] = np.nan
    rulings = LabelSet.from_dense(random.integers(-1, 2, (40, 9))) if with_rulings else None
    edges = random.normal(0, 1, (3, 9)).round(1).astype(np.float32)
    rows, places = random.permutation(40)[:17], random.permutation(50)[:40]

    def told_by(*arrays: np.ndarray) -> Treated:
        teachers = [HeldScores(array, str(number)) for number, array in enumerate(arrays)]
        flags = [Flags(teachers[i % len(teachers)], own) for i, own in enumerate(edges)]
        told = (Told(flags[0]), Told(), Told(flags[1]), Told(flags[2]))
        return Treated(LabelSet.from_dense(states), places, told, rulings)

    in_one_pass = told_by(logits).targets(rows)
    for other in (told_by(logits.astype(np.float64)), told_by(logits, logits.copy())):
        found = other.targets(rows)
        for name in ("target", "weight", "implicit", "rows"):
            assert torch.equal(getattr(found, name), getattr(in_one_pass, name)), name
    assert in_one_pass.weight.dtype == torch.bool
    assert 0 < in_one_pass.weight.float().mean() < 1


def test_a_stack_mixes_losses_and_remembers_what_they_remember(tmp_path: Path) -> None:
    labels = LabelSet.from_dense(np.zeros((4, 3), int))
    told = (Told(), Told(loss="hill"), Told(loss="ll-cp", point=30), Told(loss="ll-cp", point=30))
    treated = Treated(labels, np.arange(4), told)
    targets = treated.targets(np.arange(4))
    logits = torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(0))
    moment = Moment(1, 0, 1)
    together = treated.entries(logits, targets, moment)
    for student, one in enumerate(told):
        alone = treated.of([one])
        own = alone.entries(logits[student : student + 1], targets.of(slice(0, 1)), moment)
        torch.testing.assert_close(together[student : student + 1], own)
    state = treated.state()
    assert [len(turned) for turned in state.values()] == [4, 4]  # ceil(12 x 30 %) of each
    resumed = treated.of(told)
    resumed.load_state(state)
    first = Moment(0, 0, 1)
    torch.testing.assert_close(
        resumed.entries(logits, targets, first), treated.entries(logits, targets, first)
    )
    assert not torch.equal(
        resumed.entries(logits, targets, first), treated.of(told).entries(logits, targets, first)
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_students_of_a_stack_can_be_asked_in_parts(size: int) -> None:
    labels = LabelSet.from_dense(np.zeros((4, 3), int))
    told = (Told(), Told(), Told(loss="hill"), Told(loss="ll-cp", point=30), Told(loss="ll-cp"))
    whole = Treated(labels, np.arange(4), told)
    parted, targets = whole.of(told), whole.targets(np.arange(4))
    logits = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    for step in range(2):  # what was turned in the first is remembered in the second
        moment = Moment(1, step, 2)
        slices = [slice(first, first + size) for first in range(0, 5, size)]
        parts = [parted.entries(logits[s], targets.of(s), moment, s) for s in slices]
        assert torch.equal(torch.cat(parts), whole.entries(logits, targets, moment))
    assert parted.state().keys() == whole.state().keys()
    assert all(torch.equal(own, whole.state()[place]) for place, own in parted.state().items())


def sources(folder: Path, **changes) -> FlagSources:
    random = np.random.default_rng(5)
    truth = random.random((400, 2)) < [0.3, 0.2]
    states = np.where(truth & (random.random((400, 2)) < 0.6), 1, 0)
    logits = random.normal(size=(400, 2)) + 3 * truth
    given = {
        "labels": LabelSet.from_dense(states, class_ids=["dog", "bark"]),
        "rows": np.arange(400),
        "teacher": scores_file(folder, logits),
        "ontology": Ontology(("dog", "bark"), parents={"bark": ("dog",)}),
        "truth": LabelSet.from_dense(np.where(truth, 1, -1), class_ids=["dog", "bark"]),
    }
    return FlagSources(**(given | changes))


def flagged(given: FlagSources, flags: Flags) -> set[tuple[str, str]]:
    treated = Treated(given.labels, given.rows, (Told(flags),))
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
    options = {KNOBS.get(policy, "discard_percent"): point}
    if policy in ("count", "confident"):
        options = {}
    listed = flag(given.labels, given.teacher.path, policy, **options)
    assert len(listed) > 0
    assert flagged(given, find_flags(given, policy, [point])[point]) == pairs(listed)


def test_a_budget_is_a_share_of_all_implicit_labels(tmp_path: Path) -> None:
    given = sources(tmp_path)
    n_flags = int(0.05 * given.labels.n_implicit.sum())
    listed = flag(given.labels, given.teacher.path, "budget", n_flags=n_flags)
    assert flagged(given, find_flags(given, "budget", [5.0])[5.0]) == pairs(listed)


def test_the_gate_of_psla_gives_a_list(tmp_path: Path) -> None:
    given = sources(tmp_path)
    flags = find_flags(given, "psla", [0.25])[0.25]
    options = {"quantile": 0.25, "gate": given.ontology}
    listed = flag(given.labels, given.teacher.path, "positives_quantile", **options)
    assert len(listed) > 0
    assert flagged(given, flags) == pairs(listed)


def test_the_oracle_knows_what_is_missing(tmp_path: Path) -> None:
    given = sources(tmp_path)
    found = flagged(given, find_flags(given, "oracle", [1.0])[1.0])
    is_missing = (given.truth.states() > 0) & (given.labels.states() == 0)
    assert len(found) == is_missing.sum() > 0
    assert all(is_missing[int(clip), ("dog", "bark").index(name)] for clip, name in found)
    with pytest.raises(EarmarkError, match="needs the truth"):
        find_flags(sources(tmp_path, truth=None), "oracle", [1.0])


def test_distillation_flags_every_implicit_label(tmp_path: Path) -> None:
    given = sources(tmp_path)
    assert (
        len(flagged(given, find_flags(given, "all", [1.0])[1.0])) == given.labels.n_implicit.sum()
    )


def test_a_train_set_finds_its_clips_in_the_score_matrix(tmp_path: Path) -> None:
    whole = sources(tmp_path)
    rows = np.arange(100, 300)
    part = sources(tmp_path, labels=whole.labels.select(rows), rows=rows)
    (edges,) = (flags.thresholds for flags in find_flags(part, "percentile", [5.0]).values())
    logits = np.load(whole.teacher.path)[rows]
    n_above = ((logits > edges) & (part.labels.states() == 0)).sum(axis=0)
    assert n_above.tolist() == (part.labels.n_implicit * 5 // 100).tolist()


def test_thresholds_lie_just_below_the_lowest_flag() -> None:
    flags = pl.DataFrame({"class_id": ["b", "b"], "logit": [2.0, 1.0]})
    edges = lowest_flagged(flags, ["a", "b"])
    assert edges[0] == NEVER
    assert edges[1] < 1 < np.nextafter(edges[1], np.float32(2)) + 1e-6
    assert edges.dtype == np.float32


def test_what_changes_nothing_has_one_digest(tmp_path: Path) -> None:
    file = scores_file(tmp_path, np.zeros((3, 2)))
    flags = Flags(file, np.zeros(2, np.float32))
    assert Told().digest == Told(treatment="soft").digest == Told(point=3.0).digest
    told = [Told(), Told(flags), Told(flags, "soft"), Told(loss="em", point=0.1)]
    told += [Told(loss="em", point=0.2), Told(Flags(file, np.ones(2, np.float32)))]
    assert len({one.digest for one in told}) == len(told)


@pytest.mark.parametrize("reduction", ["sum", "mean_kept"])
def test_a_mask_is_a_byte_a_label_and_loss_and_gradient_are_the_same(
    tmp_path: Path, reduction: str
) -> None:
    random = np.random.default_rng(3)
    labels = LabelSet.from_dense(random.integers(-1, 2, (30, 5)))
    file = scores_file(tmp_path, random.normal(0, 2, (30, 5)))
    told = [Told(Flags(file, np.full(5, edge, np.float32))) for edge in (-1, 0, 1)]
    treated = Treated(labels, np.arange(30), (Told(), *told))
    found = treated.targets(np.arange(30))
    assert found.weight.dtype == torch.bool
    values, results = torch.from_numpy(random.normal(0, 3, (4, 30, 5))).float(), []
    for weight in (found.weight, found.weight.float()):
        logits = values.clone().requires_grad_()
        own = replace(found, weight=weight)
        entries = treated.entries(logits, own, Moment(0, 0, 1))
        by_student(entries, norms(weight, reduction).expand(4)).sum().backward()
        results.append((entries.detach(), logits.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
