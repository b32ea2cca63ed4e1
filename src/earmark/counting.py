"""How many labels of a class are missing, and the chance that a given one is.

The implicit scores of a class mix negatives with *missing* labels: sounds that are there but that
nobody was asked about. If labels go missing at random given presence, the missing ones score like
the class's explicit positives, whose shape is known. Three answers follow.

- ``shapes``: among high implicit scores, fit the amount of the positives' shape beside negatives
  whose log density is a parabola (a normal tail, an exponential one or a heavier one) by
  expectation-maximisation on a histogram.
- ``negatives``: where people have said "not present" too, explicit labels tell the share of
  positives at a score. People are asked about likely sounds, so this errs upwards; it is taken
  where it is lower than ``shapes``, because it knows look-alikes that score like the class.
- ``upper_bound`` (95 %): above any score there are no more missing labels than implicit ones, and
  the positives tell which share of the missing lies there; exact bounds, the best of nine scores.

A class with fewer than 30 explicit positives is not estimable. When labels go missing more often
where the sound is faint, all three are too low; only an audit by ear can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit
from scipy.stats import beta, chi2

from earmark.bracketing import Summary, Tail, sample_scores, top_scores
from earmark.labels import LabelSet
from earmark.scores import ScoreMatrix, ScoresLike, find_unscored, open_scores

MIN_POSITIVES = 30
"""Explicit positives, and implicit labels, below which a class is not estimable."""

MIN_NEGATIVES = 30
"""Explicit negatives among the positives' scores from which they are heard."""

KEPT_SHARE = 0.1
"""Share of the implicit scores that is counted exactly; the rest is estimated from a sample."""

EXPECTED_PER_POSITIVE = 0.5
"""Missing labels per positive, where no class is large enough to tell."""

PRIOR_STRENGTH = 3.0
"""Missing labels that the expectation weighs as much as, when a class's chances are fitted."""

MOST_PER_POSITIVE = 3.0
"""How many times the expected number of missing labels a class's chances may add up to."""

TYPICAL_SEPARATION, TYPICAL_SPREAD = 2.5, 0.8
"""How far positives score above implicit labels, in sds, and how that differs between classes."""

N_BINS = 128
N_ITERATIONS = 60
N_RESAMPLES = 20

COUNT_SCHEMA = {
    "class_id": pl.String,
    "n_positives": pl.Int64,
    "n_implicit": pl.Int64,
    "n_missing": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "upper_bound": pl.Float64,
    "method": pl.String,
    "reason": pl.String,
}

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Histograms:
    """Counts of scores [class, bin]: implicit labels, explicit positives and negatives.

    ``low`` and ``width`` [class] place the bins; scores beyond them count in the outer bins.
    """

    low: Matrix
    width: Matrix
    implicit: Matrix
    positives: Matrix
    negatives: Matrix

    @property
    def edges(self) -> Matrix:
        """The edges [class, bin + 1] of the bins."""
        return self.low[:, None] + np.arange(N_BINS + 1) * self.width[:, None]

    def implicit_per_positive(self, q: float) -> Matrix:
        """Return implicit labels per positive [class] above a quantile of the positives."""
        is_high = np.arange(N_BINS) >= _quantile(self.positives, q)[:, None]
        n_positives = (self.positives * is_high).sum(axis=1)
        return np.asarray((self.implicit * is_high).sum(axis=1) / n_positives)

    def resampled(self, rng: np.random.Generator) -> Histograms:
        """Draw the counts that another sample of clips might have given."""
        implicit, positives, negatives = (
            rng.poisson(counts).astype(np.float64)
            for counts in (self.implicit, self.positives, self.negatives)
        )
        return replace(self, implicit=implicit, positives=positives, negatives=negatives)

    def of(self, classes: NDArray[np.bool_]) -> Histograms:
        """Return the histograms of some classes."""
        return Histograms(
            self.low[classes],
            self.width[classes],
            self.implicit[classes],
            self.positives[classes],
            self.negatives[classes],
        )


@dataclass(frozen=True)
class Estimate:
    """The number of missing labels [class], and their chance by score [class, bin]."""

    n_missing: Matrix
    chances: Matrix
    is_by_negatives: NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """What is known about the missing labels of every class.

    ``table`` is what :func:`count_missing` returns. ``chances`` [class, bin] is the chance that an
    implicit label in a bin of ``histograms`` is missing, rising with the score; NaN where the
    class is not estimable.
    """

    table: pl.DataFrame
    histograms: Histograms
    chances: Matrix

    def chance(self, columns: NDArray[np.integer], logits: NDArray[np.floating]) -> Matrix:
        """Return the chance that implicit labels of given classes and scores are missing."""
        places = (logits - self.histograms.low[columns]) / self.histograms.width[columns] - 0.5
        places = places.clip(0, N_BINS - 1)
        left = np.minimum(places.astype(np.int64), N_BINS - 2)
        below, above = self.chances[columns, left], self.chances[columns, left + 1]
        return np.asarray(below + (places - left) * (above - below))

    @property
    def n_expected(self) -> Matrix:
        """The sum of the chances [class]: missing labels that can be expected; 0 where unknown."""
        return np.asarray((np.nan_to_num(self.chances) * self.histograms.implicit).sum(axis=1))

    def score_at(self, chance: float | Matrix) -> NDArray[np.float32]:
        """Return the score [class] from which on a chance is reached; +inf where it never is.

        ``chance`` is one number, or one for each class.
        """
        wanted = np.broadcast_to(chance, len(self.chances))
        is_reached = self.chances >= wanted[:, None]
        right = is_reached.argmax(axis=1)
        rows, left = np.arange(len(right)), np.maximum(right - 1, 0)
        below, above = self.chances[rows, left], self.chances[rows, right]
        step = (wanted - below) / np.where(above > below, above - below, 1)
        places = np.where(right > 0, left + step, -np.inf)
        scores = self.histograms.low + (places + 0.5) * self.histograms.width
        return np.where(is_reached.any(axis=1), scores, np.inf).astype(np.float32)

    def chance_of_best(self, n_labels: int, weights: Matrix) -> Matrix:
        """Return chances [class] that about half as many again as ``n_labels`` reach.

        They are alike after weighting by class, and no lower than 0.1 % of the best weight.
        """
        worth = (np.nan_to_num(self.chances) * weights[:, None]).ravel()
        order = np.argsort(-worth, kind="stable")
        n_reaching = np.cumsum(self.histograms.implicit.ravel()[order])
        place = int(np.searchsorted(n_reaching, 1.5 * n_labels))
        lowest = float(worth[order[place]]) if place < len(order) else 0.0
        return np.asarray(np.maximum(lowest, 1e-3 * weights.max(initial=0)) / weights)


def count_missing(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix, seed: int = 0
) -> pl.DataFrame:
    """Estimate how many labels of each class are missing.

    Returns class_id, n_positives, n_implicit, n_missing, low and high (90 % interval),
    upper_bound, method (``shapes`` or ``negatives``) and reason; where a class is not estimable,
    the reason says why and the numbers are null (the upper bound needs one positive only).
    """
    return estimate_missing(labels, logits, seed).table


def estimate_missing(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    seed: int = 0,
    summary: Summary | None = None,
    n_resamples: int = N_RESAMPLES,
) -> Counts:
    """Estimate numbers and chances of missing labels, in one pass or from an earlier one's summary.

    Without resamples there is no interval, and a tenth of the work.
    """
    scores = open_scores(logits, labels)
    is_scored = ~find_unscored(scores)
    histograms = score_histograms(labels, scores, summary)
    is_enough = np.minimum(labels.n_positives, labels.n_implicit) >= MIN_POSITIVES
    is_estimable = is_scored & is_enough
    upper = np.where(is_scored, _upper_bound(histograms), np.nan)
    numbers = {name: np.full(labels.n_classes, np.nan) for name in ("n_missing", "low", "high")}
    chances = np.full((labels.n_classes, N_BINS), np.nan)
    method = np.full(labels.n_classes, None, object)
    chosen = histograms.of(is_estimable)
    estimate = _estimate(chosen)
    numbers["n_missing"][is_estimable] = estimate.n_missing
    has_positive = is_scored & (np.minimum(labels.n_positives, labels.n_implicit) > 0)
    ratios = estimate.n_missing / labels.n_positives[is_estimable]
    per_positive = float(np.median(ratios)) if len(ratios) else EXPECTED_PER_POSITIVE
    chances[has_positive] = _pooled_chances(histograms.of(has_positive), per_positive)
    is_heard = np.flatnonzero(is_estimable)[estimate.is_by_negatives]
    chances[is_heard] = estimate.chances[estimate.is_by_negatives]
    method[is_estimable] = np.where(estimate.is_by_negatives, "negatives", "shapes")
    if n_resamples:
        draws = _resampled_estimates(chosen, n_resamples, np.random.default_rng(seed))
        interval = _interval(estimate.n_missing, draws, upper[is_estimable])
        numbers["low"][is_estimable], numbers["high"][is_estimable] = interval
    return Counts(_table(labels, numbers, upper, method, is_scored), histograms, chances)


def _table(
    labels: LabelSet,
    numbers: dict[str, Matrix],
    upper: Matrix,
    method: NDArray[np.object_],
    is_scored: NDArray[np.bool_],
) -> pl.DataFrame:
    reason = np.full(labels.n_classes, None, object)
    reason[labels.n_positives < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} explicit positives"
    reason[labels.n_implicit < MIN_POSITIVES] = f"fewer than {MIN_POSITIVES} implicit labels"
    reason[~is_scored] = "no scores"
    columns = {
        "class_id": list(labels.class_ids),
        "n_positives": labels.n_positives,
        "n_implicit": labels.n_implicit,
        **numbers,
        "upper_bound": np.where(np.isfinite(upper), upper, np.nan),
        "method": method.tolist(),
        "reason": reason.tolist(),
    }
    return pl.DataFrame(columns, schema=COUNT_SCHEMA).fill_nan(None)


def score_histograms(
    labels: LabelSet, logits: ScoresLike | ScoreMatrix, summary: Summary | None = None
) -> Histograms:
    """Count the scores of each class: explicit ones and high implicit ones exactly.

    Implicit scores below those in the tails of ``summary`` (by default the highest tenth, found
    in one pass) are estimated from a sample of clips.
    """
    scores = open_scores(logits, labels)
    if summary is None:
        n_kept = (KEPT_SHARE * labels.n_implicit).astype(np.int64)
        summary = top_scores(labels, scores, np.where(find_unscored(scores), 0, n_kept)[None])
    sample, _ = sample_scores(labels, scores)
    low, width = _bins(labels, summary, sample)
    edges = low[:, None] + np.arange(N_BINS + 1) * width[:, None]
    implicit = np.empty((labels.n_classes, N_BINS))
    for column, one in enumerate(summary.classes):
        n_implicit = int(labels.n_implicit[column])
        implicit[column] = _implicit_counts(one.tail, sample[column], edges[column], n_implicit)
    positives, negatives = (
        _explicit_counts(labels.columns[chosen], summary.explicit[chosen], low, width)
        for chosen in (labels.present, ~labels.present)
    )
    return Histograms(low, width, implicit, positives, negatives)


def _bins(labels: LabelSet, summary: Summary, sample: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
    """Place the bins of each class over its sampled, kept and explicit scores."""
    finite = np.where(np.isfinite(sample), sample, np.nan)
    low = np.fmin.reduce(finite, axis=1, initial=np.inf).astype(np.float64)
    high = np.fmax.reduce(finite, axis=1, initial=-np.inf).astype(np.float64)
    np.minimum.at(low, labels.columns, summary.explicit)
    np.maximum.at(high, labels.columns, summary.explicit)
    tails = [one.tail for one in summary.classes]
    kept = [tail.centres[-1] if tail.counts.any() else -np.inf for tail in tails]
    high = np.maximum(high, kept)
    is_empty = ~np.isfinite(high - low)  # no implicit and no explicit score
    low, high = np.where(is_empty, 0.0, low), np.where(is_empty, 1.0, high)
    return low, np.maximum((high - low) / N_BINS, 1e-6 * np.maximum(np.abs(high), 1e-6))


def _implicit_counts(
    tail: Tail, sample: NDArray[np.float32], edges: Matrix, n_implicit: int
) -> Matrix:
    """Count the tail [bin], and the other implicit scores as the sample spreads below it."""
    places = np.searchsorted(edges[1:-1], tail.centres)
    counts = np.bincount(places, weights=tail.counts, minlength=N_BINS)
    below = sample[np.isfinite(sample) & (sample <= tail.bound)]
    if not len(below):
        below = np.array([max(tail.bound, np.float32(edges[0]))])
    spread = np.diff(np.searchsorted(below, edges[1:-1]), prepend=0, append=len(below))
    return np.asarray(counts + spread * (n_implicit - tail.counts.sum()) / len(below))


def _explicit_counts(
    columns: NDArray[np.integer], scores: NDArray[np.float32], low: Matrix, width: Matrix
) -> Matrix:
    """Count explicit scores [class, bin]."""
    is_scored = ~np.isnan(scores)
    columns, scores = columns[is_scored], scores[is_scored]
    places = ((scores - low[columns]) / width[columns]).astype(np.int64).clip(0, N_BINS - 1)
    flat = np.bincount(columns * N_BINS + places, minlength=len(low) * N_BINS)
    return flat.reshape(-1, N_BINS).astype(np.float64)


def _estimate(histograms: Histograms, tail_factor: float = 1.0) -> Estimate:
    """Estimate numbers and chances by both methods, and take the lower number."""
    shape = _smoothed(histograms.positives)
    n_shapes, chances = _fit_shapes(histograms, shape, tail_factor)
    n_negatives, shares = _fit_negatives(histograms)
    is_by_negatives = n_negatives < n_shapes
    chances = np.where(is_by_negatives[:, None], shares, chances)
    return Estimate(
        np.where(is_by_negatives, n_negatives, n_shapes),
        np.maximum.accumulate(chances, axis=1),
        is_by_negatives,
    )


def _smoothed(counts: Matrix) -> Matrix:
    """Return the density [class, bin] of counts, smoothed by Silverman's rule."""
    bins = np.arange(N_BINS)
    n = counts.sum(axis=1, keepdims=True)
    mean = counts @ bins / n[:, 0]
    sd = np.sqrt((counts * (bins - mean[:, None]) ** 2).sum(axis=1) / n[:, 0])
    spread = (_quantile(counts, 0.75) - _quantile(counts, 0.25)) / 1.34
    sigmas = np.maximum(0.9 * np.minimum(sd, spread) * n[:, 0] ** -0.2, 0.5)
    rows = [
        gaussian_filter1d(row, s, mode="nearest") for row, s in zip(counts, sigmas, strict=True)
    ]
    smooth = np.array(rows).reshape(counts.shape)
    return np.asarray(smooth / smooth.sum(axis=1, keepdims=True))


def _quantile(counts: Matrix, q: float | Matrix) -> NDArray[np.int64]:
    """Return the bin [class] in which a quantile of the counts lies."""
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    return np.asarray((shares < np.reshape(q, (-1, 1))).sum(axis=1))


def _pooled_chances(histograms: Histograms, per_positive: float) -> Matrix:
    """Return the chance [class, bin] of being missing, also in classes with a positive or two.

    What a class's own positives leave open, the other classes tell: where positives score, how
    widely, and how many labels are missing for each.
    """
    shape = _pooled_shape(histograms)
    n_positives = histograms.positives.sum(axis=1)
    expected = np.maximum(per_positive, 0.01) * n_positives
    n_missing, chances = _fit_shapes(histograms, shape, 1.0, expected)
    missing = n_missing[:, None] * shape
    negatives = missing * (1 / np.maximum(chances, 1e-9) - 1)
    n_most = MOST_PER_POSITIVE * np.maximum(per_positive, 0.01) * (n_positives + 1)
    missing = np.minimum(n_missing, n_most)[:, None] * shape
    # Look-alikes beyond the parabola: what is seen and not explained is no missing label.
    rest = (histograms.implicit - missing - negatives) * (chances > 0)
    unexplained = gaussian_filter1d(rest, 3, axis=1, mode="constant").clip(0)
    chances = (chances > 0) * missing / (missing + negatives + unexplained).clip(1e-12)
    return np.asarray(np.maximum.accumulate(chances, axis=1))


def _pooled_shape(histograms: Histograms) -> Matrix:
    """Return the positives' density [class, bin], drawn towards a normal one of pooled moments."""
    bins = np.arange(N_BINS)
    n = histograms.positives.sum(axis=1)
    centre, variance = _moments(histograms.implicit)
    mean, own_variance = _moments(histograms.positives)
    separation, ratio = (mean - centre) / np.sqrt(variance), own_variance / variance
    is_known = n >= 10  # positives from which a class tells others about its moments
    pooled_ratio = (1.0 * 5 + ratio[is_known].sum()) / (5 + is_known.sum())
    ratio = (n * ratio + 10 * pooled_ratio) / (n + 10)
    pooled = (TYPICAL_SEPARATION * 5 + separation[is_known].sum()) / (5 + is_known.sum())
    weight = n / (n + ratio / TYPICAL_SPREAD**2)
    separation = weight * separation + (1 - weight) * pooled
    spread = np.sqrt((ratio + (1 - weight) * TYPICAL_SPREAD**2) * variance)
    z = (bins - (centre + separation * np.sqrt(variance))[:, None]) / spread[:, None]
    normal = np.exp(-z * z / 2) + 1e-300
    normal /= normal.sum(axis=1, keepdims=True)
    own = _smoothed(histograms.positives)
    return np.asarray((n[:, None] * own + 30 * normal) / (n[:, None] + 30))


def _moments(counts: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and variance [class] of counts, in bins."""
    bins = np.arange(N_BINS)
    n = counts.sum(axis=1)
    mean = counts @ bins / n
    variance = (counts * (bins - mean[:, None]) ** 2).sum(axis=1) / n
    return mean, variance + 1 / 12  # the width of a bin


def _fit_shapes(
    histograms: Histograms, shape: Matrix, tail_factor: float, expected: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """Fit implicit = n * shape + exp(parabola) in the tail by expectation-maximisation.

    The tail is the highest tenth, or five times the positives' share if that is more (at most
    half): long enough to show the negatives' slope, short enough for a parabola. The number is
    drawn towards ``expected`` [class], if given. Below the tail the chance is 0.
    """
    counts = histograms.implicit
    prior = histograms.positives.sum(axis=1) / counts.sum(axis=1)
    start = _quantile(counts, 1 - tail_factor * np.clip(5 * prior, 0.1, 0.5))
    is_tail = np.arange(N_BINS) >= start[:, None]
    length = np.maximum(_quantile(counts, 0.9999) - start, 3)
    x = (np.arange(N_BINS) - start[:, None]) / length[:, None]
    powers = np.stack([np.ones_like(x), x, x * x, x * x * x, x * x * x * x]) * is_tail
    tail = counts * is_tail
    n_tail = tail.sum(axis=1)
    n_missing = 0.05 * n_tail if expected is None else expected
    strength = 0.0 if expected is None else PRIOR_STRENGTH
    doubt = 0.0 if expected is None else PRIOR_STRENGTH / expected
    n_shape = (shape * is_tail).sum(axis=1).clip(1e-9)
    height = np.log(np.maximum(n_tail, 0.1) / length) + 1
    parabola = np.stack([height, np.full(len(x), -4.0), np.zeros(len(x))], axis=1)
    for _ in range(8):
        parabola = _newton_step(tail, parabola, powers)
    chances = np.zeros(counts.shape)
    for _ in range(N_ITERATIONS):
        chances = _chances(n_missing, shape, _negatives(parabola, powers))
        n_missing = ((tail * chances).sum(axis=1) + strength) / (n_shape + doubt)
        parabola = _newton_step(tail * (1 - chances), parabola, powers)
    return n_missing, chances * is_tail


def _chances(n_missing: Matrix, shape: Matrix, negatives: Matrix) -> Matrix:
    missing = n_missing[:, None] * shape
    return np.asarray(missing / (missing + negatives + 1e-12))


def _negatives(parabola: Matrix, powers: Matrix) -> Matrix:
    """Return the expected count of negatives [class, bin]; ``powers`` of x are 0 below the tail."""
    exponent = powers[1] * parabola[:, 1:2] + powers[2] * parabola[:, 2:] + parabola[:, :1]
    return np.asarray(np.exp(exponent.clip(-40, 30)) * powers[0])


def _newton_step(counts: Matrix, parabola: Matrix, powers: Matrix) -> Matrix:
    """Take one step of the Poisson regression of counts [class, bin] on 1, x and x^2."""
    expected = _negatives(parabola, powers)
    moments = np.einsum("cb,kcb->ck", expected, powers)
    observed = np.einsum("cb,kcb->ck", counts, powers[:3])
    hessian = moments[:, np.add.outer(np.arange(3), np.arange(3))] + 1e-3 * np.eye(3)
    step = np.linalg.solve(hessian, (observed - moments[:, :3])[:, :, None])[:, :, 0]
    return np.asarray(parabola + step.clip(-2, 2))


def _fit_negatives(histograms: Histograms) -> tuple[Matrix, Matrix]:
    """Apply the explicit labels' share of positives at a score to the implicit labels.

    Looks at scores above the positives' lower quartile and divides by the share of positives
    there; infinite where explicit negatives are too few.
    """
    positives, negatives = histograms.positives, histograms.negatives
    is_high = np.arange(N_BINS) >= _quantile(positives, 0.25)[:, None]
    shares = _logistic(positives * is_high, negatives * is_high)
    n_high = (histograms.implicit * shares * is_high).sum(axis=1)
    n_missing = n_high * positives.sum(axis=1) / (positives * is_high).sum(axis=1)
    is_enough = (negatives * is_high).sum(axis=1) >= MIN_NEGATIVES
    return np.where(is_enough, n_missing, np.inf), shares


def _logistic(positives: Matrix, negatives: Matrix) -> Matrix:
    """Fit the share of positives [class, bin] as a logistic curve that does not fall."""
    x = np.broadcast_to(np.linspace(-1, 1, N_BINS), positives.shape)
    n = positives + negatives
    line = np.zeros((len(n), 2))
    for _ in range(12):
        share = expit(line[:, :1] + line[:, 1:] * x)
        weight = n * share * (1 - share)
        rest = positives - n * share
        gradient = np.stack([rest.sum(axis=1), (rest * x).sum(axis=1)], axis=1) - 0.01 * line
        moments = np.stack([(weight * x**k).sum(axis=1) for k in range(3)], axis=1)
        hessian = moments[:, np.add.outer(np.arange(2), np.arange(2))] + 0.01 * np.eye(2)
        line = line + np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0].clip(-5, 5)
        line[:, 1] = line[:, 1].clip(0)
    return np.asarray(expit(line[:, :1] + line[:, 1:] * x))


def _resampled_estimates(
    histograms: Histograms, n_resamples: int, rng: np.random.Generator
) -> Matrix:
    """Estimate again [resample, class] from resampled counts and with other lengths of the tail."""
    draws = []
    for factor in np.resize([0.5, 1.0, 2.0], n_resamples):
        drawn = histograms.resampled(rng)
        draws.append(_estimate(drawn, factor).n_missing)
    return np.array(draws)


def _interval(n_missing: Matrix, draws: Matrix, upper: Matrix) -> tuple[Matrix, Matrix]:
    """Return the 90 % interval [class], widened by the doubt about the negatives' shape.

    The further the upper bound lies above the estimate, the more the estimate owes to that shape.
    The factors give 90 % on benchmarks/counting.py, over all its shapes and priors, where labels
    go missing at random.
    """
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    low, high = np.minimum(low, n_missing), np.maximum(high, n_missing)
    doubt = np.log(np.maximum(upper / np.maximum(n_missing, 0.5), 1))
    return low * np.exp(-0.6 * doubt - 0.05), high * np.exp(0.3 * doubt + 0.05)


def _upper_bound(histograms: Histograms, error: float = 0.05) -> Matrix:
    """Return the lowest of nine exact upper bounds [class]; infinite without positives."""
    positives, implicit = histograms.positives, histograms.implicit
    n_positives = positives.sum(axis=1)
    bounds = [np.full(len(positives), np.inf)]
    for q in np.arange(0.1, 0.95, 0.1):
        with np.errstate(invalid="ignore"):
            is_high = np.arange(N_BINS) >= _quantile(positives, q)[:, None]
        n_high = (positives * is_high).sum(axis=1)
        n_implicit = (implicit * is_high).sum(axis=1)
        share = beta.ppf(error / 9, n_high, n_positives - n_high + 1)
        most = chi2.ppf(1 - error / 9, 2 * (n_implicit + 1)) / 2
        bounds.append(np.where(n_positives > 0, most / share, np.inf))
    return np.asarray(np.fmin.reduce(bounds, axis=0))
