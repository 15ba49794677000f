"""Model, read and import transcripts: Session, Conversation, Turn, ToolCall.

Reads the native session format (data/sessions) and foreign formats; writes only the native format.
`admission` decides which conversation counts under a version; `scores` rates it.
Transcripts are untrusted data: parsed and stored, never executed or interpolated.
"""
