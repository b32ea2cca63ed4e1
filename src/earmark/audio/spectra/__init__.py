"""From a waveform to log-mel frames, the same bytes on every machine, and to batches of frames.

The loops in C (``compiled.pyi``) are built with the package (``ext-modules`` in pyproject.toml);
their tables come from curves that every machine rounds alike.
"""

from earmark.audio.spectra.compiled import fill_log_mel, gather_frames
from earmark.audio.spectra.curves import circle, logarithm

__all__ = ["circle", "fill_log_mel", "gather_frames", "logarithm"]
