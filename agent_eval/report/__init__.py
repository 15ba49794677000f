"""Report: how results look: markdown for the Dagster UI, tables for the terminal, plots.

Text from transcripts is escaped here, always. What a number means belongs in `scores`.
"""
