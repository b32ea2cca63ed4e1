"""Missing labels found from features alone, with the manners of scikit-learn.

For whoever has embeddings in a matrix and labels in another: no workspace, no files, no torch. A
linear probe is cross-fitted, so that nobody scores labels that they learnt from, and the rest is
what :func:`earmark.flag` does with scores.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import polars as pl
import scipy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array

from earmark.errors import EarmarkError, EarmarkWarning
from earmark.flags import survey
from earmark.labels import LabelSet, folds
from earmark.training.linear_probe import RIDGE, cross_fit_probe, fit_probe

_FEWEST_ROWS = 10


class MissingLabelFilter(BaseEstimator):  # type: ignore[misc]
    """Find the labels that are missing from a matrix of labels, by features of the same rows.

    Parameters: ``n_folds`` parts of the rows, each scored by a probe that learnt from the others;
    the probe's ``ridge``; ``n_flags`` to list (None: 1,000 at most, of a chance of 10 % or more);
    ``random_state``, the seed by which rows are dealt out.

    After :meth:`fit`: ``flags_`` (row, class, chance, score; the likeliest first), ``is_flagged_``
    bool [row, class], ``scores_`` float32 [row, class], logits out of fold, ``knowledge_`` (a
    sentence: how well the scores know the labels), ``probe_`` (fitted to all rows), ``classes_``
    and ``n_features_in_``.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((600, 2)) < 0.3
    >>> X = truth @ rng.normal(size=(2, 8)) * 2 + rng.normal(size=(600, 8))
    >>> Y = truth & (rng.random(truth.shape) < 0.7)
    >>> flags = MissingLabelFilter(n_flags=50).fit(X, Y).flags_
    >>> bool(np.mean([truth[row, int(name)] for row, name, *_ in flags.rows()]) > 0.7)
    True
    """

    def __init__(
        self,
        *,
        n_folds: int = 5,
        ridge: float = RIDGE,
        n_flags: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_folds = n_folds
        self.ridge = ridge
        self.n_flags = n_flags
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any, groups: ArrayLike | None = None) -> Self:  # noqa: N803
        """Score every label out of fold, and flag those that are likely to be missing.

        ``X`` [row, feature]: finite numbers, an array or a memory map. ``Y`` [row, class]: 1 where
        a class was said to be there and 0 where nobody was asked, with -1 where somebody said that
        it is not; an array, a sparse matrix or a table whose columns are the classes. ``groups``
        [row] names the recording of each row: rows of one recording are never scored by a probe
        that learnt from another of them.
        """
        features = self._checked_features(X)
        labels = _label_set(Y, len(features))
        fold_of = self._fold_of(labels, groups)
        self.scores_ = cross_fit_probe(features, labels, fold_of, ridge=self.ridge)
        self.probe_ = fit_probe(features, labels.states() > 0, ridge=self.ridge)
        self.classes_ = np.array(labels.class_ids, object)
        self.n_features_in_ = features.shape[1]
        self._keep_flags(labels)
        return self

    def _checked_features(self, given: ArrayLike) -> NDArray[np.floating[Any]]:
        if not isinstance(self.n_folds, int | np.integer) or self.n_folds < 2:
            raise EarmarkError(f"n_folds must be a whole number from 2, got {self.n_folds!r}")
        if not self.ridge >= 0:
            raise EarmarkError(f"ridge must be 0 or more, got {self.ridge!r}")
        kinds = [np.float64, np.float32]
        found: NDArray[np.floating[Any]] = check_array(
            given, dtype=kinds, ensure_min_samples=max(_FEWEST_ROWS, self.n_folds), input_name="X"
        )
        return found

    def _fold_of(self, labels: LabelSet, groups: ArrayLike | None) -> NDArray[np.int64]:
        names = labels.clip_ids if groups is None else pl.Series(np.asarray(groups).astype(str))
        if len(names) != labels.n_clips:
            raise EarmarkError(
                f"groups must name the recording of each of the {labels.n_clips:,} rows, got "
                f"{len(names):,} names"
            )
        return folds(labels, names, self.n_folds, self.random_state)

    def _keep_flags(self, labels: LabelSet) -> None:
        options: dict[str, Any] = {} if self.n_flags is None else {"n_flags": self.n_flags}
        found = survey(labels, self.scores_, policy="percentile", discard_percent=0.0)
        knowledge = found.evidence.knowledge
        self.knowledge_ = knowledge.told
        flags = found.flags
        if knowledge.is_enough:
            flags = survey(labels, self.scores_, policy="budget", **options).flags
        else:
            warnings.warn(f"{self.knowledge_} No flags.", EarmarkWarning, stacklevel=3)
        likeliest = flags.sort("chance", "logit", descending=True, maintain_order=True)
        row_of = pl.col("clip_id").cast(pl.Int64)  # rows are named by their numbers
        self.flags_ = likeliest.select(
            row=row_of, **{"class": "class_id"}, chance="chance", score="logit"
        )
        self.is_flagged_ = np.zeros(self.scores_.shape, bool)
        column_of = {name: column for column, name in enumerate(labels.class_ids)}
        columns = [column_of[name] for name in self.flags_["class"]]
        self.is_flagged_[self.flags_["row"].to_numpy(), columns] = True


def _label_set(given: Any, n_rows: int) -> LabelSet:
    """Return labels from a matrix, a sparse matrix or a table; refuse what is none."""
    names = getattr(given, "columns", None)
    if scipy.sparse.issparse(given):
        given = given.toarray()
    states = np.asarray(given)
    if states.ndim != 2 or len(states) != n_rows or states.shape[1] == 0:
        raise EarmarkError(
            f"Y must be [row, class] with a row for each of the {n_rows:,} rows of X, got shape "
            f"{states.shape}; is a single class a column, Y[:, None]?"
        )
    if states.dtype == bool:
        states = states.astype(np.int8)
    labels = LabelSet.from_dense(states, None, None if names is None else map(str, names))
    if not labels.present.any():
        raise EarmarkError("Y has no 1: without a single positive there is nothing to learn from")
    return labels
