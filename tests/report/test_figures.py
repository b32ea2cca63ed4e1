from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from earmark.errors import EarmarkError
from earmark.report import figures
from earmark.report.results import PRIOR_GROUPS
from earmark.runs.parameters import PAPER_DISCARD_PERCENTS
from made_up import make_choices, make_courses, make_rounds


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
            "group": [PRIOR_GROUPS[i % 3] for i in range(n_classes)],
        }
    )


def lines_at(axes, marker):
    return [line for line in axes.get_lines() if line.get_marker() == marker]


def test_performance_shows_means_over_seeds_baseline_and_controls():
    upper, lower = figures.performance_figure(make_results()).axes
    first = lines_at(upper, "o")[0]
    np.testing.assert_allclose(first.get_xdata(), PAPER_DISCARD_PERCENTS)
    np.testing.assert_allclose(first.get_ydata(), 0.4 + 0.01 * np.array(PAPER_DISCARD_PERCENTS))
    for axes in (upper, lower):
        assert [(*line.get_xdata(), *line.get_ydata()) for line in lines_at(axes, "s")] == [
            (0.0, pytest.approx(0.4))
        ] * 2
        assert [(*line.get_xdata(), *line.get_ydata()) for line in lines_at(axes, "x")] == [
            (2.0, pytest.approx(0.4))
        ] * 2
    dashed = [line for line in lower.get_lines() if line.get_linestyle() == "--"]
    assert len(dashed) == 2
    assert not [line for line in upper.get_lines() if line.get_linestyle() == "--"]


def test_performance_band_is_the_mean_interval():
    upper, _ = figures.performance_figure(make_results()).axes
    heights = upper.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.4 - 0.03)
    assert heights.max() == pytest.approx(0.6 + 0.05)


def test_lines_differ_in_more_than_colour():
    upper, _ = figures.performance_figure(make_results(("a", "b", "c", "d"))).axes
    long = [line for line in upper.get_lines() if len(line.get_xdata()) > 1]
    assert len({line.get_marker() for line in long}) == 4
    assert len({line.get_color() for line in long}) == 4


def test_percent_axis_shows_zero_and_keeps_tick_labels_apart():
    figure = figures.performance_figure(make_results())
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    axes = figure.axes[1]
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    assert {"0", "0.1", "1", "10", "20"} <= {label.get_text() for label in labels}
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert "square-root" in axes.get_xlabel()


def test_performance_falls_back_to_d_prime_over_all_labels():
    results = make_results(metrics=("d_prime_explicit", "d_prime_all", "lwlrap"))
    is_explicit = pl.col("metric") == "d_prime_explicit"
    value = pl.when(is_explicit).then(float("nan")).otherwise("value").alias("value")
    assert figures.performance_figure(results).axes[0].get_ylabel() == "d′ (explicit labels)"
    blind = results.with_columns(value)
    assert figures.performance_figure(blind).axes[0].get_ylabel() == "d′ (all labels)"


def test_performance_without_results_says_what_to_do():
    with pytest.raises(EarmarkError, match="'truth'"):
        figures.performance_figure(make_results(), labels="truth")


def test_a_name_is_never_read_as_a_formula(tmp_path):
    results = make_results(students=("$broken{", "b"))
    figures.write_figure(figures.performance_figure(results), tmp_path / "performance")
    changes = make_changes(3).with_columns(name=pl.Series(["$a{", "b_$c$", "100 %"]))
    figures.write_figure(figures.per_class_figure(changes, 1.0), tmp_path / "classes")


def test_the_same_tables_give_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        folder = tmp_path / name
        figures.write_figure(figures.performance_figure(make_results()), folder / "performance")
        figures.write_figure(figures.per_class_figure(make_changes(), 1.0), folder / "classes.v2")
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert names == {"performance.png", "performance.svg", "classes.v2.png", "classes.v2.svg"}
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_written_figures_are_sharp_and_light(tmp_path):
    png, _ = figures.write_figure(figures.per_class_figure(make_changes(), 1.0), tmp_path / "f")
    image = Image.open(png).convert("RGB")
    assert image.width >= 150 * 3.5
    assert image.getpixel((0, 0)) == (255, 255, 255)


def test_the_most_changed_classes_are_named_and_no_name_covers_another():
    changes = make_changes(60)
    figure = figures.per_class_figure(changes, 3.0)
    axes = figure.axes[0]
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    names = [text.get_text() for text in axes.texts]
    boxes = [text.get_window_extent() for text in axes.texts]
    most = changes.sort((pl.col("chosen") - pl.col("baseline")).abs())["name"][-1]
    assert most in names
    assert 3 <= len(names) <= 8
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not any(a.overlaps(b) for a, b in pairs)
    assert axes.get_ylabel() == "lwlrap, 3 % ignored"


def test_unchanged_classes_and_undefined_ones_are_not_named():
    changes = pl.DataFrame(
        {
            "name": ["same", "undefined", "better"],
            "baseline": [0.5, float("nan"), 0.4],
            "chosen": [0.5, 0.9, 0.6],
            "group": ["small"] * 3,
        }
    )
    axes = figures.per_class_figure(changes, 1.0).axes[0]
    assert [text.get_text() for text in axes.texts] == ["better"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "small (2)", "medium (0)", "large (0)",
    ]  # fmt: skip


def test_flags_judged_shows_precision_and_recall():
    judged = pl.DataFrame(
        {
            "discard_percent": [0.0, 1.0, 2.0],
            "n_flags": [0, 10, 20],
            "n_right": [0, 8, 12],
            "n_missing": [40, 40, 40],
        }
    )
    precision, recall = figures.flags_judged_figure(judged).axes[0].get_lines()
    np.testing.assert_allclose(precision.get_ydata(), [0.8, 0.6])
    np.testing.assert_allclose(recall.get_ydata(), [0.2, 0.3])
    assert precision.get_marker() != recall.get_marker()
    with pytest.raises(EarmarkError, match="no flags to judge"):
        figures.flags_judged_figure(judged.head(1))


CHOICES = make_choices({"baseline": 0.0, "mask": 0.03, "hill": -0.04}, {})


def test_every_metric_has_a_panel_with_all_strategies() -> None:
    figure = figures.comparison_figure(CHOICES, ["lwlrap", "map"])
    assert [axes.get_xlabel() for axes in figure.axes] == ["lwlrap, change", "mAP, change"]
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["mask", "hill"]
    points = figure.axes[0].get_lines()[-1]
    assert list(points.get_xdata()) == pytest.approx([0.03, -0.04])


def test_rounds_show_their_bands() -> None:
    figure = figures.rounds_figure(make_rounds(), ["lwlrap"])
    (axes,) = figure.axes
    assert list(axes.get_lines()[-1].get_ydata()) == pytest.approx([0.01, 0.02])
    assert len(axes.collections) == 1


def test_trainings_share_a_panel_for_each_measure() -> None:
    figure = figures.training_figure(make_courses())
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "lwlrap on tune"]
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 1]


@pytest.mark.filterwarnings("error")
def test_dozens_of_trainings_leave_room_for_their_curves(tmp_path: Path) -> None:
    course = next(iter(make_courses().values()))
    figure = figures.training_figure({f"network-with-a-name-{i}": course for i in range(60)})
    figures.write_png(figure, tmp_path / "training.png")
    assert not figure.legends
    assert min(axes.get_position().height for axes in figure.axes) > 0.5


def test_nothing_to_draw_is_a_readable_error() -> None:
    with pytest.raises(EarmarkError, match="compare first"):
        figures.comparison_figure(CHOICES, ["lwlrap"], "truth")
    with pytest.raises(EarmarkError, match="iterate first"):
        figures.rounds_figure(make_rounds(), ["lwlrap"], "truth")
    with pytest.raises(EarmarkError, match="train first"):
        figures.training_figure(dict[str, pl.DataFrame]())


def test_matplotlib_is_loaded_only_to_draw() -> None:
    modules = ("report.page", "report.missing.scan_page", "report.timeline", "review.server.media")
    imports = ", ".join(f"earmark.{name}" for name in modules)
    code = f"import sys, {imports}; print({{'matplotlib', 'PIL', 'torch'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
