"""Tables made by other programs: CSV, TSV and Parquet, with the line that each row came from.

Real tables have byte-order marks, CRLF, semicolons, quotes that are never closed and headers that
are not there. What can be read is read as text, unchanged; anything else is refused with its line.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import polars as pl

from earmark.datasets.audio_files import AUDIO_SUFFIXES
from earmark.errors import EarmarkError

LINE = "__line__"
"""The column that holds the line (of a Parquet file: the row, from 1) of each row."""

DELIMITERS = (",", "\t", ";", "|")

PRESENCE: dict[str, bool | None] = {
    **dict.fromkeys(("true", "1", "1.0", "+1", "yes", "y", "present", "positive"), True),
    **dict.fromkeys(("false", "0", "0.0", "-1", "-1.0", "no", "n", "absent", "negative"), False),
    **dict.fromkeys(("not present", "not_present", "not-present"), False),
    **dict.fromkeys(("unsure", "unknown", "u", "?", "maybe"), None),
}
"""What people write for present, not present and unsure, in any letter case."""

_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class SourceTable:
    """A table as it was found: cells of a CSV are text, stripped; empty ones are null."""

    path: Path
    rows: pl.DataFrame
    unit: str = "line"

    @property
    def columns(self) -> list[str]:
        """The names of the columns, LINE left out."""
        return [name for name in self.rows.columns if name != LINE]

    def at(self, line: int) -> str:
        """Return the place of a row, for messages."""
        return f"{self.path}, {self.unit} {line}"


def read_source(path: Path, header: Sequence[str] | None = None) -> SourceTable:
    """Read a table; the name's ending tells Parquet from text, the first line the delimiter.

    ``header`` names the columns of a file that has no header line. Blank lines are passed over.
    """
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read_delimited(path, file, header)
    except (FileNotFoundError, IsADirectoryError):
        raise EarmarkError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise EarmarkError(
            f"{path}: not text in UTF-8 ({error}); save it as UTF-8 (a spreadsheet calls it "
            "'CSV UTF-8')"
        ) from None


def _read_parquet(path: Path) -> SourceTable:
    try:
        rows = pl.read_parquet(path)
    except FileNotFoundError:
        raise EarmarkError(f"{path}: no such file") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise EarmarkError(f"{path}: cannot be read as Parquet: {error}") from None
    return SourceTable(path, rows.with_row_index(LINE, offset=1), "row")


def _read_delimited(path: Path, file: TextIO, header: Sequence[str] | None) -> SourceTable:
    delimiter = _delimiter(file.readline())
    file.seek(0)
    lines = _lines(path, file, delimiter)
    if header is None:
        _, header = next(lines, (0, []))
        header = [name.strip() for name in header]
        _check_header(path, header)
    parts = [_as_frame(header, [], [])]
    while chunk := list(itertools.islice(lines, _ROWS_AT_ONCE)):
        numbers, cells = zip(*chunk, strict=True)
        _check_widths(path, numbers, cells, len(header), delimiter)
        parts.append(_as_frame(header, numbers, cells))
    return SourceTable(path, pl.concat(parts))


def _as_frame(
    header: Sequence[str], numbers: Sequence[int], cells: Sequence[Sequence[str]]
) -> pl.DataFrame:
    """Put rows of equal width into columns, which is many times faster than row by row."""
    columns = list(zip(*cells, strict=True)) or [()] * len(header)
    series = [pl.Series(name, cs, pl.String) for name, cs in zip(header, columns, strict=True)]
    text = pl.col(pl.String).str.strip_chars()
    frame = pl.DataFrame(series).with_columns(pl.when(text != "").then(text).name.keep())
    return frame.with_columns(pl.Series(LINE, numbers, pl.Int64))


def _delimiter(first_line: str) -> str:
    """Return the delimiter that occurs most often in the first line; a comma where none does."""
    return max(DELIMITERS, key=first_line.count)


def _lines(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, and the line on which it starts."""
    reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise EarmarkError(
                f"{path}, line {line}: wrong quoting ({error}); a quote that is opened must be "
                'closed before the next delimiter, and a quote within quotes is doubled ("")'
            ) from None
        if row:
            yield line, row


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse a first line that cannot be a header."""
    if not any(header):
        raise EarmarkError(f"{path}: the file is empty; expected a line of column names, then rows")
    data = [name for name in header if Path(name).suffix.lower() in AUDIO_SUFFIXES]
    if data:
        raise EarmarkError(
            f"{path}, line 1: the header seems to be missing: {data[0]!r} is a file and not the "
            "name of a column; put a line such as 'clip_id,class_id' on top"
        )
    for name in header:
        if header.count(name) > 1 or not name:
            raise EarmarkError(f"{path}, line 1: two columns are called {name!r}")


def _check_widths(
    path: Path,
    numbers: Sequence[int],
    cells: Sequence[Sequence[str]],
    n_expected: int,
    delimiter: str,
) -> None:
    for line, row in zip(numbers, cells, strict=True):
        if len(row) != n_expected:
            raise EarmarkError(
                f"{path}, line {line}: {len(row)} fields where the header has {n_expected}; does "
                f"a text with {delimiter!r} in it lack its quotes?"
            )
