"""What it costs to start: the definitions over their libraries, and the command's help."""

import compileall
import sys
from collections.abc import Iterator
from pathlib import Path

import agent_eval
from benchmarks.measuring import best


def measure() -> Iterator[str]:
    compileall.compile_dir(
        Path(agent_eval.__path__[0]), quiet=1
    )  # as pip leaves it: bytecode beside the source
    libraries = best([sys.executable, "-c", "import dagster, polars, duckdb"])
    definitions = best([sys.executable, "-c", "import dagster, polars, duckdb, agent_eval.definitions"])
    yield f"import agent_eval.definitions: +{definitions.cpu_s - libraries.cpu_s:.2f} CPU s over its libraries' {libraries.cpu_s:.2f} (bar 0.3)"
    helped = best([sys.executable, "-m", "agent_eval", "--help"])
    yield f"agent-eval --help: {helped} (bar 0.5 s)"
