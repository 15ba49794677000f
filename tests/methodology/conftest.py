from collections.abc import Callable
from pathlib import Path

import pytest

from agent_eval.methodology.registry import PACKAGED

Write = Callable[..., Path]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's folder of versions, empty."""
    folder = tmp_path / "methodologies"
    folder.mkdir()
    return folder


@pytest.fixture
def write(own: Path) -> Write:
    """Write 1.3.0 under a new version into the user's folder, with texts replaced: write('1.10.0', ('old', 'new'))."""

    def copy(version: str, *replacements: tuple[str, str], name: str | None = None) -> Path:
        text = (PACKAGED / "1.3.0.yaml").read_text(encoding="utf-8")
        for old, new in (('version: "1.3.0"', f'version: "{version}"'), *replacements):
            assert old in text, f"{old!r} does not occur in 1.3.0.yaml"
            text = text.replace(old, new, 1)
        path = own / (name or f"{version}.yaml")
        path.write_text(text, encoding="utf-8")
        return path

    return copy
