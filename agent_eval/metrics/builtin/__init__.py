"""The built-in metrics, one module each: the rubric, the scale and when the metric applies."""
