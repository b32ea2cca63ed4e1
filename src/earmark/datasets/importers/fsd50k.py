"""FSD50K: the official ground truth, and its uploaders.

Labels of the ground truth are explicit positives, also those that were propagated up the hierarchy.
The eval set was labelled exhaustively, so every class that is not listed for an eval clip is an
explicit negative. The dev set was not: all else is implicit. Clips are grouped by their Freesound
uploader, as FSD50K's own splits are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from earmark.compute import SILENT, Progress
from earmark.datasets.workspace import ImportSummary, write_dataset
from earmark.errors import EarmarkError, reader
from earmark.labels import ONTOLOGY_FILE, LabelSet, Ontology, read_ontology
from earmark.storage import LINE, AudioAccess, check_unique, read_json, read_source, writes

_SPLITS = {"train": "train", "val": "tune"}  # of the dev set; its eval set is our eval split


@writes("import", makes=True)
@reader("FSD50K")
def import_fsd50k(
    root: Path,
    work: Path,
    *,
    allow: Sequence[Path] = (),
    replace: bool = False,
    progress: Progress = SILENT,
) -> ImportSummary:
    """Write a workspace from FSD50K's official folders under ``root``.

    ``root`` holds FSD50K.ground_truth and, as far as they are there, FSD50K.metadata (uploaders),
    FSD50K.dev_audio, FSD50K.eval_audio and AudioSet's ontology.json (parents and definitions of the
    classes). Clips without a file are listed with a null path. Links that lead
    out of ``root`` are refused, unless it is into one of ``allow``. Another dataset in the
    workspace is refused, unless ``replace`` says so.
    """
    folder, tree = root / "FSD50K.ground_truth", root / ONTOLOGY_FILE
    classes = read_source(folder / "vocabulary.csv", header=("index", "display_name", "mid")).rows
    check_unique(classes["mid"], f"{folder / 'vocabulary.csv'}: class")
    ontology = read_ontology(classes, tree if tree.exists() else None)
    truth = pl.concat(_read_truth(folder / f"{name}.csv", ontology) for name in ("dev", "eval"))
    check_unique(truth["clip_id"], f"{folder}: clip")
    labels, note = _labels(truth, ontology)
    access = AudioAccess(root.resolve(), (root, *allow))
    names = truth.select(pl.format("FSD50K.{}_audio/{}.wav", "set", "clip_id")).to_series()
    meter = progress.job("find audio", len(truth), "clips")
    audio = access.find_all(names, lambda row: f"{folder}, clip {truth['clip_id'][row]!r}")
    meter.advance(len(truth))
    if not any(audio) and any((root / f"FSD50K.{name}_audio").is_dir() for name in ("dev", "eval")):
        raise EarmarkError(f"{root / names[0]}: no listed clip has a file; is it unpacked?")
    clips = truth.select(
        "clip_id",
        pl.Series("audio", audio, pl.String),
        pl.lit(None, pl.Float64).alias("start_seconds"),
        pl.lit(None, pl.Float64).alias("end_seconds"),
        "split",
        pl.Series("source", _read_sources(root, truth["clip_id"])),
    )
    workspace = write_dataset(work, clips, ontology, labels, access=access, replace=replace)
    n_missing = clips["audio"].null_count()
    return ImportSummary(workspace, len(clips), len(clips) - n_missing, n_missing, (note,))


def _read_truth(path: Path, ontology: Ontology) -> pl.DataFrame:
    """Read dev.csv or eval.csv: clip_id, class_ids (a list), set (dev or eval), split (ours)."""
    name = path.stem
    table = read_source(path)
    expected = ["fname", "labels", "mids", *(["split"] if name == "dev" else [])]
    if not set(expected) <= set(table.columns):
        raise EarmarkError(
            f"{path}, line 1: expected the columns {','.join(expected)}, got "
            f"{','.join(table.columns)}; is it FSD50K's own file?"
        )
    split = (
        pl.lit("eval") if name == "eval" else pl.col("split").replace_strict(_SPLITS, default=None)
    )
    rows = table.rows.select(
        LINE,
        clip_id="fname",
        class_ids=pl.col("mids").str.split(","),
        set=pl.lit(name),
        split=split,
    )
    is_known = pl.col("class_ids").list.eval(pl.element().is_in(ontology.class_ids)).list.all()
    for wrong, problem in (
        (pl.col("clip_id").is_null(), "fname is empty"),
        (pl.col("split").is_null(), "split must be train or val"),
        (~is_known.fill_null(value=False), "a class is not in vocabulary.csv"),
    ):
        if len(bad := rows.filter(wrong)):
            raise EarmarkError(f"{table.at(bad[LINE][0])}: {problem}")
    return rows.drop(LINE)


def _labels(truth: pl.DataFrame, ontology: Ontology) -> tuple[LabelSet, str]:
    """Return the positives, and the negatives of the exhaustive eval set."""
    listed = (
        truth.select("clip_id", class_id="class_ids")
        .explode("class_id")
        .unique(maintain_order=True)
    )
    every = pl.DataFrame({"class_id": list(ontology.class_ids)}, schema={"class_id": pl.String})
    negatives = truth.filter(set="eval").select("clip_id").join(every, how="cross")
    negatives = negatives.join(listed, on=["clip_id", "class_id"], how="anti")
    rows = pl.concat(
        [listed.with_columns(present=pl.lit(True)), negatives.with_columns(present=pl.lit(False))]
    )
    labels = LabelSet.from_rows(rows, truth["clip_id"], ontology.class_ids, "FSD50K")
    note = (
        f"{len(listed):,} positives of the ground truth, {len(negatives):,} negatives of the "
        "exhaustive eval set"
    )
    return labels, note


def _read_sources(root: Path, clip_ids: pl.Series) -> list[str]:
    """Return the uploader of each clip, or the clip itself where the metadata are not there."""
    uploader_of: dict[str, str] = {}
    for name in ("dev", "eval"):
        path = root / "FSD50K.metadata" / f"{name}_clips_info_FSD50K.json"
        infos = read_json(path) if path.exists() else {}
        uploader_of |= {clip_id: f"uploader {info['uploader']}" for clip_id, info in infos.items()}
    return [uploader_of.get(clip_id, f"clip {clip_id}") for clip_id in clip_ids]
