"""The verbs that use models: ``score``, ``tag`` and ``export-model``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.options import (
    AsJson,
    EngineOption,
    RecipeOption,
    Work,
    Workers,
    check_frames,
    chosen_engine,
    chosen_recipe,
    tell,
)
from earmark.errors import EarmarkError, first_few
from earmark.runs.engine import Engine
from earmark.runs.recipe import Recipe

model_app = typer.Typer()

ModelFolder = Annotated[
    Path, typer.Argument(help="The folder of a trained network: WORK/models/NAME.")
]


StudentOption = Annotated[
    str | None, typer.Option(help="One of a stack of students: its name, or number from 0.")
]


@model_app.command("tag")
def tag(
    audio: Annotated[list[Path], typer.Argument(help="Sound files.", metavar="AUDIO...")],
    model: Annotated[Path, typer.Option(help="The folder of a trained network.")],
    top: Annotated[int, typer.Option(min=1, help="Classes to name for each file.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("tags"),
    student: StudentOption = None,
    as_json: AsJson = False,
) -> None:
    """Name the classes heard in sound files, and draw when; files of any length."""
    from earmark.audio.decode import UnreadableAudio
    from earmark.networks.model_card import read_card
    from earmark.networks.tagging import Tagger

    tagger = Tagger.open(model, None if student is None else read_card(model).place_of(student))
    unreadable, told = [], []
    for place, path in enumerate(audio):
        try:
            tags = tagger.tag(path)
        except UnreadableAudio as error:
            unreadable.append({"audio": str(path), "reason": error.reason})
            print(f"earmark: {error}; skipped", file=sys.stderr)
            continue
        picture = _write_timeline(tags, top, out, n_before=_n_named(audio[:place], path.name))
        told.append(
            {
                "audio": str(path),
                "seconds": tags.seconds,
                "timeline": str(picture),
                "tags": [vars(one) for one in tags.top(top)],
            }
        )
        if not as_json:
            _print_tags(told[-1])
    if as_json:
        tell(as_json, files=told, unreadable=unreadable)
    if unreadable:
        raise typer.Exit(1)


@model_app.command("export-model")
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
    from earmark.networks.model_card import read_card
    from earmark.networks.onnx_export import write_onnx
    from earmark.networks.saved import load_network
    from earmark.networks.stacks import student_of

    card, network = read_card(model), load_network(model)
    if student is not None:
        network = student_of(network, card.place_of(student))
    difference = write_onnx(out, network, card, with_front_end=front_end)
    tell(as_json, wrote=out, classes=len(card.class_ids), largest_difference=f"{difference:.1e}")


@model_app.command("score")
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
    from earmark.datasets.workspace import Workspace

    workspace, chosen = Workspace.open(work), chosen_recipe(work, recipe)
    options = {
        "class_map": class_map,
        "skip_unknown": skip_unknown,
        "input_kind": input_kind,
        "output": output,
        "scale": scale,
        "sample_rate": sample_rate,
        "out_of_fold": out_of_fold,
    }
    where = chosen_engine(workers, engine, chosen.resources)
    if onnx is not None:
        facts = _score_by_onnx(workspace, chosen, onnx, options, where, as_json)
    else:
        _refuse_without_onnx(options)
        facts = _score_by_network(workspace, chosen, in_sample, where)
    tell(as_json, next_command=f"earmark flag {work}", **facts)


def _score_by_network(
    workspace: Any, recipe: Recipe, in_sample: bool, engine: Engine
) -> dict[str, Any]:
    from earmark.runs.progress import Display
    from earmark.training.teacher import cross_fit

    check_frames(workspace, recipe)
    in_sample = in_sample or recipe.cross_fit.in_sample
    params = recipe.cross_fit.model_copy(update={"in_sample": in_sample})
    with Display() as progress:
        scores = cross_fit(workspace, recipe.teacher, params, engine=engine, progress=progress)
    how = "out of fold" if scores.out_of_fold else "in-sample"
    return {"wrote": scores.folder, "clips": len(scores.clip_ids), "scored": how}


def _score_by_onnx(
    workspace: Any,
    recipe: Recipe,
    onnx: Path,
    options: dict[str, Any],
    engine: Engine,
    as_json: bool,
) -> dict[str, Any]:
    """Score with an ONNX model, and say how it was understood."""
    from earmark.networks.onnx_model import ForeignModel
    from earmark.runs.progress import Display
    from earmark.training.onnx_teacher import score_by_teacher

    kind = _choice("--input", options["input_kind"], ("waveforms", "patches"))
    scale = _choice("--scale", options["scale"], ("logits", "probabilities"))
    teacher = ForeignModel.open(onnx, kind, options["output"], options["sample_rate"])
    with Display() as progress:
        result = score_by_teacher(
            workspace,
            recipe.teacher.name,
            teacher,
            options["class_map"],
            skip_unknown=options["skip_unknown"],
            scale=scale,
            out_of_fold=options["out_of_fold"],
            engine=engine,
            progress=progress,
        )
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    is_out = result.scores.out_of_fold
    return {
        "wrote": result.scores.folder,
        "clips": len(result.scores.clip_ids),
        "model": f"{teacher.description}, {result.scale}",
        "scored": "out of fold" if is_out else "taken for in-sample (see --out-of-fold)",
        "unscored": list(result.unscored) if as_json else first_few(result.unscored) or "none",
    }


def _refuse_without_onnx(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            option = "--input" if name == "input_kind" else f"--{name.replace('_', '-')}"
            raise EarmarkError(f"{option} says something of a model: give that with --onnx FILE")


def _choice(option: str, value: str | None, choices: tuple[str, ...]) -> Any:
    if value is not None and value not in choices:
        raise EarmarkError(f"{option} is {' or '.join(choices)}, got {value!r}")
    return value


def _n_named(paths: list[Path], name: str) -> int:
    return sum(path.name == name for path in paths)


def _write_timeline(tags: Any, top: int, out: Path, n_before: int) -> Path:
    """Write the picture; files of one name from several folders are numbered."""
    from earmark.report.figures import write_png
    from earmark.report.timeline import timeline_figure

    number = f"-{n_before + 1}" if n_before else ""
    picture = out / f"{tags.path.name}{number}.png"
    write_png(timeline_figure(tags, top), picture)
    return picture


def _print_tags(told: dict[str, Any]) -> None:
    print(f"{told['audio']} ({told['seconds']:.1f} s)")
    for one in told["tags"]:
        print(f"  {one['score']:.3f}  {one['name']}  (best at {one['best_seconds']:.1f} s)")
    print(f"  timeline: {told['timeline']}")
