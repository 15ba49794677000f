"""Project: one project opened, and what is done with it as a whole.

`ingest` reads its folders, `answers` keeps what judges said; clusters, gates, audits, report and data versions have a
module each. This is where files, settings, judges and the store meet. Dagster and the command line call it; it knows neither.
"""

from agent_eval.project.project import Project, UnknownAgentError
from agent_eval.settings.home import MissingDataError

__all__ = ["MissingDataError", "Project", "UnknownAgentError"]
