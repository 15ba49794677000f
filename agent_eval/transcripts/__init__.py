"""Transcripts: what was said and done: Session, Conversation, Turn, ToolCall; readers and importers.

Reads the native session format (data/sessions) and foreign formats; writes the native format and nothing else.
Which conversation counts under a version belongs here too (`admission`); what it is worth belongs in `scores`.
Transcripts are hostile data: parsed and kept, never executed or interpolated.
"""
