"""Numbers into words, tables, figures and pages.

``contents`` is what a report is made of, ``results`` computes all that is said of it, and
``numerals`` writes numbers as people read them. ``verdict``, ``sentences`` and ``methods`` tell
what was found, in words that ``rendering`` explains; ``tables``, ``charts`` (drawn by the page
itself), ``figures`` (drawn by matplotlib, for papers) and ``timeline`` (of a tagged file) show it.
``page`` is the report; ``missing`` holds what is said of missing labels, with ``scan_page``, the
page of a scan, and ``listened``, what ears found. ``rendering`` makes both pages from the files in
``templates``.

Nothing is trained, scored or flagged here, and no statistic is computed outside ``results`` and
``verdict``. matplotlib is loaded only where something is drawn.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
