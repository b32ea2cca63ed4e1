"""The commands of networks: ``train``, ``score``, ``tag``, ``evaluate`` and ``teachers``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.commands import AsJson, Call, CommandGroup, Details, offers
from earmark.cli.printing import table_lines, tell, wrapped
from earmark.errors import first_few, quoted

if TYPE_CHECKING:
    from earmark.pipeline import ScoredByFile, TaggedFile, Taught
    from earmark.scores import ScoreFolder

teachers_app = typer.Typer(
    name="teachers",
    cls=CommandGroup,
    help="List pretrained networks, and bring their weights onto this machine.",
    invoke_without_command=True,
)


@offers("pipeline.train_teacher")
def train(call: Call, as_json: AsJson = False) -> None:
    """Train the recipe's network on the whole train split, for tagging.

    On several GPUs or cores: torchrun --nproc-per-node N -m earmark train WORK
    """
    trained = call()
    if trained.is_first:
        tell(as_json, f"earmark score {quoted(call['work'])}", wrote=trained.folder)


@offers("pipeline.teach", "pipeline.score", "pipeline.score_by_file")
def score(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Score all clips with a teacher, or bring your own scores."""
    from earmark import pipeline

    work = call["work"]
    if call["path"] is not None:
        facts = _told_of_own(call("score_by_file", because="--from"), as_json)
    elif call["in_sample"]:
        facts = _told_of_trained(work, call("score", because="--in-sample"), as_json)
    else:
        named = {name: call[name] for name in ("recipe", "teacher", "way")}
        recipe = pipeline.choose_teacher(work, **named, **call.fields("network"))
        if recipe.pretrained is None:
            scores = call("score", because="a teacher that is trained here")
            facts = _told_of_trained(work, scores, as_json)
        else:
            facts = describe_teacher(
                call("teach", because="a pretrained teacher", recipe=recipe), as_json
            )
    tell(as_json, f"earmark flag {quoted(work)}", details=details, **facts)


def _told_of_trained(work: Path, scores: ScoreFolder, as_json: bool) -> dict[str, Any]:
    """Say how good a teacher is that was trained here, and what it scored."""
    from earmark import pipeline
    from earmark.datasets import held_out_scores

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


@offers("pipeline.tag_files")
def tag(call: Call, as_json: AsJson = False, details: Details = False) -> None:
    """Detect classes in sound files of any length."""
    unreadable, tagged_files = [], []
    for tagged in call():
        if tagged.tags is None:
            unreadable.append({"audio": str(tagged.path), "reason": tagged.reason})
            skipped = wrapped(f"earmark: {tagged.path}: {tagged.reason}; skipped")
            print("\n".join(skipped), file=sys.stderr)
            continue
        tagged_files.append(_file_facts(tagged, call["n_top"]))
    wrote = call["out"] if tagged_files else None
    if as_json:
        tell(as_json, files=tagged_files, unreadable=unreadable, wrote=wrote)
    else:
        lines = [_describe_tags(file) for file in tagged_files]
        if len(tagged_files) == 1:
            lines = _tag_lines(tagged_files[0])
        tell(False, more=lines, details=details, wrote=wrote)
    if unreadable:
        raise typer.Exit(1)


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


def _file_facts(tagged: TaggedFile, n_top: int) -> dict[str, Any]:
    assert tagged.tags is not None
    return {
        "audio": str(tagged.path),
        "seconds": tagged.tags.seconds,
        "tags": [vars(tag) for tag in tagged.tags.top(n_top)],
    }


def _tag_lines(file: dict[str, Any]) -> list[str]:
    """List the tags of one file, a line for each class."""
    return [
        f"{file['audio']} ({file['seconds']:.1f} s)",
        *(
            f"  {tag['score']:.3f}  {tag['name']}  (best at {tag['best_seconds']:.1f} s)"
            for tag in file["tags"]
        ),
    ]


def _describe_tags(file: dict[str, Any]) -> str:
    """Name the tags of one of several files in a sentence."""
    tags = ", ".join(f"{tag['name']} {tag['score']:.2f}" for tag in file["tags"])
    return f"{file['audio']} ({file['seconds']:.1f} s): {tags}"


@offers("pipeline.evaluate_scores")
def evaluate(call: Call, as_json: AsJson = False) -> None:
    """Compute d', lwlrap and average precision of scores."""
    from earmark.report import METRIC_NAMES

    result = call()
    if as_json:
        known = {name: None if math.isnan(v) else v for name, v in result.overall.items()}
        print(json.dumps(known))
        return
    shown = [name for name in METRIC_NAMES if name in result.overall]
    rows = [
        [METRIC_NAMES.get(name, name), "-" if math.isnan(value) else f"{value:.3f}"]
        for name, value in ((name, result.overall[name]) for name in shown)
    ]
    unknown = "A dash: no class has both positives and negatives to measure by."
    has_unknown = any(row[1] == "-" for row in rows)
    table = table_lines(["metric", "value"], rows)
    tell(False, table=table, more=[unknown] if has_unknown else [])


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


def describe_teacher(taught: Taught, as_json: bool) -> dict[str, Any]:
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
        "expected_right_of_first": taught.expected_right_of_first,
        "is_weak": taught.is_weak,
        "out_of_fold": taught.scores.out_of_fold,
        "tried": {
            one.way: {"auc": _known(one.auc), "hits": _known(one.hits)} for one in taught.tried
        },
        "classes": taught.classes_told,
    }


def _known(number: float) -> float | None:
    """Return None for NaN, which JSON does not know."""
    return None if math.isnan(number) else number
