"""The fixture ``frozen`` compares results with the files of ``tests/golden/frozen``.

``pytest tests/frozen --renew`` writes those files again; read their diff before you commit it.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "frozen"
HOW = "; if the change is meant, run `pytest tests/frozen --renew` and read the diff"
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


class Frozen:
    """Compare text and tables with the stored ones, or store them."""

    def __init__(self, renew: bool) -> None:
        self.renew = renew

    def text(self, name: str, text: str, *, has_numbers: bool = True) -> None:
        """Compare lines; a number may differ by one in the last decimal that is printed.

        Without numbers, the words are compared and every number, with its sign, is a ``#``.
        """
        lines = [line.rstrip() for line in text.strip().splitlines()]
        if not has_numbers:  # a number of another length breaks lines elsewhere
            sentences = " ".join(" ".join(lines).split()).split(". ")
            lines = [re.sub("[+−]#", "#", NUMBER.sub("#", line)) for line in sentences]
        path = GOLDEN / f"{name}.txt"
        if self.renew:
            path.write_text("\n".join(lines) + "\n")
        expected = path.read_text().splitlines()
        if len(lines) == len(expected):
            lines = [_close_line(*pair) for pair in zip(lines, expected, strict=True)]
        assert lines == expected, f"{path} differs{HOW}\n{_diff(expected, lines)}"

    def sections(self, name: str, sections: Mapping[str, str]) -> None:
        """Compare texts by title, and name the titles of those that differ."""
        path = GOLDEN / f"{name}.txt"
        if self.renew:
            path.write_text("".join(f"# {title}\n{text}\n" for title, text in sections.items()))
        parts = re.split(r"^# (.*)\n", path.read_text(), flags=re.MULTILINE)[1:]
        expected = dict(zip(parts[::2], (text[:-1] for text in parts[1::2]), strict=True))
        titles = [*sections, *(title for title in expected if title not in sections)]
        changed = [title for title in titles if sections.get(title) != expected.get(title)]
        diffs = [
            f"# {title}\n"
            + _diff(*(one.get(title, "").splitlines() for one in (expected, sections)))
            for title in changed
        ]
        message = f"{path} differs for {', '.join(changed)}{HOW}\n" + "\n".join(diffs)
        assert not changed, message

    def table(
        self, name: str, table: pl.DataFrame, tolerances: Mapping[str, float] | None = None
    ) -> None:
        """Compare a table: columns with a tolerance within it, all others to the bit."""
        path = GOLDEN / f"{name}.csv"
        # A tenth of the tolerance is stored, and no more digits.
        decimals = {
            column: pl.col(column).cast(pl.Float64).round(int(1.5 - np.log10(tolerance)))
            for column, tolerance in (tolerances or {}).items()
        }
        if self.renew:
            table.with_columns(**decimals).write_csv(path)
        expected = pl.read_csv(path, infer_schema=False)
        # Both sides go through the same text, which holds every bit of a float.
        actual = pl.read_csv(io.StringIO(table.write_csv()), infer_schema=False)
        assert actual.columns == expected.columns, f"{path} has other columns{HOW}"
        assert len(actual) == len(expected), f"{path} has another number of rows{HOW}"
        for column, tolerance in (tolerances or {}).items():
            values, wanted = (
                side[column].cast(pl.Float64).to_numpy() for side in (actual, expected)
            )
            np.testing.assert_allclose(
                values, wanted, rtol=tolerance, atol=tolerance, err_msg=f"{path}: {column}{HOW}"
            )
            actual = actual.with_columns(expected[column])
        rows, wanted_rows = (side.write_csv().splitlines() for side in (actual, expected))
        assert rows == wanted_rows, f"{path} differs{HOW}\n{_diff(wanted_rows, rows)}"

    def fingerprint(self, name: str, path: Path) -> None:
        """Compare a file's bytes by their hash, and its number of lines."""
        content = path.read_bytes()
        n_lines, digest = len(content.splitlines()), hashlib.sha256(content).hexdigest()
        self.text(name, f"{n_lines} lines, sha256 {digest}")


def _diff(expected: list[str], actual: list[str], title: str = "") -> str:
    names = (f"{title} frozen".strip(), f"{title} now".strip())
    return "\n".join(difflib.unified_diff(expected, actual, *names, lineterm="", n=0))


def _close_line(line: str, expected: str) -> str:
    """Return the expected line if ``line`` is the same but for the last decimal of numbers."""
    pairs = zip(NUMBER.findall(line), NUMBER.findall(expected), strict=False)
    is_same = NUMBER.sub("#", line) == NUMBER.sub("#", expected)
    return expected if is_same and all(_is_close(*pair) for pair in pairs) else line


def _is_close(number: str, expected: str) -> bool:
    step = 10.0 ** -len(expected.partition(".")[2])
    difference = abs(float(number.replace(",", "")) - float(expected.replace(",", "")))
    return difference <= (1.01 * step if "." in expected else 0)


@pytest.fixture(scope="session")
def frozen(request: pytest.FixtureRequest) -> Frozen:
    return Frozen(request.config.getoption("--renew"))
