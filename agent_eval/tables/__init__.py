"""Tables: the contract of every stored table: grain, key, columns, units.

Plain declarations; polars types and nothing else. SQL belongs in `storage`, arithmetic in `scores`.
Other people's queries rely on these names: add columns, never rename one.
"""

from agent_eval.tables.contract import Column, Table, TableMismatchError
from agent_eval.tables.schema import TABLES, table

__all__ = ["TABLES", "Column", "Table", "TableMismatchError", "table"]
