"""What CI installs is what users install, and every file of it has a hash."""

import re
import tomllib

from tests.conftest import REPOSITORY

BUILDS = {"editables", "hatchling", "trove-classifiers"}  # what makes the package, and no user has to install


def pins(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)", (REPOSITORY / name).read_text(), flags=re.MULTILINE)
    return {package.lower().replace("_", "-"): version for package, version in found}


def test_both_files_pin_the_same_versions() -> None:
    hashed = pins("constraints-hashed.txt")
    assert {name: hashed[name] for name in hashed.keys() - BUILDS} == pins("constraints.txt")


def test_the_cluster_differs_in_duckdb_only_and_ci_tests_its_versions() -> None:
    cluster, ours = pins("constraints-cluster.txt"), pins("constraints.txt")
    assert {name for name in ours if cluster.get(name) != ours[name]} == {"duckdb"}
    assert pins(".ci/cluster.txt").items() <= cluster.items()


def test_the_lowest_dagster_of_ci_is_the_lowest_that_is_allowed() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    of_dagster = (re.split(r"[>=,]+", need) for need in project["dependencies"] if need.startswith("dagster"))
    lowest = {name: version for name, version, *_ in of_dagster}
    assert pins(".ci/lowest-dagster.txt").items() >= lowest.items()
    assert set(pins(".ci/lowest-dagster.txt").values()) == set(lowest.values())


def test_every_pin_has_a_hash_and_ci_demands_it() -> None:
    for name in ("constraints-hashed.txt", ".ci/model.txt", ".ci/lowest-dagster.txt", ".ci/cluster.txt"):
        blocks = re.split(r"^(?=[\w.-]+==)", (REPOSITORY / name).read_text(), flags=re.MULTILINE)[1:]
        assert blocks or name != "constraints-hashed.txt"
        assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks), name
    script = (REPOSITORY / ".ci" / "run").read_text()
    installs = [line for line in script.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "-e ." in line for line in installs), installs
