"""Run all benchmarks, or the named ones, and print one line per figure."""

import importlib
import subprocess
import sys

NAMES = (
    "startup",
    "importing",
    "length",
    "scoring",
    "board",
    "reliability",
    "coverage",
    "calibration",
    "clusters",
    "issues",
    "judge_engine",
    "attribution",
)

if __name__ == "__main__":
    names = sys.argv[1:] or NAMES
    if len(names) > 1:  # each in a process of its own: a child's peak of memory counts that of its parent
        sys.exit(max(subprocess.call([sys.executable, "-m", "benchmarks", name]) for name in names))
    for line in importlib.import_module(f"benchmarks.{names[0]}").measure():
        print(f"{names[0]}: {line}", flush=True)
