"""Which labels are the flags that a review speaks of: the page and the terminal mean the same.

They are the flags that ``earmark flag`` wrote, whatever policy chose them, if the queue was drawn
from the same labels and scores; else all labels down to the queue's last operating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from earmark.datasets import Workspace
from earmark.flags import FLAG_SCHEMA
from earmark.review.queues.queue import Queue
from earmark.runs import is_finished, read_seal, read_sealed, seal_path


@dataclass(frozen=True)
class Scope:
    """The flags that are spoken of, in words and as labels.

    ``listed`` (clip_id, class_id, rank) are single flags; without them they are all labels up to
    ``discard_percent`` of each class, and without that all up to the queue's last operating point.
    """

    told: str
    discard_percent: float | None = None
    listed: pl.DataFrame | None = None

    @classmethod
    def up_to(cls, discard_percent: float) -> Scope:
        """Return the flags of one operating point."""
        return cls(f"the top {discard_percent:g} % of each class", discard_percent)


EVERY_BAND = Scope("all labels up to the last operating point")
"""The flags down to the unflagged band."""

LABELS_HEARD = Scope("the labels heard")
"""All that the classes of a queue that learns can speak of."""

DISPUTES_HEARD = Scope("the labels that raters were at odds about")
"""All that an adjudicator's queue can speak of."""


def flags_asked(workspace: Workspace, queue: Queue) -> Scope:
    """Return the flags that the owner of a workspace asked for."""
    if queue.aim in ("find", "train"):
        return LABELS_HEARD
    if queue.aim == "adjudicate":
        return DISPUTES_HEARD
    if not is_finished(workspace.flags_folder):
        return _down_to_the_last(queue, "as `earmark flag` wrote none")
    written = read_seal(workspace.flags_folder)
    if written.get("flags_digest") != queue.population:
        return _down_to_the_last(queue, "as those of `earmark flag` are of other labels or scores")
    seal = seal_path(workspace.flags_folder)
    flags = read_sealed(seal, workspace.flags_path.name, FLAG_SCHEMA)
    flags = flags.select("clip_id", "class_id", "rank")
    return Scope(f"the {len(flags):,} written by `earmark flag`{_how(written)}", None, flags)


def _down_to_the_last(queue: Queue, reason: str) -> Scope:
    last = max(queue.sizes.filter("is_flagged")["band_high"], default=0)
    return Scope(f"the top {last:g} % of each class, {reason}")


def _how(written: dict[str, Any]) -> str:
    """Return the policy in words, such as ``, the top 1 % of each class``."""
    policy = written.get("policy")
    if policy is None:
        return ""
    if policy == "percentile":
        return f", the top {written['discard_percent']:g} % of each class"
    return f" by the policy {policy}"
