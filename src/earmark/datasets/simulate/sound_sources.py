"""Synthetic sounds: one function for each class of a scene, and the oscillators they are built of.

Each source is a function ``(rng, n_samples) -> waveform [n_samples]``, float64, at
any level (the scene sets it). Pitch, rate, timbre and modulation are drawn for every event.

Tones come from a table of one period, noise is shaped in the frequency domain, and trains of
impulses drive resonators. All cost well under a millisecond per second of sound. Times are in
seconds and frequencies in hertz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Rng: TypeAlias = np.random.Generator
Waveform: TypeAlias = NDArray[np.float64]

SAMPLE_RATE_HZ = 16_000

_TABLE_SAMPLES = 4096


def noise(
    rng: Rng,
    n_samples: int,
    low_hz: float = 40.0,
    high_hz: float = 8_000.0,
    power_slope: float = 0.0,
) -> Waveform:
    """Return noise in a band with skirts of 24 dB per octave.

    Power falls as ``frequency ** -power_slope``: 0 is white, 1 pink, 2 brown.
    """
    n_fft = scipy.fft.next_fast_len(max(n_samples, 16), real=True)
    frequency_hz = np.arange(n_fft // 2 + 1) * (SAMPLE_RATE_HZ / n_fft)
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


def tone(frequency_hz: ArrayLike, amplitudes: ArrayLike) -> Waveform:
    """Return harmonics 1, 2, ... of a frequency curve; those above the Nyquist limit are left out.

    One period is drawn from a table, so the cost does not grow with the number of harmonics.
    """
    curve_hz = np.asarray(frequency_hz, np.float64)
    heights = np.asarray(amplitudes, np.float64)
    heights = heights[: max(1, int(SAMPLE_RATE_HZ / 2 / curve_hz.max()))]
    spectrum = np.zeros(_TABLE_SAMPLES // 2 + 1, np.complex128)
    spectrum[1 : len(heights) + 1] = -0.5j * _TABLE_SAMPLES * heights
    table = scipy.fft.irfft(spectrum)
    cycles = np.cumsum(curve_hz) / SAMPLE_RATE_HZ
    return np.asarray(table[(cycles * _TABLE_SAMPLES).astype(np.int64) % _TABLE_SAMPLES])


def wander(rng: Rng, n_samples: int, rate_hz: float) -> Waveform:
    """Return a random curve in [-1, 1] that turns about ``rate_hz`` times a second."""
    n_knots = int(n_samples / SAMPLE_RATE_HZ * rate_hz) + 3
    places = np.linspace(0, n_knots - 1, n_samples)
    return np.interp(places, np.arange(n_knots), rng.uniform(-1, 1, n_knots))


def sway(rng: Rng, n_samples: int, rate_hz: float) -> Waveform:
    """Return a sine between -1 and 1 with a random start."""
    turns = np.arange(n_samples) * (rate_hz / SAMPLE_RATE_HZ) + rng.random()
    return np.asarray(np.sin(2 * np.pi * turns))


def hump(n_samples: int, peak: float) -> Waveform:
    """Return an envelope that rises from 0 to 1 at the given share of its length and falls back."""
    ramp = np.interp(np.linspace(0, 1, n_samples), [0, peak, 1], [0, 1, 0])
    return np.sin(0.5 * np.pi * ramp) ** 2.0


def strikes(rng: Rng, n_samples: int, interval_seconds: float, jitter: float) -> Waveform:
    """Return impulses of varied height at more or less even intervals, the first at once."""
    interval = interval_seconds * SAMPLE_RATE_HZ
    n_strikes = int(n_samples / (interval * (1 - jitter))) + 1
    steps = interval * rng.uniform(1 - jitter, 1 + jitter, n_strikes)
    places = (np.cumsum(steps) - steps[0]).astype(np.int64)
    impulses = np.zeros(n_samples)
    places = places[places < n_samples]
    impulses[places] = rng.uniform(0.6, 1.0, len(places))
    return impulses


def scatter(rng: Rng, n_samples: int, rate_hz: float) -> Waveform:
    """Return impulses of varied height at random times, ``rate_hz`` of them a second."""
    n_impulses = max(1, int(rate_hz * n_samples / SAMPLE_RATE_HZ))
    places = rng.integers(0, n_samples, n_impulses)
    impulses = np.bincount(places, weights=rng.exponential(size=n_impulses), minlength=n_samples)
    return impulses.astype(np.float64)


def fading(impulses: Waveform, decay_seconds: float) -> Waveform:
    """Return the envelope of impulses that die away exponentially."""
    pole = _radius(decay_seconds)
    return np.asarray(scipy.signal.lfilter([1.0], [1.0, -pole], impulses))


def ringing(
    impulses: Waveform,
    modes_hz: Sequence[float] | Waveform,
    decays_seconds: Sequence[float] | Waveform,
) -> Waveform:
    """Return the sum of resonators, each with its frequency and decay, set off by impulses."""
    waveform = np.zeros(len(impulses))
    for mode_hz, decay_seconds in zip(modes_hz, decays_seconds, strict=True):
        radius = _radius(decay_seconds)
        angle = 2 * np.pi * min(mode_hz / SAMPLE_RATE_HZ, 0.49)
        cosine, sine = round(float(np.cos(angle)), 9), round(float(np.sin(angle)), 9)
        poles = [1.0, -2 * radius * cosine, radius * radius]
        waveform += scipy.signal.lfilter([sine], poles, impulses)
    return waveform


def _radius(decay_seconds: float) -> float:
    """Return what is left of an impulse after one sample.

    It is rounded, as angles are: a resonator would magnify the last bit, which is the processor's.
    """
    return round(float(np.exp(-1 / (decay_seconds * SAMPLE_RATE_HZ))), 9)


def spans(
    rng: Rng, n_samples: int, length_seconds: float, gap_seconds: float
) -> Iterator[tuple[slice, int]]:
    """Yield the place and number of samples of calls with gaps between, each 20 % up or down."""
    start = 0
    while start < n_samples - 32:
        length = int(rng.uniform(0.8, 1.2) * length_seconds * SAMPLE_RATE_HZ)
        stop = min(start + max(length, 32), n_samples)
        yield slice(start, stop), stop - start
        start = stop + int(rng.uniform(0.8, 1.2) * gap_seconds * SAMPLE_RATE_HZ)


def vowel(pitch_hz: Waveform, formants_hz: Waveform) -> Waveform:
    """Return a voice whose harmonics swell near the formants."""
    harmonics = np.arange(1, int(0.5 * SAMPLE_RATE_HZ / pitch_hz.max()) + 1)
    frequency_hz = harmonics[:, None] * pitch_hz.mean()
    widths_hz = 60 + 0.05 * formants_hz
    resonances = 1 / (1 + ((frequency_hz - formants_hz) / widths_hz) ** 2)  # [harmonic, formant]
    swell = 0.02 + resonances @ (0.6 ** np.arange(len(formants_hz)))
    return tone(pitch_hz, swell / harmonics**0.5)


Source: TypeAlias = Callable[[Rng, int], Waveform]

_VOWELS_HZ = np.array(
    [[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]]
)
_BELL_RATIOS = (0.5, 1.0, 1.19, 1.5, 2.0, 2.74, 3.76)


def _speech(rng: Rng, n_samples: int, pitch_hz: float, tract: float) -> Waveform:
    """Return syllables of random vowels; ``tract`` raises all formants as a short throat does."""
    waveform = np.zeros(n_samples)
    length_seconds, gap_seconds = rng.uniform(0.12, 0.24), rng.uniform(0.02, 0.09)
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        glide = np.linspace(rng.uniform(0.95, 1.2), rng.uniform(0.8, 1.05), length)
        formants_hz = rng.choice(_VOWELS_HZ) * tract * rng.uniform(0.95, 1.05, 3)
        syllable = vowel(pitch_hz * glide, formants_hz)
        waveform[place] = hump(length, 0.25) * syllable
        if rng.random() < 0.35:
            hiss = noise(rng, length, rng.uniform(2_500, 4_500), 7_500)
            waveform[place] = 0.25 * waveform[place] + 0.15 * hump(length, 0.4) * hiss
    return waveform


def male_speech(rng: Rng, n_samples: int) -> Waveform:
    """Return syllables of a low voice."""
    pitch_hz, tract = rng.uniform(85, 140), rng.uniform(0.95, 1.05)
    return _speech(rng, n_samples, pitch_hz, tract)


def female_speech(rng: Rng, n_samples: int) -> Waveform:
    """Return syllables of a higher voice and a shorter throat."""
    pitch_hz, tract = rng.uniform(165, 240), rng.uniform(1.1, 1.22)
    return _speech(rng, n_samples, pitch_hz, tract)


def child_speech(rng: Rng, n_samples: int) -> Waveform:
    """Return syllables of a high voice and a very short throat."""
    pitch_hz, tract = rng.uniform(270, 400), rng.uniform(1.3, 1.5)
    return _speech(rng, n_samples, pitch_hz, tract)


def laughter(rng: Rng, n_samples: int) -> Waveform:
    """Return a regular series of breathy calls of one vowel with falling pitch."""
    waveform = np.zeros(n_samples)
    pitch_hz, formants_hz = rng.uniform(180, 420), _VOWELS_HZ[0] * rng.uniform(0.9, 1.3)
    calls = list(spans(rng, n_samples, rng.uniform(0.07, 0.11), 0.09))
    for (place, length), fall in zip(calls, np.linspace(1.15, 0.75, len(calls)), strict=True):
        glide = fall * np.linspace(1.15, 0.85, length)
        voice = vowel(pitch_hz * glide, formants_hz)
        breath = noise(rng, length, 700, 3_500)
        waveform[place] = fall * hump(length, 0.2) * (voice + 0.25 * breath)
    return waveform


def applause(rng: Rng, n_samples: int) -> Waveform:
    """Return many claps, each a short burst of mid-frequency noise."""
    claps = scatter(rng, n_samples, np.exp(rng.uniform(np.log(15), np.log(90))))
    envelope = fading(claps, rng.uniform(0.004, 0.009))
    low_hz = rng.uniform(600, 1_100)
    return envelope * noise(rng, n_samples, low_hz, low_hz * rng.uniform(2, 3))


def footsteps(rng: Rng, n_samples: int) -> Waveform:
    """Return dull thuds at a walking or running pace, each with a scrape."""
    steps = strikes(rng, n_samples, rng.uniform(0.3, 0.65), 0.06)
    thud = fading(steps, rng.uniform(0.02, 0.045))
    scrape = fading(steps, rng.uniform(0.04, 0.09)) * rng.uniform(0.05, 0.35)
    low = noise(rng, n_samples, 60, rng.uniform(200, 450))
    return thud * low * 2 + scrape * noise(rng, n_samples, 1_500, 5_000)


def whistling(rng: Rng, n_samples: int) -> Waveform:
    """Return a pure tone that glides from note to note, with a little breath."""
    drift = wander(rng, n_samples, rng.uniform(1.5, 4))
    vibrato = 0.015 * sway(rng, n_samples, rng.uniform(4.5, 7))
    pitch_hz = rng.uniform(900, 1_900) * 2 ** (0.45 * drift + vibrato)
    swell = 0.7 + 0.3 * wander(rng, n_samples, 4)
    breath = noise(rng, n_samples, 800, 4_000)
    return swell * tone(pitch_hz, [1, 0.06]) + rng.uniform(0.01, 0.05) * breath


def songbird(rng: Rng, n_samples: int) -> Waveform:
    """Return phrases of quick chirps that sweep through several kilohertz."""
    waveform = np.zeros(n_samples)
    base_hz, length_seconds = rng.uniform(2_600, 4_800), rng.uniform(0.04, 0.15)
    gap_seconds = length_seconds * rng.uniform(0.4, 1.5)
    sweep = rng.uniform(-0.6, 0.6)
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        if rng.random() < 0.2:
            sweep = rng.uniform(-0.6, 0.6)
        bend = np.linspace(-1, 1, length) * sweep + 0.2 * np.sin(np.linspace(0, np.pi, length))
        chirp = tone(base_hz * 2**bend, [1, 0.15])
        waveform[place] = rng.uniform(0.5, 1) * hump(length, 0.35) * chirp
    return waveform


def crow(rng: Rng, n_samples: int) -> Waveform:
    """Return harsh caws: a rough voice with a strong formant, one or two a second."""
    waveform = np.zeros(n_samples)
    pitch_hz, formants_hz = rng.uniform(330, 560), np.array([1_250, 2_400]) * rng.uniform(0.85, 1.2)
    length_seconds, gap_seconds = rng.uniform(0.22, 0.4), rng.uniform(0.15, 0.6)
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        roughness = 0.12 * wander(rng, length, 140)
        pitch = pitch_hz * (1 + 0.15 * np.sin(np.linspace(0, np.pi, length)) + roughness)
        rasp = noise(rng, length, formants_hz[0], formants_hz[1])
        caw = vowel(pitch, formants_hz) + 0.3 * rasp
        waveform[place] = hump(length, 0.2) * caw
    return waveform


def dog_bark(rng: Rng, n_samples: int) -> Waveform:
    """Return short barks whose pitch jumps up and falls."""
    waveform = np.zeros(n_samples)
    size = rng.uniform(0, 1)
    pitch_hz, formants_hz = 260 + 380 * size, np.array([650 + 500 * size, 1_500 + 900 * size])
    length_seconds, gap_seconds = rng.uniform(0.1, 0.19), rng.uniform(0.12, 0.5)
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        pitch = pitch_hz * (0.65 + 0.55 * hump(length, 0.3)) * rng.uniform(0.93, 1.07)
        bark = vowel(pitch, formants_hz)
        bark += 0.2 * noise(rng, length, 400, 3_000)
        waveform[place] = hump(length, 0.12) * bark
    return waveform


def cat_meow(rng: Rng, n_samples: int) -> Waveform:
    """Return long voiced calls whose mouth opens and closes."""
    waveform = np.zeros(n_samples)
    pitch_hz, open_hz = rng.uniform(420, 680), np.array([1_500, 2_900]) * rng.uniform(0.9, 1.2)
    length_seconds, gap_seconds = rng.uniform(0.45, 0.95), rng.uniform(0.3, 0.9)
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        pitch = pitch_hz * (0.85 + 0.4 * hump(length, rng.uniform(0.25, 0.5)))
        mouth = hump(length, 0.45)
        opened = vowel(pitch, open_hz)
        closed = vowel(pitch, open_hz * 0.5)
        waveform[place] = hump(length, 0.4) ** 0.5 * (mouth * opened + (1 - mouth) * closed)
    return waveform


def cricket(rng: Rng, n_samples: int) -> Waveform:
    """Return a high steady tone cut into pulses, with or without pauses between trills."""
    pitch_hz = rng.uniform(3_600, 5_800) * np.ones(n_samples)
    pulses = np.clip(sway(rng, n_samples, rng.uniform(22, 45)), 0, 1)
    trill = np.zeros(n_samples)
    length_seconds, gap_seconds = rng.uniform(0.1, 0.5), rng.choice([0.0, 0.12, 0.3])
    for place, length in spans(rng, n_samples, length_seconds, gap_seconds):
        trill[place] = hump(length, 0.5) ** 0.25
    return trill * pulses * tone(pitch_hz, [1, 0.1])


def car_engine(rng: Rng, n_samples: int) -> Waveform:
    """Return the low hum of an idling or cruising engine with road noise."""
    drift = 0.12 * wander(rng, n_samples, 0.8)
    firing_hz = rng.uniform(28, 62) * 2**drift
    heights = rng.uniform(0.3, 1, 40) * np.arange(1, 41) ** -rng.uniform(0.5, 0.9)
    hum = tone(firing_hz, heights)
    road = noise(rng, n_samples, 60, rng.uniform(400, 1_200), power_slope=1)
    return hum + rng.uniform(0.1, 0.5) * road


def motorcycle(rng: Rng, n_samples: int) -> Waveform:
    """Return a buzzing, uneven engine that is revved up and down."""
    revs = 0.55 * wander(rng, n_samples, rng.uniform(0.5, 1.6))
    firing_hz = rng.uniform(55, 95) * 2**revs
    order = np.arange(1, 81)
    uneven = np.where(order % 2 == 1, rng.uniform(0.3, 0.7), 1.0)  # every second firing is weaker
    heights = uneven * rng.uniform(0.4, 1, 80) * order**-0.35 / (1 + (order / 45) ** 2)
    exhaust = noise(rng, n_samples, 300, 3_000)
    return (1 + 0.5 * revs) * tone(firing_hz, heights) + 0.3 * exhaust


def helicopter(rng: Rng, n_samples: int) -> Waveform:
    """Return the beat of rotor blades under a thin turbine whine."""
    blades_hz = rng.uniform(11, 22)
    beat = np.clip(sway(rng, n_samples, blades_hz), 0, 1) ** 3
    thump = noise(rng, n_samples, 50, rng.uniform(350, 900))
    swish = noise(rng, n_samples, 800, 3_500)
    whine_hz = rng.uniform(1_800, 3_200) * (1 + 0.01 * wander(rng, n_samples, 1))
    whine = rng.uniform(0.02, 0.08) * tone(whine_hz, [1, 0.4])
    return beat * (2 * thump + rng.uniform(0.1, 0.5) * swish) + whine


def siren(rng: Rng, n_samples: int) -> Waveform:
    """Return a tone with harmonics that wails, yelps or alternates between two pitches."""
    slowest_hz, is_two_tone = [(0.25, False), (2.2, False), (0.7, True)][rng.integers(3)]
    swing = sway(rng, n_samples, slowest_hz * rng.uniform(1, 2))
    if is_two_tone:
        swing = 0.4 * np.sign(swing)
    pitch_hz = rng.uniform(650, 1_000) * 2 ** (0.55 * swing)
    heights = [1, rng.uniform(0.2, 0.6), rng.uniform(0.2, 0.6), 0.15, 0.1]
    return tone(pitch_hz, heights)


def beep(rng: Rng, n_samples: int) -> Waveform:
    """Return even bursts of one steady tone."""
    steady = tone(np.full(n_samples, rng.uniform(850, 3_000)), [1, 0, 0.12])
    gate = sway(rng, n_samples, rng.uniform(1.2, 5)) + rng.uniform(-0.3, 0.4)
    return np.clip(40 * gate, 0, 1) * steady


def telephone(rng: Rng, n_samples: int) -> Waveform:
    """Return rings that warble quickly between two pitches."""
    warble = np.sign(sway(rng, n_samples, rng.uniform(12, 24)))
    pitch_hz = rng.uniform(900, 1_700) * 2 ** (rng.uniform(0.1, 0.2) * warble)
    bell = tone(pitch_hz, [1, 0.3, 0.4, 0.1])
    ring = np.zeros(n_samples)
    for place, length in spans(rng, n_samples, rng.uniform(0.4, 1.5), 0.5):
        ring[place] = hump(length, 0.05) ** 0.2
    return ring * bell


def buzzer(rng: Rng, n_samples: int) -> Waveform:
    """Return the harsh, perfectly steady buzz of a door or a machine, in long bursts."""
    odd = np.zeros(60)
    odd[::2] = np.arange(1, 61, 2) ** -rng.uniform(0.2, 0.6)
    buzz = tone(np.full(n_samples, rng.uniform(110, 330)), odd)
    gate = np.zeros(n_samples)
    for place, _ in spans(rng, n_samples, rng.uniform(0.3, 1.2), 0.25):
        gate[place] = 1.0
    return gate * buzz


def drill(rng: Rng, n_samples: int) -> Waveform:
    """Return a motor's whine that sags under load, with rattling noise."""
    load = 0.5 + 0.5 * wander(rng, n_samples, rng.uniform(0.7, 2))
    whine_hz = rng.uniform(450, 900) * (1.15 - 0.3 * load)
    whine = tone(whine_hz, [1, 0.8, 0.6, 0.7, 0.4, 0.4, 0.3, 0.3])
    rattle = 1 + 0.7 * sway(rng, n_samples, rng.uniform(30, 70))
    grind = noise(rng, n_samples, 1_200, 6_500)
    return (1 - 0.4 * load) * whine + 0.9 * load * rattle * grind


def saw(rng: Rng, n_samples: int) -> Waveform:
    """Return strokes of rasping noise, the push stronger than the pull."""
    stroke = sway(rng, n_samples, rng.uniform(1.2, 3))
    teeth = 1 + 0.6 * sway(rng, n_samples, rng.uniform(60, 140))
    low_hz = rng.uniform(1_000, 2_200)
    push = noise(rng, n_samples, low_hz, low_hz * 2.5)
    pull = noise(rng, n_samples, low_hz * 1.5, low_hz * 3)
    pull *= rng.uniform(0.2, 0.5)
    return teeth * (np.clip(stroke, 0, 1) * push + np.clip(-stroke, 0, 1) * pull)


def hammer(rng: Rng, n_samples: int) -> Waveform:
    """Return blows on metal: a click and several short-lived, unrelated modes."""
    blows = strikes(rng, n_samples, rng.uniform(0.28, 0.75), 0.1)
    modes_hz = rng.uniform(900, 6_500, 6)
    ring = ringing(blows, modes_hz, rng.uniform(0.015, 0.07, 6))
    thud = fading(blows, 0.012) * noise(rng, n_samples, 150, 2_500)
    return ring + rng.uniform(0.5, 1.5) * thud


def clock_tick(rng: Rng, n_samples: int) -> Waveform:
    """Return very short clicks, tick and tock, at a strict pace."""
    interval_seconds = rng.choice([0.2, 0.25, 0.5]) * rng.uniform(0.95, 1.05)
    ticks = strikes(rng, n_samples, interval_seconds, 0.002)
    modes_hz = rng.uniform(2_200, 6_000, 3)
    click = ringing(ticks, modes_hz, rng.uniform(0.0015, 0.004, 3))
    tocks = ticks * (np.cumsum(ticks > 0) % 2)
    return click + ringing(tocks, modes_hz * 0.7, [0.003] * 3)


def bell(rng: Rng, n_samples: int) -> Waveform:
    """Return slow strokes of a bell: partials of odd ratios that ring for long."""
    strokes = strikes(rng, n_samples, rng.uniform(0.5, 1.8), 0.05)
    modes_hz = rng.uniform(420, 1_100) * np.array(_BELL_RATIOS) * rng.uniform(0.98, 1.02, 7)
    decays_seconds = rng.uniform(0.5, 1.2) / np.sqrt(np.arange(1, 8))
    return ringing(strokes, modes_hz, decays_seconds)


def drum(rng: Rng, n_samples: int) -> Waveform:
    """Return beats of a skin, with or without the rattle of snares."""
    beats = strikes(rng, n_samples, rng.uniform(0.14, 0.42), 0.03)
    skin_hz = rng.uniform(90, 220)
    skin = ringing(beats, skin_hz * np.array([1, 1.59, 2.14]), [0.12, 0.07, 0.05])
    snares = fading(beats, rng.uniform(0.04, 0.09))
    rattle = noise(rng, n_samples, 1_500, 8_000)
    return skin + float(rng.choice([0.05, 0.5])) * snares * rattle


def plucked_string(rng: Rng, n_samples: int) -> Waveform:
    """Return notes of a guitar: a sharp onset, bright harmonics that die before the dull ones."""
    waveform = np.zeros(n_samples)
    base_hz, decay_seconds = rng.uniform(110, 330), rng.uniform(0.15, 0.5)
    order = np.arange(1, 25)
    dull, bright = order**-2.0, order ** -rng.uniform(0.5, 1)
    for place, length in spans(rng, n_samples, rng.uniform(0.2, 0.6), 0.0):
        pitch_hz = np.full(length, base_hz * 2 ** (rng.integers(0, 13) / 12))
        fall = np.exp(-np.arange(length) / (decay_seconds * SAMPLE_RATE_HZ))
        note = tone(pitch_hz, dull)
        note += fall**3 * tone(pitch_hz, bright)
        waveform[place] = rng.uniform(0.6, 1) * hump(length, 0.02) ** 0.1 * fall * note
    return waveform


def flute(rng: Rng, n_samples: int) -> Waveform:
    """Return held notes of a wind instrument with soft onsets, harmonics and vibrato."""
    waveform = np.zeros(n_samples)
    base_hz, vibrato_hz = rng.uniform(290, 620), rng.uniform(4, 6.5)
    heights = np.array([1, 0.7, 0.45, 0.25, 0.12, 0.06]) * rng.uniform(0.6, 1.4, 6)
    for place, length in spans(rng, n_samples, rng.uniform(0.25, 0.9), 0.03):
        vibrato = 0.012 * sway(rng, length, vibrato_hz)
        pitch_hz = base_hz * 2 ** (rng.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12 + vibrato)
        breath = noise(rng, length, 500, 5_000)
        note = tone(pitch_hz, heights) + 0.04 * breath
        waveform[place] = hump(length, 0.25) ** 0.5 * note
    return waveform


def rain(rng: Rng, n_samples: int) -> Waveform:
    """Return a steady hiss grained by countless drops."""
    rate_hz = np.exp(rng.uniform(np.log(400), np.log(3_000)))
    drops = fading(scatter(rng, n_samples, rate_hz), 0.0012)
    low_hz = rng.uniform(1_200, 3_000)
    hiss = noise(rng, n_samples, low_hz, 8_000)
    return (drops / float(drops.mean()) + rng.uniform(0.5, 2)) * hiss


def wind(rng: Rng, n_samples: int) -> Waveform:
    """Return gusts: low noise that swells, with a howl that rises with it."""
    gust = 0.5 + 0.5 * wander(rng, n_samples, rng.uniform(0.6, 1.8))
    low = noise(rng, n_samples, 60, rng.uniform(250, 500))
    howl_hz = rng.uniform(500, 1_000)
    howl = noise(rng, n_samples, howl_hz, howl_hz * 1.2)
    return (0.3 + gust) * low + rng.uniform(0.5, 1.5) * gust**2 * howl


def drip(rng: Rng, n_samples: int) -> Waveform:
    """Return single drops into water: short tones that bend upwards."""
    waveform = np.zeros(n_samples)
    base_hz, gap_seconds = rng.uniform(700, 2_200), rng.uniform(0.1, 0.6)
    for place, length in spans(rng, n_samples, 0.08, gap_seconds):
        bend = np.linspace(0, rng.uniform(0.4, 1.2), length)
        plop = tone(base_hz * rng.uniform(0.75, 1.35) * 2**bend, [1, 0.1])
        waveform[place] = rng.uniform(0.4, 1) * hump(length, 0.06) * plop
    return waveform


def thunder(rng: Rng, n_samples: int) -> Waveform:
    """Return a crack and the rumble that rolls after it."""
    claps = scatter(rng, n_samples, rng.uniform(2, 6))
    claps[0] += 3.0
    claps *= np.exp(-np.arange(n_samples) / (rng.uniform(0.6, 2) * SAMPLE_RATE_HZ))
    roll = fading(claps, rng.uniform(0.15, 0.4))
    crack = fading(claps, rng.uniform(0.02, 0.06))
    rumble = noise(rng, n_samples, 40, rng.uniform(150, 350))
    tearing = noise(rng, n_samples, 80, 3_000, power_slope=1)
    return 2 * roll * rumble + crack * tearing
