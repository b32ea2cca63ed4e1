"""The loops from a waveform to its log-mel frames, and to batches of frames.

Arrays have no gaps and are in C order. One of another type, shape or order, or an index that would
point beyond one, is refused.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

def fill_log_mel(
    waveform: Floats,
    window: Floats,
    turns: Floats,
    firsts: Ints,
    ends: Ints,
    weights: Floats,
    out: Floats,
    hop: int,
    offset: float,
    /,
) -> None:
    """Fill ``out`` [frame, band] with log(mel + offset) of windows every ``hop`` samples.

    Beyond its end the waveform is silent. ``turns`` [sample, 2] holds cosine and sine of each step
    around the circle, as many as the FFT has samples. A band's weights follow those of the band
    before it, up to ``ends`` [band], and are for the FFT's bins from ``firsts`` [band] on. They
    apply to twice the magnitudes.
    """

def gather_frames(
    shards: list[NDArray[Any] | None],
    places: Longs,
    rows: Longs,
    batch: NDArray[Any],
    per_one: float,
    offset: float,
    /,
) -> None:
    """Copy frames of shards [frame, band] into ``batch`` [example, frame, band] of the same type.

    ``places[rows[i]]`` are example i's shard in the list of them, its first frame and its number of
    frames; beyond them are zeros. The disk is asked for frames in the order of their places. Where
    ``per_one`` is not 0, shards are uint8 and the batch is float32: levels / per_one - offset,
    rounded after each, of zeros too.
    """
