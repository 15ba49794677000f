"""Divide the questions of a run among several workers, and keep what processes share: each question is asked once."""
