"""The same content, and one session of the source in several files, are imported once."""

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval.transcripts.importers.auto import FileReport, import_files
from agent_eval.transcripts.importers.inputs import input_files
from agent_eval.transcripts.importers.parts import merged
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.sessions import read_sessions
from tests.transcripts.making import lines, snapshot


def take(sessions: Path, *paths: Path, **options: Any) -> list[FileReport]:
    files = input_files([str(path) for path in paths])
    return list(import_files("auto", files, sessions_folder=sessions, agent_id="a", **options))


def chat(*texts: str, **fields: object) -> dict[str, object]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)], **fields}


def written(path: Path, values: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = lines(values)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def said(sessions: Path) -> dict[str, list[str]]:
    """Conversation id → its texts, in order."""
    found: dict[str, list[str]] = {}
    for path in sorted((sessions / "a").glob("*/conversations.jsonl")):
        for line in path.read_text().splitlines():
            value = json.loads(line)
            found[value["conversation_id"]] = [m.get("content") or "" for m in value["messages"]]
    return found


@pytest.mark.parametrize("name", [{}, {"conversation_id": "c1"}, {"session_id": "s1"}, {"trial": -1}])
def test_the_same_content_at_two_paths_is_imported_once(tmp_path: Path, name: dict[str, Any]) -> None:
    sessions = tmp_path / "data" / "sessions"
    records = [chat("Hi", "Hello.", **name), *([] if "trial" in name else [chat("Bye", "Bye.")])]
    first = written(tmp_path / "in" / "x.jsonl", records)
    take(sessions, first)
    before = snapshot(sessions)
    written(tmp_path / "in" / "x.jsonl.gz", records)
    written(tmp_path / "in" / "sub" / "y.jsonl", records)
    reports = [one.report for one in take(sessions, tmp_path / "in")]
    assert [r and (r.session_id, r.is_changed) for r in reports] == [("x", False)] * 3
    assert snapshot(sessions) == before


def test_a_record_that_another_session_holds_is_not_refused(tmp_path: Path) -> None:
    sessions = tmp_path / "data" / "sessions"
    one, two = (chat("Hi", "Hello.", conversation_id=c) for c in ("c1", "c2"))
    take(sessions, written(tmp_path / "day1.jsonl", [one]))
    report = take(sessions, written(tmp_path / "day2.jsonl", [one, two]))[0].report
    assert report
    assert (report.n_imported, report.n_known, report.n_refused) == (1, 1, 0)
    assert read_sessions("a", sessions / "a").import_errors.is_empty()


@pytest.mark.parametrize("named", [None, "by-name"])
@pytest.mark.parametrize("n_equal", [8, 10])
def test_equal_records_of_another_run_are_missing_trials_and_not_the_first_run_again(
    tmp_path: Path, named: str | None, n_equal: int
) -> None:
    sessions = tmp_path / "data" / "sessions"
    run_1 = [chat("Hi", "Hello.", conversation_id=f"c{i}", correct=True) for i in range(10)]
    run_2 = [*run_1[:n_equal], *(record | {"correct": False} for record in run_1[n_equal:])]
    take(sessions, written(tmp_path / "run-1.jsonl", run_1))
    report = take(sessions, written(tmp_path / "run-2.jsonl", run_2), session_id=named)[0].report
    assert report
    is_another_run = named is not None or n_equal < 10
    assert report.n_refused == (10 if is_another_run else 0)
    assert report.session_id == ((named or "run-2") if is_another_run else "run-1")
    assert read_sessions("a", sessions / "a").import_errors.height == report.n_refused


def test_a_session_that_is_named_is_a_run_of_its_own(tmp_path: Path) -> None:
    sessions = tmp_path / "data" / "sessions"
    path = written(tmp_path / "x.jsonl", [chat("Hi", "Hello.", session_id="s")])
    take(sessions, path)
    take(sessions, path, session_id="run-2")
    assert list(said(sessions)) == ["run-2:s", "x:s"]


def claude(session: str, *texts: str, first: int = 0) -> list[object]:
    return [
        {"type": role, "sessionId": session, "uuid": f"u{i}", "timestamp": f"2026-05-01T10:{i:02d}:00Z"}
        | {"message": {"role": role, "content": text}}
        for i, text in enumerate(texts, first)
        for role in ["assistant" if i % 2 else "user"]
    ]


def codex(session: str, *texts: str, **more: str) -> list[object]:
    made: list[object] = [
        {"timestamp": "2026-05-01T10:00:00Z", "type": "session_meta", "payload": {"id": session, **more}}
    ]
    for i, text in enumerate(texts):
        role, kind = ("user", "input_text") if i % 2 == 0 else ("assistant", "output_text")
        message = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        made += [{"timestamp": "2026-05-01T10:01:00Z", "type": "response_item", "payload": message}]
    return made


TEXTS = ["q1", "r1", "q2", "r2", "q3", "r3"]
SHORT = chat(*TEXTS[:4], session_id="s")
RESUMED: dict[str, tuple[list[object], list[object]]] = {
    "claude-code: only what is new": (claude("s", *TEXTS[:4]), claude("s", *TEXTS[4:], first=4)),
    "claude-code: with what was said, under a new id": (claude("s", *TEXTS[:4]), claude("t", *TEXTS)),
    "claude-code: with the end of what was said": (claude("s", *TEXTS[:4]), claude("s", *TEXTS[2:], first=2)),
    "codex: a fork repeats what was said": (codex("s", *TEXTS[:4]), codex("t", *TEXTS, forked_from_id="s")),
    "openai: only what is new": ([SHORT], [chat(*TEXTS[4:], session_id="s")]),
    "openai: with what was said": ([chat(*TEXTS[:2], session_id="s"), SHORT], [chat(*TEXTS, session_id="s")]),
    "openai: with the last two turns": ([SHORT], [chat(*TEXTS, "q4", "r4", session_id="s")]),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_session_in_two_files_is_one_conversation_without_double_turns(tmp_path: Path, case: str) -> None:
    sessions = tmp_path / "data" / "sessions"
    first, second = RESUMED[case]
    whole = [*TEXTS, "q4", "r4"] if "last two" in case else TEXTS
    one, two = written(tmp_path / "1.jsonl", first), written(tmp_path / "2.jsonl", second)
    reports = [r.report for r in take(sessions, one, two)]
    assert [r and (r.n_refused, r.continued) for r in reports] == [(0, ()), (0, ("1",))]
    assert said(sessions) == {"1:s": whole}
    before = snapshot(sessions)
    for again in (two, one):  # in another command, in any order
        reports = [r.report for r in take(sessions, again)]
        assert [r and (r.is_changed, r.n_removed) for r in reports] == [(False, 0)]
    assert snapshot(sessions) == before
    shutil.rmtree(sessions)
    if "openai: only" not in case:  # parts without times and overlap are joined in the order of their import
        take(sessions, two, one)
        assert list(said(sessions).values()) == [whole]


def test_a_part_that_grew_replaces_that_of_its_file(tmp_path: Path) -> None:
    sessions = tmp_path / "data" / "sessions"
    one = written(tmp_path / "1.jsonl", [chat("q1", "r1", session_id="s")])
    two = written(tmp_path / "2.jsonl", [chat("q2", "r2", session_id="s")])
    take(sessions, one, two)
    written(two, [chat("q2", "r2", "q3", "r3", session_id="s")])
    take(sessions, two)
    assert said(sessions) == {"1:s": TEXTS}


def part(*texts: str, **metadata: Any) -> Conversation:
    return Conversation.model_validate({"conversation_id": "c", **chat(*texts), "metadata": metadata})


def test_what_is_beside_the_messages_is_kept_of_all_parts() -> None:
    thought = {"message_index": 1, "text": "hm"}
    kept = {"policy": "Be kind.", "reasoning": [thought]}
    first = part("q1", "r1", models=["m"], agent_cost_usd=1.0, **kept)
    whole = merged([first, part("q2", "r2", models=["n", "m"], agent_cost_usd=0.5, **kept)])
    thoughts = [thought, {"message_index": 3, "text": "hm"}]
    costs = {"models": ["m", "n"], "agent_cost_usd": 1.5}
    assert whole.metadata == costs | {"policy": "Be kind.", "reasoning": thoughts}


def test_a_turn_that_is_said_again_is_kept_unless_all_was_repeated() -> None:
    whole = merged([part("q1", "r1", "thanks", "welcome"), part("thanks", "welcome", "q2", "r2")])
    texts = ["q1", "r1", "thanks", "welcome", "thanks", "welcome", "q2", "r2"]
    assert [m.content for m in whole.messages] == texts


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_part_that_repeats_only_what_was_said_continues_the_other(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    call = {"id": "c", "name": "f", "arguments": {}}
    steps = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    first, second = chat("q1", "a1", session_id="s"), chat("q1", "a1", "q2", "a2", session_id="s")
    first["messages"][1:1] = steps  # type: ignore[index]
    files = [written(tmp_path / f"{n}.jsonl", [value]) for n, value in enumerate((first, second))]
    for n in order:
        take(tmp_path / "sessions", files[n])
    assert [*said(tmp_path / "sessions").values()] == [["q1", "", "r", "a1", "q2", "a2"]]
