"""Judged samples to chances: how likely a flag of a class and band is a missing label.

The estimate from scores alone (:mod:`earmark.flags.counts`) assumes that labels go missing at
random; ears do not. A class's answers are few, so its chances borrow from the curve of all
classes, and fall from band to band as the score does.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from earmark.datasets import PAIR, Workspace
from earmark.errors import EarmarkError
from earmark.flags import FLAG_SCHEMA, flag, thresholds
from earmark.labels import LabelSet
from earmark.review.flag_precision import tally
from earmark.review.judgements import JudgementStore, combine_votes
from earmark.review.queue import Queue, read_queue
from earmark.runs import read_json, read_table
from earmark.scores import ScoresLike, open_scores

_POOLED_JUDGEMENTS = 5.0
"""How many judgements of all classes' curve the chance in a class's cell borrows."""

Floats = NDArray[np.float64]


def calibrated_chance(
    queue: Queue, judgements: pl.DataFrame, n_borrowed: float = _POOLED_JUDGEMENTS
) -> pl.DataFrame:
    """Estimate the chance that a label is missing, for each class and band of a queue.

    ``judgements`` are a store's current ones; unsure counts half. The curve of all classes is
    isotonic over bands, and so is a class's own after borrowing ``n_borrowed`` judgements from it
    in each band; a class that nobody judged gets the curve itself. Returns the cells of the queue
    in order: class_id, band_low, band_high, is_flagged, n_labels, n_judged, chance.
    """
    cells = tally(queue, judgements)
    if not cells["n_judged"].sum():
        raise EarmarkError("no flag of this queue was judged yet; listen with `earmark review`")
    n_bands = cells["band_high"].n_unique()
    n_judged, n_yes = (
        values.to_numpy().astype(np.float64).reshape(-1, n_bands)  # [class, band]
        for values in (cells["n_judged"], cells["n_present"] + cells["n_unsure"] / 2)
    )
    pooled = _pooled_curve(n_yes.sum(axis=0), n_judged.sum(axis=0))
    weights = n_judged + n_borrowed
    shrunk = (n_yes + n_borrowed * pooled) / weights
    chances = [
        isotonic_regression(own, weights=weight, increasing=False).x
        for own, weight in zip(shrunk, weights, strict=True)
    ]
    columns = ["class_id", "band_low", "band_high", "is_flagged", "n_labels", "n_judged"]
    return cells.select(columns).with_columns(chance=pl.Series(np.concatenate(chances)))


def read_calibration(workspace: Workspace) -> pl.DataFrame | None:
    """Calibrate by the workspace's own review; None where no flag of the whole was judged.

    A queue of held-out clips alone (``earmark queue --held-out``) tells nothing of the others, and
    one of the likeliest labels first is no sample of a band.
    """
    if not workspace.judgements_path.exists():
        return None
    queue = read_queue(workspace)
    if queue.order != "random":
        return None
    heard = workspace.clips.join(queue.items, on="clip_id", how="semi")
    if (heard["split"] != "train").all():
        return None
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        judgements = store.current()
    is_judged = tally(queue, judgements)["n_judged"].sum() > 0
    return calibrated_chance(queue, judgements) if is_judged else None


def told_by_ear(workspace: Workspace, policy: str | None) -> str | None:
    """Say what raters heard of flags, to whoever reads chances by the scores alone.

    Heard flags are labels that were given as implicit, but for those that a queue drew from below
    its flags. None where nobody heard one.
    """
    if not workspace.judgements_path.exists():
        return None
    with JudgementStore(workspace.judgements_path, must_exist=True) as store:
        votes = combine_votes(store.current(), PAIR).filter(pl.col("answer") != "cannot_play")
    heard = votes.join(workspace.clips, on="clip_id", how="semi")
    heard = heard.join(workspace.labels.rows(), on=PAIR, how="anti")
    has_queue = workspace.queue_seal_path.exists()
    if has_queue:
        below = read_table(workspace.queue_path).filter(kind="unflagged")
        heard = heard.join(below, on=PAIR, how="anti")
    if heard.is_empty():
        return None
    is_sample = has_queue and read_json(workspace.queue_seal_path).get("order") != "likeliest"
    advice = "; --policy precision goes by ear" if is_sample and policy != "precision" else ""
    n_right = (heard["answer"] == "present").sum()
    return (
        f"by ear {n_right:,} of {len(heard):,} heard flags were right; "
        f"chances here are by the scores alone{advice}"
    )


def _pooled_curve(n_yes: Floats, n_judged: Floats) -> Floats:
    """Return the falling curve of all classes [band]; bands without answers lie between others."""
    heard = np.flatnonzero(n_judged)
    weights = n_judged[heard]
    fitted = isotonic_regression(n_yes[heard] / weights, weights=weights, increasing=False).x
    return np.asarray(np.interp(np.arange(len(n_judged)), heard, fitted))


def deepest_percents(calibrated: pl.DataFrame, target: float) -> pl.DataFrame:
    """Return how deep each class may be flagged while a flag's chance is at least the target.

    ``calibrated`` is a :func:`calibrated_chance`. Columns: class_id, discard_percent (the end of
    the last flagged band whose chance reaches the target; 0 if none does).
    """
    if not 0 < target < 1:
        raise EarmarkError(f"target lies between 0 and 1, got {target}")
    is_likely = pl.col("is_flagged") & (pl.col("chance") >= target)
    depth = pl.col("band_high").filter(is_likely).max().fill_null(0.0)
    return calibrated.group_by("class_id", maintain_order=True).agg(discard_percent=depth)


def flag_by_judgements(
    labels: LabelSet, logits: ScoresLike, calibrated: pl.DataFrame, target: float = 0.5
) -> pl.DataFrame:
    """Flag down to where the judged chance of a missing label falls below a target.

    The same columns as :func:`earmark.flag`; ``chance`` is that of the flag's class and band.
    Classes that are not in ``calibrated`` have no flags.
    """
    depths = dict(deepest_percents(calibrated, target).rows())
    wanted = np.array([depths.get(class_id, 0.0) for class_id in labels.class_ids])
    points = sorted(set(calibrated.filter("is_flagged")["band_high"]))
    scores = open_scores(logits, labels)
    n_ignored = thresholds(labels, scores, points).n_ignored  # [point, class]
    deepest = max(float(wanted.max(initial=0)), points[0])
    flags = flag(labels, scores, discard_percent=deepest, with_chance=False)
    place = {class_id: column for column, class_id in enumerate(labels.class_ids)}
    columns = flags["class_id"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
    # The first operating point that reaches a flag's rank ends the band that it lies in.
    bands = (flags["rank"].to_numpy() > n_ignored[:, columns]).sum(axis=0)
    band_high = np.array([*points, 100.0])[bands]
    chosen = flags.drop("chance").with_columns(band_high=pl.Series(band_high))
    chosen = chosen.filter(pl.Series(band_high <= wanted[columns]))
    chances = calibrated.select("class_id", "band_high", "chance")
    flags = chosen.join(chances, on=["class_id", "band_high"], maintain_order="left")
    return flags.select(FLAG_SCHEMA.keys()).cast(pl.Schema(FLAG_SCHEMA))
