from __future__ import annotations

import base64
import hashlib
import json

import polars as pl
import pytest

from earmark.report import page_parts
from earmark.report.charts import Chart
from earmark.report.page_parts import Figure
from earmark.report.tables import Table
from made_up import NASTY, Page


def table(n_rows: int) -> Table:
    shown = pl.DataFrame({"Class": [NASTY] * n_rows, "Flags": ["1,234"] * n_rows})
    return Table("things", "Things.", shown, shown, n_text_columns=1)


def test_only_long_tables_are_filtered() -> None:
    assert "data-filter" not in page_parts.table_html(table(12))
    assert "data-filter" in page_parts.table_html(table(13))


def test_tables_are_escaped_and_linked() -> None:
    page = Page(page_parts.table_html(table(2)))
    assert page.text.count(NASTY) == 2
    assert page.addresses == ["tables/things.csv", "tables/things.tex"]


def test_sections_without_content_are_left_out() -> None:
    assert page_parts.section("a", "A", "", "") == ""
    assert page_parts.details("More", "") == ""
    assert page_parts.figures_html([]) == ""
    assert page_parts.paragraph("") == ""


def test_a_choice_is_offered_only_where_there_is_one() -> None:
    chart = Chart("lines", "x", "y", ())
    one = Figure("a", "A figure.", {"given": chart})
    two = Figure("b", "A figure.", {"given": chart, "truth": chart})
    assert "<select>" not in page_parts.figures_html([one], "Judged by")
    both = page_parts.figures_html([one, two], "Judged by")
    assert "<option>given</option><option>truth</option>" in both


def test_json_cannot_end_its_script() -> None:
    written = page_parts.script_json({"name": "</script>"})
    assert "<" not in written
    assert json.loads(written) == {"name": "</script>"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_parts.script_json([float("nan")])


def test_the_hash_is_that_of_the_policy() -> None:
    digest = base64.b64encode(hashlib.sha256("é".encode()).digest()).decode()
    assert page_parts.content_hash("é") == f"'sha256-{digest}'"
