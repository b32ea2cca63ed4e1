"""The interface of pretrained networks: waveforms in, embeddings and logits out.

To add a kind of network, write one file in this package with a function that opens it: from
:class:`~earmark.config.PretrainedParams` and the dataset's class names to an object with ``facts``
and ``infer``. A network that takes windows of a fixed length, or whole clips, needs no class: pass
a function from windows to arrays to :class:`~earmark.models.pretrained.WindowNetwork`, which cuts,
checks and turns probabilities into logits. Then add a row to :data:`KINDS`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from earmark.config import PretrainedParams
from earmark.errors import EarmarkError, check_file, nearest, reading
from earmark.models.pretrained.catalogue import CATALOGUE, is_catalogued, kept_weights


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """Properties of a pretrained network that are known before inference."""

    name: str
    """For people and folders."""
    digest: str
    """Identifies the weights and how they are used."""
    sample_rate_hz: int
    """Of the waveforms that it takes."""
    frame_seconds: float | None
    """Duration of sound under one output frame; None where that is the whole clip."""
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
class ModelOutput:
    """A network's output for one clip, frame by frame."""

    embeddings: NDArray[np.float32] | None
    """[frame, feature]"""
    logits: NDArray[np.float32] | None
    """[frame, output]"""


class PretrainedNetwork(Protocol):
    """A pretrained network, ready for inference."""

    @property
    def facts(self) -> NetworkFacts:
        """What it takes and gives."""

    def infer(self, waveforms: Sequence[NDArray[np.float32]]) -> list[ModelOutput]:
        """Return the output for the waveforms [sample] of some clips, at the network's sample rate.

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


def _ends_in(suffix: str) -> Callable[[str], bool]:
    return lambda network: network.lower().endswith(suffix)


def _is_hugging_face(network: str) -> bool:
    return network.startswith("hf:") or (Path(network) / "config.json").is_file()


KINDS: tuple[Kind, ...] = (
    Kind(
        "a name of `earmark teachers`",
        is_catalogued,
        "earmark.models.pretrained.yamnet:open_yamnet",
    ),
    Kind("a file .onnx", _ends_in(".onnx"), "earmark.models.pretrained.onnx_network:open_onnx"),
    Kind(
        "a file .tflite",
        _ends_in(".tflite"),
        "earmark.models.pretrained.tflite_network:open_tflite",
    ),
    Kind(
        "hf:OWNER/NAME or a folder with config.json",
        _is_hugging_face,
        "earmark.models.pretrained.huggingface:open_huggingface",
    ),
)
"""Every kind of network, in the order in which they are tried."""


def open_network(params: PretrainedParams, class_names: Sequence[str] = ()) -> PretrainedNetwork:
    """Open a network given by a name of the catalogue, a file or a folder.

    ``class_names`` are the dataset's: a network that compares sound with text is asked for those.
    """
    module, _, function = find_kind(params.network).place.partition(":")
    open_it = getattr(importlib.import_module(module), function)
    with reading(params.network, "a network"):
        opened: PretrainedNetwork = open_it(params, class_names)
    return opened


def find_kind(network: str) -> Kind:
    """Return the kind of a network given by name, file or folder; refuse what is none."""
    for kind in KINDS:
        if kind.is_meant(network):
            return kind
    known = "; ".join(kind.name for kind in KINDS)
    what = "" if Path(network).exists() else ", and no such file or folder"
    names = [teacher.name for teacher in CATALOGUE]
    if difflib.get_close_matches(network, names):
        what = nearest(network, names)
    raise EarmarkError(f"{network}: no network of a kind that is known here ({known}){what}")


def check_here(network: str) -> None:
    """Refuse a network that is not on this machine; a hub is asked when its turn comes."""
    find_kind(network)
    if any(network == teacher.name for teacher in CATALOGUE):
        kept_weights(network)
    elif Path(network).suffix and not network.startswith("hf:") and not Path(network).is_dir():
        check_file(Path(network))
