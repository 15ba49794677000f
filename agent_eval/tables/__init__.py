"""Declare the contract of every stored table: its grain, key, columns and units.

This package contains only declarations with polars types; SQL belongs in `storage` and arithmetic in `scores`.
Users' queries depend on these names, so columns can be added but must not be renamed.
"""

from agent_eval.tables.contract import Column, Table, TableMismatchError, UnknownTableError
from agent_eval.tables.schema import TABLES, table

__all__ = ["TABLES", "Column", "Table", "TableMismatchError", "UnknownTableError", "table"]
