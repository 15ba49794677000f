"""Importers of chat data sets and API logs, one module per format."""
