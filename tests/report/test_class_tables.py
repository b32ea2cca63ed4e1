from __future__ import annotations

import polars as pl
import pytest

from earmark.report.class_tables import class_table, show_classes

COUNTS = pl.DataFrame(
    {"class_id": ["a", "b"], "name": ["Bird", "Rain"], "positives": [1_000, 0], "to_ignore": [5, 6]}
)
CHANGES = pl.DataFrame(
    {"class_id": ["a"], "group": ["large"], "baseline": [0.5], "chosen": [0.75], "change": [0.25]}
)


def per_class(values: dict[float, tuple[float, float]]) -> pl.DataFrame:
    """AP of class a by discard percent and seed."""
    return pl.DataFrame(
        [
            {
                "kind": "mask", "split": "eval", "labels": "given", "class_id": "a",
                "discard_percent": percent, "ap": value,
            }
            for percent, seeds in values.items()
            for value in seeds
        ]
    )  # fmt: skip


def test_metrics_are_means_over_seeds_and_their_change() -> None:
    rows = per_class({0.0: (0.2, 0.4), 1.0: (0.5, 0.7), 2.0: (0.9, 0.9)})
    table = class_table(CHANGES, rows, COUNTS, 1.0)
    assert table["ap_baseline"][0] == pytest.approx(0.3)
    assert table["ap_change"][0] == pytest.approx(0.3)
    assert "d_prime_all_baseline" not in table.columns


def test_a_class_that_cannot_be_measured_stays_in_the_table() -> None:
    table = class_table(CHANGES, per_class({0.0: (0.2,), 1.0: (0.5,)}), COUNTS, 1.0)
    values = table.select(pl.lit("net, small").alias("line"), pl.all())
    shown = show_classes(values, {"net, small": 1.0}).shown
    assert shown.columns == [
        "Class", "Prior", "Positives", "To ignore", "lwlrap", "AP", "lwlrap change", "AP change",
    ]  # fmt: skip
    assert shown.rows() == [
        ("Bird", "large", "1,000", "5", "0.500", "0.200", "+0.250", "+0.300"),
        ("Rain", "–", "0", "6", "–", "–", "–", "–"),
    ]
