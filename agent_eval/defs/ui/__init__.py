"""The Dagster UI behind a guard: no web page of another origin can read it or make it do anything."""
