"""Judge: who answers. The protocol, the judges without a key (recorded, rules), the cache key, the engine.

litellm belongs here and nowhere else outside `simulate`. What is asked belongs in `metrics`;
nothing here reads or writes a table: verdicts come in and go out as frames and small frozen objects.
"""
