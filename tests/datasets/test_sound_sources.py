from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

from earmark.datasets import CLASSES, SAMPLE_RATE_HZ, ontology

RATE_HZ = SAMPLE_RATE_HZ
SOUNDS = [row for row in CLASSES if row.source is not None]


def sound(class_id: str, seed: int = 0, seconds: float = 2.0) -> np.ndarray:
    source = CLASSES[ontology().index[class_id]].source
    return source(np.random.default_rng(seed), int(seconds * RATE_HZ), RATE_HZ)


def spectrogram(waveform: np.ndarray) -> np.ndarray:
    """Power [band, frame] in 24 bands of even width on a logarithmic axis."""
    frequency_hz, _, power = scipy.signal.spectrogram(waveform, RATE_HZ, nperseg=400, noverlap=240)
    edges_hz = np.geomspace(100, 8_000, 25)
    bands = np.digitize(frequency_hz, edges_hz)
    return np.array([power[bands == band].sum(axis=0) for band in range(25)])


def fingerprint(waveform: np.ndarray) -> np.ndarray:
    """What a listener without a memory hears: timbre, its spread in time, rhythm, tonality."""
    power_db = 10 * np.log10(spectrogram(waveform / waveform.std()) + 1e-6)
    loudness = power_db.max(axis=0)
    rhythm = np.abs(np.fft.rfft(loudness - loudness.mean(), 512))[1:200]
    rhythm = np.log([part.sum() + 1 for part in np.array_split(rhythm, 12)])
    spectrum = np.abs(np.fft.rfft(waveform)) + 1e-9
    flatness = np.log(spectrum).mean() - np.log(spectrum.mean())
    return np.concatenate(
        [power_db.mean(axis=1), power_db.std(axis=1), 10 * rhythm, [10 * flatness]]
    )


@pytest.fixture(scope="module")
def fingerprints() -> np.ndarray:
    """[class, event, feature]"""
    return np.array(
        [[fingerprint(sound(row.class_id, seed)) for seed in range(8)] for row in SOUNDS]
    )


def centroid_hz(waveform: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(waveform))
    return float((spectrum * np.fft.rfftfreq(len(waveform), 1 / RATE_HZ)).sum() / spectrum.sum())


def crest(waveform: np.ndarray) -> float:
    """Loudest twentieth of a second over the mean: 1 is steady, large is impulsive."""
    energies = np.square(waveform).reshape(-1, RATE_HZ // 20).mean(axis=1)
    return float(energies.max() / energies.mean())


def peak_share(waveform: np.ndarray) -> float:
    """Share of the energy in the strongest one per cent of frequencies: 1 is a pure tone."""
    power = np.sort(np.abs(np.fft.rfft(waveform)) ** 2)
    return float(power[-len(power) // 100 :].sum() / power.sum())


def median(measure, class_id: str) -> float:
    return float(np.median([measure(sound(class_id, seed)) for seed in range(9)]))


@pytest.mark.parametrize("row", SOUNDS, ids=lambda row: row.class_id)
def test_source_is_a_sane_family_of_sounds(row):
    for n_samples in (100, 4_800, 32_000):
        waveform = row.source(np.random.default_rng(0), n_samples, RATE_HZ)
        again = row.source(np.random.default_rng(0), n_samples, RATE_HZ)
        assert waveform.shape == (n_samples,)
        assert np.isfinite(waveform).all()
        assert waveform.std() > 0
        assert np.array_equal(waveform, again)
    first, second = sound(row.class_id, 0), sound(row.class_id, 1)
    assert np.abs(fingerprint(first) - fingerprint(second)).max() > 1


def test_sources_can_be_told_apart(fingerprints):
    n_classes, n_events, _ = fingerprints.shape
    flat = fingerprints.reshape(n_classes * n_events, -1)
    distances = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    classes = np.repeat(np.arange(n_classes), n_events)
    is_right = classes[distances.argmin(axis=1)] == classes
    assert is_right.mean() > 0.75  # chance is 0.03
    assert is_right.reshape(n_classes, n_events).mean(axis=1).min() > 0.2


def test_siblings_resemble_one_another_more_than_strangers(fingerprints):
    centres = fingerprints.mean(axis=1)
    distances = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    ids = [row.class_id for row in SOUNDS]
    is_sibling = np.array([[b in ontology().siblings(a) for b in ids] for a in ids])
    is_stranger = ~is_sibling & ~np.eye(len(ids), dtype=bool)
    assert distances[is_sibling].mean() < distances[is_stranger].mean()


def test_sounds_have_the_character_of_their_names():
    assert median(centroid_hz, "car_engine") < median(centroid_hz, "motorcycle")
    assert median(centroid_hz, "wind") < median(centroid_hz, "rain")
    assert median(centroid_hz, "dog_bark") < median(centroid_hz, "songbird")
    for steady in ("rain", "car_engine", "siren"):
        for impulsive in ("footsteps", "clock_tick", "hammer", "drip"):
            assert 2 * median(crest, steady) < median(crest, impulsive)
    for noisy in ("rain", "applause", "saw"):
        for tonal in ("beep", "buzzer", "bell", "telephone"):
            assert 2 * median(peak_share, noisy) < median(peak_share, tonal)


@pytest.mark.parametrize(
    ("class_id", "low_hz", "high_hz"),
    [("male_speech", 60, 180), ("female_speech", 120, 300), ("child_speech", 200, 500)],
)
def test_voices_have_their_pitch(class_id, low_hz, high_hz):
    waveform = sound(class_id, seconds=4.0)
    correlation = scipy.signal.fftconvolve(waveform, waveform[::-1])[len(waveform) - 1 :]
    first, last = RATE_HZ // 600, RATE_HZ // 60
    lag = first + int(correlation[first:last].argmax())
    assert low_hz < RATE_HZ / lag < high_hz
