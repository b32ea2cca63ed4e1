"""The one interface of networks that others trained: waveforms in, embeddings and logits out.

To add a kind of network, write one file in this room with a class that has ``facts`` and ``hear``,
and a row in :data:`KINDS` that says by which name or file it is known.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from earmark.errors import EarmarkError
from earmark.runs import PretrainedParams


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """What is known of a pretrained network before it hears anything."""

    name: str
    """For people and folders."""
    digest: str
    """Identifies the weights and how they are used."""
    sample_rate_hz: int
    """Of the waveforms that it takes."""
    frame_seconds: float | None
    """How much sound is under one frame of what it hears; None where that is the whole clip."""
    hop_seconds: float | None
    """From one frame to the next."""
    n_features: int | None
    """Numbers in one embedding; None where it gives none."""
    output_names: tuple[str, ...] = ()
    """Its classes, for people; empty where it names none, or has none."""
    output_ids: tuple[str, ...] = ()
    """The same as AudioSet's identifiers, where it has them."""
    n_outputs: int = 0
    """Classes that it scores."""


@dataclass(frozen=True)
class Heard:
    """What a network hears in one clip, frame by frame."""

    embeddings: NDArray[np.float32] | None
    """[frame, feature]"""
    logits: NDArray[np.float32] | None
    """[frame, output]"""


class PretrainedNetwork(Protocol):
    """A network that others trained, ready to listen."""

    @property
    def facts(self) -> NetworkFacts:
        """What it takes and gives."""

    def hear(self, waveforms: Sequence[NDArray[np.float32]]) -> list[Heard]:
        """Listen to the waveforms [sample] of some clips, at the rate that it takes.

        Every clip, even an empty one, has at least one frame.
        """


@dataclass(frozen=True)
class Kind:
    """One row of the table of kinds: how a network is recognised, and what opens it.

    ``place`` is a function of the parameters and the dataset's class names, as ``module:name``:
    only the kind that is asked for is imported.
    """

    name: str
    is_meant: Callable[[str], bool]
    place: str


KINDS: tuple[Kind, ...] = ()
"""Every kind of network, in the order in which they are tried."""


def open_network(params: PretrainedParams, class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open a network given by a name of the catalogue, a file or a folder.

    ``class_names`` are the dataset's: a network that compares sound with text is asked for those.
    """
    for kind in KINDS:
        if kind.is_meant(params.network):
            module, _, function = kind.place.partition(":")
            opened: PretrainedNetwork = getattr(importlib.import_module(module), function)(
                params, class_names
            )
            return opened
    known = ", ".join(kind.name for kind in KINDS)
    raise EarmarkError(f"{params.network}: no network of a kind that is known here ({known})")
