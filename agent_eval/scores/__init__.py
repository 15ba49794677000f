"""Compute scores from judgments, up to the leaderboard.

Functions take and return polars frames. They do not read files, call models or import Dagster. Weights are
defined in `methodology`; the types and units of columns are defined in `tables`.
"""
