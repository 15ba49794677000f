"""Hold benchmark scenarios of a project: as sessions, for Dagster, and as trials, for test suites."""
