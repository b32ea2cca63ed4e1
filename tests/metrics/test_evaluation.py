from __future__ import annotations

import numpy as np
import pytest

from earmark import metrics
from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.metrics import evaluation, interval, resample_weights


def simulated(seed: int = 0, n_clips: int = 60, n_classes: int = 6, separation: float = 1.0):
    random = np.random.default_rng(seed)
    states = random.choice([-1, 0, 1], (n_clips, n_classes), p=[0.3, 0.4, 0.3]).astype(np.int8)
    scores = random.normal(size=states.shape) + separation * (states > 0)
    return states, scores.astype(np.float32)


def test_evaluation_by_hand():
    states = np.array([[1, 0, 0], [-1, 1, 0], [0, 1, -1]])
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 4.0, 0.0]])
    result = evaluation.evaluate(states, scores, class_ids=["a", "b", "c"])
    row = result.per_class.row(0, named=True)
    assert row["class_id"] == "a"
    assert (row["n_positives"], row["n_negatives"]) == (1, 1)
    assert (row["auc_explicit"], row["auc_all"], row["lwlrap"], row["ap"]) == (1, 1, 1, 1)
    # Class b: positives score 0 and 4, its one negative (implicit) scores 1.
    assert result.per_class["auc_all"].to_list()[1] == 0.5
    assert result.per_class["lwlrap"].to_list()[1] == pytest.approx((1 / 3 + 1) / 2)
    assert result.per_class["ap"].to_list()[1] == pytest.approx((1 + 2 / 3) / 2)
    assert result.overall["lwlrap"] == pytest.approx((1 + 2 / 3) / 2)
    assert result.overall["lwlrap_label_weighted"] == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert result.overall["map"] == pytest.approx((1 + 5 / 6) / 2)
    assert result.n_without_positives == 1
    assert result.n_without_negatives == {"explicit": 1, "all": 0}
    assert result.n_clipped == {"explicit": 1, "all": 1}


def test_overall_metrics_are_means_over_measured_classes():
    states, scores = simulated()
    states[:, 0] = np.minimum(states[:, 0], 0)
    result = evaluation.evaluate(states, scores)
    assert tuple(result.overall) == evaluation.METRICS
    table = result.per_class
    for name, column in [
        ("d_prime_explicit", "d_prime_explicit"),
        ("d_prime_all", "d_prime_all"),
        ("lwlrap", "lwlrap"),
        ("map", "ap"),
    ]:
        assert np.isnan(table[column][0])
        assert result.overall[name] == pytest.approx(np.mean(table[column].to_list()[1:]))
    assert result.overall["lwlrap_label_weighted"] == pytest.approx(
        np.average(table["lwlrap"][1:], weights=table["n_positives"][1:])
    )


@pytest.mark.parametrize("kind", ["explicit", "all"])
def test_d_prime_of_the_mean_auc_is_not_the_mean_of_d_prime(kind):
    states, scores = simulated(separation=2.0)
    result = evaluation.evaluate(states, scores)
    mean_auc = np.mean(result.per_class[f"auc_{kind}"].to_list())
    found = result.overall[f"d_prime_of_mean_auc_{kind}"]
    assert found == pytest.approx(float(metrics.d_prime(mean_auc, 1e9, 1e9)))
    assert found != pytest.approx(result.overall[f"d_prime_{kind}"], abs=1e-6)


def test_a_label_set_gives_what_its_matrix_gives_and_names_the_classes():
    states, scores = simulated()
    labels = LabelSet.from_dense(states, class_ids=[f"sound {c}" for c in range(6)])
    by_labels, by_matrix = evaluation.evaluate(labels, scores), evaluation.evaluate(states, scores)
    assert by_labels.overall == by_matrix.overall
    assert by_labels.per_class["class_id"].to_list() == [f"sound {c}" for c in range(6)]
    assert by_matrix.per_class["class_id"].to_list() == ["0", "1", "2", "3", "4", "5"]


def test_no_clips_measure_nothing():
    result = evaluation.evaluate(np.zeros((0, 2), np.int8), np.zeros((0, 2)))
    assert all(np.isnan(value) for value in result.overall.values())
    assert result.n_without_positives == 2


def test_misfits_are_refused():
    states, scores = simulated()
    with pytest.raises(EarmarkError, match="3 class_ids given for labels of 6 classes"):
        evaluation.evaluate(states, scores, class_ids=["a", "b", "c"])
    with pytest.raises(EarmarkError, match="transposed"):
        evaluation.evaluate(states, scores.T)
    with pytest.raises(EarmarkError, match="transposed"):
        evaluation.evaluate(states, scores[:-1])


def test_a_resample_of_every_clip_once_is_the_point_estimate():
    states, scores = simulated()
    found = evaluation.bootstrap(states, scores, np.ones((1, len(states)), np.uint16))
    overall = evaluation.evaluate(states, scores).overall
    assert tuple(found) == evaluation.BOOTSTRAP_METRICS
    for name, values in found.items():
        np.testing.assert_allclose(values, [overall[name]], rtol=1e-12)


def test_bootstrap_equals_evaluating_repeated_clips():
    states, scores = simulated(n_clips=20)
    scores = np.round(scores, 1)
    weights = resample_weights(20, 15, seed=5)
    found = evaluation.bootstrap(LabelSet.from_dense(states), scores, weights)
    for i, row in enumerate(weights):
        repeated = evaluation.evaluate(np.repeat(states, row, axis=0), np.repeat(scores, row, 0))
        for name, values in found.items():
            assert values[i] == pytest.approx(repeated.overall[name], rel=1e-12)


def test_paired_differences_are_surer_than_separate_intervals():
    states, baseline = simulated(n_clips=200)
    better = baseline + np.float32(0.2) * (states > 0)
    weights = resample_weights(200, 300, seed=7)
    of_baseline = evaluation.bootstrap(states, baseline, weights)["d_prime_all"]
    of_better = evaluation.bootstrap(states, better, weights)["d_prime_all"]
    values = [evaluation.evaluate(states, s).overall["d_prime_all"] for s in (baseline, better)]
    low, high = interval(values[1] - values[0], of_better - of_baseline)
    assert 0 < low < high
    separate = interval(values[0], of_baseline)
    assert high - low < (separate[1] - separate[0]) / 2


def test_what_is_left_out_takes_no_part_by_hand():
    states = np.array([[1, 0], [0, 1], [0, 1]])
    scores = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 4.0]])
    left_out = np.array([[False, True], [True, False], [False, False]])
    result = evaluation.evaluate(states, scores, left_out=left_out)
    # Class 0: the negative that outscored its positive is gone; clip 0's rival is gone too.
    assert result.per_class["auc_all"].to_list() == [1.0, pytest.approx(np.nan, nan_ok=True)]
    assert result.per_class["lwlrap"].to_list() == [1.0, 1.0]
    assert result.n_without_negatives["all"] == 1
    plain = evaluation.evaluate(states, scores)
    assert plain.per_class["auc_all"][0] == 0.5
    assert plain.per_class["lwlrap"].to_list() == [0.5, 0.75]


def test_explicit_labels_cannot_be_left_out():
    states, scores = simulated()
    states[states == 0] = -1
    everything = np.ones(states.shape, bool)
    plain = evaluation.evaluate(states, scores).overall
    assert evaluation.evaluate(states, scores, left_out=everything).overall == plain


def test_leaving_out_is_removing_the_labels_from_their_class():
    states, scores = simulated(n_clips=40)
    left_out = np.random.default_rng(9).random(states.shape) < 0.3
    found = evaluation.evaluate(states, scores, left_out=left_out).per_class
    weights = np.ones((1, 40), np.uint16)
    once = evaluation.bootstrap(states, scores, weights, left_out)
    for column in range(states.shape[1]):
        kept = ~(left_out[:, column] & (states[:, column] == 0))
        alone = evaluation.evaluate(states[kept, column, None], scores[kept, column, None])
        for name in ("auc_all", "ap", "auc_explicit", "d_prime_all"):
            assert found[name][column] == pytest.approx(alone.per_class[name][0])
    for name, column in (("d_prime_all", "d_prime_all"), ("map", "ap"), ("lwlrap", "lwlrap")):
        assert once[name][0] == pytest.approx(found[column].mean())
