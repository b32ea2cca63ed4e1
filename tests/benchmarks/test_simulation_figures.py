from __future__ import annotations

import pytest
from matplotlib.colors import to_hex

import simulation_figures as figures
from simulated_runs import make_study
from simulation_summary import METRICS, chosen_table, flag_table, gain_table

GAINS = gain_table(chosen_table(make_study()))


def test_gains_share_their_scale_over_sources_and_train_sizes() -> None:
    small, large = (figures.gains_figure(GAINS, n_train) for n_train in (500, 4500))
    assert len(small.axes) == 2 * len(METRICS)
    assert small.axes[0].get_xlim() == small.axes[len(METRICS)].get_xlim()
    assert small.axes[0].get_xlim() == large.axes[0].get_xlim()
    assert small.axes[0].get_title(loc="left") == "synthetic scenes, 500 clips"


def test_every_strategy_has_a_line_of_its_own_and_idle_ones_are_hollow() -> None:
    axes = figures.gains_figure(GAINS, 500).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    points = axes.collections[-1]  # the markers of the highest missing rate
    fills = {
        names[round(float(y))]: to_hex(colour)
        for (_, y), colour in zip(points.get_offsets(), points.get_facecolors(), strict=True)
    }
    assert [name for name, fill in fills.items() if fill == "#ffffff"] == ["Hill loss"]


def test_a_single_world_is_drawn_without_intervals() -> None:
    runs = [run for run in make_study() if run["world"] == 0]
    axes = figures.gains_figure(gain_table(chosen_table(runs)), 500).axes[0]
    low, high = axes.get_xlim()
    assert low < 0 < 0.3 < high < 0.32


def test_bars_split_all_flags_and_end_with_all_implicit_labels() -> None:
    figure = figures.flags_figure(flag_table(make_study()))
    bars = figure.axes[1].containers
    names = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert names == ["1", "10", "all"]
    shares = [[bar.get_height() for bar in part] for part in bars]
    assert [sum(column) for column in zip(*shares, strict=True)] == pytest.approx([1, 1, 1])
    assert shares[0] == pytest.approx([0.6, 0.2, 0.04])
    assert shares[1] == pytest.approx([0.1, 0.3, 0.2])
