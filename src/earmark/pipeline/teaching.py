"""The teacher: trained on the whole train split, or cross-fitted to score it.

Networks are imported inside the functions: torch takes seconds to load, and is an extra.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from earmark.compute import (
    HERE,
    SILENT,
    Engine,
    Progress,
    RayEngine,
    shown,
)
from earmark.config import (
    Recipe,
)
from earmark.datasets import Workspace, held_out_clips, open_frames, tell_replaced
from earmark.errors import EarmarkError, short_repr
from earmark.options import Option
from earmark.pipeline.opening import RecipeLike, WorkLike, choose_recipe, open_workspace
from earmark.pipeline.teachers import ReplaceScores, keep_own_scores, teach
from earmark.scores import ScoreFolder
from earmark.storage import (
    writes,
)

if TYPE_CHECKING:
    from earmark.audio import FrameStore
    from earmark.training import TrainingSet


@dataclass(frozen=True)
class Trained:
    """A trained network's folder: parameters, weights, history and model card.

    ``is_first`` is false in all but one of several processes that trained it together.
    """

    folder: Path
    is_first: bool = True

    __repr__ = short_repr


@writes("train")
def train_teacher(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train the recipe's teacher on the whole train split, labels as they are.

    Under ``torchrun`` every process calls this, and they train together. On a cluster the training
    is one task.
    """
    from earmark.models import write_measured_card
    from earmark.training import is_first_process, join_processes, train, training_task

    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    data, store = _teaching(workspace, chosen)
    folder = workspace.model_folder(chosen.teacher.name)
    task = training_task(chosen.teacher.name, train, chosen.teacher, data, store, folder=folder)
    if isinstance(engine, RayEngine):
        with shown(progress) as display:
            engine.map([task], display)
    else:
        with join_processes():
            is_first = is_first_process()
            with shown(progress) if is_first else nullcontext(SILENT) as display:
                meter = display.job(task.label, task.n_units, task.unit)
                train(**task.arguments, meter=meter)
            if not is_first:
                return Trained(folder, is_first=False)
    write_measured_card(workspace, chosen.teacher, folder)
    return Trained(folder)


@writes("score")
def score(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    in_sample: Annotated[
        bool, Option("Score clips that the teacher saw, as the paper did.")
    ] = False,
    replace: ReplaceScores = False,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> ScoreFolder:
    """Score the train split with the recipe's teacher, out of fold unless ``in_sample``.

    Its networks score the tune and eval splits, too, where there are any
    (:func:`~earmark.datasets.held_out_scores`). Scores of the owner's own, from a file, make way
    only with ``replace``. A recipe with a pretrained network teaches by that
    (:func:`~earmark.pipeline.teach`).
    """
    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    if chosen.pretrained is not None:
        if in_sample:
            raise EarmarkError("--in-sample is for a teacher that is trained here from scratch")
        return teach(workspace, chosen, replace=replace, engine=engine, progress=progress).scores
    if not replace:
        keep_own_scores(workspace, chosen)
    from earmark.training import cross_fit, score_held_out

    check_frames(workspace, chosen)
    params = chosen.cross_fit
    params = params.model_copy(update={"in_sample": in_sample or params.in_sample})
    with shown(progress) as display:
        scores = cross_fit(workspace, chosen.teacher, params, engine=engine, progress=display)
        if _has_held_out(workspace, chosen):
            score_held_out(workspace, scores, params, engine=engine, progress=display)
    return scores


def _has_held_out(workspace: Workspace, recipe: Recipe) -> bool:
    return held_out_clips(workspace, open_frames(workspace, recipe.teacher.model)) is not None


def check_frames(workspace: Workspace, recipe: Recipe) -> None:
    """Refuse a workspace whose frames were made with another front end than the recipe's.

    Where they were made of other sounds than are there now, say so.
    """
    from earmark.models import check_front_end

    store = open_frames(workspace, recipe.teacher.model)
    check_front_end(store, recipe.front_end)
    tell_replaced(workspace, store)


def _teaching(workspace: Workspace, recipe: Recipe) -> tuple[TrainingSet, FrameStore]:
    """Return the whole train split as the teacher is told it, and the frames."""
    from earmark.datasets import readable_clips
    from earmark.training import TargetProvider, TrainingSet, tune_set

    check_frames(workspace, recipe)
    store = open_frames(workspace, recipe.teacher.model)
    clips = readable_clips(workspace, store, "train")
    validation = tune_set(workspace, store, recipe.teacher.model)
    return TrainingSet(
        store.folder, clips.store_rows, TargetProvider(clips.labels), validation
    ), store
