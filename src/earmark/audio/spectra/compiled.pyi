"""The loop from a waveform to its log-mel frames. Arrays have no gaps and are in C order.

An array of another type, shape or order, or an index that would point beyond one, is refused.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

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
