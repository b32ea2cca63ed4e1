"""The loops over a block of scores in plain numpy: the slow twins of those in C."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from earmark.flags import CLUES
from earmark.scores import N_BINS, Grid, pack

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bits = NDArray[np.uint32]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]


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


def fill_clues(
    scores: Floats,
    table: Floats,
    raised: Floats,
    facts: Floats,
    together: Floats,
    positive_starts: Longs,
    positives: Ints,
    *lists_and_out: np.ndarray,
) -> None:
    *parts, out = lists_and_out
    kin = {
        name: [columns[start:end] for start, end in pairwise(starts)]
        for name, starts, columns in zip(KIN, parts[::2], parts[1::2], strict=True)
    }
    for clip, own in enumerate(scores):
        labels = positives[positive_starts[clip] : positive_starts[clip + 1]]
        ranks = np.empty(len(own), int)
        ranks[np.argsort(-own, kind="stable")] = 1 + np.arange(len(own))
        lift = np.zeros(len(own), np.float32)
        for label in labels if len(together) else ():
            lift += together[label]

        def labelled(name: str, labels: Ints = labels) -> set[int]:
            return {int(one) for label in labels for one in kin[name][label]}

        def best(name: str, column: int, own: Floats = own) -> np.float32:
            theirs = own[kin[name][column]]
            theirs = theirs[~np.isnan(theirs)]
            return theirs.max() - own[column] if len(theirs) else np.float32(0)

        for column, score in enumerate(own):
            low, per_width, mean, per_sd, mean_positive, prior = facts[:, column]
            is_below = column in labelled("ancestors")
            row = (raised if is_below else table)[column]
            values = {
                "by_score": between(row, (score - low) * per_width - np.float32(0.5)),
                "logit": score,
                "above_implicit": (score - mean) * per_sd,
                "above_positives": (score - mean_positive) * per_sd,
                "rank_in_clip": math.log(ranks[column]),
                "best_child": best("children", column),
                "best_parent": best("parents", column),
                "best_sibling": best("siblings", column),
                "child_labelled": is_below,
                "parent_labelled": column in labelled("descendants"),
                "sibling_labelled": column in labelled("siblings"),
                "labels_of_clip": math.log(1 + len(labels)),
                "together": lift[column] * np.float32(1 / max(len(labels), 1)),
                "prior": prior,
            }
            every = np.array([values[name] for name in CLUES], np.float32)
            out[clip, column] = np.nan if np.isnan(score) else every[: out.shape[2]]


KIN = ("ancestors", "descendants", "siblings", "children", "parents")


def between(row: Floats, place: np.float32) -> float:
    """The value between the middles of two bins."""
    if np.isnan(place):
        return math.nan
    place = min(max(place, np.float32(0)), np.float32(len(row) - 1))
    left = min(int(place), len(row) - 2)
    return float(row[left]) + (float(place) - left) * float(row[left + 1] - row[left])


def add_chances(
    scores: Floats,
    log_odds: Floats,
    starts: Longs,
    explicit: Ints,
    counts: Ints,
    n_expected: Doubles,
    doubt: Doubles,
    state: Longs,
    rows: Longs,
    columns: Ints,
    logits: Floats,
    kept_odds: Floats,
    first_row: int,
    lowest: float,
    per_step: float,
) -> None:
    """The same, but for the labels that are kept: all, in as many places as it takes."""
    is_implicit = np.ones(log_odds.size, bool)
    is_implicit[explicit_cells(starts, explicit, log_odds.shape[1])[1]] = False
    clips, classes = np.nonzero(is_implicit.reshape(log_odds.shape) & np.isfinite(log_odds))
    odds = log_odds[clips, classes].astype(np.float64)
    steps = ((odds - lowest) * per_step).clip(0, counts.shape[1] - 1).astype(int)
    np.add.at(counts, (classes, steps), 1)
    chances = expit(odds)
    np.add.at(n_expected, classes, chances)
    np.add.at(doubt, classes, chances * (1 - chances))
    first, end = state[1], state[1] + len(clips)
    rows[first:end], columns[first:end] = clips + first_row, classes
    logits[first:end], kept_odds[first:end] = scores[clips, classes], odds
    state[1] = end


def look_at_odds(
    labelled: Doubles,
    implicit: Doubles,
    scores: Doubles,
    parameters: Doubles,
    likelihood: Doubles,
    gradient: Doubles,
    information: Doubles,
) -> None:
    present = expit(parameters[:, :1] + parameters[:, 1:2] * scores)
    chance = (present * expit(-parameters[:, 2:])).clip(1e-12, 1 - 1e-9)
    likelihood[:] = (labelled * np.log(chance) + implicit * np.log1p(-chance)).sum(axis=1)
    by_a = chance * (1 - present)
    changes = np.stack([by_a, by_a * scores, -chance * expit(parameters[:, 2:])], axis=2)
    rest = labelled / chance - implicit / (1 - chance)
    gradient[:] = (rest[:, None, :] @ changes)[:, 0]
    weights = (labelled + implicit) / (chance * (1 - chance))
    information[:] = (changes * weights[:, :, None]).transpose(0, 2, 1) @ changes
