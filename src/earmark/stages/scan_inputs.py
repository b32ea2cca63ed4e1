"""The labels and scores of a scan, brought into one order and onto one scale.

The scores give the order of clips and classes, because labels are sparse and cheap to rearrange.
Scores that name clips or classes are matched by name, the others by number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from earmark.errors import EarmarkError, check_file, first_few
from earmark.labels.audioset_format import VIDEO_ID, read_ontology, read_segments
from earmark.labels.label_files import (
    LabelFile,
    arrange,
    match_names,
    read_class_list,
    read_clip_list,
    read_label_file,
)
from earmark.labels.label_set import LabelSet
from earmark.labels.ontology import Ontology
from earmark.runs.progress import SILENT, Progress
from earmark.scores.matrix import ScoreMatrix, open_scores
from earmark.scores.scale import Scale, detect_scale, write_logits
from earmark.scores.score_files import ScoreFile, open_score_file

_SEGMENT = re.compile(rf'\s*(#|"?{VIDEO_ID}"?\s*,\s*"?[0-9.]+"?\s*,)')


@dataclass(frozen=True)
class InputFiles:
    """Where labels and scores lie, and what their files do not say themselves.

    ``classes`` and ``clips`` list them in the order of the scores. ``labels_key`` and
    ``scores_key`` name the array to use where a file holds several.
    """

    labels: Path
    scores: Path
    classes: Path | None = None
    clips: Path | None = None
    ontology: Path | None = None
    labels_key: str | None = None
    scores_key: str | None = None


@dataclass(frozen=True)
class Inputs:
    """Labels, classes and logits in one order of clips and classes.

    ``is_detected`` tells whether the scale was guessed; ``warnings`` say what is doubtful.
    """

    labels: LabelSet
    ontology: Ontology
    scores: ScoreMatrix
    scale: Scale
    is_detected: bool
    warnings: tuple[str, ...]


def read_inputs(
    files: InputFiles,
    scale: Scale | Literal["auto"],
    scratch: Path,
    progress: Progress = SILENT,
) -> Inputs:
    """Read labels, open scores and match them.

    What has to be converted goes into the folder ``scratch``, which must outlive the result.
    """
    labels_file = read_labels(files.labels, files.labels_key)
    score_file = open_score_file(files.scores, files.scores_key)
    if 0 in score_file.shape:
        raise EarmarkError(f"{files.scores}: no scores, the shape is {score_file.shape}")
    listed = None if files.classes is None else read_class_list(files.classes)
    if listed is not None:
        labels_file = labels_file.named(listed)
    classes = score_classes(score_file, listed, labels_file)
    clip_ids = _score_clips(score_file, files.clips)
    labels_file, left_out = leave_out_unscored(labels_file, clip_ids)
    labels = arrange(labels_file, score_file.shape[0], clip_ids, classes)
    ontology = classes if files.ontology is None else add_parents(classes, files.ontology)
    npy = score_file.write_npy(scratch / "scores.npy", progress)
    chosen = detect_scale(npy) if scale == "auto" else scale
    warnings = [*left_out, *_unlabelled_warnings(labels_file, labels)]
    if chosen == "probabilities":
        warnings += write_logits(npy, labels, scratch / "logits.npy", progress)
        (scratch / "scores.npy").unlink(missing_ok=True)
        npy = scratch / "logits.npy"
    matrix = open_scores(npy, labels)
    return Inputs(labels, ontology, matrix, chosen, scale == "auto", tuple(warnings))


def read_labels(path: Path, key: str | None = None) -> LabelFile:
    """Read labels in any format: those of ``label_files``, or an AudioSet list of segments."""
    check_file(path)
    if path.suffix.lower() != ".csv" or not _is_segments(path):
        return read_label_file(path, key)
    segments = read_segments(path)
    twice = segments["clip_id"].filter(segments["clip_id"].is_duplicated())
    if len(twice):
        raise EarmarkError(f"{path}: segments listed twice: {first_few(twice.unique())}")
    rows = segments.select("clip_id", class_id=pl.col("class_ids").list.unique(maintain_order=True))
    rows = rows.explode("class_id").filter(pl.col("class_id") != "")
    rows = rows.with_columns(present=pl.lit(True))
    labels = LabelSet.from_rows(rows, segments["clip_id"], origin=str(path))
    return LabelFile(path, labels, True, True, lists_clips=True, lists_classes=False)


def _is_segments(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(_SEGMENT.match(file.read(200).decode("utf-8-sig", "replace")))


def score_classes(file: ScoreFile, listed: Ontology | None, labels: LabelFile) -> Ontology:
    """Return the classes in the order of the score columns.

    They are the names in the score file, matched with the ``listed`` ones by identifier or name;
    or the listed ones; or those of a label file that lists or numbers them all.
    """
    if file.class_ids is not None:
        return Ontology(file.class_ids) if listed is None else _matched(file, listed)
    n_classes = file.shape[1]
    if listed is not None:
        if len(listed.class_ids) != n_classes:
            raise EarmarkError(
                f"{file.path}: {n_classes:,} columns, but {len(listed.class_ids):,} classes are "
                "listed; list the classes in the order of the scores' columns"
            )
        return listed
    if labels.lists_classes:
        return Ontology(labels.labels.class_ids)
    if not labels.names_classes:
        return Ontology(tuple(str(number) for number in range(n_classes)))
    raise EarmarkError(
        f"{file.path}: the scores do not say which column is which class; list the classes in the "
        "order of the columns, one per line (option `classes`)"
    )


def _matched(file: ScoreFile, listed: Ontology) -> Ontology:
    """Return the listed classes in the order of the score file's own names."""
    assert file.class_ids is not None
    columns = match_names(file.class_ids, listed)
    unknown = [name for name, c in zip(file.class_ids, columns, strict=True) if c is None]
    if unknown:
        raise EarmarkError(f"{file.path}: not among the listed classes: {first_few(unknown)}")
    ids = tuple(listed.class_ids[column] for column in columns if column is not None)
    without = [class_id for class_id in listed.class_ids if class_id not in set(ids)]
    if without or len(set(ids)) < len(ids):
        raise EarmarkError(f"{file.path}: no scores for the classes {first_few(without)}")
    return Ontology(ids, listed.parents, listed.names)


def _score_clips(file: ScoreFile, clips: Path | None) -> pl.Series | None:
    if clips is None:
        return file.clip_ids
    if file.clip_ids is not None:
        raise EarmarkError(f"{file.path} names its clips itself; leave {clips} out")
    listed = read_clip_list(clips)
    if len(listed) != file.shape[0]:
        raise EarmarkError(f"{clips}: {len(listed):,} clips for {file.shape[0]:,} rows of scores")
    return listed


def leave_out_unscored(
    file: LabelFile, clip_ids: pl.Series | None
) -> tuple[LabelFile, tuple[str, ...]]:
    """Leave out the labels of clips that have no scores; return what there is to say about it.

    Without names on both sides there is nothing to compare. Not one clip in common is an error.
    """
    own = file.labels.clip_ids
    if clip_ids is None or not file.names_clips:
        return file, ()
    is_scored = own.is_in(clip_ids.implode())
    if is_scored.all():
        return file, ()
    without = first_few(own.filter(~is_scored))
    if not is_scored.any():
        raise EarmarkError(
            f"{file.path}: the scores have no row for any of its clips {without}; the scores' "
            f"clips are called {first_few(clip_ids)}"
        )
    labels = file.labels.select(is_scored.to_numpy())
    n_labels = len(file.labels.columns) - len(labels.columns)
    warning = (
        f"{len(own) - labels.n_clips:,} of {len(own):,} clips in {file.path.name} have no scores "
        f"(such as {without}): their {n_labels:,} labels are left out"
    )
    return replace(file, labels=labels), (warning,)


def add_parents(classes: Ontology, path: Path) -> Ontology:
    """Add the parents in a file, and the names where the classes have none.

    The file is AudioSet's ``ontology.json``, or a table with class_id, parents and maybe name.
    """
    check_file(path)
    if path.suffix.lower() != ".json":
        tree = read_class_list(path)
        if not tree.parents:
            raise EarmarkError(f"{path}: there is no column 'parents'")
        return _with_names(Ontology(classes.class_ids, tree.parents, classes.names), tree.names)
    columns = {
        "index": range(len(classes.class_ids)),
        "mid": classes.class_ids,
        "display_name": [classes.name(class_id) for class_id in classes.class_ids],
    }
    tree = read_ontology(pl.DataFrame(columns), path)
    nodes = json.loads(path.read_bytes())  # read_ontology has found it to be a list of nodes
    return _with_names(tree, {node["id"]: node.get("name", node["id"]) for node in nodes})


def _with_names(ontology: Ontology, others: Mapping[str, str]) -> Ontology:
    """Name the classes that have no name of their own; refuse one that is its own ancestor."""
    names = {
        class_id: ontology.name(class_id)
        if ontology.name(class_id) != class_id
        else others.get(class_id, class_id)
        for class_id in ontology.class_ids
    }
    for class_id in ontology.class_ids:
        ontology.ancestors(class_id)
    return Ontology(ontology.class_ids, ontology.parents, names, ontology.definitions)


def _unlabelled_warnings(file: LabelFile, labels: LabelSet) -> list[str]:
    is_bare = np.diff(labels.starts) == 0
    if file.lists_clips or not is_bare.any():
        return []
    return [
        f"{int(is_bare.sum()):,} of {labels.n_clips:,} clips have no row in {file.path.name} (such "
        f"as {first_few(labels.clip_ids.filter(is_bare).to_list())}): all their labels are implicit"
    ]
