"""Defs: Dagster only. Partitions, sources, thin assets, resources, the IO manager.

An asset wires; a function in another room computes. No formula, no SQL, no prompt belongs here.
"""

import warnings

from dagster import BetaWarning

# Multi-partition mappings are beta in Dagster, and pinned by constraints.txt; users cannot act on the warning.
warnings.filterwarnings("ignore", category=BetaWarning)
