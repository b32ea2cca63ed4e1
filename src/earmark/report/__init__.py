"""Numbers into words, tables, figures and pages.

``contents`` is what a report is made of, ``results`` computes all that is said of it, and
``numerals`` writes numbers as people read them. ``verdict`` and ``sentences`` tell what was found,
in words that ``rendering`` explains; ``tables`` and ``charts`` (drawn by the page itself, and by
matplotlib in ``figures``, for papers) show it. ``page`` is the report of a run, ``scan_page`` that
of a scan, ``demo_page`` that of the demo, all made by ``rendering`` from files in ``templates``;
``listened`` is their part on what people heard. ``evidence`` says what is known of missing labels,
and holds it to limits; ``card`` and ``changes`` put it into Markdown.

Nothing is trained, scored or flagged here, and no statistic is computed outside ``results`` and
``verdict``. matplotlib is loaded only where something is drawn.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
