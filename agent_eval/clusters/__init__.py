"""Build error clusters with permanent ids from failure labels, and compute their trends.

The modules take and return frames. `metrics` defines the questions for judges; this package defines the severity
of labels. A cluster's id is created once and never reused. Entries that people made in the registry are kept.
"""
