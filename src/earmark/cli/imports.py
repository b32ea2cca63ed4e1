"""The commands of ``earmark import``: one for each kind of dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from earmark.cli.commands import AsJson, Call, Command, CommandGroup, Details, offers
from earmark.cli.printing import tell
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.datasets import Stale, Workspace

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
