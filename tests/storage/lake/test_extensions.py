"""A lake without its libraries, or with another duckdb, is one line with the fix; needs no server."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import duckdb
import pytest

from agent_eval.errors import StorageError
from agent_eval.storage.lake import catalog, extensions

FIX = r"`pip install -c constraints-cluster.txt '\.\[cluster\]'`"


def test_a_missing_extension_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(StorageError, match=f"duckdb-extension-postgres-scanner is not installed.*{FIX}"):
        extensions.load_statements()


def test_an_extension_of_another_duckdb_is_named_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "extensions" / "v9.9.9").mkdir(parents=True)
    spec = ModuleSpec("wheel", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    said = f"duckdb {duckdb.__version__} is installed and the extension postgres_scanner is for duckdb 9.9.9.*{FIX}"
    with pytest.raises(StorageError, match=said):
        extensions.load_statements()


def test_a_missing_driver_of_postgres_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(StorageError, match=f"psycopg2-binary is not installed.*{FIX}"):
        catalog.connection_string("host=db")
