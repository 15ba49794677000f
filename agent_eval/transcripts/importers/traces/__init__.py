"""Import observability traces, one module per format; `assembly` joins model calls to conversations."""
