"""What one task of a stage takes of a machine, where as many run at once as fit."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from earmark.config.parameters import Params


class TaskResources(Params):
    """What one task takes of a machine; a cluster runs as many at once as fit."""

    cpus: float = Field(1, ge=0, le=100_000)
    gpus: float = Field(0, ge=0, le=100_000)
    """A part of one packs several tasks on a GPU; more than one must be whole."""
    memory_gb: float = Field(0, ge=0, le=1_000_000)
    """Set aside, so that tasks do not crowd one another out; 0 asks for none."""

    @model_validator(mode="after")
    def _gpus_are_a_part_or_whole(self) -> Self:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus is a part of one or a whole number, got {self.gpus}")
        return self


class ResourceParams(Params):
    """What the tasks of each stage take; changes where they run, never what they compute."""

    features: TaskResources = TaskResources()
    score: TaskResources = TaskResources()
    train: TaskResources = TaskResources()
