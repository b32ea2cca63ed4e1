from __future__ import annotations

from earmark.comparison_tables import comparison_told, show_comparison, show_rounds
from earmark.tables import to_latex
from made_up import make_choices, make_rounds

CHOICES = make_choices(
    {"baseline": 0.0, "mask": 0.03, "soft": 0.05, "hill": -0.04, "random": 0.001},
    {"mask": 0.04, "soft": 0.2, "hill": 0.01},
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


def test_only_gains_that_survive_the_correction_are_told() -> None:
    told = comparison_told(CHOICES)
    assert "lwlrap: mask;" in told  # soft is not sure, hill is a loss, random no hypothesis
    assert "soft" not in told
    assert "mAP: none" in comparison_told(make_choices({"mask": 0.03}, {"mask": 0.5}))


def test_rounds_are_listed_in_order() -> None:
    table = show_rounds(make_rounds((0.01, 0.02, -0.03)))
    assert table.shown["Round"].to_list() == ["0", "1", "2"]
    assert table.shown["lwlrap"][2] == "−0.030 [−0.040, −0.020]"
    assert "mask at 1" in table.caption
