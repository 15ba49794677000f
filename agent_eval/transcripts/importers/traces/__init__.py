"""Import observability traces, one module per format; `assembly` combines model calls into conversations."""
