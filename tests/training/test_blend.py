"""Two teachers as one: weights are scikit-learn's, and learnt from the other folds alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from earmark.datasets import Workspace, write_dataset, write_scores
from earmark.labels import LabelSet
from earmark.scores import Origin, ScoreFolder, logits_of, scored_labels
from earmark.training import Weights, blend, blend_scores, learn_weights
from scenes import CLASS_IDS, band_workspace

C = 0.5
"""Scikit-learn's weight of the losses against half of the squared coefficients: 1 / (2 ridge)."""


def made_up(
    n_clips: int = 300, n_classes: int = 4, seed: int = 0
) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Labels, and two scores that each know something; nobody knows the last class by itself."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n_clips, n_classes)) < 0.3
    states = np.where(truth & (rng.random(truth.shape) < 0.7), 1, 0)
    states[(states == 0) & ~truth & (rng.random(truth.shape) < 0.2)] = -1
    probe = (1.5 * truth + rng.normal(size=truth.shape) - 1).astype(np.float32)
    own = 30.0 * truth + 20 * rng.normal(size=truth.shape) + 100 * np.arange(n_classes)
    own[:, -1] = np.nan
    ids = [f"clip{i}" for i in range(n_clips)], [f"class{i}" for i in range(n_classes)]
    return LabelSet.from_dense(states.astype(np.int8), *ids), probe, own.astype(np.float32)


def twin(
    labels: LabelSet, probe: np.ndarray, own: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients by scikit-learn: of classes that the network knows, and of the others."""
    target = labels.states()[rows] > 0
    known = np.isfinite(own).all(axis=0)
    standard = (own[rows] - own[rows].mean(axis=0)) / own[rows].std(axis=0)
    both = np.stack([probe[rows][:, known].ravel(), standard[:, known].ravel()], axis=1)
    found = []
    for features, wanted in (
        (both, target[:, known].ravel()),
        (probe[rows][:, ~known].reshape(-1, 1), target[:, ~known].ravel()),
    ):
        fit = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(features, wanted)
        found.append(np.concatenate([fit.intercept_, fit.coef_[0]]))
    return found[0], found[1]


@pytest.mark.parametrize("rows", [np.arange(300), np.arange(0, 300, 3)])
def test_weights_are_scikit_learns(rows: np.ndarray) -> None:
    labels, probe, own = made_up()
    found = learn_weights(labels, probe, own, rows)
    of_both, of_probe = twin(labels, probe, own, rows)
    np.testing.assert_allclose(found.of_both, of_both, atol=2e-3)
    np.testing.assert_allclose(found.of_probe, of_probe, atol=2e-3)
    assert (found.of_both[1:] > 0.2).all(), "both say something"
    np.testing.assert_allclose(found.mean[:3], own[rows, :3].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.sd[:3], own[rows, :3].std(axis=0), rtol=1e-3)


def test_a_blend_by_hand() -> None:
    weights = Weights(
        np.array([1.0, 2, 3]), np.array([4.0, 5]), np.array([10.0, 0]), np.array([2.0, 1])
    )
    probe, own = np.array([[1.0, 1]]), np.array([[14.0, np.nan]])
    assert weights.blended(probe, own).tolist() == [[1 + 2 + 3 * 2, 4 + 5]]


def test_a_network_that_knows_no_class_or_all_is_blended_too() -> None:
    labels, probe, own = made_up()
    rows = np.arange(300)
    none = learn_weights(labels, probe, np.full_like(own, np.nan), rows)
    assert none.of_both.tolist() == [0, 0, 0]
    assert none.of_probe[1] > 0.5
    every = learn_weights(labels, probe, np.nan_to_num(own), rows)
    assert np.isfinite(every.blended(probe, np.nan_to_num(own))).all()


def test_labels_that_are_drawn_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probe, own = made_up(n_clips=3_000)
    rows = np.arange(3_000)
    whole = learn_weights(labels, probe, own, rows)
    monkeypatch.setattr(blend, "_MOST_LABELS", 3_000)
    clips, columns, target, weight = blend._drawn(labels, rows, seed=0)
    assert target.sum() == labels.n_positives.sum(), "all positives are there"
    assert (labels.states()[clips, columns] > 0).tolist() == target.tolist()
    assert len(set(zip(clips.tolist(), columns.tolist(), strict=True))) == len(clips)
    assert weight.sum() == pytest.approx(3_000 * 4)
    some = learn_weights(labels, probe, own, rows)
    np.testing.assert_allclose(some.of_both, whole.of_both, atol=0.15)
    again = learn_weights(labels, probe, own, rows)
    np.testing.assert_array_equal(again.of_both, some.of_both)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return band_workspace(tmp_path, n_clips=120)


def two_teachers(workspace: Workspace) -> tuple[ScoreFolder, ScoreFolder, np.ndarray]:
    """A probe's scores and a network's of all clips, and folds of the train split."""
    rng, n_clips = np.random.default_rng(3), len(workspace.clips)
    truth = workspace.truth
    assert truth is not None
    found = []
    for name, noise in (("teacher", 1.0), ("teacher-zero-shot", 2.0)):
        logits = (truth.states() + noise * rng.normal(size=(n_clips, 3))).astype(np.float32)
        if name != "teacher":
            logits[:, 1] = np.nan
        scores = write_scores(
            workspace, name, workspace.clips["clip_id"], logits,
            rng.integers(0, 3, logits.shape).astype(np.uint16),
            out_of_fold=True, digest=name, origin=Origin("model", "n"),
        )  # fmt: skip
        found.append(scores)
    n_train = len(found[0].clip_ids)
    return found[0], found[1], np.arange(n_train) % 3


def test_every_fold_is_scored_by_weights_of_the_others(workspace: Workspace) -> None:
    probe, own, fold_of = two_teachers(workspace)
    found = blend_scores(workspace, "blend", probe, own, fold_of)
    labels = scored_labels(probe, workspace.labels)
    own_logits = logits_of(own, probe.clip_ids)
    for fold in range(3):
        of_both, of_probe = twin(
            labels, np.asarray(probe.logits), own_logits, np.flatnonzero(fold_of != fold)
        )
        others, rows = fold_of != fold, fold_of == fold
        mean, sd = own_logits[others].mean(axis=0), own_logits[others].std(axis=0)
        standard = (own_logits[rows] - mean) / sd
        expected = of_both[0] + of_both[1] * probe.logits[rows] + of_both[2] * standard
        expected[:, 1] = of_probe[0] + of_probe[1] * probe.logits[rows][:, 1]
        np.testing.assert_allclose(found.logits[rows], expected, atol=5e-3)
    assert found.out_of_fold
    assert found.origin is None
    assert len(probe.clip_ids) == len(fold_of), "what was given is as it was"
    np.testing.assert_array_equal(found.best_patches, probe.best_patches)


def test_a_folds_own_labels_do_not_reach_its_scores(workspace: Workspace) -> None:
    probe, own, fold_of = two_teachers(workspace)
    before = np.array(blend_scores(workspace, "before", probe, own, fold_of).logits)
    rng = np.random.default_rng(4)
    states = workspace.labels.states()
    row_of = {name: row for row, name in enumerate(workspace.clips["clip_id"])}
    pairs = zip(probe.clip_ids, fold_of, strict=True)
    of_fold = [row_of[name] for name, fold in pairs if fold == 0]
    states[of_fold] = rng.choice([-1, 0, 1], (len(of_fold), 3))
    labels = LabelSet.from_dense(states, workspace.clips["clip_id"], CLASS_IDS)
    clips, ontology = workspace.clips, workspace.ontology
    changed = write_dataset(workspace.root, clips, ontology, labels, workspace.truth, replace=True)
    after = np.array(blend_scores(changed, "after", probe, own, fold_of).logits)
    np.testing.assert_array_equal(after[fold_of == 0], before[fold_of == 0])
    assert np.abs(after[fold_of != 0] - before[fold_of != 0]).max() > 0.01


def test_a_blend_is_found_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    probe, own, fold_of = two_teachers(workspace)
    first = blend_scores(workspace, "blend", probe, own, fold_of)
    monkeypatch.setattr(blend, "learn_weights", None)
    assert blend_scores(workspace, "blend", probe, own, fold_of).digest == first.digest
    with pytest.raises(TypeError, match="not callable"):  # other folds are other scores
        blend_scores(workspace, "blend", probe, own, fold_of[::-1])
