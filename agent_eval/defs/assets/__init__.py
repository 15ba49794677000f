"""Define the assets: each stores the table of its name, or the report."""
