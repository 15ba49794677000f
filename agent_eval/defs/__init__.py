"""Define the Dagster objects: partitions, sources, assets, resources and the IO manager.

Each asset calls a function in another package, which does the computation. Formulas, SQL and prompts do not
belong in this package.
"""

import warnings

from dagster import BetaWarning

# Multi-partition mappings are beta in Dagster. constraints.txt pins the release, so users can ignore the warning.
warnings.filterwarnings("ignore", category=BetaWarning)
