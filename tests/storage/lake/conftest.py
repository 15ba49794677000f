"""A Postgres server of the tests' own; without one, or without the extra `cluster`, the tests are skipped."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval.errors import StorageError
from agent_eval.storage.lake import LakeStore, catalog
from agent_eval.storage.lake.connections import close_idle
from agent_eval.storage.lake.extensions import load_statements
from agent_eval.storage.lake.upkeep import initialise
from benchmarks.postgres_server import Server, initdb, running

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        load_statements()
        catalog.connection_string("")
    except StorageError as error:
        pytest.skip(f"{error} (CI: PYTHONPATH=.venv/cluster)")
    if (program := initdb()) is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    with running(program) as made:
        yield made
        close_idle()


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
