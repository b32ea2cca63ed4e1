from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.report import (
    Table,
    controls_table,
    report_tables,
    show_comparison,
    to_latex,
    verdicts,
    write_tables,
)
from made_up import CURVE, make_choices, make_contents, make_results


def test_controls_table_by_hand():
    results = make_results(
        {0.0: 0.1, 2.0: 0.2}, CURVE, random={2.0: 0.406}, calibrated={0.0: 0.41, 2.0: 0.416}
    )
    row = controls_table(verdicts(results)).row(0, named=True)
    assert row["gain"] == pytest.approx(0.03)
    assert row["left_after_random"] == pytest.approx(0.8)
    assert row["left_after_calibration"] == pytest.approx(0.2)
    assert row["survives_both"] is True


def test_label_counts_refuse_a_point_that_was_not_computed():
    with pytest.raises(EarmarkError, match=r"flag_percent is 3,.*: 0, 1, 2"):
        report_tables(make_contents(flag_percent=3.0))


def test_groups_name_their_cutoffs():
    (groups,) = (table for table in report_tables(make_contents()) if table.name == "groups")
    assert "(small: below 0.04, large: above 0.0667)" in groups.caption
    assert groups.shown["Improved"].to_list() == ["0 (0.0 %)", "0 (0.0 %)", "1 (100.0 %)"]


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


CHOICES = make_choices(
    {"baseline": 0.0, "mask": 0.03, "soft": 0.05, "splc": -0.04, "random": 0.001},
    {"mask": 0.04, "soft": 0.2, "splc": 0.01},
    labels=("given", "truth"),
)


def test_a_strategy_is_one_row_with_its_differences() -> None:
    table = show_comparison(CHOICES, "given")
    assert table.name == "comparison"
    assert len(table.values) == 5 * 4
    row = dict(zip(table.shown.columns, table.shown.row(1), strict=True))
    assert row == {
        "Strategy": "mask", "Student": "net", "Train set": "small", "Point": "1",
        "lwlrap": "+0.030 [+0.020, +0.040]", "lwlrap, calibrated": "+0.030 [+0.020, +0.040]",
        "d′ (all labels)": "+0.030 [+0.020, +0.040]", "mAP": "+0.030 [+0.020, +0.040]",
        "lwlrap over classes": "[+0.010, +0.050]", "p (Holm)": "0.040",
        "Chosen on eval": "0.600 at 2",
    }  # fmt: skip
    assert table.shown["Point"][0] == "none"
    assert table.shown["p (Holm)"][0] == "–"
    assert r"\toprule" in to_latex(table)


def test_other_labels_make_a_table_of_another_name() -> None:
    assert show_comparison(CHOICES, "truth").name == "comparison_truth"


def test_a_class_that_cannot_be_measured_stays_in_the_table() -> None:
    contents = make_contents()
    is_first = pl.col("class_id") == "a"
    value = pl.when(is_first).then(float("nan")).otherwise("lwlrap")
    per_class = contents.per_class.with_columns(lwlrap=value, ap=0.5)
    (table,) = (
        table
        for table in report_tables(replace(contents, per_class=per_class))
        if table.name == "per_class"
    )
    assert table.shown.columns == [
        "Class", "Prior", "Positives", "To ignore", "lwlrap", "AP", "lwlrap change", "AP change",
    ]  # fmt: skip
    assert table.shown.row(0) == ("Bird", "large", "100", "8", "–", "0.500", "–", "+0.000")
    assert table.shown.row(2)[-2] == "+0.100"
