"""Layers of convolutional networks and probes, the loss of labels, and what trains faster on a CPU.

``compiled`` is built with the package (``ext-modules`` in pyproject.toml), and refuses whatever
array it does not expect; ``compiled.pyi`` says what it does. Its slow twins are torch's own layers.
"""

from earmark.networks.layers.convolutions import Layers, SameConv
from earmark.networks.layers.cross_entropy import cross_entropies
from earmark.networks.layers.probes import frame_statistics, hidden_layer, valid_frames

__all__ = [
    "Layers",
    "SameConv",
    "cross_entropies",
    "frame_statistics",
    "hidden_layer",
    "valid_frames",
]
