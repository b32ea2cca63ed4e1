from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

from earmark.datasets import noise

RATE_HZ = 16_000


@pytest.mark.parametrize(("power_slope", "db_per_octave"), [(0, 0.0), (1, -3.01), (2, -6.02)])
def test_noise_has_its_colour(power_slope, db_per_octave):
    rng = np.random.default_rng(0)
    waveform = noise(rng, 8 * RATE_HZ, RATE_HZ, high_hz=1e6, power_slope=power_slope)
    frequency_hz, power = scipy.signal.welch(waveform, RATE_HZ, nperseg=2048)
    is_inside = (frequency_hz > 200) & (frequency_hz < 6_000)
    slope, _ = np.polyfit(np.log2(frequency_hz[is_inside]), 10 * np.log10(power[is_inside]), 1)
    assert slope == pytest.approx(db_per_octave, abs=0.25)
