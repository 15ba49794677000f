"""Formats: reading and writing files and texts, safely: JSON, YAML, hashes, timestamps, plain text, refusals.

The base of the project: it knows nothing of transcripts, judges or scores. Input is hostile: it is bounded and parsed
strictly, and what is invalid is refused with file and line.
"""
