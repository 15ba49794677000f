"""Tables: the contract of every stored table, with its grain, key, columns and units.

This package contains declarations with polars types. SQL belongs in `storage`, arithmetic in `scores`.
Users' queries rely on these names: add columns, never rename one.
"""

from agent_eval.tables.contract import Column, Table, TableMismatchError, UnknownTableError
from agent_eval.tables.schema import TABLES, table

__all__ = ["TABLES", "Column", "Table", "TableMismatchError", "UnknownTableError", "table"]
