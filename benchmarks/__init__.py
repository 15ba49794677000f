"""Benchmarks: run by hand (`make bench`, or `python -m benchmarks NAME`). Figures are CPU seconds and ratios in one run."""
