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

from earmark.report.contents import HeardFlag, ReportContents, TeacherGrade, flags_to_hear
from earmark.report.figures import (
    COLOURS,
    COLUMN_INCHES,
    MARKERS,
    STYLE,
    write_figure,
    write_png,
)
from earmark.report.missing.card import (
    CardContents,
    Correction,
    Description,
    card_markdown,
    headline_told,
)
from earmark.report.missing.changes import changed_classes, changes_told, labels_told
from earmark.report.missing.croissant import croissant_json
from earmark.report.missing.demo_page import (
    DemoFound,
    StudentsFound,
    demo_html,
    demo_lines,
    demo_told,
    scenes_told,
)
from earmark.report.missing.evidence import HeardEvidence, MissingEvidence, evidence_told
from earmark.report.missing.limits import HeldLimit, Limits, hold_limits
from earmark.report.missing.notebook import N_IN_NOTEBOOK, notebook_html
from earmark.report.missing.scan_page import (
    findings_told,
    missing_told,
    scan_html,
    sureness_told,
    unheard,
)
from earmark.report.numerals import percent_text
from earmark.report.page import write_report
from earmark.report.results import (
    METRIC_NAMES,
    SHOWN_METRICS,
    bases_of,
    class_summary,
    named_by_role,
)
from earmark.report.sentences import (
    comparison_headline,
    detail_lines,
    rounds_told,
    strategies_told,
    summary_lines,
)
from earmark.report.timeline import timeline_figure
from earmark.report.verdict import headline, strategy_verdicts, verdicts

__all__ = [
    "COLOURS",
    "COLUMN_INCHES",
    "MARKERS",
    "METRIC_NAMES",
    "N_IN_NOTEBOOK",
    "SHOWN_METRICS",
    "STYLE",
    "CardContents",
    "Correction",
    "DemoFound",
    "Description",
    "HeardEvidence",
    "HeardFlag",
    "HeldLimit",
    "Limits",
    "MissingEvidence",
    "ReportContents",
    "StudentsFound",
    "TeacherGrade",
    "bases_of",
    "card_markdown",
    "changed_classes",
    "changes_told",
    "class_summary",
    "comparison_headline",
    "croissant_json",
    "demo_html",
    "demo_lines",
    "demo_told",
    "detail_lines",
    "evidence_told",
    "findings_told",
    "flags_to_hear",
    "headline",
    "headline_told",
    "hold_limits",
    "labels_told",
    "missing_told",
    "named_by_role",
    "notebook_html",
    "percent_text",
    "rounds_told",
    "scan_html",
    "scenes_told",
    "strategies_told",
    "strategy_verdicts",
    "summary_lines",
    "sureness_told",
    "timeline_figure",
    "unheard",
    "verdicts",
    "write_figure",
    "write_png",
    "write_report",
]
