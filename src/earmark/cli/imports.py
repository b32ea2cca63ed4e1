"""The verbs of ``earmark import``: one for each kind of dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.commands import Call, Command, offers
from earmark.cli.options import (
    AsJson,
    ColumnOption,
    Details,
    Workers,
    WorkOption,
    after_import,
    chosen_engine,
    reading_of,
    stale_facts,
    stale_told,
    tell,
)
from earmark.cli.verbs import Verbs
from earmark.options import read_numbers

import_app = typer.Typer(cls=Verbs, help="Bring a dataset into a workspace.", no_args_is_help=True)


@import_app.command("scenes")
@offers("pipeline.make_dataset")
def import_scenes(call: Call, as_json: AsJson = False) -> None:
    """Make synthetic sound scenes with known truth, and hide labels as nomination does."""
    from earmark import datasets

    workspace = call()
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
    tell(as_json, following, more=stale_told(stale), **summary, wrote=call["work"])


@import_app.command("table")
@offers("datasets.import_table")
def import_table(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Bring in any dataset given as tables; guessed columns are shown."""
    before = _stamp(call["work"])
    _tell_import(call(require_sound=call["embeddings"] is None), before, as_json, details)


@import_app.command("workspace")
@offers("datasets.import_workspace")
def import_workspace(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Make a workspace of another one: other splits, fewer train clips, labels hidden."""
    work = call["work"] or call["source"]
    before = _stamp(work)
    _tell_import(call(work=work), before, as_json, details)


def _importer(name: str, work: str, sentence: str) -> None:
    """Add the command of an importer that needs nothing of its own."""

    def prints(call: Call, as_json: AsJson = False, details: Details = False) -> None:
        before = _stamp(call["work"])
        _tell_import(call(), before, as_json, details)

    prints.__doc__ = sentence
    import_app.command(name)(Command(prints, [work]))


_importer(
    "sounds",
    "datasets.import_sounds",
    "Bring in a folder of sound with labels of any form; each recording becomes a clip.",
)
_importer(
    "hf",
    "datasets.import_hugging_face",
    "Bring in a dataset of Hugging Face: saved to disk, or Parquet.",
)
_importer(
    "webdataset",
    "datasets.import_webdataset",
    "Bring in WebDataset tars: sound, with labels as .json or .cls beside it.",
)
_importer(
    "audioset",
    "datasets.import_audioset",
    "Bring in AudioSet's official lists, with whatever of the audio is there.",
)
_importer(
    "audioset-features",
    "datasets.import_audioset_features",
    "Bring in AudioSet's official VGGish embeddings, from the folder or the tar.",
)
_importer(
    "fsd50k",
    "datasets.import_fsd50k",
    "Bring in FSD50K with its votes: agreed answers become explicit labels.",
)


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
    from earmark import pipeline
    from earmark.config import HidingParams, MixtureParams

    params = MixtureParams.checked(
        n_clips=n_clips,
        clip_seconds=clip_seconds,
        shortest_sound_seconds=shortest,
        max_sounds=most,
        faint_slope_per_db=faint_slope,
        n_groups=groups,
        seed=seed,
    )
    hiding = HidingParams.checked(recall_range=read_numbers(recall), seed=seed)
    before = _stamp(work)
    columns = reading_of(column, None, "implicit").columns
    engine = chosen_engine(workers)
    summary = pipeline.make_mixtures(
        sounds, labels, work, params, hiding, columns=columns, engine=engine
    )
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
