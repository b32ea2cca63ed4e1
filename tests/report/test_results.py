from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.labels import LabelSet, Ontology
from earmark.report import (
    PAPER_PRIOR_CUTOFFS,
    class_changes,
    class_summary,
    flags_judged_table,
    group_table,
    label_counts,
    performance_table,
    prior_cutoffs,
    prior_groups,
)
from made_up import CURVE, RESULTS, make_contents, make_results


def test_performance_table_by_hand():
    row = performance_table(RESULTS).row(by_predicate=pl.col("metric") == "lwlrap", named=1)
    expected = {
        "baseline": 0.40, "baseline_low": 0.30, "baseline_high": 0.50,
        "best_percent": 2.0, "best": 0.43, "difference": 0.03,
        "difference_low": 0.025, "difference_high": 0.035, "relative_gain_percent": 7.5,
        "best_on_eval_percent": 1.0, "best_on_eval": 0.44,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_performance_by_the_truth_keeps_the_point_chosen_by_the_labels_as_given():
    given_labels = make_results({0.0: 0.4, 1.0: 0.42, 2.0: 0.45}, CURVE)
    truth = make_results({0.0: 0.4, 1.0: 0.9, 2.0: 0.1}, CURVE, labels=("truth",))
    table = performance_table(pl.concat([given_labels, truth]), labels="truth")
    assert table["best_percent"].unique().to_list() == [2.0]


def test_a_metric_that_could_not_be_computed_has_no_row():
    is_d_prime = pl.col("metric") == "d_prime_explicit"
    value = pl.when(is_d_prime).then(float("nan")).otherwise("value").alias("value")
    assert performance_table(RESULTS.with_columns(value))["metric"].to_list() == ["lwlrap"]


def test_flags_judged_table_by_hand():
    judged = pl.DataFrame(
        {
            "discard_percent": [0.0, 1.0],
            "n_flags": [0, 10],
            "n_right": [0, 8],
            "n_missing": [40, 40],
        }
    )
    (row,) = flags_judged_table(judged).iter_rows(named=True)
    assert row["precision"] == 0.8
    assert row["recall"] == 0.2
    assert (row["precision_low"], row["precision_high"]) == pytest.approx((0.541, 0.931), abs=1e-3)


def test_label_counts_are_the_supplements():
    classes = pl.DataFrame(
        {"class_id": ["s", "a"], "name": ["Speech", "Ambulance (siren)"], "n_total": [506_721] * 2}
    )
    thresholds = pl.DataFrame(
        {
            "discard_percent": [0.1, 0.1],
            "class_id": ["a", "s"],
            "n_implicit": [505_064, 42_459],
            "n_ignored": [505, 42],
        }
    )
    counts = label_counts(thresholds, classes)
    assert counts.select("name", "total", "explicit", "implicit", "to_ignore").rows() == [
        ("Ambulance (siren)", 506_721, 1_657, 505_064, 505),
        ("Speech", 506_721, 464_262, 42_459, 42),
    ]


def test_class_summary_counts_labels():
    labels = LabelSet.from_dense([[1, 0], [1, -1], [0, 0], [0, 0]], class_ids=["a", "b"])
    summary = class_summary(labels, Ontology(("a", "b"), names={"a": "Bird"}))
    assert summary.rows() == [("a", "Bird", 4, 2, 0, 2, 0.5), ("b", "b", 4, 0, 1, 3, 0.0)]


def test_class_changes_are_means_over_seeds_of_defined_classes():
    contents = make_contents()
    is_second = pl.col("class_id") == "b"
    shifted = pl.col("lwlrap") + 0.02 * (pl.col("seed") - 0.5)
    undefined = pl.when(is_second).then(float("nan")).otherwise(shifted).alias("lwlrap")
    per_class = contents.per_class.with_columns(undefined, ap=0.5 + pl.col("discard_percent") / 10)
    changes = class_changes(per_class, contents.classes, 2.0)
    assert changes["class_id"].to_list() == ["a", "b", "c"]
    assert changes["group"].to_list() == ["large", "medium", "small"]
    assert changes["change"].to_list() == pytest.approx([-0.1, float("nan"), 0.1], nan_ok=True)
    assert changes["ap_change"].to_list() == pytest.approx([0.2] * 3)
    assert "d_prime_all_change" not in changes.columns
    assert group_table(changes)["n_classes"].to_list() == [1, 0, 1]


def test_group_table_by_hand():
    changes = pl.DataFrame(
        {"group": ["small"] * 4 + ["large"], "change": [0.3, 0.1, 0.0, -0.2, -0.1]}
    )
    large, medium, small = group_table(changes).rows()
    assert large == ("large", 1, 0, 0.0, -0.1, None)
    assert medium == ("medium", 0, 0, None, None, None)
    assert small == ("small", 4, 2, 50.0, pytest.approx(0.05), pytest.approx(0.2))


def test_priors_are_grouped_by_the_papers_cutoffs_where_they_part_the_classes():
    priors = [0.2, 0.01, 0.00325, 0.003]
    assert prior_cutoffs(priors) == (0.00325, 0.01)
    groups = prior_groups(priors, (0.00325, 0.01))
    assert groups == ["large", "medium", "medium", "small"]


def test_priors_elsewhere_are_grouped_by_terciles():
    priors = np.arange(1, 10) / 10
    groups = prior_groups(priors, prior_cutoffs(priors))
    assert groups == ["small"] * 3 + ["medium"] * 3 + ["large"] * 3
    assert prior_cutoffs([]) == PAPER_PRIOR_CUTOFFS


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_groups_follow_the_order_of_priors(priors):
    groups = prior_groups(priors, prior_cutoffs(priors))
    sizes = [("small", "medium", "large").index(groups[i]) for i in np.argsort(priors)]
    assert sizes == sorted(sizes)
