from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import polars as pl
import pytest
from jinja2 import UndefinedError

from earmark.flags import MissingEstimates
from earmark.metrics import Interval
from earmark.report import (
    CURVE_HEIGHT,
    CURVE_WIDTH,
    Chart,
    Figure,
    Table,
    content_hash,
    flags_to_hear,
    listened_html,
    write_report,
)
from earmark.report.rendering import templates
from earmark.review import Gains
from made_up import NASTY, Page, make_contents


def rendered(source: str, **values: object) -> str:
    return templates().from_string(source).render(**values)


def part(call: str, **values: object) -> str:
    """Render one of the pieces that a report's page is made of."""
    imports = '{% from "parts.html" import figures, table, table_by_basis with context %}'
    return rendered(
        f"{imports}{{{{ {call} }}}}", basis_names={"truth": "the truth"}, link=str, **values
    )


def table(n_rows: int, name: str = "things") -> Table:
    shown = pl.DataFrame({"Class": [NASTY] * n_rows, "Flags": ["1,234"] * n_rows})
    return Table(name, "Things.", shown, shown, n_text_columns=1)


def test_only_long_tables_are_filtered() -> None:
    assert "data-filter" not in part("table(one)", one=table(12))
    assert "data-filter" in part("table(one)", one=table(13))


def test_tables_are_escaped_and_linked() -> None:
    page = Page(part("table(one)", one=table(2)))
    assert page.text.count(NASTY) == 2
    assert page.addresses == ["tables/things.csv", "tables/things.tex"]


def test_other_labels_are_folded_away() -> None:
    assert part("table_by_basis('things')", tables={}).strip() == ""
    alone = part("table_by_basis('things')", tables={"things": table(1)})
    assert "<details>" not in alone
    both = {"things": table(1), "things_truth": table(1, "things_truth")}
    page = Page(part("table_by_basis('things')", tables=both))
    assert "The same by the truth" in page.text
    assert page.tags.count("table") == 2


def test_figures_of_nothing_are_nothing() -> None:
    assert part("figures([])").strip() == ""


def test_a_choice_is_offered_only_where_there_is_one() -> None:
    chart = Chart("lines", "x", "y", ())
    one = Figure("a", "A figure.", {"given": chart})
    two = Figure("b", "A figure.", {"given": chart, "truth": chart})
    assert "<select>" not in part("figures([one], 'Judged by')", one=one)
    both = part("figures([one, two], 'Judged by')", one=one, two=two)
    assert "<option>given</option><option>truth</option>" in both


def test_texts_are_escaped_and_keep_their_per_cent_signs() -> None:
    assert rendered("{{ name }}", name="<b>") == "&lt;b&gt;"
    assert rendered('<i title="{{ name }}">', name="\"' & 5 %") == (
        '<i title="&#34;&#39; &amp; 5\u00a0%">'
    )


def test_what_was_forgotten_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="nothing"):
        rendered("{{ nothing }}")


def test_json_cannot_end_its_script() -> None:
    written = rendered("{{ values | tojson }}", values={"name": "</script> 5 %"})
    assert "<" not in written
    assert json.loads(written) == {"name": "</script> 5 %"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        rendered("{{ values | tojson }}", values=[float("nan")])


def test_the_hash_is_that_of_the_policy() -> None:
    digest = base64.b64encode(hashlib.sha256("é".encode()).digest()).decode()
    assert content_hash("é") == f"'sha256-{digest}'"


def test_libraries_that_draw_are_loaded_only_to_draw() -> None:
    modules = ("report.page", "report.scan_page", "review.server.clips")
    imports = ", ".join(f"earmark.{name}" for name in modules)
    code = f"import sys, {imports}; print({{'PIL', 'torch'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


GAINS = Gains(
    MissingEstimates(1_000, 820, Interval(475.0, 434.0, 517.0), 300, 214),
    71.0,
    curve=((0, 0), (100, 90), (300, 214)),
    forecast=((400, 285), (500, 350)),
)


def test_the_part_says_what_was_found_and_draws_it_with_its_forecast():
    told = str(listened_html(GAINS))
    assert "214 by 300 answers" in told
    assert "good place to stop" not in told
    root = ElementTree.fromstring(told)
    forecast, found = (one.get("points") for one in root.iter("polyline"))
    assert found.split()[0] == f"0.0,{CURVE_HEIGHT:.1f}"
    assert forecast.split()[0] == found.split()[-1], "the forecast goes on where listening ended"
    assert forecast.split()[-1] == f"{CURVE_WIDTH:.1f},0.0"


def test_a_low_yield_is_told_with_the_advice_to_stop():
    told = str(listened_html(replace(GAINS, n_next_found=4.0)))
    assert "good place to stop" in told


def test_nothing_is_drawn_where_nobody_listened():
    assert not listened_html(None)
    assert not listened_html(replace(GAINS, estimates=MissingEstimates(1_000, 1_000)))


def test_a_single_answer_has_no_curve():
    assert not listened_html(replace(GAINS, curve=((0, 0),), forecast=()))


def test_the_report_of_students_has_the_part_once(tmp_path):
    page = write_report(tmp_path, make_contents(gains=GAINS)).read_text(encoding="utf-8")
    assert page.count("What listening found") == 1
    assert GAINS.describe() in page
    known = make_contents(estimates=GAINS.estimates)
    without = write_report(tmp_path, known).read_text(encoding="utf-8")
    assert "What listening found" not in without
    assert GAINS.estimates.describe() in without


def made_flags(chances: dict[str, list[float | None]]) -> pl.DataFrame:
    rows = [
        {"clip_id": f"{name}{i}", "class_id": name, "rank": i + 1, "chance": chance}
        for name, own in chances.items()
        for i, chance in enumerate(own)
    ]
    schema = {"clip_id": pl.String, "class_id": pl.String, "rank": pl.Int32, "chance": pl.Float32}
    return pl.DataFrame(rows, schema)


def chosen(flags: pl.DataFrame, n_most: int) -> list[str]:
    return flags_to_hear(flags, n_most)["clip_id"].to_list()


def test_the_likeliest_come_first_whatever_their_class() -> None:
    flags = made_flags({"a": [0.35, 0.2], "b": [0.99, 0.5]})
    assert chosen(flags, 3) == ["b0", "b1", "a0"]


def test_one_class_does_not_fill_the_list() -> None:
    flags = made_flags({"a": [0.9] * 50} | {f"c{i}": [0.1, 0.05] for i in range(20)})
    heard = flags_to_hear(flags, 20)
    assert heard["class_id"].to_list()[:3] == ["a"] * 3
    assert (heard["class_id"] == "a").sum() == 3
    assert len(heard) == 20


def test_few_classes_fill_the_list_together() -> None:
    flags = made_flags({"a": [0.9] * 50, "b": [0.8] * 50})
    assert flags_to_hear(flags, 40)["class_id"].value_counts().sort("class_id")[
        "count"
    ].to_list() == [20, 20]


def test_without_chances_classes_take_turns_by_rank() -> None:
    flags = made_flags({"a": [None] * 3, "b": [None] * 3})
    assert chosen(flags, 4) == ["a0", "b0", "a1", "b1"]


def test_what_has_no_chance_comes_last() -> None:
    flags = made_flags({"a": [None] * 3, "b": [0.01]})
    assert chosen(flags, 2) == ["b0", "a0"]


def test_no_flags_are_no_list() -> None:
    assert chosen(made_flags({}), 5) == []
