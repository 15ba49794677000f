"""Render results: Markdown for the Dagster UI, tables for the terminal, HTML pages, and plots.

Text from transcripts is always escaped in this package. Package `scores` defines the meaning of the numbers.
"""
