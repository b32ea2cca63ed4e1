"""The loops over a block of scores in plain numpy: the slow twins of the compiled ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from earmark.scores.kernels import N_BINS, Kernels, bins_above, pack

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


def _codes_above(block: Floats, lows: Floats, scales: Floats) -> tuple[Longs, Ints]:
    """Return place in the block and code (class * N_BINS + bin) of the scores above the lows."""
    places = np.flatnonzero(block > lows)
    short, n_classes = places.astype(np.int32), np.int32(block.shape[1])
    columns = short - short // n_classes * n_classes  # quicker than the remainder
    bins = bins_above(block.reshape(-1)[places], lows[columns], scales[columns])
    bins += columns * np.int32(N_BINS)
    return places, bins


def _count_numpy(
    block: Floats, lows: Floats, scales: Floats, fewest: Bits, spans: Bits, counts: Ints
) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        is_doubtful = not np.isfinite(block.sum(dtype=np.float32))
    if is_doubtful:
        is_odd = (block.view(np.uint32) & np.uint32(0x7FFFFFFF)) - fewest > spans
        if is_odd.any():
            return int(is_odd.any(axis=1).argmax())
    codes = _codes_above(block, lows, scales)[1]
    np.add.at(counts, codes, np.int32(1))
    return -1


def _pick_numpy(
    block: Floats,
    first_row: int,
    lows: Floats,
    scales: Floats,
    is_hot: Bytes,
    columns: Ints,
    keys: Longs,
) -> int:
    places, codes = _codes_above(block, lows, scales)
    chosen = places[is_hot[codes] > 0]
    low = np.flatnonzero(is_hot[::N_BINS])
    if len(low):
        rows, classes = np.nonzero(block[:, low] <= lows[low])
        chosen = np.concatenate([chosen, rows * block.shape[1] + low[classes]])
    n = len(chosen)
    rows, columns[:n] = np.divmod(chosen, block.shape[1])
    keys[:n] = pack(block.reshape(-1)[chosen], rows + first_row)
    return n


def _place_numpy(columns: Ints, keys: Longs, cursors: Longs, ends: Longs, out: Longs) -> None:
    order = np.argsort(columns, kind="stable")
    columns, n_keys = columns[order], np.bincount(columns, minlength=len(cursors))
    places = np.arange(len(order)) + (cursors - np.cumsum(n_keys) + n_keys)[columns]
    has_room = places < ends[columns]
    out[places[has_room]] = keys[order][has_room]
    cursors += n_keys


PLAIN = Kernels(_count_numpy, _pick_numpy, _place_numpy)
