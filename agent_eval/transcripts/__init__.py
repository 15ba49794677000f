"""Model, read and import transcripts: Session, Conversation, Turn, ToolCall.

The package reads the native session format (data/sessions) and foreign formats; it writes only the native format.
`admission` decides which conversations count under a version; the `scores` package computes their scores.
Transcripts are untrusted data: they are parsed and stored, never executed or interpolated.
"""
