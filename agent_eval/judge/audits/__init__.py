"""Audit judge models: sample stored answers, repeat their questions and measure the drift."""
