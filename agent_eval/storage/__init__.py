"""Storage: DuckDB, and the only SQL of the project.

Frames in, frames out, by the contracts in `tables`. No value from a transcript ever becomes part of a statement:
names come from `tables`, everything else travels as parameters or registered frames.
"""

from agent_eval.storage.backup import Backup, BackupError, back_up
from agent_eval.storage.store import Replacement, Store
from agent_eval.storage.store_errors import StoreError

__all__ = ["Backup", "BackupError", "Replacement", "Store", "StoreError", "back_up"]
