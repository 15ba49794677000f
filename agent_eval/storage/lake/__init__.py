"""Store tables in a DuckLake for several workers: a Postgres catalog and Parquet files in a shared folder.

The package is imported only if the settings have a table [store], and needs the extra `cluster`. The catalog also
contains the data that a local store keeps in files beside it: locks, section holders and the prompt secret.
"""

import os

from agent_eval.storage.lake.store import LakeStore

# duckdb 1.5 passes frames to pyarrow in buffers that cause a warning on stderr
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")

__all__ = ["LakeStore"]
