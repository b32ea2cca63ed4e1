"""What a scan found, told in sentences and as one self-contained page.

Every number in a sentence is computed from the tables. The page needs no network and no other
file; it can be read on a telephone, in the light or in the dark.
"""

from __future__ import annotations

import html
import string
from collections.abc import Mapping
from importlib import resources
from typing import Any

import polars as pl

from earmark.flags.findings import Findings
from earmark.report.numerals import rounded

N_CLASSES_SHOWN, N_FLAGS_SHOWN = 8, 6
"""Classes whose best flags the page lists, and flags of each."""

_HEADINGS = (
    ("Class", "text"), ("Missing (90 % interval)", "number"), ("Share missing", "bar"),
    ("At most", "number"), ("Flags", "number"), ("Positives", "number"), ("Negatives", "number"),
    ("Implicit", "number"), ("AUC", "number"),
)  # fmt: skip


def headline(classes: pl.DataFrame) -> str:
    """Say how many labels are missing in all.

    The interval adds up those of the classes, which is wider than it need be where the classes'
    errors are independent.
    """
    known = classes.filter(pl.col("n_missing").is_not_null())
    if known.is_empty():
        return (
            "How many labels are missing cannot be estimated: not one of the "
            f"{len(classes):,} classes has enough positives."
        )
    total, low, high = (rounded(float(known[name].sum())) for name in ("n_missing", "low", "high"))
    n_known, n_all = len(known), len(classes)
    where = f"all {n_all:,} classes" if n_known == n_all else (
        f"the {n_known:,} of {n_all:,} classes that can be estimated"
    )  # fmt: skip
    return (
        f"About {total} labels are missing (90 % interval {low} to {high}) beside "
        f"{known['n_positives'].sum():,} positives, in {where}."
    )


def page(findings: Findings, provenance: Mapping[str, str]) -> str:
    """Return the page as HTML."""
    template = resources.files("earmark.report").joinpath("scan.html").read_text(encoding="utf-8")
    told = [findings.data_told, f"{len(findings.flags):,} labels are flagged: "
            f"{findings.policy_told}.", findings.implied_told]  # fmt: skip
    warnings = "".join(f"<li>{_text(warning)}</li>" for warning in findings.warnings)
    return string.Template(template).substitute(
        headline=_text(headline(findings.classes)),
        told="".join(f"<p>{_text(sentence)}</p>" for sentence in told if sentence),
        warnings=f'<ul class="warnings" aria-label="Warnings">{warnings}</ul>' if warnings else "",
        headings=_headings(),
        rows="\n".join(_class_row(row) for row in _by_missing(findings.classes).to_dicts()),
        flags=_top_flags(findings),
        wrong=_lowest_positives(findings),
        facts="".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in provenance.items()),
    )


def _text(text: object) -> str:
    """Escape a text for the page and keep per cent signs with their numbers."""
    return html.escape(str(text)).replace(" %", "\u00a0%")


def _by_missing(classes: pl.DataFrame) -> pl.DataFrame:
    return classes.sort("n_missing", "n_flags", descending=True, nulls_last=True)


def _headings() -> str:
    return "".join(
        f'<th scope="col" class="{kind}"'
        + (' aria-sort="descending"' if name.startswith("Missing") else "")
        + f"><button>{_text(name)}</button></th>"
        for name, kind in _HEADINGS
    )


def _class_row(row: Mapping[str, Any]) -> str:
    upper, auc = row["upper_bound"], row["auc"]
    cells = [
        f'<th scope="row" data-value="{_text(row["name"])}">{_name(row)}</th>',
        *_missing_cells(row),
        _number(upper, "" if upper is None else rounded(upper)),
        *(_number(row[name], f"{row[name]:,}")
          for name in ("n_flags", "n_positives", "n_negatives", "n_implicit")),
        _number(auc, "" if auc is None else f"{auc:.3f}"),
    ]  # fmt: skip
    return f"<tr>{''.join(cells)}</tr>"


def _name(row: Mapping[str, Any]) -> str:
    class_id = row["class_id"] if row["class_id"] != row["name"] else ""
    small = f"<small>{_text(class_id)}</small>" if class_id else ""
    return f"{_text(row['name'])} {small}"


def _number(value: float | None, text: str) -> str:
    return f'<td class="number" data-value="{-1 if value is None else value}">{_text(text)}</td>'


def _missing_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the estimate with its interval, and a bar: missing labels among all positives."""
    n_missing = row["n_missing"]
    if n_missing is None:
        return [f'<td class="none" data-value="-1" colspan="2">{_text(row["note"])}</td>']
    interval = f"{rounded(n_missing)} ({rounded(row['low'])} to {rounded(row['high'])})"
    share = n_missing / max(n_missing + row["n_positives"], 1)
    bar = f'<span style="--share:{share:.3f}"></span>{_text(_percent(share))}'
    return [_number(n_missing, interval), f'<td class="bar" data-value="{share:.4f}">{bar}</td>']


def _percent(share: float) -> str:
    return ">99 %" if share > 0.99 else f"{100 * share:.0f} %"


def _top_flags(findings: Findings) -> str:
    """List the best flags of the classes that miss most labels."""
    worst = _by_missing(findings.classes.filter(pl.col("n_flags") > 0)).head(N_CLASSES_SHOWN)
    return "\n".join(
        _list_html(row, findings.flags.filter(class_id=row["class_id"]).head(N_FLAGS_SHOWN))
        for row in worst.to_dicts()
    )


def _lowest_positives(findings: Findings) -> str:
    """List the lowest positives of the classes in which positives stand out most."""
    below = findings.wrong_positives.filter(pl.col("rank") == 1).join(
        findings.classes.select("class_id", "auc"), on="class_id", maintain_order="left"
    )
    worst = below.sort("auc", descending=True, nulls_last=True).head(N_CLASSES_SHOWN)
    return "\n".join(
        _list_html(
            row,
            findings.wrong_positives.filter(class_id=row["class_id"]).head(N_FLAGS_SHOWN),
        )
        for row in worst.to_dicts()
    )


def _list_html(row: Mapping[str, Any], labels: pl.DataFrame) -> str:
    items = "".join(f"<li>{_label(label)}</li>" for label in labels.to_dicts())
    return f"<section><h3>{_name(row)}</h3><ol>{items}</ol></section>"


def _label(label: Mapping[str, Any]) -> str:
    chance = label.get("chance")
    told = f"score {label['logit']:.2f}".replace("-", "−")
    told += "" if chance is None else f", chance {_percent(chance)}"
    return f'<span class="clip">{_text(label["clip_id"])}</span> <small>{_text(told)}</small>'
