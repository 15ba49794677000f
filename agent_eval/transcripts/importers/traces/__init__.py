"""Importers of observability traces, one module per format; `assembly` puts model calls together."""
