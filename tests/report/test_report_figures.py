from __future__ import annotations

import polars as pl

from earmark.report.contents import LineChanges
from earmark.report.report_figures import write_figures
from made_up import CURVE, NASTY, make_results

CHANGES = pl.DataFrame(
    {
        "class_id": ["a"], "name": ["Bird"], "prior": [0.1], "group": ["large"],
        "baseline": [0.5], "chosen": [0.75], "change": [0.25],
    }
)  # fmt: skip


def test_every_figure_is_written_twice_and_drawn(tmp_path) -> None:
    results = make_results(CURVE, CURVE, labels=("given", "truth"))
    drawn = write_figures(tmp_path, results, [LineChanges("net", "small", 1.0, CHANGES)])
    assert set(drawn) == {"performance", "classes"}
    names = {"performance", "performance_truth", "per_class_net_small"}
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    listed = {path for group in drawn.values() for figure in group for path in figure.files}
    assert {path.name for path in listed} == written


def test_names_of_students_make_names_of_files(tmp_path) -> None:
    results = make_results(CURVE, CURVE, train_set=NASTY)
    drawn = write_figures(tmp_path, results, [LineChanges("net", NASTY, 1.0, CHANGES)])
    (figure,) = drawn["classes"]
    assert all(path.parent == tmp_path and path.is_file() for path in figure.files)
    assert list(figure.variants) == [f"net, {NASTY}"]
