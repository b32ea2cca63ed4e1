"""Labels and scores of which some are missing, and the paper's threshold by a plain sort."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm

from earmark.config import PAPER_DISCARD_PERCENTS
from earmark.labels import LabelSet

percents = st.sampled_from([*PAPER_DISCARD_PERCENTS, 33.3, 50, 99.9, 100])


def plain_threshold(implicit_scores: np.ndarray, percent: float) -> float:
    """The rule, word for word, by a plain sort."""
    ranked = np.sort(implicit_scores)[::-1]
    k = int(Decimal(str(percent)) * len(ranked) / 100)
    if k == 0:
        return np.inf
    return ranked[k] if k < len(ranked) else -np.inf


def random_case(
    n_clips: int, n_classes: int, seed: int = 0, decimals: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = rng.choice(np.array([0, 0, 0, 1, -1], np.int8), size=(n_clips, n_classes))
    return states, rng.normal(size=(n_clips, n_classes)).round(decimals).astype(np.float32)


@st.composite
def labelled_scores(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40))
    states = draw(hnp.arrays(np.int8, shape, elements=st.sampled_from([0, 0, 1, -1])))
    tied = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0])
    smooth = st.floats(-50, 50, width=32)
    return states, draw(
        hnp.arrays(np.float32, shape, elements=draw(st.sampled_from([tied, smooth])))
    )


def planted_case(n_clips: int = 20_000) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """Classes of priors 0.1, 0.02 and 0.0005, from each of which 40 % of the labels are hidden."""
    rng = np.random.default_rng(0)
    priors = np.array([0.1, 0.02, 0.0005])
    truth = rng.random((n_clips, 3)) < priors
    scores = (1.8 * (rng.normal(size=truth.shape) + 4 * truth) + np.log(priors)).astype(np.float32)
    states = (truth & (rng.random(truth.shape) < 0.6)).astype(np.int8)
    return LabelSet.from_dense(states), scores, truth


def world(
    auc: float,
    n_clips: int = 2_000,
    n_classes: int = 40,
    seed: int = 0,
    *,
    priors: tuple[float, float] = (0.01, 0.1),
    recall: tuple[float, float] = (0.3, 0.9),
    shape: str = "normal",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, a teacher's scores of a given AUC, and which labels are missing [clip, class].

    A nominator found a share of each class's sounds, and people were asked about some two absent
    classes of each clip.
    """
    rng = np.random.default_rng(seed)
    prior = rng.permutation(np.geomspace(*priors, n_classes))
    truth = rng.random((n_clips, n_classes)) < prior
    noise = {
        "normal": lambda: rng.normal(size=truth.shape),
        "heavy": lambda: rng.standard_t(5, size=truth.shape) / np.sqrt(5 / 3),
        "skewed": lambda: (rng.gamma(4, size=truth.shape) - 4) / 2,
        "wide": lambda: rng.normal(size=truth.shape) * np.where(truth, 1.6, 1.0),
    }[shape]()
    scores = 1.8 * (noise + np.sqrt(2) * norm.ppf(auc) * truth) + np.log(prior)
    is_found = rng.random(truth.shape) < rng.uniform(*recall, size=n_classes)
    states = (truth & is_found).astype(np.int8)
    states[(rng.random(truth.shape) < min(2 / n_classes, 0.1)) & ~truth] = -1
    return states, scores.astype(np.float32), truth & (states == 0)
