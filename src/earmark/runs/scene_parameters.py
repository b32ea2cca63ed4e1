"""Clips that are made, of synthetic or recorded sound, and which of their labels are hidden."""

from __future__ import annotations

from typing import Literal, Self

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
    with_parents: bool = True
    """Whether the classes above those that sound, such as Animal, are labelled too."""
    seed: int = 0

    @model_validator(mode="after")
    def _events_fit_into_a_clip(self) -> Self:
        if self.shortest_event_seconds > self.clip_seconds:
            raise ValueError(
                f"events of at least {self.shortest_event_seconds} s do not fit into clips of "
                f"{self.clip_seconds} s"
            )
        return self


class MixtureParams(Params):
    """Mixtures of recordings of one class each, with known truth."""

    n_clips: int = Field(6_000, ge=1)
    clip_seconds: float = Field(5.0, ge=0.5)
    max_sounds: int = Field(4, ge=1)
    shortest_sound_seconds: float = Field(1.0, gt=0)
    """Sounds last from this to the whole clip, evenly on a logarithmic scale."""
    level_range_db: tuple[float, float] = (-12.0, 0.0)
    """Level of a sound, drawn uniformly; at 0 dB all recordings are alike."""
    background_range_db: tuple[float, float] = (-40.0, -20.0)
    prior_exponent: float = Field(0.5, ge=0)
    """Class priors fall as rank ** -exponent: 0 is flat, 1 is Zipf's law."""
    n_groups: int = Field(10, ge=3)
    """Groups that recordings are dealt to; a clip's sounds are of one group."""
    faint_slope_per_db: float = Field(0.0, ge=0)
    """How much the log-odds of being nominated fall for each decibel below the mean level."""
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _sounds_fit_into_a_clip(self) -> Self:
        if self.shortest_sound_seconds > self.clip_seconds:
            raise ValueError(
                f"sounds of at least {self.shortest_sound_seconds} s do not fit into clips of "
                f"{self.clip_seconds} s"
            )
        return self

    def split_of(self, group: int) -> Literal["train", "tune", "eval"]:
        """Return the split of a group: of ten, one is tune's and three are eval's."""
        n_eval, n_tune = max(round(0.3 * self.n_groups), 1), max(round(0.1 * self.n_groups), 1)
        if group >= self.n_groups - n_eval:
            return "eval"
        return "tune" if group >= self.n_groups - n_eval - n_tune else "train"


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
