"""Training: one loop for teachers and students, and its input.

This package has the batches and their loading, the targets and weights of labels, robust losses,
checkpoints and trackers, processes that train together, and teachers: cross-fitted, pretrained or
blended. :mod:`earmark.experiments` decides which students are trained, and compares them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
