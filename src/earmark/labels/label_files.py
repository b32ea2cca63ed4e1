"""Files of labels in the formats that people have, and lists of classes and clips.

- tables as Parquet, CSV or TSV, in any form that :mod:`earmark.labels.label_tables` reads
- AudioSet's lists of segments. A clip is named ``YTID_START`` with its start in milliseconds, as in
  AudioSet's strong labels; its source is the video. The lists name positives only: every other
  label is implicit
- a dense matrix of states [clip, class] as ``.npy`` or ``.npz``: +1, -1 and 0; where there is no
  -1 these are zeros and ones, and a zero is an implicit label. An ``.npz`` may name its clips and
  classes in arrays ``clip_ids`` and ``class_ids``

Lists of classes and clips name the columns and rows of scores. AudioSet's own list of classes and
its ontology are read here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from earmark.errors import EarmarkError, about, check_file, counted, reader, reading
from earmark.labels.label_set import LabelSet, block_rows
from earmark.labels.label_tables import GUESSED, Reading, guess_columns, read_label_table, row_clips
from earmark.labels.ontology import Ontology
from earmark.storage import (
    SourceTable,
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


@dataclass(frozen=True)
class LabelFile:
    """Labels as a file has them, and what the file knows of clips and classes.

    Without names, clips and classes are numbered. A file that does not list all clips (or classes)
    mentions only some of them: those of its rows. ``has_row_per_clip``: each row is a clip, in an
    order that the rows of scores may share. ``notes`` say how it was read.
    """

    path: Path
    labels: LabelSet
    names_clips: bool
    names_classes: bool
    lists_clips: bool
    lists_classes: bool
    has_row_per_clip: bool = True
    notes: tuple[str, ...] = ()

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
    raise EarmarkError(
        f"{path}: labels are expected as .csv, .tsv or .parquet (a table), or .npy or .npz (states "
        f"[clip, class]), got {suffix or 'no ending'!r}"
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
    with about(path):
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


def repeated_labels_note(long: SourceTable, labels: LabelSet) -> tuple[str, ...]:
    """Return a note that counts the rows of ``long`` which repeat a label; empty without any."""
    n_repeated = long.rows["present"].count() - len(labels.columns)
    return (f"{counted(n_repeated, 'label')} given twice, counted once",) if n_repeated else ()


def _read_table(path: Path, reading: Reading) -> LabelFile:
    read = read_label_table(path, reading)
    labels = LabelSet.from_table(read.long, read.clip_ids, read.class_ids)
    return LabelFile(
        path,
        labels,
        names_clips=True,
        names_classes=True,
        lists_clips=False,
        lists_classes=read.lists_classes,
        has_row_per_clip=read.has_row_per_clip,
        notes=(*read.notes, *repeated_labels_note(read.long, labels)),
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
        _check_shape(path, states.shape)
        with about(path):
            return LabelFile(path, LabelSet.from_dense(states), False, False, True, True)
    with open_archive(path) as members, about(path):
        shapes = {name: member.shape() for name, member in members.items()}
        chosen = choose_key(path, shapes, key, _LABEL_KEYS)
        shape = shapes[chosen]
        _check_shape(path, shape)
        clips, classes = names_in(members, "clip_ids"), names_in(members, "class_ids")
        # Of labels that are nearly all implicit, a few kilobytes may unpack to gigabytes.
        blocks = members[chosen].read_rows(block_rows(shape))
        labels = LabelSet.from_blocks(blocks, shape, clips, classes)
        return LabelFile(path, labels, clips is not None, classes is not None, True, True)


def _check_shape(path: Path, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[1] > _MAX_CLASSES:
        raise EarmarkError(f"{path}: expected a matrix [clip, class], got shape {shape}")


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


CLASSES_FILE, ONTOLOGY_FILE = "class_labels_indices.csv", "ontology.json"

VIDEO_ID, NUMBER = "[A-Za-z0-9_-]{11}", r"[0-9]+(?:\.[0-9]*)?"
"""Regular expressions of a video's id and of a time."""

_LINE = rf'^\s*"?({VIDEO_ID})"?\s*,\s*"?({NUMBER})"?\s*,\s*"?({NUMBER})"?\s*,(.*)$'
_FIRST = re.compile(rf'\s*(#|"?{VIDEO_ID}"?\s*,\s*"?[0-9.]+"?\s*,)')
_HEADER = r"(?i)^\s*(?:#\s|#[^,]*$|.*start)"


@reader("a list of AudioSet's classes")
def read_classes(path: Path) -> pl.DataFrame:
    """Read class_labels_indices.csv: index, mid, display_name, in the order of the index."""
    table = read_source(path)
    for column in ("index", "mid", "display_name"):
        if column not in table.columns:
            raise EarmarkError(
                f"{path}: expected the header index,mid,display_name, got "
                f"{','.join(table.columns)!r}: is the header line missing?"
            )
    index = table.rows["index"].cast(pl.Int64, strict=False)
    if index.null_count():
        raise EarmarkError(
            f"{table.at_first(index.is_null())}: the column index must hold whole numbers"
        )
    check_unique(table.rows["mid"], f"{path}: class")
    return table.rows.select(index, "mid", "display_name").sort("index")


@reader("an ontology", at=1)
def read_ontology(classes: pl.DataFrame, path: Path | None) -> Ontology:
    """Build the classes' names, definitions and parents; without ``path`` there are names only.

    Parents may be nodes without a column of their own. Where such a node stands between two
    classes ("Rock music", "Music genre", "Music"), the farther one is named as a parent as well,
    so that no ancestor is lost.
    """
    mids = tuple(classes["mid"].to_list())
    names = dict(zip(mids, classes["display_name"].to_list(), strict=True))
    if path is None:
        return Ontology(mids, names=names)
    try:
        nodes = {node["id"]: node for node in read_json(path)}
        direct: dict[str, list[str]] = {mid: [] for mid in nodes}
        for mid, node in nodes.items():
            for child in node["child_ids"]:
                direct.setdefault(child, []).append(mid)
        definitions = {mid: nodes[mid].get("description", "") for mid in mids if mid in nodes}
    except (KeyError, TypeError, AttributeError) as error:
        raise EarmarkError(
            f"{path}: expected a list of nodes with id, child_ids and description ({error!r})"
        ) from None
    with about(path):
        Ontology(tuple(nodes), {mid: tuple(above) for mid, above in direct.items()})  # no cycles
    parents = {mid: _parents_with_columns(mid, direct, names.keys()) for mid in mids}
    return Ontology(mids, parents, names, definitions)


def is_segments(path: Path) -> bool:
    """Tell whether a file begins as a list of segments does."""
    with path.open("rb") as file:
        return bool(_FIRST.match(file.read(200).decode("utf-8-sig", "replace")))


@reader("a list of segments")
def read_segments(path: Path) -> pl.DataFrame:
    """Read a list of segments: clip_id, source, start_seconds, end_seconds, class_ids (a list).

    Comment lines or a header may stand above the first segment; a byte-order mark, CRLF, blank
    lines and missing or doubled quotes are taken in stride. A line that is no segment is refused
    with its number.
    """
    with reading(path, "a text file in UTF-8"):
        text = path.read_text(encoding="utf-8-sig")
    lines = pl.Series("text", [text]).str.split("\n").explode().to_frame()
    lines = lines.with_row_index("line", offset=1).with_columns(
        pl.col("text").str.extract_groups(_LINE).alias("parts")
    )
    _check_lines(lines, path)
    part = pl.col("parts").struct
    segments = lines.select(
        "line",
        "text",
        source=part.field("1"),
        start_seconds=part.field("2").cast(pl.Float64),
        end_seconds=part.field("3").cast(pl.Float64),
        class_ids=part.field("4").str.replace_all(r'["\s]', "").str.split(","),
    ).drop_nulls("source")
    _check_times(segments, path)
    milliseconds = (pl.col("start_seconds") * 1_000).round().cast(pl.Int64)
    clip_id = pl.format("{}_{}", "source", milliseconds).alias("clip_id")
    return segments.select(clip_id, "source", "start_seconds", "end_seconds", "class_ids")


def _parents_with_columns(
    mid: str, direct: dict[str, list[str]], has_column: Iterable[str]
) -> tuple[str, ...]:
    """Return the direct parents and the nearest classes behind those without a column."""
    parents = list(direct.get(mid, ()))
    seen, waiting = set(parents), [parent for parent in parents if parent not in has_column]
    while waiting:
        for parent in direct.get(waiting.pop(), ()):
            if parent in seen:
                continue
            seen.add(parent)
            if parent in has_column:
                parents.append(parent)
            else:
                waiting.append(parent)
    return tuple(parents)


def _check_lines(lines: pl.DataFrame, path: Path) -> None:
    """Refuse lines that are no segments; above the first segment comments and a header may stand.

    Spreadsheets turn ids that begin with a minus into ``#NAME?``: that is no comment.
    """
    is_segment = lines["parts"].struct.field("1").is_not_null()
    first = is_segment.arg_max()
    if first is None or not is_segment.any():
        raise EarmarkError(f'{path}: no segments; lines must read YTID, 0.000, 10.000, "/m/09x0r"')
    is_above = pl.col("line") < lines["line"][first]
    is_blank = pl.col("text").str.strip_chars() == ""
    odd = lines.filter(~is_segment)
    odd = odd.filter(~(is_blank | (is_above & pl.col("text").str.contains(_HEADER))))
    if len(odd):
        more = f" ({len(odd) - 1:,} more such lines)" if len(odd) > 1 else ""
        raise EarmarkError(
            f"{path}, line {odd['line'][0]}: expected a video id of 11 characters, start and end "
            f"in seconds and classes, as in 'YTID, 0.000, 10.000, \"/m/09x0r\"', "
            f"got {odd['text'][0][:100]!r}{more}"
        )


def _check_times(segments: pl.DataFrame, path: Path) -> None:
    odd = segments.filter(pl.col("end_seconds") <= pl.col("start_seconds"))
    if len(odd):
        raise EarmarkError(
            f"{path}, line {odd['line'][0]}: the segment ends before it starts: {odd['text'][0]!r}"
        )
