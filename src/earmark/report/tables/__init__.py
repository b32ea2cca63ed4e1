"""The tables of the paper and ours: numbers as CSV, and LaTeX for people."""

from earmark.report.tables.shown import named_by, report_tables
from earmark.report.tables.table import Table, write_tables

__all__ = ["Table", "named_by", "report_tables", "write_tables"]
