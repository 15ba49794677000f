"""Run all benchmarks, or the named ones, and print one line per figure."""

import importlib
import sys

NAMES = (
    "startup",
    "importing",
    "scoring",
    "board",
    "reliability",
    "coverage",
    "clusters",
    "judge_engine",
)

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        for line in importlib.import_module(f"benchmarks.{name}").measure():
            print(f"{name}: {line}", flush=True)
