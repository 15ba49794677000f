"""What a board may change for, and what it may not: judges of other versions, notes, verdicts, and edits of a later day."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from tests.commands.conftest import Model, invoke, use
from tests.conftest import copy_sample

AGENTS = ("harbor-desk", "quill-help")  # of one template
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
BOARDS = ("leaderboard", "reliability_leaderboard", "pairwise_comparisons", "error_trends")

Boards = dict[tuple[str, str], pl.DataFrame]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two agents of the sample with their recorded verdicts, before any run."""
    copy_sample(tmp_path, *AGENTS)
    return use(monkeypatch, tmp_path)


def agent_eval(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def read(name: str) -> pl.DataFrame:
    return Project.open().table(name)


def boards() -> Boards:
    """Every board of every version, without the columns that say which run wrote it and when.

    Also without the names of error clusters: a cluster has one name, whichever version its failures are of.
    """
    stored = {name: read(name).drop("title", strict=False) for name in BOARDS}
    return {
        (name, version): rows.filter(pl.col("methodology_version") == version)
        for name, rows in stored.items()
        for version in VERSIONS
    }


def differing(before: Boards, but: str = "") -> list[tuple[str, str]]:
    """The boards that are not what they were, but those of one version."""
    now = boards()
    return [key for key, rows in before.items() if key[1] != but and not now[key].equals(rows)]


def judges(version: str) -> dict[str, str]:
    """Agent → the judge that it keeps under a version."""
    pairs = [AgentVersion.of(agent_id=agent, methodology_version=version) for agent in AGENTS]
    return {pair.agent_id: spec.name for pair, spec in Project.open().judge_specs(pairs).items()}


def n_judging_calls(model: Model) -> int:
    """Calls since the last time this was asked, but those for names of error clusters."""
    asked = [prompt for client in model.clients for prompt in client.asked]
    model.clients.clear()
    return sum(prompt.name != "names" for prompt in asked)


def edit_note(root: Path, agent: str = "quill-help") -> None:
    session = next((root / "data" / "sessions" / agent).glob("*/session.yaml"))
    session.write_text(session.read_text() + "# looked at again\n")


def causes() -> list[tuple[str, str, str]]:
    """Version, agent and cause of each change."""
    return read("board_changes").select("methodology_version", "agent_id", "cause").rows()


@pytest.mark.slow
def test_a_model_that_judges_one_version_moves_no_other_board_now_or_later(home: Path, model: Model) -> None:
    agent_eval("run")
    plain = boards()
    assert causes() == []  # a first board is no change

    model.answers = {f"U{i}": 3 for i in range(1, 7)}
    agent_eval("run", "--judge", "a/model", "--methodology", "1.2.0")
    assert differing(plain, but="1.2.0") == []
    judged = boards()
    assert not judged["leaderboard", "1.2.0"].equals(plain["leaderboard", "1.2.0"])
    assert set(causes()) == {("1.2.0", agent, "judge") for agent in AGENTS}
    n_changes, n_states = read("board_changes").height, read("board_history").height

    edit_note(home)
    agent_eval("run", "--methodology", "1.1.0")
    agent_eval("run")
    assert differing(judged) == []  # the judged board too: its model's answers stand
    assert (read("board_changes").height, read("board_history").height) == (n_changes, n_states)

    model.answers = {f"U{i}": 2 for i in range(1, 7)}
    agent_eval("run", "--judge", "b/model", "--methodology", "1.3.0")
    assert differing(judged, but="1.3.0") == []
    both = boards()
    edit_note(home)
    agent_eval("run", "--methodology", "1.2.0")
    agent_eval("run")
    assert differing(both) == []
    assert read("board_changes").height == n_changes + len(AGENTS)
    models = read("leaderboard").select("methodology_version", "judge_models").unique().rows()
    assert {version: names for version, names in models if "/" in names[0]} == {
        "1.2.0": ["a/model"],
        "1.3.0": ["b/model"],
    }
    assert "two judges" not in str(read("leaderboard")["missing"].to_list())


@pytest.mark.slow
def test_an_answer_counts_again_for_the_same_judge_under_another_version_only(
    home: Path, model: Model
) -> None:
    agent_eval("run", "--judge", "a/model", "--methodology", "1.2.0")
    assert n_judging_calls(model) > 0
    agent_eval("run", "--methodology", "1.1.0")  # without a judge: its rubrics are in part those of 1.2.0
    ratings = read("rubric_ratings").filter(pl.col("methodology_version") == "1.1.0")
    assert not set(ratings["judge"]) & {"a/model"}
    agent_eval("run", "--judge", "b/model", "--methodology", "1.2.0", "--agent", "quill-help")
    assert n_judging_calls(model) > 0
    assert judges("1.2.0") == {"quill-help": "b/model", "harbor-desk": "a/model"}
    agent_eval("run", "--judge", "a/model", "--methodology", "1.2.0", "--agent", "quill-help")
    assert n_judging_calls(model) == 0  # it answered all of it before
    held = read("rubric_ratings").filter(methodology_version="1.2.0", agent_id="quill-help")
    assert not held["judge"].is_in(["b/model"]).any()
    recorded = read("turn_judgments").filter(judge="recorded")
    assert set(recorded["judge_model"]) == {"author:agent_eval-sample"}


@pytest.mark.slow
def test_the_judge_of_a_version_in_an_earlier_store_is_that_of_each_of_its_agents(
    home: Path, model: Model
) -> None:
    agent_eval("run", "--judge", "a/model", "--methodology", "1.2.0")
    project = Project.open()
    by_pair = project.table("judge_state")
    project.store.delete(table("judge_state"), by_pair.select("methodology_version").unique())
    legacy = by_pair.head(1).with_columns(agent_id=pl.lit(None, dtype=pl.String))
    project.store.upsert(table("judge_state"), legacy, run_id="earlier")
    before = boards()
    assert "Nothing was stale" in invoke("run", "--methodology", "1.2.0").output
    edit_note(home)
    agent_eval("run", "--methodology", "1.2.0")
    assert differing(before) == []
    agent_eval("run", "--judge", "b/model", "--methodology", "1.2.0", "--agent", "quill-help")
    assert judges("1.2.0") == {"quill-help": "b/model", "harbor-desk": "a/model"}


def rows_of(printed: str) -> list[dict[str, Any]]:
    """The rows as they were stored: without what the present board adds on the standing of its version."""
    now = ("methodology_status", "methodology_edited")
    return [{key: value for key, value in row.items() if key not in now} for row in json.loads(printed)]


@pytest.mark.slow
def test_what_changed_names_its_cause_and_the_board_of_an_earlier_day_stays(home: Path, model: Model) -> None:
    agent_eval("run", "--methodology", "1.2.0", "--methodology", "1.3.0")
    first = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--json"))
    history = read("board_history")
    moment = history["recorded_at"].max()
    as_of = ("leaderboard", "--methodology", "1.2.0", "--json", "--as-of", str(moment))
    assert rows_of(agent_eval(*as_of)) == first

    file = home / "data" / "ratings" / "more.csv"
    file.write_text(
        "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,"
        "rationale,evidence,rater,rated_at\n"
        f"quill-help,{session_of(home, 'quill-help')},,,1.2.0,U1,,1,Poor.,,Ana,2027-01-01\n"
    )
    agent_eval("run")
    assert causes() == [("1.2.0", "quill-help", "rating")]
    assert rows_of(agent_eval(*as_of)) == first
    [change] = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--changes", "--json"))
    assert change["old_composite"] > change["new_composite"]
    assert (change["old_rank"], change["new_rank"]) == (1, 1) or change["new_rank"] != change["old_rank"]
    shown = agent_eval("leaderboard", "--methodology", "1.2.0", "--changes")
    assert "rating" in shown
    assert "→" in shown

    said = next((home / "data" / "sessions" / "harbor-desk").glob("*/conversations.jsonl"))
    shutil.rmtree(said.parent)
    agent_eval("run")
    gone = read("board_changes").filter(agent_id="harbor-desk", methodology_version="1.2.0")
    assert gone.select("new_status", "cause").row(0) == (None, "session")
    assert {row["agent_id"] for row in rows_of(agent_eval(*as_of))} == set(AGENTS)
    assert rows_of(agent_eval(*as_of)) == first
    before_all = ("leaderboard", "--methodology", "1.2.0", "--as-of", "2001-01-01")
    assert "No board of 1.2.0 was stored by 2001-01-01" in agent_eval(*before_all)
    today = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--json"))
    assert rows_of(agent_eval(*as_of[:-1], "2999-12-31")) == today

    n_rows = (read("board_changes").height, read("board_history").height)
    agent_eval("run", "--boards")
    assert (read("board_changes").height, read("board_history").height) == n_rows
    assert '<h2 id="changes">' in (home / "data" / "report" / "index.html").read_text()


def session_of(root: Path, agent: str) -> str:
    return next((root / "data" / "sessions" / agent).iterdir()).name


@pytest.mark.usefixtures("home")
def test_a_day_that_is_none_is_one_line() -> None:
    with pytest.raises(AgentEvalError, match="'yesterday' is not a date"):
        invoke("leaderboard", "--as-of", "yesterday")
