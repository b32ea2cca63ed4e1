"""The command line: one verb per stage.

Every verb prints what it wrote and the next command. A user's mistake exits with 2 and one
readable message; an interrupt exits with 130, a scheduler's SIGTERM with 0, and both leave a state
from which the same command goes on. Stages are imported inside the verbs, because torch takes
seconds to load and most verbs do without it.
"""

from __future__ import annotations

import errno
import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.experiments import compare_app
from earmark.cli.imports import import_app
from earmark.cli.models import model_app
from earmark.cli.options import (
    AsJson,
    EngineOption,
    LabelsOption,
    RecipeOption,
    Work,
    Workers,
    after_import,
    check_frames,
    chosen_cluster,
    chosen_engine,
    chosen_recipe,
    open_scored,
    tell,
)
from earmark.cli.review import review_app
from earmark.errors import EarmarkError, Stopped, nearest
from earmark.runs.recipe import Recipe, find_recipe, keep_recipe

N_IMPLIED_SHOWN = 20
"""Implied labels that ``lint`` prints; ``--json`` lists all."""

app = typer.Typer(
    help="Find the labels your sound dataset is missing, and train as if they had been there.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(import_app, name="import")
app.add_typer(compare_app)
app.add_typer(review_app)
app.add_typer(model_app)


class _Interrupted(BaseException):
    """Ctrl-C, under a name that Typer does not turn into an exit of its own."""


def main() -> None:
    """Run a verb; turn mistakes, interrupts and full disks into a message and an exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except EarmarkError as error:
        _fail(f"earmark: {error}", 2)
    except Stopped:
        _fail("earmark: stopped by SIGTERM; run the same command again to go on from here", 0)
    except _Interrupted:
        _fail("earmark: interrupted; run the same command again to go on from here", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(f"earmark: {error}; make room and run the same command again to go on", 2)


@app.command()
def demo(
    work: Annotated[Path, typer.Option(help="Where to put it.")] = Path("demo-work"),
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """See the paper's idea work: make scenes, hide labels, find them, train, report."""
    run("demo", work, workers, engine, as_json)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name or a TOML file.")],
    work: Annotated[Path, typer.Option(help="The workspace folder.")] = Path("work"),
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Run all stages of a recipe, from the data to the report."""
    from earmark.runs.progress import Display
    from earmark.stages import run

    chosen = find_recipe(recipe)
    keep_recipe(work, chosen)
    with Display() as progress:
        where = chosen_engine(workers, engine, chosen.resources)
        outcome = run.run(chosen, work, engine=where, progress=progress)
    if as_json:
        facts = {"report": outcome.report, "n_flags": outcome.n_flags}
        tell(as_json, next_command=_after_run(outcome), **facts)
    else:
        _print_outcome(outcome, chosen)


@app.command()
def hide(
    work: Work,
    out: Annotated[Path, typer.Option(help="The workspace to write.")],
    lowest_recall: Annotated[float, typer.Option(min=0, max=1)] = 0.3,
    highest_recall: Annotated[float, typer.Option(min=0, max=1)] = 0.95,
    assume_complete: Annotated[
        bool, typer.Option("--assume-complete", help="Take implicit labels for absent ones.")
    ] = False,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Hide labels of a fully labelled workspace as nomination does, and keep the truth."""
    from earmark.datasets.derived import hidden_workspace
    from earmark.datasets.synthetic.hiding import n_missing
    from earmark.datasets.workspace import Workspace
    from earmark.runs.parameters import HidingParams

    params = HidingParams(recall_range=(lowest_recall, highest_recall), seed=seed)
    hidden = hidden_workspace(Workspace.open(work), out, params, assume_complete=assume_complete)
    assert hidden.truth is not None
    hidden_labels = int(n_missing(hidden.truth, hidden.labels).sum())
    tell(as_json, next_command=after_import(out), wrote=out, hidden_labels=hidden_labels)


@app.command()
def subset(
    work: Work,
    out: Annotated[Path, typer.Option(help="The workspace to write.")],
    share: Annotated[float, typer.Option(min=0.0001, max=1, help="Of the train split.")] = 0.2,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Make tr_small from tr_large: nested, whole recordings, class distribution kept."""
    from earmark.datasets.derived import subset_workspace
    from earmark.datasets.workspace import Workspace

    smaller, deviation = subset_workspace(Workspace.open(work), out, share, seed)
    tell(
        as_json,
        next_command=after_import(out),
        wrote=out,
        train_clips=len(smaller.rows("train")),
        largest_deviation=str(deviation),
    )


@app.command()
def lint(
    target: Annotated[
        Path,
        typer.Argument(help="A workspace, or a CSV or Parquet file of labels.", metavar="TARGET"),
    ],
    clips: Annotated[
        Path | None, typer.Option(help="With a label file: the table that lists all clips.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check labels: unknown names, repeated and contradictory rows, empty classes."""
    from earmark.datasets.workspace import Workspace
    from earmark.labels.hierarchy import find_implied
    from earmark.labels.label_set import LabelSet, checked_rows
    from earmark.labels.label_set import lint as find_problems
    from earmark.runs.artefacts import read_table

    ontology = None
    path = target
    if target.is_dir():
        workspace, path = Workspace.open(target), target / "labels.parquet"
        ontology, clip_ids = workspace.ontology, workspace.clips["clip_id"]
        class_ids = list(ontology.class_ids)
    rows = checked_rows(read_table(path), str(path))
    if ontology is None:
        listed = rows if clips is None else read_table(clips)
        if "clip_id" not in listed.columns:
            hint = nearest("clip_id", listed.columns)
            raise EarmarkError(f"{clips}: there is no column 'clip_id'{hint}")
        clip_ids = listed["clip_id"].cast(str).unique(maintain_order=True)
        class_ids = rows["class_id"].unique(maintain_order=True).to_list()
    findings = find_problems(rows, clip_ids, class_ids, str(path))
    has_errors = any(finding.is_error for finding in findings)
    implied = None
    if ontology is not None and ontology.parents and not has_errors:
        implied = find_implied(LabelSet.from_rows(rows, clip_ids, class_ids, str(path)), ontology)
    if as_json:
        told = {"findings": [vars(finding) for finding in findings]}
        print(
            json.dumps(told | ({} if implied is None else {"implied": implied.table().to_dicts()}))
        )
    else:
        for finding in findings:
            print(f"{'error' if finding.is_error else 'note'}: {finding.message}")
        print(f"{len(findings)} findings in {path}")
        if implied is not None:
            _print_implied(implied)
    if has_errors:
        raise typer.Exit(1)


@app.command()
def scan(
    labels: Annotated[Path, typer.Option(help="Rows, AudioSet segments, dense states, or JSON.")],
    scores: Annotated[Path, typer.Option(help=".npy, .npz, Parquet, Zarr or a folder of shards.")],
    classes: Annotated[Path | None, typer.Option(help="Classes in the order of scores.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Clips in the order of scores.")] = None,
    ontology: Annotated[Path | None, typer.Option(help="ontology.json, or a table.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="Array in a labels .npz.")] = None,
    scores_key: Annotated[str | None, typer.Option(help="Array in a scores .npz.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("scan"),
    scale: Annotated[str, typer.Option(help="auto, logits or probabilities.")] = "auto",
    policy: Annotated[str, typer.Option(help="How flags are chosen.")] = "percentile",
    discard_percent: Annotated[float | None, typer.Option(help="percentile: of a class.")] = None,
    target: Annotated[float | None, typer.Option(help="precision: lowest chance.")] = None,
    n_flags: Annotated[int | None, typer.Option(help="budget: flags in all.")] = None,
    quantile: Annotated[
        str | None, typer.Option(help="positives_quantile: a share, or mean.")
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="positives_quantile: a parent or child is labelled.")
    ] = False,
    probability: Annotated[float | None, typer.Option(help="global: lowest score.")] = None,
    fill_ancestors: Annotated[
        bool, typer.Option("--fill-ancestors", help="Take implied ancestors for positives.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find likely missing labels from labels and scores alone: no audio, no training."""
    from typing import Literal, cast

    from earmark.runs.progress import Display
    from earmark.stages.scan import scan as run_scan

    if scale not in ("auto", "logits", "probabilities"):
        raise EarmarkError(f"--scale is auto, logits or probabilities, got {scale!r}")
    options: dict[str, Any] = {
        "discard_percent": discard_percent,
        "target": target,
        "n_flags": n_flags,
        "quantile": _share_or_mean(quantile),
        "gate": gate or None,
        "probability": probability,
    }
    with Display() as progress:
        result = run_scan(
            labels,
            scores,
            out=out,
            classes=classes,
            clips=clips,
            ontology=ontology,
            scale=cast(Literal["auto", "logits", "probabilities"], scale),
            policy=policy,
            fill_ancestors=fill_ancestors,
            labels_key=labels_key,
            scores_key=scores_key,
            progress=progress,
            **{name: value for name, value in options.items() if value is not None},
        )
    if not as_json:
        for line in result.lines():
            print(line)
    facts = {"flags": result.n_flags, "warnings": list(result.warnings)} if as_json else {}
    tell(as_json, next_command=f"open {out}/index.html in a browser", wrote=out, **facts)


@app.command()
def models(
    classes: Annotated[int, typer.Option(min=1, help="Outputs of the networks.")] = 527,
    width: Annotated[float, typer.Option(help="Share of the paper's channels.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Print the networks' parameters and multiply-adds."""
    from earmark.networks.architectures import cost
    from earmark.runs.parameters import ModelParams

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


@app.command()
def features(
    work: Work,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Decode the audio and store log-mel frames; what cannot be read is quarantined."""
    from earmark.datasets.extraction import extract_frames
    from earmark.datasets.workspace import Workspace
    from earmark.runs.progress import Display

    workspace, chosen = Workspace.open(work), chosen_recipe(work, recipe)
    with Display() as progress:
        where = chosen_engine(workers, engine, chosen.resources)
        store = extract_frames(workspace, chosen.front_end, engine=where, progress=progress)
    tell(
        as_json,
        next_command=f"earmark score {work}",
        wrote=store.folder,
        clips=len(workspace.clips),
        read=len(store.clip_ids),
        quarantined=len(workspace.clips) - len(store.clip_ids),
    )


@app.command()
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
    from contextlib import nullcontext

    from earmark.audio.frame_store import FrameStore
    from earmark.datasets.readable_clips import readable_clips
    from earmark.datasets.workspace import Workspace
    from earmark.networks.examples import check_front_end, examples_of
    from earmark.networks.measured_card import write_measured_card
    from earmark.runs.progress import SILENT, Display
    from earmark.runs.ray_training import train_together
    from earmark.training import replicas
    from earmark.training.loop import n_examples_in_all
    from earmark.training.loop import train as train_network
    from earmark.training.supervision import AsLabelled, TrainingSet
    from earmark.training.teacher import training_task, tune_set

    workspace, chosen = Workspace.open(work), chosen_recipe(work, recipe)
    store = FrameStore.open(workspace.frames_folder)
    clips = readable_clips(workspace, store, "train")
    teacher = chosen.teacher
    check_front_end(store, chosen.front_end)
    exam = tune_set(workspace, store, teacher.model)
    data = TrainingSet(store.folder, clips.store_rows, AsLabelled(clips.labels), exam)
    folder = workspace.model_folder(teacher.name)
    if engine != "local":
        cluster = chosen_cluster(engine, chosen.resources)
        with Display() as progress:
            task = training_task(teacher.name, train_network, teacher, data, store, folder=folder)
            train_together(cluster, task, processes, folder / "ray", progress)
            write_measured_card(workspace, chosen.teacher, folder)
        tell(as_json, next_command=f"earmark score {work}", wrote=folder)
        return
    with replicas.joined(), Display() if replicas.is_first() else nullcontext(SILENT) as progress:
        examples = examples_of(teacher.model, store, clips.store_rows)
        n_examples = n_examples_in_all(examples.per_clip, teacher.train)
        meter = progress.job(teacher.name, n_examples, teacher.model.example_unit)
        train_network(teacher, data, folder, meter)
        if not replicas.is_first():
            return
    write_measured_card(workspace, chosen.teacher, folder)
    tell(as_json, next_command=f"earmark score {work}", wrote=folder)


@app.command()
def flag(
    work: Work,
    discard_percent: Annotated[
        float, typer.Option(min=0, max=100, help="Per cent of each class's implicit labels.")
    ] = 1.0,
    policy: Annotated[str, typer.Option(help="percentile, or precision.")] = "percentile",
    target: Annotated[float, typer.Option(help="precision: lowest chance.")] = 0.5,
    labels: LabelsOption = None,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Flag the top-scored implicit labels of each class, and write all 18 thresholds."""
    from earmark.stages import run

    workspace, _, scores = open_scored(work, recipe)
    if policy not in ("percentile", "precision"):
        raise EarmarkError(f"--policy is percentile or precision, got {policy!r}")
    least = target if policy == "precision" else None
    flags = run.write_flags(workspace, scores, discard_percent, target=least, labels_name=labels)
    tell(
        as_json,
        next_command=f"earmark sweep {work}",
        wrote=workspace.flags_folder / "flags.parquet",
        flags=len(flags),
        discard_percent=discard_percent,
    )


@app.command()
def sweep(
    work: Work,
    labels: LabelsOption = None,
    recipe: RecipeOption = None,
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Train a student at every operating point, and evaluate them all.

    With ``--labels corrected`` also on the labels that judgements corrected, alone and ignoring.
    """
    from earmark.experiments.sweep import run_sweep
    from earmark.runs.progress import Display

    if labels not in (None, "given", "corrected"):
        raise EarmarkError(f"--labels is given or corrected, got {labels!r}")
    workspace, chosen, scores = open_scored(work, recipe)
    check_frames(workspace, chosen)
    params = chosen.sweep.model_copy(update={"labels": labels or chosen.sweep.labels})
    with Display() as progress:
        run_sweep(
            workspace,
            chosen.students,
            params,
            scores,
            chosen.cross_fit,
            engine=chosen_engine(workers, engine, chosen.resources),
            progress=progress,
        )
    path = workspace.sweep_folder / "results.parquet"
    tell(as_json, next_command=f"earmark report {work}", wrote=path)


@app.command()
def evaluate(
    labels: Annotated[Path, typer.Argument(help="Labels: Parquet or CSV rows.")],
    scores: Annotated[Path, typer.Argument(help="A folder of scores with its clips and classes.")],
    as_json: AsJson = False,
) -> None:
    """Measure d', lwlrap and average precision of a folder of scores against labels."""
    from earmark.labels.label_set import LabelSet
    from earmark.metrics.evaluation import evaluate as measure
    from earmark.scores.folder import ScoreFolder

    opened = ScoreFolder.open(scores)
    known = LabelSet.read(labels, class_ids=opened.class_ids)
    everywhere = LabelSet.from_rows(
        known.rows().filter(known.rows()["clip_id"].is_in(opened.clip_ids.implode())),
        opened.clip_ids,
        opened.class_ids,
        str(labels),
    )
    result = measure(everywhere, opened.logits, opened.class_ids)
    if as_json:
        print(json.dumps(result.overall))
        return
    table = Table("metric", "value")
    for name, value in result.overall.items():
        table.add_row(name, f"{value:.4f}")
    Console().print(table)


@app.command()
def report(work: Work, recipe: RecipeOption = None, as_json: AsJson = False) -> None:
    """Draw the figures and tables, and write the page with flags to hear."""
    from earmark.datasets.workspace import Workspace
    from earmark.stages import run

    path = run.make_report(Workspace.open(work), chosen_recipe(work, recipe))
    tell(as_json, next_command=f"open {path} in a browser", wrote=path)


@app.command()
def export(
    work: Work,
    to: Annotated[Path, typer.Argument(help="CSV or Parquet file to write.", metavar="FILE")],
    discard_percent: Annotated[float, typer.Option(min=0, max=100, help="Operating point.")] = 1.0,
    labels: LabelsOption = None,
    recipe: RecipeOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the enhanced label set of one operating point: explicit labels and ignored ones."""
    from earmark.stages import run

    workspace, _, scores = open_scored(work, recipe)
    n_rows = run.export_labels(workspace, scores, discard_percent, to, labels)
    tell(as_json, wrote=to, rows=n_rows)


def _print_implied(implied: Any) -> None:
    """Count and list what positives say of their ancestors; the list is cut, --json has it all."""
    print(
        f"{implied.n_certain:,} implicit labels are certain, because a child is present; "
        f"{implied.n_contradictions:,} ancestors are marked absent though a child is present"
    )
    for row in implied.table().sort("kind", descending=True).head(N_IMPLIED_SHOWN).to_dicts():
        print(f"{row['kind']}: clip {row['clip_id']}, {row['class_id']} by {row['child_id']}")


def _share_or_mean(quantile: str | None) -> float | str | None:
    if quantile is None or quantile == "mean":
        return quantile
    try:
        return float(quantile)
    except ValueError:
        raise EarmarkError(
            f"--quantile is a share such as 0.25, or mean; got {quantile!r}"
        ) from None


def _print_outcome(outcome: Any, recipe: Recipe) -> None:
    """Print what a newcomer wants to see at the end of a run."""
    from earmark.report.sentences import summary_lines

    print()
    for line in summary_lines(outcome.sweep.summary, outcome.judged, recipe.report.flag_percent):
        print(line)
    print()
    tell(False, next_command=_after_run(outcome), report=outcome.report)


def _after_run(outcome: Any) -> str | None:
    """Return the next command: flags with sound are there to be heard."""
    workspace = outcome.workspace
    has_sound = workspace.clips["audio"].is_not_null().any()
    return f"earmark review {workspace.root}" if has_sound else None


def _interrupt(signal_number: int, frame: object) -> None:
    del signal_number, frame
    raise _Interrupted


def _terminate(signal_number: int, frame: object) -> None:
    del signal_number, frame
    raise Stopped


def _fail(message: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(message, style="red", markup=False, highlight=False)
    sys.exit(code)
