"""Missing labels from features alone: scikit-learn's manners, and a proof by a known truth."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy
from sklearn.base import clone
from sklearn.utils import estimator_checks

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.training import MissingLabelFilter

N_ROWS, N_CLASSES = 1_200, 6


def simulated(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings, labels of which 40 % are missing, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.random((N_ROWS, N_CLASSES)) < 0.12
    directions = rng.normal(size=(N_CLASSES, 24))
    features = truth @ directions + 0.8 * rng.normal(size=(N_ROWS, 24))
    labels = truth & (rng.random(truth.shape) < 0.6)
    return features.astype(np.float32), labels.astype(np.int8), truth


@pytest.fixture(scope="module")
def fitted() -> tuple[MissingLabelFilter, np.ndarray, np.ndarray]:
    features, labels, truth = simulated()
    return MissingLabelFilter(n_folds=3).fit(features, labels), labels, truth


def test_flags_are_many_times_better_than_chance(fitted: tuple[Any, ...]) -> None:
    found, labels, truth = fitted
    is_missing = truth & (labels == 0)
    first = found.flags_.head(100)
    columns = first["class"].cast(pl.Int64).to_numpy()
    n_right = is_missing[first["row"].to_numpy(), columns].sum()
    by_chance = is_missing.sum() / (labels == 0).sum()
    assert n_right / 100 > 10 * by_chance
    assert n_right > 80


def test_results_agree_with_one_another(fitted: tuple[Any, ...]) -> None:
    found, labels, _ = fitted
    flags = found.flags_
    assert flags.columns == ["row", "class", "chance", "score"]
    assert flags["chance"].is_sorted(descending=True)
    assert found.is_flagged_.sum() == len(flags)
    assert not found.is_flagged_[labels != 0].any()
    at = flags["row"].to_numpy(), flags["class"].cast(pl.Int64).to_numpy()
    np.testing.assert_array_equal(found.scores_[at], flags["score"].to_numpy())
    assert found.knowledge_.startswith("The scores know much of your labels")
    assert (found.n_features_in_, list(found.classes_)) == (24, list("012345"))


def test_scores_are_out_of_fold() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 200))  # a probe learns such labels by heart
    labels = (rng.random((60, 3)) < 0.3).astype(int)
    with pytest.warns(EarmarkWarning, match=r"No flags|do not know|Nobody can tell"):
        found = MissingLabelFilter(n_folds=3, ridge=1e-6).fit(features, labels)
    learnt = found.probe_.logits(features)[labels == 1].mean()
    assert found.scores_[labels == 1].mean() < learnt - 1
    assert found.flags_.is_empty()
    assert not found.is_flagged_.any()


def test_rows_of_a_recording_stay_together() -> None:
    features, labels, _ = simulated()
    half = features[:300], labels[:300]
    doubled, twice = np.concatenate([half[0]] * 2), np.concatenate([half[1]] * 2)
    groups = [f"recording {row % 300}" for row in range(600)]
    grouped = MissingLabelFilter(n_folds=3).fit(doubled, twice, groups)
    np.testing.assert_array_equal(grouped.scores_[:300], grouped.scores_[300:])


def test_labels_in_any_form(tmp_path: Path) -> None:
    features, labels, _ = simulated()
    features, labels = features[:400], labels[:400]
    states = np.where(np.random.default_rng(2).random(labels.shape) < 0.05, -1, labels)
    names = [f"class {column}" for column in range(N_CLASSES)]
    np.save(tmp_path / "X.npy", features)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = MissingLabelFilter(n_folds=2).fit(features, states)
    forms = {
        "sparse": scipy.sparse.csr_matrix(states),
        "list": states.tolist(),
        "floats": states.astype(float),
        "table": pl.DataFrame(states, schema=names),
    }
    for form, given in forms.items():
        found = MissingLabelFilter(n_folds=2).fit(mapped, given)
        np.testing.assert_array_equal(found.scores_, expected.scores_, err_msg=form)
    assert set(found.flags_["class"]) <= set(names)
    yes_or_no = MissingLabelFilter(n_folds=2).fit(features, labels > 0)
    assert yes_or_no.scores_.shape == labels.shape


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"Y": np.zeros((N_ROWS, 2), int)}, "Y has no 1"),
        ({"Y": np.full((N_ROWS, 2), 0.5)}, r"states must be \+1, -1 or 0"),
        ({"Y": np.ones(N_ROWS, int)}, r"Y must be \[row, class\]"),
        ({"Y": np.ones((5, 2), int)}, r"Y must be \[row, class\]"),
        ({"groups": ["a", "b"]}, "groups must name the recording of each of the 1,200 rows"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], told: str) -> None:
    features, labels, _ = simulated()
    with pytest.raises(EarmarkError, match=told):
        MissingLabelFilter().fit(**({"X": features, "Y": labels} | change))


def test_features_that_are_not_finite_are_refused() -> None:
    features, labels, _ = simulated()
    features[3, 4] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        MissingLabelFilter().fit(features, labels)


@pytest.mark.parametrize(
    "check",
    [
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_estimator_repr",
    ],
)
def test_it_keeps_scikit_learns_rules(check: str) -> None:
    rule = getattr(estimator_checks, check, None)
    if rule is None:
        pytest.skip(f"this scikit-learn has no {check}")
    rule("MissingLabelFilter", MissingLabelFilter())


def test_a_clone_finds_the_same_and_so_does_a_pickled_one() -> None:
    features, labels, _ = simulated()
    first = MissingLabelFilter(n_folds=2, n_flags=30, random_state=3).fit(features, labels)
    again = clone(first)
    assert not hasattr(again, "flags_")
    assert again.fit(features, labels).flags_.equals(first.flags_)
    assert pickle.loads(pickle.dumps(first)).flags_.equals(first.flags_)
    assert len(first.flags_) == 30
