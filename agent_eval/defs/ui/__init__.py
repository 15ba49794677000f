"""Serve the Dagster UI behind a guard: web pages of other origins can neither read nor control it."""
