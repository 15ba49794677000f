"""Built-in metrics, one module each, with rubric, scale and condition."""
