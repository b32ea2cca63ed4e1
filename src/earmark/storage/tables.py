"""Tables that other programs wrote: CSV, TSV and Parquet, with the line that each row came from.

Real tables have byte-order marks, CRLF, semicolons, quotes that are never closed and headers that
are not there. What can be read is read as text, unchanged, so that clip ``007`` stays ``007``;
anything else is refused with its line. Every file of labels, classes, clips or answers that a user
hands over is read here; earmark's own tables are read by :func:`earmark.storage.read_table`.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from earmark.errors import EarmarkError, check_file, reading
from earmark.memory import check_memory
from earmark.storage.parquet import check_parquet

LINE = "__line__"
"""The column that holds the line (of a Parquet file: the row, from 1) of each row."""

PRESENCE: dict[str, bool | None] = {
    **dict.fromkeys(("true", "1", "1.0", "+1", "yes", "y", "present", "positive"), True),
    **dict.fromkeys(("false", "0", "0.0", "-1", "-1.0", "no", "n", "absent", "negative"), False),
    **dict.fromkeys(("not present", "not_present", "not-present"), False),
    **dict.fromkeys(("unsure", "unknown", "u", "?", "maybe", "ignored"), None),
}
"""What people write for present, not present and unsure, in any letter case.

``ignored`` is what ``earmark export`` writes of labels that nobody was asked about.
"""

AUDIO_SUFFIXES = frozenset(
    (
        ".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".mp4", ".webm", ".mkv",
        ".aif", ".aiff", ".wma", ".audio",
    )
)  # fmt: skip
"""Endings of files that may hold sound, in any letter case; decoders go by content."""

TABLE_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises on damaged tables."""

_MOST_COLUMNS, _LONGEST_HEADER, _LONGEST_CELL = 100_000, 20_000_000, 1_000_000
"""Columns of a table, and bytes of its first line and of one cell: more is no table of labels."""

_TEXT_COPIES = 3
"""How many times its size a table of text takes in memory at least."""

_DELIMITERS = (",", "\t", ";", "|")
_ROWS_AT_ONCE = 50_000
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceTable:
    """A table as it was found: cells of a CSV are text, stripped; empty ones are null."""

    path: Path
    rows: pl.DataFrame
    unit: str = "line"

    @classmethod
    def of(cls, rows: pl.DataFrame, origin: str | Path) -> SourceTable:
        """Take rows from memory: lines count from 2, as after the header of a CSV."""
        if LINE not in rows.columns:
            rows = rows.with_row_index(LINE, offset=2)
        return cls(Path(origin), rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, LINE left out."""
        return [name for name in self.rows.columns if name != LINE]

    def at(self, line: int) -> str:
        """Return the place of a row, for messages."""
        return f"{self.path}, {self.unit} {line}"

    def at_first(self, is_meant: pl.Series) -> str:
        """Return the place of the first row that is meant [row], for messages."""
        return self.at(self.rows[LINE].filter(is_meant)[0])


def read_source(path: str | Path, header: Sequence[str] | None = None) -> SourceTable:
    """Read a table; the name's ending tells Parquet from text, the first line the delimiter.

    ``header`` names the columns of a file that has no header line. Blank lines are passed over,
    and so is a first column without a name: the row numbers that pandas writes.
    """
    path = Path(path)
    check_file(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    with reading(path, "a table of text"):
        try:
            rows = _read_delimited(path, header)
        except UnicodeDecodeError as error:
            raise EarmarkError(
                f"{path}: not text in UTF-8 ({error}); save it as UTF-8 (a spreadsheet calls it "
                "'CSV UTF-8')"
            ) from None
    table = SourceTable(path, rows.drop("", strict=False))
    if path.stat().st_size > _LONGEST_CELL:
        check_size(table)
    return table


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the names of a CSV's or TSV's columns, and its delimiter.

    The first name may be empty: the row numbers that pandas writes have none.
    """
    check_file(path)
    with path.open("rb") as file:
        line = _read_first_line(path, file).removeprefix(_BOM).rstrip(b"\n")
    delimiter = _delimiter(path, line)
    header = _cells(line, delimiter)
    _check_header(path, header)
    return header, delimiter


def check_unique(names: pl.Series, what: str) -> None:
    """Refuse names that are listed twice; ``what`` begins the message."""
    if not are_distinct(names):
        raise EarmarkError(f"{what} {names.filter(names.is_duplicated())[0]!r} is listed twice")


def are_distinct(names: pl.Series) -> bool:
    """Return whether no name comes twice."""
    return names.n_unique() == len(names)


def check_size(table: SourceTable) -> None:
    """Refuse too many columns, and a text that is no name and no list of them: it is copied."""
    _check_n_columns(table.path, len(table.columns))
    for cells in table.rows.select(pl.col(pl.String, pl.List(pl.String))):
        texts = cells.explode() if isinstance(cells.dtype, pl.List) else cells
        longest = texts.str.len_bytes().max()
        if isinstance(longest, int) and longest > _LONGEST_CELL:
            raise EarmarkError(
                f"{table.path}: a cell in column {cells.name!r} has {longest:,} bytes; a cell may "
                f"have {_LONGEST_CELL:,} at most. Leave the column out, or put a row for each class"
            )


def _read_parquet(path: Path) -> SourceTable:
    with reading(path, "Parquet"):
        check_memory(check_parquet(path), f"reading {path}")
        rows = pl.read_parquet(path, glob=False)
    table = SourceTable(path, rows.with_row_index(LINE, offset=1), "row")
    check_size(table)
    return table


def _read_delimited(path: Path, header: Sequence[str] | None) -> pl.DataFrame:
    check_memory(_TEXT_COPIES * path.stat().st_size, f"reading {path}")
    with path.open("rb") as file:
        first_line = _read_first_line(path, file).removeprefix(_BOM)
        rest = file.read()
    delimiter = _delimiter(path, first_line)
    names = _cells(first_line, delimiter) if header is None else header
    if names:
        if header is None:
            _check_header(path, names)
        body = rest if header is None else first_line + rest
        rows = _read_in_bulk(body.rstrip(b"\r\n"), names, delimiter)
        if rows is not None:
            return rows.with_row_index(LINE, offset=2 if header is None else 1)
    return _read_line_by_line(path, first_line + rest, delimiter, header)


def _delimiter(path: Path, first_line: bytes) -> str:
    """Return the delimiter that occurs most often; where none does, the one of the file's name."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    return max((usual, *_DELIMITERS), key=lambda delimiter: first_line.count(delimiter.encode()))


def _read_in_bulk(body: bytes, header: Sequence[str], delimiter: str) -> pl.DataFrame | None:
    """Read lines without quotes by polars; None where each line has to be looked at.

    Polars refuses rows that are too long and fills up those that are too short: so as many
    delimiters as there should be show that all have their length.
    """
    n_lines = body.count(b"\n") + 1 if body else 0
    n_delimiters = n_lines * (len(header) - 1)
    if b'"' in body or _has_odd_lines(body) or body.count(delimiter.encode()) != n_delimiters:
        return None
    try:
        rows = pl.read_csv(
            body,
            has_header=False,
            schema=dict.fromkeys(header, pl.String),
            separator=delimiter,
            quote_char=None,
            raise_if_empty=False,
        )
    except TABLE_ERRORS:
        return None
    return _stripped(rows).rechunk() if len(rows) == n_lines else None


def _cells(line: bytes, delimiter: str) -> list[str]:
    """Return the stripped cells of a line; none where it is no whole row."""
    try:
        rows = list(_csv_reader([line.decode().rstrip("\r\n")], delimiter))
    except (csv.Error, UnicodeDecodeError):
        return []
    return [cell.strip() for cell in rows[0]] if rows else []


def _has_odd_lines(body: bytes) -> bool:
    """Tell whether lines are blank, end in a lone carriage return or hold what no text does."""
    return (
        body.startswith((b"\n", b"\r"))
        or b"\n\n" in body
        or b"\0" in body
        or (b"\r" in body and (b"\n\r" in body or body.count(b"\r") != body.count(b"\r\n")))
    )


def _read_line_by_line(
    path: Path, text: bytes, delimiter: str, header: Sequence[str] | None
) -> pl.DataFrame:
    """Read a table with Python's reader, which knows the line of each row and of each mistake."""
    with io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="") as file:
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
    return pl.concat(parts)


def _as_frame(
    header: Sequence[str], numbers: Sequence[int], cells: Sequence[Sequence[str]]
) -> pl.DataFrame:
    """Put rows of equal width into columns, which is many times faster than row by row."""
    columns = list(zip(*cells, strict=True)) or [()] * len(header)
    series = [pl.Series(name, cs, pl.String) for name, cs in zip(header, columns, strict=True)]
    lines = pl.Series(LINE, numbers, pl.UInt32)
    return pl.DataFrame([lines, *_stripped(pl.DataFrame(series))])


def _stripped(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.with_columns(pl.col(pl.String).str.strip_chars())
    with_empty = [cells.name for cells in rows if (cells == "").any()]
    return rows.with_columns(pl.when(pl.col(with_empty) != "").then(pl.col(with_empty)))


def _csv_reader(lines: Iterator[str] | Sequence[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)


def _lines(path: Path, file: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, and the line on which it starts."""
    reader = _csv_reader(file, delimiter)
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


def _read_first_line(path: Path, file: BinaryIO) -> bytes:
    line = file.readline(_LONGEST_HEADER + 1)
    if len(line) > _LONGEST_HEADER:
        raise EarmarkError(
            f"{path}, line 1: more than {_LONGEST_HEADER:,} bytes; expected a line of column names"
        )
    return line


def _check_n_columns(path: Path, n_columns: int) -> None:
    if n_columns > _MOST_COLUMNS:
        raise EarmarkError(
            f"{path}: {n_columns:,} columns; a table may have {_MOST_COLUMNS:,} at most. Put "
            "labels into rows of a clip and a class each, and scores into an array (.npy)"
        )


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse a first line that cannot be a header; its first name may be empty."""
    _check_n_columns(path, len(header))
    if not any(header):
        raise EarmarkError(f"{path}: the file is empty; expected a line of column names, then rows")
    data = [name for name in header if Path(name).suffix.lower() in AUDIO_SUFFIXES]
    if data:
        raise EarmarkError(
            f"{path}, line 1: the header seems to be missing: {data[0]!r} is a file and not the "
            "name of a column; put a line such as 'clip_id,class_id' on top"
        )
    if "" in header[1:]:
        number = header.index("", 1) + 1
        raise EarmarkError(f"{path}, line 1: column {number} of {len(header)} has no name")
    if len(set(header)) < len(header):
        name = next(name for name, n in Counter(header).items() if n > 1)
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
