"""Store tables in a DuckLake: a Postgres catalog and Parquet files in a shared folder, for several workers.

Imported only if the settings have a table [store]; needs the extra `cluster`. The catalog also holds what one
machine keeps in files beside its store: locks, holders of sections and the prompt secret.
"""

import os

from agent_eval.storage.lake.store import LakeStore

# duckdb 1.5 hands frames to pyarrow in buffers that it warns of on stderr
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")

__all__ = ["LakeStore"]
