"""Tables that other programs wrote, opened with care.

Whatever is wrong with a file, it raises :class:`~earmark.errors.EarmarkError`, names the file and
says what was expected.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from earmark.errors import EarmarkError, check_file

TABLE_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises on damaged tables."""


def read_text_table(path: Path) -> pl.DataFrame:
    """Read a Parquet file as it is, or a CSV or TSV as text, so that ``007`` stays ``007``."""
    check_file(path)
    suffix = path.suffix.lower()
    try:
        if suffix in (".parquet", ".pq"):
            return pl.read_parquet(path)
        separator = "\t" if suffix == ".tsv" else ","
        return pl.read_csv(path, infer_schema=False, separator=separator)
    except TABLE_ERRORS as error:
        raise EarmarkError(f"{path}: cannot be read as a table: {error}") from None


def check_unique(names: pl.Series, what: str) -> None:
    """Refuse names that are listed twice; ``what`` begins the message."""
    if names.n_unique() < len(names):
        raise EarmarkError(f"{what} {names.filter(names.is_duplicated())[0]!r} is listed twice")
