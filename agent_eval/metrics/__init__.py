"""Metrics: what is asked. One module per metric: its rubric, its scale, its meaning.

No prompt text outside a metric's own rubric, no model, no arithmetic. Who answers belongs in `judge`.
"""
