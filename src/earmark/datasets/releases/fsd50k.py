"""FSD50K: the official ground truth, its raters' votes and its uploaders.

How its labels become explicit, class by class:

- Ground truth labels are explicit positives, also those that were propagated up the hierarchy: a
  person heard the child, and the child implies its ancestors.
- The eval set was labelled exhaustively, so every class that is not listed for an eval clip is an
  explicit negative. The dev set was not: there the votes decide, and the rest is implicit.
- A vote is PP (present and predominant, 1), PNP (present but not predominant, 0.5), NP (not
  present, -1) or U (unsure, 0). Two or more NP and no vote for presence are an explicit negative;
  two or more for presence (PP or PNP alike) and none against are an explicit positive. Unsure
  votes do not count; single and split votes leave the label implicit.
- Where votes and ground truth disagree the ground truth holds: experts revised it afterwards.

Clips are grouped by their Freesound uploader, as FSD50K's own splits are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from earmark.datasets.importer import ImportSummary
from earmark.datasets.workspace import write_dataset
from earmark.errors import EarmarkError, reader
from earmark.labels import ONTOLOGY_FILE, ROW_SCHEMA, LabelSet, Ontology, read_ontology
from earmark.runs import (
    LINE,
    SILENT,
    Progress,
    SourceTable,
    check_unique,
    read_json,
    read_source,
    writes,
)

SPLITS = {"train": "train", "val": "tune"}
"""FSD50K's splits of its dev set, and ours; its eval set is our eval split."""

PP, PNP, UNSURE, NP = 1.0, 0.5, 0.0, -1.0
"""How pp_pnp_ratings_FSD50K.json writes votes."""

_MIN_AGREEING_VOTES = 2
"""Votes that must agree, as in FSD50K's own validation."""

_TRUTH, _METADATA = "FSD50K.ground_truth", "FSD50K.metadata"
_KEYS = ["clip_id", "class_id"]


@writes("import", makes=True)
@reader("FSD50K")
def import_fsd50k(
    root: Path, work: Path, *, replace: bool = False, progress: Progress = SILENT
) -> ImportSummary:
    """Write a workspace from FSD50K's official folders under ``root``.

    ``root`` holds FSD50K.ground_truth and, as far as they are there, FSD50K.metadata (votes and
    uploaders), FSD50K.dev_audio, FSD50K.eval_audio and AudioSet's ontology.json (parents and
    definitions of the classes). Clips without a file are listed with a null path. Another dataset
    in the workspace is refused, unless ``replace`` says so.
    """
    ontology = _read_vocabulary(root)
    truth = pl.concat(_read_ground_truth(root, name, ontology) for name in ("dev", "eval"))
    check_unique(truth["clip_id"], f"{root / _TRUTH}: clip")
    votes, vote_notes = _read_votes(root, truth["clip_id"], ontology)
    labels, label_notes = _labels(truth, votes, ontology)
    clips, clip_notes = _clips(root, truth, progress)
    workspace = write_dataset(work, clips, ontology, labels, replace=replace)
    n_missing = clips["audio"].null_count()
    notes = (*vote_notes, *label_notes, *clip_notes)
    return ImportSummary(workspace, len(clips), len(clips) - n_missing, n_missing, notes)


def _read_vocabulary(root: Path) -> Ontology:
    """Read the classes, known by AudioSet's identifiers, from vocabulary.csv (index, name, mid)."""
    path = root / _TRUTH / "vocabulary.csv"
    table = read_source(path, header=("index", "display_name", "mid")).rows
    if table["index"].cast(pl.Int64, strict=False).null_count():
        raise EarmarkError(f"{path}: expected lines such as '69,Electric_guitar,/m/02sgy'")
    check_unique(table["mid"], f"{path}: class")
    ontology = root / ONTOLOGY_FILE
    return read_ontology(table, ontology if ontology.exists() else None)


def _read_ground_truth(root: Path, name: str, ontology: Ontology) -> pl.DataFrame:
    """Read dev.csv or eval.csv: clip_id, class_ids (a list), set (dev or eval), split (ours)."""
    table = read_source(root / _TRUTH / f"{name}.csv")
    expected = ["fname", "labels", "mids", *(["split"] if name == "dev" else [])]
    missing = [column for column in expected if column not in table.columns]
    if missing:
        raise EarmarkError(
            f"{table.path}, line 1: expected the columns {','.join(expected)}, got "
            f"{','.join(table.columns)}; is it FSD50K's own file?"
        )
    is_empty = table.rows["fname"].is_null()
    if is_empty.any():
        raise EarmarkError(f"{table.at_first(is_empty)}: fname is empty")
    _check_classes(table, ontology)
    is_dev = name == "dev"
    return table.rows.select(
        pl.col("fname").alias("clip_id"),
        pl.col("mids").str.split(",").alias("class_ids"),
        pl.lit(name).alias("set"),
        (_split(table) if is_dev else pl.lit("eval")).alias("split"),
    )


def _read_votes(
    root: Path, clip_ids: pl.Series, ontology: Ontology
) -> tuple[pl.DataFrame, list[str]]:
    """Return what raters agreed on: clip_id, class_id, present; null where they did not agree."""
    path = root / _METADATA / "pp_pnp_ratings_FSD50K.json"
    if not path.exists():
        return pl.DataFrame(schema=ROW_SCHEMA), [f"no {path.name}: no votes were read"]
    ratings = read_json(path)
    if not isinstance(ratings, dict):
        raise EarmarkError(f"{path}: expected clips with the votes on their classes")
    known = set(clip_ids.to_list())
    rows, n_left_out = [], 0
    for clip_id, votes_of in ratings.items():
        for class_id, votes in _checked_votes(path, clip_id, votes_of).items():
            if clip_id in known and class_id in ontology.index:
                rows.append((clip_id, class_id, agreed_answer(votes)))
            else:
                n_left_out += 1
    notes = [f"{len(rows):,} labels with votes read"]
    if n_left_out:
        notes.append(
            f"{n_left_out:,} labels with votes left out: vocabulary.csv does not have their "
            "classes (FSD50K merged them into their parents), or the clip is not listed"
        )
    return pl.DataFrame(rows, ROW_SCHEMA, orient="row"), notes


def agreed_answer(votes: list[float]) -> bool | None:
    """Return whether raters agree that a class is present, agree that it is not, or neither (None).

    >>> [agreed_answer(votes) for votes in ([1.0, 0.5, 0], [-1, -1], [1.0, 1.0, -1], [1.0])]
    [True, False, None, None]
    """
    n_for = sum(vote in (PP, PNP) for vote in votes)
    n_against = sum(vote == NP for vote in votes)
    if min(n_for, n_against) > 0 or max(n_for, n_against) < _MIN_AGREEING_VOTES:
        return None
    return n_for > 0


def _checked_votes(path: Path, clip_id: str, votes_of: Any) -> Mapping[str, list[float]]:
    if not isinstance(votes_of, dict):
        raise EarmarkError(f"{path}: clip {clip_id!r} has no classes with votes: {votes_of!r}")
    for class_id, votes in votes_of.items():
        if not isinstance(votes, list) or not set(votes) <= {PP, PNP, UNSURE, NP}:
            raise EarmarkError(
                f"{path}: clip {clip_id!r}, class {class_id!r}: votes must be 1 (PP), 0.5 (PNP), 0 "
                f"(U) or -1 (NP), got {votes!r}"
            )
    return votes_of


def _check_classes(table: SourceTable, ontology: Ontology) -> None:
    mids = (
        table.rows.select("mids", LINE).with_columns(pl.col("mids").str.split(",")).explode("mids")
    )
    strange = mids.filter(~pl.col("mids").is_in(ontology.class_ids).fill_null(False))
    if len(strange):
        raise EarmarkError(
            f"{table.at(strange[LINE][0])}: class {strange['mids'][0]!r} is not in vocabulary.csv"
        )


def _split(table: SourceTable) -> pl.Series:
    split = table.rows["split"].replace_strict(SPLITS, default=None, return_dtype=pl.String)
    if split.null_count():
        line, text = table.rows.filter(split.is_null()).select(LINE, "split").row(0)
        raise EarmarkError(f"{table.at(line)}: split must be train or val, got {text!r}")
    return split


def _labels(
    truth: pl.DataFrame, votes: pl.DataFrame, ontology: Ontology
) -> tuple[LabelSet, list[str]]:
    """Put ground truth, exhaustive negatives and votes together, in this order of trust."""
    listed = truth.select("clip_id", class_id="class_ids").explode("class_id")
    listed = listed.unique(_KEYS, maintain_order=True).with_columns(present=pl.lit(True))
    every = pl.DataFrame({"class_id": list(ontology.class_ids)}, schema={"class_id": pl.String})
    exhaustive = truth.filter(pl.col("set") == "eval").select("clip_id").join(every, how="cross")
    exhaustive = exhaustive.join(listed, on=_KEYS, how="anti").with_columns(present=pl.lit(False))
    settled = pl.concat([listed, exhaustive])
    agreed = votes.drop_nulls("present")
    both = settled.join(agreed, on=_KEYS, suffix="_voted")
    n_overruled = (both["present"] != both["present_voted"]).sum()
    added = agreed.join(settled, on=_KEYS, how="anti")
    notes = [
        f"{len(listed):,} positives of the ground truth, {len(exhaustive):,} negatives of the "
        f"exhaustive eval set, {len(added):,} labels from votes alone"
    ]
    if n_overruled:
        notes.append(f"{n_overruled:,} agreed votes contradict the ground truth, which holds")
    rows = pl.concat([settled, added])
    return LabelSet.from_rows(rows, truth["clip_id"], ontology.class_ids, "FSD50K"), notes


def _clips(root: Path, truth: pl.DataFrame, progress: Progress) -> tuple[pl.DataFrame, list[str]]:
    uploader_of, notes = _uploaders(root)
    meter = progress.job("find audio", len(truth), "clips")
    audio, sources = [], []
    for clip_id, part in truth.select("clip_id", "set").iter_rows():
        path = root / f"FSD50K.{part}_audio" / f"{clip_id}.wav"
        audio.append(str(path.resolve()) if path.is_file() else None)
        name = uploader_of.get(clip_id)
        sources.append(f"clip {clip_id}" if name is None else f"uploader {name}")
        meter.advance(1)
    folders = [root / f"FSD50K.{part}_audio" for part in ("dev", "eval")]
    there = [folder for folder in folders if folder.is_dir()]
    if there and not any(audio):
        raise EarmarkError(
            f"{there[0]}: none of the {len(truth):,} listed clips has a file there, such as "
            f"{truth['clip_id'][0]}.wav; is the archive unpacked?"
        )
    clips = truth.select(
        "clip_id",
        pl.Series("audio", audio, pl.String),
        pl.lit(None, pl.Float64).alias("start_seconds"),
        pl.lit(None, pl.Float64).alias("end_seconds"),
        "split",
        pl.Series("source", sources, pl.String),
    )
    return clips, notes


def _uploaders(root: Path) -> tuple[dict[str, str], list[str]]:
    """Return the uploader of each clip, as far as the metadata are there."""
    uploader_of: dict[str, str] = {}
    notes = []
    for name in ("dev", "eval"):
        path = root / _METADATA / f"{name}_clips_info_FSD50K.json"
        if not path.exists():
            notes.append(f"no {path.name}: its clips are not grouped by uploader")
            continue
        for clip_id, info in read_json(path).items():
            if isinstance(info, dict) and info.get("uploader"):
                uploader_of[clip_id] = str(info["uploader"])
    return uploader_of, notes
