"""Fixtures that several rooms share: the shipped sample after a run, and the folder of real transcripts."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import pytest

from agent_eval.project import Project
from agent_eval.tables import table
from benchmarks.warm import remember_revisions

hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")

REPOSITORY = Path(__file__).parents[1]
TWO_AGENTS = ("harbor-desk", "quill-help")  # of one template
remember_revisions()
os.environ.pop(
    "COLUMNS", None
)  # set by xdist in its workers: tables are printed as in a pipe, for 160 columns


PROJECTS = {"sample_root", "two_agents", "judged_copy", "published_root"}
"""Fixtures that begin with a run."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that reads a finished project is slow: it may be the one that waits for its run."""
    if PROJECTS & set(getattr(item, "fixturenames", ())):
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On each worker, which begins with its share of the list, live tests first, then the slow ones.

    Daemons mostly wait, so they wait at once; a slow test that begins last would keep one worker busy and the others idle.
    A mark on a whole module moves none: its tests share what is set up for them.
    """
    live = [item for item in items if item.get_closest_marker("live")]
    slow = [item for item in items if any(mark.name == "slow" for mark in item.own_markers)]
    first = [*live, *(item for item in slow if item not in live)]
    items[:] = [item for item in items if item not in first]
    n_workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    for i, item in reversed(list(enumerate(first))):
        items.insert((i % n_workers) * (len(items) + 1) // n_workers, item)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real transcripts that are not part of the project; tests that need them are skipped without them."""
    folder = Path(os.environ.get("AGENT_EVAL_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")
    if not (folder / "expected.json").is_file():
        pytest.skip("the folder of real transcripts is absent (AGENT_EVAL_SHARED_DATA)")
    return folder


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker that needs it makes, for the others to read or copy; `make` gets its path."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    base = factory.getbasetemp().parent if is_worker else factory.getbasetemp()
    folder, done = base / f"once-{name}", base / f"once-{name}.done"
    with (base / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def sample_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped data after one run. Read only: tests that change it make their own copy."""
    return made_once(tmp_path_factory, "sample", run_sample)


@pytest.fixture(scope="session")
def two_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents of the sample after a run. Read only: tests that change it make their own copy."""
    return made_once(tmp_path_factory, "two-agents", lambda root: run_sample(root, *TWO_AGENTS))


@pytest.fixture
def two_agents_today(two_agents: Path, tmp_path: Path) -> Path:
    """The same after a run of today, because clusters have the dates of the run: a suite can run over midnight."""
    made_on = Project.open(two_agents).store.read(table("error_registry"))["last_seen"].max()
    if made_on != datetime.now(UTC).date():
        run_sample(two_agents := tmp_path / "today", *TWO_AGENTS)
    return two_agents


def run_sample(root: Path, *agents: str) -> None:
    from agent_eval.commands.run import run

    copy_sample(root, *agents)
    with at_home(root) as project:
        report = run(project)
        assert report.exit_code == 0, report


@pytest.fixture
def sample(sample_root: Path) -> Project:
    """The sample after one run, opened."""
    return Project.open(sample_root)


@pytest.fixture
def sample_copy(sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample after one run, in a folder of the test's own, with its own Dagster home."""
    return own_copy(sample_root, tmp_path, monkeypatch)


@pytest.fixture
def two_agents_copy(two_agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with two agents."""
    return own_copy(two_agents, tmp_path, monkeypatch)


def own_copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = Path(shutil.copytree(made, tmp_path / "project"))
    monkeypatch.setenv("AGENT_EVAL_HOME", str(root))
    monkeypatch.setenv("DAGSTER_HOME", str(root / ".dagster"))
    return root


def copy_sample(root: Path, *agents: str) -> None:
    """The shipped data without any store; of all agents, or of those named."""
    ignored = shutil.ignore_patterns("*.duckdb*", "*.lock", "README.md")
    shutil.copytree(REPOSITORY / "data", root / "data", ignore=ignored)
    for folder in (root / "data" / "sessions").iterdir():
        if agents and folder.name not in agents:
            shutil.rmtree(folder)


class at_home:  # noqa: N801
    """The project at a root, with the environment that the command would have there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> Project:
        self.before = {name: os.environ.get(name) for name in ("AGENT_EVAL_HOME", "DAGSTER_HOME")}
        os.environ["AGENT_EVAL_HOME"] = str(self.root)
        os.environ["DAGSTER_HOME"] = str(self.root / ".dagster")
        return Project.open()

    def __exit__(self, *_: object) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of tests that have no folder of their own, which are most: to make one takes time."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _no_stray_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> Iterator[None]:
    """No test reads the developer's own project by accident, or writes where another test would find it."""
    is_own = "tmp_path" in request.fixturenames
    monkeypatch.chdir(request.getfixturevalue("tmp_path") if is_own else empty_folder)
    for name in [n for n in os.environ if n.startswith("AGENT_EVAL_") and n != "AGENT_EVAL_SHARED_DATA"]:
        monkeypatch.delenv(name)
    yield
    assert os.listdir(empty_folder) == []  # noqa: PTH208  tests replace methods of Path
