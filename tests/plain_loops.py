"""The loops over a block of scores in plain numpy: the slow twins of those in C."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from earmark.scores import N_BINS, Grid, pack

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]


def bins_above(scores: Floats, lows: Floats, scales: Floats) -> Ints:
    """Return the bins of scores that lie above their lows, all parallel."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = scores - lows
        steps *= scales
    np.fmin(steps, np.float32(N_BINS - 2), out=steps)  # infinity times 0 is NaN, and the last bin
    bins = steps.astype(np.int32)
    bins += 1
    return bins


def codes_of(grid: Grid, columns: NDArray[np.integer], scores: Floats) -> Longs:
    """Return class * N_BINS + bin of scores of given classes."""
    codes = columns.astype(np.int64) * N_BINS
    places = np.flatnonzero(scores > grid.lows[columns])
    columns = columns[places]
    codes[places] += bins_above(scores[places], grid.lows[columns], grid.scales[columns])
    return codes


def _codes_above(block: Floats, lows: Floats, scales: Floats) -> tuple[Longs, Ints]:
    """Return place in the block and code (class * N_BINS + bin) of the scores above the lows."""
    places = np.flatnonzero(block > lows)
    short, n_classes = places.astype(np.int32), np.int32(block.shape[1])
    columns = short - short // n_classes * n_classes  # quicker than the remainder
    bins = bins_above(block.reshape(-1)[places], lows[columns], scales[columns])
    bins += columns * np.int32(N_BINS)
    return places, bins


def explicit_cells(starts: Longs, columns: Ints, n_classes: int) -> tuple[slice, Longs]:
    """Return the places of a block's explicit labels, and where in it their scores are."""
    places = slice(int(starts[0]), int(starts[-1]))
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return places, rows * n_classes + columns[places]


def count_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    fewest: Bits,
    spans: Bits,
    starts: Longs,
    columns: Ints,
    explicit: Floats,
    counts: Ints,
) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        is_doubtful = not np.isfinite(block.sum(dtype=np.float32))
    if is_doubtful:
        is_odd = (block.view(np.uint32) & np.uint32(0x7FFFFFFF)) - fewest > spans
        if is_odd.any():
            return int(is_odd.any(axis=1).argmax())
    places, cells = explicit_cells(starts, columns, block.shape[1])
    explicit[places] = block.reshape(-1)[cells]
    found, codes = _codes_above(block, lows, scales)
    n_classes = block.shape[1]
    is_implicit = ~np.isin(found, cells)
    np.add.at(counts.reshape(-1), codes[is_implicit], np.int32(1))
    n_above = np.bincount(found[is_implicit] % max(n_classes, 1), minlength=n_classes)
    n_explicit = np.bincount(columns[places], minlength=n_classes)
    counts[:, 0] += (len(block) - n_explicit - n_above).astype(np.int32)
    return -1


def pick_scores(
    block: Floats,
    lows: Floats,
    scales: Floats,
    is_hot: NDArray[np.bool_],
    starts: Longs,
    explicit: Ints,
    columns: Ints,
    keys: Longs,
    first_row: int,
) -> int:
    is_hot = is_hot.reshape(-1)
    places, codes = _codes_above(block, lows, scales)
    chosen = places[is_hot[codes]]
    low = np.flatnonzero(is_hot[::N_BINS])
    if len(low):
        rows, classes = np.nonzero(block[:, low] <= lows[low])
        chosen = np.concatenate([chosen, rows * block.shape[1] + low[classes]])
    chosen = chosen[~np.isin(chosen, explicit_cells(starts, explicit, block.shape[1])[1])]
    n = len(chosen)
    rows, columns[:n] = np.divmod(chosen, block.shape[1])
    keys[:n] = pack(block.reshape(-1)[chosen], rows + first_row)
    return n


def place_keys(columns: Ints, keys: Longs, cursors: Longs, ends: Longs, out: Longs) -> None:
    order = np.argsort(columns, kind="stable")
    columns, n_keys = columns[order], np.bincount(columns, minlength=len(cursors))
    places = np.arange(len(order)) + (cursors - np.cumsum(n_keys) + n_keys)[columns]
    has_room = places < ends[columns]
    out[places[has_room]] = keys[order][has_room]
    cursors += n_keys
