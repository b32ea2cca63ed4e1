"""From a waveform to log-mel frames, the same bytes on every machine.

The loop in C (``compiled.pyi``) is built with the package (``ext-modules`` in pyproject.toml); its
tables come from curves that every machine rounds alike.
"""

from earmark.audio.spectra.compiled import fill_log_mel
from earmark.audio.spectra.curves import circle, logarithm

__all__ = ["circle", "fill_log_mel", "logarithm"]
