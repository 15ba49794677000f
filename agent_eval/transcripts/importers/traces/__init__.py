"""Import observability traces, one module per format."""
