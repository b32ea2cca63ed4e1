"""Training: one loop for teachers and students, and what it is given.

Here live the plan of batches and their loading, what a network is told about its clips
(lessons, treatments of flagged labels, the losses of rivals), checkpoints and history,
processes that train together, and teachers: cross-fitted ones and those from elsewhere. Which
students are trained, and how they compare, is decided in :mod:`earmark.experiments`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
