from __future__ import annotations

import base64
import hashlib
import json

import polars as pl
import pytest
from jinja2 import UndefinedError

from earmark.report import Chart, Figure, Table, content_hash
from earmark.report.rendering import templates
from made_up import NASTY, Page


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
