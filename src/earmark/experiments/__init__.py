"""Experiments: students trained with different strategies, and compared.

This package has the strategies by name, the students that they make and the stacks in which these
train, the evaluation of students by every kind of labels, the choice of an operating point, and
the two experiments: the sweep and the comparison of strategies. Results are tables;
:mod:`earmark.report` shows them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
