"""Declare the contract of every stored table: its grain, key, columns and units.

`tables.txt` declares the tables. SQL belongs in `storage` and arithmetic in `scores`.
"""

from agent_eval.tables.contract import Column, Table, TableMismatchError, UnknownTableError
from agent_eval.tables.schema import TABLES, table

__all__ = ["TABLES", "Column", "Table", "TableMismatchError", "UnknownTableError", "table"]
