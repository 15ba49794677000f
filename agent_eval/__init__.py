"""Turn agent transcripts into leaderboards you can defend.

docs/python.md describes the functions below, and docs/architecture.md the packages. `definitions.py` is the entry
point for Dagster.
"""

import importlib
import sys

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compare_agents",
    "composite",
    "import_file",
    "judge_conversations",
    "match_trajectory",
    "open_project",
    "pass_at_k",
    "pass_hat_k",
    "reliability_of",
    "run_project",
    "tool_correctness",
]


def __getattr__(name: str) -> object:
    """Import a function of `commands.api` on first use, so that `import agent_eval` stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(importlib.import_module("agent_eval.errors").PLATFORMS)
    return getattr(importlib.import_module("agent_eval.commands.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
