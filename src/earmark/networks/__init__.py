"""Networks: what they are, how they are kept, and what they say of clips.

Here live the architectures, stacks of students, networks on disk with their model cards, the
device and the numbers that they compute with, the examples that they see, the scores of clips and
tags of sound files, and ONNX in both directions. How a network learns is no business of this room:
see :mod:`earmark.training`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
