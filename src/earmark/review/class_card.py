"""The card of a class: what it is, what it is taken for, how it sounds and how it does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from earmark.labels import LabelSet, Ontology, name_words, other_names

_N_EXAMPLES = 3
_N_CONFUSED = 6
"""Siblings named on the card."""


@dataclass(frozen=True)
class Card:
    """What the page shows of a class; examples and the decoy are clip ids."""

    class_id: str
    name: str
    path: tuple[str, ...]
    """Names from the root of the ontology down to the class, along first parents."""
    definition: str
    confused: tuple[str, ...]
    """Names of siblings."""
    examples: tuple[str, ...]
    """Clips with the class, one for each recording, the surest first."""
    decoy: str | None
    """A clip that sounds alike and is not."""


@dataclass(frozen=True)
class Cards:
    """Makes cards from the labels of scored clips; ``logits`` [clip, class] are parallel to them.

    ``sources`` names the recording of each clip. ``in_queue`` (clip_id, class_id) are labels that
    are to be judged: they are never shown as examples, for that would give them away. A clip
    without audio is no example either: ``has_audio`` bool [clip].
    """

    labels: LabelSet
    logits: NDArray[np.floating]
    ontology: Ontology
    sources: pl.Series
    has_audio: NDArray[np.bool_]
    in_queue: pl.DataFrame

    def make(self, class_id: str) -> Card:
        """Return the card of a class."""
        ontology = self.ontology
        siblings = sorted(ontology.siblings(class_id), key=ontology.name)
        return Card(
            class_id,
            ontology.name(class_id),
            ontology.path(class_id),
            ontology.definitions.get(class_id, ""),
            tuple(ontology.name(sibling) for sibling in siblings[:_N_CONFUSED]),
            tuple(self._named(self._examples(class_id))),
            next(iter(self._named(self._decoys(class_id))), None),
        )

    def _examples(self, class_id: str) -> NDArray[np.int64]:
        """Return rows of explicit positives from different recordings, best-scored first."""
        column = self.ontology.index[class_id]
        rows = self._usable(class_id, self._explicit(column, present=True))
        rows = rows[np.argsort(-self.logits[rows, column], kind="stable")]
        _, firsts = np.unique(self.sources.gather(rows).to_numpy(), return_index=True)
        return np.asarray(rows[np.sort(firsts)][:_N_EXAMPLES])

    def _decoys(self, class_id: str) -> NDArray[np.int64]:
        """Return the best-scored explicit negative; else a sibling's positive, the least alike.

        Nobody was asked about the class in a sibling's clip, so one is taken in which the teacher
        hears the sibling far more than the class.
        """
        column = self.ontology.index[class_id]
        rows = self._usable(class_id, self._explicit(column, present=False))
        if len(rows):
            return np.asarray(rows[np.argmax(self.logits[rows, column], keepdims=True)])
        known = self._explicit(column, present=True)
        best: list[tuple[float, int]] = []
        for sibling in self.ontology.siblings(class_id) & self.ontology.index.keys():
            other = self.ontology.index[sibling]
            rows = self._usable(class_id, np.setdiff1d(self._explicit(other, present=True), known))
            contrast = self.logits[rows, other] - self.logits[rows, column]
            best += [(contrast[place], rows[place]) for place in np.argsort(-contrast)[:1]]
        return np.array([row for _, row in sorted(best, reverse=True)[:1]], np.int64)

    def _explicit(self, column: int, *, present: bool) -> NDArray[np.int64]:
        chosen = (self.labels.columns == column) & (self.labels.present == present)
        return np.asarray(self.labels.clip_rows[chosen])

    def _usable(self, class_id: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        queued = self.in_queue.filter(pl.col("class_id") == class_id)["clip_id"]
        is_queued = self.labels.clip_ids.gather(rows).is_in(queued.implode()).to_numpy()
        return np.asarray(rows[self.has_audio[rows] & ~is_queued])

    def _named(self, rows: NDArray[np.int64]) -> list[str]:
        names: list[str] = self.labels.clip_ids.gather(rows).to_list()
        return names


def search_classes(ontology: Ontology, text: str, n_most: int) -> list[str]:
    """Return the classes whose names, or other words for them, begin as what was typed.

    Every word typed begins a word of the name; names that begin with the first one come first.

    >>> ontology = Ontology(("a", "b"), names={"a": "Waves, surf", "b": "Dog"})
    >>> search_classes(ontology, "sea w", 5), search_classes(ontology, "DO", 5)
    (['a'], ['b'])
    """
    typed = name_words(text)
    found = []
    for class_id in ontology.class_ids:
        name = ontology.name(class_id)
        called = [name_words(one) for one in (name, *other_names().get(name.lower(), ()))]
        fitting = [words for words in called if typed and _begins(typed, words)]
        if fitting:
            is_first = any(words[0].startswith(typed[0]) for words in fitting)
            found.append((not is_first, called[0] not in fitting, len(name), name, class_id))
    return [class_id for *_, class_id in sorted(found)[:n_most]]


def _begins(typed: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return all(any(word.startswith(part) for word in words) for part in typed)
