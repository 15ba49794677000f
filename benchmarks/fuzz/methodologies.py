"""The door of a user's own methodology versions."""

import io
from pathlib import Path

import yaml

from agent_eval.commands.methodology import show, show_list, validate
from agent_eval.commands.terminal.output import SafeConsole
from agent_eval.errors import AgentEvalError
from agent_eval.methodology.registry import PACKAGED, RECORD, Registry, freeze, version_names
from benchmarks.fuzz.holding import is_printable
from benchmarks.fuzz.hostile import changed_bytes, changed_json

OWN = "9.0.0"
TEXT = (PACKAGED / "1.0.0.yaml").read_text().replace("1.0.0", OWN)
VALUE = yaml.load(TEXT, Loader=yaml.BaseLoader)


def _dumped(value: object) -> bytes:
    return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace")


inputs = changed_bytes(TEXT.encode()) | changed_json(VALUE).map(_dumped)


def check(content: bytes, root: Path, *, store: bool = False) -> None:
    """The file is a version, or a problem that names it; the packaged versions are there either way."""
    own = root / "data" / "methodologies"
    own.mkdir(parents=True)
    (own / f"{OWN}.yaml").write_bytes(content)
    registry = Registry.read(own)
    assert {"1.0.0", "1.1.0", "1.2.0", "1.3.0"} <= {*registry.versions}
    assert (OWN in registry.versions) != bool(registry.problems)
    assert OWN in version_names(own)
    assert all(len(str(problem)) <= 3_000 for problem in registry.problems)
    console = SafeConsole(file=io.StringIO(), width=200, color_system=None)
    show_list(registry, console, as_json=False)
    validate(registry, console, as_json=False)
    if OWN in registry.versions:
        show(registry, OWN, console, as_json=False)
    assert isinstance(console.file, io.StringIO)
    assert is_printable(console.file.getvalue())
    try:
        freeze(own)
    except AgentEvalError:
        assert not (own / RECORD).exists()
