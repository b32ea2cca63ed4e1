from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from earmark.flags import (
    FEATURES,
    LEAST_ANSWERS,
    LEAST_R,
    MOST_R,
    N_WITHOUT_ANSWERS,
    Answers,
    LikelyLabels,
    PMissing,
    find_p_missing,
    fit_logistic,
)
from earmark.flags import p_missing as p_missing_module
from earmark.flags.p_missing import EFFECT_VARIANCE, MODEL_SD, PRIOR_ANSWERS, SLOPE_VARIANCE
from earmark.labels import LabelSet, Ontology
from earmark.scores import ScoreMatrix

CLASS_IDS = ("animal", "pet", "dog", "bark", "unscored", "equal", "unlabelled", "rain")
TREE = Ontology(
    CLASS_IDS,
    {"pet": ("animal",), "dog": ("pet", "animal", "unscored"), "bark": ("dog",), "rain": ()},
)
UNKNOWN = ("unscored", "equal", "unlabelled")


def mixed_case(n_clips: int = 300, decimals: int = 1) -> tuple[LabelSet, np.ndarray]:
    """A tree, tied scores, explicit negatives, and classes of which nothing can be said."""
    rng = np.random.default_rng(0)
    is_present = rng.random((n_clips, len(CLASS_IDS))) < 0.2
    logits = (rng.normal(size=is_present.shape) + 2 * is_present - 2).round(decimals)
    states = (is_present & (rng.random(is_present.shape) < 0.5)).astype(np.int8)
    states[~is_present & (rng.random(is_present.shape) < 0.1)] = -1
    logits[:, CLASS_IDS.index("unscored")] = np.nan
    logits[:, CLASS_IDS.index("equal")] = 0.5
    states[:, CLASS_IDS.index("unlabelled")] = 0
    return LabelSet.from_dense(states, class_ids=CLASS_IDS), logits.astype(np.float32)


def simulate(
    n_clips: int = 400, n_classes: int = 12, r: float = 1.0, seed: int = 0
) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Return labels with r missing ones per given one, scores, and which are missing."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((n_clips, n_classes)) < rng.uniform(0.02, 0.1, n_classes)
    is_given = is_present & (rng.random(is_present.shape) < 1 / (1 + r))
    logits = rng.normal(size=is_present.shape) + 2 * is_present - 3
    labels = LabelSet.from_dense(is_given.astype(np.int8))
    return labels, logits.astype(np.float32), is_present & ~is_given


def uneven_case(
    n_clips: int = 2_000, n_classes: int = 30, seed: int = 0
) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Like simulate; but in half of the classes hardly a label is missing."""
    rng = np.random.default_rng(seed)
    is_present = rng.random((n_clips, n_classes)) < 0.05
    share_given = np.where(np.arange(n_classes) % 2, 0.95, 0.3)
    is_given = is_present & (rng.random(is_present.shape) < share_given)
    logits = rng.normal(size=is_present.shape) + 2 * is_present - 3
    labels = LabelSet.from_dense(is_given.astype(np.int8))
    return labels, logits.astype(np.float32), is_present & ~is_given


def answer(rows: np.ndarray, columns: np.ndarray, is_missing: np.ndarray) -> Answers:
    return Answers(rows, columns, is_missing[rows, columns].astype(np.float64))


def answers_at_random(labels: LabelSet, is_missing: np.ndarray, n: int, seed: int = 0) -> Answers:
    rows, columns = np.nonzero(labels.states() == 0)
    asked = np.random.default_rng(seed).choice(len(rows), n, replace=False)
    return answer(rows[asked], columns[asked], is_missing)


def plain_features(labels: LabelSet, logits: np.ndarray, tree: Ontology) -> np.ndarray:
    """The features as their definition has them, one label at a time."""
    states, class_ids = labels.states(), labels.class_ids
    found = np.full((*states.shape, len(FEATURES)), np.nan)
    for column, class_id in enumerate(class_ids):
        implicit = logits[states[:, column] == 0, column].astype(np.float64)
        n_positives = int((states[:, column] > 0).sum())
        is_known = len(np.unique(implicit)) > 1 and n_positives
        mean, sd = (implicit.mean(), implicit.std()) if is_known else (np.nan, 1.0)
        below = [i for i, other in enumerate(class_ids) if class_id in tree.ancestors(other)]
        above = [class_ids.index(parent) for parent in tree.parents.get(class_id, ())]
        for row, own in enumerate(logits[:, column]):
            rank = 1 + sum(score > own for score in logits[row])
            is_implied = any(states[row, other] > 0 for other in below)
            parents = [logits[row, other] for other in above if not np.isnan(logits[row, other])]
            standardised = (own - mean) / sd
            found[row, column] = (
                own,
                np.log(rank),
                is_implied,
                own * is_implied,
                max(parents) - own if parents else 0,
                standardised,
                np.log((n_positives + 0.5) / len(states)),
                max(standardised, 0) ** 2 if is_known else np.nan,
            )
    return found


def full_matrix(p_missing: PMissing, logits: np.ndarray) -> np.ndarray:
    return p_missing.log_odds(slice(0, len(logits)), logits)


class TestFeatures:
    def test_are_those_of_the_definition(self) -> None:
        labels, logits = mixed_case()
        features = find_p_missing(labels, logits, TREE).features
        expected = plain_features(labels, logits, TREE)
        is_known = np.array([class_id not in UNKNOWN for class_id in CLASS_IDS])
        assert features.has_p_missing.tolist() == is_known.tolist()
        expected, n_clips = expected[:, is_known], labels.n_clips
        of_slice = features.of_clips(slice(100, n_clips), logits[100:])[:, is_known]
        np.testing.assert_allclose(of_slice, expected[100:], rtol=1e-4, atol=1e-4)
        clips = np.array([3, 200, 250])
        some = features.of_clips(clips, logits[clips])[:, is_known]
        np.testing.assert_allclose(some, expected[clips], rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("n_labels", [0, 5, 3_000])
    @pytest.mark.parametrize("at_once", [7, 512])
    def test_of_single_labels_are_those_of_their_clips(
        self, n_labels: int, at_once: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("LABELS_AT_ONCE", "CLIPS_AT_ONCE"):
            monkeypatch.setattr(f"earmark.flags.p_missing.{name}", at_once)
        labels, logits = mixed_case()
        p_missing = find_p_missing(labels, logits, TREE)
        rng = np.random.default_rng(0)
        rows, columns = rng.integers(0, 300, n_labels), rng.integers(0, len(CLASS_IDS), n_labels)
        every = p_missing.features.of_clips(slice(0, 300), logits)
        is_scored = columns != CLASS_IDS.index("unscored")
        rows, columns = rows[is_scored], columns[is_scored]
        single = p_missing.features.of_labels(p_missing.scores, rows, columns)
        np.testing.assert_array_equal(single, every[rows, columns])

    def test_there_may_be_no_clips_or_no_classes(self) -> None:
        for shape in ((0, 3), (4, 0)):
            p_missing = find_p_missing(LabelSet.from_dense(np.zeros(shape, int)), np.zeros(shape))
            assert len(p_missing.best(10)) == 0


class TestMatrix:
    """What is asked of p_missing agrees with the log-odds of all labels, sorted plainly."""

    @pytest.fixture(params=["array", "file"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> np.ndarray | Path:
        _, logits = mixed_case()
        np.save(tmp_path / "logits.npy", logits)
        return logits if request.param == "array" else tmp_path / "logits.npy"

    @pytest.fixture(params=["given", "answers", "rank counts for"])
    def p_missing(
        self,
        request: pytest.FixtureRequest,
        source: np.ndarray | Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> PMissing:
        # Several chunks and blocks; a sample of clips that misleads about where a limit lies.
        monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 800)
        monkeypatch.setattr("earmark.flags.p_missing.CLIPS_AT_ONCE", 64)
        labels, _ = mixed_case()
        answers = None
        if request.param == "answers":
            rng = np.random.default_rng(0)
            rows, columns = np.nonzero(labels.states() == 0)
            asked = rng.choice(len(rows), 60, replace=False)
            answers = Answers(rows[asked], columns[asked], rng.integers(0, 3, 60) / 2)
        p_missing = find_p_missing(labels, source, TREE, answers)
        assert p_missing.has_answers == (answers is not None)
        misleading = np.argsort(-np.nansum(mixed_case()[1], axis=1))[:30]
        monkeypatch.setattr(ScoreMatrix, "sample_rows", lambda *_: misleading)
        if request.param == "rank counts for":
            coefficients = p_missing.model.coefficients.copy()
            coefficients[FEATURES.index("log_rank")] = 1.5
            p_missing = replace(
                p_missing, model=replace(p_missing.model, coefficients=coefficients)
            )
        return p_missing

    def test_is_unknown_in_classes_of_which_nothing_can_be_said(self, p_missing: PMissing) -> None:
        log_odds = full_matrix(p_missing, mixed_case()[1])
        is_unknown = np.array([class_id in UNKNOWN for class_id in CLASS_IDS])
        assert np.isnan(log_odds[:, is_unknown]).all()
        assert np.isfinite(log_odds[:, ~is_unknown]).all()

    def test_of_single_labels(self, p_missing: PMissing) -> None:
        labels, logits = mixed_case()
        rows, columns = np.nonzero(labels.states() == 0)
        expected = full_matrix(p_missing, logits)[rows, columns]
        np.testing.assert_array_equal(p_missing.log_odds_of(rows, columns), expected)
        np.testing.assert_array_equal(p_missing.log_odds_of(rows[:9], columns[:9]), expected[:9])

    def test_of_all_labels_are_filled_and_written(
        self, p_missing: PMissing, tmp_path: Path
    ) -> None:
        expected = full_matrix(p_missing, mixed_case()[1])
        for n_clips in (300, 130):
            filled = np.zeros((n_clips, len(CLASS_IDS)))
            p_missing.fill(filled)
            np.testing.assert_array_equal(filled, expected[:n_clips])
            p_missing.write(tmp_path / "written.npy", n_clips)
            np.testing.assert_array_equal(np.load(tmp_path / "written.npy"), expected[:n_clips])

    @pytest.mark.parametrize("least", [-np.inf, -2.0, 0.0, 50.0])
    def test_above_a_limit(self, p_missing: PMissing, least: float) -> None:
        labels, logits = mixed_case()
        log_odds = full_matrix(p_missing, logits)
        chosen = np.array([class_id != "dog" for class_id in CLASS_IDS])
        for classes in (None, chosen):
            is_wanted = (labels.states() == 0) & (log_odds >= least)
            if classes is not None:
                is_wanted &= classes
            check_likely(p_missing.above(least, classes=classes), is_wanted, log_odds, logits)

    @pytest.mark.parametrize("weight", [None, 5.0, 0.001])
    def test_the_best(self, p_missing: PMissing, weight: float | None) -> None:
        labels, logits = mixed_case()
        log_odds = full_matrix(p_missing, logits)
        weights = None if weight is None else np.linspace(1, weight, len(CLASS_IDS))
        chosen = np.array([class_id != "dog" for class_id in CLASS_IDS])
        every = np.ones(len(CLASS_IDS), bool)
        for classes, least, n_labels in product(
            (every, chosen), (-np.inf, -1.5), (0, 1, 40, 400, 900, 100_000)
        ):
            is_asked = (labels.states() == 0) & (log_odds >= least) & classes
            rows, columns = np.nonzero(is_asked)
            own = log_odds[rows, columns]
            worth = own
            if weights is not None:
                worth = np.log(weights).astype(np.float32)[columns] - np.logaddexp(0, -own)
            order = np.lexsort((columns, rows, -logits[rows, columns], -np.float32(worth)))
            order = order[:n_labels]
            best = p_missing.best(n_labels, least, weights, classes)
            np.testing.assert_array_equal(best.log_odds, own[order])
            np.testing.assert_array_equal(best.rows, rows[order])
            np.testing.assert_array_equal(best.columns, columns[order])


def check_likely(
    labels: LikelyLabels, is_wanted: np.ndarray, log_odds: np.ndarray, logits: np.ndarray
) -> None:
    rows, columns = np.nonzero(is_wanted)
    assert labels.rows.tolist() == rows.tolist()
    assert labels.columns.tolist() == columns.tolist()
    np.testing.assert_array_equal(labels.log_odds, log_odds[rows, columns])
    np.testing.assert_array_equal(labels.logits, logits[rows, columns])


class TestWithoutAnswers:
    def test_is_the_odds_of_being_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(p_missing_module, "GIVEN_VARIANCE", 1e4)
        labels, logits, _ = simulate()
        p_missing = find_p_missing(labels, logits)
        features = p_missing.features.of_clips(slice(0, 400), logits)
        used = features[..., :N_WITHOUT_ANSWERS].reshape(-1, N_WITHOUT_ANSWERS)
        reference = LogisticRegression(C=1e4, max_iter=2_000, tol=1e-8)
        reference.fit(used, (labels.states() > 0).ravel())
        log_odds = full_matrix(p_missing, logits).ravel()
        assert log_odds == pytest.approx(reference.decision_function(used), abs=0.01)

    def test_few_given_labels_leave_the_ranking_to_the_scores(self) -> None:
        """Thirty labels, of which by accident those of high scores were left out."""
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(300, 5)).astype(np.float32)
        order = np.argsort(logits, axis=None)
        states = np.zeros(logits.size, np.int8)
        states[order[900:930]] = 1
        labels = LabelSet.from_dense(states.reshape(logits.shape))
        coefficients = find_p_missing(labels, logits).model.coefficients
        assert coefficients[FEATURES.index("logit")] > 0

    def test_many_labels_are_thinned_without_bias(self, monkeypatch: pytest.MonkeyPatch) -> None:
        labels, logits, _ = simulate(n_clips=4_000, n_classes=30)
        exact = expit(full_matrix(find_p_missing(labels, logits), logits))
        monkeypatch.setattr("earmark.flags.p_missing.MOST_EXACT", 1_000)
        thinned = expit(full_matrix(find_p_missing(labels, logits), logits))
        assert exact.sum() == pytest.approx(labels.n_positives.sum(), rel=0.01)
        assert thinned.sum() == pytest.approx(exact.sum(), rel=0.03)
        assert not np.array_equal(thinned, exact)

    def test_the_order_of_clips_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("earmark.flags.p_missing.SAMPLED_CLIPS", 500)
        labels, logits, _ = simulate(n_clips=1_000)
        order = np.random.default_rng(1).permutation(1_000)
        best = find_p_missing(labels, logits).best(200)
        shuffled = find_p_missing(labels.select(order), logits[order]).best(200)
        assert shuffled.log_odds == pytest.approx(best.log_odds, abs=1e-4)
        assert order[shuffled.rows].tolist() == best.rows.tolist()
        assert shuffled.columns.tolist() == best.columns.tolist()

    @pytest.mark.parametrize("r", [LEAST_R, 1.0, MOST_R])
    @pytest.mark.parametrize("n_flags", [100, 1_000, 3_000])
    def test_the_range_holds_how_many_are_missing(self, r: float, n_flags: int) -> None:
        for seed in range(5):
            labels, logits, is_missing = simulate(4_000, 20, r, seed)
            p_missing = find_p_missing(labels, logits)
            flags = p_missing.best(n_flags)
            n_right = is_missing[flags.rows, flags.columns].sum()
            interval = p_missing.count_present(flags.rows, flags.columns)
            error = max(2 * np.sqrt(n_right), 0.1 * n_right)
            assert interval.low - error <= n_right <= interval.high + error
            assert interval.low < interval.value < interval.high
            if r == MOST_R:
                assert interval.high == pytest.approx(n_right, abs=error)


class TestWithAnswers:
    def test_fewer_than_twenty_change_nothing(self) -> None:
        labels, logits, is_missing = simulate()
        answers = answers_at_random(labels, is_missing, LEAST_ANSWERS)
        few = answers.select(np.arange(LEAST_ANSWERS) > 0)
        p_missing = find_p_missing(labels, logits)
        assert p_missing.with_answers(few) is p_missing
        assert p_missing.with_answers(answers).has_answers

    def test_answers_about_classes_without_scores_do_not_count(self) -> None:
        labels, logits = mixed_case()
        column = CLASS_IDS.index("unscored")
        rows = np.flatnonzero(labels.states()[:, column] == 0)[:30]
        answers = Answers(rows, np.full(30, column), np.ones(30))
        assert not find_p_missing(labels, logits, TREE, answers).has_answers

    @pytest.mark.parametrize("seed", range(3))
    def test_the_ranking_of_other_clips_gets_better(self, seed: int) -> None:
        labels, logits, is_missing = uneven_case(seed=seed)
        before = find_p_missing(labels, logits)
        first = before.best(800)
        is_asked = first.rows < 1_000
        answers = answer(first.rows[is_asked], first.columns[is_asked], is_missing)
        after = before.with_answers(answers)
        precision = []
        for p_missing in (before, after):
            others = p_missing.best(2_000)
            others = others.select(others.rows >= 1_000).select(np.arange(150))
            precision.append(is_missing[others.rows, others.columns].mean())
        assert precision[1] > precision[0] + 0.03

    def test_few_answers_are_held_by_the_prior_and_many_are_followed(self) -> None:
        labels, logits, _ = simulate(n_clips=3_000)
        before = find_p_missing(labels, logits)
        likely = before.best(2_000)
        of_first = likely.select(likely.columns == 0)
        effects = []
        for n in (LEAST_ANSWERS, 100):
            some = of_first.select(np.arange(n))
            answers = Answers(some.rows, some.columns, np.zeros(n))
            model = before.with_answers(answers).model
            assert not model.effects[1:].any()
            assert not model.slopes[1:].any()
            shift = model.log_odds(
                before.features.of_labels(before.scores, some.rows, some.columns), some.columns
            )
            effects.append(float((shift - some.log_odds).mean()))
        assert effects[1] < effects[0] < -0.3
        assert effects[0] > -6

    def test_answers_that_agree_with_the_model_leave_it_as_it_is(self) -> None:
        labels, logits, _ = simulate()
        before = find_p_missing(labels, logits)
        rng = np.random.default_rng(0)
        rows, columns = rng.integers(0, 400, 300), rng.integers(0, 12, 300)
        agreed = expit(before.log_odds_of(rows, columns)).astype(np.float64)
        after = before.with_answers(Answers(rows, columns, agreed))
        np.testing.assert_allclose(
            full_matrix(after, logits), full_matrix(before, logits), atol=1e-3
        )

    def test_is_the_most_likely_model(self) -> None:
        """The same penalised likelihood, maximised by an optimiser that knows no design matrix."""
        labels, logits, is_missing = uneven_case(n_clips=500, n_classes=4)
        before = find_p_missing(labels, logits)
        answers = answers_at_random(labels, is_missing, 50)
        answers = answers.select(answers.columns < 2)
        features = before.features.of_labels(before.scores, answers.rows, answers.columns)
        prior, given = before.given.prior_features.astype(np.float64), before.model
        mean, sd = prior.mean(axis=0), prior.std(axis=0)
        sd[sd < 1e-6] = 1
        answered, others = (features - mean) / sd, (prior - mean) / sd
        p_without = expit(prior @ given.coefficients + given.intercept)
        start = np.append(given.coefficients * sd, given.intercept + given.coefficients @ mean)
        at = FEATURES.index("standardised")

        def log_odds_of(beta: np.ndarray, x: np.ndarray, columns: np.ndarray) -> np.ndarray:
            shared, effects, slopes = beta[:9], beta[9:11], beta[11:]
            return x @ shared[:8] + shared[8] + effects[columns] + slopes[columns] * x[:, at]

        def loss(beta: np.ndarray) -> float:
            by_answers = log_odds_of(beta, answered, answers.columns)
            by_prior = others @ beta[:8] + beta[8]
            fit = (answers.present * by_answers - np.logaddexp(0, by_answers)).sum()
            fit += PRIOR_ANSWERS * (p_without * by_prior - np.logaddexp(0, by_prior)).mean()
            far = ((beta[:9] - start) ** 2).sum() + (beta[9:11] ** 2).sum() / EFFECT_VARIANCE
            return float(far / 2 + (beta[11:] ** 2).sum() / SLOPE_VARIANCE / 2 - fit)

        best = minimize(loss, np.concatenate([start, np.zeros(4)]), tol=1e-10).x
        model = before.with_answers(answers).model
        by_model = model.log_odds(features, answers.columns)
        assert by_model == pytest.approx(log_odds_of(best, answered, answers.columns), abs=0.01)

    @pytest.mark.parametrize("step", [1, 10])
    def test_an_interval_is_that_of_models_drawn_from_the_posterior(self, step: int) -> None:
        labels, logits, is_missing = uneven_case(n_clips=500, n_classes=6)
        before = find_p_missing(labels, logits)
        likely = before.best(300)
        some = likely.select((likely.columns < 3) & (np.arange(300) % 3 == 0))
        after = before.with_answers(answer(some.rows, some.columns, is_missing))
        likely = likely.select(np.arange(300) % step == 0)
        posterior, model = after.model.posterior, after.model
        assert posterior is not None
        features = after.features.of_labels(after.scores, likely.rows, likely.columns)
        x = (features - posterior.mean) / posterior.sd
        at, rng = FEATURES.index("standardised"), np.random.default_rng(0)
        n_shared, n_own = len(FEATURES) + 1, len(posterior.answered)
        chances = model.log_odds(features, likely.columns).astype(np.float64)
        totals = []
        for _ in range(4_000):
            own = rng.normal(0, np.sqrt([EFFECT_VARIANCE, SLOPE_VARIANCE]), (6, 2))
            drawn = rng.multivariate_normal(np.zeros(n_shared + 2 * n_own), posterior.covariance)
            own[posterior.answered, 0] = drawn[n_shared : n_shared + n_own]
            own[posterior.answered, 1] = drawn[n_shared + n_own :]
            shift = x @ drawn[: n_shared - 1] + drawn[n_shared - 1]
            shift += own[likely.columns, 0] + own[likely.columns, 1] * x[:, at]
            shift += rng.normal(0, MODEL_SD)
            totals.append((rng.random(len(chances)) < expit(chances + shift)).sum())
        interval = after.count_present(likely.rows, likely.columns)
        low, high = np.quantile(totals, [0.05, 0.95])
        assert interval.high - interval.low == pytest.approx(high - low, rel=0.1)

    def test_an_interval_holds_how_many_are_missing(self) -> None:
        is_held = []
        for seed in range(20):
            labels, logits, is_missing = uneven_case(n_clips=1_000, n_classes=10, seed=seed)
            before = find_p_missing(labels, logits)
            first = before.best(600)
            is_asked = np.random.default_rng(seed).random(600) < 0.4
            answered, left = first.select(is_asked), first.select(~is_asked)
            after = before.with_answers(answer(answered.rows, answered.columns, is_missing))
            interval = after.count_present(left.rows, left.columns)
            n_right = is_missing[left.rows, left.columns].sum()
            is_held.append(interval.low <= n_right <= interval.high)
            assert interval.high - interval.low < 1.5 * n_right
        assert np.mean(is_held) >= 0.75

    def test_an_interval_stays_between_nothing_and_all(self) -> None:
        labels, logits, is_missing = simulate()
        answers = answers_at_random(labels, is_missing, 40)
        p_missing = find_p_missing(labels, logits, answers=answers)
        best = p_missing.best(30)
        for n in (0, 1, 30):
            value, low, high = p_missing.count_present(best.rows[:n], best.columns[:n])
            assert 0 <= low <= value <= high <= n


def test_the_fit_is_ridge_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    design, weights = rng.normal(size=(200, 4)), rng.integers(1, 4, 200).astype(np.float64)
    y = (rng.random(200) < expit(2 * design[:, 0])).astype(float)
    precision = np.full(4, 0.5)
    beta, covariance = fit_logistic(csr_array(design), y, weights, np.zeros(4), precision)
    reference = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10)
    reference.fit(design, y, sample_weight=weights)
    assert beta == pytest.approx(reference.coef_[0], abs=1e-4)
    p = expit(design @ beta)
    information = design.T @ (design * (weights * p * (1 - p))[:, None]) + np.diag(precision)
    assert covariance == pytest.approx(np.linalg.inv(information), abs=1e-4)


def test_a_fit_below_a_ceiling_finds_the_coefficients_of_its_data() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=100_000)
    design = csr_array(np.column_stack([x, np.ones_like(x)]))
    for ceiling in (0.25, 0.75):
        y = (rng.random(len(x)) < ceiling * expit(2 * x - 1)).astype(float)
        start, none = np.zeros(2), np.full(2, 1e-6)
        beta, covariance = fit_logistic(design, y, np.ones(len(x)), start, none, ceiling)
        assert np.abs(beta - [2, -1]).max() < 0.1
        assert np.abs((beta - [2, -1]) / np.sqrt(np.diag(covariance))).max() < 3


def test_the_fit_is_drawn_to_the_mean_of_its_prior() -> None:
    design, y = csr_array(np.ones((10, 1))), np.ones(10)
    fitted = [
        fit_logistic(design, y, np.ones(10), np.array([logit(0.2)]), np.array([precision]))[0][0]
        for precision in (1e6, 1.0, 1e-3)
    ]
    assert fitted[0] == pytest.approx(logit(0.2), abs=1e-3)
    assert fitted[0] < fitted[1] < fitted[2]
