"""Importers of other evaluation tools' results, one module per format."""
