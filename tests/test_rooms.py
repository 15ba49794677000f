"""The rooms of the package: what each imports is exactly what the table in tests/rooms.py says."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from tests import rooms
from tests.rooms import PACKAGE, PLAIN, ROOMS

MOST_ROOMS, MOST_MODULES = 20, 15
OF_PARTS = {"metrics/builtin", "gates/kinds"}
"""Folders in which every module is a part that registers itself: a further one makes nothing else harder to find."""
BY_NAME = {
    "__init__.py",
    "defs/automation.py",
    "defs/dagster_internals.py",
    "gates/evaluate.py",
    "judge/rules/judge.py",
    "metrics/custom.py",
    "metrics/metric_set.py",
    "transcripts/importers/catalog.py",
    "judge/prompts/personal_data.py",
    "simulate/agents/endpoints.py",
    "project/notify/notifications.py",
}
"""Modules that import by a name in a text: functions on first use, private parts of Dagster, what a project's settings name, and parts that
register themselves by their place in a folder."""


def test_every_room_imports_exactly_what_the_table_says() -> None:
    found = {room: names for room, names in rooms.rooms_imported().items() if room not in PLAIN}
    assert found == {name: set(room.imports) for name, room in ROOMS.items()}


def test_imports_go_down_and_never_back() -> None:
    order = list(ROOMS)
    upwards = [(a, b) for a in order for b in ROOMS[a].imports if order.index(b) <= order.index(a)]
    assert upwards == []


def test_the_package_itself_imports_nothing_and_its_main_module_the_command_line() -> None:
    found = rooms.rooms_imported()
    assert {name: found[name] for name in PLAIN} == {"": set(), "__main__": {"cli"}}
    libraries = rooms.libraries_imported()
    assert {name: libraries[name] for name in PLAIN} == {"": set(), "__main__": set()}


def test_modules_are_imported_by_name_only_where_the_name_is_not_ours() -> None:
    by_name = {"import_module", "__import__", "resolve_name"}
    found = {
        str(path.relative_to(rooms.PACKAGE))
        for path in rooms.modules()
        for node in rooms.nodes(path.read_text(encoding="utf-8"))
        if (isinstance(node, ast.Attribute) and node.attr in by_name)
        or (isinstance(node, ast.Name) and node.id in by_name)
        or (isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & by_name)
    }
    assert found == BY_NAME


def test_guarded_libraries_are_imported_only_where_the_table_says() -> None:
    found = {room: names for room, names in rooms.libraries_imported().items() if room not in PLAIN}
    assert found == {name: set(room.third_party) for name, room in ROOMS.items()}


def test_there_are_at_most_twenty_rooms_and_no_package_is_crowded() -> None:
    assert len(rooms.rooms_imported().keys() - PLAIN) <= MOST_ROOMS
    crowded = {
        str(folder.relative_to(PACKAGE)): n
        for folder in {path.parent for path in rooms.modules()} - {PACKAGE / name for name in OF_PARTS}
        if (n := len([p for p in folder.glob("*.py") if p.stem != "__init__"])) > MOST_MODULES
    }
    assert crowded == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    names = {path: _dotted(path) for path in rooms.modules()}
    known = set(names.values())
    imports = {
        name: {found for text in rooms.imported(path) if (found := _module(text, known)) and found != name}
        for path, name in names.items()
    }
    while free := [name for name, targets in imports.items() if not targets & imports.keys()]:
        for name in free:
            del imports[name]
    assert sorted(imports) == []


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = {}
    for path in rooms.modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_page_of_the_architecture_has_the_present_table() -> None:
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert text == rooms.page_with_table(text), "run python -m tests.rooms"


def test_no_module_postpones_its_annotations() -> None:
    # Dagster reads context types at run time.
    postponed = [p for p in rooms.modules() if "from __future__ import annotations" in p.read_text()]
    assert postponed == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("settings/home.py", "from agent_eval.judge.protocol import Judge"),
        ("storage/store.py", "from agent_eval.scores import explain"),
        ("settings/settings.py", "import agent_eval.project"),
        ("scores/explain.py", "import duckdb"),
        ("tables/contract.py", "from agent_eval import methodology"),
        ("__init__.py", "from agent_eval.judge import engine"),
        ("__main__.py", "import duckdb"),
        ("settings/home.py", "import importlib; importlib.import_module('agent_eval.judge')"),
    ],
)
def test_a_planted_import_turns_the_guard_red(
    module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "agent_eval"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    monkeypatch.setattr(rooms, "PACKAGE", copy)
    with pytest.raises(AssertionError):
        _guarded()


def _guarded() -> None:
    test_every_room_imports_exactly_what_the_table_says()
    test_guarded_libraries_are_imported_only_where_the_table_says()
    test_modules_are_imported_by_name_only_where_the_name_is_not_ours()
    test_the_package_itself_imports_nothing_and_its_main_module_the_command_line()


def _dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(text: str, known: set[str]) -> str | None:
    """The module that an imported name is, or is in; None for a name of another package."""
    while text and text not in known:
        text = text.rpartition(".")[0]
    return text or None


def test_modules_that_a_text_names_exist() -> None:
    packages = "|".join(name for name in ROOMS if (PACKAGE / name).is_dir())
    named = re.compile(rf"`(?:agent_eval\.)?((?:{packages})(?:\.[a-z_]+)+)")
    pages = [*rooms.modules(), *(rooms.ROOT / "docs").glob("*.md"), *(rooms.ROOT / "docs/howto").glob("*.md")]
    unknown = {
        (str(page.relative_to(rooms.ROOT)), name)
        for page in pages
        for name in named.findall(page.read_text(encoding="utf-8"))
        if not _is_there(name)
    }
    assert unknown == set()


def test_files_and_constants_that_the_architecture_page_names_exist() -> None:
    text = rooms.PAGE.read_text(encoding="utf-8").partition("## Where a new part goes")[2]
    places = (PACKAGE, rooms.ROOT, PACKAGE / "transcripts")
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.[a-z]+)?)`", text)
    assert len(named) > 10
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
    files = [*rooms.modules(), *(rooms.ROOT / name for name in named if name.endswith(".py"))]
    code = "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    assert [name for name in re.findall(r"`(_?[A-Z]{3,}[A-Z_]*)`", text) if name not in code] == []


def test_files_that_the_walks_name_exist() -> None:
    walks = rooms.PAGE.read_text(encoding="utf-8").partition("## Three walks")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_/]+\.py)`", walks)
    paths = [f"/{path.relative_to(PACKAGE).as_posix()}" for path in rooms.modules()]
    assert len(named) > 20
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    path, _, last = name.rpartition(".")
    for module in (name, path):
        file = PACKAGE / module.replace(".", "/")
        if file.is_dir() or file.with_suffix(".py").is_file():
            return module == name or last in _text(file)
    return False


def _text(file: Path) -> str:
    return (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
