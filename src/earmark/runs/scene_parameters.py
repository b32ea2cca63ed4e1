"""Synthetic scenes, and which of their labels nobody was asked about."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from earmark.runs.parameters import Params


class SceneParams(Params):
    """Synthetic sound scenes with known truth."""

    n_train: int = Field(1_800, ge=1)
    n_tune: int = Field(400, ge=1)
    n_eval: int = Field(800, ge=1)
    clip_seconds: float = Field(4.0, ge=0.5)
    max_events: int = Field(4, ge=1)
    shortest_event_seconds: float = Field(0.3, gt=0)
    """Events last from this to the whole clip, evenly on a logarithmic scale."""
    level_range_db: tuple[float, float] = (-6.0, 18.0)
    """Event level above the background noise, drawn uniformly."""
    prior_exponent: float = Field(1.0, ge=0)
    """Class priors fall as rank ** -exponent: 0 is flat, 1 is Zipf's law."""
    seed: int = 0

    @model_validator(mode="after")
    def _events_fit_into_a_clip(self) -> Self:
        if self.shortest_event_seconds > self.clip_seconds:
            raise ValueError(
                f"events of at least {self.shortest_event_seconds} s do not fit into clips of "
                f"{self.clip_seconds} s"
            )
        return self


class HidingParams(Params):
    """The nominator that decides which labels a person is asked about."""

    max_candidates: int = Field(10, ge=1)
    recall_range: tuple[float, float] = (0.3, 0.95)
    """Lowest and highest chance, over classes, that a present sound is nominated."""
    false_candidates: float = Field(2.0, ge=0)
    """Mean number of absent classes nominated per clip: they become explicit negatives."""
    sibling_bias: float = Field(4.0, ge=1)
    """How much likelier a sibling of a present class is nominated wrongly than another class."""
    seed: int = 0
