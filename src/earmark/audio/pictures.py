"""What is seen of a clip: the log-mel frames that the teacher saw, as a PNG."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from earmark.audio.frame_store import FrameStore
from earmark.audio.front_end import log_mel
from earmark.report.figures import log_mel_png
from earmark.runs.parameters import FrontEndParams

PICTURE_HEIGHT = 192
MOST_COLUMNS = 1_200
"""Width in pixels of the picture of a long clip; shorter ones have a pixel for each frame."""


def seen_frames(
    store: FrameStore | None, clip_id: str, waveform: NDArray[np.float32], params: FrontEndParams
) -> NDArray[np.floating]:
    """Return a clip's log-mel frames [frame, band]: the stored ones, or made from its waveform.

    ``waveform`` [sample] is at the front end's rate. A store of embeddings holds nothing to look
    at. Frames that only cover padding are left out, so that the picture is as long as the sound.
    """
    n_heard = max(round(len(waveform) / params.hop_samples), 1)
    rows = [-1] if store is None or store.meta.front_end is None else store.rows_of([clip_id])
    if store is None or rows[0] < 0:
        return log_mel(waveform, params)[:n_heard]
    return np.asarray(store.frames(int(rows[0])))[:n_heard]


def picture_png(frames: NDArray[np.floating]) -> bytes:
    """Draw frames [frame, band] with the colours that all pictures share, low bands below."""
    width = min(max(len(frames), 1), MOST_COLUMNS)
    return log_mel_png(frames, width=width, height=PICTURE_HEIGHT)
