"""Data made ready: synthetic scenes, labels hidden, a smaller train set, sound to frames.

Datasets that people have come in through the importers of :mod:`earmark.datasets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from earmark.audio import FrameStore
from earmark.datasets import (
    Workspace,
    extract_frames,
    hidden_workspace,
    n_missing,
    subset_workspace,
    write_scenes,
)
from earmark.labels import Deviation
from earmark.runs import HERE, Engine, HidingParams, Progress, shown
from earmark.stages.opening import RecipeLike, WorkLike, choose_recipe, open_workspace


@dataclass(frozen=True)
class Hidden:
    """A workspace with labels hidden, and how many they are."""

    workspace: Workspace
    n_hidden: int


@dataclass(frozen=True)
class Subset:
    """A workspace with part of another's train split, and how far its class shares moved."""

    workspace: Workspace
    n_train: int
    deviation: Deviation


@dataclass(frozen=True)
class Features:
    """The frames of a workspace; clips that could not be read are in its quarantine."""

    store: FrameStore
    n_clips: int

    @property
    def n_quarantined(self) -> int:
        """Clips that have no frames."""
        return self.n_clips - len(self.store.clip_ids)


def make_dataset(
    work: str | Path,
    recipe: RecipeLike = "demo",
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


def hide_labels(
    work: WorkLike,
    out: str | Path,
    params: HidingParams | None = None,
    *,
    assume_complete: bool = False,
) -> Hidden:
    """Hide labels of a fully labelled workspace as nomination does, and keep the truth.

    ``assume_complete`` takes implicit labels for absent ones.
    """
    params = params or HidingParams()
    hidden = hidden_workspace(open_workspace(work), out, params, assume_complete=assume_complete)
    assert hidden.truth is not None
    return Hidden(hidden, int(n_missing(hidden.truth, hidden.labels).sum()))


def take_subset(work: WorkLike, out: str | Path, share: float = 0.2, seed: int = 0) -> Subset:
    """Make tr_small from tr_large: nested, whole recordings, class distribution kept."""
    smaller, deviation = subset_workspace(open_workspace(work), out, share, seed)
    return Subset(smaller, len(smaller.rows("train")), deviation)


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
