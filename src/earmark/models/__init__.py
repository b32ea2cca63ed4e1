"""Networks: architectures, saved networks with model cards, scores of clips, tags, ONNX.

The package builds networks and stacks of students, writes and loads them with their model cards,
chooses the device and number types, makes the examples that they take, scores clips, tags sound
files, and exports and runs ONNX graphs. :mod:`earmark.models.pretrained` reads networks of others;
:mod:`earmark.training` trains.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
