"""Render rating sheets as a single HTML file, which opens from disk, and as CSV."""

from agent_eval.report.sheets.page import Option, SheetItem, SheetMetric, sheet_csv, sheet_html

__all__ = ["Option", "SheetItem", "SheetMetric", "sheet_csv", "sheet_html"]
