"""Flags of a workspace: written, held against the truth where it is known, and exported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from earmark.datasets import NamedLabels, Workspace, read_labels
from earmark.errors import EarmarkError
from earmark.flags import (
    Thresholds,
    flag,
    judge_flags,
    made_from,
    stored_thresholds,
    survey,
    thresholds,
    write_flag_folder,
)
from earmark.labels import LabelSet
from earmark.review import flag_by_judgements, read_calibration, without_cleared
from earmark.runs import Engine, is_finished, read_seal, read_table, write_table
from earmark.scores import ScoreFolder, ScoresLike, scored_labels
from earmark.stages.opening import RecipeLike, Scored, WorkLike, open_scored

FLAG_POLICIES = ("percentile", "precision")
"""How the flags of a workspace are chosen: the paper's per cent, or a least chance."""

DEFAULT_PERCENT = 1.0


@dataclass(frozen=True)
class Flagged:
    """The flags of a workspace, and the file that holds them."""

    path: Path
    flags: pl.DataFrame


@dataclass(frozen=True)
class Exported:
    """A label set written out for other programs: clip_id, class_id, state."""

    path: Path
    n_rows: int
    n_ignored: int


def write_flags(
    work: WorkLike,
    recipe: RecipeLike = None,
    *,
    policy: str = "percentile",
    discard_percent: float = DEFAULT_PERCENT,
    target: float = 0.5,
    labels: str = "given",
    engine: Engine | None = None,
) -> Flagged:
    """Write the thresholds of the paper's 18 points, and the flags of one point.

    The thresholds are those of the train split, which students go by; the flags are those of every
    scored clip of every split.

    The policy ``precision`` takes flags of at least the chance ``target`` instead: as judged by
    ear where there are judgements, as estimated from the scores where there are none. ``labels``
    names the label set; what raters cleared in a corrected one is not flagged again. With an
    ``engine`` the passes over the scores are its tasks, a shard each.
    """
    if policy not in FLAG_POLICIES:
        raise EarmarkError(f"the policy is {' or '.join(FLAG_POLICIES)}, got {policy!r}")
    scored = open_scored(work, recipe)
    workspace, whole = scored.workspace, scored.whole
    known = _known(scored, labels)
    logits = whole.logits if engine is None else whole.logits_path  # shards are parts of a file
    found = survey(known.labels, logits, discard_percent=discard_percent, engine=engine)
    flags = found.flags
    if policy == "precision":
        flags = _flags_of_chance(workspace, logits, known.labels, target, engine)
    if known.rulings is not None:
        flags = without_cleared(flags, known.rulings)
    flags = with_splits(workspace, flags)
    chosen = {
        "policy": policy,
        "discard_percent": discard_percent,
        "target": target if policy == "precision" else None,
        "scores": scored.scores.folder.name,
    }
    write_flag_folder(
        workspace.flags_folder,
        *_train_thresholds(scored, labels, found.thresholds, engine),
        flags,
        made_from(known.labels, whole.digest),
        {"labels": labels, **chosen},
    )
    return Flagged(workspace.flags_path, flags)


def with_splits(workspace: Workspace, flags: pl.DataFrame) -> pl.DataFrame:
    """Add the split of each flag's clip."""
    splits = workspace.clips.select("clip_id", "split")
    return flags.join(splits, on="clip_id", how="left", maintain_order="left")


def _train_thresholds(
    scored: Scored, name: str, of_whole: Thresholds, engine: Engine | None
) -> tuple[LabelSet, str, Thresholds]:
    """Return labels, scores' digest and thresholds of the train split: what students go by."""
    scores = scored.scores
    labels = scored_labels(scores, read_labels(scored.workspace, name).labels)
    if scored.whole is scores:
        return labels, scores.digest, of_whole
    logits = scores.logits if engine is None else scores.logits_path
    return labels, scores.digest, thresholds(labels, logits, engine=engine)


def judged_flags(workspace: Workspace, scores: ScoreFolder) -> pl.DataFrame | None:
    """Hold the flags of all 18 points against the truth, where it is known."""
    if workspace.truth is None:
        return None
    labels, truth = scored_labels(scores, workspace.labels), scored_labels(scores, workspace.truth)
    points = stored_thresholds(workspace.flags_folder, labels, scores.logits, scores.digest)
    return judge_flags(labels, truth, scores.logits, points)


def export_labels(
    work: WorkLike,
    path: str | Path,
    recipe: RecipeLike = None,
    *,
    discard_percent: float | None = None,
    labels: str | None = None,
) -> Exported:
    """Write a label set for other programs: explicit labels, and flagged ones as ignored.

    The flags are those that :func:`write_flags` wrote last; a ``discard_percent`` asks for the
    paper's flags at that point instead. The state is present, not_present or ignored; labels that
    are not listed are negatives. Of corrected ``labels`` those that raters could not settle are
    ignored as well, and those that they cleared are not.
    """
    scored = open_scored(work, recipe)
    written = None if discard_percent is not None else _read_seal(scored.workspace)
    name = labels or (written or {}).get("labels") or "given"
    known = _known(scored, name)
    if written is None:
        percent = DEFAULT_PERCENT if discard_percent is None else discard_percent
        ignored = flag(
            known.labels, scored.whole.logits, discard_percent=percent, with_chance=False
        )
    else:
        ignored = _written_flags(scored, written, known, name)
    if known.rulings is not None:
        ignored = without_cleared(ignored, known.rulings)  # raters may have gone on since
        unsettled = known.rulings.rows().filter("present")
        ignored = pl.concat([ignored, unsettled], how="diagonal")
    table = _exported_table(read_labels(scored.workspace, name).labels, ignored)
    write_table(Path(path), table)
    return Exported(Path(path), len(table), int((table["state"] == "ignored").sum()))


def _known(scored: Scored, name: str) -> NamedLabels:
    """Return the labels of the scored clips by name, with what raters ruled beyond them."""
    named = read_labels(scored.workspace, name)
    return NamedLabels(scored_labels(scored.whole, named.labels), named.rulings)


def _flags_of_chance(
    workspace: Workspace,
    logits: ScoresLike,
    labels: LabelSet,
    target: float,
    engine: Engine | None,
) -> pl.DataFrame:
    judged = read_calibration(workspace)
    if judged is None:
        return flag(labels, logits, policy="precision", target=target, engine=engine)
    return flag_by_judgements(labels, logits, judged, target)


def _read_seal(workspace: Workspace) -> dict[str, Any] | None:
    folder = workspace.flags_folder
    return read_seal(folder) if is_finished(folder) else None


def _written_flags(
    scored: Scored, written: dict[str, Any], known: NamedLabels, name: str
) -> pl.DataFrame:
    """Read the flags that are there; refuse those of other labels or scores."""
    path = scored.workspace.flags_path
    wanted = made_from(known.labels, scored.whole.digest)
    if written.get("flags_digest") != wanted or written["labels"] != name:
        raise EarmarkError(
            f"{path}: these flags are of labels {written['labels']!r} or scores that have changed "
            "since; run `earmark flag` again, or give a discard percent"
        )
    return read_table(path)


def _exported_table(labels: LabelSet, ignored: pl.DataFrame) -> pl.DataFrame:
    state = pl.when("present").then(pl.lit("present")).otherwise(pl.lit("not_present"))
    explicit = labels.rows().select("clip_id", "class_id", state=state)
    masked = ignored.select("clip_id", "class_id", state=pl.lit("ignored")).unique()
    return pl.concat([explicit, masked]).sort("clip_id", "class_id")
