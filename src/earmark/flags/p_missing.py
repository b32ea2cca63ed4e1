"""The probability that an implicit label is missing: a logistic regression pooled over classes.

A label that is missing is a sound that is there but that nobody was asked about. Labels that were
given tell which scores such sounds have, so without answers the regression says whether a label
*was given*, from five features of a label; p_missing has the odds of that times r, the number of
missing labels per given one. Nobody knows r before people have listened: it is taken to be 1, and
whatever is said of it is said for r from 0.3 to 3.

With twenty answers or more the same regression is fitted to the answers, with three more features
and an effect and a slope for each class. It starts at the coefficients found without answers, which
a Gaussian prior holds, and which count as a hundred answers besides.

Totals come from answers alone, by the difference estimator: the sum of p_missing over the
labels plus the weighted residuals of the random sample of answers (prediction-powered inference
with known sampling probabilities). It is right on average however wrong the model is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from earmark.errors import short_repr
from earmark.flags.chances.learnt import LEAST_ANSWERS, Answers
from earmark.flags.suspects import are_among
from earmark.labels import LabelSet, Ontology
from earmark.scores import (
    Chunk,
    ScoreMatrix,
    ScoresLike,
    find_unscored,
    open_scores,
    sample_scores,
)

FEATURES = (
    "logit",
    "log_rank",
    "descendant",
    "logit_of_descendant",
    "parent_margin",
    "standardised",
    "log_prior",
    "standardised_squared",
)
"""The features of a label, in their order.

logit: its score; log_rank: the logarithm of the class's rank among the clip's scores; descendant:
whether a class below it is labelled; logit_of_descendant: the product of both; parent_margin: the
best score of the classes right above it less its own, 0 without any; standardised: the logit less
the mean of the class's implicit scores, in their standard deviations; log_prior: the logarithm of
the class's share of positives; standardised_squared: the square of standardised where it is above
0. The last three are used with answers only.
"""

N_WITHOUT_ANSWERS = 5
"""Features that the model without answers uses: the first ones."""

LEAST_R, MOST_R = 0.3, 3.0
"""Missing labels per given one: the range that is stated before people have listened."""

SAMPLED_CLIPS = 4_096
"""Clips from which the model without answers is fitted."""

MOST_EXACT, EVERY = 200_000, 32
"""Implicit labels up to which all of the sampled clips are used; beyond, all of the highest 2 % by
standardised score and every 32nd of the others."""

WEIGHT_VARIANCE, INTERCEPT_VARIANCE = 1.0, 1.0
EFFECT_VARIANCE, SLOPE_VARIANCE = 1.3, 0.6
"""Variances of the Gaussian prior with answers: of a coefficient (per standard deviation of its
feature), of the intercept, of a class's effect, and of how much its coefficient of ``standardised``
differs from the others'."""

STANDARDISED = FEATURES.index("standardised")

PRIOR_ANSWERS, N_PRIOR_LABELS, FIRST_SHARE = 100.0, 1_000, 1e-4
"""Answers that the model without answers counts for; labels that stand for it, evenly over the
logarithm of their rank; the share of labels up to which ranks count alike."""

N_SHUFFLES = 200
"""Permutations of the clips in :func:`measure_knowledge`."""

LEAST_P = 0.01
"""The lowest p_missing by which the random sample is allocated."""

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")

LABELS_AT_ONCE, FEW = 512, 8

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Features:
    """Computes the features of labels; build it with :func:`find_features`.

    ``mean`` and ``sd`` of implicit scores and ``log_prior`` are [class], NaN without scores;
    ``parents`` [class, most parents] are columns, padded by -1; ``implied`` ascends and holds
    clip * n_classes + class of every label, given or not, with a labelled descendant.
    """

    labels: LabelSet
    mean: Floats
    sd: Floats
    log_prior: Floats
    parents: Ints
    implied: Ints

    __repr__ = short_repr

    def of_labels(self, scores: ScoreMatrix, rows: Ints, columns: Ints) -> Floats:
        """Return the features [label, feature] of single labels, given by clip and class."""
        features = np.empty((len(rows), len(FEATURES)), np.float32)
        order = np.argsort(rows, kind="stable")
        by_clip = rows[order]

        def fill(chunks: Iterable[Chunk]) -> None:
            for clips, values in chunks:
                first, last = np.searchsorted(by_clip, (clips.start, clips.stop))
                for start in range(first, last, LABELS_AT_ONCE):
                    places = order[start : min(start + LABELS_AT_ONCE, last)]
                    features[places] = self._of(values, clips.start, rows[places], columns[places])

        clips, clip_of = np.unique(rows, return_inverse=True)
        if len(clips) > scores.n_clips // FEW:
            scores.map(fill)
            return features
        for start in range(0, len(clips), SAMPLED_CLIPS):
            some = clips[start : start + SAMPLED_CLIPS]
            values = scores.sample(some)
            mine = np.flatnonzero((clip_of >= start) & (clip_of < start + len(some)))
            for part in np.array_split(mine, len(mine) // LABELS_AT_ONCE + 1):
                block_rows = clip_of[part] - start
                features[part] = self._of(values, 0, block_rows, columns[part], rows[part])
        return features

    def _of(
        self, values: Floats, first: int, rows: Ints, columns: Ints, clips: Ints | None = None
    ) -> Floats:
        """Return the features of labels of clips whose scores are ``values`` from ``first`` on."""
        own_rows = rows - first
        own = values[own_rows, columns]
        rank = 1 + (values[own_rows] > own[:, None]).sum(axis=1)
        keys = (rows if clips is None else clips) * self.labels.n_classes + columns
        parents = self.parents[columns]
        above = np.where(parents >= 0, values[own_rows[:, None], parents], -np.inf)
        margin = above.max(axis=1, initial=-np.inf) - own
        return self._stack(own, rank, are_among(keys, self.implied), margin, columns)

    def of_clips(self, rows: slice, values: Floats) -> Floats:
        """Return the features [clip, class, feature] of all labels of some clips in a row."""
        rank = np.empty(values.shape, np.int32)
        order = np.argsort(-values, axis=1, kind="stable")
        np.put_along_axis(rank, order, np.arange(1, values.shape[1] + 1)[None], axis=1)
        has_descendant = np.zeros(values.shape, bool)
        n_classes = self.labels.n_classes
        first, last = np.searchsorted(self.implied, (rows.start * n_classes, rows.stop * n_classes))
        has_descendant.ravel()[self.implied[first:last] - rows.start * n_classes] = True
        margin = np.full(values.shape, -np.inf, np.float32)
        for parents in self.parents.T:
            has_parent = parents >= 0
            above = values[:, parents[has_parent]]
            margin[:, has_parent] = np.maximum(margin[:, has_parent], above)
        margin -= values
        return self._stack(values, rank, has_descendant, margin, np.arange(n_classes))

    def _stack(
        self,
        own: Floats,
        rank: NDArray[np.integer],
        has_descendant: NDArray[np.bool_],
        margin: Floats,
        columns: Ints,
    ) -> Floats:
        standardised = (own - self.mean[columns]) / self.sd[columns]
        features = (
            own,
            np.log(rank),
            has_descendant,
            own * has_descendant,
            np.where(np.isfinite(margin), margin, 0),
            standardised,
            np.broadcast_to(self.log_prior[columns], own.shape),
            np.maximum(standardised, 0) ** 2,
        )
        return np.stack([feature.astype(np.float32) for feature in features], axis=-1)


def find_features(
    labels: LabelSet, scores: ScoreMatrix, sample: Floats, ontology: Ontology | None = None
) -> Features:
    """Prepare the features of a dataset's labels.

    ``sample`` [class, clip] holds implicit scores of some clips, -inf in place of explicit labels
    (see :func:`earmark.scores.sample_scores`).
    """
    is_used = np.isfinite(sample)
    n = np.maximum(is_used.sum(axis=1), 1)
    values = np.where(is_used, sample, 0).astype(np.float64)
    mean = values.sum(axis=1) / n
    sd = np.sqrt((np.where(is_used, values - mean[:, None], 0) ** 2).sum(axis=1) / n)
    mean[find_unscored(scores)] = np.nan
    log_prior = np.log((labels.n_positives + 0.5) / max(labels.n_clips, 1))
    parents, ancestors = _parents_and_ancestors(labels.class_ids, ontology)
    implied = _implied_keys(labels, ancestors)
    sd = np.where(sd > 1e-6, sd, 1.0)
    by_class = np.stack([mean, sd, log_prior]).astype(np.float32)
    return Features(labels, by_class[0], by_class[1], by_class[2], parents, implied)


def _parents_and_ancestors(
    class_ids: tuple[str, ...], ontology: Ontology | None
) -> tuple[Ints, list[list[int]]]:
    """Return the parents [class, most], padded by -1, and the ancestors of each class."""
    column_of = {class_id: column for column, class_id in enumerate(class_ids)}
    tree = ontology if ontology is not None else Ontology(class_ids)

    def columns(names: Iterable[str]) -> list[int]:
        return sorted(column_of[name] for name in names if name in column_of)

    parents = [columns(tree.parents.get(class_id, ())) for class_id in class_ids]
    padded = np.full((len(parents), max(map(len, parents), default=0)), -1, np.int64)
    for column, above in enumerate(parents):
        padded[column, : len(above)] = above
    return padded, [columns(tree.ancestors(class_id)) for class_id in class_ids]


def _implied_keys(labels: LabelSet, ancestors: list[list[int]]) -> Ints:
    """Return clip * n_classes + class of all labels with a labelled descendant."""
    keys = np.empty(0, np.int64)
    positives = labels.columns[labels.present].astype(np.int64)
    clips = labels.clip_rows[labels.present].astype(np.int64)
    n_above = np.array([len(above) for above in ancestors], np.int64)
    if n_above.any():
        starts = np.cumsum(n_above) - n_above
        flat = np.concatenate([np.asarray(above, np.int64) for above in ancestors])
        n_each = n_above[positives]
        steps = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
        columns = flat[np.repeat(starts[positives], n_each) + steps]
        keys = np.repeat(clips, n_each) * labels.n_classes + columns
        keys.sort()  # numpy's unique hashes, which takes a hundred times as long
        keys = keys[np.diff(keys, prepend=-1) != 0]
    return keys


@dataclass(frozen=True)
class Model:
    """Coefficients [feature] of the features as they are, an intercept; effects, slopes [class].

    A class's slope is added to the coefficient of ``standardised``.
    """

    coefficients: Matrix
    intercept: float
    effects: Matrix
    slopes: Matrix

    def log_odds(self, features: Floats, columns: Ints | None = None) -> Floats:
        """Return the log-odds of labels [label] of given classes, or of clips [clip, class]."""
        effects, slopes = (
            (by_class if columns is None else by_class[columns]).astype(np.float32)
            for by_class in (self.intercept + self.effects, self.slopes)
        )
        shared = features @ self.coefficients.astype(np.float32)
        return np.asarray(shared + effects + slopes * features[..., STANDARDISED], np.float32)


def fit_logistic(
    design: Matrix, y: Matrix, weights: Matrix, mean: Matrix, precision: Matrix
) -> tuple[Matrix, Matrix]:
    """Fit a logistic regression with a Gaussian prior; return coefficients and their covariance.

    ``design`` [row, coefficient], ``y`` [row] between 0 and 1; the prior has ``mean``
    [coefficient] and ``precision`` [coefficient, coefficient]. Newton's method.
    """

    def log_posterior(beta: Matrix) -> float:
        eta, apart = design @ beta, beta - mean
        return float(weights @ (y * eta - np.logaddexp(0, eta)) - apart @ precision @ apart / 2)

    beta, value = mean.copy(), log_posterior(mean)
    for _ in range(50):
        p = expit(design @ beta)
        gradient = design.T @ (weights * (y - p)) - precision @ (beta - mean)
        information = (design * (weights * p * (1 - p))[:, None]).T @ design + precision
        step = np.linalg.solve(information, gradient)
        while (higher := log_posterior(beta + step)) < value and np.abs(step).max() > 1e-9:
            step = step / 2
        beta, gain, value = beta + step, higher - value, higher
        if gain < 1e-8 * (1 + abs(value)):
            break
    return np.asarray(beta), np.asarray(np.linalg.inv(information))


@dataclass(frozen=True)
class PMissing:
    """The probability of every implicit label to be missing; build it with :func:`find_p_missing`.

    ``prior_features`` [label, feature] are labels that stand for the model without answers.
    """

    features: Features
    scores: ScoreMatrix
    given: Model
    prior_features: Floats
    model: Model
    answers: Answers | None = None

    __repr__ = short_repr

    @property
    def has_answers(self) -> bool:
        """Whether the model was fitted to answers."""
        return self.answers is not None

    def log_odds(self, rows: slice, values: Floats) -> Floats:
        """Return the log-odds [clip, class] of some clips in a row; NaN without scores."""
        return self.model.log_odds(self.features.of_clips(rows, values))

    def log_odds_of(self, rows: Ints, columns: Ints) -> Floats:
        """Return the log-odds of single labels, given by clip and class."""
        features = self.features.of_labels(self.scores, rows, columns)
        return self.model.log_odds(features, columns)

    def n_right(self, log_odds: Floats) -> tuple[float, float, float]:
        """Return how many of some labels are missing: least, middle, most.

        Without answers the range is that of r.
        """
        shifts = np.log([LEAST_R, 1.0, MOST_R])
        low, middle, high = (float(expit(log_odds + shift).sum()) for shift in shifts)
        return low, middle, high


def find_p_missing(
    labels: LabelSet,
    logits: ScoresLike | ScoreMatrix,
    ontology: Ontology | None = None,
    answers: Answers | None = None,
    sample: Floats | None = None,
) -> PMissing:
    """Fit the model of missing labels to scores [clip, class].

    With an ``ontology``, labels of classes below count as evidence; from twenty ``answers`` on the
    model learns from them. ``sample`` is that of :func:`find_features`, if it is at hand.
    """
    scores = open_scores(logits, labels)
    if sample is None:
        sample, _ = sample_scores(labels, scores)
    features = find_features(labels, scores, sample, ontology)
    given, prior_features = _fit_given(features, scores)
    p_missing = PMissing(features, scores, given, prior_features, given)
    if answers is None or len(answers) < LEAST_ANSWERS:
        return p_missing
    return replace(p_missing, model=fit_answers(p_missing, answers), answers=answers)


def _fit_given(features: Features, scores: ScoreMatrix) -> tuple[Model, Floats]:
    """Fit "this label was given" to the labels of some clips; return labels that stand for it."""
    labels = features.labels
    clips = np.sort(scores.sample_rows(SAMPLED_CLIPS))
    chosen = labels.select(clips)
    states = chosen.states(slice(0, len(clips)))
    values = scores.sample(clips)
    is_scored = np.isfinite(values)
    standardised = (values - features.mean) / features.sd
    row, column = np.nonzero(is_scored)
    is_given = states[row, column] > 0
    weights = np.ones(len(row))
    if len(row) > MOST_EXACT:
        order = np.argsort(-standardised[row, column], kind="stable")
        n_high = len(order) // 50
        thinned = order[n_high:]
        thinned = thinned[~is_given[thinned]][::EVERY]
        weights[thinned] = EVERY
        is_kept = is_given.copy()
        is_kept[order[:n_high]] = is_kept[thinned] = True
        row, column, weights = row[is_kept], column[is_kept], weights[is_kept]
    y = (states[row, column] > 0).astype(np.float64)
    x = features.of_labels(scores, clips[row], column)
    used = x[:, :N_WITHOUT_ANSWERS].astype(np.float64)
    mean, sd = _scale(used)
    design = np.column_stack([(used - mean) / sd, np.ones(len(used))])
    share = float(np.average(y, weights=weights)) if len(y) else 0.5
    start = np.zeros(design.shape[1])
    start[-1] = np.log(max(share, 1e-9) / max(1 - share, 1e-9))
    precision = np.diag([1e-3] * design.shape[1])
    beta, _ = fit_logistic(design, y, weights, start, precision)
    coefficients = np.zeros(len(FEATURES))
    coefficients[:N_WITHOUT_ANSWERS] = beta[:-1] / sd
    intercept = float(beta[-1] - mean @ coefficients[:N_WITHOUT_ANSWERS])
    none = np.zeros(labels.n_classes)
    model = Model(coefficients, intercept, none, none)
    is_implicit = states[row, column] == 0
    return model, _spread(model, x[is_implicit], column[is_implicit], weights[is_implicit])


def _scale(x: NDArray[np.floating]) -> tuple[Matrix, Matrix]:
    """Return mean and standard deviation [feature]; 1 for a constant feature."""
    if not len(x):
        return np.zeros(x.shape[1]), np.ones(x.shape[1])
    sd = x.std(axis=0, dtype=np.float64)
    return np.asarray(x.mean(axis=0, dtype=np.float64)), np.where(sd > 1e-6, sd, 1.0)


def _spread(model: Model, x: Floats, columns: Ints, weights: Matrix) -> Floats:
    """Return labels evenly spread over the logarithm of their rank by the model."""
    if not len(x):
        return x
    order = np.argsort(-model.log_odds(x, columns), kind="stable")
    rank = np.cumsum(weights[order])
    first = FIRST_SHARE * rank[-1]
    steps = np.linspace(0, np.log1p(rank[-1] / first), N_PRIOR_LABELS, endpoint=False)
    places = np.unique(np.searchsorted(rank, first * np.expm1(steps)).clip(0, len(order) - 1))
    return np.asarray(x[order[places]])


def fit_answers(p_missing: PMissing, answers: Answers, x: Floats | None = None) -> Model:
    """Fit the model to answers, starting from what it is without them.

    ``x`` [answer, feature] are the answers' features, if they are at hand.
    """
    given, prior = p_missing.given, p_missing.prior_features
    if x is None:
        x = p_missing.features.of_labels(p_missing.scores, answers.rows, answers.columns)
    mean, sd = _scale(prior)
    answered, place = np.unique(answers.columns, return_inverse=True)
    n_shared, n_answered, row = len(FEATURES) + 1, len(answered), np.arange(len(x))
    design = np.zeros((len(x) + len(prior), n_shared + 2 * n_answered))
    design[:, : n_shared - 1] = (np.concatenate([x, prior]) - mean) / sd
    design[:, n_shared - 1] = 1.0
    design[row, n_shared + place] = 1.0
    design[row, n_shared + n_answered + place] = design[row, STANDARDISED]
    p_without = expit(given.log_odds(prior, np.zeros(len(prior), np.int64)))
    y = np.concatenate([answers.present, p_without])
    weights = np.concatenate([np.ones(len(x)), np.full(len(prior), PRIOR_ANSWERS / len(prior))])
    start = np.zeros(design.shape[1])
    start[: n_shared - 1] = given.coefficients * sd
    start[n_shared - 1] = given.intercept + given.coefficients @ mean
    variances = np.full(design.shape[1], WEIGHT_VARIANCE)
    variances[n_shared - 1] = INTERCEPT_VARIANCE
    variances[n_shared : n_shared + n_answered] = EFFECT_VARIANCE
    variances[n_shared + n_answered :] = SLOPE_VARIANCE
    beta, _ = fit_logistic(design, y, weights, start, np.diag(1 / variances))
    shared, effect, slope = np.split(beta, [n_shared, n_shared + n_answered])
    coefficients = shared[:-1] / sd
    effects, slopes = np.zeros((2, p_missing.features.labels.n_classes))
    slopes[answered] = slope / sd[STANDARDISED]
    effects[answered] = effect - slopes[answered] * mean[STANDARDISED]
    return Model(coefficients, float(shared[-1] - coefficients @ mean), effects, slopes)


@dataclass(frozen=True)
class Total:
    """An estimated number of missing labels with its 90 % interval."""

    low: float
    estimate: float
    high: float


def estimate_total(
    predicted_sum: float, predicted: Matrix, present: Matrix, stands_for: Matrix
) -> Total:
    """Estimate how many of some labels are missing by the difference estimator.

    ``predicted_sum`` is the sum of p_missing over all of them. ``predicted``, ``present`` and
    ``stands_for`` [answer] belong to a random sample drawn with known probabilities, whose inverses
    are ``stands_for``. p_missing must come from a model that did not see the answers, such as the
    one without answers. The interval is normal; its upper end allows for one more missing label
    among those that few answers speak for, since such a sample often has none.
    """
    n, differences = len(present), stands_for * (present - predicted)
    estimate = predicted_sum + float(differences.sum())
    variance = n * float(differences.var(ddof=1))
    unseen = float((stands_for**2).sum() / max(stands_for.sum(), 1.0))
    reach = NormalDist().inv_cdf(0.95)
    low = estimate - reach * np.sqrt(variance)
    high = estimate + reach * np.sqrt(variance + unseen**2)
    return Total(max(float(low), 0.0), max(estimate, 0.0), max(float(high), 0.0))


def allocate(p_missing: Floats, n_answers: int, floor: float = LEAST_P) -> Matrix:
    """Return the probability [label] with which each label is drawn into the random sample.

    Neyman's allocation: proportional to the standard deviation of an answer, sqrt(p (1 - p)), with
    p no lower than ``floor``, so that the sample is right about labels that the model overlooks.
    """
    p = np.clip(p_missing, floor, 1 - floor).astype(np.float64)
    spread = np.sqrt(p * (1 - p))
    probability = np.zeros(len(p))
    is_certain = np.zeros(len(p), bool)
    for _ in range(20):
        left = n_answers - int(is_certain.sum())
        share = left / max(spread[~is_certain].sum(), 1e-9)
        probability = np.where(is_certain, 1.0, spread * share)
        if not (probability > 1).any():
            break
        is_certain |= probability >= 1
    return np.minimum(probability, 1.0)


def measure_knowledge(labels: LabelSet, scores: ScoreMatrix, seed: int = 0) -> tuple[float, float]:
    """Test whether the scores know the labels at all: return the pooled AUC and its p-value.

    The AUC is how often a positive of a class scores higher than an implicit label of that class,
    pooled over the positives of all classes; 0.5 is chance. The p-value comes from permutations of
    the clips' scores.
    """
    clips = np.sort(scores.sample_rows(SAMPLED_CLIPS))
    chosen, values = labels.select(clips), scores.sample(clips)
    states = chosen.states(slice(0, len(clips)))
    places = _mid_ranks(np.where(states == 0, values, np.nan), values)
    row, column = np.nonzero((states > 0) & np.isfinite(places))
    if not len(row):
        return np.nan, 1.0
    rng = np.random.default_rng(seed)
    auc = float(places[row, column].mean())
    shuffled = [
        np.nanmean(places[rng.permutation(len(clips))[row], column]) for _ in range(N_SHUFFLES)
    ]
    return auc, float((1 + np.sum(np.asarray(shuffled) >= auc)) / (1 + N_SHUFFLES))


def _mid_ranks(implicit: Floats, values: Floats) -> Matrix:
    """Return the share of the class's implicit scores below each score, ties counting half."""
    places = np.full(values.shape, np.nan)
    for column in range(values.shape[1]):
        among = np.sort(implicit[np.isfinite(implicit[:, column]), column])
        if len(among):
            below, up_to = (np.searchsorted(among, values[:, column], side) for side in SIDES)
            places[:, column] = (below + up_to) / 2 / len(among)
    return np.where(np.isfinite(values), places, np.nan)
