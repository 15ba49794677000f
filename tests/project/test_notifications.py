"""Notifications: once per change, repeated until they are sent, without text of transcripts, and stopping nothing."""

import json
import threading
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.project import Project
from agent_eval.project.notify import notifications
from agent_eval.project.notify.notifications import changes, notify_changes
from agent_eval.tables import table
from tests.judge.fakes import JsonHandler, serving

KEYS = [
    ("gate", "a|1.3.0|coverage"),
    ("issue", "a|1.3.0|E"),
    ("rank", "a|1.3.0|t"),
    ("cap", "m"),
    ("judge", "m"),
    ("begun", ""),
]
STATES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["1", "2"]))


@given(STATES, STATES)
def test_a_state_is_reported_if_it_is_new_and_never_twice(
    before: Mapping[tuple[str, str], str], now: Mapping[tuple[str, str], str]
) -> None:
    found = {(c.kind, c.subject) for c in changes(before, now)}
    assert list(changes({**now, ("begun", ""): ""}, now)) == []
    red = {key for key in now if key[0] in ("gate", "issue", "cap", "judge") and before.get(key) != now[key]}
    ranks = {key for key in KEYS if key[0] == "rank" and before.get(key) != now.get(key)}
    assert found == red | (ranks if ("begun", "") in before else set())


class Webhook(ThreadingHTTPServer):
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.texts = list[str]()


class Handler(JsonHandler):
    server: Webhook

    def answer(self, asked: dict[str, Any]) -> tuple[int, Mapping[str, str], object]:
        if self.server.status == 200:
            self.server.texts.append(asked["text"])
        return self.server.status, {"Location": "/other"}, {}


def fail_gate(project: Project, result: str, gate: str = "coverage") -> None:
    row = {
        "agent_id": "quill",
        "methodology_version": "1.3.0",
        "gate": gate,
        "subject": "secret words",
        "result": result,
    }
    row |= {"evidence": "the user said: my card is 4111", "gate_spec": ""}
    project.store.upsert(table("gate_results"), table("gate_results").frame([row]), run_id="r")


def test_an_issue_that_came_back_is_reported_once_for_each_return(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    server = Webhook()
    counts = dict.fromkeys(
        ("n_conversations", "n_conversations_looked", "n_clean", "n_runs_clean", "rank"), 1
    )
    issue: dict[str, object] = {
        "agent_id": "quill",
        "methodology_version": "1.3.0",
        "cluster_id": "E-1",
        "severity": "high",
    }
    issue |= {"label": "secret words", "title": "secret words", "first_run": "n1", "last_run": "n1", **counts}
    with serving(server) as address:
        project = Project.open(tmp_path).with_settings(notify=f"{address}/hook")
        for status, run in (
            ("open", None),
            ("fixed", None),
            ("came back", "n3"),
            ("came back", "n3"),
            ("fixed", None),
            ("came back", "n5"),
        ):
            rows = table("error_issues").frame([issue | {"status": status, "returned_in": run}])
            project.store.upsert(table("error_issues"), rows, run_id="r")
            assert notify_changes(project) is None
    line = "agent_eval: issue E-1 of quill came back in {} (methodology 1.3.0)"
    assert server.texts == [line.format("n3"), line.format("n5")]


def test_a_red_gate_is_reported_once_and_again_after_it_was_green(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    server = Webhook()
    with serving(server) as address:
        project = Project.open(tmp_path).with_settings(notify=f"{address}/hook")
        told = []
        for result in ("passed", "failed", "failed", "passed", "failed"):
            fail_gate(project, result)
            assert notify_changes(project) is None
            assert notify_changes(project) is None
            told.append(len(server.texts))
        assert told == [0, 1, 1, 1, 2]
        assert server.texts[0] == "agent_eval: gate coverage of quill failed (methodology 1.3.0)"
        for status in (500, 302):  # a message that was not sent is repeated
            server.status = status
            fail_gate(project, "failed", "status" if status == 500 else "regression")
            unsent = notify_changes(project)
            assert unsent is not None
            assert address not in unsent
        server.status = 200
        assert notify_changes(project) is None
        assert "regression" in server.texts[-1]
        assert json.dumps(server.texts).count("secret") == 0


@pytest.mark.parametrize(
    "hook",
    [
        "nowhere.to_be_found:f",
        "tests.project.test_notifications:fails",
        "tests.project.test_notifications:ends",
        "tests.project.test_notifications:hangs",
        "http://127.0.0.1:9/x",
    ],
)
def test_a_hook_that_fails_stops_nothing_and_is_called_again(
    tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    ENDED.clear()
    if hook.endswith("hangs"):
        monkeypatch.setattr(notifications, "LIMIT_S", 0.2)
    project = Project.open(tmp_path).with_settings(notify=hook)
    fail_gate(project, "failed")
    assert "could not be sent" in (notify_changes(project) or "")
    assert "could not be sent" in (notify_changes(project) or "")
    ENDED.set()


ENDED = threading.Event()


def fails(_: object) -> None:
    raise ValueError("no")


def ends(_: object) -> None:
    raise SystemExit("no")


def hangs(_: object) -> None:
    ENDED.wait(60)


def test_nothing_is_stored_or_sent_without_the_setting(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    project = Project.open(tmp_path)
    fail_gate(project, "failed")
    assert notify_changes(project) is None
    assert project.table("notified").is_empty()
