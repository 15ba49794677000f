"""A PostgreSQL server of its own for tests and benchmarks of a lake: started on a free port, with a password."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_eval.storage.lake import catalog

PASSWORD = "correct-horse-7"


@dataclass
class Server:
    """A Postgres server on 127.0.0.1 that asks for a password."""

    programs: Path
    folder: Path
    port: int
    is_durable: bool = False

    @property
    def address(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres"

    def control(self, *arguments: str) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        options += "" if self.is_durable else " -c fsync=off"
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

    def kill(self) -> None:
        """kill -9 of the server; its children end by themselves."""
        os.kill(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def start_after_kill(self) -> None:
        """Start the server when the last child of the killed one has ended."""
        for _ in range(60):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.control("start")
                return
            time.sleep(0.5)
        raise TimeoutError((self.folder / "log").read_text()[-2000:])

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        address = catalog.connection_string(f"{self.address} dbname={database}")
        with contextlib.closing(catalog.CatalogSession.open("test", address, "open")) as session:
            return session.rows(statement)


def initdb() -> Path | None:
    """The program that makes a server's folder; None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    return (
        Path(found) if found else next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    )


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def running(program: Path, *, is_durable: bool = False) -> Iterator[Server]:
    """A server until the block ends; PGPASSWORD is set meanwhile. Durable: commits are flushed to the disk."""
    folder = Path(tempfile.mkdtemp(prefix="agent-eval-catalog-"))
    made = Server(program.parent, folder, free_port(), is_durable)
    (folder / "password").write_text(PASSWORD)
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        shutil.chown(folder / "password", "postgres", "postgres")
    os.environ["PGPASSWORD"] = PASSWORD
    try:
        made.run(
            "initdb", "-D", "data", "-U", "postgres", "-A", "scram-sha-256", "--pwfile=password", "--no-sync"
        )
        made.control("start")
        try:
            yield made
        finally:
            made.control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
        del os.environ["PGPASSWORD"]
