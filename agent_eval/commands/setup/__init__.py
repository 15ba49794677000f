"""First steps: a new project, and a judge without a model."""
