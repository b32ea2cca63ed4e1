"""The difference of two label sets: files, workspaces, or label sets of one workspace by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from earmark.datasets import RESERVED_NAMES, Workspace, label_names, read_labels, read_relabelled
from earmark.errors import EarmarkError, nearest, short_repr
from earmark.flags import FLAG_SCHEMA
from earmark.labels import (
    GUESSED,
    KINDS,
    LabelChanges,
    LabelSet,
    Ontology,
    Reading,
    find_changes,
    read_label_file,
)
from earmark.options import Argument, Option
from earmark.pipeline.opening import WorkLike, open_workspace
from earmark.scores import named_alike
from earmark.storage import is_finished, read_sealed, seal_path, write_table

_PAIR = ["clip_id", "class_id"]
_WHO = {"rater": pl.String(), "at": pl.String(), "score": pl.Float32()}


@dataclass(frozen=True)
class ComparedLabels:
    """What changed from one label set to another, and the file that has it all, if asked for.

    ``table`` has clip_id, class_id, name, kind, before, after, then rater and at (who ruled so by
    ear, and when; UTC), the teacher's score, and the chance of the flag; null where nobody knows.
    """

    before: LabelSet
    after: LabelSet
    changes: LabelChanges
    table: pl.DataFrame
    notes: tuple[str, ...]
    path: Path | None = None

    __repr__ = short_repr

    def facts(self) -> dict[str, Any]:
        """Return what changed as plain values, for programs; every label is in the table."""
        changes = self.changes
        only = {"before": changes.only_before, "after": changes.only_after}
        return {
            "is_same": changes.is_none,
            **{kind: changes.n_of(kind) for kind in KINDS},
            "states": changes.by_states.to_dicts(),
            "classes": changes.by_class.to_dicts(),
            "clips_only": {side: clips.to_list() for side, (clips, _) in only.items()},
            "classes_only": {side: classes.to_list() for side, (_, classes) in only.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Side:
    """One of the two label sets, with all that is known of how it came about."""

    told: str
    labels: LabelSet
    names_clips: bool = True
    names_classes: bool = True
    lists_clips: bool = True
    lists_classes: bool = True
    rulings: LabelSet | None = None
    answers: pl.DataFrame | None = None
    workspace: Workspace | None = None
    notes: tuple[str, ...] = ()


def compare_labels(
    before: Annotated[str | Path, Argument("A file of labels, or a workspace.", "A", read=str)],
    after: Annotated[str | Path, Argument("The other one.", "B", read=str)],
    *,
    work: Annotated[
        WorkLike | None,
        Option("A workspace: A and B may be names of its label sets, such as given."),
    ] = None,
    reading: Reading = GUESSED,
    out: Annotated[str | Path | None, Option("CSV or Parquet file to write.")] = None,
) -> ComparedLabels:
    """Find what changed from one label set to another.

    Each is a file of labels in any form, a workspace (its labels as given), or, with ``work``, the
    name of one of its label sets: given, truth, or a corrected one. ``reading`` says how tables are
    to be read. ``out`` is a CSV or Parquet file that gets the table.
    """
    home = None if work is None else open_workspace(work)
    first, second = (_open_side(one, home, reading) for one in (before, after))
    _refuse_numbers(first, second)
    names, alike = named_alike(second.labels.clip_ids, first.labels.clip_ids)
    if alike:
        second = replace(second, labels=replace(second.labels, clip_ids=names))
    changes = find_changes(
        _mentioned(first, second), _mentioned(second, first), first.rulings, second.rulings
    )
    workspace = home or second.workspace or first.workspace
    table = _with_origin(changes.table, first, second, workspace)
    if out is not None:
        write_table(out, table, for_people=True)
    notes = (*first.notes, *second.notes, *alike, *_strangers(changes))
    path = None if out is None else Path(out)
    return ComparedLabels(first.labels, second.labels, changes, table, notes, path)


def _open_side(named: str | Path, home: Workspace | None, reading: Reading) -> _Side:
    if home is not None and str(named) in label_names(home):
        return _named_side(home, str(named))
    path = Path(named)
    if path.is_dir():
        workspace = open_workspace(path)
        return _Side(str(named), workspace.labels, workspace=workspace)
    if not path.exists():
        known = [] if home is None else label_names(home)
        hint = nearest(str(named), known) if known else "; --work FOLDER takes names of label sets"
        raise EarmarkError(f"{named}: no such file, workspace or label set{hint}")
    file = read_label_file(path, reading=reading)
    names = (file.names_clips, file.names_classes, file.lists_clips, file.lists_classes)
    return _Side(str(named), file.labels, *names, notes=_notes(path, file.notes))


def _named_side(home: Workspace, name: str) -> _Side:
    known = read_labels(home, name)
    changes = None if name in RESERVED_NAMES else read_relabelled(home, name).changes
    answers = None if changes is None else changes.select(*_PAIR, *_WHO)
    return _Side(name, known.labels, rulings=known.rulings, answers=answers, workspace=home)


def _notes(path: Path, notes: tuple[str, ...]) -> tuple[str, ...]:
    own = f"{path.name}: "
    return tuple(own + note.removeprefix(own) for note in notes)


def _refuse_numbers(first: _Side, second: _Side) -> None:
    """Refuse names on one side and numbers on the other: nobody knows which is which."""
    for what in ("clips", "classes"):
        named = [getattr(side, f"names_{what}") for side in (first, second)]
        if named[0] != named[1]:
            bare = second.told if named[0] else first.told
            raise EarmarkError(
                f"{bare}: its {what} have no names, those of the other side do; an .npz with the "
                "arrays clip_ids and class_ids names both"
            )


def _mentioned(side: _Side, other: _Side) -> LabelSet:
    """Leave out clips and classes of which nothing is said, if the other side could not name them.

    A table of labels mentions only those that have some.
    """
    if other.lists_clips and other.lists_classes:
        return side.labels
    labels, rows = side.labels, side.labels.rows()
    said = rows if side.rulings is None else pl.concat([rows, side.rulings.rows()])
    clips, classes = labels.clip_ids, pl.Series(labels.class_ids, dtype=pl.String)
    if not other.lists_clips:
        clips = clips.filter(clips.is_in(said["clip_id"].implode()))
    if not other.lists_classes:
        classes = classes.filter(classes.is_in(said["class_id"].implode()))
    return LabelSet.from_rows(rows, clips, classes, side.told)


def _with_origin(
    table: pl.DataFrame, first: _Side, second: _Side, workspace: Workspace | None
) -> pl.DataFrame:
    """Add the classes' names, who ruled so and when, and the flags' chances."""
    answers = [side.answers for side in (second, first) if side.answers is not None]
    schema = {**dict.fromkeys(_PAIR, pl.String()), **_WHO}
    who = pl.concat([pl.DataFrame(schema=schema), *answers]).unique(_PAIR, keep="first")
    flags = pl.DataFrame(schema={**dict.fromkeys(_PAIR, pl.String), "chance": pl.Float64})
    if workspace is not None and is_finished(workspace.flags_folder):
        seal = seal_path(workspace.flags_folder)
        flags = read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA).select(*_PAIR, "chance")
    ontology = Ontology(()) if workspace is None else workspace.ontology
    named = pl.col("class_id").replace(ontology.names).alias("name")
    joined = table.join(who, on=_PAIR, how="left", maintain_order="left")
    joined = joined.join(flags, on=_PAIR, how="left", maintain_order="left")
    return joined.with_columns(named).select(
        *_PAIR, "name", "kind", "before", "after", *_WHO, "chance"
    )


def _strangers(changes: LabelChanges) -> tuple[str, ...]:
    """Doubt two label sets that have no clip, or no class, in common."""
    pairs = (
        ("clip", changes.clips_before, changes.only_before[0]),
        ("class", changes.classes_before, changes.only_before[1]),
    )
    return tuple(
        f"not one {what} is on both sides: are these the same dataset?"
        for what, names, only in pairs
        if len(names) and len(only) == len(names)
    )
