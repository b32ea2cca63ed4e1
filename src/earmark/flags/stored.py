"""Thresholds and flags as a folder, so that those of the same labels and scores are found once.

``thresholds.parquet`` holds the paper's 18 points, ``flags.parquet`` the flags that were asked for.
``meta.json`` carries the digests of labels and scores, and how the flags were chosen. Thresholds
are those of the train split, flags those of every scored clip. What was made from other labels or
scores is not used: what is asked for is then computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from earmark.config import (
    PAPER_DISCARD_PERCENTS,
)
from earmark.errors import reader
from earmark.flags.flag import flag
from earmark.flags.suspects import FLAG_SCHEMA
from earmark.flags.thresholds import Thresholds, thresholds
from earmark.labels import LabelSet
from earmark.scores import ScoresLike
from earmark.storage import (
    digest,
    is_current,
    is_finished,
    read_seal,
    read_sealed,
    seal_path,
    write_sealed,
)

BY_PER_CENT = {"policy": "percentile", "labels": "given"}
"""How the flags of one operating point say that nothing but the per cent chose them."""


def made_from(labels: LabelSet, scores_digest: str) -> str:
    """Return the digest of flags that are made from labels and scores."""
    return digest(labels.digest, scores_digest)


def write_flag_folder(
    folder: Path,
    labels: LabelSet,
    scores_digest: str,
    found: Thresholds,
    flags: pl.DataFrame,
    flags_digest: str,
    chosen: Mapping[str, object],
) -> None:
    """Write thresholds and flags; ``chosen`` says how the flags were (see :data:`BY_PER_CENT`).

    The thresholds are those of ``labels``, in the order of the scores; the flags may be of more
    clips, and ``flags_digest`` tells what they were :func:`made_from`.
    """
    own = {"digest": made_from(labels, scores_digest), "flags_digest": flags_digest}
    tables = {"thresholds.parquet": found.table(labels.class_ids), "flags.parquet": flags}
    write_sealed(seal_path(folder), tables, {**own, **chosen})


@reader("thresholds")
def stored_thresholds(
    folder: Path,
    labels: LabelSet,
    logits: ScoresLike,
    scores_digest: str,
    discard_percents: Sequence[float] = PAPER_DISCARD_PERCENTS,
) -> Thresholds:
    """Return the thresholds in a folder if they are of these labels and scores; else find them.

    ``scores_digest`` is that of the scores' own folder. Points that are not stored are found in
    passes of their own.
    """
    if not is_current(folder, made_from(labels, scores_digest)):
        return thresholds(labels, logits, discard_percents)
    stored = Thresholds.from_table(read_sealed(seal_path(folder), "thresholds.parquet"))
    new = [percent for percent in discard_percents if percent not in stored.discard_percents]
    if new:
        stored = stored.joined(thresholds(labels, logits, new))
    return stored.at(discard_percents)


@reader("flags")
def stored_flags(
    folder: Path, labels: LabelSet, logits: ScoresLike, scores_digest: str, discard_percent: float
) -> pl.DataFrame:
    """Return the flags of one operating point: those in a folder if they are these; else anew."""
    if is_finished(folder):
        by = {"flags_digest": made_from(labels, scores_digest), "discard_percent": discard_percent}
        if _agrees({**by, **BY_PER_CENT}, read_seal(folder)):
            return read_sealed(seal_path(folder), "flags.parquet", FLAG_SCHEMA)
    return flag(labels, logits, discard_percent=discard_percent)


def _agrees(wanted: Mapping[str, object], noted: Mapping[str, object]) -> bool:
    return all(noted.get(name) == value for name, value in wanted.items())
