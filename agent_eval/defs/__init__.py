"""Define everything of Dagster: partitions, sources, thin assets, resources, the IO manager.

An asset only connects; a function in another package computes. Formulas, SQL and prompts do not belong here.
"""

import warnings

from dagster import BetaWarning

# Multi-partition mappings are beta in Dagster, and pinned by constraints.txt; users cannot act on the warning.
warnings.filterwarnings("ignore", category=BetaWarning)
