"""Define the metrics: one module per metric, with its rubric, scale and meaning.

Prompt text exists only in a metric's own rubric; models and arithmetic are elsewhere. `judge` asks the
questions.
"""
