from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp

import simulation_summary as summary
from simulated_runs import make_run, make_student, make_study

ROOT = Path(__file__).parents[2]


def gains_of(students: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    chosen = summary.chosen_table([make_run(0, students)]).filter(metric="map")
    return {row["strategy"]: row for row in chosen.to_dicts()}


def test_the_point_is_the_best_on_tune_and_not_on_eval() -> None:
    found = gains_of(
        [
            make_student("mask", 1.0, 0.9, 0.6),
            make_student("mask", 5.0, 0.7, 0.8),
            make_student("random", 1.0, 0.5, 0.9),
            make_student("random", 5.0, 0.6, 0.1),
        ]
    )
    assert (found["mask"]["point"], found["mask"]["gain"]) == (5.0, pytest.approx(0.2))
    assert (found["random"]["point"], found["random"]["gain"]) == (5.0, pytest.approx(0.1))
    assert found[summary.OVER_CONTROL]["gain"] == pytest.approx(0.1)


def test_doing_nothing_can_be_chosen_and_gains_exactly_nothing() -> None:
    found = gains_of(
        [
            make_student("mask", 1.0, 0.9, 0.4),
            make_student("random", 5.0, 0.4, 0.1),
            make_student("random", 1.0, 0.6, 0.1),
        ]
    )
    assert found["mask"]["is_idle"]
    assert (found["mask"]["point"], found["mask"]["gain"]) == (0.0, 0.0)
    assert found["random"]["point"] == 1.0  # its mildest


def test_oracles_take_their_point_whatever_tune_says() -> None:
    students = [make_student("mask", 1.0, 0.5, 0.6), make_student("random", 1.0, 0.5, 0.5)]
    found = gains_of([*students, make_student("truth", 0.0, 0.9, 0.1)])
    assert not found["truth"]["is_idle"]
    assert found["truth"]["gain"] == pytest.approx(0.4)


def test_every_point_is_there_without_choosing() -> None:
    every = summary.every_point_table(make_study()).filter(metric="map")
    by_point = dict(every.group_by("strategy").agg(pl.col("gain").mean()).iter_rows())
    assert by_point["mask@1"] == pytest.approx(0)
    assert by_point["mask@10"] == pytest.approx(0.03)
    assert by_point["hill@1"] == pytest.approx(0.4)


def made_up_gains(by_world: list[float]) -> pl.DataFrame:
    rows = {"world": range(len(by_world)), "gain": by_world}
    filled = {"strategy": "mask", "metric": "map", "baseline": 0.5, "point": 1.0, "is_idle": False}
    return pl.DataFrame(rows).with_columns(pl.lit(each).alias(key) for key, each in filled.items())


def test_an_interval_is_students_over_worlds() -> None:
    gains = [0.01, 0.02, 0.06]
    (row,) = summary.over_worlds(made_up_gains(gains), ["strategy", "metric"]).to_dicts()
    twin = ttest_1samp(gains, 0)
    low, high = twin.confidence_interval(0.9)
    assert row["gain"] - row["half"] == pytest.approx(low)
    assert row["gain"] + row["half"] == pytest.approx(high)
    assert row["p"] == pytest.approx(twin.pvalue)
    assert row["gains"] == gains


def test_one_world_has_no_interval() -> None:
    found = summary.over_worlds(made_up_gains([0.02]), ["strategy", "metric"])
    assert np.isnan(found["half"][0])
    assert "| +0.020 |" in summary.gains_markdown(found, ["strategy"])
    assert "±" not in summary.gains_markdown(found, ["strategy"])


def test_pooling_averages_within_a_world_before_it_compares_worlds() -> None:
    pooled = summary.pooled_table(summary.chosen_table(make_study()))
    row = pooled.filter(strategy="mask", metric="map", n_train=500).to_dicts()[0]
    assert row["n_worlds"] == 2
    assert row["gains"] == pytest.approx([0.02, 0.04])


def test_cells_are_counted_by_where_their_interval_lies() -> None:
    counts = summary.interval_counts(summary.gain_table(summary.chosen_table(make_study())))
    found = {row["strategy"]: row for row in counts.to_dicts()}
    n_cells = 8 * len(summary.METRICS)
    assert found["hill"]["n_idle"] == found["hill"]["n_cells"] == n_cells
    assert found["hill"]["n_above"] == found["hill"]["n_holm"] == 0
    assert found["mask"]["n_above"] == 0  # two worlds: 0.03 plus or minus 0.063
    assert found["random"]["n_above"] == n_cells
    assert found["truth"]["n_below"] == 0


def test_holm_leaves_fewer_cells_than_the_intervals_alone() -> None:
    gains = pl.concat(
        summary.over_worlds(made_up_gains(by_world), ["strategy", "metric"])
        for by_world in ([0.02, 0.03, 0.05], [-0.02, -0.03, -0.05], [0.01, -0.01, 0.02])
    )
    (row,) = summary.interval_counts(gains).to_dicts()
    assert (row["n_above"], row["n_below"], row["n_holm"]) == (1, 1, 0)


def test_flags_are_pooled_over_worlds() -> None:
    flags = summary.flag_table([make_run(0, []), make_run(1, [])])
    first, second = flags.to_dicts()
    assert (first["precision"], first["recall"]) == (0.6, 12 / 80)
    assert (second["precision"], second["beside"]) == (0.2, 0.3)
    assert (first["chance"], first["beside_chance"]) == (0.04, 0.2)
    assert "60 % right, 15 % found" in summary.flags_markdown(flags)


def test_strategies_can_be_columns() -> None:
    gains = summary.gain_table(summary.chosen_table(make_study())).filter(metric="map")
    header = summary.gains_markdown(gains, summary.KEYS, columns="strategy").splitlines()[0]
    assert [name.strip() for name in header.strip("|").split("|")][3:] == [
        "mask", "random", "hill", "truth", summary.OVER_CONTROL,
    ]  # fmt: skip


def test_the_documents_tables_are_the_results() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "simulation.json").read_text())
    tables = [pl.DataFrame(found[name]) for name in ("gains", "pooled", "flags")]
    document = (ROOT / "docs" / "simulation.md").read_text()
    for title, table in summary.short_tables(*tables).items():
        assert table in document, title
