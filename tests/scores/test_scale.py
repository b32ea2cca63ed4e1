from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from earmark.errors import EarmarkError
from earmark.labels import LabelSet
from earmark.scores import ScoreMatrix, detect_scale, files, write_logits

LABELS = LabelSet.from_dense(np.zeros((7, 3)), [f"clip{i}" for i in range(7)], ["a", "b", "c"])
SHARED_FOLDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Make every conversion take several blocks."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 8 * 3 * 2)


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ([[0.0, 1.0], [0.5, np.nan]], "probabilities"),
        ([[0.2, 1.1], [0.5, 0.5]], "logits"),
        ([[0.2, -0.1], [0.5, 0.5]], "logits"),
        ([[np.nan, np.nan], [np.nan, np.nan]], "logits"),
    ],
)
def test_probabilities_are_told_from_logits(tmp_path, scores, scale):
    np.save(tmp_path / "s.npy", np.array(scores))
    assert detect_scale(ScoreMatrix(np.load(tmp_path / "s.npy"))) == scale


@SHARED_FOLDER
@given(
    hnp.arrays(
        np.float64, (7, 3), elements=st.sampled_from([0.0, 1e-30, 1e-7, 0.25, 0.5, 0.999999, 1.0])
    ),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_logits_keep_order_and_ties_and_are_finite(tmp_path, probabilities, dtype):
    probabilities = probabilities.astype(dtype)
    np.save(tmp_path / "p.npy", probabilities)
    write_logits(tmp_path / "p.npy", LABELS, tmp_path / "l.npy")
    logits = np.load(tmp_path / "l.npy")
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    for column in range(3):
        p, z = probabilities[:, column], logits[:, column]
        np.testing.assert_array_equal(
            np.sign(np.subtract.outer(p, p)), np.sign(np.subtract.outer(z, z))
        )
    inside = (probabilities > 0) & (probabilities < 1)
    p = probabilities[inside].astype(np.float64)
    np.testing.assert_allclose(logits[inside], np.log(p / (1 - p)), rtol=1e-5, atol=1e-6)


def test_what_is_no_probability_is_named_with_row_and_class(tmp_path):
    scores = np.full((7, 3), 0.5)
    scores[5, 1] = 1.5
    np.save(tmp_path / "p.npy", scores)
    with pytest.raises(EarmarkError, match=r"'clip5' \(row 5\), class 'b': 1\.5 is no probability"):
        write_logits(tmp_path / "p.npy", LABELS, tmp_path / "l.npy")


def test_ties_at_one_and_float16_are_announced_and_nan_stays(tmp_path):
    scores = np.full((7, 3), 0.5, np.float16)
    scores[:3, 1], scores[:, 2] = 1, np.nan
    np.save(tmp_path / "p.npy", scores)
    warnings = write_logits(tmp_path / "p.npy", LABELS, tmp_path / "l.npy")
    assert "float16" in warnings[0]
    assert "class 'b': 3 clips" in warnings[1]
    logits = np.load(tmp_path / "l.npy")
    assert np.isnan(logits[:, 2]).all()
    np.testing.assert_array_equal(logits[:, 1], [1, 1, 1, 0, 0, 0, 0])
