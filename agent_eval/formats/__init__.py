"""Read and write files and texts safely: JSON, YAML, hashes, timestamps, plain text, refusals.

This is the base package: it does not depend on transcripts, judges or scores. Input is untrusted: its size is
bounded, it is parsed strictly, and invalid parts are rejected with file and line.
"""
