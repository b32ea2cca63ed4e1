"""How good scores are, and how sure that is.

Every metric takes labels and scores [clip, class] in the same order of clips and classes. What is
measured per class and what overall, how intervals are made, and the offsets by class that lwlrap
has to be held against live here; what a student is, and which labels it is held against, does not.
How good raters are, by one another's votes, is a metric without labels or scores.
"""

import lazy_loader

from earmark.metrics.lwlrap import lwlrap  # at once: its file has the same name

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "lwlrap"]
