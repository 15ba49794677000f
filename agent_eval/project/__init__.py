"""Project: one project opened, and what is done with it as a whole: clusters, gates, audits, report, data versions.

This is where files, settings, judges and the store meet. Dagster and the command line call it; it knows neither.
"""

from agent_eval.project.project import MissingDataError, Project, UnknownAgentError, taken_in

__all__ = ["MissingDataError", "Project", "UnknownAgentError", "taken_in"]
