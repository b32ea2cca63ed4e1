from __future__ import annotations

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.report.page import report_tables
from earmark.report.tables import (
    Table,
    class_changes,
    class_summary,
    controls_table,
    flags_judged_table,
    group_table,
    label_counts,
    performance_table,
    to_latex,
    write_tables,
)
from earmark.report.verdict import verdicts
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


def test_controls_table_by_hand():
    results = make_results(
        {0.0: 0.1, 2.0: 0.2}, CURVE, random={2.0: 0.406}, calibrated={0.0: 0.41, 2.0: 0.416}
    )
    row = controls_table(verdicts(results)).row(0, named=True)
    assert row["gain"] == pytest.approx(0.03)
    assert row["left_after_random"] == pytest.approx(0.8)
    assert row["left_after_calibration"] == pytest.approx(0.2)
    assert row["survives_both"] is True


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


def test_label_counts_refuse_a_point_that_was_not_computed():
    with pytest.raises(EarmarkError, match=r"flag_percent is 3,.*: 0, 1, 2"):
        report_tables(make_contents(flag_percent=3.0))


def test_class_summary_counts_labels():
    labels = LabelSet.from_dense([[1, 0], [1, -1], [0, 0], [0, 0]], class_ids=["a", "b"])
    summary = class_summary(labels, Ontology(("a", "b"), names={"a": "Bird"}))
    assert summary.rows() == [("a", "Bird", 4, 2, 0, 2, 0.5), ("b", "b", 4, 0, 1, 3, 0.0)]


def test_class_changes_are_means_over_seeds_of_defined_classes():
    contents = make_contents()
    is_second = pl.col("class_id") == "b"
    shifted = pl.col("lwlrap") + 0.02 * (pl.col("seed") - 0.5)
    undefined = pl.when(is_second).then(float("nan")).otherwise(shifted).alias("lwlrap")
    changes = class_changes(
        contents.per_class.with_columns(undefined), contents.classes, 2.0, cutoffs=(0.03, 0.07)
    )
    assert changes["class_id"].to_list() == ["a", "c"]
    assert changes["group"].to_list() == ["large", "small"]
    assert changes["change"].to_list() == pytest.approx([-0.1, 0.1])


def test_group_table_by_hand():
    changes = pl.DataFrame(
        {"group": ["small"] * 4 + ["large"], "change": [0.3, 0.1, 0.0, -0.2, -0.1]}
    )
    large, medium, small = group_table(changes).rows()
    assert large == ("large", 1, 0, 0.0, -0.1, None)
    assert medium == ("medium", 0, 0, None, None, None)
    assert small == ("small", 4, 2, 50.0, pytest.approx(0.05), pytest.approx(0.2))


def test_groups_name_their_cutoffs():
    contents = make_contents(prior_cutoffs=(0.03, 0.07))
    (groups,) = (table for table in report_tables(contents) if table.name == "groups")
    assert "(small: below 0.03, large: above 0.07)" in groups.caption
    assert groups.shown["Improved"].to_list() == ["0 (0.0 %)", "0 (0.0 %)", "1 (100.0 %)"]


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


def test_latex_escapes_names():
    shown = pl.DataFrame({"Class": [r"50 % of A&B_#1 {$x^2$} ~ \end"], "d′": ["−0.010"]})
    table = Table("names", "100 % & more", shown, shown, n_text_columns=1)
    text = to_latex(table)
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{100 \% \& more}" in text
    assert "Class & d$'$ \\\\" in text
    assert (
        r"50 \% of A\&B\_\#1 \{\$x\textasciicircum{}2\$\} \textasciitilde{} \textbackslash{}end"
        r" & $-$0.010 \\"
    ) in text


def test_every_table_is_written_as_csv_and_latex(tmp_path):
    judged = pl.DataFrame(
        {"discard_percent": [1.0], "n_flags": [10], "n_right": [8], "n_missing": [40]}
    )
    tables = report_tables(make_contents(judged=judged))
    write_tables(tmp_path, tables)
    names = {"performance", "controls", "flags_judged", "groups", "per_class", "label_counts"}
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{ending}" for name in names for ending in ("csv", "tex")
    }
    counts = pl.read_csv(tmp_path / "label_counts.csv")
    assert len(counts) == 3 * 3  # every class at every point
    assert (tmp_path / "label_counts.tex").read_text().count(r"\\") == 1 + 3
    assert pl.read_csv(tmp_path / "performance.csv")["best"][1] == pytest.approx(0.43)
