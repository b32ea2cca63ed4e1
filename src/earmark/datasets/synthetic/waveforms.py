"""Building blocks of synthetic sounds: tones, noise, strikes, and calls with gaps between them.

Tones come from a table of one period, noise is shaped in the frequency domain, trains of strikes
set resonators ringing. All cost well under a millisecond per second of sound. Waveforms and
envelopes are float64 [n_samples]; times are in seconds and frequencies in hertz throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Rng: TypeAlias = np.random.Generator
Waveform: TypeAlias = NDArray[np.float64]

_TABLE_SAMPLES = 4096


def noise(
    rng: Rng,
    n_samples: int,
    sample_rate_hz: int,
    low_hz: float = 40.0,
    high_hz: float = 8_000.0,
    power_slope: float = 0.0,
) -> Waveform:
    """Return noise in a band with skirts of 24 dB per octave.

    Power falls as ``frequency ** -power_slope``: 0 is white, 1 pink, 2 brown.
    """
    n_fft = scipy.fft.next_fast_len(max(n_samples, 16), real=True)
    frequency_hz = np.arange(n_fft // 2 + 1) * (sample_rate_hz / n_fft)
    frequency_hz[0] = 1.0
    above, below = (frequency_hz / high_hz) ** 2, (low_hz / frequency_hz) ** 2
    gain = 1 / ((1 + above * above) * (1 + below * below))
    if power_slope:
        gain *= (frequency_hz / 1_000) ** (-power_slope / 2)
    # Powers differ between processors in their last bit, which is rounded away with the others.
    heights = gain.astype(np.float32)
    spectrum = rng.standard_normal(2 * len(gain), np.float32).view(np.complex64) * heights
    waveform = scipy.fft.irfft(spectrum * np.float32(np.sqrt(n_fft)), n_fft)[:n_samples]
    return np.asarray(waveform, np.float64)


def tone(frequency_hz: ArrayLike, amplitudes: ArrayLike, sample_rate_hz: int) -> Waveform:
    """Return harmonics 1, 2, ... of a frequency curve; those above the Nyquist limit are left out.

    One period is drawn from a table, so the cost does not grow with the number of harmonics.
    """
    curve_hz = np.asarray(frequency_hz, np.float64)
    heights = np.asarray(amplitudes, np.float64)
    heights = heights[: max(1, int(sample_rate_hz / 2 / curve_hz.max()))]
    spectrum = np.zeros(_TABLE_SAMPLES // 2 + 1, np.complex128)
    spectrum[1 : len(heights) + 1] = -0.5j * _TABLE_SAMPLES * heights
    table = scipy.fft.irfft(spectrum)
    cycles = np.cumsum(curve_hz) / sample_rate_hz
    return np.asarray(table[(cycles * _TABLE_SAMPLES).astype(np.int64) % _TABLE_SAMPLES])


def wander(rng: Rng, n_samples: int, sample_rate_hz: int, rate_hz: float) -> Waveform:
    """Return a random curve in [-1, 1] that turns about ``rate_hz`` times a second."""
    n_knots = int(n_samples / sample_rate_hz * rate_hz) + 3
    places = np.linspace(0, n_knots - 1, n_samples)
    return np.interp(places, np.arange(n_knots), rng.uniform(-1, 1, n_knots))


def sway(rng: Rng, n_samples: int, sample_rate_hz: int, rate_hz: float) -> Waveform:
    """Return a sine between -1 and 1 with a random start."""
    turns = np.arange(n_samples) * (rate_hz / sample_rate_hz) + rng.random()
    return np.asarray(np.sin(2 * np.pi * turns))


def hump(n_samples: int, peak: float) -> Waveform:
    """Return an envelope that rises from 0 to 1 at the given share of its length and falls back."""
    ramp = np.interp(np.linspace(0, 1, n_samples), [0, peak, 1], [0, 1, 0])
    return np.sin(0.5 * np.pi * ramp) ** 2.0


def strikes(
    rng: Rng, n_samples: int, sample_rate_hz: int, interval_seconds: float, jitter: float
) -> Waveform:
    """Return impulses of varied height at more or less even intervals, the first at once."""
    interval = interval_seconds * sample_rate_hz
    n_strikes = int(n_samples / (interval * (1 - jitter))) + 1
    steps = interval * rng.uniform(1 - jitter, 1 + jitter, n_strikes)
    places = (np.cumsum(steps) - steps[0]).astype(np.int64)
    impulses = np.zeros(n_samples)
    places = places[places < n_samples]
    impulses[places] = rng.uniform(0.6, 1.0, len(places))
    return impulses


def scatter(rng: Rng, n_samples: int, sample_rate_hz: int, rate_hz: float) -> Waveform:
    """Return impulses of varied height at random times, ``rate_hz`` of them a second."""
    n_impulses = max(1, int(rate_hz * n_samples / sample_rate_hz))
    places = rng.integers(0, n_samples, n_impulses)
    impulses = np.bincount(places, weights=rng.exponential(size=n_impulses), minlength=n_samples)
    return impulses.astype(np.float64)


def fading(impulses: Waveform, decay_seconds: float, sample_rate_hz: int) -> Waveform:
    """Return the envelope of impulses that die away exponentially."""
    pole = _radius(decay_seconds, sample_rate_hz)
    return np.asarray(scipy.signal.lfilter([1.0], [1.0, -pole], impulses))


def ringing(
    impulses: Waveform,
    modes_hz: Sequence[float] | Waveform,
    decays_seconds: Sequence[float] | Waveform,
    sample_rate_hz: int,
) -> Waveform:
    """Return the sum of resonators, each with its frequency and decay, set off by impulses."""
    waveform = np.zeros(len(impulses))
    for mode_hz, decay_seconds in zip(modes_hz, decays_seconds, strict=True):
        radius = _radius(decay_seconds, sample_rate_hz)
        angle = 2 * np.pi * min(mode_hz / sample_rate_hz, 0.49)
        cosine, sine = round(float(np.cos(angle)), 9), round(float(np.sin(angle)), 9)
        poles = [1.0, -2 * radius * cosine, radius * radius]
        waveform += scipy.signal.lfilter([sine], poles, impulses)
    return waveform


def _radius(decay_seconds: float, sample_rate_hz: int) -> float:
    """Return what is left of an impulse after one sample.

    It is rounded, as angles are: a resonator would magnify the last bit, which is the processor's.
    """
    return round(float(np.exp(-1 / (decay_seconds * sample_rate_hz))), 9)


def spans(
    rng: Rng, n_samples: int, sample_rate_hz: int, length_seconds: float, gap_seconds: float
) -> Iterator[tuple[slice, int]]:
    """Yield the place and number of samples of calls with gaps between, each 20 % up or down."""
    start = 0
    while start < n_samples - 32:
        length = int(rng.uniform(0.8, 1.2) * length_seconds * sample_rate_hz)
        stop = min(start + max(length, 32), n_samples)
        yield slice(start, stop), stop - start
        start = stop + int(rng.uniform(0.8, 1.2) * gap_seconds * sample_rate_hz)


def vowel(pitch_hz: Waveform, formants_hz: Waveform, sample_rate_hz: int) -> Waveform:
    """Return a voice whose harmonics swell near the formants."""
    harmonics = np.arange(1, int(0.5 * sample_rate_hz / pitch_hz.max()) + 1)
    frequency_hz = harmonics[:, None] * pitch_hz.mean()
    widths_hz = 60 + 0.05 * formants_hz
    resonances = 1 / (1 + ((frequency_hz - formants_hz) / widths_hz) ** 2)  # [harmonic, formant]
    swell = 0.02 + resonances @ (0.6 ** np.arange(len(formants_hz)))
    return tone(pitch_hz, swell / harmonics**0.5, sample_rate_hz)
