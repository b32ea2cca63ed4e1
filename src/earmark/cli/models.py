"""The verbs of networks: ``train``, ``score``, ``tag``, ``export-model`` and ``models``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.options import (
    AsJson,
    EngineOption,
    RecipeOption,
    Work,
    Workers,
    engine_for,
    one_of,
    say,
    tell,
)
from earmark.errors import EarmarkError, first_few, quoted

if TYPE_CHECKING:
    from earmark.stages import ScoredByFile, ScoredByModel, TaggedFile

models_app = typer.Typer()

ModelFolder = Annotated[
    Path, typer.Argument(help="The folder of a trained network: WORK/models/NAME.")
]
StudentOption = Annotated[
    str | None, typer.Option(help="One of a stack of students: its name, or number from 0.")
]


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
    """Train the recipe's teacher on the whole train split, labels as they are.

    On several GPUs or cores: torchrun --nproc-per-node N -m earmark train WORK
    """
    from earmark import stages

    where = engine_for(work, recipe, None, engine)
    trained = stages.train_teacher(work, n_processes=processes, engine=where)
    if trained.is_first:
        tell(as_json, next_command=f"earmark score {quoted(work)}", wrote=trained.folder)


@models_app.command()
def score(
    work: Work,
    recipe: RecipeOption = None,
    in_sample: Annotated[
        bool,
        typer.Option("--in-sample", help="Score clips that the teacher saw, as the paper did."),
    ] = False,
    onnx: Annotated[Path | None, typer.Option(help="A model from elsewhere as teacher.")] = None,
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
    class_map: Annotated[
        Path | None, typer.Option(help="With --onnx: table of output (or index) and class_id.")
    ] = None,
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="With --onnx or --from: leave out others' classes."),
    ] = False,
    input_kind: Annotated[
        str | None, typer.Option("--input", help="With --onnx: waveforms or patches.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="With --onnx: name; the first.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Of --onnx or --from: logits or probabilities.")
    ] = None,
    sample_rate: Annotated[
        int | None, typer.Option(min=1, help="With --onnx: Hz of its waveforms; 16000.")
    ] = None,
    out_of_fold: Annotated[
        bool,
        typer.Option("--out-of-fold", help="The model of --onnx or --from never saw these clips."),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="By a teacher, in the place of scores of your own.")
    ] = False,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Score all clips: by a teacher trained here, a given model, or scores of your own."""
    from earmark import stages
    from earmark.datasets import held_out_scores

    where = engine_for(work, recipe, workers, engine)
    both: dict[str, Any] = {
        "skip_unknown": skip_unknown,
        "scale": one_of("--scale", scale, ("logits", "probabilities")),
        "out_of_fold": out_of_fold,
    }
    of_model: dict[str, Any] = {
        "class_map": class_map,
        "input_kind": one_of("--input", input_kind, ("waveforms", "patches")),
        "output": output,
        "sample_rate_hz": sample_rate,
    }
    of_file: dict[str, Any] = {"classes": classes, "clips": clips, "scores_key": scores_key}
    _refuse_strangers(onnx, from_, in_sample, both, of_model, of_file)
    if onnx is not None:
        by_model = stages.score_by_onnx(work, onnx, engine=where, **both, **of_model)
        facts = _told_of_model(by_model, as_json)
    elif from_ is not None:
        facts = _told_of_own(stages.score_by_file(work, from_, **both, **of_file), as_json)
    else:
        scores = stages.score(work, in_sample=in_sample, replace=replace, engine=where)
        how = "out of fold" if scores.out_of_fold else "in-sample"
        facts = {"wrote": scores.folder, "clips": len(scores.clip_ids), "scored": how}
        held_out = held_out_scores(stages.open_workspace(work), scores)
        if held_out is not None:
            facts["held_out_clips"] = len(held_out.clip_ids)
            if not scores.out_of_fold:
                facts["held_out"] = "not flagged: in-sample scores do not compare with theirs"
    tell(as_json, next_command=f"earmark flag {quoted(work)}", **facts)


@models_app.command()
def tag(
    audio: Annotated[list[Path], typer.Argument(help="Sound files.", metavar="AUDIO...")],
    model: Annotated[Path, typer.Option(help="The folder of a trained network.")],
    top: Annotated[int, typer.Option(min=1, help="Classes to name for each file.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("tags"),
    student: StudentOption = None,
    as_json: AsJson = False,
) -> None:
    """Name the classes heard in sound files, and draw when; files of any length."""
    from earmark import stages

    unreadable, told = [], []
    for heard in stages.tag_files(audio, model, n_drawn=top, out=out, student=student):
        if heard.tags is None:
            unreadable.append({"audio": str(heard.path), "reason": heard.reason})
            print(f"earmark: {heard.path}: {heard.reason}; skipped", file=sys.stderr)
            continue
        told.append(_told_of_file(heard, top))
        if not as_json:
            _print_tags(told[-1])
    if as_json:
        tell(as_json, files=told, unreadable=unreadable)
    if unreadable:
        raise typer.Exit(1)


@models_app.command("export-model")
def export_model(
    model: ModelFolder,
    out: Annotated[Path, typer.Option(help="ONNX file to write.")],
    front_end: Annotated[
        bool, typer.Option(help="From waveforms, or from log-mel patches.")
    ] = True,
    student: StudentOption = None,
    as_json: AsJson = False,
) -> None:
    """Write a trained network as ONNX, classes in its metadata, checked against torch."""
    from earmark import stages

    made = stages.export_model(model, out, with_front_end=front_end, student=student)
    difference = f"{made.largest_difference:.1e}"
    tell(as_json, wrote=out, classes=made.n_classes, largest_difference=difference)


@models_app.command()
def models(
    classes: Annotated[int, typer.Option(min=1, help="Outputs of the networks.")] = 527,
    width: Annotated[float, typer.Option(help="Share of the paper's channels.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Print the networks' parameters and multiply-adds."""
    from earmark.networks import cost
    from earmark.runs import ModelParams

    sizes = {
        params.architecture: cost(params, classes)
        for params in (
            ModelParams(architecture="resnet50", width=width),
            ModelParams(architecture="mobilenet_v1", width=width),
        )
    }
    if as_json:
        print(json.dumps({name: vars(size) for name, size in sizes.items()}))
        return
    table = Table("network", "parameters", "multiply-adds per patch")
    for name, size in sizes.items():
        table.add_row(name, f"{size.n_parameters:,}", f"{size.n_multiply_adds:,}")
    Console().print(table)


def _refuse_strangers(
    onnx: Path | None,
    from_: Path | None,
    in_sample: bool,
    both: dict[str, Any],
    of_model: dict[str, Any],
    of_file: dict[str, Any],
) -> None:
    """Refuse options of another teacher than the one that scores."""
    if onnx is not None and from_ is not None:
        raise EarmarkError("--onnx names a model and --from its scores: give one of them")
    if in_sample and (onnx is not None or from_ is not None):
        raise EarmarkError("--in-sample is for a teacher that is trained here")
    strangers = [
        (both, onnx is None and from_ is None, "--onnx FILE or --from FILE"),
        (of_model, onnx is None, "--onnx FILE"),
        (of_file, from_ is None, "--from FILE"),
    ]
    spelt = {"input_kind": "--input", "sample_rate_hz": "--sample-rate"}
    for options, is_refused, owner in strangers:
        for name, value in options.items():
            if value and is_refused:
                option = spelt.get(name, f"--{name.replace('_', '-')}")
                raise EarmarkError(f"{option} says something of a model: give that with {owner}")


def _told_of_own(own: ScoredByFile, as_json: bool) -> dict[str, Any]:
    """Say how scores of one's own fit the workspace; warnings go to standard error."""
    for warning in own.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    is_out = own.scores.out_of_fold
    without, unscored = own.without_scores, own.unscored
    if as_json:
        listed: dict[str, Any] = {"without_scores": list(without), "unscored": list(unscored)}
    else:
        listed = {
            "clips without scores": f"{len(without):,}" + _such(without),
            "classes without scores": f"{len(unscored):,}" + _such(unscored),
        }
    if as_json and own.notes:
        listed["notes"] = list(own.notes)
    elif own.notes:
        say(own.notes)
    if own.n_foreign:
        listed["left_out" if as_json else "scored clips that are not here"] = own.n_foreign
    return {
        "wrote": own.scores.folder,
        "clips": own.n_clips,
        "scores": own.scale,
        "scored": "out of fold" if is_out else "taken for in-sample (see --out-of-fold)",
        **listed,
    }


def _such(names: Sequence[str]) -> str:
    return f" ({first_few(names)})" if names else ""


def _told_of_model(by_model: ScoredByModel, as_json: bool) -> dict[str, Any]:
    """Say how a model from elsewhere was understood; its warnings go to standard error."""
    found = by_model.found
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    is_out = found.scores.out_of_fold
    return {
        "wrote": found.scores.folder,
        "clips": len(found.scores.clip_ids),
        "model": f"{by_model.description}, {found.scale}",
        "scored": "out of fold" if is_out else "taken for in-sample (see --out-of-fold)",
        "unscored": list(found.unscored) if as_json else first_few(found.unscored) or "none",
    }


def _told_of_file(heard: TaggedFile, top: int) -> dict[str, Any]:
    assert heard.tags is not None
    return {
        "audio": str(heard.path),
        "seconds": heard.tags.seconds,
        "timeline": str(heard.picture),
        "tags": [vars(one) for one in heard.tags.top(top)],
    }


def _print_tags(told: dict[str, Any]) -> None:
    print(f"{told['audio']} ({told['seconds']:.1f} s)")
    for one in told["tags"]:
        print(f"  {one['score']:.3f}  {one['name']}  (best at {one['best_seconds']:.1f} s)")
    print(f"  timeline: {told['timeline']}")
