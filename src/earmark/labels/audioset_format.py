"""AudioSet's own label files: lists of segments, classes, ontology.

A clip is named ``YTID_START`` with its start in milliseconds, as AudioSet's strong labels name
segments; its source is the video. The lists name positives only: every other label is implicit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from earmark.errors import EarmarkError, reader, reading
from earmark.labels.ontology import Ontology
from earmark.runs import check_unique, read_json, read_source

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
    lines = pl.Series("text", [_read_text(path)]).str.split("\n").explode().to_frame()
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
    return segments.select(
        _segment_id().alias("clip_id"), "source", "start_seconds", "end_seconds", "class_ids"
    )


def _segment_id() -> pl.Expr:
    """Return the clip's name from the columns ``source`` and ``start_seconds``."""
    milliseconds = (pl.col("start_seconds") * 1_000).round().cast(pl.Int64)
    return pl.format("{}_{}", pl.col("source"), milliseconds)


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


def _read_text(path: Path) -> str:
    with reading(path, "a text file in UTF-8"):
        return path.read_text(encoding="utf-8-sig")


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
