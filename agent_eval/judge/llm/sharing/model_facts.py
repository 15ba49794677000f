"""Keep what litellm says of a model, so that a process that calls no model does not import it, which takes seconds.

A fact is kept with litellm's version and its own hash in a file beside the store (`keep_in`). It is asked again if the
version changes, if the kept fact is damaged or edited (caps in dollars rely on prices), or if other variables are set in the environment: what litellm says of a model depends on which keys and base URLs there
are. Their names are hashed; their values are not read.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from agent_eval.formats.hashing import digest

_DOWNLOADS = "LITELLM_LOCAL_MODEL_COST_MAP"
_SET_ON_IMPORT = {
    _DOWNLOADS,
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER",
    "NO_PROXY",
    "no_proxy",
    "TIKTOKEN_CACHE_DIR",
}
MOST_FACTS = 200
"""Number of facts to keep beside a new one, the latest; every set of variables in the environment has its own."""
_file: Path | None = None


def keep_in(file: Path | None) -> None:
    """Keep facts in a file from now on; None: keep none."""
    global _file  # one project per process, like litellm's own table of models
    _file = file


def kept(fact: str, *of: object, ask: Callable[[], Any], is_lasting: Callable[[Any], bool]) -> Any:
    """Return a fact, a JSON value, from the file; else ask for it, and keep it if it is lasting.

    Args:
        fact: The name of the fact.
        of: What the fact is about: the model, and other arguments.
        ask: Asks litellm.
        is_lasting: Whether the answer does not depend on a server that was asked.
    """
    file = _file
    if file is None or os.environ.get(_DOWNLOADS, "True").lower() != "true":  # prices of the day
        return ask()
    version, key = metadata.version("litellm"), digest(fact, of, _environment())
    facts = _facts(file, version)
    match facts.get(key):
        case {"value": value, "hash": mark} if mark == digest(key, value):
            return value
    value = ask()
    if is_lasting(value):
        with contextlib.suppress(TypeError, ValueError):  # a value that is not JSON is not kept
            latest = {
                **dict(list(facts.items())[-MOST_FACTS:]),
                key: {"value": value, "hash": digest(key, value)},
            }
            _write(file, {"litellm": version, "facts": latest})
    return value


def _environment() -> list[tuple[str, bool]]:
    """Return the names of the variables in the environment, and whether each is empty, without those set on import."""
    return sorted((name, not value) for name, value in os.environ.items() if name not in _SET_ON_IMPORT)


def _facts(file: Path, version: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored.get("litellm") == version and isinstance(stored.get("facts"), dict):
            return dict(stored["facts"])
    return {}


def _write(file: Path, value: object) -> None:
    """Replace the file. Nothing is kept without space or permission."""
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(value, stream)
            Path(temporary).replace(file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
