"""Numbers into words, tables, charts and pages.

``results`` has what a report is made of, and computes all that is said of it; ``numerals`` writes
numbers as people read them. ``verdict`` judges students, ``sentences`` says what was found, in
words that ``rendering`` explains; ``tables`` and ``charts``, which the page draws itself, show it.
``page`` is the report of a run, ``scan_page`` that of a scan, ``demo_page`` that of the demo, all
made by ``rendering`` from files in ``templates``. ``evidence`` says what is known of missing
labels, and holds it to limits; ``card`` puts it into Markdown.

Nothing is trained, scored or flagged here, and no statistic is computed outside ``results`` and
``verdict``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
