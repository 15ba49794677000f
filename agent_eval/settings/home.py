"""Find the root of a project, and define the paths in it.

Commands write only to the data folder, the store and DAGSTER_HOME.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from agent_eval.errors import ConfigurationError, NotFoundError


class NoRootError(NotFoundError):
    """Raised when no project is found at or above a folder.

    Fix: Create a project with `agent-eval init DIR`, change to its folder, or set AGENT_EVAL_HOME.
    """

    def __init__(self, start: Path) -> None:
        super().__init__(
            f"No agent_eval project at or above {start}: looked for agent_eval.toml or a data/ folder. "
            "Create one with `agent-eval init DIR` and change to that folder, or set AGENT_EVAL_HOME to the folder of a project."
        )


@dataclass(frozen=True)
class Home:
    """Define the folders of a project; most are in `data`, whose location the setting `data_dir` defines."""

    root: Path
    data: Path

    @property
    def agents_file(self) -> Path:
        """Return the path of agents.yaml."""
        return self.data / "agents.yaml"

    @property
    def sessions(self) -> Path:
        """Return the folder of sessions, which has one folder per agent and session."""
        return self.data / "sessions"

    def existing_sessions(self) -> Path:
        """Return the folder of sessions, after checking that the data folder exists.

        Raises:
            NotFoundError: If the data folder is missing.
        """
        if not self.data.is_dir():
            raise NotFoundError(
                f"The data folder {self.data} does not exist. In a new project, create it with `agent-eval init DIR`. If it is "
                "on a separate disk, mount the disk. The setting `data_dir` in agent_eval.toml names the folder."
            )
        return self.sessions

    @property
    def scenarios(self) -> Path:
        """Return the folder of scenarios, which has one folder per suite."""
        return self.data / "scenarios"

    @property
    def ratings(self) -> Path:
        """Return the folder of human ratings (*.csv)."""
        return self.data / "ratings"

    @property
    def verdicts(self) -> Path:
        """Return the folder of recorded verdicts (*.jsonl)."""
        return self.data / "verdicts"

    @property
    def clusters(self) -> Path:
        """Return the folder of manual changes to error clusters (*.yaml)."""
        return self.data / "clusters"

    @property
    def methodologies(self) -> Path:
        """Return the folder of custom methodology versions (*.yaml)."""
        return self.data / "methodologies"


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder at or above `start` that contains agent_eval.toml or data/.

    Without `start`, AGENT_EVAL_HOME is used if it is set, and the working directory otherwise.

    Raises:
        NoRootError: If there is no such folder.
        ConfigurationError: If AGENT_EVAL_HOME is not a folder, or the folder's name is not UTF-8.
    """
    root = _root(start)
    try:
        str(root).encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"The project's folder {str(root)!r} has a name that is not UTF-8. Rename it."
        ) from error
    return root


def _root(start: Path | None) -> Path:
    if start is None and (home := os.environ.get("AGENT_EVAL_HOME")):
        if not Path(home).is_dir():
            raise ConfigurationError(
                f"AGENT_EVAL_HOME is {home!r}, which is not a folder. Create it or unset it."
            )
        return Path(os.path.realpath(home))
    here = (start or Path.cwd()).resolve()
    if not here.is_dir():
        raise NoRootError(here)
    for folder in (here, *here.parents):
        if os.path.lexists(folder / "agent_eval.toml") or (folder / "data").is_dir():
            return folder
    raise NoRootError(here)
