from __future__ import annotations

import numpy as np
import pytest

from earmark.datasets import CLASSES, SAMPLE_RATE_HZ, ontology

RATE_HZ = SAMPLE_RATE_HZ
SOUNDS = [row for row in CLASSES if row.source is not None]


def sound(class_id: str, seed: int = 0, seconds: float = 2.0) -> np.ndarray:
    source = CLASSES[ontology().index[class_id]].source
    return source(np.random.default_rng(seed), int(seconds * RATE_HZ))


@pytest.mark.parametrize("row", SOUNDS, ids=lambda row: row.class_id)
def test_source_is_a_sane_family_of_sounds(row):
    for n_samples in (100, 4_800, 32_000):
        waveform = row.source(np.random.default_rng(0), n_samples)
        again = row.source(np.random.default_rng(0), n_samples)
        assert waveform.shape == (n_samples,)
        assert np.isfinite(waveform).all()
        assert waveform.std() > 0
        assert np.array_equal(waveform, again)
    first, second = sound(row.class_id, 0), sound(row.class_id, 1)
    assert np.abs(first - second).max() > 0.01 * np.abs(first).max()
