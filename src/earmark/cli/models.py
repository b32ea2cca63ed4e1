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
