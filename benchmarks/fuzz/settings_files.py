"""The door of settings: agent_eval.toml and AGENT_EVAL_*."""

import os
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import strategies as st

from agent_eval.errors import AgentEvalError
from agent_eval.settings import Settings, home_around, read_settings, unknown_variables
from benchmarks.fuzz.hostile import changed_bytes, texts

TOML = b'data_dir = "data"\nstore = "data/x.duckdb"\nmax_unscored_share = 0.05\n'
NAMES = st.sampled_from(
    ["DATA_DIR", "STORE", "MAX_UNSCORED_SHARE", "MAX_UNSCORED_SHARES", "data_dir", "NESTED__X"]
)


class Input(NamedTuple):
    """The file, and the environment."""

    file: bytes
    variables: dict[str, str]


def _can_be_set(text: str) -> bool:
    return "\x00" not in text and not any(0xD800 <= ord(c) < 0xE000 for c in text)


inputs = st.builds(
    Input,
    file=changed_bytes(TOML) | st.just(TOML),
    variables=st.dictionaries(NAMES, texts.filter(_can_be_set), max_size=2),
)


def check(found: Input, root: Path, *, store: bool = False) -> None:
    """Settings are read and valid, or one line says what is wrong."""
    (root / "agent_eval.toml").write_bytes(found.file)
    variables = {f"AGENT_EVAL_{name}": value for name, value in found.variables.items()}
    with mock.patch.dict(os.environ, variables):
        try:
            settings = read_settings(root)
            home = home_around(root)
        except AgentEvalError as error:
            assert len(str(error)) <= 3_000  # noqa: PT017
            return
        finally:
            assert all(name.startswith("AGENT_EVAL_") for name in unknown_variables())
    assert isinstance(settings, Settings)
    assert 0 <= settings.max_unscored_share <= 1
    assert "\x00" not in str(home.data)
    assert home.data == home.root / settings.data_dir
