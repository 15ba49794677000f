"""Judge: who answers. The protocol, the judges that need no key (recorded, rules), the cache key, the engine.

litellm is imported in `judge.llm` only. What is asked belongs in `metrics`. Nothing here reads or writes a table:
verdicts are passed in and returned as frames and small frozen objects.
"""
