"""What a board may change for, and what it may not: judges of other versions, notes, verdicts, and edits of a later day."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.tables.agent_version import AgentVersion
from tests.commands.conftest import Model, invoke, use
from tests.conftest import TWO_AGENTS as AGENTS
from tests.defs.test_live import edit_a_session

VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
BOARDS = ("leaderboard", "reliability_leaderboard", "pairwise_comparisons", "error_trends")

Boards = dict[tuple[str, str], pl.DataFrame]


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
    return {pair.agent_id: spec.name for pair, spec in Project.open().judges.specs(pairs).items()}


def n_judging_calls(model: Model) -> int:
    """Calls since the last time this was asked, but those for names of error clusters."""
    asked = [prompt for client in model.clients for prompt in client.asked]
    model.clients.clear()
    return sum(prompt.name != "names" for prompt in asked)


def causes() -> list[tuple[str, str, str]]:
    """Version, agent and cause of each change."""
    return read("board_changes").select("methodology_version", "agent_id", "cause").rows()


@pytest.mark.slow
def test_a_model_that_judges_one_version_moves_no_other_board_now_or_later(
    two_agents_copy: Path, model: Model
) -> None:
    plain = boards()
    assert causes() == []  # a first board is no change

    model.answers = {f"U{i}": 3 for i in range(1, 7)}
    agent_eval("run", "--judge", "a/model", "--methodology", "1.2.0")
    assert n_judging_calls(model) > 0
    assert differing(plain, but="1.2.0") == []
    judged = boards()
    assert not judged["leaderboard", "1.2.0"].equals(plain["leaderboard", "1.2.0"])
    assert set(causes()) == {("1.2.0", agent, "judge") for agent in AGENTS}
    n_changes = read("board_changes").height

    model.answers = {f"U{i}": 2 for i in range(1, 7)}
    agent_eval("run", "--judge", "b/model", "--methodology", "1.3.0")
    assert differing(judged, but="1.3.0") == []
    both, n_states = boards(), read("board_history").height
    assert read("board_changes").height == n_changes + len(AGENTS)

    assert "Nothing was stale" in invoke("run", "--methodology", "1.2.0").output
    edit_a_session(two_agents_copy)
    agent_eval("run")
    assert differing(both) == []  # the judged boards too: their models' answers stand
    assert read("board_changes").height == n_changes + len(AGENTS)
    assert read("board_history").height == n_states
    models = read("leaderboard").select("methodology_version", "judge_models").unique().rows()
    assert {version: names for version, names in models if "/" in names[0]} == {
        "1.2.0": ["a/model"],
        "1.3.0": ["b/model"],
    }
    assert "two judges" not in str(read("leaderboard")["missing"].to_list())
    # an answer counts for the same judge only, and for its version: the rubrics of 1.1.0 are in part those of 1.2.0
    assert not set(read("rubric_ratings").filter(methodology_version="1.1.0")["judge"]) & {"a/model"}

    agent_eval("run", "--judge", "c/model", "--methodology", "1.2.0", "--agent", "quill-help")
    assert n_judging_calls(model) > 0
    assert judges("1.2.0") == {"quill-help": "c/model", "harbor-desk": "a/model"}
    held = read("rubric_ratings").filter(methodology_version="1.2.0", agent_id="quill-help")
    assert not held["judge"].is_in(["a/model"]).any()
    recorded = read("turn_judgments").filter(judge="recorded")
    assert set(recorded["judge_model"]) == {"author:agent_eval-sample"}


def rows_of(printed: str) -> list[dict[str, Any]]:
    """The rows as they were stored: without what the present board adds on the standing of its version."""
    now = ("methodology_status", "methodology_edited")
    return [{key: value for key, value in row.items() if key not in now} for row in json.loads(printed)]


@pytest.mark.slow
def test_what_changed_names_its_cause_and_the_board_of_an_earlier_day_stays(
    two_agents_copy: Path, model: Model
) -> None:
    first = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--json"))
    history = read("board_history")
    moment = history["recorded_at"].max()
    as_of = ("leaderboard", "--methodology", "1.2.0", "--json", "--as-of", str(moment))
    assert rows_of(agent_eval(*as_of)) == first

    file = two_agents_copy / "data" / "ratings" / "more.csv"
    file.write_text(
        "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,"
        "rationale,evidence,rater,rated_at\n"
        f"quill-help,{session_of(two_agents_copy, 'quill-help')},,,1.2.0,U1,,1,Poor.,,Ana,2026-11-01\n"
    )
    shutil.rmtree(next((two_agents_copy / "data" / "sessions" / "harbor-desk").iterdir()))
    agent_eval("run", "--boards")
    assert '<h2 id="changes">' in (two_agents_copy / "data" / "report" / "index.html").read_text()
    assert [cause for cause in causes() if cause[1] == "quill-help"] == [("1.2.0", "quill-help", "rating")]
    gone = read("board_changes").filter(agent_id="harbor-desk", methodology_version="1.2.0")
    assert gone.select("new_status", "cause").row(0) == (None, "session")
    assert rows_of(agent_eval(*as_of)) == first
    changes = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--changes", "--json"))
    [change] = [row for row in changes if row["agent_id"] == "quill-help"]
    assert change["old_composite"] > change["new_composite"]
    shown = agent_eval("leaderboard", "--methodology", "1.2.0", "--changes")
    assert "rating" in shown
    assert "→" in shown

    assert {row["agent_id"] for row in first} == set(AGENTS)
    before_all = ("leaderboard", "--methodology", "1.2.0", "--as-of", "2001-01-01")
    assert "No board of 1.2.0 was stored by 2001-01-01" in agent_eval(*before_all)
    today = rows_of(agent_eval("leaderboard", "--methodology", "1.2.0", "--json"))
    assert rows_of(agent_eval(*as_of[:-1], "2999-12-31")) == today

    state = read("run_state")
    agent_eval("run", "--boards")  # adds no row to the history
    assert_frame_equal(read("run_state"), state, check_row_order=False)


def session_of(root: Path, agent: str) -> str:
    return next((root / "data" / "sessions" / agent).iterdir()).name


def test_a_day_that_is_none_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (use(monkeypatch, tmp_path) / "data").mkdir()
    with pytest.raises(AgentEvalError, match="'yesterday' is not a date"):
        invoke("leaderboard", "--as-of", "yesterday")
