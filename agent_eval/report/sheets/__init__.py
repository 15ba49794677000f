"""Render rating sheets: one HTML file that works from disk, and the same as CSV."""

from agent_eval.report.sheets.page import Option, SheetItem, SheetMetric, sheet_csv, sheet_html

__all__ = ["Option", "SheetItem", "SheetMetric", "sheet_csv", "sheet_html"]
