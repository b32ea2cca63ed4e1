"""The probability that an implicit label is missing: a logistic regression pooled over classes.

A missing label is a sound that is present although nobody was asked about it. Labels that were
given tell which scores such sounds have. So without answers the regression says whether a label
*was given*, from five features of a label; p_missing has those odds times r, the number of missing
labels per given one. r is not known before people have listened: it is taken to be 1, and every
statement covers r from 0.3 to 3.

Where most sounds of high scores are present, that is cautious: with r = 3 only a quarter of them
are given, so no odds of being given are above a third. The upper end of a statement therefore goes
by a second fit, P(given) = P(present) / (1 + r) with P(present) logistic and r = 3, if that is
higher. It is exact where labels go missing at random, and promises too much where scores have heavy
tails, so nothing else goes by it.

With twenty answers or more the same regression is fitted to the answers, with three more features
and an effect and a slope for each class. It starts at the coefficients found without answers: a
Gaussian prior is centred on them, and they count as a hundred further answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, hstack
from scipy.special import expit

from earmark.errors import short_repr
from earmark.flags.suspects import are_among
from earmark.labels import LabelSet, Ontology
from earmark.metrics import Interval
from earmark.scores import (
    Chunk,
    ScoreMatrix,
    ScoresLike,
    find_unscored,
    open_scores,
    sample_scores,
)
from earmark.storage import new_array, write_aside

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

logit: its score; log_rank: the logarithm of the class's rank among the clip's scores, ties sharing
the best one; descendant: whether a class below it is labelled; logit_of_descendant: the product of
both; parent_margin: the best score of the classes right above it less its own, 0 without any;
standardised: the logit less the mean of the class's implicit scores, in their standard deviations;
log_prior: the logarithm of the class's share of positives; standardised_squared: the square of
standardised where that is above 0. The last three are used with answers only.
"""

N_WITHOUT_ANSWERS = 5
"""The model without answers uses this many features, the first ones."""

LEAST_ANSWERS = 20
"""Answers from which on the model learns from them."""

LEAST_R, MOST_R = 0.3, 3.0
"""Missing labels per given one: the range that is stated before people have listened."""

SAMPLED_CLIPS = 4_096
"""Clips from which the model without answers is fitted."""

MOST_EXACT, EVERY = 200_000, 32
"""Implicit labels up to which all of the sampled clips are used; beyond, all of the highest 2 % by
standardised score and every 32nd of the others."""

GIVEN_VARIANCE = 1 / 3
"""Variance of the Gaussian prior without answers, of a coefficient per standard deviation of its
feature. It is centred on calibrated scores: 1 for the logit, 0 for all others. A hundred given
labels or fewer can otherwise turn the ranking upside down."""

WEIGHT_VARIANCE, INTERCEPT_VARIANCE = 1.0, 1.0
EFFECT_VARIANCE, SLOPE_VARIANCE = 1.3, 0.6
"""Variances of the Gaussian prior with answers: of a coefficient (per standard deviation of its
feature), of the intercept, of a class's effect, and of how much its coefficient of ``standardised``
differs from the others'."""

LOG_RANK, DESCENDANT = FEATURES.index("log_rank"), FEATURES.index("descendant")
STANDARDISED, SQUARED = FEATURES.index("standardised"), FEATURES.index("standardised_squared")

PRIOR_ANSWERS, N_PRIOR_LABELS, FIRST_SHARE = 100.0, 1_000, 1e-4
"""Answers that the model without answers counts for; labels that represent it, evenly over the
logarithm of their rank; the share of labels up to which ranks count alike."""

Z90 = NormalDist().inv_cdf(0.95)
"""Half the width of a 90 % interval, in standard deviations."""

MODEL_SD = 0.4
"""How far the log-odds of all labels of a list may be off together: the model is no truth. Chosen
on simulated data, where intervals without it were too narrow."""

LABELS_AT_ONCE, CLIPS_AT_ONCE, FEW = 512, 256, 8

SPARE = 1.5
"""How many times the labels wanted a limit should let through, so that one pass is enough."""

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """What people said of implicit labels.

    Answer i is about clip ``rows[i]`` and class ``columns[i]``; ``present[i]`` is 1, 0, or between
    where raters were unsure or disagreed.
    """

    rows: Ints
    columns: Ints
    present: Matrix

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: Mask) -> Answers:
        """Return some of the answers."""
        return Answers(self.rows[chosen], self.columns[chosen], self.present[chosen])


@dataclass(frozen=True)
class LikelyLabels:
    """Implicit labels by clip and class, with their scores and log-odds of being missing."""

    rows: Ints
    columns: Ints
    logits: Floats
    log_odds: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: NDArray[np.integer] | Mask) -> LikelyLabels:
        """Return some of the labels, in the order of ``chosen``."""
        return LikelyLabels(
            self.rows[chosen], self.columns[chosen], self.logits[chosen], self.log_odds[chosen]
        )

    @classmethod
    def join(cls, parts: list[LikelyLabels]) -> LikelyLabels:
        """Put labels together in the order of clip and class."""
        none, no_values = np.empty(0, np.int64), np.empty(0, np.float32)
        every = [cls(none, none, no_values, no_values), *parts]
        labels = cls(
            np.concatenate([part.rows for part in every]),
            np.concatenate([part.columns for part in every]),
            np.concatenate([part.logits for part in every]),
            np.concatenate([part.log_odds for part in every]),
        )
        return labels.select(np.lexsort((labels.columns, labels.rows)))


@dataclass(frozen=True)
class Features:
    """Computes the features of labels; build it with :func:`find_features`.

    ``mean`` and ``sd`` of implicit scores and ``log_prior`` are [class]; the mean is NaN where
    nothing can be said: no scores, equal scores, no positives. ``parents`` [class, most parents]
    are columns, padded by -1; ``implied`` ascends and holds clip * n_classes + class of every
    label, given or not, with a labelled descendant.
    """

    labels: LabelSet
    mean: Floats
    sd: Floats
    log_prior: Floats
    parents: Ints
    implied: Ints

    __repr__ = short_repr

    @property
    def has_p_missing(self) -> Mask:
        """Whether p_missing is known in a class [class]."""
        return np.isfinite(self.mean)

    def of_labels(self, scores: ScoreMatrix, rows: Ints, columns: Ints) -> Floats:
        """Return the features [label, feature] of single labels, given by clip and class."""
        features = np.empty((len(rows), len(FEATURES)), np.float32)

        def keep(places: Ints, own: Floats) -> None:
            features[places] = own

        self.each_of_labels(scores, rows, columns, keep)
        return features

    def each_of_labels(
        self,
        scores: ScoreMatrix,
        rows: Ints,
        columns: Ints,
        use: Callable[[Ints, Floats], None],
    ) -> None:
        """Call ``use`` with the places of some labels at a time and their features."""
        order = np.argsort(rows, kind="stable")
        by_clip = rows[order]

        def look_up(values: Floats, first: int, last: int, clips: Ints) -> None:
            """Compute labels order[first:last]; ``values`` are the scores of ``clips``."""
            for start in range(first, last, LABELS_AT_ONCE):
                places = order[start : min(start + LABELS_AT_ONCE, last)]
                own_rows = np.searchsorted(clips, rows[places])
                use(places, self.of_rows(values, own_rows, rows[places], columns[places]))

        def pass_over(chunks: Iterator[Chunk]) -> None:
            for clips, values in chunks:
                first, last = np.searchsorted(by_clip, (clips.start, clips.stop))
                look_up(values, first, last, np.arange(clips.start, clips.stop))

        clips = by_clip[np.diff(by_clip, prepend=-1) > 0]
        if len(clips) > scores.n_clips // FEW:
            scores.map(pass_over)
            return
        for start in range(0, len(clips), CLIPS_AT_ONCE):
            some = clips[start : start + CLIPS_AT_ONCE]
            first, last = np.searchsorted(by_clip, (some[0], some[-1] + 1))
            look_up(scores.sample(some), first, last, some)

    def of_rows(self, values: Floats, own_rows: Ints, clips: Ints, columns: Ints) -> Floats:
        """Return the features of labels whose clips' scores are the rows ``own_rows``."""
        own = values[own_rows, columns]
        rank = 1 + (values[own_rows] > own[:, None]).sum(axis=1)
        has_descendant = are_among(clips * self.labels.n_classes + columns, self.implied)
        parents = self.parents[columns]
        above = np.where(parents >= 0, values[own_rows[:, None], parents], -np.inf)
        margin = np.fmax.reduce(above, axis=1, initial=-np.inf) - own
        return self._stack(own, rank, has_descendant, margin, columns)

    def of_clips(self, clips: slice | Ints, values: Floats) -> Floats:
        """Return the features [clip, class, feature] of all labels of some clips."""
        rank = np.empty(values.shape, np.int64)
        order = np.argsort(-values, axis=1, kind="stable")
        falling = np.take_along_axis(values, order, axis=1)
        places = np.arange(values.shape[1])
        is_tied = np.zeros(values.shape, bool)
        is_tied[:, 1:] = falling[:, 1:] == falling[:, :-1]
        first = np.maximum.accumulate(np.where(is_tied, 0, places), axis=1)
        np.put_along_axis(rank, order, first + 1, axis=1)
        columns = np.arange(values.shape[1])
        has_descendant, margin = self.implied_of(clips), self.margins(values)
        return self._stack(values, rank, has_descendant, margin, columns)

    def implied_of(self, clips: slice | Ints) -> Mask:
        """Return which labels [clip, class] of some clips have a labelled descendant."""
        n_classes = self.labels.n_classes
        if not isinstance(clips, slice):
            return are_among(clips[:, None] * n_classes + np.arange(n_classes), self.implied)
        has_descendant = np.zeros((clips.stop - clips.start, n_classes), bool)
        ends = clips.start * n_classes, clips.stop * n_classes
        first, last = np.searchsorted(self.implied, ends)
        has_descendant.ravel()[self.implied[first:last] - ends[0]] = True
        return has_descendant

    def margins(self, values: Floats) -> Floats:
        """Return the best parent's score less the own one [clip, class]; -inf without a parent."""
        margin = np.full(values.shape, -np.inf, np.float32)
        for parents in self.parents.T:
            has_parent = parents >= 0
            above = values[:, parents[has_parent]]
            margin[:, has_parent] = np.fmax(margin[:, has_parent], above)
        margin -= values
        return margin

    def _stack(
        self,
        own: Floats,
        rank: NDArray[np.integer],
        has_descendant: Mask,
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
    lowest = np.where(is_used, sample, np.inf).min(axis=1, initial=np.inf)
    is_equal = is_used.any(axis=1) & (lowest == sample.max(axis=1, initial=-np.inf))
    mean[find_unscored(scores) | is_equal | (labels.n_positives == 0)] = np.nan
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

    def columns(names: frozenset[str] | set[str] | tuple[str, ...]) -> list[int]:
        return sorted(column_of[name] for name in names if name in column_of)

    parents = [columns(tuple(tree.parents.get(class_id, ()))) for class_id in class_ids]
    padded = np.full((len(parents), max(map(len, parents), default=0)), -1, np.int64)
    for column, above in enumerate(parents):
        padded[column, : len(above)] = above
    return padded, [columns(tree.ancestors(class_id)) for class_id in class_ids]


def _implied_keys(labels: LabelSet, ancestors: list[list[int]]) -> Ints:
    """Return clip * n_classes + class of all labels with a labelled descendant."""
    n_above = np.array([len(above) for above in ancestors], np.int64)
    if not n_above.any():
        return np.empty(0, np.int64)
    positives = labels.columns[labels.present].astype(np.int64)
    clips = labels.clip_rows[labels.present].astype(np.int64)
    starts = np.cumsum(n_above) - n_above
    flat = np.concatenate([np.asarray(above, np.int64) for above in ancestors])
    n_each = n_above[positives]
    steps = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
    columns = flat[np.repeat(starts[positives], n_each) + steps]
    keys = np.repeat(clips, n_each) * labels.n_classes + columns
    keys.sort()  # numpy's unique hashes, which takes a hundred times as long
    return np.asarray(keys[np.diff(keys, prepend=-1) != 0])


@dataclass(frozen=True)
class Posterior:
    """How sure the coefficients of a model with answers are.

    ``covariance`` is that of the coefficients of standardised features (``mean``, ``sd``), the
    intercept, and the effects and slopes of the classes ``answered``; other classes' have the
    prior's variances.
    """

    mean: Matrix
    sd: Matrix
    answered: Ints
    covariance: Matrix

    def variance(self, features: Matrix, effects: Matrix, slopes: Matrix) -> float:
        """Return the variance of a sum of probabilities.

        Its gradient is ``features`` [feature] for the standardised coefficients, the sum of
        ``effects`` for the intercept, and ``effects`` and ``slopes`` [class] for a class's own.
        """
        own = np.concatenate([effects[self.answered], slopes[self.answered]])
        gradient = np.concatenate([features, [effects.sum()], own])
        others = np.ones(len(effects), bool)
        others[self.answered] = False
        by_prior = EFFECT_VARIANCE * effects[others] ** 2 + SLOPE_VARIANCE * slopes[others] ** 2
        return float(gradient @ self.covariance @ gradient + by_prior.sum())


@dataclass(frozen=True)
class Model:
    """Coefficients [feature] of the features as they are, an intercept; effects, slopes [class].

    A class's slope is added to the coefficient of ``standardised``. ``posterior`` is None without
    answers.
    """

    coefficients: Matrix
    intercept: float
    effects: Matrix
    slopes: Matrix
    posterior: Posterior | None = None

    def log_odds(self, features: Floats, columns: Ints | None = None) -> Floats:
        """Return the log-odds of labels [label] of given classes, or of clips [clip, class]."""
        chosen = slice(None) if columns is None else columns
        slopes = self.slopes[chosen].astype(np.float32)
        log_odds = np.broadcast_to(self._constants[chosen], features.shape[:-1]).copy()
        for place, coefficient in enumerate(self.coefficients.astype(np.float32)):
            if coefficient or place == STANDARDISED:
                slope = slopes if place == STANDARDISED else np.float32(0)
                log_odds += (coefficient + slope) * features[..., place]
        return log_odds

    @property
    def _constants(self) -> Floats:
        return (self.intercept + self.effects).astype(np.float32)

    def limits_without_rank(self, n_classes: int) -> np.float32:
        """Return the most that the rank among so many classes can add to the log-odds."""
        coefficient = np.float32(self.coefficients[LOG_RANK])
        return max(np.float32(0), coefficient * np.float32(np.log(max(n_classes, 1))))


def fit_logistic(
    design: csr_array,
    y: Matrix,
    weights: Matrix,
    mean: Matrix,
    precision: Matrix,
    ceiling: float = 1.0,
) -> tuple[Matrix, Matrix]:
    """Fit a logistic regression with a Gaussian prior; return coefficients and their covariance.

    ``design`` [row, coefficient], ``y`` [row] between 0 and 1; the prior has ``mean`` and
    ``precision`` [coefficient]. The probability is ``ceiling`` times the logistic function.
    Newton's method, with the expected information.
    """
    log_rest = np.log1p(-ceiling) if ceiling < 1 else -np.inf

    def log_posterior(beta: Matrix) -> float:
        eta = design @ beta
        rest = np.logaddexp(0, eta + log_rest) - np.logaddexp(0, eta)  # log of 1 - p
        log_p = -np.logaddexp(0, -eta)  # less the logarithm of the ceiling
        fit = float(weights @ (y * log_p + (1 - y) * rest))
        return fit - float(precision @ (beta - mean) ** 2) / 2

    beta, value = mean.copy(), log_posterior(mean)
    information = np.diag(precision)
    for _ in range(50):
        below = expit(design @ beta)
        p = ceiling * below
        slope = (1 - below) / (1 - p) if ceiling < 1 else 1.0
        gradient = design.T @ (weights * slope * (y - p)) - precision * (beta - mean)
        curvature = diags_array(weights * slope**2 * p * (1 - p))
        information = (design.T @ (curvature @ design)).toarray() + np.diag(precision)
        step = np.linalg.solve(information, gradient)
        while (higher := log_posterior(beta + step)) < value and np.abs(step).max() > 1e-9:
            step = step / 2
        beta, gain, value = beta + step, higher - value, higher
        if gain < 1e-8 * (1 + abs(value)):
            break
    return np.asarray(beta), np.asarray(np.linalg.inv(information))


@dataclass(frozen=True)
class GivenModel:
    """The model without answers, and labels that represent it when answers are learnt from.

    ``most`` is the model of labels that go missing at random, with r = 3.
    """

    model: Model
    most: Model
    prior_features: Floats

    def count_present(self, features: Floats) -> Interval:
        """Return how many of some labels are missing, over the range of r."""
        of_all = np.zeros(len(features), np.int64)  # classes are alike without answers
        log_odds, highest = (
            model.log_odds(features, of_all).astype(np.float64) for model in (self.model, self.most)
        )
        value, low, high = (
            float(expit(log_odds + np.log(r)).sum()) for r in (1.0, LEAST_R, MOST_R)
        )
        return Interval(value, low, max(high, float(expit(highest).sum())))

    def learn(self, columns: Ints, present: Matrix, features: Floats) -> Model:
        """Fit the model to answers about labels of some classes, with features [answer, feature].

        Fewer than twenty answers change nothing.
        """
        if len(columns) < LEAST_ANSWERS:
            return self.model
        given, prior = self.model, self.prior_features
        mean, sd = _scale(prior)
        answered, place = np.unique(columns, return_inverse=True)
        n_features, n_answered, n = len(FEATURES), len(answered), len(columns)
        standardised = (np.concatenate([features, prior]) - mean) / sd
        shared = np.column_stack([standardised, np.ones(len(standardised))])
        row = np.arange(n)
        own_columns = np.concatenate([place, n_answered + place])
        own_values = np.concatenate([np.ones(n), standardised[:n, STANDARDISED]])
        own = csr_array(
            (own_values, (np.tile(row, 2), own_columns)), shape=(len(shared), 2 * n_answered)
        )
        design = hstack([csr_array(shared), own], format="csr")
        p_without = expit(given.log_odds(prior, np.zeros(len(prior), np.int64)))
        y = np.concatenate([present, p_without])
        weights = np.concatenate([np.ones(n), np.full(len(prior), PRIOR_ANSWERS / len(prior))])
        start = np.zeros(design.shape[1])
        start[:n_features] = given.coefficients * sd
        start[n_features] = given.intercept + given.coefficients @ mean
        variances = np.concatenate(
            [
                np.full(n_features, WEIGHT_VARIANCE),
                [INTERCEPT_VARIANCE],
                np.full(n_answered, EFFECT_VARIANCE),
                np.full(n_answered, SLOPE_VARIANCE),
            ]
        )
        beta, covariance = fit_logistic(design, y, weights, start, 1 / variances)
        shared_beta, effect, slope = np.split(beta, [n_features + 1, n_features + 1 + n_answered])
        coefficients = shared_beta[:-1] / sd
        effects, slopes = np.zeros((2, len(given.effects)))
        slopes[answered] = slope / sd[STANDARDISED]
        effects[answered] = effect - slopes[answered] * mean[STANDARDISED]
        intercept = float(shared_beta[-1] - coefficients @ mean)
        posterior = Posterior(mean, sd, answered, covariance)
        return Model(coefficients, intercept, effects, slopes, posterior)


def _scale(x: NDArray[np.floating]) -> tuple[Matrix, Matrix]:
    """Return mean and standard deviation [feature]; 1 for a constant feature."""
    if not len(x):
        return np.zeros(x.shape[1]), np.ones(x.shape[1])
    sd = x.std(axis=0, dtype=np.float64)
    return np.asarray(x.mean(axis=0, dtype=np.float64)), np.where(sd > 1e-6, sd, 1.0)


@dataclass(frozen=True)
class PMissing:
    """The probability of every implicit label to be missing; build it with :func:`find_p_missing`.

    Probabilities travel as log-odds. They are unknown (NaN) in classes without scores or positives.
    """

    features: Features
    scores: ScoreMatrix
    given: GivenModel
    model: Model
    answers: Answers | None = None

    __repr__ = short_repr

    @property
    def has_answers(self) -> bool:
        """Whether the model was fitted to answers."""
        return self.answers is not None

    def log_odds(self, clips: slice | Ints, values: Floats) -> Floats:
        """Return the log-odds [clip, class] of some clips, whose scores are ``values``."""
        return self.model.log_odds(self.features.of_clips(clips, values))

    def log_odds_of(self, rows: Ints, columns: Ints) -> Floats:
        """Return the log-odds of single labels, given by clip and class."""
        log_odds = np.empty(len(rows), np.float32)

        def keep(places: Ints, features: Floats) -> None:
            log_odds[places] = self.model.log_odds(features, columns[places])

        self.features.each_of_labels(self.scores, rows, columns, keep)
        return log_odds

    def count_present(self, rows: Ints, columns: Ints) -> Interval:
        """Return how many of some labels are missing: without answers over the range of r."""
        features = self.features.of_labels(self.scores, rows, columns)
        if self.model.posterior is None:
            return self.given.count_present(features)
        return count_by_posterior(self.model, features, columns)

    def above(self, least: float, *, classes: Mask | None = None) -> LikelyLabels:
        """Return the implicit labels whose log-odds reach a limit, in one pass over the scores.

        ``classes`` [class] leaves out those of others.
        """
        return self._where(lambda log_odds, _: log_odds >= np.float32(least), classes)

    def _where(
        self, is_wanted: Callable[[Floats, Ints], Mask], classes: Mask | None = None
    ) -> LikelyLabels:
        """Return the labels that are wanted by their log-odds and classes.

        A label that is not wanted at the best rank is not looked at further, because its rank among
        the clip's scores costs more than all else.
        """
        labels, model, features = self.features.labels, self.model, self.features
        best_rank = model.limits_without_rank(labels.n_classes)
        is_left_out = ~features.has_p_missing
        if classes is not None:
            is_left_out |= ~classes
        # Rounding differs from that of the exact sum in the last bits.
        shift = np.where(is_left_out, np.nan, best_rank + 1e-3)

        def look(chunks: Iterator[Chunk]) -> list[LikelyLabels]:
            parts = []
            for chunk in chunks:
                for rows, values in _blocks(chunk):
                    rough = self._without_rank(rows, values, shift)
                    row, column = np.nonzero(is_wanted(rough, np.arange(labels.n_classes)))
                    is_implicit = labels.states(rows)[row, column] == 0
                    row, column = row[is_implicit], column[is_implicit]
                    for start in range(0, len(row), LABELS_AT_ONCE):
                        some = slice(start, start + LABELS_AT_ONCE)
                        own_rows, clips = row[some], row[some] + rows.start
                        exact = features.of_rows(values, own_rows, clips, column[some])
                        log_odds = model.log_odds(exact, column[some])
                        is_kept = is_wanted(log_odds, column[some])
                        logits = exact[:, 0]
                        found = LikelyLabels(clips, column[some], logits, log_odds)
                        parts.append(found.select(is_kept))
            return parts

        return LikelyLabels.join([part for parts in self.scores.map(look) for part in parts])

    def _without_rank(self, rows: slice, values: Floats, shift: Matrix) -> Floats:
        """Return what all features but the rank add to the log-odds [clip, class], plus a shift."""
        features, model = self.features, self.model
        weights = model.coefficients.astype(np.float32)
        slopes = (weights[STANDARDISED] + model.slopes.astype(np.float32)) / features.sd
        constant = model.intercept + model.effects + weights[6] * features.log_prior
        constant = constant - slopes * features.mean + shift
        log_odds = values * (weights[0] + slopes).astype(np.float32)
        log_odds += constant.astype(np.float32)
        if weights[4] and features.parents.size:
            margin = features.margins(values)
            log_odds += np.where(np.isfinite(margin), weights[4] * margin, 0)
        if weights[SQUARED]:
            standardised = (values - features.mean) / features.sd
            log_odds += weights[SQUARED] * np.maximum(standardised, 0) ** 2
        if len(features.implied):
            row, column = np.nonzero(features.implied_of(rows))
            own = values[row, column]
            log_odds[row, column] += weights[DESCENDANT] + weights[DESCENDANT + 1] * own
        return np.asarray(log_odds)

    def best(
        self,
        n_labels: int,
        least: float = -np.inf,
        class_weights: Matrix | None = None,
        classes: Mask | None = None,
    ) -> LikelyLabels:
        """Return the implicit labels with the highest p_missing, the highest first.

        ``least`` are log-odds that all of them reach; with ``class_weights`` [class] the order goes
        by the weight times p_missing. Of equal ones the higher score comes first, then the first
        clip and class. One pass over the scores, or more where a sample of clips misled it.
        """
        log_weights = np.zeros(len(self.features.mean), np.float32)
        if class_weights is not None:
            log_weights = np.log(class_weights).astype(np.float32)

        def worth(log_odds: Floats, columns: Ints) -> Floats:
            if class_weights is None:
                return log_odds
            with np.errstate(invalid="ignore"):  # NaN where p_missing is unknown
                log_p = -np.logaddexp(0, -log_odds)
            return np.asarray(log_weights[columns] + log_p, np.float32)

        columns = np.arange(len(log_weights))
        least_worth = worth(np.full(len(columns), least, np.float32), columns).min(initial=np.inf)
        limit = np.inf if n_labels == 0 else self._limit(SPARE * n_labels, worth, classes)
        while True:
            labels = self._where(
                lambda log_odds, columns, limit=limit: (  # type: ignore[misc]
                    (log_odds >= np.float32(least)) & (worth(log_odds, columns) >= limit)
                ),
                classes,
            )
            if len(labels) >= n_labels or limit == -np.inf or least_worth >= limit:
                break
            limit = limit - 2.0 if limit > -20.0 else -np.inf
        order = np.lexsort((-labels.logits, -worth(labels.log_odds, labels.columns)))
        return labels.select(order[:n_labels])

    def _limit(
        self, n_labels: float, worth: Callable[[Floats, Ints], Floats], classes: Mask | None
    ) -> float:
        """Return a worth that about so many labels reach, by a sample of clips."""
        clips = np.sort(self.scores.sample_rows(SAMPLED_CLIPS))
        labels, n_classes = self.features.labels, len(self.features.mean)
        rows, columns = np.divmod(np.arange(len(clips) * n_classes), n_classes)
        states = labels.select(clips).states(slice(0, len(clips))).ravel()
        is_used = (states == 0) & self.features.has_p_missing[columns]
        if classes is not None:
            is_used &= classes[columns]
        share = len(clips) / max(self.scores.n_clips, 1)
        n_above = int(n_labels * share) + 10
        if n_above >= is_used.sum():
            return -np.inf
        values = self.scores.sample(clips)
        by_label = np.full(len(rows), -np.inf, np.float32)
        for start in range(0, len(clips), CLIPS_AT_ONCE):
            some = slice(start, min(start + CLIPS_AT_ONCE, len(clips)))
            log_odds = self.log_odds(clips[some], values[some])
            labels_of = slice(some.start * n_classes, some.stop * n_classes)
            by_label[labels_of] = worth(log_odds.ravel(), columns[labels_of])
        by_label = by_label[is_used]
        return float(np.partition(by_label, len(by_label) - n_above)[len(by_label) - n_above])

    def fill(self, log_odds: NDArray[np.floating]) -> None:
        """Write the log-odds of every label into a matrix [clip, class]; NaN where unknown."""

        def look(chunks: Iterator[Chunk]) -> None:
            for chunk in chunks:
                for rows, values in _blocks(chunk):
                    inside = slice(rows.start, min(rows.stop, len(log_odds)))
                    if inside.start < inside.stop:
                        own = self.log_odds(rows, values)
                        log_odds[inside] = own[: inside.stop - inside.start]

        self.scores.map(look)

    def write(self, path: Path, n_clips: int) -> None:
        """Write the log-odds of the first clips [clip, class] into an ``.npy`` file."""
        with write_aside(path) as aside:
            matrix = new_array(aside, (n_clips, self.scores.n_classes), np.float32)
            self.fill(matrix)

    def with_answers(self, answers: Answers) -> Self:
        """Return the same learnt from answers; fewer than twenty change nothing."""
        answers = answers.select(self.features.has_p_missing[answers.columns])
        if len(answers) < LEAST_ANSWERS:
            return self
        features = self.features.of_labels(self.scores, answers.rows, answers.columns)
        model = self.given.learn(answers.columns, answers.present, features)
        return replace(self, model=model, answers=answers)


def count_by_posterior(model: Model, features: Floats, columns: Ints) -> Interval:
    """Return how many of some labels are missing with answers, with a 90 % interval.

    The interval covers how unsure the coefficients are, which of the labels are missing given the
    coefficients, and an error of the model itself.
    """
    assert model.posterior is not None
    posterior, n_classes = model.posterior, len(model.effects)
    log_odds = model.log_odds(features, columns).astype(np.float64)
    p = expit(log_odds)
    doubt = p * (1 - p)
    standardised = (features - posterior.mean) / posterior.sd
    by_slope = doubt * standardised[:, STANDARDISED]
    effects, slopes = (
        np.bincount(columns, weights, n_classes).astype(np.float64) for weights in (doubt, by_slope)
    )
    variance = posterior.variance(doubt @ standardised, effects, slopes) + doubt.sum()
    variance += (MODEL_SD * doubt.sum()) ** 2
    total, n = float(p.sum()), float(len(p))
    if not 0 < total < n:
        return Interval(total, total, total)
    # On the scale of log-odds, where an interval stays between 0 and the number of labels.
    reach = Z90 * np.sqrt(variance) * n / (total * (n - total))
    middle = np.log(total / (n - total))
    return Interval(total, float(n * expit(middle - reach)), float(n * expit(middle + reach)))


def _blocks(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk into blocks whose features stay in a core's cache."""
    rows, values = chunk
    for start in range(0, len(values), CLIPS_AT_ONCE):
        block = values[start : start + CLIPS_AT_ONCE]
        first = rows.start + start
        yield slice(first, first + len(block)), block


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
    given = _fit_given(features, scores)
    p_missing = PMissing(features, scores, given, given.model)
    return p_missing if answers is None else p_missing.with_answers(answers)


def _fit_given(features: Features, scores: ScoreMatrix) -> GivenModel:
    """Fit "this label was given" to the labels of some clips."""
    labels = features.labels
    sampled = scores.sample_rows(SAMPLED_CLIPS)
    turns = np.argsort(sampled)
    clips = sampled[turns]
    states = labels.select(clips).states(slice(0, len(clips)))
    standardised = (scores.sample(clips) - features.mean) / features.sd
    row, column = np.nonzero(np.isfinite(standardised))
    is_given = states[row, column] > 0
    weights = np.ones(len(row))
    if len(row) > MOST_EXACT:
        own = standardised[row, column]
        n_low = len(own) - len(own) // 50
        is_high = own >= np.partition(own, n_low)[n_low]
        is_drawn = (turns[row] + column) % EVERY == 0  # whatever the order of the clips
        thinned = np.flatnonzero(~is_high & ~is_given & is_drawn)
        weights[thinned] = EVERY
        is_kept = is_given | is_high
        is_kept[thinned] = True
        row, column, weights = row[is_kept], column[is_kept], weights[is_kept]
    y = (states[row, column] > 0).astype(np.float64)
    x = features.of_labels(scores, clips[row], column)
    used = x[:, :N_WITHOUT_ANSWERS].astype(np.float64)
    mean, sd = _scale(used)
    design = csr_array(np.column_stack([(used - mean) / sd, np.ones(len(used))]))
    share = float(np.average(y, weights=weights)) if len(y) else 0.5
    start = np.zeros(design.shape[1])
    start[0], start[-1] = sd[0], np.log(max(share, 1e-9) / max(1 - share, 1e-9))
    precision = np.append(np.full(N_WITHOUT_ANSWERS, 1 / GIVEN_VARIANCE), 1e-3)

    def fit(ceiling: float) -> Model:
        beta, _ = fit_logistic(design, y, weights, start, precision, ceiling)
        coefficients = np.zeros(len(FEATURES))
        coefficients[:N_WITHOUT_ANSWERS] = beta[:-1] / sd
        intercept = float(beta[-1] - mean @ coefficients[:N_WITHOUT_ANSWERS])
        none = np.zeros(labels.n_classes)
        return Model(coefficients, intercept, none, none)

    model, most = fit(1.0), fit(1 / (1 + MOST_R))
    # Of the labels that are present a share was given; the odds of the others are so much lower.
    most = replace(most, intercept=most.intercept + float(np.log(MOST_R / (1 + MOST_R))))
    is_implicit = states[row, column] == 0
    spread = _spread(model, x[is_implicit], column[is_implicit], weights[is_implicit])
    return GivenModel(model, most, spread)


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
