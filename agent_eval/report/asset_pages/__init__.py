"""Render frames as Markdown and SVG for the asset pages of the Dagster UI. This package does not import Dagster."""
