"""The commands of networks: ``train``, ``score`` and ``tag``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from earmark.cli.commands import AsJson, Call, Details, offers
from earmark.cli.printing import tell, wrapped
from earmark.cli.teachers import told_of_teacher
from earmark.errors import first_few, quoted

if TYPE_CHECKING:
    from earmark.pipeline import ScoredByFile, TaggedFile
    from earmark.scores import ScoreFolder


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
            facts = told_of_teacher(
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
    top, out = call["n_drawn"], call["out"]
    unreadable, heard_files = [], []
    for heard in call():
        if heard.tags is None:
            unreadable.append({"audio": str(heard.path), "reason": heard.reason})
            lines = wrapped(f"earmark: {heard.path}: {heard.reason}; skipped")
            print("\n".join(lines), file=sys.stderr)
            continue
        heard_files.append(_told_of_file(heard, top))
    if as_json:
        tell(as_json, files=heard_files, unreadable=unreadable)
    else:
        told = [_tags_told(one) for one in heard_files]
        if len(heard_files) == 1:
            told = _lines_of_tags(heard_files[0])
        tell(False, more=told, details=details, pictures=out if told else None)
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


def _told_of_file(heard: TaggedFile, top: int) -> dict[str, Any]:
    assert heard.tags is not None
    return {
        "audio": str(heard.path),
        "seconds": heard.tags.seconds,
        "timeline": str(heard.picture),
        "tags": [vars(one) for one in heard.tags.top(top)],
    }


def _lines_of_tags(told: dict[str, Any]) -> list[str]:
    """Say what was heard in one file, class by class."""
    return [
        f"{told['audio']} ({told['seconds']:.1f} s)",
        *(
            f"  {one['score']:.3f}  {one['name']}  (best at {one['best_seconds']:.1f} s)"
            for one in told["tags"]
        ),
        f"  timeline: {told['timeline']}",
    ]


def _tags_told(told: dict[str, Any]) -> str:
    """Say what was heard in one of several files, in a sentence."""
    heard = ", ".join(f"{one['name']} {one['score']:.2f}" for one in told["tags"])
    return f"{told['audio']} ({told['seconds']:.1f} s): {heard}"
