"""A table as numbers for programs and as text for people, and its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from earmark.runs import write_table, write_text

_N_ROWS_TO_FILTER = 13


@dataclass(frozen=True)
class Table:
    """One table: ``values`` for programs (CSV), ``shown`` as text for people (LaTeX, the page)."""

    name: str
    caption: str
    values: pl.DataFrame
    shown: pl.DataFrame
    n_text_columns: int = 2

    @property
    def is_long(self) -> bool:
        """Whether it needs a field to filter it by."""
        return self.shown.height >= _N_ROWS_TO_FILTER

    def kind_of(self, column: int) -> str:
        """Return ``text`` or ``number``, which the page shows from the left or from the right."""
        return "text" if column < self.n_text_columns else "number"


def write_tables(folder: str | Path, tables: Iterable[Table]) -> None:
    """Write every table as ``NAME.csv`` (all numbers) and ``NAME.tex`` (as shown)."""
    for table in tables:
        write_table(Path(folder) / f"{table.name}.csv", table.values)
        write_text(Path(folder) / f"{table.name}.tex", to_latex(table))


def to_latex(table: Table) -> str:
    """Return a table as LaTeX for the booktabs package, every name escaped."""
    rows = [table.shown.columns, *table.shown.rows()]
    lines = [" & ".join(_latex(str(cell)) for cell in row) + r" \\" for row in rows]
    n_numbers = table.shown.width - table.n_text_columns
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{'l' * table.n_text_columns}{'r' * n_numbers}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "−": "$-$", "–": "--", "′": "$'$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
