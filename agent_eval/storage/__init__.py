"""Store tables in a DuckDB file, or in the DuckLake of `lake`; this is the only package with SQL.

The package accepts and returns frames that follow the contracts in `tables`. A value from a transcript never
becomes part of a statement: names come from `tables`, and all other values are passed as parameters or registered
frames.
"""

from agent_eval.storage.backup import Backup, back_up
from agent_eval.storage.store import Replacement, RunScope, Store
from agent_eval.storage.store_errors import StoreError

__all__ = ["Backup", "Replacement", "RunScope", "Store", "StoreError", "back_up"]
