"""Scores: the arithmetic from judgments to the leaderboard.

Polars in, polars out. Nothing here reads a file, calls a model or knows Dagster.
A weight belongs in `methodology`; a column's type and unit belong in `tables`.
"""
