"""The doors by name, and how one input is tried at one of them."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from benchmarks.fuzz import arguments, importers, methodologies, ratings, sessions, settings_files, verdicts
from benchmarks.fuzz.holding import project, watched

DOORS: Mapping[str, ModuleType] = {
    "arguments": arguments,
    "importers": importers,
    "methodologies": methodologies,
    "ratings": ratings,
    "sessions": sessions,
    "settings": settings_files,
    "verdicts": verdicts,
}


def attempt(door: str, given: Any, *, store: bool = False) -> None:
    """Try one input in a project of its own, within the time that one may take."""
    with project() as root, watched():
        DOORS[door].check(given, root, store=store)
