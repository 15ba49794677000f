"""Define the assets: each stores the table with the same name, or writes the report."""
