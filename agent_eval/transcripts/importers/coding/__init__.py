"""Importers of coding agents' own logs and trajectories, one module per format."""
