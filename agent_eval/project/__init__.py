"""Open a project and run operations that need several of its parts: files, settings, judges and the store.

`ingest` reads the session folders and `answers` stores the answers of judges. Clusters, gates, audits, the report
and data versions have one module each. The Dagster assets and the commands call this package; it does not import
them.
"""

from agent_eval.project.project import Project

__all__ = ["Project"]
