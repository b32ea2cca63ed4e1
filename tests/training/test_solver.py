"""Linear probes fitted as a whole are what scikit-learn finds, a student as if alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from earmark.audio import FrameStore, write_store
from earmark.compute import SILENT
from earmark.config import ModelParams, NetworkParams, TrainParams
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.losses import BatchTargets, bce_entries
from earmark.models import Probe, load_network
from earmark.training import (
    ALL_STUDENTS,
    Fitted,
    TargetProvider,
    TrainingSet,
    fit_linear_probe,
    train,
)
from earmark.training.solver import _LEAST_SPREAD

CLASS_IDS = ("a", "b", "c")
N_CLIPS = 80
METER = SILENT.job("", 1, "")


def network(ridge: float = 0.2, **changes: object) -> NetworkParams:
    model = ModelParams(architecture="linear_probe", compression=changes.pop("compression", None))
    said = {"solver": "lbfgs", "epochs": 200, "ridge": ridge, **changes}
    return NetworkParams(name="probe", model=model, train=TrainParams(**said))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FrameStore:
    """Clips of 1 to 4 frames of features on very different scales; one is always the same."""
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 20, 0.1, 5, 0])
    clips = [
        (f"clip{i:02}", (rng.normal(1, 1, (1 + i % 4, 5)) * scale + 2).astype(np.float32))
        for i in range(N_CLIPS)
    ]
    return write_store(tmp_path_factory.mktemp("store"), clips)


def seen(store: FrameStore) -> np.ndarray:
    """What a probe sees of each clip: mean, standard deviation and maximum over frames."""
    return np.stack(
        [
            np.concatenate([frames.mean(axis=0), frames.std(axis=0), frames.max(axis=0)])
            for frames in (store.frames(row).astype(np.float64) for row in range(N_CLIPS))
        ]
    )


def scaled(features: np.ndarray) -> np.ndarray:
    """Centre, divide by the root of the spread, and make the mean square of a clip 1."""
    spread = features.std(axis=0)
    centred = (features - features.mean(axis=0)) / np.sqrt(spread + _LEAST_SPREAD * spread.mean())
    return centred / np.sqrt((centred**2).sum(axis=1).mean())


@pytest.fixture(scope="module")
def labels(store: FrameStore) -> LabelSet:
    rng, features = np.random.default_rng(1), scaled(seen(store))
    logits = 12 * features @ rng.normal(size=(features.shape[1], 3)) + [0, -1, 0.5]
    present = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    states = np.where(present, 1, np.where(rng.random(logits.shape) < 0.5, 0, -1))
    return LabelSet.from_dense(states.astype(np.int8), store.clip_ids, CLASS_IDS)


def data_of(store: FrameStore, targets: object, rows: np.ndarray | None = None) -> TrainingSet:
    rows = np.arange(N_CLIPS) if rows is None else rows
    return TrainingSet(store.folder, rows, targets)  # type: ignore[arg-type]


def fitted(store: FrameStore, targets: object, params: NetworkParams | None = None) -> Fitted:
    return fit_linear_probe(params or network(), data_of(store, targets), store, METER)


def logits_of(probe: Probe, store: FrameStore) -> np.ndarray:
    """Logits [student, clip, class]."""
    with torch.inference_mode():
        parts = [
            probe(torch.tensor(store.frames(row)).float()[None], torch.tensor([n]))
            for row, n in enumerate(store.n_frames)
        ]
    return torch.cat(parts, dim=1).numpy()


@pytest.mark.parametrize("ridge", [0.2, 3.0])
def test_the_probe_is_scikit_learns_logistic_regression(
    store: FrameStore, labels: LabelSet, ridge: float
) -> None:
    found = fitted(store, TargetProvider(labels), network(ridge))
    features = scaled(seen(store))
    for column in range(3):
        twin = LogisticRegression(C=1 / ridge, tol=1e-8, max_iter=10_000)
        twin.fit(features, labels.states()[:, column] > 0)
        expected = twin.decision_function(features)
        assert expected.std() > 0.3
        np.testing.assert_allclose(logits_of(found.probe, store)[0, :, column], expected, atol=0.02)


def test_the_history_is_the_loss_that_was_reached(store: FrameStore, labels: LabelSet) -> None:
    found = fitted(store, TargetProvider(labels))
    logits, is_positive = logits_of(found.probe, store)[0], labels.states() > 0
    losses = np.logaddexp(0, logits) - is_positive * logits
    (row,) = found.history
    assert row["loss"] == pytest.approx(losses.sum(axis=1).mean(), rel=1e-4)
    assert row["epoch"] == 200


class Matrices:
    """Students that are told different labels, and some of them nothing of some labels."""

    class_ids = CLASS_IDS

    def __init__(self, targets: np.ndarray, weights: np.ndarray) -> None:
        self._targets, self._weights = targets, weights
        self.n_students = len(targets)
        self.digest = "told"

    def targets(self, rows: np.ndarray) -> BatchTargets:
        target, weight = (
            torch.from_numpy(part[:, rows]).float() for part in (self._targets, self._weights)
        )
        return BatchTargets(target, weight, torch.zeros(target.shape[1:], dtype=torch.bool))

    def entries(
        self,
        logits: torch.Tensor,
        targets: BatchTargets,
        epoch: int | None,
        students: slice = ALL_STUDENTS,
    ) -> torch.Tensor:
        assert logits.shape[0] == len(range(*students.indices(self.n_students)))
        return bce_entries(logits, targets)


@pytest.fixture(scope="module")
def told(labels: LabelSet) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    one = (labels.states() > 0).astype(np.float64)
    targets = np.stack([one, 1 - one, rng.permutation(one)])
    weights = np.stack([np.ones_like(one), rng.random(one.shape) < 0.7, rng.random(one.shape)])
    return targets, weights


def test_several_students_are_fitted_as_if_each_were_alone(
    store: FrameStore, told: tuple[np.ndarray, np.ndarray]
) -> None:
    targets, weights = told
    together = logits_of(fitted(store, Matrices(targets, weights)).probe, store)
    for student in range(3):
        own = slice(student, student + 1)
        alone = fitted(store, Matrices(targets[own], weights[own]))
        np.testing.assert_allclose(logits_of(alone.probe, store)[0], together[student], atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 1


def test_labels_that_are_ignored_or_weighted_count_as_such(
    store: FrameStore, told: tuple[np.ndarray, np.ndarray]
) -> None:
    targets, weights = told
    found, features = logits_of(fitted(store, Matrices(targets, weights)).probe, store), None
    features = scaled(seen(store))
    for student in range(3):
        twin = LogisticRegression(C=5, tol=1e-8, max_iter=10_000)
        twin.fit(features, targets[student, :, 0], sample_weight=weights[student, :, 0])
        expected = twin.decision_function(features)
        np.testing.assert_allclose(found[student, :, 0], expected, atol=0.03)


def test_only_the_clips_of_the_set_are_learnt_from(store: FrameStore, labels: LabelSet) -> None:
    rows = np.arange(0, N_CLIPS, 2)
    part = data_of(store, TargetProvider(labels.select(rows)), rows)
    found = fit_linear_probe(network(), part, store, METER).probe
    features = scaled(seen(store)[rows])
    twin = LogisticRegression(C=5, tol=1e-8, max_iter=10_000)
    twin.fit(features, labels.select(rows).states()[:, 1] > 0)
    expected = twin.decision_function(features)
    np.testing.assert_allclose(logits_of(found, store)[0, rows, 1], expected, atol=0.02)


def test_compressed_frames_are_fitted_as_they_are_looked_at(
    store: FrameStore, labels: LabelSet
) -> None:
    found = fitted(store, TargetProvider(labels), network(compression=10)).probe
    assert found.compression == 10
    clips = [
        (name, np.sign(frames) * np.log1p(10 * np.abs(frames)))
        for name, frames in (
            (name, store.frames(row).astype(np.float32)) for row, name in enumerate(store.clip_ids)
        )
    ]
    folder = store.folder.parent / "compressed"
    small = write_store(folder, clips)
    plain = fitted(small, TargetProvider(labels)).probe
    np.testing.assert_allclose(logits_of(found, store), logits_of(plain, small), atol=5e-3)


def test_classes_without_positives_or_clips_alike_yield_finite_scores(tmp_path: Path) -> None:
    frames = np.ones((2, 3), np.float32)
    store = write_store(tmp_path, [(f"clip{i}", frames) for i in range(6)])
    states = np.zeros((6, 3), np.int8)
    states[:, 1] = 1
    labels = LabelSet.from_dense(states, store.clip_ids, CLASS_IDS)
    data = TrainingSet(store.folder, np.arange(6), TargetProvider(labels))
    probe = fit_linear_probe(network(), data, store, METER).probe
    with torch.inference_mode():
        logits = probe(torch.from_numpy(frames)[None], torch.tensor([2]))[0, 0]
    assert torch.isfinite(logits).all()
    assert logits[1] > 2
    assert logits[0] < -2


def test_the_same_run_is_found_again_and_says_the_same(
    store: FrameStore, labels: LabelSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(store, TargetProvider(labels))
    first = train(network(), data, tmp_path / "m", METER)
    monkeypatch.setattr("earmark.training.loop.fit_linear_probe", None)
    again = train(network(), data, tmp_path / "m", METER)
    loaded = load_network(tmp_path / "m", store, CLASS_IDS)
    for other in (again, loaded):
        for one, two in zip(first.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two)
    assert (tmp_path / "m" / "history.csv").exists()


class Counter:
    n_done = 0

    def advance(self, n_done: int, note: str = "") -> None:
        self.n_done += n_done


def test_the_meter_counts_what_was_announced(store: FrameStore, labels: LabelSet) -> None:
    meter = Counter()
    fit_linear_probe(network(epochs=7), data_of(store, TargetProvider(labels)), store, meter)
    assert meter.n_done == 7 * N_CLIPS


@pytest.mark.parametrize(
    ("model", "length", "told"),
    [("mlp_probe", {"epochs": 3}, "got mlp_probe and 3 epochs"),
     ("linear_probe", {"steps": 9}, "got linear_probe and 9 steps")],
)  # fmt: skip
def test_what_cannot_be_solved_is_refused(
    store: FrameStore, labels: LabelSet, model: str, length: dict[str, int], told: str
) -> None:
    params = NetworkParams(
        name="probe",
        model=ModelParams(architecture=model),
        train=TrainParams(solver="lbfgs", **length),
    )
    with pytest.raises(EarmarkError, match=rf'"lbfgs" fits linear probes.*{told}'):
        fitted(store, TargetProvider(labels), params)
