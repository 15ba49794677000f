"""Audit judge models: sample stored answers, ask them again and measure the drift."""
