"""How commands print what came of them.

At most ``MOST_LINES`` lines of ``WIDTH`` columns: first what was found, then how sure that is, then
what was written and the next command. What does not fit is left out and counted; ``--details``
prints it all. Paths and commands are never broken.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from earmark.text import printable

WIDTH, MOST_LINES = 80, 15
"""Columns and lines of what a command prints."""

_GAP = "  "
"""What stands between two columns of a table."""

_WHOLE = re.compile(r"`[^`]*`|pip install '[^']*'|(?<=: )earmark [a-z].*$")
"""What is never broken over two lines: commands."""


def wrapped(sentence: str) -> list[str]:
    """Return a sentence as lines that fit a terminal; commands and long words are not broken.

    >>> wrapped("no score yet; " * 4 + "have them all first: `earmark score work`")[1:]
    ['  `earmark score work`']
    """
    kept = _WHOLE.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), sentence)
    start = " " * (len(kept) - len(kept.lstrip(" ")))
    lines = textwrap.wrap(
        kept.strip(" "),
        WIDTH,
        initial_indent=start,
        subsequent_indent=f"{start}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [printable(line.replace("\N{NO-BREAK SPACE}", " ")) for line in lines]


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], n_text: int = 1, most: int | None = None
) -> list[str]:
    """Return a table as lines that fit a terminal: a heading, and a line for each row.

    The first ``n_text`` columns hold text, and are cut where there is no room; the others hold
    numbers, which are whole. Of more than ``most`` rows the rest is counted.
    """
    from rich.cells import cell_len

    kept = rows if most is None else rows[:most]
    lines = [columns, *kept]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(columns))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH and max(widths[:n_text]) > 1:
        widths[widths.index(max(widths[:n_text]))] -= 1
    shown = [
        _GAP.join(
            _cell_text(cell, width, is_number=place >= n_text)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return shown + ([f"and {len(rows) - len(kept):,} more"] if len(rows) > len(kept) else [])


def _cell_text(cell: str, width: int, *, is_number: bool) -> str:
    """Return text from the left, cut where it is too long, or a number from the right."""
    from rich.cells import cell_len, set_cell_size

    if is_number:
        return " " * (width - cell_len(cell)) + cell
    return set_cell_size(cell, width) if cell_len(cell) <= width else (
        set_cell_size(cell, width - 1) + "…"
    )  # fmt: skip


def tell(
    as_json: bool,
    next_command: str | None = None,
    *,
    told: Iterable[str] = (),
    table: Sequence[str] = (),
    more: Iterable[str] = (),
    details: bool | None = None,
    then: str | None = None,
    **facts: Any,
) -> None:
    """Print what was found, how sure that is, what was written and the next command.

    ``told`` and ``table`` (lines) come first; of ``more`` as many sentences as there is room for,
    all with ``details``, which is None where a command has no such option. For programs, print
    ``facts`` and the next command as JSON.
    """
    if as_json:
        print(json.dumps({**facts, "next": next_command}, default=str))
        return
    head = [*(line for sentence in told for line in wrapped(sentence)), *table]
    known = {name: value for name, value in facts.items() if value is not None}
    tail = [f"{name}: {_fact_text(value)}" for name, value in known.items()]
    tail += [f"next: {next_command}"] if next_command else []
    tail += [f"then: {then}"] if then else []
    room = MOST_LINES - len(head) - len(tail)
    body = _fitting([wrapped(one) for one in more], None if details else room, details is not None)
    print("\n".join(map(printable, [*head, *body, *tail])))


def _fact_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _fitting(sentences: Sequence[list[str]], room: int | None, has_details: bool) -> list[str]:
    """Return lines of as many sentences as there is room for, and how many were left out."""
    n_lines = sum(map(len, sentences))
    if room is None or n_lines <= room:
        return [line for sentence in sentences for line in sentence]
    lines: list[str] = []
    for place, sentence in enumerate(sentences):
        if room < 1:
            break
        if len(lines) + len(sentence) > room - 1:
            n_left = len(sentences) - place
            where = " (--details)" if has_details else ""
            return [*lines, f"and {n_left:,} more{where}"]
        lines += sentence
    return lines
