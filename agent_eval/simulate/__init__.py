"""Run scenarios against live agents and write the conversations as ordinary session files.

Nothing here reads the store or knows Dagster: the sessions are ingested as all others are. Scores belong in `scores`,
calls to models in `judge`.
"""
