"""Taxonomies of failures: categories above the clusters, with a crosswalk from the failure labels.

Each YAML file beside this module describes a published taxonomy in our own words.
"""
