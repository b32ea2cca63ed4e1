"""The verbs of networks: ``train``, ``score``, ``tag``, ``export-model`` and ``models``."""

from __future__ import annotations

import json
import sys
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
    tell,
)
from earmark.errors import EarmarkError, first_few, quoted

if TYPE_CHECKING:
    from earmark.stages import ScoredByModel, TaggedFile

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
    class_map: Annotated[
        Path | None, typer.Option(help="With --onnx: table of output (or index) and class_id.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="With --onnx: leave out other classes.")
    ] = False,
    input_kind: Annotated[
        str | None, typer.Option("--input", help="With --onnx: waveforms or patches.")
    ] = None,
    output: Annotated[str | None, typer.Option(help="With --onnx: name; the first.")] = None,
    scale: Annotated[str | None, typer.Option(help="With --onnx: logits or probabilities.")] = None,
    sample_rate: Annotated[
        int | None, typer.Option(min=1, help="With --onnx: Hz of its waveforms; 16000.")
    ] = None,
    out_of_fold: Annotated[
        bool, typer.Option("--out-of-fold", help="With --onnx: it never saw these clips.")
    ] = False,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Score the train split with a teacher, out of fold by default, or with a given model."""
    from earmark import stages

    where = engine_for(work, recipe, workers, engine)
    of_model: dict[str, Any] = {
        "class_map": class_map,
        "skip_unknown": skip_unknown,
        "input_kind": one_of("--input", input_kind, ("waveforms", "patches")),
        "output": output,
        "scale": one_of("--scale", scale, ("logits", "probabilities")),
        "sample_rate_hz": sample_rate,
        "out_of_fold": out_of_fold,
    }
    if onnx is None:
        _refuse_without_onnx(of_model)
        scores = stages.score(work, in_sample=in_sample, engine=where)
        how = "out of fold" if scores.out_of_fold else "in-sample"
        facts = {"wrote": scores.folder, "clips": len(scores.clip_ids), "scored": how}
    else:
        facts = _told_of_model(stages.score_by_onnx(work, onnx, engine=where, **of_model), as_json)
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


def _refuse_without_onnx(of_model: dict[str, Any]) -> None:
    spelt = {"input_kind": "--input", "sample_rate_hz": "--sample-rate"}
    for name, value in of_model.items():
        if value:
            option = spelt.get(name, f"--{name.replace('_', '-')}")
            raise EarmarkError(f"{option} says something of a model: give that with --onnx FILE")


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
