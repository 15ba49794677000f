"""Judge conversations: protocol, judges that need no API key (recorded, rules), cache key and engine.

litellm is imported in `judge.llm` only. The metrics are defined in `metrics`. This package neither reads nor
writes tables: verdicts are passed in and returned as frames and small frozen objects.
"""
