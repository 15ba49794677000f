"""Define the metrics, with one module per built-in metric that contains its rubric and scale.

A metric's prompt text exists only in its rubric. `judge` asks the questions, and `scores` computes with the
answers.
"""
