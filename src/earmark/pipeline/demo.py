"""The demo: made-up scenes with known truth, and the three things that follow from their flags.

It needs the core alone. Scenes are made and hidden in part (:mod:`earmark.datasets.simulate`), a
linear probe on pooled log-mel is the teacher, and its flags are held against the truth; students
are told of them in several ways; and a rater made of the truth answers the queue. What is left is
a workspace like any other, with flags to hear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from earmark.audio import YAMNET, log_mel, pooled
from earmark.compute import (
    HERE,
    AsOneJob,
    Engine,
    Progress,
    Task,
    shown,
)
from earmark.config import (
    HidingParams,
    Recipe,
    ReviewParams,
    SceneParams,
    keep_recipe,
)
from earmark.datasets import Workspace, pooled_scenes, scene, write_scenes, write_stamp
from earmark.errors import EarmarkError, short_repr
from earmark.experiments import (
    WAYS,
    DrawResults,
    ProbeData,
    best_on_tune,
    evaluate_draw,
    judged_gain,
    told_gain,
)
from earmark.labels import LabelSet, Ontology, folds
from earmark.options import Option
from earmark.pipeline.flag import write_flags
from earmark.report import (
    DemoFound,
    HeardFlag,
    StudentsFound,
    demo_html,
    flags_to_hear,
)
from earmark.review import answer_from_truth, find_population
from earmark.scores import ScoreFolder, write_score_folder
from earmark.storage import (
    digest,
    seal_path,
    write_json,
    write_text,
    writes,
)
from earmark.training import LinearProbe, cross_fit_probe, fit_probe

SHARES = {"n_train": 0.625, "n_tune": 0.125, "n_eval": 0.25}
N_SCENES, FEWEST_SCENES = 4_000, 400
N_DRAWS, DRAWN_SHARE = 6, 0.6
"""Draws of students, and the share of the train scenes that each takes."""

N_FOLDS, RIDGE = 4, 0.03
N_ANSWERS = 100
"""Answers of the scripted rater."""

N_HEARD, HEARD_FRAMES = 12, 50
"""Flags that the page plays, and the length of the part in which a sound is heard best."""

_SHAPE = {
    "clip_seconds": 2.0,
    "max_events": 2,
    "shortest_event_seconds": 0.8,
    "level_range_db": (20.0, 40.0),
    "prior_exponent": 0.5,
    "with_parents": False,
}
_RECALL_RANGE = (0.1, 0.4)


@dataclass(frozen=True)
class Demo:
    """What the demo found, its page, and the workspace that it leaves."""

    workspace: Workspace
    found: DemoFound
    page: Path

    __repr__ = short_repr


@writes("demo", makes=True)
def run_demo(
    work: Annotated[
        str | Path, Option("Where to put it.", default=Path("demo-work"))
    ] = "demo-work",
    *,
    seed: Annotated[int, Option("Other scenes, other hidden labels.", low=0)] = 0,
    n_scenes: Annotated[int, Option("Fewer are quicker and tell less.", "--scenes")] = N_SCENES,
    n_draws: Annotated[int, Option("Students are trained on so many draws.", "--draws")] = N_DRAWS,
    engine: Engine = HERE,
    progress: Progress | None = None,
) -> Demo:
    """Make scenes, hide labels, find them, train students, ask a scripted rater, write a page.

    All of it is a function of the seed and of how many scenes and draws there are. Finished parts
    are found again.
    """
    if n_scenes < FEWEST_SCENES:
        raise EarmarkError(f"a demo needs {FEWEST_SCENES} scenes at least, got {n_scenes}")
    if n_draws < 2:
        raise EarmarkError(f"an interval over draws needs 2 of them at least, got {n_draws}")
    course = _Course(Path(work), _recipe(seed, n_scenes), n_draws, engine)
    with shown(progress) as display:
        course.make(display)
        students = course.students(display)
        found = DemoFound(
            n_clips=len(course.rows["train"]),
            n_classes=course.labels.n_classes,
            n_present=int((course.truth.states() > 0).sum()),
            n_missing=int(course.is_missing.sum()),
            n_implicit=int((course.labels.states() == 0).sum()),
            right=course.right_flags,
            students=students,
        )
    page = course.workspace.report_page
    write_text(page, demo_html(found, course.heard_flags(), course.workspace.root))
    write_json(page.with_name("demo.json"), found.facts)
    return Demo(course.workspace, found, page)


def _recipe(seed: int, n_scenes: int) -> Recipe:
    sizes = {name: round(share * n_scenes) for name, share in SHARES.items()}
    scenes = SceneParams.model_validate({**sizes, **_SHAPE, "seed": seed})
    hiding = HidingParams(recall_range=_RECALL_RANGE, seed=seed)
    return Recipe(name="demo", scenes=scenes, hiding=hiding)


def _listen(
    labels: LabelSet, scores: NDArray[np.float32], truth: LabelSet, seed: int
) -> NDArray[np.int64]:
    """Return the places of the labels that a rater is asked about, rare classes before others."""
    rows = {clip_id: row for row, clip_id in enumerate(labels.clip_ids)}
    columns = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    is_present = truth.states() > 0
    params = ReviewParams(aim="train", seed=seed)
    classes = Ontology(tuple(columns), {}, {}, {})
    population = find_population(labels, scores, classes, params)
    asked = answer_from_truth(
        population,
        params,
        N_ANSWERS,
        lambda clip_id, class_id: bool(is_present[rows[clip_id], columns[class_id]]),
    )
    own = population.candidates
    return np.asarray(own.rows[asked] * labels.n_classes + own.columns[asked], np.int64)


def _without(frames: NDArray[np.float32], start: int) -> NDArray[np.float32]:
    """Return the features of a clip of which a part is as quiet as the quietest tenth."""
    rest = frames.copy()
    rest[start : start + HEARD_FRAMES] = np.quantile(frames, 0.1, axis=0)
    return pooled(rest)


class _Course:
    """The demo as it goes: every step is made when it is first asked for."""

    def __init__(self, root: Path, recipe: Recipe, n_draws: int, engine: Engine) -> None:
        assert recipe.scenes is not None
        self.root, self.recipe, self.scenes = root, recipe, recipe.scenes
        self.n_draws, self.engine = n_draws, engine

    def make(self, progress: Progress) -> None:
        """Make scenes, the teacher's scores and flags; write them into the workspace."""
        self.features = pooled_scenes(self.root, self.scenes, engine=self.engine, progress=progress)
        self.workspace = write_scenes(self.root, self.scenes, self.recipe.hiding)
        keep_recipe(self.root, self.recipe)
        self._write_scores()
        self.flags = write_flags(self.workspace).flags

    @cached_property
    def rows(self) -> dict[str, NDArray[np.int64]]:
        """The clips of each split."""
        splits = self.workspace.clips["split"]
        return {name: np.flatnonzero((splits == name).to_numpy()) for name in splits.unique()}

    @cached_property
    def labels(self) -> LabelSet:
        """The labels of the train scenes, as given."""
        return self.workspace.labels.select(self.rows["train"])

    @cached_property
    def truth(self) -> LabelSet:
        """All labels of the train scenes."""
        assert self.workspace.truth is not None
        return self.workspace.truth.select(self.rows["train"])

    @cached_property
    def is_missing(self) -> NDArray[np.bool_]:
        """Which labels of the train scenes are missing [clip, class]."""
        return np.asarray((self.labels.states() == 0) & (self.truth.states() > 0), bool)

    @cached_property
    def probe(self) -> LinearProbe:
        """The teacher, fitted to all train scenes: it says which part of a clip counts."""
        own = self.features[self.rows["train"]]
        return fit_probe(own, self.labels.states() > 0, ridge=RIDGE)

    def _write_scores(self) -> ScoreFolder:
        seen = self.features[self.rows["train"]]
        fold_of = folds(self.labels, self.labels.clip_ids, N_FOLDS, self.scenes.seed)
        self.scores = cross_fit_probe(seen, self.labels, fold_of, ridge=RIDGE)
        folder = self.workspace.scores_folder(self.recipe.scores_name)
        written = write_score_folder(
            folder,
            self.labels.clip_ids,
            self.labels.class_ids,
            self.scores,
            None,
            out_of_fold=True,
            digest=digest(self.labels.digest, self.scores.tobytes()),
        )
        write_stamp(self.workspace, seal_path(folder))
        return written

    @cached_property
    def _places(self) -> tuple[dict[str, int], dict[str, int]]:
        rows = {clip_id: row for row, clip_id in enumerate(self.labels.clip_ids)}
        return rows, {name: column for column, name in enumerate(self.labels.class_ids)}

    def _is_right(self, clip_id: str, class_id: str) -> bool:
        rows, columns = self._places
        return bool(self.truth.states([rows[clip_id]])[0, columns[class_id]] > 0)

    @property
    def right_flags(self) -> NDArray[np.bool_]:
        """Whether each flag is right, the likeliest first."""
        pairs = self.flags.select("clip_id", "class_id").iter_rows()
        return np.array([self._is_right(*pair) for pair in pairs], bool)

    def students(self, progress: Progress) -> StudentsFound:
        """Train students on several draws and measure them."""
        assert self.workspace.truth is not None
        data = ProbeData(
            self.features,
            self.workspace.truth,
            self.workspace.ontology,
            self.rows,
            self.recipe.hiding,
            round(DRAWN_SHARE * len(self.rows["train"])),
            _listen,
        )
        results = self._results(data, progress)
        chosen = told_gain(results, best_on_tune(results))
        each = [told_gain(results, best_on_tune(results, [name])) for name in ("mask", "hedge")]
        return StudentsFound(
            chosen,
            tuple(each),
            judged_gain(results),
            self.n_draws,
            data.n_drawn,
            len(self.rows["eval"]),
        )

    def _results(self, data: ProbeData, progress: Progress) -> Sequence[DrawResults]:
        seeds = [N_DRAWS * self.scenes.seed + draw for draw in range(self.n_draws)]
        tasks = [
            Task("students", evaluate_draw, {"data": data, "seed": seed}, len(WAYS), "students")
            for seed in seeds
        ]
        meter = progress.job("students", self.n_draws * len(WAYS), "students")
        found: list[DrawResults] = self.engine.map(tasks, AsOneJob(meter))
        return found

    def heard_flags(self) -> list[HeardFlag]:
        """Return some of the likeliest flags with their sound, and where the probe hears them."""
        shown = flags_to_hear(self.flags, N_HEARD)
        return [self._heard(row) for row in shown.iter_rows(named=True)]

    def _heard(self, row: dict[str, object]) -> HeardFlag:
        clip_id, class_id = str(row["clip_id"]), str(row["class_id"])
        rows, columns = self._places
        waveform = scene(self.scenes, int(self.rows["train"][rows[clip_id]]))[0]
        frames = log_mel(waveform)[: round(len(waveform) / YAMNET.hop_samples)]
        starts = np.arange(0, max(len(frames) - HEARD_FRAMES, 0) + 1, HEARD_FRAMES // 5)
        parts = np.array([_without(frames, start) for start in starts.tolist()])
        first = int(starts[np.argmin(self.probe.logits(parts)[:, columns[class_id]])])
        return HeardFlag(
            rank=int(str(row["rank"])),
            clip_id=clip_id,
            score=float(str(row["logit"])),
            chance=None if row["chance"] is None else float(str(row["chance"])),
            is_missing=self._is_right(clip_id, class_id),
            waveform=waveform,
            frames=frames,
            best_patch=(first, first + HEARD_FRAMES),
            class_name=self.workspace.ontology.name(class_id),
        )
