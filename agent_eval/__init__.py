"""agent_eval: agent transcripts in, leaderboards that can be defended out.

Rooms, and what each may know, are drawn in docs/architecture.md; `definitions.py` is the door for Dagster.
"""

__version__ = "0.1.0"
