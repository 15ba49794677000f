"""Render results: markdown for the Dagster UI, tables for the terminal, plots.

Text from transcripts is always escaped here. `scores` defines what a number means.
"""
