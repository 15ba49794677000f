"""Find the DuckDB extensions that the extra `cluster` installs; none is downloaded at run time."""

import importlib.util
from pathlib import Path

import duckdb

from agent_eval.storage.lake.errors import missing_extra

_WHEELS = {"postgres_scanner": "duckdb_extension_postgres_scanner", "ducklake": "duckdb_extension_ducklake"}


def load_statements() -> tuple[str, ...]:
    """Return the statements that load the extensions for the installed duckdb.

    Raises:
        StorageError: If an extension's package is missing or was built for another duckdb version.
    """
    return tuple(f"LOAD '{_file(name, wheel)}'" for name, wheel in _WHEELS.items())


def _file(name: str, wheel: str) -> str:
    spec = importlib.util.find_spec(wheel)
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra(f"the package {wheel.replace('_', '-')} is not installed")
    folder = Path(next(iter(spec.submodule_search_locations))) / "extensions"
    file = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.is_file():
        made_for = ", ".join(sorted(path.name.removeprefix("v") for path in folder.glob("v*")))
        raise missing_extra(
            f"duckdb {duckdb.__version__} is installed and the extension {name} is for duckdb {made_for or '(none)'}"
        )
    return str(file).replace("'", "''")
