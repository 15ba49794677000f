"""Storage: DuckDB, and the only SQL of the project.

Frames in, frames out, by the contracts in `tables`. No value from a transcript ever becomes part of a statement:
names come from `tables`, everything else travels as parameters or registered frames.
"""

from agent_eval.storage.store import Store, StoreError

__all__ = ["Store", "StoreError"]
