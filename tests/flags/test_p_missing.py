from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from earmark.flags import (
    Answers,
    allocate,
    estimate_total,
    find_p_missing,
    measure_knowledge,
)
from earmark.flags.p_missing import FEATURES, N_WITHOUT_ANSWERS, fit_logistic
from earmark.labels import LabelSet, Ontology
from earmark.scores import open_scores

TREE = Ontology(("animal", "dog", "bark"), {"dog": ("animal",), "bark": ("dog",)})


def simulate(
    n_clips: int = 400, n_classes: int = 12, d_prime: float = 3.0, seed: int = 0
) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Return labels of which half are missing, scores, and which are missing [clip, class]."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((n_clips, n_classes)) < rng.uniform(0.02, 0.2, n_classes)
    is_given = is_present & (rng.random(is_present.shape) < 0.5)
    logits = rng.normal(size=is_present.shape) + d_prime * is_present - 3
    return LabelSet.from_dense(is_given.astype(np.int8)), logits, is_present & ~is_given


class TestFeatures:
    def test_are_those_of_a_small_example(self) -> None:
        states = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]], np.int8)
        labels = LabelSet.from_dense(states, class_ids=TREE.class_ids)
        logits = np.array([[1.0, 2.0, 0.0], [-1.0, 0.0, -2.0], [-3.0, -1.0, -2.0]])
        features = find_p_missing(labels, logits, TREE).features
        first = features.of_clips(slice(0, 1), logits[:1].astype(np.float32))[0]
        found = dict(zip(FEATURES, first.T.tolist(), strict=True))
        assert found["logit"] == [1, 2, 0]
        assert found["log_rank"] == pytest.approx(np.log([2, 1, 3]))
        assert found["descendant"] == [1, 1, 0]  # a bark is a dog, and a dog is an animal
        assert found["logit_of_descendant"] == [1, 2, 0]
        assert found["parent_margin"] == [0, -1, 2]
        mean, sd = -1.0, np.sqrt(8 / 3)  # of the three implicit scores of animals
        assert found["standardised"][0] == pytest.approx((1 - mean) / sd)
        assert found["standardised_squared"][0] == pytest.approx(((1 - mean) / sd) ** 2)
        assert found["log_prior"] == pytest.approx(np.log([0.5 / 3, 1.5 / 3, 1.5 / 3]))

    @pytest.mark.parametrize("n_labels", [5, 3000])
    def test_of_single_labels_are_those_of_their_clips(self, n_labels: int) -> None:
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(500, 3))
        states = (rng.random((500, 3)) < 0.2).astype(np.int8)
        labels = LabelSet.from_dense(states, class_ids=TREE.class_ids)
        model = find_p_missing(labels, logits, TREE)
        rows, columns = rng.integers(0, 500, n_labels), rng.integers(0, 3, n_labels)
        every = model.log_odds(slice(0, 500), logits.astype(np.float32))
        assert model.log_odds_of(rows, columns) == pytest.approx(every[rows, columns], abs=1e-5)


class TestWithoutAnswers:
    def test_is_the_odds_of_being_given(self) -> None:
        labels, logits, _ = simulate()
        model = find_p_missing(labels, logits)
        features = model.features.of_clips(slice(0, 400), logits.astype(np.float32))
        used = features[..., :N_WITHOUT_ANSWERS].reshape(-1, N_WITHOUT_ANSWERS)
        given = (labels.states() > 0).ravel()
        reference = LogisticRegression(C=1e4, max_iter=2_000).fit(used, given)
        expected = reference.decision_function(used)
        found = model.log_odds(slice(0, 400), logits.astype(np.float32)).ravel()
        assert found == pytest.approx(expected, abs=0.02)

    def test_first_are_labels_that_are_missing(self) -> None:
        labels, logits, is_missing = simulate()
        log_odds = find_p_missing(labels, logits).log_odds(slice(0, 400), np.float32(logits))
        order = np.argsort(-np.where(labels.states() == 0, log_odds, -np.inf), axis=None)
        assert is_missing.ravel()[order[:40]].mean() > 0.9

    def test_an_order_of_clips_changes_nothing(self) -> None:
        labels, logits, _ = simulate()
        order = np.random.default_rng(1).permutation(400)
        one = find_p_missing(labels, logits).model
        other = find_p_missing(labels.select(order), logits[order]).model
        assert one.coefficients == pytest.approx(other.coefficients, abs=1e-4)

    def test_many_labels_are_thinned_without_bias(self) -> None:
        labels, logits, _ = simulate(n_clips=4_000, n_classes=120)
        model = find_p_missing(labels, logits)
        p = 1 / (1 + np.exp(-model.log_odds(slice(0, 4_000), np.float32(logits))))
        assert p.sum() == pytest.approx(labels.n_positives.sum(), rel=0.02)

    def test_how_many_are_right_is_a_range_over_r(self) -> None:
        labels, logits, _ = simulate()
        low, middle, high = find_p_missing(labels, logits).n_right(np.zeros(10, np.float32))
        assert (low, middle, high) == pytest.approx((10 * 0.3 / 1.3, 5, 7.5))

    def test_a_class_without_scores_has_none(self) -> None:
        labels, logits, _ = simulate()
        logits[:, 3] = np.nan
        log_odds = find_p_missing(labels, logits).log_odds(slice(0, 400), np.float32(logits))
        assert np.isnan(log_odds).all(axis=0).tolist() == [column == 3 for column in range(12)]


class TestWithAnswers:
    def test_class_effects_follow_answers(self) -> None:
        labels, logits, _ = simulate()
        before = find_p_missing(labels, logits)
        rows = np.arange(60)
        present = np.repeat([1.0, 0.0], 30)
        answers = Answers(rows, np.repeat([0, 1], 30), present, np.full(60, np.nan))
        after = find_p_missing(labels, logits, answers=answers)
        assert after.has_answers
        assert not before.has_answers
        assert after.model.effects[0] > 0.5
        assert after.model.effects[1] < -0.5
        assert np.all(after.model.effects[2:] == 0)

    def test_fewer_than_twenty_change_nothing(self) -> None:
        labels, logits, _ = simulate()
        answers = Answers(np.arange(19), np.zeros(19, int), np.ones(19), np.ones(19))
        assert not find_p_missing(labels, logits, answers=answers).has_answers

    def test_answers_at_random_tell_how_many_are_missing(self) -> None:
        labels, logits, is_missing = simulate(n_clips=2_000)
        rng = np.random.default_rng(2)
        rows, columns = np.nonzero(labels.states() == 0)
        asked = rng.choice(len(rows), 2_000, replace=False)
        present = is_missing[rows[asked], columns[asked]].astype(float)
        answers = Answers(rows[asked], columns[asked], present, np.full(2_000, np.nan))
        log_odds = find_p_missing(labels, logits, answers=answers).log_odds_of(rows, columns)
        p = 1 / (1 + np.exp(-log_odds))
        assert p.sum() == pytest.approx(is_missing.sum(), rel=0.2)


def test_the_fit_is_ridge_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    design = rng.normal(size=(200, 4))
    y = (rng.random(200) < 0.4).astype(float)
    found, covariance = fit_logistic(design, y, np.ones(200), np.zeros(4), np.eye(4) / 2.0)
    reference = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10).fit(design, y)
    assert found == pytest.approx(reference.coef_[0], abs=1e-4)
    p = 1 / (1 + np.exp(-design @ found))
    information = design.T @ (design * (p * (1 - p))[:, None]) + np.eye(4) / 2.0
    assert covariance == pytest.approx(np.linalg.inv(information), abs=1e-5)


class TestEstimateTotal:
    def test_holds_the_truth_nine_times_in_ten_whatever_the_model(self) -> None:
        rng = np.random.default_rng(1)
        p = rng.beta(0.1, 4, 20_000)
        truth = rng.random(20_000) < p
        wrong = np.sqrt(p)  # a model that says far too much
        probability = allocate(wrong.astype(np.float32), 300)
        held = []
        for _ in range(200):
            asked = rng.random(20_000) < probability
            weights = 1 / probability[asked]
            predicted = p[asked] * 0.5
            present = truth[asked].astype(float)
            total = estimate_total(0.5 * p.sum(), predicted, present, weights)
            held.append(total.low <= truth.sum() <= total.high)
        assert 0.84 <= np.mean(held) <= 0.97


def test_the_sample_is_allocated_by_the_spread_of_answers() -> None:
    p = np.array([0.5, 0.5, 0.1, 0.001, 0.0], np.float32)
    probability = allocate(p, 1)
    assert probability.sum() == pytest.approx(1)
    spread = np.sqrt(np.array([0.25, 0.25, 0.09, 0.0099, 0.0099]))
    assert probability == pytest.approx(spread / spread.sum())
    assert allocate(p, 4).max() == 1
    assert allocate(p, 4).sum() == pytest.approx(4)


class TestMeasureKnowledge:
    def test_scores_that_know_the_labels(self) -> None:
        labels, logits, _ = simulate()
        auc, p_value = measure_knowledge(labels, open_scores(logits, labels))
        assert auc > 0.9
        assert p_value < 0.01

    def test_shuffled_scores_do_not(self) -> None:
        labels, logits, _ = simulate()
        shuffled = np.random.default_rng(3).permutation(logits)
        auc, p_value = measure_knowledge(labels, open_scores(shuffled, labels))
        assert auc == pytest.approx(0.5, abs=0.05)
        assert p_value > 0.05

    def test_nothing_is_known_without_positives(self) -> None:
        labels = LabelSet.from_dense(np.zeros((5, 2), np.int8))
        auc, p_value = measure_knowledge(labels, open_scores(np.zeros((5, 2)), labels))
        assert np.isnan(auc)
        assert p_value == 1
