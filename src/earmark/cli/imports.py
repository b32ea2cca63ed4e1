"""The verbs of ``earmark import``: one for each kind of dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.options import (
    AsJson,
    ColumnOption,
    Details,
    EngineOption,
    RecipeOption,
    Root,
    SeparatorOption,
    Work,
    Workers,
    WorkOption,
    ZerosOption,
    after_import,
    chosen_engine,
    numbers,
    reading_of,
    stale_facts,
    stale_told,
    tell,
)
from earmark.cli.verbs import Verbs

import_app = typer.Typer(cls=Verbs, help="Bring a dataset into a workspace.", no_args_is_help=True)

Replace = Annotated[
    bool, typer.Option("--replace", help="Put it in the place of another dataset in WORK.")
]


ClassesOption = Annotated[
    Path | None,
    typer.Option("--classes", help="List of classes: their names, parents and order."),
]


@import_app.command("scenes")
def import_scenes(
    work: Work,
    recipe: RecipeOption = "scenes",
    workers: Workers = None,
    engine: EngineOption = "local",
    as_json: AsJson = False,
) -> None:
    """Make synthetic sound scenes with known truth, and hide labels as nomination does."""
    from earmark import datasets, stages

    chosen = stages.choose_recipe(work, recipe)
    where = chosen_engine(workers, engine, chosen.resources)
    workspace = stages.make_dataset(work, chosen, engine=where)
    labels = workspace.labels
    summary: dict[str, Any] = {
        "clips": labels.n_clips,
        "classes": labels.n_classes,
        "explicit": len(labels.present),
    }
    stale = datasets.find_stale(workspace)
    if as_json:
        summary["stale"] = stale_facts(stale)
    following = after_import(workspace)
    tell(as_json, following, more=stale_told(stale), **summary, wrote=work)


@import_app.command("table")
def import_table(
    labels: Annotated[Path, typer.Argument(help="CSV, Parquet or Label Studio JSON.")],
    work: WorkOption,
    clips: Annotated[
        Path | None, typer.Option(help="Table of clips, where labels do not say it all.")
    ] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    audio: Annotated[Path | None, typer.Option(help="Folder that audio paths start at.")] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Folder of CLIP.npy, or one .npy: frames from elsewhere.")
    ] = None,
    deal_splits: Annotated[
        bool, typer.Option("--deal-splits", help="Into train, tune and eval, 80 : 10 : 10.")
    ] = False,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in any dataset given as tables; guessed columns are shown."""
    from earmark import datasets
    from earmark.runs import Display

    reading = reading_of(column, separator, zeros)
    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_table(
            clips,
            labels,
            work,
            columns=reading.columns,
            separator=reading.separator,
            zeros=reading.zeros,
            audio=audio,
            embeddings=embeddings,
            require_sound=embeddings is None,
            deal_splits=deal_splits,
            replace=replace,
            progress=progress,
        )
    _tell_import(summary, before, as_json, details)


@import_app.command("sounds")
def import_sounds(
    sounds: Annotated[Path, typer.Argument(help="Folder of sound, or one sound file.")],
    work: WorkOption,
    labels: Annotated[
        Path | None,
        typer.Argument(help="CSV, Parquet or Label Studio JSON; without it, the folders' names."),
    ] = None,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    classes: ClassesOption = None,
    clip_seconds: Annotated[
        float | None, typer.Option(help="Cut longer recordings into clips of so many seconds.")
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in a folder of sound with labels of any form; each recording becomes a clip."""
    from earmark import datasets
    from earmark.runs import Display

    reading = reading_of(column, separator, zeros)
    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_sounds(
            sounds,
            labels,
            work,
            columns=reading.columns,
            separator=reading.separator,
            zeros=reading.zeros,
            classes=classes,
            clip_seconds=clip_seconds,
            replace=replace,
            progress=progress,
        )
    _tell_import(summary, before, as_json, details)


@import_app.command("mixtures")
def import_mixtures(
    sounds: Annotated[Path, typer.Argument(help="Folder of recordings, or a workspace of them.")],
    work: WorkOption,
    labels: Annotated[
        Path | None, typer.Argument(help="Their classes; without it, the folders' names.")
    ] = None,
    n_clips: Annotated[int, typer.Option("--clips", min=1, help="Clips to make.")] = 6_000,
    clip_seconds: Annotated[float, typer.Option(help="Length of a clip.")] = 5.0,
    shortest: Annotated[
        float, typer.Option("--shortest-sound", help="Seconds that a sound lasts at least.")
    ] = 1.0,
    most: Annotated[int, typer.Option("--max-sounds", min=1, help="Sounds in a clip.")] = 4,
    recall: Annotated[
        str, typer.Option(help="Lowest and highest chance, over classes, that a label is given.")
    ] = "0.3,0.9",
    faint_slope: Annotated[
        float, typer.Option(help="Fall of its log-odds per decibel below the mean level.")
    ] = 0.0,
    groups: Annotated[
        int, typer.Option(min=3, help="Parts that recordings are dealt to; no clip mixes two.")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes other clips.")] = 0,
    column: ColumnOption = None,
    workers: Workers = None,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Mix recordings of one class each into clips with known truth, and hide labels."""
    from earmark import stages
    from earmark.runs import HidingParams, MixtureParams

    params = MixtureParams.checked(
        n_clips=n_clips,
        clip_seconds=clip_seconds,
        shortest_sound_seconds=shortest,
        max_sounds=most,
        faint_slope_per_db=faint_slope,
        n_groups=groups,
        seed=seed,
    )
    hiding = HidingParams.checked(recall_range=numbers("--recall", recall), seed=seed)
    before = _stamp(work)
    columns = reading_of(column, None, "implicit").columns
    engine = chosen_engine(workers)
    summary = stages.make_mixtures(
        sounds, labels, work, params, hiding, columns=columns, engine=engine
    )
    _tell_import(summary, before, as_json, details)


@import_app.command("hf")
def import_hugging_face(
    root: Annotated[
        Path, typer.Argument(help="Folder, or one Parquet or Arrow file.", metavar="PATH")
    ],
    work: WorkOption,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    classes: ClassesOption = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Bring in a dataset of Hugging Face: saved to disk, Parquet, or a folder of sound."""
    from earmark import datasets
    from earmark.runs import Display

    reading = reading_of(column, separator, zeros)
    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_hugging_face(
            root,
            work,
            columns=reading.columns,
            separator=reading.separator,
            zeros=reading.zeros,
            classes=classes,
            replace=replace,
            progress=progress,
        )
    _tell_import(summary, before, as_json)


@import_app.command("webdataset")
def import_webdataset(
    shards: Annotated[
        list[str],
        typer.Argument(help="Tars, folders of them, or a range: 'x-{000..009}.tar'."),
    ],
    work: WorkOption,
    column: ColumnOption = None,
    separator: SeparatorOption = None,
    zeros: ZerosOption = "implicit",
    classes: ClassesOption = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Bring in WebDataset tars: sound, with labels as .json, .cls or .txt beside it."""
    from earmark import datasets
    from earmark.runs import Display

    reading = reading_of(column, separator, zeros)
    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_webdataset(
            shards,
            work,
            columns=reading.columns,
            separator=reading.separator,
            zeros=reading.zeros,
            classes=classes,
            replace=replace,
            progress=progress,
        )
    _tell_import(summary, before, as_json)


@import_app.command("audioset")
def import_audioset(
    root: Root,
    work: WorkOption,
    audio: Annotated[Path | None, typer.Option(help="Where the audio is, if not in ROOT.")] = None,
    ratings: Annotated[
        Path | None, typer.Option(help="Table of human ratings: brings explicit negatives.")
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in AudioSet's official lists, with whatever of the audio is there."""
    from earmark import datasets
    from earmark.runs import Display

    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_audioset(
            root, work, audio=audio, ratings=ratings, replace=replace, progress=progress
        )
    _tell_import(summary, before, as_json, details)


@import_app.command("audioset-features")
def import_audioset_features(
    root: Root,
    work: WorkOption,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in AudioSet's official VGGish embeddings, from the folder or the tar."""
    from earmark import datasets
    from earmark.runs import Display

    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_audioset_features(root, work, replace=replace, progress=progress)
    _tell_import(summary, before, as_json, details)


@import_app.command("fsd50k")
def import_fsd50k(
    root: Root,
    work: WorkOption,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in FSD50K with its votes: agreed answers become explicit labels."""
    from earmark import datasets
    from earmark.runs import Display

    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_fsd50k(root, work, replace=replace, progress=progress)
    _tell_import(summary, before, as_json, details)


@import_app.command("openmic")
def import_openmic(
    root: Root,
    work: WorkOption,
    replace: Replace = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Bring in OpenMIC-2018: masked-in labels are explicit, its VGGish features the frames."""
    from earmark import datasets
    from earmark.runs import Display

    before = _stamp(work)
    with Display() as progress:
        summary = datasets.import_openmic(root, work, replace=replace, progress=progress)
    _tell_import(summary, before, as_json, details)


def _stamp(work: Path) -> dict[str, str] | None:
    """Return what identifies the dataset that is there before an import; None without one."""
    from earmark.datasets import Workspace, stamp_of

    workspace = Workspace(work)
    return stamp_of(workspace) if workspace.has_dataset() else None


def _tell_import(
    summary: Any, before: dict[str, str] | None, as_json: bool, details: bool | None = None
) -> None:
    """Print what an import found, and what was made of another dataset before."""
    from earmark.datasets import find_stale, quarantine_told, stamp_of

    workspace = summary.workspace
    is_new = stamp_of(workspace) != before
    stale = find_stale(workspace)
    listed, splits, *notes = summary.lines()
    told = [f"{listed} ({splits})"]
    if not is_new:
        told.append("the workspace held this very dataset already: nothing was changed")
    counts = {"listed": summary.n_listed, "found": summary.n_found, "missing": summary.n_missing}
    facts = {**counts, "is_new": is_new, "notes": list(summary.notes), "stale": stale_facts(stale)}
    tell(
        as_json,
        next_command=after_import(workspace),
        told=told,
        more=[*stale_told(stale), *notes, *quarantine_told(workspace)],
        details=details,
        wrote=workspace.root,
        **(facts if as_json else {}),
    )
