"""What an edit makes stale: by Dagster what reads it, by the command that and all that is made from it, and no more."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval.tables.schema import MADE_FROM, below, shape_of
from benchmarks.live import environment
from tests.conftest import REPOSITORY
from tests.defs.stale_keys import stale
from tests.defs.test_live import edit_a_session, rate

pytestmark = pytest.mark.slow


def reading(source: str) -> set[str]:
    """The assets that read a source directly."""
    return {name for name, parents in MADE_FROM.items() if source in parents}


BY_AGENT = reading("agent_sessions")
AGENTS = ["harbor-desk", "quill-help"]
VERSIONS = ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


def with_below(*assets: str) -> set[str]:
    """The assets, and all that is made from them."""
    return {*assets} | below(assets)


def stale_with(root: Path, package: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What is stale with an edited copy of the package, which is in a folder."""
    command = [sys.executable, "-m", "tests.defs.stale_keys"]
    given = environment(root, PYTHONPATH=f"{package}:{REPOSITORY}")
    done = subprocess.run(command, env=given, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    by_dagster, by_command = json.loads(done.stdout.splitlines()[-1])
    return by_dagster, by_command


def test_an_edited_session_and_a_rating_each_make_stale_what_is_made_from_them(two_agents_copy: Path) -> None:
    edit_a_session(two_agents_copy)
    rate(two_agents_copy)
    by_dagster, by_command = stale()  # after a run nothing, so what follows is of the edits
    of_session = {asset: by_dagster.pop(asset) for asset in BY_AGENT}
    assert of_session == {asset: ["quill-help"] for asset in BY_AGENT}
    pairs = [f"harbor-desk|{version}" for version in VERSIONS]
    assert sorted(by_dagster.pop("judge_calibration")) == VERSIONS
    rated = reading("human_ratings") - {"judge_calibration"}
    assert {asset: sorted(keys) for asset, keys in by_dagster.items()} == dict.fromkeys(rated, pairs)
    of_ratings = with_below(*rated)
    assert set(by_command) == with_below(*BY_AGENT) | of_ratings
    assert_only({a: by_command[a] for a in by_command if a not in of_ratings}, agents=["quill-help"])
    assert_only({a: by_command[a] for a in of_ratings}, agents=AGENTS)


def test_an_edited_rubric_and_edited_weights_each_make_only_their_version_stale(
    two_agents_copy: Path, tmp_path: Path
) -> None:
    edited(tmp_path, "1.1.0", "How far did the agent carry", "How far has the agent carried")
    package = edited(
        tmp_path, "1.2.0", 'universal: "0.40"\n  domain: "0.60"', 'universal: "0.60"\n  domain: "0.40"'
    )
    by_dagster, by_command = stale_with(two_agents_copy, package)
    of_rubric = {a: keys for a in by_dagster if (keys := [k for k in by_dagster[a] if k.endswith("|1.1.0")])}
    assert set(of_rubric) == reading("judge_config")
    assert all(len(keys) == len(AGENTS) for keys in of_rubric.values())
    others = ((a, [k for k in keys if k not in of_rubric.get(a, [])]) for a, keys in by_dagster.items())
    by_dagster = {asset: keys for asset, keys in others if keys}
    assert set(by_dagster) == reading("scoring_spec")
    assert {key.split("|")[1] for keys in by_dagster.values() for key in keys} == {"1.2.0"}
    of_weights = with_below(*by_dagster)
    assert set(by_command) == with_below("transcripts") | of_weights
    assert_only({a: by_command[a] for a in by_command if a not in of_weights}, versions=["1.1.0"])
    assert_only({a: by_command[a] for a in of_weights}, versions=["1.1.0", "1.2.0"])


def assert_only(
    found: dict[str, list[str]], *, agents: list[str] = AGENTS, versions: list[str] = VERSIONS
) -> None:
    """Of each table exactly the partitions of these agents and versions.

    A table of pairs that reads a stale table of versions is stale for all agents: the gates read the calibration.
    """
    for name, keys in found.items():
        reads_version = any(shape_of(parent) == "version" for parent in {*MADE_FROM[name]} & {*found})
        of_agents = AGENTS if reads_version else agents
        pairs = [f"{agent}|{version}" for agent in of_agents for version in versions]
        wanted = {"agent": agents, "version": versions, "agent x version": pairs}[shape_of(name)]
        assert keys == sorted(wanted), name


def edited(folder: Path, version: str, old: str, new: str) -> Path:
    """A copy of the package in a folder, with a methodology file changed."""
    if not (folder / "agent_eval").exists():
        shutil.copytree(REPOSITORY / "agent_eval", folder / "agent_eval")
    file = folder / "agent_eval" / "methodology" / "versions" / f"{version}.yaml"
    text = file.read_text()
    assert old in text, text[:600]
    file.write_text(text.replace(old, new, 1))
    return folder
