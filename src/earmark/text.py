"""Text that others wrote, made safe where people read it: terminals, Markdown, spreadsheets.

Names of classes, clips, files, columns and raters come from strangers. On a terminal a control
character moves the cursor or hides what was printed; in Markdown a name can be a script, an image
or a link; in a spreadsheet a cell can be a formula.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""C0 and C1 (ESC among them), separators of lines, and what turns the direction of writing."""

_ADDRESS = re.compile(r"(https?://[^\s<>|\\`]+)")
_MARKUP = re.compile(r"[\\`*_\[\]<>&|~#!]|^[-+=]")
"""What begins something in Markdown, or HTML in it."""

_FORMULA = r"^(?:[=\x{FF1D}@\x{FF20}\t\r\n]|[+\x{FF0B}\x{FF0D}-][\w.-]*[^\w.-])"
"""Cells that a spreadsheet computes. ``-0RWZT-miFs``, as clips of AudioSet are called, is a name of
nothing there: it cannot call a function. Spreadsheets in Japanese know the wide signs, too."""

_CELL_WITHIN = r"([;\t\r\n]\s*)([=\x{FF1D}@\x{FF20}+\x{FF0B}\x{FF0D}-])"
"""Where a formula begins within a text, in countries whose spreadsheets cut lines at semicolons."""


def printable(text: str) -> str:
    r"""Return a line of text for a terminal, with its control characters as Python writes them.

    >>> print(printable("dog\x1b[2J"))
    dog\x1b[2J
    """
    return _CONTROL.sub(lambda control: ascii(control[0])[1:-1], text)


def markdown(text: str) -> str:
    r"""Return text for a line of Markdown: all of it is text, but addresses of http(s) are links.

    >>> print(markdown("<b>[a](javascript:b)"), markdown("see https://a.org/b_c"))
    \<b\>\[a\](javascript:b) see <https://a.org/b_c>
    """
    parts = _ADDRESS.split(" ".join(_CONTROL.sub(" ", text).split()))
    parts[::2] = [_MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [f"<{address}>" for address in parts[1::2]]
    return "".join(parts)


def without_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table for spreadsheets: an apostrophe stands before each text that is a formula.

    For tables that people read, not for those that are read again by programs: there, a name has to
    stay as it is.
    """
    import polars as pl  # the command line begins without it

    texts = pl.col(pl.String)
    safe = texts.str.replace_all(_CELL_WITHIN, "${1}'${2}")
    return table.with_columns(
        pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + safe).otherwise(safe).name.keep()
    )
