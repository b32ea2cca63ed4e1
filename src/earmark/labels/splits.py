"""Splits, folds and subsets that keep recordings whole and class distributions alike.

Clips cut from one recording sound alike, so a recording never straddles two parts. One tool does
all the work: :func:`assign` deals recordings out to parts of given shares, rarest classes first.
Folds are equal parts, splits are unequal ones, and a subset is the first of many small parts, so
that smaller train sets lie within larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.labels.label_set import LabelSet

SPLIT_SHARES: Mapping[str, float] = {"train": 0.8, "tune": 0.1, "eval": 0.1}
"""Shares of the clips where splits are dealt out."""

TUNE_SHARE = 0.1
"""Share of the train split that becomes the tune split where a dataset has train and eval only."""

_SLICES = 20
"""Equal parts that a subset is made of; the last one is cut into as many again, and so on."""


class Deviation(NamedTuple):
    """How far a class's prior in a part is from its prior in the whole, and which class it is."""

    relative: float
    class_id: str | None


def assign(
    labels: LabelSet, sources: Sequence[str] | pl.Series, shares: Sequence[float], seed: int = 0
) -> NDArray[np.int64]:
    """Deal clips out to parts 0..n-1 of given shares; return the part of each clip [clip].

    Recordings (clips of equal ``sources`` [clip]) stay whole. They are placed one by one, those
    with the rarest class first, then the longest, then in an order drawn from ``seed``. Each goes
    to the part that needs its classes most: a part has had so much of what it is due of a class,
    and the sum over the recording's positives is smallest there. Ties go to the part with fewest
    clips for its share, then to the earlier one. No clips give an empty array.
    """
    if len(shares) == 0 or min(shares) <= 0:
        raise EarmarkError(f"shares must be positive numbers, got {list(shares)}")
    recordings = _Recordings.of(labels, sources)
    part_of = np.empty(len(recordings.n_clips), np.int64)
    clip_step = [1 / (share * max(labels.n_clips, 1)) for share in shares]
    steps = [[1 / (share * n) for share in shares] for n in recordings.n_positives]
    had = [[0.0] * len(shares) for _ in steps]  # [class][part]: positives of those that are due
    had_clips, parts = [0.0] * len(shares), range(len(shares))
    for recording, n_clips, positives in recordings.rarest_first(seed):
        had_of_each = [had[rank] for rank in positives] or [[0.0] * len(shares)]
        had_in_all = map(sum, zip(*had_of_each, strict=True))
        part = min(zip(had_in_all, had_clips, parts, strict=True))[2]
        part_of[recording] = part
        had_clips[part] += n_clips * clip_step[part]
        for rank in positives:
            had[rank][part] += steps[rank][part]
    return part_of[recordings.of_clip]


def folds(
    labels: LabelSet, sources: Sequence[str] | pl.Series, n_folds: int, seed: int = 0
) -> NDArray[np.int64]:
    """Assign clips to folds 0..n-1 of equal size, whole recordings at a time (see :func:`assign`).

    Rare classes reach every fold, as far as their recordings go round.
    """
    n_recordings = pl.Series(sources, dtype=pl.String).n_unique()
    if n_recordings < n_folds:
        raise EarmarkError(f"{n_recordings} recordings cannot be cut into {n_folds} folds")
    return assign(labels, sources, [1 / n_folds] * n_folds, seed)


def deal_splits(
    labels: LabelSet,
    sources: Sequence[str] | pl.Series,
    shares: Mapping[str, float] = SPLIT_SHARES,
    seed: int = 0,
) -> pl.Series:
    """Deal the clips out to train, tune and eval by their ``shares`` (see :func:`assign`)."""
    parts = assign(labels, sources, list(shares.values()), seed)
    return pl.Series("split", np.array(list(shares))[parts], pl.String)


def complete_splits(
    labels: LabelSet,
    sources: Sequence[str] | pl.Series,
    given: pl.Series | None = None,
    seed: int = 0,
    *,
    deal: bool = False,
    tune_share: float = TUNE_SHARE,
) -> pl.Series:
    """Return the split of each clip (train, tune or eval), keeping those that are given.

    Where no splits are ``given``, or all clips are in train, they stay there: who looks for
    missing labels wants the whole. With ``deal`` they are dealt out (see :func:`deal_splits`).
    Where there are train and eval but no tune, ``tune_share`` of train becomes tune. Anything else
    is returned as it is.
    """
    if given is not None and given.is_null().all():
        given = None
    names = {"train"} if given is None else set(given.unique().to_list())
    if names == {"train"} and deal:
        return deal_splits(labels, sources, seed=seed)
    if given is None:
        return pl.Series("split", ["train"] * labels.n_clips, pl.String)
    if names != {"train", "eval"} or not tune_share:
        return given.alias("split")
    train = np.flatnonzero((given == "train").to_numpy())
    train_sources = pl.Series(sources, dtype=pl.String).gather(train)
    parts = assign(labels.select(train), train_sources, [1 - tune_share, tune_share], seed)
    return given.clone().scatter(train[parts == 1], "tune").alias("split")


def subset(
    labels: LabelSet, sources: Sequence[str] | pl.Series, share: float, seed: int = 0
) -> NDArray[np.bool_]:
    """Choose ``share`` of the clips, whole recordings at a time; return who is chosen [clip].

    This makes the paper's tr_small from tr_large. The clips are dealt out to 20 equal parts,
    taken one after another; the part in which the share ends is cut in the same way, down to
    single recordings. Neither cuts nor order depend on the share, so a smaller subset lies
    within every larger one of the same seed. The share is met to within half a recording, and at
    least one recording is chosen.
    """
    if not 0 < share <= 1:
        raise EarmarkError(f"share must be above 0 and at most 1, got {share}")
    if share == 1:
        return np.ones(labels.n_clips, bool)
    names = pl.Series(sources, dtype=pl.String)
    is_chosen = np.zeros(labels.n_clips, bool)
    rows, n_wanted = np.arange(labels.n_clips), share * labels.n_clips
    turn = np.random.default_rng(seed).permutation(_SLICES)  # the first dealt have the longest
    while n_wanted > 0 and names.gather(rows).n_unique() > 1:
        slices = turn[
            assign(labels.select(rows), names.gather(rows), [1 / _SLICES] * _SLICES, seed)
        ]
        ends = np.cumsum(np.bincount(slices, minlength=_SLICES))
        n_whole = int(np.searchsorted(ends, n_wanted, side="right"))
        is_chosen[rows[slices < n_whole]] = True
        n_wanted -= ends[n_whole - 1] if n_whole else 0
        rows = rows[slices == n_whole]
    if n_wanted > len(rows) / 2 or not is_chosen.any():
        is_chosen[rows] = True
    return is_chosen


def largest_deviation(
    labels: LabelSet, is_chosen: NDArray[np.bool_], min_positives: int = 100
) -> Deviation:
    """Return the largest relative deviation of a class's prior among the chosen clips [clip].

    0.05 says that some class is 5 % more or less frequent among the chosen clips than among all.
    Classes with fewer than ``min_positives`` positives in all are left out: a single clip moves
    them too much. Without such a class, or without chosen clips, the deviation is 0 of no class.
    """
    chosen = labels.select(is_chosen)
    is_counted = labels.n_positives >= max(min_positives, 1)
    if not is_counted.any() or chosen.n_clips == 0:
        return Deviation(0.0, None)
    ratios = chosen.priors[is_counted] / labels.priors[is_counted]
    worst = int(np.abs(ratios - 1).argmax())
    column = int(np.flatnonzero(is_counted)[worst])
    return Deviation(float(abs(ratios[worst] - 1)), labels.class_ids[column])


@dataclass(frozen=True)
class _Recordings:
    """The recordings of some clips, in the order of their names, with their positive labels.

    Classes are numbered by frequency: 0 is the rarest of those that have positives.
    ``positives[starts[i]:starts[i + 1]]`` are those of recording i, ascending, a class as often
    as it has positive clips.
    """

    of_clip: NDArray[np.int64]
    n_clips: NDArray[np.int64]
    n_positives: list[int]
    starts: NDArray[np.int64]
    positives: NDArray[np.int64]

    @classmethod
    def of(cls, labels: LabelSet, sources: Sequence[str] | pl.Series) -> _Recordings:
        names = pl.Series(sources, dtype=pl.String)
        if len(names) != labels.n_clips or names.null_count():
            raise EarmarkError(
                f"every one of the {labels.n_clips} clips needs a source, got "
                f"{len(names) - names.null_count()}"
            )
        of_clip = names.rank("dense").cast(pl.Int64).to_numpy() - 1
        n_clips = np.bincount(of_clip)
        by_frequency = np.argsort(labels.n_positives, kind="stable")
        by_frequency = by_frequency[labels.n_positives[by_frequency] > 0]
        rank_of = np.zeros(labels.n_classes, np.int64)
        rank_of[by_frequency] = np.arange(len(by_frequency))
        owners = of_clip[labels.clip_rows[labels.present]]
        ranks = rank_of[labels.columns[labels.present]]
        starts = np.zeros(len(n_clips) + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=len(n_clips)), out=starts[1:])
        positives = ranks[np.lexsort((ranks, owners))]
        return cls(of_clip, n_clips, labels.n_positives[by_frequency].tolist(), starts, positives)

    def rarest_first(self, seed: int) -> Iterator[tuple[int, int, list[int]]]:
        """Yield each recording's number, its clips and its positives: rarest classes first.

        Long recordings come before short ones, which can then fill the gaps.
        """
        rarest = np.append(self.positives, 0)[self.starts[:-1]]
        rarest[np.diff(self.starts) == 0] = len(self.n_positives)  # without positives: last
        shuffled = np.random.default_rng(seed).permutation(len(rarest))
        order = shuffled[np.lexsort((-self.n_clips[shuffled], rarest[shuffled]))]
        # Plain lists: taking single numbers out of arrays would cost more than all the rest.
        positives, n_clips = self.positives.tolist(), self.n_clips[order].tolist()
        firsts, ends = self.starts[order].tolist(), self.starts[order + 1].tolist()
        for recording, n, first, end in zip(order.tolist(), n_clips, firsts, ends, strict=True):
            yield recording, n, positives[first:end]
