"""Print tables, JSON and progress in the terminal."""
