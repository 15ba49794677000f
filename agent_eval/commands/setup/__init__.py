"""Set up projects: create a project or a lake, and serve a mock judge."""
