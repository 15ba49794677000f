"""Provide the rules that every importer follows: who speaks, order, calls and results, failures, what was not read."""
