from __future__ import annotations

import numpy as np
import polars as pl

from earmark.labels import LabelSet, Ontology
from earmark.review import Card, Cards

ONTOLOGY = Ontology(
    ("siren", "horn", "rain"),
    parents={"siren": ("alarm", "vehicle"), "horn": ("alarm",), "alarm": ("sounds",)},
    names={"siren": "Siren", "horn": "Horn", "alarm": "Alarm", "sounds": "Sounds"},
    definitions={"siren": "A wail."},
)


def make_card(
    states: list[list[int]],
    logits: list[list[float]],
    queued: tuple[str, ...] = (),
    sources: tuple[str, ...] | None = None,
    silent: tuple[int, ...] = (),
) -> Card:
    labels = LabelSet.from_dense(states, class_ids=ONTOLOGY.class_ids)
    has_audio = np.array([row not in silent for row in range(labels.n_clips)])
    in_queue = pl.DataFrame({"clip_id": list(queued), "class_id": ["siren"] * len(queued)},
                            schema={"clip_id": pl.String, "class_id": pl.String})  # fmt: skip
    recordings = pl.Series(sources or [str(row) for row in range(labels.n_clips)])
    cards = Cards(labels, np.array(logits, np.float32), ONTOLOGY, recordings, has_audio, in_queue)
    return cards.make("siren")


def _scores(*siren: float) -> list[list[float]]:
    return [[score, 0.0, 0.0] for score in siren]


def test_a_card_tells_where_the_class_stands() -> None:
    card = make_card([[1, 0, 0]], _scores(1))
    assert card.path == ("Sounds", "Alarm", "Siren")
    assert card.definition == "A wail."
    assert card.confused == ("Horn",)


def test_examples_are_the_surest_positives_of_different_recordings() -> None:
    states = [[1, 0, 0]] * 5 + [[0, 0, 0]]
    card = make_card(states, _scores(1, 5, 4, 3, 2, 9), sources=("a", "b", "b", "c", "d", "e"))
    assert card.examples == ("1", "3", "4")


def test_what_is_to_be_judged_or_cannot_be_heard_is_no_example() -> None:
    card = make_card([[1, 0, 0]] * 3, _scores(3, 2, 1), queued=("0",), silent=(1,))
    assert card.examples == ("2",)


def test_the_decoy_is_the_explicit_negative_that_sounds_most_alike() -> None:
    card = make_card([[-1, 0, 0], [-1, 0, 0], [0, 1, 0]], _scores(1, 2, 9))
    assert card.decoy == "1"


def test_without_negatives_the_decoy_is_a_siblings_clip_that_is_least_like_the_class() -> None:
    states = [[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    logits = [[-9.0, 3, 0], [2.0, 3, 0], [-2.0, 3, 0], [-9.0, 0, 0]]
    assert make_card(states, logits).decoy == "2"


def test_a_class_without_labels_has_neither() -> None:
    card = make_card([[0, 0, 0]], _scores(1))
    assert card.examples == ()
    assert card.decoy is None
