"""Teachers that others trained: how a workspace is scored by one.

A pretrained network can be used by its own classes (zero-shot), by a probe on its embeddings, by
both together (blend), or trained further (fine-tuned). Unless one is asked for, all that cost
little are tried and the best is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from earmark.compute import (
    HERE,
    Engine,
    Progress,
    shown,
)
from earmark.config import (
    InputKind,
    PretrainedParams,
    Recipe,
    Way,
    find_recipe,
    has_kept_recipe,
    keep_recipe,
)
from earmark.datasets import Workspace, any_frames, extract_frames, open_frames, readable_clips
from earmark.errors import EarmarkError, quoted, short_repr
from earmark.flags import expect_of_first, gather_evidence, is_weak
from earmark.metrics import Interval
from earmark.options import Fields, Option
from earmark.pipeline.opening import RecipeLike, WorkLike, choose_recipe, open_workspace
from earmark.scores import Origin, Scale, ScoreFolder
from earmark.storage import is_finished, read_seal, writes

if TYPE_CHECKING:
    from earmark.models.pretrained import ClassMap, MappedClasses, NetworkFacts, NetworkFeatures
    from earmark.training import EvaluationClips, Tried

FIND_RECIPE = "find"
"""The shipped recipe with a pretrained network."""

PROBE_CLIPS = 200
"""Clips with a positive label from which on a probe is tried."""

LEAST_FOLDS = 3
"""Folds below which too little is left to learn from."""

FOLDS_OF_MANY = 5
"""Folds at most of a probe for many clips."""

FINE_TUNED_FOLDS = 3
"""Folds of a whole network, each of which takes minutes, where a probe takes seconds."""

_WAYS_TOLD: dict[Way | None, str] = {
    None: "trained here from scratch",
    "zero-shot": "its own classes",
    "probe": "a probe on its embeddings",
    "blend": "both together",
    "fine-tuned": "trained further",
}


@dataclass(frozen=True)
class Taught:
    """A workspace scored by a teacher: how, how well, and what else was tried."""

    name: str
    way: Way | None
    """None: a network trained here from scratch."""
    scores: ScoreFolder
    tried: tuple[Tried, ...]
    evaluation_clips: EvaluationClips
    first_flags: tuple[int, Interval] | None
    """How many flags a newcomer hears first, and how many of them are right; None where the scores
    do not know the labels."""
    classes_told: str = ""
    """Which classes a pretrained network knows by itself."""
    why: str = ""
    """Why these ways were tried and no others."""

    __repr__ = short_repr

    @property
    def best(self) -> Tried:
        """How good the teacher is."""
        return next(one for one in self.tried if one.way == self.way)

    @property
    def is_weak(self) -> bool:
        """Whether listening to its flags would be a waste of time."""
        return self.first_flags is None or is_weak(*self.first_flags)

    @property
    def expected_right_of_first(self) -> float:
        """The share of right ones among the first flags."""
        n_first, right = self.first_flags or (0, Interval(0.0, 0.0, 0.0))
        return right.value / max(n_first, 1)

    def lines(self) -> list[str]:
        """Say which teacher it is and how good, in two sentences."""
        others = ", ".join(f"{_WAYS_TOLD[one.way]} {100 * one.hits:.0f} %" for one in self.tried)
        tried = f" (labels found again: {others})" if len(self.tried) > 1 else ""
        n_times = round(100 * self.best.auc) if self.best.auc == self.best.auc else None
        how_good = (
            "How good it is cannot be told: no class has labels enough"
            if n_times is None
            else f"AUC {self.best.auc:.2f} in the median class, on {self.evaluation_clips.told}: "
            "a label that "
            f"was given outscores one that was not {n_times} times in 100"
        )
        way = f"{self.name}, {_WAYS_TOLD[self.way]}{tried}"
        return [f"Teacher: {'; '.join(filter(None, [way, self.why]))}.", f"{how_good}."]

    def advice(self) -> list[str]:
        """Say that a teacher is too weak, and what would make a better one; nothing of others."""
        if not self.is_weak:
            return []
        ideas = ["more labelled clips", "fewer classes, those with most labels"]
        if self.way is None:
            ideas.insert(0, "a pretrained teacher (earmark teachers get yamnet)")
        elif self.way == "zero-shot" and self.best.n_classes < len(self.scores.class_ids):
            ideas.insert(0, "matching more classes in class_map.csv")
        else:
            ideas.append("a network trained on sounds like these (--teacher FILE)")
        return [
            f"This teacher is too weak to spend time on its flags. {self._few_right}.",
            f"What would help: {'; '.join(ideas)}.",
        ]

    @property
    def _few_right(self) -> str:
        if self.first_flags is None:
            return "Its scores do not know the labels"
        n_first, right = self.first_flags
        value, low, high = (f"{round(end):,}" for end in right)
        return f"Of the first {n_first:,} flags about {value} are right ({low} to {high})"


class NetworkOptions(TypedDict, total=False):
    """What has to be said of a pretrained network where it does not say it itself."""

    embedding: Annotated[str, Option("The teacher's output that is its embedding.")]
    output: Annotated[str, Option("The teacher's output that is classes.")]
    input_kind: Annotated[
        InputKind, Option("What the teacher takes: waveforms or patches.", "--input")
    ]
    sample_rate_hz: Annotated[
        int,
        Option("Hz of the teacher's waveforms, if it does not say.", "--sample-rate", low=1),
    ]
    hop_seconds: Annotated[float, Option("Seconds from one of the teacher's windows to the next.")]
    scale: Annotated[Scale, Option("Scores are logits or probabilities, if nothing says.")]


TeacherName = Annotated[str | None, Option("yamnet, .onnx, .tflite, .h5, a folder, hf:OWNER/NAME.")]
WayChosen = Annotated[
    Way | None,
    Option("zero-shot, probe, blend, fine-tuned; by default the best of the first three."),
]
ClassMapFile = Annotated[
    str | Path | None, Option("Table of the teacher's output and class_id; by name.")
]


SkipUnknown = Annotated[bool, Option("Leave out classes that are not the workspace's.")]
OutOfFold = Annotated[bool | None, Option("The model behind the scores never saw these clips.")]
ReplaceScores = Annotated[bool, Option("By a teacher, in the place of scores of your own.")]


def asked_recipe(
    recipe: str | Path | Recipe = FIND_RECIPE,
    teacher: str | None = None,
    way: Way | None = None,
    **network: Any,
) -> Recipe:
    """Return a recipe with another pretrained network, or another way to use it.

    ``network`` are more of its parameters (:class:`~earmark.config.PretrainedParams`).
    """
    chosen = recipe if isinstance(recipe, Recipe) else find_recipe(str(recipe))
    said = {name: value for name, value in network.items() if value is not None}
    if teacher is None and way is None and not said:
        return chosen
    if chosen.pretrained is None:
        raise EarmarkError(
            f"recipe {chosen.name!r} trains a teacher from scratch; --teacher and --way go with a "
            f"recipe that has a pretrained network, such as {FIND_RECIPE}"
        )
    is_same = teacher in (None, chosen.pretrained.network)  # of another nothing has been said yet
    known = chosen.pretrained if is_same else PretrainedParams(network=str(teacher))
    pretrained = known.model_copy(update=said)
    return chosen.model_copy(update={"pretrained": pretrained, "way": way})


def choose_teacher(
    work: WorkLike,
    recipe: RecipeLike = None,
    teacher: str | None = None,
    way: Way | None = None,
    **network: Any,
) -> Recipe:
    """Return the recipe that a workspace is to be scored by.

    Without a recipe or a teacher it is that of the pretrained teacher that is here, where nobody
    has scored the workspace yet, else the one used last.
    """
    workspace = open_workspace(work)
    chosen = choose_recipe(workspace, recipe)
    if recipe is None and teacher is None:
        chosen = default_teacher(workspace) or chosen
    if chosen.pretrained is None and not (teacher is None and way is None):
        chosen = find_recipe(FIND_RECIPE)
    return asked_recipe(chosen, teacher, way, **network)


def default_teacher(work: WorkLike) -> Recipe | None:
    """Return the recipe of the pretrained teacher that suits a workspace nobody has taught yet.

    None where a recipe was used before, where there is no sound, or frames of another program's, or
    no weights in the cache.
    """
    from earmark.models.pretrained import DEFAULT_TEACHER, kept_teachers

    workspace = open_workspace(work)
    frames = any_frames(workspace) if workspace.has_frames() else None
    is_from_elsewhere = frames is not None and frames.meta.front_end is None
    if has_kept_recipe(workspace.root) or not workspace.has_sound() or is_from_elsewhere:
        return None
    try:
        has_weights = any(one.teacher.name == DEFAULT_TEACHER for one in kept_teachers())
    except EarmarkError:  # the library that knows the user's cache is not installed
        return None
    return find_recipe(FIND_RECIPE) if has_weights else None


def keep_own_scores(work: WorkLike, recipe: Recipe) -> None:
    """Refuse to put a teacher's scores in the place of the owner's own."""
    workspace = open_workspace(work)
    folder = workspace.scores_folder(recipe.scores_name)
    origin = Origin.noted(read_seal(folder)) if is_finished(folder) else None
    if origin is not None and origin.kind == "file":
        source = f" ({origin.path})" if origin.path else ""
        raise EarmarkError(
            f"{folder}: {origin.told}{source}; "
            f"`earmark score {quoted(workspace.root)} --replace` puts a teacher's in their place"
        )


@writes("score")
def teach(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    teacher: TeacherName = None,
    way: WayChosen = None,
    network: Annotated[NetworkOptions | None, Fields()] = None,
    class_map: ClassMapFile = None,
    skip_unknown: SkipUnknown = False,
    out_of_fold: OutOfFold = None,
    replace: ReplaceScores = False,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Taught:
    """Score all clips with the recipe's pretrained network, in the best of several ways.

    ``teacher``, ``way`` and ``network`` are as in :func:`find`; scores of the owner's own, from a
    file, make way only with ``replace``. ``class_map`` says which of its outputs is which class;
    without it names are matched, and what they came to is written into the workspace, to be edited.
    ``out_of_fold`` says whether the network never saw these clips; by default that is believed of
    networks of the catalogue alone.
    The way that was taken is remembered in the workspace's recipe.
    """
    workspace = open_workspace(work)
    # One that was put together is remembered when it has worked.
    chosen = recipe if isinstance(recipe, Recipe) else choose_recipe(workspace, recipe)
    chosen = asked_recipe(chosen, teacher, way, **(network or {}))
    if chosen.pretrained is None:
        raise EarmarkError(f"recipe {chosen.name!r} has no pretrained network to teach with")
    if not replace:
        keep_own_scores(workspace, chosen)
    from earmark.models.pretrained import map_classes
    from earmark.training import best_way

    with shown(progress) as display:
        lesson = _begun(workspace, chosen, chosen.pretrained, out_of_fold, engine, display)
        mapped = map_classes(workspace, lesson.facts, class_map, skip_unknown=skip_unknown)
        ways, why = lesson.ways(mapped.class_map)
        lesson.check(ways, mapped)
        heard = lesson.embed()
        scores = {way: lesson.score(way, heard, mapped.class_map) for way in _in_order(ways)}
        evaluation_clips, tried = lesson.compare(scores)
    way = chosen.way or best_way(list(tried)).way or "probe"  # a blend has tried others, too
    keep_recipe(workspace.root, lesson.recipe.model_copy(update={"way": way}))
    first = _first_flags(workspace, scores[way], evaluation_clips)
    return Taught(
        heard.facts.name, way, scores[way], tried, evaluation_clips, first, mapped.told, why
    )


def examined(work: WorkLike, name: str, scores: ScoreFolder) -> Taught:
    """Say how good the scores of a teacher are that was trained here from scratch."""
    from earmark.training import choose_evaluation_clips, evaluate_way

    workspace = open_workspace(work)
    evaluation_clips = choose_evaluation_clips(workspace, scores)
    tried = (evaluate_way(workspace, None, scores, evaluation_clips),)
    first = _first_flags(workspace, scores, evaluation_clips)
    return Taught(name, None, scores, tried, evaluation_clips, first)


def _first_flags(
    workspace: Workspace, scores: ScoreFolder, clips: EvaluationClips
) -> tuple[int, Interval] | None:
    logits = clips.logits(workspace, scores)
    return expect_of_first(gather_evidence(clips.labels, logits, workspace.ontology))


def _begun(
    workspace: Workspace,
    recipe: Recipe,
    pretrained: PretrainedParams,
    out_of_fold: bool | None,
    engine: Engine,
    progress: Progress,
) -> _Lesson:
    from earmark.models.pretrained import begun_model, network_facts

    names = [workspace.ontology.name(class_id) for class_id in workspace.ontology.class_ids]
    facts = network_facts(pretrained, names)
    if recipe.way == "fine-tuned":
        if facts.name != "yamnet":
            raise EarmarkError(f"{facts.name} cannot be trained further here; yamnet can")
        network = recipe.fine_tuned.model_copy(update={"model": begun_model(facts.name)})
        folds = recipe.cross_fit.model_copy(update={"n_folds": FINE_TUNED_FOLDS})
        recipe = recipe.model_copy(update={"fine_tuned": network, "cross_fit": folds})
    return _Lesson(
        workspace,
        _fitting(workspace, recipe),
        pretrained,
        facts,
        out_of_fold,
        engine,
        progress,
    )


def _fitting(workspace: Workspace, recipe: Recipe) -> Recipe:
    """Return a recipe whose folds and probe fit the number of recordings and of clips.

    A fold for each recording, where these are few but enough; and the probe for many clips.
    """
    clips = workspace.clips.filter(split="train")
    n_folds, n_sources = recipe.cross_fit.n_folds, clips["source"].n_unique()
    if recipe.teacher_of_many is not None and len(clips) > recipe.many_clips:
        recipe = recipe.model_copy(update={"teacher": recipe.teacher_of_many})
        n_folds = min(n_folds, FOLDS_OF_MANY)
    if n_sources >= LEAST_FOLDS:
        n_folds = min(n_folds, n_sources)
    folds = recipe.cross_fit.model_copy(update={"n_folds": n_folds})
    return recipe.model_copy(update={"cross_fit": folds})


def _in_order(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """Return ways such that what others are made of comes first."""
    order: tuple[Way, ...] = ("zero-shot", "probe", "blend", "fine-tuned")
    wanted = {*ways, "zero-shot", "probe"} if "blend" in ways else set(ways)
    return tuple(way for way in order if way in wanted)


@dataclass(frozen=True)
class _Lesson:
    """All that one call of :func:`teach` goes by."""

    workspace: Workspace
    recipe: Recipe
    pretrained: PretrainedParams
    facts: NetworkFacts
    out_of_fold: bool | None
    engine: Engine
    progress: Progress

    def ways(self, class_map: ClassMap | None) -> tuple[tuple[Way, ...], str]:
        """Return the ways to try, and why these."""
        if self.recipe.way is not None:
            return (self.recipe.way,), "as asked"
        n_labelled = self._n_labelled
        if not self.facts.n_features:
            return ("zero-shot",), "it gives no embeddings to learn from"
        if class_map is None:
            few = "" if n_labelled >= PROBE_CLIPS else f", though {n_labelled:,} clips are few"
            return ("probe",), f"it knows none of the classes by itself{few}"
        if n_labelled < PROBE_CLIPS:
            return ("zero-shot",), (
                f"{n_labelled:,} labelled clips are too few to learn from (under {PROBE_CLIPS})"
            )
        return ("zero-shot", "probe", "blend"), f"{n_labelled:,} labelled clips to learn from"

    @property
    def _n_labelled(self) -> int:
        labels = self.workspace.labels
        return len(set(labels.clip_rows[labels.present].tolist()))

    def check(self, ways: tuple[Way, ...], mapped: MappedClasses) -> None:
        """Refuse what cannot be done before anything is listened to."""
        needs = set(_in_order(ways))
        if "zero-shot" in needs and mapped.class_map is None:
            raise EarmarkError(
                f"{mapped.told}, so it cannot say anything of them by itself. Fill in the column "
                f"output of {mapped.path}, or let it learn them: --way probe"
            )
        if "probe" in needs and not self.facts.n_features:
            raise EarmarkError(
                f"{self.facts.name} gives no embeddings for a probe; name the output that they "
                "are (--embedding NAME), or go by its own classes: --way zero-shot"
            )

    def embed(self) -> NetworkFeatures:
        """Keep what the network hears in all clips."""
        from earmark.models.pretrained import embed_clips

        return embed_clips(
            self.workspace, self.pretrained, engine=self.engine, progress=self.progress
        )

    def score(self, way: Way, heard: NetworkFeatures, class_map: ClassMap | None) -> ScoreFolder:
        """Score the workspace in one way; what it is made of has been scored before."""
        scorers: dict[Way, Callable[[], ScoreFolder]] = {
            "zero-shot": lambda: self._zero_shot(heard, class_map),
            "probe": self._cross_fitted,
            "blend": self._blend,
            "fine-tuned": self._fine_tuned,
        }
        return scorers[way]()

    def _named(self, way: Way) -> str:
        return self.recipe.model_copy(update={"way": way}).scores_name

    def _zero_shot(self, heard: NetworkFeatures, class_map: ClassMap | None) -> ScoreFolder:
        from earmark.models.pretrained import is_catalogued, score_zero_shot

        assert heard.outputs is not None
        assert class_map is not None
        network, given = self.pretrained.network, self.out_of_fold
        return score_zero_shot(
            self.workspace,
            self._named("zero-shot"),
            heard.outputs,
            class_map,
            origin=Origin("model", network),
            out_of_fold=is_catalogued(network) if given is None else given,
            progress=self.progress,
        )

    def _cross_fitted(self) -> ScoreFolder:
        """Score with the recipe's network, trained out of fold; the held-out splits, too."""
        from earmark.training import cross_fit, score_held_out

        workspace, recipe = self.workspace, self.recipe
        scores = cross_fit(
            workspace,
            recipe.taught,
            recipe.cross_fit,
            engine=self.engine,
            progress=self.progress,
        )
        if workspace.clips["split"].n_unique() > 1:
            score_held_out(
                workspace, scores, recipe.cross_fit, engine=self.engine, progress=self.progress
            )
        return scores

    def _blend(self) -> ScoreFolder:
        from earmark.training import blend_scores, fold_of_clips

        recipe, workspace = self.recipe, self.workspace
        ways: tuple[Way, ...] = ("probe", "zero-shot")
        probe, own = (ScoreFolder.open(workspace.scores_folder(self._named(way))) for way in ways)
        clips = readable_clips(workspace, open_frames(workspace, recipe.teacher.model), "train")
        fold_of = fold_of_clips(clips, recipe.teacher, recipe.cross_fit)
        return blend_scores(workspace, self._named("blend"), probe, own, fold_of)

    def _fine_tuned(self) -> ScoreFolder:
        extract_frames(
            self.workspace, self.recipe.front_end, engine=self.engine, progress=self.progress
        )
        recipe = self.recipe.model_copy(update={"way": "fine-tuned"})
        return replace(self, recipe=recipe)._cross_fitted()

    def compare(self, scores: dict[Way, ScoreFolder]) -> tuple[EvaluationClips, tuple[Tried, ...]]:
        """Say how good each way is, all on the same clips."""
        from earmark.training import choose_evaluation_clips, evaluate_way

        first = scores.get("probe") or next(iter(scores.values()))
        evaluation_clips = choose_evaluation_clips(self.workspace, first)
        return evaluation_clips, tuple(
            evaluate_way(self.workspace, way, own, evaluation_clips) for way, own in scores.items()
        )
