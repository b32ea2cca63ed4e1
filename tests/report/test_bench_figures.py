from __future__ import annotations

import polars as pl
import pytest

from earmark.errors import EarmarkError
from earmark.report import bench_figures
from made_up import make_choices, make_courses, make_rounds

CHOICES = make_choices({"baseline": 0.0, "mask": 0.03, "hill": -0.04}, {})


def test_every_metric_has_a_panel_with_all_strategies() -> None:
    figure = bench_figures.comparison_figure(CHOICES, ["lwlrap", "map"])
    assert [axes.get_xlabel() for axes in figure.axes] == ["lwlrap, change", "mAP, change"]
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["mask", "hill"]
    points = figure.axes[0].get_lines()[-1]
    assert list(points.get_xdata()) == pytest.approx([0.03, -0.04])


def test_rounds_show_their_bands() -> None:
    figure = bench_figures.rounds_figure(make_rounds(), ["lwlrap"])
    (axes,) = figure.axes
    assert list(axes.get_lines()[-1].get_ydata()) == pytest.approx([0.01, 0.02])
    assert len(axes.collections) == 1


def test_trainings_share_a_panel_for_each_measure() -> None:
    figure = bench_figures.training_figure(make_courses())
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "lwlrap on tune"]
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 1]


def test_nothing_to_draw_is_a_readable_error() -> None:
    with pytest.raises(EarmarkError, match="compare first"):
        bench_figures.comparison_figure(CHOICES, ["lwlrap"], "truth")
    with pytest.raises(EarmarkError, match="iterate first"):
        bench_figures.rounds_figure(make_rounds(), ["lwlrap"], "truth")
    with pytest.raises(EarmarkError, match="train first"):
        bench_figures.training_figure(dict[str, pl.DataFrame]())
