"""Experiments: students held against one another.

Here live the strategies by name, the students that they make and the stacks in which these train,
their marks by every kind of labels, the choice of an operating point, and the three experiments:
the sweep, the comparison of strategies, and rounds in which students become teachers. Results
leave as tables; how they are shown is the business of :mod:`earmark.report`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
