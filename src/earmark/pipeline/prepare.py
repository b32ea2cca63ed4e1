"""Data made ready: synthetic scenes and mixtures, sound to frames.

Datasets that people have come in through the importers of :mod:`earmark.datasets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from earmark.audio import FrameStore
from earmark.compute import HERE, Engine, Progress, shown
from earmark.config import HidingParams, MixtureParams
from earmark.datasets import (
    ImportSummary,
    Workspace,
    extract_frames,
    import_mixtures,
    import_sounds,
    write_scenes,
)
from earmark.errors import check_libraries, short_repr
from earmark.options import Argument, Fields, Option, read_numbers
from earmark.pipeline.opening import RecipeLike, WorkLike, choose_recipe, open_workspace
from earmark.storage import writes


@dataclass(frozen=True)
class Features:
    """The frames of a workspace; clips that could not be read are in its quarantine."""

    store: FrameStore
    n_clips: int

    __repr__ = short_repr

    @property
    def n_quarantined(self) -> int:
        """Clips that have no frames."""
        return self.n_clips - len(self.store.clip_ids)


@writes("import scenes", makes=True)
def make_dataset(
    work: str | Path,
    recipe: RecipeLike = "scenes",
    *,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Workspace:
    """Make the recipe's synthetic scenes in a folder; without scenes, open what is there."""
    chosen = choose_recipe(work, recipe)
    if chosen.scenes is None:
        return Workspace.open(work)
    with shown(progress) as display:
        return write_scenes(
            Path(work), chosen.scenes, chosen.hiding, engine=engine, progress=display
        )


@writes("import mixtures", makes=True)
def make_mixtures(
    sounds: Annotated[
        str | Path, Argument("Folder of recordings, or a workspace of them.", read=str)
    ],
    labels: Annotated[
        str | Path | None, Argument("Their classes; without it, the folders' names.", default=None)
    ],
    work: str | Path,
    params: Annotated[MixtureParams | None, Fields()] = None,
    *,
    recall: Annotated[
        Sequence[float],
        Option(
            "Lowest and highest share, over classes, of labels that are given.",
            read=read_numbers,
            default="0.3,0.9",
        ),
    ] = (0.3, 0.9),
    columns: Mapping[str, str] | None = None,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> ImportSummary:
    """Mix recordings of one class each into clips with known truth, and hide labels.

    ``sounds`` is a workspace of recordings, or a folder of them with a table of their ``labels``
    (None: its folders are the labels), which are first listed in ``work/recordings``.
    """
    check_libraries("mixing recordings", "soundfile")
    recordings, params = Workspace(Path(sounds)), params or MixtureParams()
    hiding = HidingParams.checked(recall_range=recall, seed=params.seed)
    with shown(progress) as display:
        if not recordings.has_dataset():
            table = None if labels is None else Path(labels)
            inside = Path(work) / "recordings"
            listed = import_sounds(Path(sounds), table, inside, columns=columns, progress=display)
            recordings = listed.workspace
        return import_mixtures(
            recordings, Path(work), params, hiding, engine=engine, progress=display
        )


@writes("features")
def make_features(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Features:
    """Decode the audio and store log-mel frames; what cannot be read is quarantined."""
    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    with shown(progress) as display:
        store = extract_frames(workspace, chosen.front_end, engine=engine, progress=display)
    return Features(store, len(workspace.clips))
