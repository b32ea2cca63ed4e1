"""The commands of a dataset: ``import``, ``features`` and ``export``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, Command, CommandGroup, Details, offers, one_of
from earmark.cli.printing import tell
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.datasets import HubExport, Stale, Workspace
    from earmark.pipeline import Exported, ExportedModel

import_app = typer.Typer(
    name="import",
    cls=CommandGroup,
    help="Bring a dataset into a workspace.",
    no_args_is_help=True,
)


@offers("pipeline.make_dataset")
def scenes(call: Call, as_json: AsJson = False) -> None:
    """Make synthetic sound scenes with known truth, and hide labels as nomination does."""
    from earmark.datasets import find_stale

    workspace = call()
    labels, stale = workspace.labels, find_stale(workspace)
    facts: dict[str, Any] = {
        "clips": labels.n_clips,
        "classes": labels.n_classes,
        "explicit": len(labels.present),
    }
    if as_json:
        facts["stale"] = _stale_facts(stale)
    following, outdated = _next_command(workspace), _stale_lines(stale)
    tell(as_json, following, more=outdated, **facts, wrote=call["work"])


import_app.command()(scenes.without_options())


def _importer(
    name: str, work: str, help_text: str, options: Callable[[Call], dict[str, Any]] | None = None
) -> None:
    """Add the command of an importer; ``options`` returns what else its function is given."""

    def prints(call: Call, as_json: AsJson = False, details: Details = False) -> None:
        more = options(call) if options else {}
        before = _identify(more.get("work", call["work"]))
        _tell_import(call(**more), before, as_json, details)

    prints.__doc__ = help_text
    command = Command(prints, [work])
    import_app.command(name)(command.without_options())


def _identify(work: Path) -> dict[str, str] | None:
    """Return what identifies the dataset that is there before an import; None without one."""
    from earmark.datasets import Workspace, stamp_of

    workspace = Workspace(work)
    return stamp_of(workspace) if workspace.has_dataset() else None


def _tell_import(summary: Any, before: dict[str, str] | None, as_json: bool, details: bool) -> None:
    """Print what was imported, and what the workspace holds of another dataset."""
    from earmark.datasets import find_stale, quarantine_told, stamp_of

    workspace = summary.workspace
    stale = find_stale(workspace)
    listed, splits, *notes = summary.lines()
    told = [f"{listed} ({splits})"]
    is_new = stamp_of(workspace) != before
    if not is_new:
        told.append("the workspace held this very dataset already: nothing was changed")
    facts: dict[str, Any] = {}
    if as_json:
        facts = {
            "listed": summary.n_listed,
            "found": summary.n_found,
            "missing": summary.n_missing,
            "is_new": is_new,
            "notes": list(summary.notes),
            "stale": _stale_facts(stale),
        }
    tell(
        as_json,
        next_command=_next_command(workspace),
        told=told,
        more=[*_stale_lines(stale), *notes, *quarantine_told(workspace)],
        details=details,
        wrote=workspace.root,
        **facts,
    )


def _stale_facts(stale: Sequence[Stale]) -> list[dict[str, str]]:
    return [{"path": str(item.path), "renew": item.command} for item in stale]


def _stale_lines(stale: Sequence[Stale]) -> list[str]:
    return [f"older than the dataset now: {item.path} (`{item.command}`)" for item in stale]


def _next_command(workspace: Workspace) -> str:
    """Return what scores the clips: a teacher, after frames where it needs them, or a file."""
    from earmark import pipeline

    if workspace.has_frames():
        return f"earmark score {quoted(workspace.root)}"
    if not workspace.has_sound():
        return f"earmark score {quoted(workspace.root)} --from scores.npy"
    verb = "score" if pipeline.default_teacher(workspace) else "features"
    return f"earmark {verb} {quoted(workspace.root)}"


_importer(
    "table",
    "datasets.import_table",
    "Bring in any dataset given as tables; guessed columns are shown.",
    lambda call: {"require_sound": call["embeddings"] is None},
)
_importer(
    "workspace",
    "datasets.import_workspace",
    "Make a workspace of another one: other splits, fewer train clips, labels hidden.",
    lambda call: {"work": call["work"] or call["source"]},
)
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
    "Bring in FSD50K: its eval set was labelled exhaustively.",
)
_importer(
    "mixtures",
    "pipeline.make_mixtures",
    "Mix recordings of one class each into clips with known truth, and hide labels.",
)


@offers("pipeline.make_features")
def features(call: Call, as_json: AsJson = False) -> None:
    """Compute log-mel frames of all clips; list files that cannot be read."""
    from earmark import pipeline
    from earmark.datasets import quarantine_told

    made, work = call(), call["work"]
    reasons = quarantine_told(pipeline.open_workspace(work))
    tell(
        as_json,
        next_command=f"earmark score {quoted(work)}",
        more=["Clips without frames:", *reasons] if reasons else [],
        clips=made.n_clips,
        read=len(made.store.clip_ids),
        quarantined=made.n_quarantined,
        wrote=made.store.folder,
        reasons=[line.strip() for line in reasons] if as_json else None,
    )


@offers("pipeline.export_labels", "pipeline.export_hub", "pipeline.export_model")
def export(
    call: Call,
    to: Annotated[
        str,
        typer.Option(help="labels (a table), hf (Hugging Face), or onnx (a trained network)."),
    ] = "labels",
    as_json: AsJson = False,
) -> None:
    """Export labels and flags, or a trained network, for other programs.

    All explicit labels, and flagged ones to ignore.
    """
    name = one_of("--to", to, ("labels", "hf", "onnx"))
    out = call["path"]
    if name == "onnx":
        _tell_model(call("export_model", because="--to onnx"), out, as_json)
    elif name == "hf":
        made, warnings = call("export_hub", because="--to hf")
        _tell_hub(made, warnings, as_json)
    else:
        _tell_labels(call("export_labels", because="--to labels"), out, as_json)


def _tell_model(made: ExportedModel, out: Path, as_json: bool) -> None:
    difference = f"{made.largest_difference:.1e}"
    if as_json:
        tell(True, wrote=out, classes=made.n_classes, largest_difference=difference)
    else:
        told = [f"{made.n_classes:,} classes; it says what torch says, to {difference}."]
        tell(False, told=told, wrote=out)


def _tell_labels(exported: Exported, out: Path, as_json: bool) -> None:
    states = {name: exported.n_of(name) for name in ("present", "not_present", "ignored")}
    clips = {"clips": exported.n_clips, "unscored_clips": exported.n_unscored_clips}
    facts: dict[str, Any] = {"rows": exported.n_rows, **states, **clips, "wrote": out}
    if as_json:
        facts["warnings"] = list(exported.warnings)
    told = "Every explicit label of every split is in it; unscored clips have no flags."
    doubts = [f"warning: {warning}" for warning in exported.warnings]
    tell(as_json, told=[told], more=doubts, **facts)


def _tell_hub(made: HubExport, warnings: Sequence[str], as_json: bool) -> None:
    unread = [f"without sound: {reason}" for reason in made.unread]
    facts: dict[str, Any] = {"clips": made.n_clips, "with_sound": made.n_sounds}
    facts |= {"flags": made.n_flags, "wrote": made.folder}
    if as_json:
        facts["warnings"] = [*warnings, *unread]
    else:
        facts["read it in Python"] = f'datasets.load_dataset("{made.folder}")'
    doubts = [f"warning: {warning}" for warning in (*warnings, *unread)]
    tell(as_json, more=doubts, **facts)
