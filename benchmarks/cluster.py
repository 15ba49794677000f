"""A lake with Postgres, Redis, a Dagster daemon and Celery workers, each a process, with the files of `deploy/`."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from agent_eval.commands.api import import_file
from agent_eval.defs.instance import DEFINITIONS
from agent_eval.project import Project
from agent_eval.storage.lake import LakeStore
from agent_eval.storage.lake.upkeep import initialise
from benchmarks.chaos import shown, write_chats
from benchmarks.judge_server import MockJudge
from benchmarks.live import Ui, environment, eventually
from benchmarks.postgres_server import PASSWORD, Server, free_port, initdb, running

DEPLOY = Path(__file__).parents[1] / "deploy"
SECRET = "k" * 32
"""The key of the codes in prompts: the same in all projects, so that equal questions are equal requests."""
SETTINGS = """judge_model = "openai/mock"
judge_price_in = 1.0
judge_price_out = 1.0
judge_concurrency = {concurrency}
budget.automation_max_calls_per_day = 1000000
keep_runs_days = 30

[store]
kind = "ducklake"
catalog = "postgres:{address} dbname={database}"
data = "{lake}/"
"""
FREE_OF_RUNS = "SELECT count(*) FROM runs WHERE status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED')"


@dataclass
class Cluster:
    """The processes that work on one project; names of processes: redis, daemon, web, worker-1, worker-2, …"""

    root: Path
    home: Path  # DAGSTER_HOME; also holds the logs
    database: str  # of Dagster's records
    server: Server
    judge: MockJudge
    redis_port: int = field(default_factory=free_port)
    web_port: int = field(default_factory=free_port)
    code_port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def start(self, *names: str) -> None:
        """Start processes, each in a process group of its own."""
        for name in names:
            if name == "redis":
                (self.home / "redis").mkdir(exist_ok=True)
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self._command(name),
                    cwd=self.root,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )

    def kill(self, *names: str) -> None:
        """kill -9 of each process and its children."""
        for name in names:
            process = self.processes.pop(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, *command: str) -> None:
        """Run a command as on one of the machines."""
        subprocess.run(
            [sys.executable, "-m", "agent_eval", *command], cwd=self.root, env=self._environment, check=True
        )

    def ended(self) -> list[str]:
        """Names of the processes that ended by themselves."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def n_unfinished_runs(self) -> int:
        return int(str(self.server.execute(FREE_OF_RUNS, self.database)[0][0]))

    def serves_code(self) -> bool:
        """Whether the code server has loaded the definitions."""
        if self.processes["code"].poll() is not None:
            raise RuntimeError(f"the code server ended: {(self.home / 'code.log').read_text()[-2000:]}")
        check = [sys.executable, "-m", "dagster", "api", "grpc-health-check", "-p", str(self.code_port)]
        return subprocess.run(check, env=self._environment, capture_output=True, check=False).returncode == 0

    def ui(self) -> Ui:
        return Ui(self.web_port, self.home / "web.log", self.processes["web"], self.home)

    @property
    def _environment(self) -> dict[str, str]:
        judge = {name: value for name, value in self.judge.environment.items() if "AGENT_EVAL" not in name}
        given = [
            Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
        ]
        programs = [
            *(entry / "bin" for entry in given),
            Path(sys.executable).parent,
        ]  # dagster-celery starts `celery`
        return environment(self.root) | {
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_USER": "postgres",
            "DAGSTER_PG_PASSWORD": PASSWORD,
            "DAGSTER_PG_DB": self.database,
            "AGENT_EVAL_BROKER": f"redis://127.0.0.1:{self.redis_port}/0",
            "AGENT_EVAL_CODE_HOST": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(map(str, given)),
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            **judge,
        }

    def _command(self, name: str) -> list[str]:
        workspace = str(self.home / "workspace.yaml")
        if name == "redis":
            options = f"--port {self.redis_port} --bind 127.0.0.1 --appendonly yes --save"
            return ["redis-server", *options.split(), "", "--dir", str(self.home / "redis")]
        if name == "code":
            options = f"api grpc -h 127.0.0.1 -p {self.code_port} -m {DEFINITIONS}"
            return [sys.executable, "-m", "dagster", *options.split()]
        if name == "daemon":
            return [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace]
        if name == "web":
            options = f"-h 127.0.0.1 -p {self.web_port} -w {workspace}"
            return [sys.executable, "-m", "agent_eval.defs.ui.webserver", *options.split()]
        options = (
            f"worker start -A dagster_celery.app -n {name} -y {DEPLOY / 'worker.yaml'} -- --concurrency 1"
        )
        return [sys.executable, "-m", "dagster_celery.cli", *options.split()]


def workers(n: int) -> list[str]:
    return [f"worker-{i + 1}" for i in range(n)]


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """A server of its own until the block ends.

    Raises:
        SystemExit: If PostgreSQL, Redis or the extra `cluster` is not installed.
    """
    if not all(map(find_spec, ("dagster_celery", "dagster_postgres"))):
        sys.exit("the extra has to be installed: pip install -c constraints-cluster.txt -e '.[cluster]'")
    program = initdb()
    if program is None or not shutil.which("redis-server"):
        sys.exit("PostgreSQL and Redis have to be installed (Debian: postgresql, redis-server)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all processes are stopped
    with running(program, is_durable=True) as server:
        yield server


def lake_project(folder: Path, server: Server, *, concurrency: int) -> Path:
    """A new project in `folder` whose lake has a database of the same name."""
    server.execute(f"CREATE DATABASE {folder.name}")
    (folder / "data").mkdir(parents=True)
    (folder / "agent_eval.toml").write_text(
        SETTINGS.format(
            concurrency=concurrency, address=server.address, database=folder.name, lake=folder / "lake"
        )
    )
    store = Project.open(folder).store
    assert isinstance(store, LakeStore)
    initialise(store)
    server.execute(f"UPDATE agent_eval.lake SET secret = '{SECRET}'", folder.name)
    return folder


def file_project(folder: Path, *, concurrency: int) -> Path:
    """A project in `folder`, new or not, with the settings of a lake project and a single file."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    settings = SETTINGS.partition("[store]")[0].format(concurrency=concurrency)
    (folder / "agent_eval.toml").write_text(settings)
    (folder / "data" / "agent_eval.duckdb.key").write_text(SECRET)
    return folder


def add_session(root: Path, agent: str, session: str, numbers: Sequence[int]) -> None:
    """Import conversations of two turns each as one session."""
    file = root / f"{session}.jsonl"
    write_chats(file, numbers)
    import_file(file, agent=agent, session=session, project=Project.open(root))
    file.unlink()


@contextlib.contextmanager
def cluster(
    root: Path, server: Server, judge: MockJudge, names: Sequence[str], *, lost_after_s: int = 300
) -> Iterator[Cluster]:
    """Processes on the project at `root` until the block ends: Redis, the code and web server and those named.

    A run that no worker starts within `lost_after_s` seconds is marked as failed.
    """
    home = root.parent / f"{root.name}-dagster"
    home.mkdir()
    given = (DEPLOY / "celery.yaml").read_text()
    given = given.replace("port: {env: DAGSTER_PG_PORT}", f"port: {server.port}")
    given = given.replace("start_timeout_seconds: 300", f"start_timeout_seconds: {lost_after_s}")
    given = given.replace("poll_interval_seconds: 30", "poll_interval_seconds: 10")
    (home / "dagster.yaml").write_text(given)
    server.execute(f"CREATE DATABASE {root.name}_dagster")
    made = Cluster(root, home, f"{root.name}_dagster", server, judge)
    try:
        workspace = (DEPLOY / "workspace.yaml").read_text().replace("port: 4000", f"port: {made.code_port}")
        (home / "workspace.yaml").write_text(workspace)
        made.start("redis", "code")
        eventually(made.serves_code, "the code server answers", seconds=3600, log=home / "code.log")
        made.start("web")  # it creates the tables of Dagster's records
        eventually(lambda: _answers(made.ui()), "the web server answers", seconds=3600, log=home / "web.log")
        made.start(*names)
        yield made
    finally:
        made.kill(*reversed(list(made.processes)))


def differences(one: Path, other: Path) -> list[str]:
    """A phrase for each table whose rows differ; times and the ids of runs are not compared."""
    expected = shown(other)
    return [
        f"{name} ({_only(frame, expected[name])} rows only here, {_only(expected[name], frame)} only there)"
        for name, frame in shown(one).items()
        if not frame.equals(expected[name])
    ]


def _only(one: pl.DataFrame, other: pl.DataFrame) -> int:
    return one.join(other, on=one.columns, how="anti", nulls_equal=True).height


def _answers(ui: Ui) -> bool:
    if ui.process.poll() is not None:
        raise RuntimeError(f"the web server ended: {ui.log.read_text()[-2000:]}")
    try:
        return bool(ui.ask("{ version }"))
    except OSError:
        return False
