"""A Postgres server of the tests' own; without one, or without the extra `cluster`, the tests are skipped."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_eval.errors import StorageError
from agent_eval.storage.lake import LakeStore, catalog
from agent_eval.storage.lake.connections import close_idle
from agent_eval.storage.lake.extensions import load_statements
from agent_eval.storage.lake.upkeep import initialise

PASSWORD = "correct-horse-7"
_NUMBERS = itertools.count()


@dataclass
class Server:
    """A Postgres server on 127.0.0.1 that asks for a password."""

    programs: Path
    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres"

    def control(self, *arguments: str) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self.run("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, *arguments)

    def run(self, program: str, *arguments: str) -> None:
        is_root = os.getuid() == 0
        subprocess.run(
            [self.programs / program, *arguments],
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            user="postgres" if is_root else None,
            group="postgres" if is_root else None,
            extra_groups=[] if is_root else None,
        )

    def restart(self) -> None:
        """End every session at once, as a crash of the catalog does."""
        self.control("-m", "immediate", "restart")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        address = catalog.connection_string(f"{self.address} dbname={database}")
        with contextlib.closing(catalog.CatalogSession.open("test", address, "open")) as session:
            return session.rows(statement)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        load_statements()
        catalog.connection_string("")
    except StorageError as error:
        pytest.skip(f"{error} (CI: PYTHONPATH=.venv/cluster)")
    found = shutil.which("initdb") or next(
        iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None
    )
    if found is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="agent-eval-catalog-"))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    made = Server(Path(found).parent, folder, port)
    (folder / "password").write_text(PASSWORD)
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        shutil.chown(folder / "password", "postgres", "postgres")
    os.environ["PGPASSWORD"] = PASSWORD
    made.run(
        "initdb", "-D", "data", "-U", "postgres", "-A", "scram-sha-256", "--pwfile=password", "--no-sync"
    )
    made.control("start")
    yield made
    close_idle()
    made.control("-m", "immediate", "stop")
    shutil.rmtree(folder)
    del os.environ["PGPASSWORD"]


@pytest.fixture
def empty(server: Server, tmp_path: Path) -> LakeStore:
    """A lake that was not initialised: an empty database."""
    name = f"lake_{next(_NUMBERS)}"
    server.execute(f"CREATE DATABASE {name}")
    return LakeStore.of(f"{server.address} dbname={name}", tmp_path / "lake")


@pytest.fixture
def lake(empty: LakeStore) -> LakeStore:
    initialise(empty)
    return empty
