"""Methodology: the published rules as data. Versions are YAML files, read into frozen models.

A weight, an anchor, a required test or a penalty belongs here; code that asks which version this is belongs nowhere.
"""
