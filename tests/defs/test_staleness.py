"""What an edit makes stale, by Dagster's own staleness and by the command's: exactly its partitions, and both agree."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.defs.live import environment

BY_AGENT = {"agents", "sessions", "conversations", "turns", "tool_calls", "expected_calls", "import_errors"}
VERSIONS = ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


def stale(root: Path, package: Path = REPOSITORY) -> tuple[dict[str, list[str]], list[str]]:
    """By Dagster: asset → partitions; by the command: pairs. `package` holds the agent_eval that is run."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.defs.stale_keys"],
        env=environment(root, PYTHONPATH=f"{package}:{REPOSITORY}"),
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found["dagster"], found["command"]


def test_after_a_run_nothing_is_stale(sample_copy: Path) -> None:
    assert stale(sample_copy) == ({}, [])


def test_an_edited_session_makes_exactly_its_agent_stale(sample_copy: Path) -> None:
    session = next((sample_copy / "data" / "sessions" / "quill-help").glob("*/session.yaml"))
    session.write_text(session.read_text() + "# looked at again\n")
    by_dagster, by_command = stale(sample_copy)
    assert by_dagster == {asset: ["quill-help"] for asset in BY_AGENT}
    assert by_command == [f"quill-help|{version}" for version in VERSIONS]


def test_a_rating_makes_exactly_the_judgments_of_its_agent_stale(sample_copy: Path) -> None:
    ratings = next((sample_copy / "data" / "ratings").glob("*.csv"))
    row = next(line for line in ratings.read_text().splitlines()[1:] if line.startswith("lumen-support"))
    ratings.write_text(ratings.read_text().rstrip("\n") + f"\n{row.replace('2026-0', '2027-0')}\n")
    by_dagster, by_command = stale(sample_copy)
    pairs = [f"lumen-support|{version}" for version in VERSIONS]
    assert {asset: sorted(keys) for asset, keys in by_dagster.items()} == dict.fromkeys(
        ("turn_judgments", "conversation_judgments", "rubric_ratings"), pairs
    )
    assert by_command == pairs


def test_an_edited_rubric_makes_exactly_its_version_stale(sample_copy: Path, tmp_path: Path) -> None:
    package = edited(tmp_path, "1.2.0", "How far did the agent carry", "How far has the agent carried")
    by_dagster, by_command = stale(sample_copy, package)
    assert set(by_dagster) == {"transcripts", "turn_judgments", "conversation_judgments", "rubric_ratings"}
    assert {key.split("|")[1] for keys in by_dagster.values() for key in keys} == {"1.2.0"}
    assert all(len(keys) == 8 for keys in by_dagster.values())
    assert {key.split("|")[1] for key in by_command} == {"1.2.0"}
    assert len(by_command) == 8


def test_edited_weights_make_only_the_scores_of_their_version_stale(
    sample_copy: Path, tmp_path: Path
) -> None:
    package = edited(
        tmp_path, "1.2.0", 'universal: "0.40"\n  domain: "0.60"', 'universal: "0.60"\n  domain: "0.40"'
    )
    by_dagster, by_command = stale(sample_copy, package)
    # reliability and tool_correctness read their settings from the same source as the scores read their weights
    scores = {"universal_scores", "domain_scores", "composite_scores"}
    assert set(by_dagster) == scores | {"reliability", "tool_correctness"}
    assert {key.split("|")[1] for keys in by_dagster.values() for key in keys} == {"1.2.0"}
    assert {key.split("|")[1] for key in by_command} == {"1.2.0"}


def edited(folder: Path, version: str, old: str, new: str) -> Path:
    """A copy of the package with one methodology file changed."""
    shutil.copytree(REPOSITORY / "agent_eval", folder / "agent_eval")
    file = folder / "agent_eval" / "methodology" / "versions" / f"{version}.yaml"
    text = file.read_text()
    assert old in text, text[:600]
    file.write_text(text.replace(old, new, 1))
    return folder
