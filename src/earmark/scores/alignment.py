"""Scores and labels brought into one order of clips and classes.

The scores give the order, because labels are sparse and cheap to rearrange. A folder of scores and
the labels of a workspace share their names; files from elsewhere are matched by name where both
sides have names, and by number where one has none. Where not one clip has the same name on both
sides, sound-file endings and folders are left out of the names. What cannot be matched is an error
that names the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError, first_few, nearest
from earmark.labels import LabelFile, LabelSet, Ontology, read_clip_list, rows_of
from earmark.scores.files import ScoreFile
from earmark.scores.folder import ScoreFolder
from earmark.storage import AUDIO_SUFFIXES, digest

_TRANSPOSED = "; are they transposed? A row is a clip, a column a class: save scores.T"


def scored_labels(scores: ScoreFolder, labels: LabelSet) -> LabelSet:
    """Return the labels of the scored clips, in the order of the scores."""
    if scores.class_ids != labels.class_ids:
        raise EarmarkError(
            f"{scores.folder}: the scores are of {len(scores.class_ids)} classes in another order "
            f"than the workspace's {len(labels.class_ids)}; run `earmark score` again"
        )
    rows = rows_of(scores.clip_ids, labels.clip_ids)
    if rows.null_count():
        raise EarmarkError(
            f"{scores.folder}: {rows.null_count()} scored clips are not in the workspace; "
            "run `earmark score` again"
        )
    return labels.select(rows.to_numpy())


def logits_of(scores: ScoreFolder, clip_ids: pl.Series) -> NDArray[np.float32]:
    """Return the scores [clip, class] of some clips, in their order."""
    return np.asarray(scores.logits[rows_of(clip_ids, scores.clip_ids).to_numpy()])


def check_aligned(scores: ScoreFolder, labels: LabelSet) -> None:
    """Refuse scores that are not of the labels' clips and classes, in their order."""
    classes = (pl.Series(ids.class_ids, dtype=pl.String) for ids in (scores, labels))
    pairs = {"clips": (scores.clip_ids, labels.clip_ids), "classes": classes}
    for what, (have, want) in pairs.items():
        if not have.equals(want):
            raise EarmarkError(
                f"{scores.folder}: the teacher scored {len(have)} {what} {digest(have.to_list())}, "
                f"and not the {len(want)} {what} {digest(want.to_list())} of the train split in "
                "their order; run `earmark score` again"
            )


def classes_of_columns(file: ScoreFile, listed: Ontology | None, labels: LabelFile) -> Ontology:
    """Return the classes in the order of the score columns.

    They are the names in the score file, matched with the ``listed`` ones by identifier or name;
    or the listed ones; or those of a label file that lists or numbers them all.
    """
    if file.class_ids is not None:
        return Ontology(file.class_ids) if listed is None else _matched(file, listed)
    n_classes = file.shape[1]
    if listed is not None:
        if len(listed.class_ids) != n_classes:
            n_listed = len(listed.class_ids)
            hint = "; list the classes in the order of the scores' columns"
            raise EarmarkError(
                f"{file.path}: {n_classes:,} columns, but {n_listed:,} classes are listed"
                f"{_TRANSPOSED if file.shape[0] == n_listed else hint}"
            )
        return listed
    if labels.lists_classes and labels.labels.n_classes == n_classes:
        return Ontology(labels.labels.class_ids)
    if labels.lists_classes:
        is_turned = file.shape == (labels.labels.n_classes, labels.labels.n_clips)
        hint = "; list the classes in the order of the scores' columns (--classes FILE)"
        raise EarmarkError(
            f"{file.path}: {n_classes:,} columns, but {labels.path} has "
            f"{labels.labels.n_classes:,} classes{_TRANSPOSED if is_turned else hint}"
        )
    if not labels.names_classes:
        return Ontology(tuple(str(number) for number in range(n_classes)))
    raise EarmarkError(
        f"{file.path}: the scores do not say which column is which class; list the classes in the "
        "order of the columns, one per line (--classes FILE)"
    )


def clips_of_rows(file: ScoreFile, clips: Path | None) -> pl.Series | None:
    """Return the clips in the order of the score rows: the file's own names or a listed one's."""
    if clips is None:
        return file.clip_ids
    if file.clip_ids is not None:
        raise EarmarkError(f"{file.path} names its clips itself; leave {clips} out")
    listed = read_clip_list(clips)
    if len(listed) != file.shape[0]:
        is_turned = len(listed) == file.shape[1]
        raise EarmarkError(
            f"{clips}: {len(listed):,} clips for {file.shape[0]:,} rows of scores"
            f"{_TRANSPOSED if is_turned else ''}"
        )
    return listed


def named_as_scored(file: LabelFile, clip_ids: pl.Series | None) -> LabelFile:
    """Call the labels' clips as the scores do, where only endings or folders tell them apart."""
    if clip_ids is None or not file.names_clips:
        return file
    names, notes = named_alike(file.labels.clip_ids, clip_ids)
    return replace(file, labels=replace(file.labels, clip_ids=names), notes=(*file.notes, *notes))


def named_alike(names: pl.Series, others: pl.Series) -> tuple[pl.Series, tuple[str, ...]]:
    """Return clips under the names that ``others`` have for them, and a note if those differ.

    Names change only if not one is the same on both sides, and without sound-file endings (or also
    without folders) all of one side are found on the other. Two clips for one name are an error.
    """
    if not len(names) or not len(others) or names.is_in(others.implode()).any():
        return names, ()
    for bare, what in ((_without_ending, "endings"), (_without_folder, "folders and endings")):
        pairs = _paired(names, others, bare)
        if pairs["n"].sum() == len(names) or pairs["n_other"].sum() == len(others):
            _refuse_two_for_one(pairs, what)
            own, their = pairs["name"], pairs["name_other"]
            note = f"Clips are matched without their {what}: {own[0]!r} is {their[0]!r}."
            return names.replace(own, their), (note,)
    return names, ()


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
        is_swapped = clip_ids.is_in(list(file.labels.class_ids)).any()
        hint = "; are clips and classes swapped in the labels?" if is_swapped else ""
        raise EarmarkError(
            f"{file.path}: the scores have no row for any of its clips {without}; the scores' "
            f"clips are called {first_few(clip_ids)}{hint}"
        )
    labels = file.labels.select(is_scored.to_numpy())
    n_labels = len(file.labels.columns) - len(labels.columns)
    warning = (
        f"{len(own) - labels.n_clips:,} of {len(own):,} clips in {file.path.name} have no scores "
        f"(such as {without}): their {n_labels:,} labels are left out"
    )
    return replace(file, labels=labels), (warning,)


def arrange(
    file: LabelFile, scores: ScoreFile, clip_ids: pl.Series | None, classes: Ontology
) -> LabelSet:
    """Return the labels in the order of the score rows and columns.

    ``clip_ids`` [clip] names the rows where their names are known; otherwise labels and scores
    pair by position, if each row of the labels is a clip. Classes are matched by identifier or,
    failing that, by name. What cannot be matched is an error that names the first few.
    """
    rows, clip_ids = _match_clips(file, scores, clip_ids)
    columns = _match_classes(file, classes)
    labels = file.labels
    return LabelSet.from_numbers(
        clip_ids,
        classes.class_ids,
        np.repeat(rows, np.diff(labels.starts)),
        columns[labels.columns],
        labels.present,
    )


def pairing_told(
    file: LabelFile, scores: ScoreFile, clip_ids: pl.Series | None, has_classes: bool
) -> tuple[str, ...]:
    """Say which rows and columns pair by position, because one side does not name them.

    ``has_classes`` tells whether a list of classes was given.
    """
    own, name = file.labels, scores.path.name
    told = []
    if not file.names_clips:
        told.append(
            f"The first row of {name} is taken for the first of {file.path.name}, and so on."
        )
    elif clip_ids is None:
        told.append(
            f"The first row of {name} is taken for clip {own.clip_ids[0]!r}, the last for "
            f"{own.clip_ids[-1]!r}, as in {file.path.name}."
        )
    if scores.class_ids is None and not has_classes and file.names_classes:
        told.append(
            f"The first column of {name} is taken for class {own.class_ids[0]!r}, the last for "
            f"{own.class_ids[-1]!r}, as in {file.path.name}."
        )
    return tuple(told)


def _without_ending(name: pl.Expr) -> pl.Expr:
    endings = "|".join(suffix.removeprefix(".") for suffix in sorted(AUDIO_SUFFIXES))
    return name.str.replace(rf"(?i)\.({endings})$", "")


def _without_folder(name: pl.Expr) -> pl.Expr:
    return _without_ending(name).str.replace(r"^.*[/\\]", "")


def _paired(
    names: pl.Series, others: pl.Series, bare: Callable[[pl.Expr], pl.Expr]
) -> pl.DataFrame:
    """Return what both sides have when bare: the first ``name``, their number ``n``, ``two``.

    The columns of ``others`` end in ``_other``.
    """
    left, right = (
        series.to_frame("name")
        .group_by(bare(pl.col("name")).alias("bare"), maintain_order=True)
        .agg(pl.col("name").first(), n=pl.len(), two=pl.col("name").head(2))
        for series in (names, others)
    )
    return left.join(right, on="bare", suffix="_other", maintain_order="left")


def _refuse_two_for_one(pairs: pl.DataFrame, what: str) -> None:
    for name, n, two in (("name", "n_other", "two_other"), ("name_other", "n", "two")):
        for row in pairs.filter(pl.col(n) > 1).head(1).to_dicts():
            first, second = row[two]
            raise EarmarkError(
                f"clip {row[name]!r} may be {first!r} or {second!r}: labels and scores do not call "
                f"their clips the same, and without {what} these two are; use one name in both"
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


def _match_clips(
    file: LabelFile, scores: ScoreFile, clip_ids: pl.Series | None
) -> tuple[NDArray[np.int64], pl.Series]:
    """Return the score row of each of the labels' clips, and the names of all rows."""
    own, n_clips = file.labels.clip_ids, scores.shape[0]
    if clip_ids is None or not file.names_clips:
        _check_positions(file, scores)
        return np.arange(n_clips), own if clip_ids is None else clip_ids
    rows = rows_of(own, clip_ids).cast(pl.Int64).fill_null(-1).to_numpy()
    unknown = own.filter(rows < 0)
    if len(unknown):
        raise EarmarkError(
            f"{file.path}: the scores have no row for the clips {first_few(unknown)}; the scores' "
            f"clips are called {first_few(clip_ids)}"
        )
    if file.lists_clips and len(own) < n_clips:
        without = clip_ids.filter(~clip_ids.is_in(own.implode()))
        raise EarmarkError(f"{file.path}: there are no labels for the clips {first_few(without)}")
    return rows, clip_ids


def _check_positions(file: LabelFile, scores: ScoreFile) -> None:
    """Refuse to pair clips by position where labels have no order of clips, or another number."""
    n_own, (n_clips, n_classes) = file.labels.n_clips, scores.shape
    if not file.has_row_per_clip:
        raise EarmarkError(
            f"{scores.path}: the scores do not name their clips, and {file.path} has several rows "
            "for a clip, so it cannot say which row of the scores is which clip; list the clips in "
            "the order of the score rows, one per line or in a table with a column clip_id "
            "(--clips FILE)"
        )
    if n_own == n_clips:
        return
    hint = "; list all clips in the order of the score rows (--clips FILE)"
    is_turned = n_own == n_classes
    raise EarmarkError(
        f"{file.path}: {n_own:,} clips, but the scores have {n_clips:,} rows"
        f"{_TRANSPOSED if is_turned else hint if file.names_clips else ''}"
    )


def _match_classes(file: LabelFile, classes: Ontology) -> NDArray[np.int64]:
    """Return the score column of each of the labels' classes."""
    own, n_classes = file.labels.class_ids, len(classes.class_ids)
    if not file.names_classes:
        if len(own) > n_classes or (file.lists_classes and len(own) < n_classes):
            raise EarmarkError(
                f"{file.path}: {len(own):,} classes, but the scores have {n_classes:,} columns"
            )
        return np.arange(len(own))
    columns = match_names(own, classes)
    unknown = [name for name, column in zip(own, columns, strict=True) if column is None]
    if unknown:
        raise EarmarkError(
            f"{file.path}: there is no score column for the classes {first_few(unknown)}"
            f"{nearest(unknown[0], classes.class_ids) if n_classes < 10_000 else ''}"
        )
    if len(set(columns)) < len(columns):
        raise EarmarkError(f"{file.path}: a class occurs both by identifier and by name")
    return np.array(columns, np.int64)


def match_names(names: Sequence[str], classes: Ontology) -> list[int | None]:
    """Return the column of each class given by identifier or by name; None where unknown."""
    by_name: dict[str, int] = {}
    for column, class_id in enumerate(classes.class_ids):
        by_name.setdefault(classes.name(class_id), column)
    return [classes.index.get(name, by_name.get(name)) for name in names]
