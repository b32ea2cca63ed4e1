from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from earmark.errors import EarmarkError
from earmark.flags import (
    POLICIES,
    Answers,
    flag,
    gather_evidence,
    survey,
    suspicious_positives,
    thresholds,
)
from earmark.labels import LabelSet, Ontology
from earmark.scores import passes_by
from kept_processes import KeptProcesses
from suspects import labelled_scores, percents, plain_threshold, planted_case, random_case

BY_P_MISSING = ("precision", "budget")


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
        labels = LabelSet.from_dense(states)
        is_known = gather_evidence(labels, scores).knowledge.is_enough
        if policy in BY_P_MISSING and not is_known:
            with pytest.raises(EarmarkError, match="know your labels"):
                flag(labels, scores, policy, **options)
            return
        flags = flag(labels, scores, policy, **options)
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
        rows, columns = np.nonzero(states)
        assert np.array_equal(found.evidence.explicit, scores[rows, columns])

    @pytest.mark.parametrize("policy", ["budget", "precision", "confident"])
    def test_survey_follows_any_policy(self, policy: str) -> None:
        labels, scores, _ = planted_case(4_000)
        assert survey(labels, scores, policy=policy).flags.equals(flag(labels, scores, policy))

    def test_unknown_policy_or_option(self) -> None:
        labels, scores = LabelSet.from_dense([[0]]), np.zeros((1, 1))
        with pytest.raises(EarmarkError, match="percentile, precision, budget"):
            flag(labels, scores, "best")
        with pytest.raises(EarmarkError, match="'percent'; the choices are discard_percent"):
            flag(labels, scores, percent=1)
        with pytest.raises(EarmarkError, match="it has none"):
            flag(labels, scores, "confident", n=1)
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


class TestChance:
    def test_chance_is_p_missing_and_rises_with_the_score(self) -> None:
        labels, scores, _ = planted_case()
        found = survey(labels, scores, discard_percent=5)
        flags = found.flags.filter(pl.col("class_id") == "0")
        rows = flags["clip_id"].cast(pl.Int64).to_numpy()
        log_odds = found.evidence.p_missing.log_odds_of(rows, np.zeros(len(rows), np.int64))
        assert flags["chance"].to_numpy() == pytest.approx(expit(log_odds), abs=1e-6)
        assert np.corrcoef(log_odds, flags["logit"])[0, 1] > 0.95

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

    def test_precision_stops_at_the_target(self) -> None:
        labels, scores, truth = planted_case()
        flags = flag(labels, scores, "precision", target=0.8)
        assert flags["chance"].min() >= 0.8
        assert truth[flags["clip_id"].cast(pl.Int64), flags["class_id"].cast(pl.Int64)].mean() > 0.9
        more = flag(labels, scores, "precision", target=0.3)
        assert len(more) > len(flags)
        assert len(flags.join(more, on=["clip_id", "class_id"], how="anti")) == 0

    def test_budget_takes_the_best_overall(self) -> None:
        labels, scores, _ = planted_case()
        flags = flag(labels, scores, "budget", n_flags=300)
        assert len(flags) == 300
        others = flag(labels, scores, "precision", target=0.01).join(
            flags, on=["clip_id", "class_id"], how="anti"
        )
        assert flags["chance"].min() >= others["chance"].max() - 1e-6
        assert len(flag(labels, scores, "budget", n_flags=0)) == 0

    def test_answers_change_the_order(self) -> None:
        labels, scores, _ = planted_case()
        asked = flag(labels, scores, "budget", n_flags=100)
        rows, columns = (asked[name].cast(pl.Int64).to_numpy() for name in ("clip_id", "class_id"))
        answers = Answers(rows, columns, (columns == 1).astype(np.float64))
        share = [
            (flag(labels, scores, "budget", n_flags=100, answers=some)["class_id"] == "1").mean()
            for some in (None, answers)
        ]
        assert share[1] > share[0] + 0.2

    def test_classes_below_are_evidence(self) -> None:
        rng = np.random.default_rng(0)
        is_dog = rng.random(4_000) < 0.1
        is_animal = is_dog | (rng.random(4_000) < 0.1)
        present = np.stack([is_animal, is_dog], axis=1)
        scores = rng.normal(size=present.shape) + present
        states = (present & (rng.random(present.shape) < 0.5)).astype(np.int8)
        labels = LabelSet.from_dense(states, class_ids=("animal", "dog"))
        tree = Ontology(("animal", "dog"), {"dog": ("animal",)})
        share = []
        for ontology in (None, tree):
            flags = flag(labels, scores, "budget", n_flags=100, ontology=ontology)
            animals = flags.filter(pl.col("class_id") == "animal")["clip_id"].cast(pl.Int64)
            share.append(states[animals, 1].mean())
        assert share[1] > share[0] + 0.5


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

    @pytest.mark.parametrize("n_per_class", [-1, 0])
    def test_none_where_none_is_asked_for(self, n_per_class: int) -> None:
        labels = LabelSet.from_dense([[1, 1], [1, 0]])
        explicit = np.zeros(3, np.float32)
        assert suspicious_positives(labels, explicit, n_per_class=n_per_class).is_empty()

    def test_as_many_as_sorting_all_of_them_gives(self) -> None:
        rng = np.random.default_rng(0)
        labels = LabelSet.from_dense(rng.choice([-1, 0, 1], (300, 9), p=[0.1, 0.3, 0.6]))
        explicit = rng.normal(size=len(labels.columns)).round(1).astype(np.float32)  # with ties
        found = suspicious_positives(labels, explicit, n_per_class=7)
        places = np.flatnonzero(labels.present)
        order = places[np.lexsort((explicit[places], labels.columns[places]))]
        first = np.concatenate([order[labels.columns[order] == c][:7] for c in range(9)])
        assert found["clip_id"].to_list() == [str(row) for row in labels.clip_rows[first]]
        assert found["logit"].to_list() == explicit[first].tolist()

    def test_one_of_two_limits(self) -> None:
        with pytest.raises(EarmarkError, match="either"):
            suspicious_positives(LabelSet.from_dense([[1]]), np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("policy", "options"),
    [("percentile", {"discard_percent": 3}), ("budget", {}), ("precision", {"target": 0.2})],
)
def test_tasks_on_shards_find_what_one_process_finds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    options: dict[str, float],
    two_processes: KeptProcesses,
) -> None:
    labels, scores, _ = planted_case(3_000)
    np.save(tmp_path / "logits.npy", scores)
    in_shards = partial(passes_by, clips_per_shard=700)
    for name in ("flag", "thresholds"):
        monkeypatch.setattr(sys.modules[f"earmark.flags.{name}"], "passes_by", in_shards)
    here = survey(labels, scores, policy=policy, **options)
    there = survey(labels, tmp_path / "logits.npy", policy=policy, engine=two_processes, **options)
    assert there.flags.equals(here.flags)
    points = thresholds(labels, tmp_path / "logits.npy", engine=two_processes)
    np.testing.assert_array_equal(points.values, here.thresholds.values)
