"""What the page sends: answers, and wishes for what comes next."""

from __future__ import annotations

from typing import Self

from pydantic import AwareDatetime, ConfigDict, Field, model_validator
from pydantic.types import UUID4

from earmark.review.judgements import Answer, check_span, check_time
from earmark.runs import Params


class Posted(Params):
    """What the page sends for every key press; clip, class and queue are the server's to add."""

    model_config = ConfigDict(strict=True)

    id: UUID4
    at: AwareDatetime
    rater: str = Field(max_length=100)
    item: str = Field(max_length=100)
    answer: Answer | None
    span_start: float | None = Field(None, ge=0, le=86_400, allow_inf_nan=False)
    span_end: float | None = Field(None, ge=0, le=86_400, allow_inf_nan=False)
    heard_seconds: float = Field(0.0, ge=0, le=86_400, allow_inf_nan=False)
    whole_clip: bool = False
    shown_score: bool = False
    shown_picture: bool = True
    retracts: UUID4 | None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_span(self.span_start, self.span_end)
        check_time(self.at)
        return self


class Ahead(Params):
    """What the page sends to have the next block: the one that it is in, if any."""

    model_config = ConfigDict(strict=True)

    after: int | None = None


class Only(Params):
    """What the page sends to be asked about some classes alone; about all of them without any."""

    model_config = ConfigDict(strict=True)

    class_ids: list[str] = Field(max_length=20)


class Wanted(Params):
    """What the page sends to answer about a class that was not offered."""

    model_config = ConfigDict(strict=True)

    class_id: str = Field(max_length=200)
