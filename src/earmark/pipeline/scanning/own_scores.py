"""Scores of one's own, from a file, as the scores of a workspace's teacher.

They are matched by name, clip by clip and class by class, and never by position: what a file does
not name has to be listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.compute import Progress, shown
from earmark.datasets import Workspace, write_scores
from earmark.errors import EarmarkError, first_few, short_repr
from earmark.labels import LabelSet, read_class_list, rows_of
from earmark.options import Option
from earmark.pipeline.opening import RecipeLike, WorkLike, choose_recipe, open_workspace
from earmark.pipeline.teachers import OutOfFold, SkipUnknown
from earmark.scores import (
    Origin,
    Scale,
    ScoreFile,
    ScoreFolder,
    clips_of_rows,
    detect_scale,
    leave_out_gaps,
    match_names,
    named_alike,
    open_score_file,
    row_blocks,
    write_logits,
)
from earmark.storage import digest, new_array, scratch_beside, writes


@dataclass(frozen=True)
class ScoredByFile:
    """Scores of one's own, and how they fit the workspace."""

    scores: ScoreFolder
    scale: Scale
    n_clips: int
    without_scores: tuple[str, ...]
    """Clips of the workspace that the file does not score."""
    n_foreign: int
    """Clips that the file scores and the workspace does not have."""
    unscored: tuple[str, ...]
    """Classes of the workspace that the file does not score."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """How clips were matched, where their names are not the same."""

    __repr__ = short_repr


_NO_ROWS = pl.DataFrame(schema={"clip_id": pl.String, "class_id": pl.String, "present": pl.Boolean})


@writes("score")
def score_by_file(
    work: WorkLike,
    path: Annotated[
        str | Path, Option("Scores of your own: any file that scan reads.", "--from", default=None)
    ],
    recipe: RecipeLike = None,
    *,
    classes: Annotated[
        str | Path | None, Option("With --from: classes in the order of its columns.")
    ] = None,
    clips: Annotated[
        str | Path | None, Option("With --from: clips in the order of its rows.")
    ] = None,
    scores_key: Annotated[str | None, Option("With --from: array in an .npz.")] = None,
    scale: Annotated[Scale | None, Option("Scores are logits or probabilities.")] = None,
    skip_unknown: SkipUnknown = False,
    out_of_fold: OutOfFold = None,
    progress: Progress | None = None,
) -> ScoredByFile:
    """Take scores of one's own, in any format that a scan reads, for those of the recipe's teacher.

    Clips and classes are matched by name: those in the file, or the lists ``classes`` and ``clips``
    in the order of its columns and rows. Clips and classes of the workspace without scores are
    never flagged; NaN throughout says the same of a clip or a class (see
    :mod:`earmark.scores.logits`). ``out_of_fold`` says that the model behind the scores never saw
    these clips.
    """
    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    file = open_score_file(path, scores_key)
    names = _columns(file, classes)
    scored, notes = named_alike(_clip_names(file, clips), workspace.clips["clip_id"])
    rows, columns = _places(workspace, file, scored, names, skip_unknown)
    beside = workspace.scores_folder(chosen.scores_name)
    with shown(progress) as display, scratch_beside(beside) as folder:
        npy, found, kept, warnings = _logits(file, scored, names, scale, folder, display)
        rows = rows[scored.is_in(kept.implode()).to_numpy()]
        if not (rows >= 0).any():
            raise EarmarkError(f"{file.path}: no clip of {workspace.root} has a score: all are NaN")
        logits = _arranged(workspace, npy, rows, columns, folder / "arranged.npy")
        clip_ids = workspace.clips["clip_id"].gather(np.unique(rows[rows >= 0]))
        origin = Origin.at("file", path)
        scores = give_scores(
            workspace, chosen.scores_name, clip_ids, logits, origin, out_of_fold=bool(out_of_fold)
        )
        is_unscored = np.isnan(logits[0])
    is_scored = workspace.clips["clip_id"].is_in(clip_ids.implode())
    return ScoredByFile(
        scores,
        found,
        len(clip_ids),
        tuple(workspace.clips["clip_id"].filter(~is_scored)),
        int((rows < 0).sum()),
        tuple(np.array(workspace.ontology.class_ids)[is_unscored].tolist()),
        tuple(warnings),
        notes,
    )


def give_scores(
    workspace: Workspace,
    teacher: str,
    clip_ids: pl.Series,
    logits: NDArray[np.float32],
    origin: Origin,
    *,
    out_of_fold: bool,
) -> ScoreFolder:
    """Write logits [clip, class] from elsewhere as those of a teacher; nobody knows the patches."""
    content = hashlib.sha256("\n".join(clip_ids).encode())
    for start in range(0, len(logits), 4_096):
        content.update(logits[start : start + 4_096].tobytes())
    made_of = (content.hexdigest(), workspace.ontology.class_ids, workspace.splits_digest)
    return write_scores(
        workspace,
        teacher,
        clip_ids,
        logits,
        None,
        out_of_fold=out_of_fold,
        digest=digest("given", *made_of, out_of_fold),
        origin=origin,
    )


def _columns(file: ScoreFile, classes: str | Path | None) -> tuple[str, ...]:
    """Return the names of the score columns."""
    listed = None if classes is None else read_class_list(Path(classes))
    if file.class_ids is not None:
        return file.class_ids
    if listed is None:
        raise EarmarkError(
            f"{file.path}: the scores do not name their classes; list them in the order of the "
            "columns, one per line (option `classes`)"
        )
    if len(listed.class_ids) != file.shape[1]:
        raise EarmarkError(
            f"{classes}: {len(listed.class_ids):,} classes for {file.shape[1]:,} columns of scores"
        )
    return listed.class_ids


def _clip_names(file: ScoreFile, clips: str | Path | None) -> pl.Series:
    found = clips_of_rows(file, None if clips is None else Path(clips))
    if found is None:
        raise EarmarkError(
            f"{file.path}: the scores do not name their clips; list them in the order of the rows, "
            "one per line (option `clips`)"
        )
    return found


def _places(
    workspace: Workspace,
    file: ScoreFile,
    clip_ids: pl.Series,
    names: Sequence[str],
    skip_unknown: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the workspace's row of each score row and column of each score column; -1 for none."""
    own = workspace.clips["clip_id"]
    rows = rows_of(clip_ids, own).cast(pl.Int64).fill_null(-1).to_numpy()
    if not (rows >= 0).any():
        raise EarmarkError(
            f"{file.path}: not one of its clips is in {workspace.root}; they are called "
            f"{first_few(clip_ids)} here and {first_few(own)} there"
        )
    found = match_names(names, workspace.ontology)
    unknown = [name for name, column in zip(names, found, strict=True) if column is None]
    if unknown and (not skip_unknown or len(unknown) == len(names)):
        raise EarmarkError(
            f"{file.path}: not classes of {workspace.root}: {first_few(unknown)}; its classes are "
            f"{first_few(workspace.ontology.class_ids)} (--skip-unknown leaves others out)"
        )
    columns = np.array([-1 if column is None else column for column in found], np.int64)
    if len(np.unique(columns[columns >= 0])) < (columns >= 0).sum():
        raise EarmarkError(f"{file.path}: a class has two columns, by identifier and by name")
    return rows, columns


def _logits(
    file: ScoreFile,
    clip_ids: pl.Series,
    names: Sequence[str],
    scale: Scale | None,
    scratch: Path,
    progress: Progress,
) -> tuple[Path, Scale, pl.Series, Sequence[str]]:
    """Return an ``.npy`` of logits, what the scores were, the clips it has, and warnings."""
    npy = file.write_npy(scratch / "scores.npy", progress)
    unlabelled = LabelSet.from_rows(_NO_ROWS, clip_ids, names)
    matrix, kept, gaps = leave_out_gaps(npy, unlabelled, scratch / "scored.npy", file.path)
    found, npy = scale or detect_scale(matrix), matrix.path or npy
    if found == "logits":
        return npy, found, kept.clip_ids, gaps
    ties = write_logits(npy, kept, scratch / "logits.npy", progress)
    return scratch / "logits.npy", found, kept.clip_ids, (*gaps, *ties)


def _arranged(
    workspace: Workspace,
    npy: Path,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    path: Path,
) -> NDArray[np.float32]:
    """Bring scores into the order of the workspace's clips and classes; NaN in other classes."""
    own, places = np.unique(rows[rows >= 0], return_inverse=True)
    place_of = np.full(len(rows), -1)
    place_of[rows >= 0] = places
    shape = (len(own), len(workspace.ontology.class_ids))
    logits = new_array(path, shape)
    logits[:] = np.nan
    is_known = columns >= 0
    for start, block in row_blocks(npy):
        place = place_of[start : start + len(block)]
        known = np.asarray(block[place >= 0][:, is_known], np.float32)
        logits[np.ix_(place[place >= 0], columns[is_known])] = known
    return logits
