"""The tests. On small frames and matrices, threads cost more than they save: set before numpy and polars are imported."""

import os

for _name in ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
