"""The strata of a review: implicit labels by class and band, in one fixed random order.

The implicit labels of a class are cut into *bands* between neighbouring operating points (0-0.1 %,
0.1-0.2 %, ... 15-20 %, and the unflagged rest). A class and a band make a *cell*. The labels of a
cell stand in an order that looks random but depends on the seed and their names alone: its first n
are a simple random sample for every n, and stay the first when clips of other cells come or go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.flags import thresholds
from earmark.labels import IMPLICIT, LabelSet
from earmark.scores import CHUNK_SCORES, ScoreMatrix

MARGIN_SDS = 8.0
"""How many standard deviations more labels than needed a pass keeps of each cell."""

Keys = NDArray[np.uint64]

_ALL = np.uint64(2**64 - 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Cells:
    """The cells of some classes, ``columns`` int64 [chosen] of the labels.

    ``edges`` float32 [point, chosen] are the thresholds of ``percents``, all of them above 0;
    ``n_labels`` int64 [band, chosen] has one band more, the unflagged one.
    """

    columns: NDArray[np.int64]
    percents: tuple[float, ...]
    edges: NDArray[np.float32]
    n_labels: NDArray[np.int64]

    @classmethod
    def find(
        cls,
        labels: LabelSet,
        scores: ScoreMatrix,
        columns: NDArray[np.int64],
        discard_percents: Sequence[float],
    ) -> Cells:
        """Find the cells between operating points, in one pass over the scores."""
        percents = tuple(float(percent) for percent in discard_percents if percent > 0)
        found = thresholds(labels, scores, percents)
        up_to = np.vstack([found.n_ignored, labels.n_implicit])[:, columns]
        n_labels = np.diff(up_to, axis=0, prepend=0)
        return cls(columns, percents, found.values[:, columns], n_labels)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The ends of each band, in per cent of a class's implicit labels."""
        return list(itertools.pairwise((0.0, *self.percents, 100.0)))

    def bands(self, states: NDArray[np.int8], values: NDArray[np.float32]) -> NDArray[np.int8]:
        """Return the band [clip, chosen] of each label; -1 where it is explicit."""
        n_exceeded = (values > self.edges[:, None, :]).sum(axis=0, dtype=np.int8)
        return np.where(states == IMPLICIT, len(self.percents) - n_exceeded, -1).astype(np.int8)

    def table(self, class_ids: Sequence[str]) -> pl.DataFrame:
        """Return one row per cell: class_id, band_low, band_high, is_flagged, n_labels."""
        n_bands, n_chosen = self.n_labels.shape
        lows, highs = zip(*self.bounds, strict=True)
        return pl.DataFrame(
            {
                "class_id": np.repeat([class_ids[column] for column in self.columns], n_bands),
                "band_low": np.tile(np.array(lows), n_chosen),
                "band_high": np.tile(np.array(highs), n_chosen),
                "is_flagged": np.tile(np.arange(n_bands) < len(self.percents), n_chosen),
                "n_labels": self.n_labels.T.ravel(),
            },
            schema=SIZE_SCHEMA,
        )


SIZE_SCHEMA = pl.Schema(
    {
        "class_id": pl.String(),
        "band_low": pl.Float64(),
        "band_high": pl.Float64(),
        "is_flagged": pl.Boolean(),
        "n_labels": pl.Int64(),
    }
)


@dataclass(frozen=True)
class Orders:
    """The fixed random order: a number for each clip and chosen class, made from their names."""

    clip_keys: Keys
    class_keys: Keys

    @classmethod
    def of(cls, labels: LabelSet, columns: NDArray[np.int64], seed: int) -> Orders:
        """Make the keys of all clips and of some classes."""
        clips = [_key(seed, "clip", clip_id) for clip_id in labels.clip_ids]
        classes = [_key(seed, "class", labels.class_ids[column]) for column in columns]
        return cls(np.array(clips, np.uint64), np.array(classes, np.uint64))

    def of_clips(self, rows: slice) -> Keys:
        """Return the numbers [clip, chosen] of some clips in all chosen classes."""
        return mix(self.clip_keys[rows][:, None] + self.class_keys)

    def of_pairs(self, rows: NDArray[np.int64], chosen: NDArray[np.int64]) -> Keys:
        """Return the numbers of single labels, given by clip and chosen class."""
        return mix(self.clip_keys[rows] + self.class_keys[chosen])

    def of_turns(self, chosen: NDArray[np.int64], turns: NDArray[np.int64]) -> Keys:
        """Return a number for each class and turn, to draw lots with."""
        return mix(self.class_keys[chosen] + (turns.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def mix(keys: Keys) -> Keys:
    """Turn keys into numbers that look random (the finaliser of splitmix64).

    >>> [hex(number) for number in mix(np.array([1, 2], np.uint64)).tolist()]
    ['0x5692161d100b05e5', '0xdbd238973a2b148a']
    """
    mixed = keys.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def draw(
    labels: LabelSet, scores: ScoreMatrix, cells: Cells, orders: Orders, n_most: int
) -> pl.DataFrame:
    """Return the first ``n_most`` labels of every cell, or all that there are.

    Columns: chosen (class), band, turn (from 0, the place in the cell's order), row (clip), logit.
    One pass over the scores, and a share of it is kept.
    """
    n_wanted = np.minimum(cells.n_labels, n_most)
    margin = MARGIN_SDS
    while True:
        n_expected = n_wanted + margin * np.sqrt(n_wanted)
        share = np.minimum(n_expected / np.maximum(cells.n_labels, 1), 1)
        found = _within(labels, scores, cells, orders, share)
        n_found = np.zeros_like(n_wanted)
        np.add.at(n_found, (found["band"].to_numpy(), found["chosen"].to_numpy()), 1)
        if (n_found >= n_wanted).all():
            break
        margin *= 4  # hardly ever: keep more, and look again
    turn = pl.int_range(pl.len()).over("chosen", "band")
    ordered = found.sort("chosen", "band", "order", "row").with_columns(turn=turn)
    return ordered.filter(pl.col("turn") < n_most).select("chosen", "band", "turn", "row", "logit")


def _within(
    labels: LabelSet,
    scores: ScoreMatrix,
    cells: Cells,
    orders: Orders,
    share: NDArray[np.float64],
) -> pl.DataFrame:
    """Return the labels that stand within the first share [band, chosen] of their cell."""
    # 53 bits, shifted: a product with 2 ** 64 could round up to a number that is none of uint64's.
    limits = (np.where(share < 1, share, 0) * 2.0**53).astype(np.uint64) << np.uint64(11)
    limits = np.where(share < 1, limits, _ALL)
    every = np.arange(len(cells.columns))
    parts = []
    for rows, states, values in _chunks(labels, scores, cells.columns):
        bands, order = cells.bands(states, values), orders.of_clips(rows)
        clips, chosen = np.nonzero((order <= limits[bands, every]) & (bands >= 0))
        found = {
            "chosen": chosen,
            "band": bands[clips, chosen].astype(np.int64),
            "order": order[clips, chosen],
            "row": clips + rows.start,
            "logit": values[clips, chosen],
        }
        parts.append(pl.DataFrame(found))
    return pl.concat(parts)


def ranks(
    labels: LabelSet, scores: ScoreMatrix, cells: Cells, drawn: pl.DataFrame
) -> NDArray[np.int64]:
    """Return 1 + the number of implicit labels of the class that score higher, for flagged labels.

    ``drawn`` has the columns chosen and logit, above the class's last edge. One pass over the
    scores.
    """
    chosen, logits = drawn["chosen"].to_numpy(), drawn["logit"].to_numpy()
    order = np.lexsort((logits, chosen))
    starts = np.searchsorted(chosen[order], np.arange(len(cells.columns) + 1))
    own = [logits[order[a:b]] for a, b in itertools.pairwise(starts)]
    n_passed = [np.zeros(len(steps) + 1, np.int64) for steps in own]
    for _, states, values in _chunks(labels, scores, cells.columns):
        for column, (steps, counts) in enumerate(zip(own, n_passed, strict=True)):
            is_flagged = (values[:, column] > cells.edges[-1, column]) & (
                states[:, column] == IMPLICIT
            )
            passed = np.searchsorted(steps, values[is_flagged, column])
            counts += np.bincount(passed, minlength=len(counts))
    n_higher = [counts[::-1].cumsum()[::-1][1:] for counts in n_passed]
    result = np.empty(len(order), np.int64)
    result[order] = np.concatenate([np.empty(0, np.int64), *n_higher]) + 1
    return result


def _chunks(
    labels: LabelSet, scores: ScoreMatrix, columns: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.int8], NDArray[np.float32]]]:
    """Yield rows, states and scores [clip, chosen], a few clips at a time."""
    step = max(1, CHUNK_SCORES // max(scores.n_classes, 1))
    for start in range(0, max(scores.n_clips, 1), step):
        rows = slice(start, min(start + step, scores.n_clips))
        yield rows, labels.states(rows)[:, columns], scores.read(rows)[:, columns]


def _key(seed: int, what: str, name: str) -> int:
    text = f"{seed}\0{what}\0{name}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
