"""The convex fit: against scikit-learn, by hand, and as the training of a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from earmark.audio import FrameStore, write_store
from earmark.compute import SILENT
from earmark.config import ModelParams, NetworkParams, TrainParams
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.losses import BatchTargets
from earmark.models import ClipExamples, load_network, score_clips
from earmark.training import (
    LabelTreatment,
    ScaledFeatures,
    TargetProvider,
    TrainingSet,
    fit_probe,
    train,
)
from meters import CountingMeter

METER = SILENT.job("", 1, "")
N_CLIPS = 80


def made_up(n: int = 300, n_features: int = 6, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, size=(n, n_features)) * np.arange(1, n_features + 1)
    weights = rng.normal(size=(n_features, n_classes)) / n_features
    target = rng.random((n, n_classes)) < expit(features @ weights - 1)
    return features, target.astype(float)


def test_it_finds_what_scikit_learn_finds() -> None:
    features, target = made_up()
    weight = np.random.default_rng(1).random(target.shape)
    scaled, ridge = ScaledFeatures.of(features), 0.5
    probe = fit_probe(features, target, weight, ridge=ridge, n_iterations=1_000)
    logits = probe.logits(features)
    for column in range(target.shape[1]):
        twin = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000)
        twin.fit(scaled.values, target[:, column], sample_weight=weight[:, column])
        expected = twin.decision_function(scaled.values)
        np.testing.assert_allclose(logits[:, column], expected, atol=2e-2)
    losses = weight * (np.logaddexp(0, logits) - target * logits)
    assert probe.loss == pytest.approx(losses.sum(), rel=1e-4)


def test_a_weight_of_two_is_a_label_twice_and_of_none_a_label_less() -> None:
    features, target = made_up()
    scaled = ScaledFeatures.of(features)
    weight = np.ones_like(target)
    weight[:50], weight[50:100] = 2.0, 0.0
    rows = np.concatenate([np.arange(50), np.arange(50), np.arange(100, 300)])
    repeated = ScaledFeatures(scaled.values[rows], scaled.centre, scaled.scale)
    weighted = fit_probe(scaled, target, weight).logits(features)
    np.testing.assert_allclose(
        weighted, fit_probe(repeated, target[rows]).logits(features), atol=1e-2
    )


def test_a_target_between_is_both() -> None:
    features, target = made_up()
    logits = fit_probe(features, np.full_like(target, 0.3)).logits(features)
    np.testing.assert_allclose(logits, np.log(0.3 / 0.7), atol=1e-2)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_scale_order_and_type_of_features_change_nothing(kind: type) -> None:
    features, target = made_up()
    expected = fit_probe(features, target).logits(features)
    changed = (features[:, ::-1] * 100 + 7).astype(kind)
    np.testing.assert_allclose(fit_probe(changed, target).logits(changed), expected, atol=0.1)


def test_classes_without_weight_and_constant_features_are_no_harm() -> None:
    features, target = made_up()
    weight = np.ones_like(target)
    weight[:, 1] = 0
    features[:, 2] = 4.0
    logits = fit_probe(features, target, weight).logits(features)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits[:, 1], 0)
    assert np.isfinite(fit_probe(np.zeros_like(features), target).logits(features)).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    features, target = made_up()
    with pytest.raises(EarmarkError, match=r"targets must be \[clip, class\] for 300 clips"):
        fit_probe(features, target[:-1])
    with pytest.raises(EarmarkError, match="their weights"):
        fit_probe(features, target, np.ones(3))


def network(**changes: object) -> NetworkParams:
    model = {name: changes.pop(name) for name in ("architecture", "compression") if name in changes}
    return NetworkParams(
        name="probe",
        model=ModelParams(**({"architecture": "linear_probe"} | model)),
        train=TrainParams(**({"solver": "lbfgs", "epochs": 200} | changes)),
    )


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


@pytest.fixture(scope="module")
def labels(store: FrameStore) -> LabelSet:
    states = np.random.default_rng(1).integers(-1, 2, (N_CLIPS, 3))
    return LabelSet.from_dense(states.astype(np.int8), store.clip_ids, ("a", "b", "c"))


def clip_features(store: FrameStore, compression: float | None) -> np.ndarray:
    """Mean, standard deviation and maximum over frames; centred, divided by the root of spread."""
    rows = []
    for row in range(N_CLIPS):
        frames = store.frames(row).astype(np.float64)
        if compression is not None:
            frames = np.sign(frames) * np.log1p(compression * np.abs(frames))
        rows.append(np.concatenate([frames.mean(0), frames.std(0), frames.max(0)]))
    features = np.stack(rows)
    spread = features.std(axis=0)
    centred = (features - features.mean(axis=0)) / np.sqrt(spread + 0.1 * spread.mean())
    return centred / np.sqrt((centred**2).sum(axis=1).mean())


@dataclass(frozen=True)
class Opposites(TargetProvider):
    """Two students: the second is told the opposite, and nothing of half of the clips."""

    treatments: tuple[LabelTreatment, ...] = (LabelTreatment(), LabelTreatment())

    def targets(self, rows: np.ndarray) -> BatchTargets:
        asked = super().targets(rows)
        target = asked.target.expand(2, -1, -1).clone()
        weight = asked.weight.float().expand(2, -1, -1).clone()
        target[1] = 1 - target[1]
        weight[1, ::2] = 0
        return BatchTargets(target, weight, asked.implicit)


@pytest.mark.parametrize("compression", [None, 10.0])
def test_students_of_a_store_are_what_scikit_learn_finds(
    store: FrameStore, labels: LabelSet, tmp_path: Path, compression: float | None
) -> None:
    params = network(compression=compression, ridge=0.5)
    data = TrainingSet(store.folder, np.arange(N_CLIPS), Opposites(labels))
    probe = train(params, data, tmp_path / "m", METER)
    logits = score_clips(probe, ClipExamples(store, np.arange(N_CLIPS)))
    features = clip_features(store, compression)
    is_positive = labels.states()[:, 0] > 0
    for student, (target, weight) in enumerate(
        [(is_positive, np.ones(N_CLIPS)), (~is_positive, np.arange(N_CLIPS) % 2)]
    ):
        twin = LogisticRegression(C=2, tol=1e-8, max_iter=10_000)
        expected = twin.fit(features, target, sample_weight=weight).decision_function(features)
        assert expected.std() > 0.1
        np.testing.assert_allclose(logits[student, :, 0], expected, atol=0.03)


def test_a_fitted_probe_is_found_again_and_counts_what_was_announced(
    store: FrameStore, labels: LabelSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(0, N_CLIPS, 2)
    data = TrainingSet(store.folder, rows, TargetProvider(labels.select(rows)))
    for _ in range(2):
        meter = CountingMeter()
        first = train(network(epochs=7), data, tmp_path / "m", meter)
        assert meter.n_done == 7 * len(rows)
        monkeypatch.setattr("earmark.training.loop.fit_probe", None)
    loaded = load_network(tmp_path / "m", store, labels.class_ids)
    for values, others in zip(first.parameters(), loaded.parameters(), strict=True):
        np.testing.assert_array_equal(values.detach(), others.detach())
    assert (tmp_path / "m" / "history.csv").exists()


@pytest.mark.parametrize(
    ("changes", "loss", "message"),
    [({"architecture": "mlp_probe", "epochs": 3}, "bce", "got mlp_probe and 3 epochs"),
     ({"epochs": None, "steps": 9}, "bce", "got linear_probe and 9 steps"),
     ({}, "splc", "cross-entropy only, got the loss splc")],
)  # fmt: skip
def test_what_cannot_be_solved_is_refused(
    store: FrameStore, labels: LabelSet, tmp_path: Path, changes: dict, loss: str, message: str
) -> None:
    targets = TargetProvider(labels, (LabelTreatment(loss=loss),))
    data = TrainingSet(store.folder, np.arange(N_CLIPS), targets)
    with pytest.raises(EarmarkError, match=message):
        train(network(**changes), data, tmp_path / "m", METER)
