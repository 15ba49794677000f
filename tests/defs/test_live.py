"""A live UI with its daemon on the sample: by clicks, and what changes in the files reaches the boards and moves nothing else."""

import json
import shutil
import time
from pathlib import Path

import pytest
import yaml

from agent_eval.methodology.registry import PACKAGED
from agent_eval.project import Project
from benchmarks.live import Ui, eventually, run_in_process, served
from tests.conftest import at_home, copy_sample
from tests.defs.clicks import CHROMIUM, the_ui_by_clicks_only

VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")
AGENTS = ("harbor-desk", "quill-help", "lumen-support")
BY_AGENT = {"agents", "sessions", "conversations", "turns", "tool_calls", "import_errors"}
BOARDS = {"leaderboard", "reliability_leaderboard", "pairwise_comparisons", "error_trends"}
OWN_VERSION = "1.4.0"

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project that will change, after a run."""
    make_project(tmp_path / "live")
    run_in_process(tmp_path / "live")
    return tmp_path / "live"


def make_project(root: Path) -> None:
    """Three agents of the sample, a copy of one, and a methodology version of the user's own.

    What will change stands side by side, so that a daemon makes it in few runs.
    """
    root.mkdir()
    copy_sample(root, *AGENTS)
    entries = [e for e in agents_file(root) if e["agent_id"] in AGENTS]
    (root / "data" / "agents.yaml").write_text(yaml.safe_dump(entries))
    for session in (root / "data" / "sessions").glob("*/*/session.yaml"):
        session.write_text(session.read_text().replace("- 1.3.0\n", f"- 1.3.0\n- {OWN_VERSION}\n"))
    own = root / "data" / "methodologies"
    own.mkdir()
    text = (PACKAGED / "1.3.0.yaml").read_text().replace('version: "1.3.0"', f'version: "{OWN_VERSION}"', 1)
    draft = text.replace("status: current", "status: draft")  # a published version cannot be edited
    assert draft != text
    (own / f"{OWN_VERSION}.yaml").write_text(draft)
    add_agent(root, "quill-old", "quill-help")


def agents_file(root: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = yaml.safe_load((root / "data" / "agents.yaml").read_text())
    return entries


def board(root: Path, version: str = "1.3.0") -> dict[str, object]:
    """Agent → composite."""
    rows = Project.open(root).table("leaderboard").filter(methodology_version=version)
    return dict(rows.select("agent_id", "composite_score").iter_rows())


def is_settled(root: Path) -> bool:
    """Whether `agent-eval run` would find nothing to do."""
    from agent_eval.project.data_versions import read_sources
    from agent_eval.project.fingerprints import Fingerprints, stale_places

    with at_home(root) as project:
        sources = read_sources(project, project.known_agents(), list(project.registry.versions))
        found = Fingerprints.of(project, sources)
        return stale_places(project, found, project.known_agents(), project.registry.versions).is_empty()


def moved(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, set[str]]:
    """Asset → the partitions that were made since."""
    counted = {
        asset: {p for p, n in partitions.items() if n > before.get(asset, {}).get(p, 0)}
        for asset, partitions in after.items()
    }
    return {asset: partitions for asset, partitions in counted.items() if partitions}


def pairs(*agents: str, versions: tuple[str, ...] = VERSIONS) -> set[str]:
    return {f"{agent}|{version}" for agent in agents for version in versions}


def test_a_live_ui(root: Path) -> None:
    """One test, since each test of a live UI is run on another worker and starts it anew."""
    with served(root) as ui:
        if CHROMIUM.exists():
            the_ui_by_clicks_only(ui)
        changes_of_files_and_weights_reach_the_boards_and_move_nothing_else(root, ui)
    if not CHROMIUM.exists():
        pytest.skip(f"all but the clicks passed: {CHROMIUM} is absent: apt-get install chromium")


def changes_of_files_and_weights_reach_the_boards_and_move_nothing_else(root: Path, ui: Ui) -> None:
    """All at once, since a daemon takes minutes: what each change moves can be told apart by agent and version."""
    before, scores = ui.events(), board(root, OWN_VERSION)
    assert "Nothing was stale" in run_in_process(root)
    edit_the_weights_of_a_version(root)  # first: whoever sees the agent has seen it
    add_agent(root, "quill-new", "quill-help")
    remove_an_agent(root)
    edit_a_session(root)
    rate(root)
    eventually(lambda: "quill-new" in board(root), "the new agent is on the board", log=ui.log)
    eventually(lambda: is_settled(root), "all is redone", log=ui.log)
    found = moved(before, ui.events())
    taken_in = {"quill-help", "quill-new", "quill-old"}
    assert {asset: found[asset] for asset in BY_AGENT} == dict.fromkeys(BY_AGENT, taken_in)
    assert found["transcripts"] == pairs(*taken_in)
    for judgments in ("turn_judgments", "rubric_ratings"):
        assert found[judgments] == pairs(*taken_in, "harbor-desk")
    of_weights = pairs("lumen-support", versions=(OWN_VERSION,))
    assert found["composite_scores"] == pairs(*taken_in, "harbor-desk") | of_weights
    assert {asset: found[asset] for asset in BOARDS} == {asset: set(VERSIONS) for asset in BOARDS}
    for version in VERSIONS:
        assert set(board(root, version)) == {*AGENTS, "quill-new"}
    assert board(root)["quill-new"] == board(root)["quill-help"]
    assert board(root, OWN_VERSION)["lumen-support"] != scores["lumen-support"]
    assert "Nothing was stale" in run_in_process(root)
    query = '{ assetNodeOrError(assetKey: {path: ["agents"]}) { ... on AssetNode { partitionKeys } } }'
    eventually(
        lambda: "quill-old" not in ui.ask(query)["assetNodeOrError"]["partitionKeys"], "its partition is gone"
    )


def add_agent(root: Path, agent: str, like: str) -> None:
    shutil.copytree(root / "data" / "sessions" / like, root / "data" / "sessions" / agent)
    entry = next(e for e in agents_file(root) if e["agent_id"] == like)
    entries = [*agents_file(root), entry | {"agent_id": agent, "name": agent}]
    (root / "data" / "agents.yaml").write_text(yaml.safe_dump(entries))


def remove_an_agent(root: Path) -> None:
    shutil.rmtree(root / "data" / "sessions" / "quill-old")
    entries = [e for e in agents_file(root) if e["agent_id"] != "quill-old"]
    (root / "data" / "agents.yaml").write_text(yaml.safe_dump(entries))


def edit_a_session(root: Path) -> None:
    """Change what no score depends on, but what the tables store: each time another remark on one conversation."""
    file = next((root / "data" / "sessions" / "quill-help").glob("*/conversations.jsonl"))
    first, *others = file.read_text().splitlines(keepends=True)
    record = json.loads(first)
    record["metadata"] = record.get("metadata", {}) | {"looked at": time.time_ns()}
    file.write_text("".join([json.dumps(record) + "\n", *others]))


def rate(root: Path) -> None:
    head = "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,rationale,evidence,rater,rated_at"
    name = next((root / "data" / "sessions" / "harbor-desk").iterdir()).name
    (root / "data" / "ratings" / "late.csv").write_text(
        f"{head}\nharbor-desk,{name},,,1.3.0,U1,,1,did not do it,,kim,2026-11-01T10:00:00Z\n"
    )


def edit_the_weights_of_a_version(root: Path) -> None:
    own = root / "data" / "methodologies" / f"{OWN_VERSION}.yaml"
    text = own.read_text()
    edited = text.replace('universal: "0.40"', 'universal: "0.50"')
    edited = edited.replace('domain: "0.60"', 'domain: "0.50"')
    assert edited != text
    own.write_text(edited)
