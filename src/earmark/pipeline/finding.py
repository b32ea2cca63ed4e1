"""From a folder of sound and a label file to the first flag that can be heard, in one step.

Each part is a stage of its own that finds its finished work again; what is decided here is what a
newcomer would otherwise have to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl

from earmark.compute import HERE, Engine, Progress, shown
from earmark.config import Recipe, ReviewParams
from earmark.datasets import ImportSummary, Workspace, import_sounds, quarantine_told
from earmark.errors import EarmarkError, check_libraries, counted, quoted, short_repr
from earmark.labels import Zeros
from earmark.options import Argument, Fields, Option
from earmark.pipeline.flag import Flagged, labels_flagged, write_flags
from earmark.pipeline.listening.queue import DrawnQueue, draw_queue
from earmark.pipeline.prepare import make_features
from earmark.pipeline.teachers import (
    FIND_RECIPE,
    ClassMapFile,
    NetworkOptions,
    SkipUnknown,
    Taught,
    TeacherName,
    WayChosen,
    asked_recipe,
    examined,
    teach,
)
from earmark.pipeline.teaching import score
from earmark.storage import writing_in


@dataclass(frozen=True)
class FoundMissing:
    """What a search found, where it is kept, and whether it is worth listening to."""

    workspace: Workspace
    imported: ImportSummary
    taught: Taught
    flagged: Flagged
    queue: DrawnQueue | None
    """None where there is nothing to hear: no flag, or scores that do not know the labels."""

    __repr__ = short_repr

    @property
    def is_worth_hearing(self) -> bool:
        """Whether a person should listen to the flags."""
        return self.queue is not None and not self.taught.is_weak

    def read_told(self) -> list[str]:
        """Say what was read, and what could not be."""
        return [*self.imported.notes, *quarantine_told(self.workspace)]

    def lines(self) -> list[str]:
        """Say in four sentences what was found: data, teacher, how good it is, what is missing."""
        labels, findings = self.workspace.labels, self.flagged.findings
        n_given, n_absent = int(labels.n_positives.sum()), int(labels.n_negatives.sum())
        absent = f", {n_absent:,} said to be absent" if n_absent else ""
        data = f"{counted(labels.n_clips, 'clip')}, {counted(labels.n_classes, 'class', 'classes')}"
        told = [f"{data}; {counted(n_given, 'label')} given{absent}.", *self.taught.lines()]
        if self.taught.way in ("zero-shot", "blend"):
            n_known = next(one.n_classes for one in self.taught.tried if one.way == "zero-shot")
            kept = self.workspace.class_map_path
            told.append(f"It knows {n_known:,} of the classes by itself: see {kept}.")
        if not findings.knowledge.is_enough:
            return [*told, findings.knowledge.told]
        return [*told, findings.estimates.describe()]

    @property
    def flags(self) -> pl.DataFrame:
        """The flags, the likeliest first."""
        return self.flagged.flags

    def _repr_html_(self) -> str:
        return self.flagged._repr_html_()

    def advice(self) -> list[str]:
        """Say that a teacher is too weak, what would make it a better one, and what to do."""
        if self.is_worth_hearing:
            return []
        listening = f"To listen all the same: earmark review {quoted(self.workspace.root)}"
        return [*self.taught.advice(), *([] if self.queue is None else [listening])]


def default_work(sounds: str | Path) -> Path:
    """Return the folder in which a search keeps what it makes, beside the caller."""
    return Path(f"{Path(sounds).resolve().name}-earmark")


def find(
    sounds: Annotated[str | Path, Argument("Folder of sound, or one recording.")],
    labels: Annotated[
        str | Path | None, Argument("A table of any form; without, subfolders are labels.")
    ] = None,
    *,
    work: Annotated[str | Path | None, Option("Where to keep it all; SOUNDS-earmark.")] = None,
    teacher: TeacherName = None,
    way: WayChosen = None,
    network: Annotated[NetworkOptions | None, Fields()] = None,
    class_map: ClassMapFile = None,
    skip_unknown: SkipUnknown = False,
    recipe: Annotated[
        str | Path | Recipe, Option("A shipped recipe's name or a TOML file.", read=str)
    ] = FIND_RECIPE,
    classes: Annotated[str | Path | None, Option("List of classes, or ontology.json.")] = None,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    zeros: Zeros = "implicit",
    clip_seconds: Annotated[
        float | None, Option("Cut longer recordings into clips of so many seconds.")
    ] = None,
    n_flags: Annotated[int | None, Option("Flags in all; up to 1,000.", low=1)] = None,
    allow: Sequence[str | Path] = (),
    replace: bool = False,
    engine: Engine = HERE,
    progress: Progress | None = None,
    **options: Any,
) -> FoundMissing:
    """Find labels that are missing: import, listen, cross-fit, flag, and draw the queue to hear.

    ``labels`` is a table in any form; without it the subfolders of ``sounds`` are the classes.
    ``teacher`` is a name of ``earmark teachers``, a file or a folder, by default the recipe's
    (YAMNet); ``way`` how it is used, by default the best of what can be done; ``network`` what else
    has to be said of it (see :class:`~earmark.config.PretrainedParams`). ``clip_seconds`` cuts
    longer recordings into clips. ``options`` are those of a flag policy. The rest is as in
    :func:`~earmark.datasets.import_sounds` and :func:`~earmark.pipeline.teach`.
    """
    needed = ("soundfile", "torch", "onnxruntime")
    check_libraries("finding missing labels in sound", *needed, extra="find")
    chosen = asked_recipe(recipe, teacher, way, **(network or {}))
    if chosen.pretrained is not None:
        from earmark.models.pretrained import check_here

        check_here(chosen.pretrained.network)  # before anything is imported
    root = default_work(sounds) if work is None else Path(work)
    with writing_in(root, "find", makes=True), shown(progress) as display:
        imported = import_sounds(
            Path(sounds),
            None if labels is None else Path(labels),
            root,
            columns=columns,
            separator=separator,
            zeros=zeros,
            classes=None if classes is None else Path(classes),
            clip_seconds=clip_seconds,
            allow=tuple(map(Path, allow)),
            replace=replace,
            progress=display,
        )
        workspace = imported.workspace
        _check_labels(workspace)
        taught = _teach(workspace, chosen, class_map, skip_unknown, engine, display)
        # What was corrected by ear stays corrected, unless it was of other labels.
        name = "given" if replace else labels_flagged(workspace)
        if n_flags is not None:
            options["n_flags"] = n_flags
        flagged = write_flags(workspace, labels=name, **options)
        queue = _queue(workspace, flagged, engine, display)
    return FoundMissing(workspace, imported, taught, flagged, queue)


def _teach(
    workspace: Workspace,
    recipe: Recipe,
    class_map: str | Path | None,
    skip_unknown: bool,
    engine: Engine,
    progress: Progress,
) -> Taught:
    """Score by a pretrained network, or by one that is trained from scratch."""
    if recipe.pretrained is not None:
        return teach(
            workspace,
            recipe,
            class_map=class_map,
            skip_unknown=skip_unknown,
            replace=True,
            engine=engine,
            progress=progress,
        )
    make_features(workspace, recipe, engine=engine, progress=progress)
    scores = score(workspace, engine=engine, progress=progress)
    return examined(workspace, recipe.teacher.name, scores)


def _check_labels(workspace: Workspace) -> None:
    labels = workspace.labels
    if not labels.present.any():
        raise EarmarkError(
            f"{workspace.root}: not one label says that a sound is present, so there is nothing to "
            "learn from"
        )


def _queue(
    workspace: Workspace, flagged: Flagged, engine: Engine, progress: Progress
) -> DrawnQueue | None:
    """Prepare a queue that finds missing labels, where there is anything to find."""
    if not flagged.findings.n_flags or not flagged.findings.knowledge.is_enough:
        return None
    return draw_queue(workspace, params=ReviewParams(), engine=engine, progress=progress)
