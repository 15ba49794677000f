"""The assets, one module per group: ingest, judging, errors, scores, boards. Each stores the table of its name."""
