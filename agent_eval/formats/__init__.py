"""Read and write files and texts safely: JSON, YAML, CSV, zip archives, hashes, timestamps and plain text.

This base package does not depend on transcripts, judges or scores. Input is untrusted, so its size is limited, it
is parsed strictly, and invalid parts are rejected with file and line.
"""
