"""One self-contained page that tells what a run found, can be heard, and needs no network.

Every number in a sentence is computed from the results, the verdict included.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from earmark.report.contents import ReportContents
from earmark.report.heard import heard_html
from earmark.report.methods import methods_text
from earmark.report.page_parts import (
    Figure,
    charts_json,
    content_hash,
    details,
    figures_html,
    paragraph,
    script_json,
    section,
    table_html,
    text,
)
from earmark.report.report_figures import write_figures
from earmark.report.results import BASIS_NAMES, label_counts
from earmark.report.sentences import comparison_told, flags_told, numbers_told, sentences
from earmark.report.tables import Table, report_tables, write_tables
from earmark.report.verdict import noise_note
from earmark.runs.artefacts import write_text


def write_report(folder: str | Path, contents: ReportContents) -> Path:
    """Write ``index.html``, ``figures/`` and ``tables/`` and return the path of the page.

    The page needs no network and no other file: figures and sounds are inside it. The figures
    and tables beside it are the same ones for use elsewhere.
    """
    folder = Path(folder)
    tables = report_tables(contents)
    write_tables(folder / "tables", tables)
    drawn = write_figures(
        folder / "figures",
        contents.results,
        contents.line_changes(),
        judged=contents.judged,
        choices=contents.choices,
        rounds=contents.rounds,
        courses=contents.courses,
    )
    write_text(folder / "index.html", _page(contents, tables, drawn))
    return folder / "index.html"


def _page(
    contents: ReportContents, tables: Sequence[Table], drawn: Mapping[str, Sequence[Figure]]
) -> str:
    template, style, script = (
        resources.files("earmark.report").joinpath(f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    data = {
        "charts": charts_json(figure for group in drawn.values() for figure in group),
        "ignored": _ignored_by_point(contents),
    }
    return string.Template(template).substitute(
        title=text(contents.title),
        style=style,
        style_hash=content_hash(style),
        script=script,
        script_hash=content_hash(script),
        sections="\n".join(_sections(contents, {table.name: table for table in tables}, drawn)),
        data=script_json(data),
    )


def _sections(
    contents: ReportContents,
    tables: Mapping[str, Table],
    drawn: Mapping[str, Sequence[Figure]],
) -> list[str]:
    """Return the sections of the page in their order; those without content are left out."""
    shown = {name: figures_html(drawn.get(name, ()), by) for name, by in _CHOOSERS.items()}
    return [
        section("finding", "What happened", _finding(contents)),
        section("discard", "Performance against labels ignored", shown["performance"]),
        section("table", "Baseline and best point", *_by_basis(tables, "performance"),
                _if_there(tables, "controls")),
        section("compared", "Strategies compared", *_compared(contents, tables, shown)),
        section("judged", "Were the flags right?", *_judged(contents, tables, shown)),
        section("classes", "Which classes gain", shown["classes"],
                _if_there(tables, "groups"), _if_there(tables, "per_class")),
        section("counts", "Labels ignored", _counts_html(contents, tables["label_counts"])),
        section("listen", "Top flags to hear",
                *heard_html(contents.heard, contents.sample_rate_hz)),
        section("training", "The course of training", shown["training"]),
        section("methods", "Methods", _methods_html(contents)),
    ]  # fmt: skip


_CHOOSERS = {
    "performance": "Judged by",
    "comparison": "Judged by",
    "rounds": "Judged by",
    "flags_judged": "",
    "classes": "Student",
    "training": "Measure",
}
"""What is chosen where figures have variants."""


def _by_basis(tables: Mapping[str, Table], name: str) -> list[str]:
    """Show a table by the labels as given, and the same by other labels below it, folded."""
    others = [
        details(f"The same by {by}", table_html(tables[f"{name}_{labels}"]))
        for labels, by in BASIS_NAMES.items()
        if f"{name}_{labels}" in tables
    ]
    return [_if_there(tables, name), *others]


def _if_there(tables: Mapping[str, Table], name: str) -> str:
    return table_html(tables[name]) if name in tables else ""


def _compared(
    contents: ReportContents, tables: Mapping[str, Table], shown: Mapping[str, str]
) -> list[str]:
    told, parts = _sentences(contents)[1:], []
    if contents.choices is not None:
        told.append(comparison_told(contents.choices))
        parts += [shown["comparison"], *_by_basis(tables, "comparison")]
    if contents.rounds is not None:
        parts += [shown["rounds"], table_html(tables["rounds"])]
    return [*map(paragraph, told), *parts]


def _judged(
    contents: ReportContents, tables: Mapping[str, Table], shown: Mapping[str, str]
) -> list[str]:
    if contents.judged is None:
        return []
    table = tables["flags_judged"]
    told = flags_told(table.values, contents.flag_percent)
    return [paragraph(told), shown["flags_judged"], table_html(table)]


def _finding(contents: ReportContents) -> str:
    """Return the first sentence and, below it, the numbers of each student that it rests on."""
    verdict = f'<p class="verdict">{text(_sentences(contents)[0])}</p>'
    if contents.results is None:
        return verdict
    items = "\n".join(
        f"<li><b>{text(name)}</b> {text(told)}</li>"
        for name, told in numbers_told(contents.results).items()
    )
    noise = paragraph(noise_note(contents.results))
    return f'{verdict}\n<ul class="lines">\n{items}\n</ul>\n{noise}'


def _sentences(contents: ReportContents) -> list[str]:
    return sentences(contents.results, contents.choices, contents.rounds)


def _counts_html(contents: ReportContents, table: Table) -> str:
    points = contents.thresholds["discard_percent"].unique().sort().to_list()
    options = "".join(
        f"<option{' selected' if point == contents.flag_percent else ''}>{point:g}</option>"
        for point in points
    )
    chooser = (
        '<p class="chooser" hidden><label>Operating point '
        f'<select id="point">{options}</select> %</label></p>'
    )
    return f"{chooser}\n{table_html(table)}"


def _ignored_by_point(contents: ReportContents) -> dict[str, list[int]]:
    """Return to_ignore by point and class, for the page's chooser."""
    counts = label_counts(contents.thresholds, contents.classes)
    return {
        f"{percent:g}": rows["to_ignore"].to_list()
        for (percent,), rows in counts.group_by("discard_percent", maintain_order=True)
    }


def _methods_html(contents: ReportContents) -> str:
    told = methods_text(contents.results, contents.provenance, contents.choices, contents.rounds)
    facts = "\n".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}</dd>"
        for name, value in contents.provenance.items()
    )
    return (
        f'<p id="methods-text">{text(told)}</p>\n'
        '<p><button id="copy" hidden>Copy this paragraph</button></p>\n'
        f"<dl>{facts}</dl>"
    )
