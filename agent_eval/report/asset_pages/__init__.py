"""Asset pages: what the Dagster UI shows on the page of each asset. Frames in, markdown and SVG out; no Dagster."""
