"""Notify people of changes: a gate turns red, an issue comes back, a rank changes, a cap is reached, or a judge does not answer.

What was notified last is stored, and compared with the tables after each run: a run that is killed before it notifies
loses nothing. A message names agents, versions, gates, ranks and judges, and contains no text of a transcript.
"""

import importlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from agent_eval.judge.llm.redaction import redact
from agent_eval.project.project import Project
from agent_eval.tables import table
from agent_eval.tables.judging import is_imported_judge

TIMEOUT_S = 10.0  # of a webhook's connection, and of each of its answer's parts
LIMIT_S = 60.0  # of a notification as a whole
MOST_LINES = 50  # of a message to a webhook
_State = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class NotifiedChange:
    """Represent a change to notify; `before` is None if nothing was known before."""

    kind: str  # gate, issue, rank, cap or judge
    subject: str
    before: str | None
    now: str | None
    text: str


def notify_changes(project: Project) -> str | None:
    """Send the changes since the last notification, each once, as the setting `notify` says.

    The first call stores the ranks without notifying them. If a message cannot be sent, it is repeated after the next
    run. A process that is killed between sending and storing sends a message twice.

    Returns:
        A warning if the message could not be sent, else None.
    """
    if not project.settings.notify:
        return None
    with project.store.exclusive_section("notify"):
        stored = project.store.read(table("notified"))
        before = {(row["kind"], row["subject"]): row["value"] for row in stored.iter_rows(named=True)}
        now = dict(_state(project))
        new_changes = list(changes(before, now))
        error = _failure(project.settings.notify, new_changes) if new_changes else None
        if error is not None:
            what = redact(f"{type(error).__name__}: {error}".replace(project.settings.notify, "the address"))
            return f"The notification could not be sent ({what}). It is repeated after the next run. Setting: notify."
        at = datetime.now(UTC)
        rows = [
            {"kind": kind, "subject": s, "value": value, "notified_at": at}
            for (kind, s), value in now.items()
        ]
        rows.append({"kind": "begun", "subject": "", "value": "", "notified_at": at})
        changed = table("notified").frame(
            r for r in rows if before.get((r["kind"], r["subject"])) != r["value"]
        )
        gone = [key for key in before if key not in now and key[0] != "begun"]
        project.store.upsert(table("notified"), changed, run_id=project.origin.run)
        project.store.delete(
            table("notified"),
            pl.DataFrame(gone, schema={"kind": pl.String, "subject": pl.String}, orient="row"),
        )
    return None


def changes(before: _State, now: _State) -> Iterator[NotifiedChange]:
    """Yield what is to be notified: each red gate, cap and judge that was not so before, and each rank that differs."""
    has_begun = ("begun", "") in before
    for kind, subject in sorted({*before, *now} - {("begun", "")}):
        old, new = before.get((kind, subject)), now.get((kind, subject))
        if old == new or (kind != "rank" and new is None) or (kind == "rank" and not has_begun):
            continue
        yield NotifiedChange(kind, subject, old, new, _text(kind, subject, old, new))


def _text(kind: str, subject: str, old: str | None, new: str | None) -> str:
    if kind == "gate":
        agent, version, gate = subject.split("|")
        return f"gate {gate} of {agent} failed (methodology {version})"
    if kind == "issue":
        agent, version, cluster = subject.split("|")
        return f"issue {cluster} of {agent} {new} (methodology {version})"
    if kind == "rank":
        agent, version, template = subject.split("|")
        return f"rank of {agent} in {template} (methodology {version}): {old or 'unranked'} → {new or 'unranked'}"
    if kind == "cap":
        return f"a cap on judge calls is reached: questions to {subject} are open"
    return f"judge {subject} could not be reached or failed: some of its answers are missing"


def _state(project: Project) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what the tables say now: failed gates, issues that came back, ranks, judges with open questions."""
    with project.store.reading():
        gates = project.store.read(table("gate_results"), pl.DataFrame({"result": ["failed"]}))
        board = project.store.read(table("leaderboard"))
        issues = project.store.read(table("error_issues"), pl.DataFrame({"status": ["came back"]}))
        lost = pl.concat(
            project.store.counts(table(name), columns=["judge", "unscored_reason"])
            for name in ("turn_judgments", "conversation_judgments")
        ).filter(~is_imported_judge())
    for agent, version, gate in gates.select("agent_id", "methodology_version", "gate").unique().iter_rows():
        yield ("gate", f"{agent}|{version}|{gate}"), "failed"
    returned = issues.select("agent_id", "methodology_version", "cluster_id", "returned_in")
    for agent, version, cluster, run in returned.iter_rows():
        yield ("issue", f"{agent}|{version}|{cluster}"), f"came back in {run}"
    ranks = board.drop_nulls("rank").select("agent_id", "methodology_version", "template", "rank")
    for agent, version, template, rank in ranks.iter_rows():
        yield ("rank", f"{agent}|{version}|{template}"), str(rank)
    for kind, reason in (("cap", "budget_exhausted"), ("judge", "judge_error")):
        for judge in lost.filter(unscored_reason=reason)["judge"].unique():
            yield (kind, judge), reason


def _failure(target: str, new_changes: Sequence[NotifiedChange]) -> BaseException | None:
    """Send the changes; return the error if it fails or takes longer than `LIMIT_S`.

    The function of the project, or a server, may raise anything, exit or hang: it must stop nothing.
    """
    errors: list[BaseException] = [TimeoutError(f"it takes longer than {LIMIT_S:g} s")]

    def send() -> None:
        try:
            _sender(target)(new_changes)
            errors.clear()
        except BaseException as error:
            errors[:] = [error]

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return errors[0] if errors else None


def _sender(target: str) -> Callable[[Sequence[NotifiedChange]], None]:
    if target.startswith(("http://", "https://")):
        return lambda new_changes: _post(target, new_changes)
    module, _, name = target.partition(":")
    function: Callable[[Mapping[str, Any]], object] = getattr(importlib.import_module(module), name)

    def call(new_changes: Sequence[NotifiedChange]) -> None:
        for change in new_changes:
            function(vars(change).copy())

    return call


def _post(address: str, new_changes: Sequence[NotifiedChange]) -> None:
    """Send one message with a line per change, in the form that Slack and compatible services accept."""
    lines = [f"agent_eval: {change.text}" for change in new_changes[:MOST_LINES]]
    if len(new_changes) > MOST_LINES:
        lines.append(f"… and {len(new_changes) - MOST_LINES} more changes")
    text = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    request = urllib.request.Request(
        address, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
        pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect, which could lead to another server."""
