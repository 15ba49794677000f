"""Divide the questions of a run among several workers, so that each question is asked only once."""
