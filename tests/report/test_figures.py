from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.report import PRIOR_GROUPS, charts, figures
from made_up import make_choices, make_courses

GIVEN = "the labels as given"


def make_results(
    students: tuple[str, ...] = ("small", "large"),
    metrics: tuple[str, ...] = ("d_prime_explicit", "lwlrap", "lwlrap_calibrated"),
    percents: tuple[float, ...] = PAPER_DISCARD_PERCENTS,
) -> pl.DataFrame:
    """Values 0.4 + 0.01 per cent, +-0.002 with the seed, and a random control at 2 %."""
    rows = []
    for student in students:
        for seed, shift in ((0, -0.002), (1, 0.002)):
            points = [("mask", p) for p in percents] + [("random", 2.0)]
            for kind, percent in points:
                value = 0.4 + shift + (0.01 * percent if kind == "mask" else 0)
                numbers = (value, value - 0.03, value + 0.05, 0.01, 0.0, 0.02)
                for metric in metrics:
                    key = (student, "train", seed, kind, float(percent), "eval", "given", metric)
                    rows.append((*key, *numbers))
    columns = [
        "student", "train_set", "seed", "kind", "discard_percent", "split", "labels", "metric",
        "value", "low", "high", "difference", "difference_low", "difference_high",
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def make_changes(n_classes: int = 30, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    baseline = random.uniform(0.2, 0.7, n_classes)
    return pl.DataFrame(
        {
            "name": [f"class number {i}" for i in range(n_classes)],
            "baseline": baseline,
            "chosen": baseline + random.normal(0, 0.1, n_classes),
            "prior": np.full(n_classes, 0.1),
            "group": [PRIOR_GROUPS[i % 3] for i in range(n_classes)],
        }
    ).with_columns(change=pl.col("chosen") - pl.col("baseline"))


def performance(results: pl.DataFrame) -> Figure:
    found = charts.performance_charts(results)
    return figures.draw_charts([found[metric][GIVEN] for metric in list(found)[:2]], 3.5, 4.9)


def classes(changes: pl.DataFrame, percent: float = 1.0) -> Figure:
    return figures.draw_charts([charts.classes_chart(changes, percent)], 3.5, 3.4)


def lines_at(axes: Axes, marker: str):
    return [line for line in axes.get_lines() if line.get_marker() == marker]


def test_performance_shows_means_over_seeds_and_controls() -> None:
    upper, lower = performance(make_results()).axes
    first = lines_at(upper, "o")[0]
    np.testing.assert_allclose(first.get_xdata(), PAPER_DISCARD_PERCENTS)
    np.testing.assert_allclose(first.get_ydata(), 0.4 + 0.01 * np.array(PAPER_DISCARD_PERCENTS))
    for axes in (upper, lower):
        assert [(*line.get_xdata(), *line.get_ydata()) for line in lines_at(axes, "x")] == [
            (2.0, pytest.approx(0.4))
        ] * 2
    assert len([line for line in lower.get_lines() if line.get_linestyle() == "--"]) == 2
    assert not [line for line in upper.get_lines() if line.get_linestyle() == "--"]


def test_performance_band_is_the_mean_interval() -> None:
    upper, _ = performance(make_results()).axes
    heights = upper.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.4 - 0.03)
    assert heights.max() == pytest.approx(0.6 + 0.05)


def test_lines_differ_in_more_than_colour() -> None:
    upper, _ = performance(make_results(("a", "b", "c", "d"))).axes
    long = [line for line in upper.get_lines() if len(line.get_xdata()) > 1]
    assert len({line.get_marker() for line in long}) == 4
    assert len({line.get_color() for line in long}) == 4


def test_percent_axis_shows_zero_and_keeps_tick_labels_apart() -> None:
    figure = performance(make_results())
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    labels = [label for label in figure.axes[1].get_xticklabels() if label.get_text()]
    assert {"0", "0.1", "1", "10", "20"} <= {label.get_text() for label in labels}
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_performance_falls_back_to_d_prime_over_all_labels() -> None:
    results = make_results(metrics=("d_prime_explicit", "d_prime_all", "lwlrap"))
    is_explicit = pl.col("metric") == "d_prime_explicit"
    value = pl.when(is_explicit).then(float("nan")).otherwise("value").alias("value")
    assert performance(results).axes[0].get_ylabel() == "d′ (explicit labels)"
    assert performance(results.with_columns(value)).axes[0].get_ylabel() == "d′ (all labels)"


def test_a_name_is_never_read_as_a_formula(tmp_path: Path) -> None:
    results = make_results(students=("$broken{", "b"))
    figures.write_figure(performance(results), tmp_path / "performance")
    changes = make_changes(3).with_columns(name=pl.Series(["$a{", "b_$c$", "100 %"]))
    figures.write_figure(classes(changes), tmp_path / "classes")


def test_the_same_charts_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        figures.write_figure(performance(make_results()), folder / "performance")
        figures.write_figure(classes(make_changes()), folder / "classes.v2")
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert names == {"performance.png", "performance.svg", "classes.v2.png", "classes.v2.svg"}
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_written_figures_are_sharp_and_light(tmp_path: Path) -> None:
    png, _ = figures.write_figure(classes(make_changes()), tmp_path / "f")
    image = Image.open(png).convert("RGB")
    assert image.width >= 150 * 3.5
    assert image.getpixel((0, 0)) == (255, 255, 255)


def test_the_most_changed_classes_are_named_and_no_name_covers_another() -> None:
    changes = make_changes(60)
    figure = classes(changes, 3.0)
    axes = figure.axes[0]
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    names = [text.get_text() for text in axes.texts]
    boxes = [text.get_window_extent() for text in axes.texts]
    most = changes.sort(pl.col("change").abs())["name"][-1]
    assert most in names
    assert 3 <= len(names) <= 8
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not any(a.overlaps(b) for a, b in pairs)
    assert axes.get_ylabel() == "lwlrap, 3 % ignored"


def test_unchanged_classes_and_undefined_ones_are_not_named() -> None:
    changes = pl.DataFrame(
        {
            "name": ["same", "undefined", "better"],
            "baseline": [0.5, float("nan"), 0.4],
            "chosen": [0.5, 0.9, 0.6],
            "change": [0.0, float("nan"), 0.2],
            "prior": [0.1] * 3,
            "group": ["small"] * 3,
        }
    )
    axes = classes(changes).axes[0]
    assert [text.get_text() for text in axes.texts] == ["better"]
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        "small prior (2)", "medium prior (0)", "large prior (0)",
    }  # fmt: skip


def test_flags_judged_shows_precision_and_recall() -> None:
    judged = pl.DataFrame(
        {
            "discard_percent": [0.0, 1.0, 2.0],
            "n_flags": [0, 10, 20],
            "n_right": [0, 8, 12],
            "n_missing": [40, 40, 40],
        }
    )
    figure = figures.draw_charts([charts.flags_chart(judged)], 3.5, 2.7)
    precision, recall = figure.axes[0].get_lines()
    np.testing.assert_allclose(precision.get_ydata(), [0.8, 0.6])
    np.testing.assert_allclose(recall.get_ydata(), [0.2, 0.3])
    assert precision.get_marker() != recall.get_marker()


def test_every_metric_has_a_panel_with_all_strategies() -> None:
    choices = make_choices({"baseline": 0.0, "mask": 0.03, "splc": -0.04}, {})
    found = charts.comparison_charts(choices, ["lwlrap", "map"])
    panels = [variants[GIVEN] for variants in found.values()]
    figure = figures.draw_charts(panels, 7.0, 2.0, is_stacked=False)
    assert [axes.get_xlabel().split(" of ")[1].split("\n")[0] for axes in figure.axes] == [
        "lwlrap", "mAP",
    ]  # fmt: skip
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["mask", "splc"]
    points = figure.axes[0].get_lines()[-1]
    assert list(points.get_xdata()) == pytest.approx([0.03, -0.04])


@pytest.mark.filterwarnings("error")
def test_dozens_of_trainings_leave_space_for_their_curves(tmp_path: Path) -> None:
    course = next(iter(make_courses().values()))
    found = charts.training_charts({f"network-with-a-name-{i}": course for i in range(60)})
    figure = figures.draw_charts([found["loss"]], 7.0, 2.6, is_stacked=False)
    figures.write_png(figure, tmp_path / "training.png")
    assert not figure.legends
    assert min(axes.get_position().height for axes in figure.axes) > 0.5


def test_matplotlib_is_loaded_only_to_draw() -> None:
    modules = ("report.page", "report.scan_page", "report.figures", "review.server.clips")
    imports = ", ".join(f"earmark.{name}" for name in modules)
    code = f"import sys, {imports}; print({{'matplotlib', 'PIL', 'torch'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
