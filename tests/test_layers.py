"""The direction of imports between rooms, read from the code itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "agent_eval"

# A room may import itself, rooms of a later line, and the plain modules errors, gate_rules, home, plaintext, settings, __version__.
ORDER = [
    {"cli"},
    {"commands"},
    {"defs", "definitions"},
    {"sources", "auditing"},
    {"clustering", "gating", "reporting"},
    {"project"},
    {"report", "storage", "judge", "simulate"},
    {"clusters", "scores", "metrics"},
    {"transcripts"},
    {"methodology", "tables"},
]
PLAIN = {"errors", "gate_rules", "home", "plaintext", "settings", "", "__main__"}
ONLY_IN = {
    "dagster": {"defs", "definitions"},
    "duckdb": {"storage"},
    "litellm": {"judge", "simulate"},
    "rich": {"commands"},
    "typer": {"cli"},
}
# What may be imported within one line of ORDER.
SIDEWAYS = {("scores", "metrics"), ("clusters", "metrics"), ("defs", "definitions"), ("definitions", "defs")}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            if node.module == "agent_eval":
                yield from (f"agent_eval.{alias.name}" for alias in node.names)
            else:
                yield node.module


def level(room: str) -> int:
    return next(i for i, rooms in enumerate(ORDER) if room in rooms)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_and_never_back(path: Path) -> None:
    room = room_of(path)
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "agent_eval":
            target = rest.split(".")[0]
            if target in PLAIN or target.startswith("__") or room in PLAIN or target == room:
                continue
            is_down = level(target) > level(room)
            assert is_down or (room, target) in SIDEWAYS or (room, target) == ("commands", "defs"), (
                f"{room} imports {name}"
            )
        elif top in ONLY_IN:
            assert room in ONLY_IN[top], f"{room} imports {top}, which belongs in {sorted(ONLY_IN[top])}"


def test_every_room_stands_in_the_order() -> None:
    rooms = {room_of(path) for path in modules()} - PLAIN
    assert rooms <= set().union(*ORDER)


def test_no_module_postpones_its_annotations() -> None:
    # Dagster reads context types at run time.
    assert [p for p in modules() if "from __future__ import annotations" in p.read_text()] == []
