"""Labels of clips: who said what about which classes.

A label is explicit (present, or not present) or implicit; a ``LabelSet`` holds the explicit ones
of millions of clips. This package reads labels, classes and clips in the formats that people have,
checks their rows, compares two sets, holds the tree of classes, matches the class names of two
lists, and assigns recordings to splits, folds and subsets.

It does not import scores, audio or workspaces.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
