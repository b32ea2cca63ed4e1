"""The commands of pretrained teachers: ``find`` and ``teachers``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, CommandGroup, Details, offers
from earmark.cli.printing import tell
from earmark.cli.review import open_page
from earmark.errors import quoted

if TYPE_CHECKING:
    from earmark.pipeline import FoundMissing, Taught

teachers_app = typer.Typer(
    name="teachers",
    cls=CommandGroup,
    help="List pretrained networks, and bring their weights onto this machine.",
    invoke_without_command=True,
)


@offers("pipeline.find")
def find(
    call: Call,
    no_review: Annotated[
        bool, typer.Option("--no-review", help="Stop before the listening page.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of the page; 0: any.")] = 8321,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    as_json: AsJson = False,
    details: Details = False,
) -> None:
    """Find missing labels in a folder of sound, and listen to them."""
    found = call()
    root, is_worth_hearing = found.workspace.root, found.is_worth_hearing
    if as_json:
        _tell_as_json(found)
        return
    warnings = [f"warning: {each}" for each in found.flagged.findings.warnings]
    *how_good, missing = found.lines()
    told: dict[str, Any] = {
        "told": [missing, *found.advice()],
        "more": [*reversed(how_good), *warnings, *found.read_told()],
        "details": details,
    }
    if no_review or not is_worth_hearing:
        tell(False, next_command=_after(found), **told, wrote=root)
        return
    open_page(root, port=port, no_open=no_open, before=told)


def _after(found: FoundMissing) -> str:
    verb = "review" if found.is_worth_hearing else "report"
    return f"earmark {verb} {quoted(found.workspace.root)}"


def _tell_as_json(found: FoundMissing) -> None:
    tell(
        True,
        next_command=_after(found),
        wrote=found.workspace.root,
        clips=len(found.workspace.clips),
        flags=found.flagged.findings.n_flags,
        notes=found.read_told(),
        warnings=list(found.flagged.findings.warnings),
        **told_of_teacher(found.taught, True),
    )


@teachers_app.callback()
def teachers(context: typer.Context, as_json: AsJson = False) -> None:
    """List the pretrained networks that earmark knows by name, and whether they are here."""
    if context.invoked_subcommand is not None:
        return
    from earmark.models.pretrained import CATALOGUE, kept_teachers, teachers_folder

    kept = {one.teacher.name: one for one in reversed(kept_teachers())}
    if as_json:
        here = {name: str(one.path) for name, one in kept.items()}
        tell(True, folder=teachers_folder(), known=[one.name for one in CATALOGUE], here=here)
        return
    told = []
    for one in CATALOGUE:
        own = kept.get(one.name)
        where = "not on this machine" if own is None else f"{own.file.what}: {own.path}"
        told += [f"{one.name}: {one.what} ({one.licence})", f"  {where}"]
    others = "Any other network is given as it is: --teacher FILE (ONNX, TFLite, Hugging Face)."
    missing = [one.name for one in CATALOGUE if one.name not in kept]
    following = (
        f"earmark teachers get {quoted(missing[0])}" if missing else "earmark find SOUNDS LABELS"
    )
    tell(False, following, told=told, more=[others])


@teachers_app.command()
def add(
    file: Annotated[Path, typer.Argument(help="Weights as published, such as yamnet.h5.")],
    as_json: AsJson = False,
) -> None:
    """Keep a file of weights that you have, if its hash is the published one's."""
    from earmark.models.pretrained import add_teacher

    kept = add_teacher(file)
    following = "earmark find SOUNDS LABELS"
    tell(as_json, following, teacher=kept.teacher.name, kind=kept.file.what, wrote=kept.path)


@teachers_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name that `earmark teachers` lists.")],
    as_json: AsJson = False,
) -> None:
    """Download a teacher's weights from where its authors publish them, by hash."""
    from earmark.compute import Display
    from earmark.models.pretrained import get_teacher

    with Display() as progress:
        kept = get_teacher(name, progress)
    following = "earmark find SOUNDS LABELS"
    tell(as_json, following, teacher=kept.teacher.name, kind=kept.file.what, wrote=kept.path)


def told_of_teacher(taught: Taught, as_json: bool) -> dict[str, Any]:
    """Say how a pretrained network taught, or return it for programs."""
    if not as_json:
        known = taught.classes_told
        classes = [f"{known[:1].upper()}{known[1:]}."] if known else []
        return {
            "told": [*taught.lines(), *taught.advice()],
            "more": classes,
            "clips": len(taught.scores.clip_ids),
            "wrote": taught.scores.folder,
        }
    return {
        "scores": taught.scores.folder,
        "teacher": taught.name,
        "way": taught.way,
        "auc": _known(taught.best.auc),
        "expected_right_of_first": taught.strength.expected_right,
        "is_weak": taught.strength.is_weak,
        "out_of_fold": taught.scores.out_of_fold,
        "tried": {
            one.way: {"auc": _known(one.auc), "hits": _known(one.hits)} for one in taught.tried
        },
        "classes": taught.classes_told,
    }


def _known(number: float) -> float | None:
    """Return None for NaN, which JSON does not know."""
    return None if math.isnan(number) else number
