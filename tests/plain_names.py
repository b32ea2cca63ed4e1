"""The loops over keys of names in plain Python: the slow twins of those in C."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


def number_keys(keys: Longs, numbers: Ints, firsts: Ints, distinct: Longs) -> int:
    known: dict[int, int] = {}
    for place, key in enumerate(keys.tolist()):
        if key not in known:
            firsts[len(known)], distinct[len(known)] = place, key
            known[key] = len(known)
        numbers[place] = known[key]
    return len(known)


def find_keys(keys: Longs, among: Longs, rows: Ints) -> None:
    places = {key: row for row, key in enumerate(among.tolist())}
    rows[:] = [places.get(key, -1) for key in keys.tolist()]
