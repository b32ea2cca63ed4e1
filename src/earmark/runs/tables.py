"""Files that other programs wrote: arrays, tables and lists of names, opened with care.

Whatever is wrong with a file, it raises :class:`~earmark.errors.EarmarkError`, names the file and
says what was expected. Nothing is ever unpickled.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, nearest
from earmark.labels.ontology import Ontology

ARRAY_ERRORS = (
    OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError, TypeError, LookupError,
    AttributeError, ArithmeticError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy's parser of headers, zipfile and zlib raise on damaged files."""

TABLE_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises on damaged tables."""

CLASS_COLUMNS = ("class_id", "mid", "class", "label", "name", "display_name")
NAME_COLUMNS = ("name", "display_name")

N_NAMED = 3
"""Names that a message lists before it counts the rest."""


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if not path.is_file():
        raise EarmarkError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")


def first_few(names: Iterable[object]) -> str:
    """Name the first few of some clips or classes, and how many more there are.

    >>> first_few(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    names = list(names)
    more = f" and {len(names) - N_NAMED:,} more" if len(names) > N_NAMED else ""
    return ", ".join(repr(name) for name in names[:N_NAMED]) + more


def read_class_list(path: str | Path) -> Ontology:
    """Read classes in the order of the score columns: identifiers, names and parents if given.

    A text file with one class per line; or a CSV, TSV or Parquet table with a column class_id (or
    mid, class, label, name), maybe name (or display_name) and parents (in text, separated by
    semicolons). AudioSet's ``class_labels_indices.csv`` is one; a column ``index`` gives the order.
    """
    path = Path(path)
    table = _named_table(path, CLASS_COLUMNS, "class_id")
    if "index" in table.columns:
        table = table.with_columns(pl.col("index").cast(pl.Int64, strict=False)).sort("index")
    ids = tuple(table["class_id"].to_list())
    check_unique(table["class_id"], f"{path}: class")
    of_names = next((name for name in NAME_COLUMNS if name in table.columns), "class_id")
    names = dict(zip(ids, table[of_names].cast(pl.String).to_list(), strict=True))
    parents = {}
    if table.schema.get("parents") == pl.String:
        table = table.with_columns(pl.col("parents").str.split(";"))
    if table.schema.get("parents") == pl.List(pl.String):
        parents = {row["class_id"]: tuple(row["parents"] or ()) for row in table.to_dicts()}
    return Ontology(ids, parents, names)


def read_clip_list(path: str | Path) -> pl.Series:
    """Read clips in the order of the score rows: lines of text, or a table's column clip_id."""
    path = Path(path)
    clips = _named_table(path, ("clip_id",), "clip_id")["clip_id"]
    check_unique(clips, f"{path}: clip")
    return clips


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


def map_array(path: Path) -> NDArray[Any]:
    """Map an ``.npy`` file without reading it; no pickles."""
    check_file(path)
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ARRAY_ERRORS as error:
        raise EarmarkError(
            f"{path}: cannot be read as numpy's .npy ({error}); cut short, or another format?"
        ) from None


@contextmanager
def open_archive(path: Path) -> Iterator[dict[str, Member]]:
    """Open the arrays of an ``.npz`` by name; nothing is read yet, and no pickle ever."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            yield {name.removesuffix(".npy"): Member(archive, name) for name in names}
    except ARRAY_ERRORS as error:
        raise EarmarkError(
            f"{path}: cannot be read as numpy's .npz ({error}); cut short, or another format?"
        ) from None


@dataclass(frozen=True)
class Member:
    """One array in an open archive."""

    archive: zipfile.ZipFile
    name: str

    def open(self) -> IO[bytes]:
        """Open the array's ``.npy`` file."""
        return self.archive.open(self.name)

    def shape(self) -> tuple[int, ...]:
        """Read the shape only."""
        with self.open() as file:
            if np.lib.format.read_magic(file) == (1, 0):
                return np.lib.format.read_array_header_1_0(file)[0]
            return np.lib.format.read_array_header_2_0(file)[0]

    def read(self) -> NDArray[Any]:
        """Read the array."""
        with self.open() as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def choose_key(
    path: Path, shapes: dict[str, tuple[int, ...]], key: str | None, usual: Sequence[str]
) -> str:
    """Return the key of an archive's matrix: the one asked for, a usual one, or the only one."""
    if key is not None:
        if key not in shapes:
            raise EarmarkError(f"{path}: there is no array {key!r}{nearest(key, shapes)}")
        return key
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    chosen = [name for name in matrices if name in usual] or matrices
    if len(chosen) != 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "nothing"
        raise EarmarkError(
            f"{path}: expected one matrix [clip, class], found {listed}; name the one to use"
        )
    return chosen[0]


def names_in(members: dict[str, Member], name: str) -> pl.Series | None:
    """Return the identifiers that an archive lists under a name; None where there are none."""
    if name not in members:
        return None
    listed = members[name].read()
    if listed.ndim != 1 or listed.dtype.kind not in "USiu":
        raise EarmarkError(f"{name}: expected a list of texts, got {listed.dtype} {listed.shape}")
    texts = np.char.decode(listed, "utf-8", "replace") if listed.dtype.kind == "S" else listed
    return pl.Series(name.removesuffix("s"), [str(text) for text in texts.tolist()], pl.String)


def _named_table(path: Path, columns: Sequence[str], name: str) -> pl.DataFrame:
    """Read a table, or lines of text, and give its identifying column a name."""
    check_file(path)
    if path.suffix.lower() == ".txt":
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (UnicodeDecodeError, OSError) as error:
            raise EarmarkError(f"{path}: not a text file in UTF-8 ({error})") from None
        return pl.DataFrame({name: [line.strip() for line in lines if line.strip()]})
    table = read_text_table(path)
    found = next((column for column in columns if column in table.columns), None)
    if found is None:
        raise EarmarkError(
            f"{path}: expected a column {' or '.join(columns)}, got {', '.join(table.columns)!r}"
        )
    if table.schema[found].is_nested():
        raise EarmarkError(f"{path}: column {found!r} holds {table.schema[found]}, expected texts")
    table = table.with_columns(pl.col(found).cast(pl.String, strict=False).alias(name))
    if table[name].null_count():
        raise EarmarkError(f"{path}, line {int(table[name].is_null().arg_max() or 0) + 2}: empty")
    return table


def check_unique(names: pl.Series, what: str) -> None:
    """Refuse names that are listed twice; ``what`` begins the message."""
    if names.n_unique() < len(names):
        raise EarmarkError(f"{what} {names.filter(names.is_duplicated())[0]!r} is listed twice")
