"""The labels and scores of a scan, brought into one order and onto one scale.

The scores give the order of clips and classes, because labels are sparse and cheap to rearrange.
Scores that name clips or classes are matched by name, the others by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import SILENT, Progress
from earmark.errors import EarmarkError, about, check_file, first_few, reading, short_repr
from earmark.labels import (
    GUESSED,
    LabelFile,
    LabelSet,
    Ontology,
    Reading,
    read_class_list,
    read_label_file,
    read_ontology,
    refuse_no_labels,
)
from earmark.scores import (
    Scale,
    ScoreMatrix,
    arrange,
    classes_of_columns,
    clips_of_rows,
    detect_scale,
    leave_out_gaps,
    leave_out_unscored,
    named_as_scored,
    open_score_file,
    open_scores,
    pairing_told,
    write_logits,
)
from earmark.storage import read_json, write_array


@dataclass(frozen=True)
class InputFiles:
    """Where labels and scores lie, and what their files do not say themselves.

    ``classes`` and ``clips`` list them in the order of the scores. ``labels_key`` and
    ``scores_key`` name the array to use where a file holds several; ``reading`` says how a table
    of labels is to be read.
    """

    labels: Path
    scores: Path
    classes: Path | None = None
    clips: Path | None = None
    ontology: Path | None = None
    labels_key: str | None = None
    scores_key: str | None = None
    reading: Reading = GUESSED

    __repr__ = short_repr


@dataclass(frozen=True)
class Inputs:
    """Labels, classes and logits in one order of clips and classes.

    ``is_detected`` tells whether the scale was guessed; ``notes`` say how the files were read and
    what was paired by position, ``warnings`` what is doubtful.
    """

    labels: LabelSet
    ontology: Ontology
    scores: ScoreMatrix
    scale: Scale
    is_detected: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def scores_told(self) -> str:
        """What the scores are, in words."""
        return f"the scores are {self.scale} ({'as detected' if self.is_detected else 'as given'})"


def read_inputs(
    files: InputFiles,
    scale: Scale | Literal["auto"],
    scratch: Path,
    progress: Progress = SILENT,
) -> Inputs:
    """Read labels, open scores and match them.

    What has to be converted goes into the folder ``scratch``, which must outlive the result.
    """
    labels_file = read_label_file(files.labels, files.labels_key, files.reading)
    score_file = open_score_file(files.scores, files.scores_key)
    if 0 in score_file.shape:
        raise EarmarkError(f"{files.scores}: no scores, the shape is {score_file.shape}")
    listed = None if files.classes is None else read_class_list(files.classes)
    if listed is not None:
        labels_file = labels_file.named(listed)
    classes = classes_of_columns(score_file, listed, labels_file)
    clip_ids = clips_of_rows(score_file, files.clips)
    labels_file = named_as_scored(labels_file, clip_ids)
    labels_file, left_out = leave_out_unscored(labels_file, clip_ids)
    labels = arrange(labels_file, score_file, clip_ids, classes)
    refuse_no_labels(labels, files.labels)
    ontology = classes if files.ontology is None else add_parents(classes, files.ontology)
    npy = score_file.write_npy(scratch / "scores.npy", progress)
    warnings = [*left_out, *_unlisted_warnings(labels_file, labels)]
    matrix, labels, gaps = leave_out_gaps(npy, labels, scratch / "scored.npy", files.scores)
    warnings += gaps
    inputs = _on_one_scale(labels, ontology, matrix, scale, warnings, scratch, progress)
    paired = pairing_told(labels_file, score_file, clip_ids, listed is not None)
    return replace(inputs, notes=(*labels_file.notes, *paired))


def given_inputs(
    labels: LabelSet,
    scores: str | Path | NDArray[np.floating],
    ontology: Path | None,
    scale: Scale | Literal["auto"],
    scratch: Path,
    progress: Progress = SILENT,
) -> Inputs:
    """Take labels that are in memory, and scores [clip, class] in their order.

    An array goes into the folder ``scratch``, which must outlive the result; a path is that of an
    ``.npy`` file.
    """
    refuse_no_labels(labels, "labels")
    matrix = open_scores(scores, labels)  # refuses another shape
    if isinstance(scores, str | Path):
        npy = name = Path(scores)
    else:
        npy, name = scratch / "scores.npy", Path("scores")
        write_array(npy, matrix.array)
    classes = Ontology(labels.class_ids)
    tree = classes if ontology is None else add_parents(classes, ontology)
    matrix, labels, gaps = leave_out_gaps(npy, labels, scratch / "scored.npy", name)
    return _on_one_scale(labels, tree, matrix, scale, gaps, scratch, progress)


def _on_one_scale(
    labels: LabelSet,
    ontology: Ontology,
    matrix: ScoreMatrix,
    scale: Scale | Literal["auto"],
    warnings: Sequence[str],
    scratch: Path,
    progress: Progress,
) -> Inputs:
    chosen = detect_scale(matrix) if scale == "auto" else scale
    ties: Sequence[str] = ()
    if chosen == "probabilities":
        assert matrix.path is not None
        ties = write_logits(matrix.path, labels, scratch / "logits.npy", progress)
        (scratch / "scores.npy").unlink(missing_ok=True)
        matrix = open_scores(scratch / "logits.npy", labels)
    return Inputs(labels, ontology, matrix, chosen, scale == "auto", (*warnings, *ties))


def add_parents(classes: Ontology, path: Path) -> Ontology:
    """Add the parents in a file, and the names where the classes have none.

    The file is AudioSet's ``ontology.json``, or a table with class_id, parents and maybe name.
    """
    with about(path), reading(path, "a class tree"):
        return _with_tree(classes, path)


def _with_tree(classes: Ontology, path: Path) -> Ontology:
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
    nodes = read_json(path)  # read_ontology has found it to be a list of nodes
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


def _unlisted_warnings(file: LabelFile, labels: LabelSet) -> list[str]:
    # Whichever clip has a label has a row: the others alone are looked for.
    bare, bare_rows = labels.clips_without_labels, file.labels.clips_without_labels
    without = bare.filter(~bare.is_in(bare_rows.implode()))
    if not file.names_clips or without.is_empty():
        return []
    return [
        f"{len(without):,} of {labels.n_clips:,} clips have no row in {file.path.name} (such "
        f"as {first_few(without)}): all their labels are implicit"
    ]
