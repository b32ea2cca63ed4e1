"""What a stage begins with: the workspace, the recipe it is run by, and the teacher's scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from earmark.config import (
    Recipe,
    find_recipe,
    has_kept_recipe,
    keep_recipe,
    kept_recipe,
)
from earmark.datasets import (
    HELD_OUT_SPLITS,
    Workspace,
    refuse_stale,
    stale_of,
    warn_stale,
    whole_scores,
)
from earmark.errors import EarmarkError, quoted, short_repr
from earmark.scores import ScoreFolder
from earmark.storage import (
    is_finished,
    seal_path,
    writing,
)

WorkLike = str | Path | Workspace
"""A workspace, or its folder."""


RecipeLike = str | Path | Recipe | None
"""A recipe, the name of a shipped one, or a TOML file; None is the one that was used last."""


@dataclass(frozen=True)
class Scored:
    """A workspace, its recipe, and the teacher's scores of the train split.

    Students are told by ``scores``, of the train split alone. What an owner flags, hears and
    exports is ``whole``: every scored clip of every split, the same where there is but one.
    """

    workspace: Workspace
    recipe: Recipe
    scores: ScoreFolder

    __repr__ = short_repr

    @cached_property
    def whole(self) -> ScoreFolder:
        """The scores of every clip that the teacher scored, those of the train split first."""
        return whole_scores(self.workspace, self.scores)


def open_workspace(work: WorkLike) -> Workspace:
    """Open a workspace that holds a dataset."""
    return work if isinstance(work, Workspace) else Workspace.open(work)


def choose_recipe(work: WorkLike, recipe: RecipeLike = None) -> Recipe:
    """Return the recipe asked for, and remember it for the stages that come after.

    Without one it is the recipe that the workspace was last run with, or the defaults. Another than
    that changes the workspace, which is refused while a stage writes there.
    """
    root = work.root if isinstance(work, Workspace) else Path(work)
    if recipe is None:
        return kept_recipe(root)
    chosen = recipe if isinstance(recipe, Recipe) else find_recipe(str(recipe))
    if chosen != _recipe_there(root):
        with writing(root, "--recipe"):
            keep_recipe(root, chosen)
    return chosen


def _recipe_there(root: Path) -> Recipe | None:
    try:
        return kept_recipe(root) if has_kept_recipe(root) else None
    except EarmarkError:  # damaged, or another version's: it makes way
        return None


def open_scored(work: WorkLike, recipe: RecipeLike = None) -> Scored:
    """Open a workspace, its recipe, and the scores of the recipe's teacher.

    Scores of other clips, splits or classes than there are now are refused. Labels may have
    changed since the teacher learnt from them: what is flagged goes by those of now, so this is
    said and no more.
    """
    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    folder = workspace.scores_folder(chosen.scores_name)
    if not is_finished(folder):
        raise EarmarkError(
            f"{folder}: no finished scores here; make them with `earmark score "
            f"{quoted(workspace.root)}`"
        )
    scores = ScoreFolder.open(folder)
    stale = stale_of(workspace, folder, seal_path(folder), "score")
    refuse_stale(stale, ("clips", "splits", "classes", "frames"))
    warn_stale(stale, "the teacher learnt from the older ones, flags go by those of now")
    return Scored(workspace, chosen, scores)


def check_held_out(workspace: Workspace) -> None:
    """Refuse a dataset without tune and eval splits: students are chosen and measured there."""
    there = set(workspace.clips["split"].unique())
    missing = [split for split in HELD_OUT_SPLITS if split not in there]
    if missing:
        raise EarmarkError(
            f"{workspace.root}: no clip is in the {' or '.join(missing)} split, where students are "
            "chosen and measured; deal splits with `earmark import workspace "
            f"{quoted(workspace.root)} --splits 80,10,10`, and only then score"
        )
