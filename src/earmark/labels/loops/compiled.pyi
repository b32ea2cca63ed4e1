"""The loops over keys of names: hashes of 64 bits, as int64. Arrays have no gaps.

An array of another type or shape is refused.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

def number_keys(keys: Longs, numbers: Ints, firsts: Ints, distinct: Longs, /) -> int:
    """Number keys as they come, from 0, and return how many different ones there are.

    ``numbers`` are the keys' own; ``firsts`` and ``distinct``, which have room for all keys, begin
    with the place at which each number comes first and with its key.
    """

def find_keys(keys: Longs, among: Longs, rows: Ints, /) -> None:
    """Write the row of each key ``among`` others, which must be distinct; -1 where it is not there.

    Keys that come in the order of the others, with few of those left out, are found soonest.
    """
