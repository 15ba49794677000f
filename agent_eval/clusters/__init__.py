"""Clusters: from failure labels to error clusters whose ids last, and their trends.

Frames in, frames out. What is asked of a judge belongs in `metrics`; which label weighs how much is here.
A cluster's id is minted once and never reused; what a person wrote into the registry stays.
"""
