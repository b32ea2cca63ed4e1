from __future__ import annotations

import sys
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.errors import EarmarkError
from earmark.flags.flag import flag, survey, suspicious_positives
from earmark.flags.histograms import score_histograms
from earmark.flags.in_sample import in_sample_warning
from earmark.flags.policies import POLICIES
from earmark.flags.thresholds import n_discarded, thresholds
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.losses import ignored
from earmark.runs.engine import LocalEngine
from earmark.runs.parameters import PAPER_DISCARD_PERCENTS
from earmark.scores import top_scores
from earmark.scores.sharded import passes_by


def plain_threshold(implicit_scores: np.ndarray, percent: float) -> float:
    """The rule, word for word, by a plain sort."""
    ranked = np.sort(implicit_scores)[::-1]
    k = int(Decimal(str(percent)) * len(ranked) / 100)
    if k == 0:
        return np.inf
    return ranked[k] if k < len(ranked) else -np.inf


def plain_flags(states: np.ndarray, scores: np.ndarray, percent: float) -> list[tuple]:
    rows = []
    for column in range(states.shape[1]):
        implicit = np.flatnonzero(states[:, column] == 0)
        limit = plain_threshold(scores[implicit, column], percent)
        above = [row for row in implicit if scores[row, column] > limit]
        above.sort(key=lambda row: (-scores[row, column], row))
        rows += [(str(row), str(column), scores[row, column], i + 1) for i, row in enumerate(above)]
    return rows


def listed(flags: pl.DataFrame) -> list[tuple]:
    return flags.select("clip_id", "class_id", "logit", "rank").rows()


def random_case(
    n_clips: int, n_classes: int, seed: int = 0, decimals: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = rng.choice(np.array([0, 0, 0, 1, -1], np.int8), size=(n_clips, n_classes))
    return states, rng.normal(size=(n_clips, n_classes)).round(decimals).astype(np.float32)


@st.composite
def labelled_scores(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40))
    states = draw(hnp.arrays(np.int8, shape, elements=st.sampled_from([0, 0, 1, -1])))
    tied = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0])
    smooth = st.floats(-50, 50, width=32)
    return states, draw(
        hnp.arrays(np.float32, shape, elements=draw(st.sampled_from([tied, smooth])))
    )


percents = st.sampled_from([*PAPER_DISCARD_PERCENTS, 33.3, 50, 99.9, 100])


class TestThresholds:
    def test_counts_of_the_supplement(self) -> None:
        # 0.1 % of 505,064 and of 42,459 implicit labels; the paper prints 504 (one tie) and 42
        assert n_discarded(np.array([505_064, 42_459]), [0.1]).tolist() == [[505, 42]]

    def test_percent_is_decimal(self) -> None:
        assert n_discarded(np.array([1_000]), [0.1, 0.7, 8.2]).tolist() == [[1], [7], [82]]

    def test_hand_worked(self) -> None:
        labels = LabelSet.from_dense([[0], [0], [-1], [0], [1], [0]])
        scores = np.array([[5.0], [3.0], [9.0], [3.0], [9.0], [1.0]])
        found = thresholds(labels, scores, [0, 25, 50, 75, 100])
        assert found.values[:, 0].tolist() == [np.inf, 3, 3, 1, -np.inf]
        assert found.n_ignored[:, 0].tolist() == [0, 1, 1, 3, 4]  # the tie at 3 is not split
        assert found.n_implicit.tolist() == [4]

    @given(labelled_scores(), percents)
    @settings(max_examples=150, deadline=None)
    def test_equals_a_plain_sort(self, case: tuple[np.ndarray, np.ndarray], percent: float) -> None:
        states, scores = case
        found = thresholds(LabelSet.from_dense(states), scores, [percent])
        for column in range(states.shape[1]):
            implicit = scores[states[:, column] == 0, column]
            limit = plain_threshold(implicit, percent)
            assert found.values[0, column] == np.float32(limit)
            assert found.n_ignored[0, column] == (implicit > limit).sum()

    @pytest.mark.parametrize("decimals", [9, 1, 0])
    @pytest.mark.parametrize("order", ["random", "sorted", "periodic"])
    def test_large_equals_a_plain_sort(
        self, decimals: int, order: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A small sample, several chunks and several groups of classes; the sample misleads when
        # every fifth clip scores high.
        monkeypatch.setattr(top_scores, "SAMPLE_CLIPS", 1_000)
        monkeypatch.setattr(top_scores, "KEPT_BYTES", 8 * 300)
        monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 2_000)
        states, scores = random_case(5_000, 4, decimals=decimals)
        if order == "sorted":
            scores.sort(axis=0)
        if order == "periodic":
            scores[::5] -= 10
        points = (*PAPER_DISCARD_PERCENTS, 60, 100)
        found = thresholds(LabelSet.from_dense(states), scores, points)
        for column in range(4):
            implicit = scores[states[:, column] == 0, column]
            limits = [plain_threshold(implicit, percent) for percent in points]
            assert found.values[:, column].tolist() == limits
            assert found.n_ignored[:, column].tolist() == [(implicit > t).sum() for t in limits]

    @given(labelled_scores())
    @settings(max_examples=50, deadline=None)
    def test_points_are_nested(self, case: tuple[np.ndarray, np.ndarray]) -> None:
        states, scores = case
        found = thresholds(LabelSet.from_dense(states), scores)
        masks = [ignored(states, scores, row) for row in found.values]
        assert all((small <= large).all() for small, large in pairwise(masks))
        assert [mask.sum(axis=0).tolist() for mask in masks] == found.n_ignored.tolist()

    def test_class_without_implicit_labels(self) -> None:
        found = thresholds(LabelSet.from_dense([[1, 0], [-1, 0]]), np.ones((2, 2)), [100])
        assert found.values.tolist() == [[np.inf, -np.inf]]

    def test_all_scores_equal(self) -> None:
        found = thresholds(LabelSet.from_dense(np.zeros((50, 1), int)), np.ones((50, 1)), [10])
        assert (found.values.tolist(), found.n_ignored.tolist()) == ([[1.0]], [[0]])

    def test_no_clips(self) -> None:
        labels = LabelSet.from_dense(np.zeros((0, 3), int))
        assert (thresholds(labels, np.zeros((0, 3))).values == np.inf).all()
        assert len(flag(labels, np.zeros((0, 3)))) == 0

    def test_no_classes_or_points(self) -> None:
        no_classes = LabelSet.from_dense(np.zeros((4, 0), int))
        assert thresholds(no_classes, np.zeros((4, 0))).values.shape == (18, 0)
        assert thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1)), []).values.shape == (0, 1)

    @pytest.mark.parametrize("percent", [-1, 100.5])
    def test_percent_out_of_range(self, percent: float) -> None:
        with pytest.raises(EarmarkError, match="between 0 and 100"):
            thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1)), [percent])


class TestScores:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_arrays_maps_and_files_agree(
        self, dtype: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("earmark.scores.matrix.CHUNK_SCORES", 200)
        states, scores = random_case(400, 3)
        stored = np.asarray(scores.astype(dtype), order=order)
        np.save(tmp_path / "logits.npy", stored)
        labels = LabelSet.from_dense(states)
        expected = flag(labels, stored.astype(np.float32), discard_percent=10)
        memory_map = np.load(tmp_path / "logits.npy", mmap_mode="r")
        for source in (stored, memory_map, tmp_path / "logits.npy", str(tmp_path / "logits.npy")):
            assert flag(labels, source, discard_percent=10).equals(expected)

    def test_close_float64_scores_are_ties(self) -> None:
        labels = LabelSet.from_dense(np.zeros((4, 1), int))
        scores = np.array([[1.0], [1.0 + 1e-12], [0.5], [0.2]])
        assert len(flag(labels, scores, discard_percent=25)) == 0

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_odd_score_is_named(self, value: float) -> None:
        scores = np.zeros((5, 2))
        scores[3, 1] = value
        labels = LabelSet.from_dense(np.zeros((5, 2), int), list("abcde"), ["dog", "cat"])
        with pytest.raises(EarmarkError, match=r"clip 'd' \(row 3\), class 'cat'"):
            thresholds(labels, scores)

    def test_too_large_for_float32(self) -> None:
        with pytest.raises(EarmarkError, match="row 0"):
            thresholds(LabelSet.from_dense([[0]]), np.array([[1e60]]))

    def test_unscored_class_is_never_flagged(self) -> None:
        states, scores = random_case(300, 2)
        scores[:, 0] = np.nan
        labels = LabelSet.from_dense(states)
        found = thresholds(labels, scores)
        assert (found.values[:, 0] == np.inf).all()
        assert not found.n_ignored[:, 0].any()
        for policy in POLICIES:
            options = {"n_flags": 20} if policy == "budget" else {}
            assert "0" not in flag(labels, scores, policy, **options)["class_id"]

    def test_class_scored_in_part(self) -> None:
        scores = np.zeros((5, 1))
        scores[0] = np.nan
        with pytest.raises(EarmarkError, match="first clip has none"):
            thresholds(LabelSet.from_dense(np.zeros((5, 1), int)), scores)

    @pytest.mark.parametrize(
        ("shape", "hint"), [((2, 3), "transpose"), ((4, 2), "another split"), ((3,), "expected")]
    )
    def test_shape_that_does_not_fit(self, shape: tuple[int, ...], hint: str) -> None:
        with pytest.raises(EarmarkError, match=hint):
            thresholds(LabelSet.from_dense(np.zeros((3, 2), int)), np.zeros(shape))

    def test_integers_are_no_scores(self) -> None:
        with pytest.raises(EarmarkError, match="int64"):
            thresholds(LabelSet.from_dense([[0]]), np.zeros((1, 1), np.int64))

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        labels = LabelSet.from_dense(np.zeros((100, 4), int))
        whole = tmp_path / "whole.npy"
        np.save(whole, np.zeros((100, 4), np.float32))
        cut = tmp_path / "cut.npy"
        cut.write_bytes(whole.read_bytes()[:-100])
        text = tmp_path / "text.npy"
        text.write_text("clip,score\n")
        np.savez(tmp_path / "many.npz", a=np.zeros(3))
        for name in ("cut.npy", "text.npy", "absent.npy", "many.npz"):
            with pytest.raises(EarmarkError, match=name):
                thresholds(labels, tmp_path / name)


class TestFlag:
    @given(labelled_scores(), percents)
    @settings(max_examples=100, deadline=None)
    def test_equals_a_plain_sort(self, case: tuple[np.ndarray, np.ndarray], percent: float) -> None:
        states, scores = case
        flags = flag(LabelSet.from_dense(states), scores, discard_percent=percent)
        assert listed(flags) == plain_flags(states, scores, percent)

    @given(labelled_scores(), st.sampled_from(sorted(POLICIES)))
    @settings(max_examples=100, deadline=None)
    def test_an_explicit_label_is_never_flagged(
        self, case: tuple[np.ndarray, np.ndarray], policy: str
    ) -> None:
        states, scores = case
        options = {"n_flags": 50} if policy == "budget" else {}
        flags = flag(LabelSet.from_dense(states), scores, policy, **options)
        rows, columns = (flags[name].cast(pl.Int64).to_numpy() for name in ("clip_id", "class_id"))
        assert not states[rows, columns].any()
        assert flags["rank"].to_list() == [
            rank for n in flags.group_by("class_id", maintain_order=True).len()["len"]
            for rank in range(1, n + 1)
        ]  # fmt: skip

    def test_survey_equals_its_parts(self) -> None:
        states, scores = random_case(3_000, 3)
        labels = LabelSet.from_dense(states)
        found = survey(labels, scores, discard_percent=0.4)
        expected = thresholds(labels, scores)
        assert np.array_equal(found.thresholds.values, expected.values)
        assert np.array_equal(found.thresholds.n_ignored, expected.n_ignored)
        assert listed(found.flags) == listed(flag(labels, scores, discard_percent=0.4))
        assert found.counts is not None
        assert found.counts.table["class_id"].to_list() == list(labels.class_ids)
        assert survey(labels, scores, with_chance=False).counts is None

    @pytest.mark.parametrize("policy", ["count", "precision", "confident"])
    def test_survey_follows_any_policy(self, policy: str) -> None:
        labels, scores, _ = planted_case(4_000)
        assert survey(labels, scores, policy=policy).flags.equals(flag(labels, scores, policy))

    def test_unknown_policy_or_option(self) -> None:
        labels, scores = LabelSet.from_dense([[0]]), np.zeros((1, 1))
        with pytest.raises(EarmarkError, match="percentile, count, precision, budget"):
            flag(labels, scores, "best")
        with pytest.raises(EarmarkError, match="'percent'; the choices are discard_percent"):
            flag(labels, scores, percent=1)
        with pytest.raises(EarmarkError, match="it has none"):
            flag(labels, scores, "count", n=1)
        with pytest.raises(EarmarkError, match="target lies between"):
            flag(labels, scores, "precision", target=2)

    def test_quantile_of_positives_and_gate(self) -> None:
        # the positives of "dog" score 0 and 2; "animal" is its parent
        states = np.array([[1, 0], [1, 0], [0, 1], [0, 0], [0, 1]], np.int8)
        scores = np.array([[0.0, 0], [2, 0], [3, 0], [3, 0], [1, 0]])
        labels = LabelSet.from_dense(states, list("abcde"), ["dog", "animal"])
        tree = Ontology(("dog", "animal"), {"dog": ("animal",)})

        def dogs(**options: object) -> list[str]:
            flags = flag(labels, scores, "positives_quantile", **options)
            return flags.filter(pl.col("class_id") == "dog")["clip_id"].to_list()

        assert dogs(quantile=0.5) == ["c", "d"]
        assert dogs(quantile=0.05) == ["c", "d", "e"]
        assert dogs() == ["c", "d", "e"]  # mean probability of 0 and 2 is 0.69: logit 0.80
        assert dogs(gate=tree) == ["c", "e"]

    def test_confident_and_global(self) -> None:
        states = np.array([[1], [0], [0], [0]], np.int8)
        labels = LabelSet.from_dense(states, list("abcd"))
        scores = np.array([[-1.0], [-0.5], [0.3], [0.6]])
        # above the positive's -1 but improbable: not flagged
        assert flag(labels, scores, "confident")["clip_id"].to_list() == ["d", "c"]
        assert flag(labels, scores, "global")["clip_id"].to_list() == ["d"]  # logit(0.6) = 0.41
        assert len(flag(labels, scores, "global", probability=0.3)) == 3


def planted_case(n_clips: int = 20_000) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Classes of priors 0.1, 0.02 and 0.0005, from each of which 40 % of the labels are hidden."""
    rng = np.random.default_rng(0)
    priors = np.array([0.1, 0.02, 0.0005])
    truth = rng.random((n_clips, 3)) < priors
    scores = (1.8 * (rng.normal(size=truth.shape) + 4 * truth) + np.log(priors)).astype(np.float32)
    states = (truth & (rng.random(truth.shape) < 0.6)).astype(np.int8)
    return LabelSet.from_dense(states), scores, truth


class TestChance:
    def test_chance_is_calibrated_and_rises_with_the_score(self) -> None:
        labels, scores, truth = planted_case()
        flags = flag(labels, scores, discard_percent=10).filter(pl.col("class_id") == "0")
        is_missing = truth[flags["clip_id"].cast(pl.Int64).to_numpy(), 0]
        assert flags["chance"].is_sorted(descending=True)
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
            band = flags["chance"].is_between(low, high).to_numpy()
            mean = flags.filter(band)["chance"].mean()
            assert is_missing[band].mean() == pytest.approx(mean, abs=0.12)

    def test_chance_is_null_only_without_positives(self) -> None:
        labels, scores, _ = planted_case()
        states = labels.states()
        states[:, 2][states[:, 2] > 0] = 0
        flags = flag(LabelSet.from_dense(states), scores, discard_percent=1)
        is_without = flags["class_id"] == "2"
        assert flags.filter(is_without)["chance"].null_count() == int(is_without.sum()) > 0
        assert flags.filter(~is_without)["chance"].null_count() == 0
        untold = flag(labels, scores, with_chance=False)
        assert untold["chance"].null_count() == len(untold) > 0

    def test_count_flags_as_many_as_are_missing(self) -> None:
        labels, scores, truth = planted_case()
        n_flags = flag(labels, scores, "count")["class_id"].value_counts()
        found = dict(n_flags.iter_rows())
        n_missing = (truth & (labels.states() == 0)).sum(axis=0)
        assert found["0"] == pytest.approx(n_missing[0], rel=0.1)
        assert found["1"] == pytest.approx(n_missing[1], rel=0.3)
        assert "2" not in found

    def test_precision_stops_at_the_target(self) -> None:
        labels, scores, truth = planted_case()
        flags = flag(labels, scores, "precision", target=0.8)
        assert flags["chance"].min() == pytest.approx(0.8, abs=0.02)
        assert truth[flags["clip_id"].cast(pl.Int64), flags["class_id"].cast(pl.Int64)].mean() > 0.9

    def test_budget_takes_the_best_overall(self) -> None:
        labels, scores, _ = planted_case()
        flags = flag(labels, scores, "budget", n_flags=300)
        assert len(flags) == 300
        others = flag(labels, scores, "precision", target=0.01).join(
            flags, on=["clip_id", "class_id"], how="anti"
        )
        assert flags["chance"].min() >= others["chance"].max() - 1e-6
        assert len(flag(labels, scores, "budget", n_flags=0)) == 0


class TestSuspiciousPositives:
    def test_lowest_scored_positives_first(self) -> None:
        labels = LabelSet.from_dense([[1, 1], [1, 0], [1, -1], [0, 1]], list("abcd"))
        scores = np.array([[0.5, 3.0], [-1.0, -9.0], [0.5, -9.0], [-9.0, 2.0]])
        explicit = scores[labels.clip_rows, labels.columns].astype(np.float32)
        found = suspicious_positives(labels, explicit, n_per_class=2)
        assert found.rows() == [
            ("b", "0", -1, 1),
            ("a", "0", 0.5, 2),
            ("d", "1", 2, 1),
            ("a", "1", 3, 2),
        ]
        assert suspicious_positives(labels, explicit, percent=50)["clip_id"].to_list() == ["b", "d"]

    def test_one_of_two_limits(self) -> None:
        with pytest.raises(EarmarkError, match="either"):
            suspicious_positives(LabelSet.from_dense([[1]]), np.zeros(1, np.float32))


class TestInSample:
    def test_scores_out_of_fold_pass(self) -> None:
        labels, scores, _ = planted_case()
        assert in_sample_warning(labels, score_histograms(labels, scores)) is None

    def test_labels_learnt_by_heart_are_noticed(self) -> None:
        labels, scores, _ = planted_case()
        # the teacher has pushed every label that it saw as negative below its positives
        learnt = np.where(labels.states() == 1, scores + 5, np.minimum(scores, 0))
        message = in_sample_warning(labels, score_histograms(labels, learnt))
        assert message is not None
        assert "out of fold" in message

    def test_labels_pushed_half_way_down_are_noticed(self) -> None:
        labels, scores, truth = planted_case()
        pushed = scores - 2.3 * (truth & (labels.states() == 0))  # 1.3 standard deviations
        message = in_sample_warning(labels, score_histograms(labels, pushed))
        assert message is not None
        assert "faint" in message


@pytest.mark.parametrize(
    ("policy", "options"),
    [("percentile", {"discard_percent": 3}), ("count", {}), ("precision", {"target": 0.2})],
)
def test_tasks_on_shards_find_what_one_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, options: dict[str, float]
) -> None:
    labels, scores, _ = planted_case(3_000)
    np.save(tmp_path / "logits.npy", scores)
    in_shards = partial(passes_by, clips_per_shard=700)
    for name in ("flag", "thresholds"):
        monkeypatch.setattr(sys.modules[f"earmark.flags.{name}"], "passes_by", in_shards)
    engine = LocalEngine(2)
    here = survey(labels, scores, policy=policy, **options)
    there = survey(labels, tmp_path / "logits.npy", policy=policy, engine=engine, **options)
    assert there.flags.equals(here.flags)
    assert there.counts is not None
    assert here.counts is not None
    assert there.counts.table.equals(here.counts.table)
    points = thresholds(labels, tmp_path / "logits.npy", engine=engine)
    np.testing.assert_array_equal(points.values, here.thresholds.values)
