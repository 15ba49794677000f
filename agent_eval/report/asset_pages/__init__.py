"""Render the page of each asset in the Dagster UI, from frames to Markdown and SVG. This package does not import Dagster."""
