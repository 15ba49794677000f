"""Open a project and run the operations that concern it as a whole.

`ingest` reads its folders, `answers` stores the answers of judges; clusters, gates, audits, report and data
versions have a module each. This package connects files, settings, judges and the store. Dagster and the
command line call it; it imports neither.
"""

from agent_eval.project.project import Project, UnknownAgentError
from agent_eval.settings.home import MissingDataError

__all__ = ["MissingDataError", "Project", "UnknownAgentError"]
