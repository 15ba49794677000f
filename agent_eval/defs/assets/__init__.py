"""The assets: ingest, judging, audits, errors, scores, boards, gates. Each stores the table of its name, or the report."""
