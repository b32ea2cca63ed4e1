"""The verbs of networks: ``train``, ``score`` and ``tag``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import Call, offers
from earmark.cli.options import (
    AsJson,
    Details,
    EngineOption,
    RecipeOption,
    Work,
    Workers,
    engine_for,
    tell,
    wrapped,
)
from earmark.cli.teachers import (
    ClassMapOption,
    EmbeddingOption,
    HopOption,
    InputOption,
    OutputOption,
    SampleRateOption,
    TeacherOption,
    WayOption,
    checked_way,
    network_options,
    told_of_teacher,
)
from earmark.errors import EarmarkError, first_few, quoted

if TYPE_CHECKING:
    from earmark.compute import Engine
    from earmark.config import Recipe
    from earmark.pipeline import ScoredByFile, TaggedFile

models_app = typer.Typer()


@models_app.command()
def train(
    work: Work,
    recipe: RecipeOption = None,
    engine: EngineOption = "local",
    processes: Annotated[
        int, typer.Option(min=1, help="On a cluster: processes that train together.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Train the recipe's network on the whole train split, for tagging.

    On several GPUs or cores: torchrun --nproc-per-node N -m earmark train WORK
    """
    from earmark import pipeline

    where = engine_for(work, recipe, None, engine)
    trained = pipeline.train_teacher(work, n_processes=processes, engine=where)
    if trained.is_first:
        tell(as_json, next_command=f"earmark score {quoted(work)}", wrote=trained.folder)


@models_app.command()
def score(
    work: Work,
    recipe: RecipeOption = None,
    teacher: TeacherOption = None,
    way: WayOption = None,
    in_sample: Annotated[
        bool,
        typer.Option("--in-sample", help="Score clips that the teacher saw, as the paper did."),
    ] = False,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Scores of your own: any file that scan reads.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="With --from: classes in the order of its columns.")
    ] = None,
    clips: Annotated[
        Path | None, typer.Option(help="With --from: clips in the order of its rows.")
    ] = None,
    scores_key: Annotated[str | None, typer.Option(help="With --from: array in an .npz.")] = None,
    class_map: ClassMapOption = None,
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="Leave out classes that are not the workspace's."),
    ] = False,
    embedding: EmbeddingOption = None,
    output: OutputOption = None,
    input_kind: InputOption = None,
    sample_rate: SampleRateOption = None,
    hop_seconds: HopOption = None,
    scale: Annotated[
        str | None, typer.Option(help="Of the teacher or --from: logits or probabilities.")
    ] = None,
    out_of_fold: Annotated[
        bool,
        typer.Option("--out-of-fold", help="The teacher of a file, or --from, never saw clips."),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="By a teacher, in the place of scores of your own.")
    ] = False,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Score all clips with a teacher, or bring your own scores."""
    from earmark import pipeline

    of_network = network_options(embedding, output, input_kind, sample_rate, hop_seconds, scale)
    of_file: dict[str, Any] = {"classes": classes, "clips": clips, "scores_key": scores_key}
    _refuse_strangers(teacher, from_, in_sample, way, class_map, of_network, of_file)
    where = engine_for(work, recipe, workers, engine)
    if from_ is not None:
        both = {"skip_unknown": skip_unknown, "scale": of_network["scale"]}
        own = pipeline.score_by_file(work, from_, out_of_fold=out_of_fold, **both, **of_file)
        facts = _told_of_own(own, as_json)
    else:
        chosen = _teacher_recipe(work, recipe, teacher, way, of_network, in_sample)
        if chosen is None:
            _refuse_options({"class_map": class_map, **of_network}, "a teacher")
            facts = _scored_here(work, in_sample, replace, where, as_json)
        else:
            if not replace:
                pipeline.keep_own_scores(work, chosen)
            taught = pipeline.teach(
                work,
                chosen,
                class_map=class_map,
                skip_unknown=skip_unknown,
                out_of_fold=out_of_fold or None,
                engine=where,
            )
            facts = told_of_teacher(taught, as_json)
    tell(as_json, f"earmark flag {quoted(work)}", details=details, **facts)


def _teacher_recipe(
    work: Path,
    recipe: str | None,
    teacher: str | None,
    way: str | None,
    of_network: dict[str, Any],
    in_sample: bool,
) -> Recipe | None:
    """Return the recipe of a pretrained teacher; None where one is trained from scratch."""
    from earmark import pipeline
    from earmark.config import kept_recipe

    root = pipeline.open_workspace(work).root
    base = kept_recipe(root)
    if recipe is None and teacher is None and not in_sample:
        base = pipeline.default_teacher(work) or base
    if base.pretrained is None:
        if teacher is None and way is None:
            return None
        base = pipeline.asked_recipe()
    if in_sample:
        raise EarmarkError("--in-sample is for a teacher that is trained here from scratch")
    return pipeline.asked_recipe(base, teacher, checked_way(way), **of_network)


def _scored_here(
    work: Path, in_sample: bool, replace: bool, where: Engine, as_json: bool
) -> dict[str, Any]:
    """Score by a teacher that is trained from scratch."""
    from earmark import pipeline
    from earmark.datasets import held_out_scores

    scores = pipeline.score(work, in_sample=in_sample, replace=replace, engine=where)
    how = "out of fold" if scores.out_of_fold else "in-sample"
    facts: dict[str, Any] = {"clips": len(scores.clip_ids), "scored": how}
    if scores.out_of_fold and not as_json:
        examined = pipeline.examined(work, scores.folder.name, scores)
        facts |= {"told": examined.lines(), "more": examined.advice()}
    held_out = held_out_scores(pipeline.open_workspace(work), scores)
    if held_out is not None:
        facts["held_out_clips"] = len(held_out.clip_ids)
        if not scores.out_of_fold:
            facts["held_out"] = "not flagged: in-sample scores do not compare with theirs"
    return {**facts, "wrote": scores.folder}


@models_app.command()
@offers("pipeline.tag_files")
def tag(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Detect classes in sound files of any length."""
    top, out = call["n_drawn"], call["out"]
    unreadable, heard_files = [], []
    for heard in call():
        if heard.tags is None:
            unreadable.append({"audio": str(heard.path), "reason": heard.reason})
            lines = wrapped(f"earmark: {heard.path}: {heard.reason}; skipped")
            print("\n".join(lines), file=sys.stderr)
            continue
        heard_files.append(_told_of_file(heard, top))
    if as_json:
        tell(as_json, files=heard_files, unreadable=unreadable)
    else:
        told = [_tags_told(one) for one in heard_files]
        if len(heard_files) == 1:
            told = _lines_of_tags(heard_files[0])
        tell(False, more=told, details=details, pictures=out if told else None)
    if unreadable:
        raise typer.Exit(1)


def _refuse_strangers(
    teacher: str | None,
    from_: Path | None,
    in_sample: bool,
    way: str | None,
    class_map: Path | None,
    of_network: dict[str, Any],
    of_file: dict[str, Any],
) -> None:
    """Refuse options of another teacher than the one that scores."""
    if teacher is not None and from_ is not None:
        raise EarmarkError("--teacher names a network and --from its scores: give one of them")
    if in_sample and (teacher is not None or from_ is not None):
        raise EarmarkError("--in-sample is for a teacher that is trained here")
    others = {"way": way, "class_map": class_map, **of_network}
    if from_ is None:
        _refuse_options(of_file, "--from FILE")
    else:
        _refuse_options({**others, "scale": None}, "a teacher")


def _refuse_options(said: dict[str, Any], owner: str) -> None:
    """Refuse what is said of something that does not score."""
    spelt = {"input_kind": "--input", "sample_rate_hz": "--sample-rate"}
    for name, value in said.items():
        if value:
            option = spelt.get(name, f"--{name.replace('_', '-')}")
            raise EarmarkError(f"{option} says something of {owner}: give it with that")


def _told_of_own(own: ScoredByFile, as_json: bool) -> dict[str, Any]:
    """Say how scores of one's own fit the workspace; warnings go to standard error."""
    for warning in own.warnings:
        print("\n".join(wrapped(f"warning: {warning}")), file=sys.stderr)
    is_out = own.scores.out_of_fold
    without, unscored = own.without_scores, own.unscored
    facts = {
        "clips": own.n_clips,
        "scores": own.scale,
        "scored": "out of fold" if is_out else "taken for in-sample (see --out-of-fold)",
        "wrote": own.scores.folder,
    }
    if as_json:
        notes = {"notes": list(own.notes)} if own.notes else {}
        foreign = {"left_out": own.n_foreign} if own.n_foreign else {}
        lists = {"without_scores": list(without), "unscored": list(unscored)}
        return {**facts, **lists, **foreign, **notes}
    gaps = [
        f"clips without scores: {len(without):,}{_such(without)}",
        f"classes without scores: {len(unscored):,}{_such(unscored)}",
    ]
    if own.n_foreign:
        gaps.append(f"scored clips that are not here: {own.n_foreign:,}")
    return {**facts, "more": [*gaps, *own.notes]}


def _such(names: Sequence[str]) -> str:
    return f" ({first_few(names)})" if names else ""


def _told_of_file(heard: TaggedFile, top: int) -> dict[str, Any]:
    assert heard.tags is not None
    return {
        "audio": str(heard.path),
        "seconds": heard.tags.seconds,
        "timeline": str(heard.picture),
        "tags": [vars(one) for one in heard.tags.top(top)],
    }


def _lines_of_tags(told: dict[str, Any]) -> list[str]:
    """Say what was heard in one file, class by class."""
    return [
        f"{told['audio']} ({told['seconds']:.1f} s)",
        *(
            f"  {one['score']:.3f}  {one['name']}  (best at {one['best_seconds']:.1f} s)"
            for one in told["tags"]
        ),
        f"  timeline: {told['timeline']}",
    ]


def _tags_told(told: dict[str, Any]) -> str:
    """Say what was heard in one of several files, in a sentence."""
    heard = ", ".join(f"{one['name']} {one['score']:.2f}" for one in told["tags"])
    return f"{told['audio']} ({told['seconds']:.1f} s): {heard}"
