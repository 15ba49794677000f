"""Import chat data sets and API logs, one module per format."""
