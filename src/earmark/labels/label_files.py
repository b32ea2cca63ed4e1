"""Labels in the formats that people have.

- tables as Parquet, CSV or TSV, in any form that :mod:`earmark.labels.label_tables` knows
- AudioSet's lists of segments
- a dense matrix of states [clip, class] as ``.npy`` or ``.npz``: +1, -1 and 0; where there is no
  -1 these are zeros and ones, and a zero is an implicit label. An ``.npz`` may name its clips and
  classes in arrays ``clip_ids`` and ``class_ids``
- cleanlab's list of lists as JSON: for each clip its classes, by number or by name

Lists of classes and of clips, which say what the columns and rows of scores are, are read here too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, check_file, reader, reading
from earmark.labels.audioset_format import is_segments, read_segments
from earmark.labels.label_set import IMPLICIT, NOT_PRESENT, PRESENT, LabelSet, in_order
from earmark.labels.label_tables import (
    GUESSED,
    Reading,
    guess_columns,
    read_label_table,
    row_clips,
)
from earmark.labels.ontology import Ontology
from earmark.runs import (
    check_unique,
    choose_key,
    map_array,
    names_in,
    open_archive,
    read_json,
    read_source,
)

CLASS_COLUMNS = ("class_id", "mid", "class", "label", "name", "display_name")
_NAME_COLUMNS = ("name", "display_name")

_TABLES = (".parquet", ".pq", ".csv", ".tsv")
_LABEL_KEYS = ("labels", "states", "y")
_MAX_CLASSES = 1_000_000
ROWS_AT_ONCE, _LABELS_AT_ONCE = 1 << 14, 1 << 24


@dataclass(frozen=True)
class LabelFile:
    """Labels as a file has them, and what the file knows of clips and classes.

    Without names, clips and classes are numbered. A file that does not list all clips (or classes)
    mentions only some of them: those of its rows. ``has_row_per_clip``: each row is a clip, in an
    order that the rows of scores may share. ``notes`` say how it was read. ``score_rows`` [clip]
    are the clips' rows among scores, once those were looked for.
    """

    path: Path
    labels: LabelSet
    names_clips: bool
    names_classes: bool
    lists_clips: bool
    lists_classes: bool
    has_row_per_clip: bool = True
    notes: tuple[str, ...] = ()
    score_rows: NDArray[np.int64] | None = None

    def named(self, classes: Ontology) -> LabelFile:
        """Name numbered classes by a list; return a file that names its classes as it is."""
        n_own, n_classes = self.labels.n_classes, len(classes.class_ids)
        if self.names_classes:
            return self
        if n_own > n_classes or (self.lists_classes and n_own < n_classes):
            raise EarmarkError(f"{self.path}: {n_own:,} classes, but {n_classes:,} are listed")
        labels = replace(self.labels, class_ids=classes.class_ids[:n_own])
        return replace(self, labels=labels, names_classes=True)


@reader("labels")
def read_label_file(
    path: str | Path, key: str | None = None, reading: Reading = GUESSED
) -> LabelFile:
    """Read labels; the name's ending tells the format.

    ``key`` names the array of an ``.npz``, ``reading`` says how a table is to be read.
    """
    path = Path(path)
    check_file(path)
    suffix = path.suffix.lower()
    if is_label_table(path):
        return _read_table(path, reading)
    if reading != GUESSED:
        raise EarmarkError(
            f"{path}: no table of labels; columns, separator and zeros say how a table is read"
        )
    if suffix == ".csv":
        return _read_segments(path)
    if suffix in (".npy", ".npz"):
        return _read_dense(path, key)
    if suffix == ".json":
        return _read_lists(path)
    raise EarmarkError(
        f"{path}: labels are expected as .csv, .tsv or .parquet (a table), .npy or .npz (states "
        f"[clip, class]) or .json (a list of lists), got {suffix or 'no ending'!r}"
    )


def refuse_no_labels(labels: LabelSet, name: str | Path) -> None:
    """Refuse labels of which not one is explicit; ``name`` is where they come from."""
    if not len(labels.columns):
        raise EarmarkError(
            f"{name}: there is not one explicit label in it; scores can only be held against labels"
        )


def is_label_table(path: Path) -> bool:
    """Tell whether a file is a table with a row for a clip, as opposed to any other format."""
    check_file(path)
    suffix = path.suffix.lower()
    return suffix in _TABLES and not (suffix == ".csv" and is_segments(path))


@reader("a list of classes")
def read_class_list(path: str | Path) -> Ontology:
    """Read classes in the order of the score columns: identifiers, names and parents if given.

    A text file with one class per line; or a CSV, TSV or Parquet table with a column class_id (or
    mid, class, label, name), maybe name (or display_name), definition and parents (in text,
    separated by semicolons). AudioSet's ``class_labels_indices.csv`` is one; a column ``index``
    gives the order.
    """
    path = Path(path)
    table = _named_table(path, CLASS_COLUMNS, "class_id")
    if "index" in table.columns:
        table = table.with_columns(pl.col("index").cast(pl.Int64, strict=False)).sort("index")
    ids = tuple(table["class_id"].to_list())
    check_unique(table["class_id"], f"{path}: class")
    of_names = next((name for name in _NAME_COLUMNS if name in table.columns), "class_id")
    names = dict(zip(ids, table[of_names].cast(pl.String).to_list(), strict=True))
    parents = {}
    if table.schema.get("parents") == pl.String:
        table = table.with_columns(pl.col("parents").str.split(";"))
    if table.schema.get("parents") == pl.List(pl.String):
        parents = {row["class_id"]: tuple(row["parents"] or ()) for row in table.to_dicts()}
    has_meaning = "definition" in table.columns
    meanings = table["definition"].cast(pl.String).fill_null("").to_list() if has_meaning else ()
    return Ontology(ids, parents, names, dict(zip(ids, meanings, strict=False)))


@reader("a list of clips")
def read_clip_list(path: str | Path) -> pl.Series:
    """Read clips in the order of the score rows; a clip that is listed twice is refused.

    Lines of text, AudioSet's segments, or a table whose clips are in clip_id, filename or the like.
    """
    path = Path(path)
    if is_label_table(path):
        table = read_source(path)
        roles = guess_columns(table)
        if not {"clip_id", "audio"} & roles.keys():
            raise EarmarkError(
                f"{path}: expected a column clip_id (or filename, ...), got "
                f"{', '.join(table.columns)!r}; a list without a header line is called .txt"
            )
        clips = row_clips(table, roles)
    elif path.suffix.lower() == ".csv":
        clips = read_segments(path)["clip_id"]
    else:
        clips = _lines(path, "clip_id")["clip_id"]
    check_unique(clips, f"{path}: clip")
    return clips


def sparse_labels(
    clip_ids: pl.Series,
    class_ids: Sequence[str],
    rows: NDArray[np.integer],
    columns: NDArray[np.integer],
    present: NDArray[np.bool_],
) -> LabelSet:
    """Build a label set from the numbers of clips and classes, in any order."""
    labels = in_order(len(class_ids), rows, columns, present)
    return LabelSet.from_sorted(clip_ids.alias("clip_id"), tuple(class_ids), *labels)


def _read_table(path: Path, reading: Reading) -> LabelFile:
    read = read_label_table(path, reading)
    labels = LabelSet.from_formed(read)
    n_again = read.long.rows["present"].count() - len(labels.columns)
    again = (f"{n_again:,} labels are said twice, and count once",) if n_again else ()
    return LabelFile(
        path,
        labels,
        names_clips=True,
        names_classes=True,
        lists_clips=False,
        lists_classes=read.lists_classes,
        has_row_per_clip=read.has_row_per_clip,
        notes=(*read.notes, *again),
    )


def _read_segments(path: Path) -> LabelFile:
    segments = read_segments(path)
    check_unique(segments["clip_id"], f"{path}: segment")
    rows = segments.select("clip_id", class_id=pl.col("class_ids").list.unique(maintain_order=True))
    rows = rows.explode("class_id").filter(pl.col("class_id") != "")
    rows = rows.with_columns(present=pl.lit(True))
    labels = LabelSet.from_rows(rows, segments["clip_id"], origin=str(path))
    return LabelFile(path, labels, True, True, lists_clips=True, lists_classes=False)


def _read_dense(path: Path, key: str | None) -> LabelFile:
    if path.suffix.lower() == ".npy":
        states = map_array(path)
        step = _rows_at_once(states.shape)
        starts = range(0, len(states) if states.ndim else 0, step)
        parts = (states[start : start + step] for start in starts)
        return _dense(path, states.shape, parts, None, None)
    with open_archive(path) as members:
        shapes = {name: member.shape() for name, member in members.items()}
        chosen = choose_key(path, shapes, key, _LABEL_KEYS)
        clips, classes = names_in(members, "clip_ids"), names_in(members, "class_ids")
        rows = members[chosen].read_rows(_rows_at_once(shapes[chosen]))
        return _dense(path, shapes[chosen], rows, clips, classes)


def _rows_at_once(shape: tuple[int, ...]) -> int:
    """Return how many rows of a matrix are looked at together: of many classes, few."""
    return max(1, min(ROWS_AT_ONCE, _LABELS_AT_ONCE // max(math.prod(shape[1:]), 1)))


def _dense(
    path: Path,
    shape: tuple[int, ...],
    rows: Iterator[NDArray[Any]],
    clips: pl.Series | None,
    classes: pl.Series | None,
) -> LabelFile:
    if len(shape) != 2 or shape[1] > _MAX_CLASSES:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {shape}")
    labels = sparse_labels(
        _names_or_numbers(path, clips, shape[0], "clip"),
        _names_or_numbers(path, classes, shape[1], "class").to_list(),
        *_explicit(path, rows),
    )
    return LabelFile(path, labels, clips is not None, classes is not None, True, True)


def _explicit(
    path: Path, blocks: Iterator[NDArray[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return clip, class and presence of the explicit labels, reading some rows at a time."""
    rows, columns, present = [], [], []
    start = 0
    for block in blocks:
        if block.dtype.kind not in "biuf":
            raise EarmarkError(f"{path}: states must be numbers, got {block.dtype}")
        is_odd = (block != PRESENT) & (block != NOT_PRESENT) & (block != IMPLICIT)
        if is_odd.any():
            row, column = np.argwhere(is_odd)[0]
            raise EarmarkError(
                f"{path}: states must be +1, -1 or 0, got {block[row, column]} in row "
                f"{start + row}, column {column}; scores in place of labels?"
            )
        found = np.nonzero(block)
        rows.append(found[0] + start)
        columns.append(found[1])
        present.append(block[found] == PRESENT)
        start += len(block)
    empty = np.empty(0, np.int64)
    return (
        np.concatenate([empty, *rows]),
        np.concatenate([empty, *columns]),
        np.concatenate([empty.astype(bool), *present]),
    )


def _read_lists(path: Path) -> LabelFile:
    lists = read_json(path)
    if isinstance(lists, list) and lists and isinstance(lists[0], dict):
        raise EarmarkError(
            f"{path}: expected a list of lists; is it an export of Label Studio? "
            "Then bring it into a workspace by `earmark import table`"
        )
    if not isinstance(lists, list) or not all(isinstance(one, list) for one in lists):
        raise EarmarkError(f"{path}: expected a list of lists, one list of classes for each clip")
    flat = list(itertools.chain.from_iterable(lists))
    kinds = set(map(type, flat))
    if kinds - {int} and kinds - {str}:
        raise EarmarkError(
            f"{path}: classes must all be numbers or all be names, got "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}"
        )
    is_named = kinds == {str}
    names = list(dict.fromkeys(flat)) if is_named else _numbers_up_to_largest(path, flat)
    index = {name: column for column, name in enumerate(names)}
    columns = np.array([index[name] for name in flat] if is_named else flat, np.int64)
    rows = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    places = np.unique(rows * max(len(names), 1) + columns)  # twice in one list says it once
    rows, columns = np.divmod(places, max(len(names), 1))
    clips = pl.Series("clip_id", range(len(lists)), pl.Int64).cast(pl.String)
    labels = sparse_labels(clips, names, rows, columns, np.ones(len(rows), bool))
    return LabelFile(path, labels, False, is_named, True, False)


def _numbers_up_to_largest(path: Path, numbers: list[int]) -> list[str]:
    """Name the classes by their numbers; refuse what can only be the number of something else."""
    lowest, largest = min(numbers, default=0), max(numbers, default=-1)
    if lowest < 0 or largest >= _MAX_CLASSES:
        odd = lowest if lowest < 0 else largest
        raise EarmarkError(
            f"{path}: classes are numbered from 0 to {_MAX_CLASSES - 1:,}, got {odd}"
        )
    return [str(number) for number in range(largest + 1)]


def _names_or_numbers(path: Path, names: pl.Series | None, n: int, what: str) -> pl.Series:
    if names is None:
        return pl.Series(f"{what}_id", range(n), pl.Int64).cast(pl.String)
    if len(names) != n:
        raise EarmarkError(f"{path}: {len(names):,} {what}_ids for {n:,} in the matrix")
    check_unique(names, f"{path}: {what}")
    return names


def _named_table(path: Path, columns: Sequence[str], name: str) -> pl.DataFrame:
    """Read a table, or lines of text, and give its identifying column a name."""
    check_file(path)
    if path.suffix.lower() not in _TABLES:
        return _lines(path, name)
    table = read_source(path)
    found = next((column for column in columns if column in table.columns), None)
    if found is None:
        raise EarmarkError(
            f"{path}: expected a column {' or '.join(columns)}, got {', '.join(table.columns)!r}"
        )
    kind = table.rows.schema[found]
    if kind.is_nested():
        raise EarmarkError(f"{path}: column {found!r} holds {kind}, expected texts")
    rows = table.rows.with_columns(pl.col(found).cast(pl.String, strict=False).alias(name))
    if rows[name].null_count():
        raise EarmarkError(f"{table.at_first(rows[name].is_null())}: {found} is empty")
    return rows


def _lines(path: Path, name: str) -> pl.DataFrame:
    """Read lines of text, without the blank ones, into a column."""
    with reading(path, "a text file in UTF-8"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    texts = [line.strip() for line in lines if line.strip()]
    return pl.DataFrame({name: texts}, schema={name: pl.String})
