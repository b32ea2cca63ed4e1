"""Data made ready: synthetic scenes, labels hidden, a smaller train set, sound to frames.

Datasets that people have come in through the importers of :mod:`earmark.datasets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from earmark.audio import FrameStore
from earmark.datasets import (
    ImportSummary,
    Stale,
    Workspace,
    extract_frames,
    find_stale,
    hidden_workspace,
    import_mixtures,
    import_sounds,
    n_missing,
    subset_workspace,
    write_dataset,
    write_scenes,
)
from earmark.errors import EarmarkError, check_libraries, short_repr
from earmark.labels import SPLIT_SHARES, Deviation, deal_splits
from earmark.runs import HERE, Engine, HidingParams, MixtureParams, Progress, shown, writes
from earmark.stages.opening import RecipeLike, WorkLike, choose_recipe, open_workspace


@dataclass(frozen=True)
class Hidden:
    """A workspace with labels hidden, and how many they are."""

    workspace: Workspace
    n_hidden: int

    __repr__ = short_repr


@dataclass(frozen=True)
class Subset:
    """A workspace with part of another's train split, and how far its class shares moved."""

    workspace: Workspace
    n_train: int
    deviation: Deviation

    __repr__ = short_repr


@dataclass(frozen=True)
class Dealt:
    """A workspace whose clips were dealt out, and what was made of it before and is stale now."""

    workspace: Workspace
    stale: tuple[Stale, ...]

    __repr__ = short_repr


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
    sounds: str | Path,
    labels: str | Path | None,
    work: str | Path,
    params: MixtureParams | None = None,
    hiding: HidingParams | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> ImportSummary:
    """Mix recordings of one class each into clips with known truth, and hide labels.

    ``sounds`` is a workspace of recordings, or a folder of them with a table of their ``labels``
    (None: its folders are the labels), which are first listed in ``work/recordings``.
    """
    check_libraries("mixing recordings", "soundfile")
    recordings = Workspace(Path(sounds))
    with shown(progress) as display:
        if not recordings.has_dataset():
            table = None if labels is None else Path(labels)
            inside = Path(work) / "recordings"
            listed = import_sounds(Path(sounds), table, inside, columns=columns, progress=display)
            recordings = listed.workspace
        return import_mixtures(
            recordings, Path(work), params, hiding, engine=engine, progress=display
        )


@writes("hide", "out", makes=True)
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


@writes("subset", "out", makes=True)
def take_subset(work: WorkLike, out: str | Path, share: float = 0.2, seed: int = 0) -> Subset:
    """Make tr_small from tr_large: nested, whole recordings, class distribution kept."""
    smaller, deviation = subset_workspace(open_workspace(work), out, share, seed)
    return Subset(smaller, len(smaller.rows("train")), deviation)


@writes("split")
def split_dataset(
    work: WorkLike,
    shares: Mapping[str, float] = SPLIT_SHARES,
    seed: int = 0,
    *,
    replace: bool = False,
) -> Dealt:
    """Deal the clips out to train, tune and eval: whole recordings, class distribution kept.

    Who trains students needs the three; who looks for missing labels does not. Other splits that
    are there already are kept, unless ``replace``.
    """
    workspace = open_workspace(work)
    clips, labels = workspace.clips, workspace.labels
    split = deal_splits(labels, clips["source"], shares, seed)
    empty = [name for name in shares if name not in split]
    if empty:
        raise EarmarkError(
            f"{workspace.root}: {clips['source'].n_unique():,} recordings are too few for shares "
            f"of {', '.join(f'{share:g}' for share in shares.values())}: none is left for "
            f"{' and '.join(empty)}"
        )
    has_splits = clips["split"].n_unique() > 1
    if has_splits and not replace and not split.equals(clips["split"]):
        raise EarmarkError(
            f"{workspace.root}: the clips are in {clips['split'].n_unique()} splits already; "
            "nothing was changed. Give --replace to deal them out anew"
        )
    dealt = clips.with_columns(split)
    written = write_dataset(
        workspace.root, dealt, workspace.ontology, labels, workspace.truth, replace=True
    )
    return Dealt(written, tuple(find_stale(written)))


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
