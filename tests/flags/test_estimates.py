from __future__ import annotations

import json

import numpy as np
import pytest

from earmark.flags import (
    Z90,
    MissingEstimates,
    allocate,
    bound,
    count_missing,
    estimate_first,
    estimate_total,
    expect_of_first,
    gather_evidence,
    is_weak,
    sampling_sizes,
    split_total,
    survey,
)
from earmark.labels import LabelSet
from earmark.metrics import Interval
from suspects import planted_case, world

RIGHT, TOTAL = Interval(90.4, 60.0, 118.0), Interval(1_234.4, 900.0, 1_600.0)
BEFORE = MissingEstimates(250, 250, Interval(180.2, 110.0, 221.0))
AFTER = MissingEstimates(250, 200, RIGHT, 80, 52, 8)
COUNTED = MissingEstimates(250, 200, RIGHT, 80, 52, 20, TOTAL, 9_000, 12, 3_000)


class TestStatement:
    @pytest.mark.parametrize(
        ("estimates", "words"),
        [
            (BEFORE, "250 flags, about 180 of them right (110 to 221)."),
            (MissingEstimates(250, 250), "250 flags."),
            (MissingEstimates(1, 1), "1 flag."),
            (MissingEstimates(0, 0), "0 flags."),
            (
                AFTER,
                "52 missing labels confirmed in 80 answers. 200 flags left, about 90 of them right "
                "(60 to 118). No total: that takes 20 random answers, there are 8.",
            ),
            (
                COUNTED,
                "52 missing labels confirmed in 80 answers. 200 flags left, about 90 of them right "
                "(60 to 118). In all about 1,234 labels are missing (900 to 1,600) in 12 classes, "
                "beside 3,000 given labels.",
            ),
            (
                MissingEstimates(3, 0, None, 3, 1, 0),
                "1 missing label confirmed in 3 answers. No flag is left. "
                "No total: that takes 20 random answers, there are 0.",
            ),
            (
                # answers about other labels than the flags
                MissingEstimates(5, 5, None, 1, 0, 1),
                "0 missing labels confirmed in 1 answer. 5 flags. "
                "No total: that takes 20 random answers, there are 1.",
            ),
        ],
    )
    def test_is_one_in_words(self, estimates: MissingEstimates, words: str) -> None:
        assert estimates.describe() == words

    def test_a_total_that_may_be_anything_has_no_middle(self) -> None:
        vague = MissingEstimates(9, 9, None, 40, 2, 40, Interval(300.0, 40.0, 401.0), 9_000, 1, 1)
        assert vague.is_vague
        assert vague.describe_total() == (
            "In all 40 to 401 labels are missing in 1 class, beside 1 given label."
        )
        nothing = MissingEstimates(9, 9, None, 40, 0, 40, Interval(0.0, 0.0, 3.0), 9_000, 1, 1)
        assert nothing.is_vague
        assert not COUNTED.is_vague
        assert not AFTER.is_vague

    def test_a_precision_is_a_share(self) -> None:
        assert AFTER.precision_left == pytest.approx((90.4 / 200, 0.3, 0.59))
        assert MissingEstimates(9, 5, Interval(4.0, 2.0, 6.0)).precision_left == (0.8, 0.4, 1.0)
        assert MissingEstimates(9, 0, Interval(0.0, 0.0, 0.0)).precision_left is None
        assert MissingEstimates(9, 9).precision_left is None

    def test_a_share_of_all_that_should_be_there(self) -> None:
        shares = (1_234.4 / 4_234.4, 900 / 3_900, 1_600 / 4_600)
        assert COUNTED.share == pytest.approx(shares)
        assert AFTER.share is None

    def test_facts_are_plain_values(self) -> None:
        for estimates in (BEFORE, AFTER, COUNTED, MissingEstimates(0, 0)):
            facts = json.loads(json.dumps(estimates.facts()))
            assert facts["n_left"] == estimates.n_left
            for name in ("n_right", "total", "precision_left", "share"):
                interval = getattr(estimates, name)
                assert facts[name] == (None if interval is None else interval._asdict())


class TestBeforeListening:
    def test_flags_are_counted_and_nothing_is_said_of_totals(self) -> None:
        labels, scores, is_present = planted_case(4_000)
        found = survey(labels, scores, policy="budget", n_flags=400)
        estimates = count_missing(labels, scores, found.suspects)
        assert estimates == estimate_first(found.suspects, found.evidence)
        assert (estimates.n_flags, estimates.n_left, estimates.n_answers) == (400, 400, 0)
        assert estimates.total is None
        flags = found.flags
        rows, columns = flags["clip_id"].cast(int), flags["class_id"].cast(int)
        assert estimates.n_right is not None
        n_right = is_present[rows.to_numpy(), columns.to_numpy()].sum()
        assert estimates.n_right.low <= n_right <= estimates.n_right.high

    def test_without_flags_those_of_the_default_policy_are_counted(self) -> None:
        labels, scores, _ = planted_case(4_000)
        suspects = survey(labels, scores, policy=None).suspects
        assert count_missing(labels, scores) == count_missing(labels, scores, suspects)

    def test_scores_that_do_not_know_the_labels_say_nothing(self) -> None:
        states, scores, _ = world(0.95)
        shuffled = np.random.default_rng(1).permutation(scores)
        estimates = count_missing(LabelSet.from_dense(states), shuffled)
        assert estimates.n_flags > 0
        assert estimates.n_right is None
        assert expect_of_first(gather_evidence(states, shuffled)) is None

    @pytest.mark.parametrize(("auc", "is_poor"), [(0.6, True), (0.95, False)])
    def test_weak_scores_are_told_by_their_first_flags(self, auc: float, is_poor: bool) -> None:
        states, scores, is_missing = world(auc)
        evidence = gather_evidence(states, scores)
        expected = expect_of_first(evidence)
        assert expected is not None
        n_first, right = expected
        assert n_first == 100
        assert is_weak(n_first, right) == is_poor
        first = evidence.p_missing.best(n_first)
        share = is_missing[first.rows, first.columns].mean()
        assert (share < 0.4) == is_poor

    def test_fewer_flags_come_first_where_few_labels_were_given(self) -> None:
        rng = np.random.default_rng(0)
        states = np.zeros((500, 2), np.int8)
        states[:20] = 1
        scores = rng.normal(size=states.shape) + 4 * states
        expected = expect_of_first(gather_evidence(states, scores))
        assert expected is not None
        assert expected[0] == 8  # of 40


class TestTotal:
    @pytest.mark.parametrize("n_answers", [100, 400])
    @pytest.mark.parametrize("factor", [0.3, 1.0, 2.0])
    def test_its_interval_is_right_nine_times_in_ten_however_wrong_the_model(
        self, n_answers: int, factor: float
    ) -> None:
        rng = np.random.default_rng(1)
        p = rng.beta(0.2, 4, 10_000)
        is_missing = rng.random(10_000) < p
        predicted = np.minimum(factor * p, 1)
        probability = allocate(sampling_sizes(predicted, 0.02), n_answers)
        is_held, values = [], []
        for _ in range(200):
            asked = rng.random(10_000) < probability
            present, weights = is_missing[asked].astype(float), 1 / probability[asked]
            total = estimate_total(predicted.sum(), predicted[asked], present, weights)
            is_held.append(total.low <= is_missing.sum() <= total.high)
            values.append(total.value)
        assert 0.85 <= np.mean(is_held) <= 0.97
        error_of_mean = np.std(values) / np.sqrt(200)
        assert np.mean(values) == pytest.approx(is_missing.sum(), abs=4 * error_of_mean)

    def test_is_that_of_a_case_by_hand(self) -> None:
        # 100 labels, of which each of 4 answers stands for 25; residuals of 0.5, -0.5, -0.5, 0.5
        present, predicted = np.array([1.0, 0, 0, 1]), np.full(4, 0.5)
        value, low, high = estimate_total(50.0, predicted, present, np.full(4, 25.0))
        assert value == 50
        variance = 4 / 3 * 24 / 25 * 4 * 12.5**2
        assert low == pytest.approx(50 - Z90 * np.sqrt(variance))
        unseen = 24 / 25 * 25
        assert high == pytest.approx(50 + Z90 * np.sqrt(variance + unseen**2))

    def test_is_sure_where_all_labels_were_judged(self) -> None:
        present = np.array([1.0, 0, 1, 1])
        total = estimate_total(1.7, np.full(4, 1.7 / 4), present, np.ones(4))
        assert total == pytest.approx((3, 3, 3))

    def test_is_never_negative(self) -> None:
        total = estimate_total(1.0, np.full(30, 0.9), np.zeros(30), np.full(30, 50.0))
        assert (total.value, total.low) == (0, 0)
        assert total.high >= 0


def test_totals_are_those_of_prediction_powered_inference() -> None:
    ppi_py = pytest.importorskip("ppi_py")
    rng = np.random.default_rng(0)
    n_labels, n = 1_000_000, 300
    predicted = rng.beta(0.5, 2, n_labels)
    asked = rng.choice(n_labels, n, replace=False)
    present = (rng.random(n) < predicted[asked] * 0.7).astype(float)
    total = estimate_total(predicted.sum(), predicted[asked], present, np.full(n, n_labels / n))
    of_all = (present, predicted[asked], predicted)
    mean = float(np.squeeze(ppi_py.ppi_mean_pointestimate(*of_all, lam=1)))
    assert total.value / n_labels == pytest.approx(mean)
    low, high = (float(np.squeeze(end)) for end in ppi_py.ppi_mean_ci(*of_all, alpha=0.1, lam=1))
    # theirs takes the mean off the residuals, for which the size of the sample must be fixed
    assert (total.value - total.low) / n_labels == pytest.approx(mean - low, rel=0.02)
    # ours allows for one more missing label that stands for a 300th of all, upwards
    assert high < total.high / n_labels < high + 1 / n


class TestSampling:
    def test_sizes_are_the_spread_of_answers(self) -> None:
        sizes = sampling_sizes(np.array([0.5, 0.9, 0.01, 0.0, 1.0]), 0.05)
        least = np.sqrt(0.05 * 0.95)
        assert sizes == pytest.approx([0.5, 0.3, least, least, least])

    def test_probabilities_are_proportional_up_to_one(self) -> None:
        assert allocate(np.array([1.0, 2.0, 5.0]), 0.8) == pytest.approx([0.1, 0.2, 0.5])
        # the third is certain; what is left goes to the others
        assert allocate(np.array([1.0, 2.0, 50.0]), 1.6) == pytest.approx([0.2, 0.4, 1.0])
        assert allocate(np.array([1.0, 2.0, 50.0]), 9) == pytest.approx([1.0, 1.0, 1.0])
        assert allocate(np.array([1.0, 2.0]), 0).tolist() == [0, 0]

    @pytest.mark.parametrize("n_answers", [1, 50, 199, 200])
    def test_as_many_are_drawn_as_asked_for(self, n_answers: int) -> None:
        sizes = np.random.default_rng(0).exponential(size=200) ** 4
        probability = allocate(sizes, n_answers)
        assert probability.sum() == pytest.approx(n_answers)
        assert probability.max() <= 1


class TestClasses:
    def test_parts_add_up_and_none_is_below_what_is_confirmed(self) -> None:
        expected, confirmed = np.array([10.0, 2.0, 0.0, 4.0]), np.array([4.0, 3.0, 0.0, 0.0])
        parts = split_total(27.0, expected, confirmed)
        # 20 more, in proportion to 6, 0, 0 and 4
        assert parts == pytest.approx([4 + 12, 3, 0, 8])
        assert split_total(7.0, expected, confirmed) == pytest.approx(confirmed)

    def test_what_is_known_for_sure_bounds_an_interval(self) -> None:
        assert bound(Interval(30.0, 2.0, 90.0), 5, 60) == (30, 5, 60)
        assert bound(Interval(3.0, 2.0, 4.0), 5, 60) == (5, 5, 5)
