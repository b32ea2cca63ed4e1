"""Numbers into words, tables, figures and pages.

``contents`` is what a report is made of, ``results`` computes all that is said of it, and
``numerals`` writes numbers as people read them. ``verdict``, ``sentences`` and ``methods`` tell
what was found; ``tables``, ``charts`` (drawn by the page itself), ``figures`` (drawn by matplotlib,
for papers) and ``timeline`` (of a tagged file) show it. ``page`` is the report, ``scan_page`` the
page of a scan; ``rendering`` makes both from the files in ``templates``.

Nothing is trained, scored or flagged here, and no statistic is computed outside ``results`` and
``verdict``. matplotlib is loaded only where something is drawn.
"""
