"""Terminal: how commands print tables, JSON and progress."""
