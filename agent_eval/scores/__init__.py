"""Compute scores: the arithmetic from judgments to the leaderboard.

Functions take and return polars frames. They neither read files nor call models, and do not import Dagster.
Weights are defined in `methodology`; types and units of columns are defined in `tables`.
"""
