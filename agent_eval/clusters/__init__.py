"""Build error clusters with permanent ids from failure labels, and compute their trends.

The modules read and return frames. Questions to a judge are defined in `metrics`; the weight of labels is set
here. A cluster's id is created once and never reused; entries that people wrote into the registry are kept.
"""
