"""Pieces of a self-contained page: escaped text, tables, figures and files inside the page."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.report.charts import Chart, as_json
from earmark.report.tables import Table

N_ROWS_TO_FILTER = 12
"""Rows from which a table gets a field to filter it by."""


@dataclass(frozen=True)
class Figure:
    """A figure that the page draws itself, and the files in which it is drawn for use elsewhere.

    ``variants`` are charts by the name of what is chosen: labels to judge by, a student. They may
    be empty, and the files fewer than the variants: files show what papers print.
    """

    name: str
    caption: str
    variants: Mapping[str, Chart]
    files: Sequence[Path] = ()
    """Pairs of SVG and PNG in the folder ``figures``."""


def text(words: object) -> str:
    """Escape a text for the page and keep per cent signs with their numbers."""
    return html.escape(str(words)).replace(" %", "\u00a0%")


def paragraph(words: str) -> str:
    """Return a text as a paragraph; nothing for an empty one."""
    return f"<p>{text(words)}</p>" if words else ""


def section(anchor: str, heading: str, *parts: str) -> str:
    """Return a section with its heading, or nothing if there is nothing in it."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{anchor}">\n<h2>{heading}</h2>\n{body}\n</section>' if body else ""


def details(summary: str, *parts: str) -> str:
    """Return parts that are folded away until asked for; nothing if there are none."""
    body = "\n".join(part for part in parts if part)
    return f"<details><summary>{text(summary)}</summary>\n{body}\n</details>" if body else ""


def table_html(table: Table) -> str:
    """Return a table with its caption and the links to its files.

    The page's script lets any column sort it, and filters it if it is long.
    """
    n_text = table.n_text_columns
    kinds = ["text"] * n_text + ["number"] * (table.shown.width - n_text)
    headings = "".join(
        f'<th scope="col" class="{kind}">{text(name)}</th>'
        for kind, name in zip(kinds, table.shown.columns, strict=True)
    )
    rows = "\n".join(
        f'<tr data-row="{number}">'
        + "".join(
            f'<td class="{kind}">{text(cell)}</td>' for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for number, row in enumerate(table.shown.rows())
    )
    links = _links("tables", [f"{table.name}.csv", f"{table.name}.tex"])
    is_long = ' data-filter=""' if table.shown.height > N_ROWS_TO_FILTER else ""
    return (
        f'<p class="caption" id="about-{table.name}">{text(table.caption)} {links}</p>\n'
        f'<div class="scroll" role="region" aria-labelledby="about-{table.name}" tabindex="0">\n'
        f'<table id="{table.name}"{is_long}><thead><tr>{headings}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def figures_html(figures: Sequence[Figure], chooser: str = "") -> str:
    """Return figures side by side, drawn by the page's script; pictures where scripts are off.

    Where figures have several variants, one choice, labelled ``chooser``, serves all of them.
    """
    if not figures:
        return ""
    names = list(dict.fromkeys(name for figure in figures for name in figure.variants))
    options = "".join(f"<option>{text(name)}</option>" for name in names)
    choice = (
        f'<p class="chooser" hidden><label>{text(chooser)} <select>{options}</select></label></p>'
    )
    drawn = "\n".join(_figure_html(figure) for figure in figures)
    return f'<div class="figures">{choice if len(names) > 1 else ""}\n{drawn}\n</div>'


def charts_json(figures: Iterable[Figure]) -> dict[str, Any]:
    """Return what the page's script draws: figure -> variant -> chart."""
    return {
        figure.name: {name: as_json(chart) for name, chart in figure.variants.items()}
        for figure in figures
    }


def script_json(values: object) -> str:
    """Return values as JSON that is safe inside a script element."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def content_hash(content: str) -> str:
    """Return the hash by which a content security policy admits an inline script or style."""
    found = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode('ascii')}'"


def data_uri(media_type: str, content: bytes) -> str:
    """Return an address that contains the file itself."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _figure_html(figure: Figure) -> str:
    pictures = "".join(
        f'<img src="{data_uri("image/svg+xml", path.read_bytes())}" alt="{text(figure.caption)}">'
        for path in figure.files
        if path.suffix == ".svg"
    )
    stems = dict.fromkeys(path.stem for path in figure.files)
    files = [[path.name for path in figure.files if path.stem == stem] for stem in stems]
    links = " ".join(_links("figures", names, is_named=len(files) > 1) for names in files)
    return (
        f'<figure id="figure-{figure.name}"><div class="chart" data-figure="{figure.name}"></div>'
        f"<noscript>{pictures}</noscript>"
        f"<figcaption>{text(figure.caption)} {links}</figcaption></figure>"
    )


def _links(folder: str, names: Sequence[str], *, is_named: bool = False) -> str:
    """Return links to one thing in several formats, after its name where there are others."""
    links = [
        f'<a href="{folder}/{text(name)}">{Path(name).suffix[1:].upper()}</a>' for name in names
    ]
    name = f"{text(Path(names[0]).stem)}: " if is_named else ""
    return f'<span class="files">{name}{" · ".join(links)}</span>'
