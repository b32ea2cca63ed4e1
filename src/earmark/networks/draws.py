"""What networks draw at random: initial weights and dropout, the same on every machine.

Torch's own generators round differently from one processor to the next, and differ with the
libraries that it was built with. These draw whole numbers, or numbers in float64 that come from
them by sums and products.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor


def draws(seed: int) -> Generator:
    """Return a generator whose numbers depend on the seed alone."""
    return Generator(PCG64(seed))


def truncated_normal(shape: tuple[int, ...], sd: float, generator: Generator) -> Tensor:
    """Draw float32 from a normal distribution, anew where it is beyond two standard deviations.

    Far out numpy's normal numbers need a logarithm, which differs between machines in the last
    bit; those are never kept.
    """
    values = generator.standard_normal(shape)
    while (is_beyond := np.abs(values) > 2).any():
        values[is_beyond] = generator.standard_normal(np.count_nonzero(is_beyond))
    return torch.from_numpy((values * sd).astype(np.float32))


def kept_units(shape: tuple[int, int], share: float, generator: Generator) -> Tensor:
    """Draw which units dropout keeps [clip, unit]: 1 in a share of places, 0 elsewhere."""
    n = shape[0] * shape[1]
    words = generator.bit_generator.random_raw((n + 1) // 2).astype("<u8", copy=False)
    is_kept = words.view("<u4")[:n] < round(share * 2**32)
    return torch.from_numpy(is_kept.reshape(shape).astype(np.float32))
