"""The rules that importers share, each by itself: branches, grouping, roles of spans, cells of CSV rows."""

import itertools
from pathlib import Path

import pytest

from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.rules.branches import ended_parts
from agent_eval.transcripts.importers.rules.grouping import Threads, TracePart
from agent_eval.transcripts.importers.shared import otel_attributes
from agent_eval.transcripts.importers.shared.csv_rows import csv_rows

ROLES = {"u": "user", "a": "assistant", "t": "tool"}


@pytest.mark.parametrize(
    ("parts", "kept", "n_withdrawn"),
    [
        (["u1", "u2"], [0, 1], 0),
        (["u1 a1", "u2 a2"], [0, 1], 0),
        (["u1 a1", "u1 a1 u2 a2"], [0, 1], 0),  # the later part continues
        (["u1 a1 u2 a2", "u1 a1 u3 a3"], [1], 2),  # another question after the same exchange
        (["u1 a1 u2 a2", "u1 a1"], [0, 1], 0),  # the later part says nothing else
        (["u1 a1", "u1 a2"], [0, 1], 0),  # the same question asked again
        (["u1 a1", "u1 a2 u2 a3"], [1], 1),  # the replaced answer of a conversation that goes on
        (["u1 a1 u2 a2", "u1 a2 a3"], [0, 1], 0),  # it does not go on with the user
        (["u1 t1 u2", "u1 t2 a2 u3"], [1], 1),  # nothing of the agent precedes, but the user goes on
        (["u1 t1 u2", "u1 t1 u3"], [0, 1], 0),  # the other question is not answered either
        (["u1 a1", "u1 a2", "u1 a2 u2"], [1, 2], 1),  # one of two later parts goes on
        (["t1 u1", "t1 u2 a2 u3"], [0, 1], 0),  # no message of the user before
        (["u1 a1 u2 a2", "u1 a1 u3 a3", "u1 a1 u2 a2"], [2], 2),  # back to the first branch
        (["u1 a1 u2 a2", "u1 a1 u3 a3", "u1 a1 u4 a4"], [2], 4),
    ],
)
def test_a_session_is_the_branch_that_it_ended_in(
    parts: list[str], kept: list[int], n_withdrawn: int
) -> None:
    spoken = [[(word.encode(), ROLES[word[0]]) for word in part.split()] for part in parts]
    assert ended_parts(spoken) == (kept, n_withdrawn)


def test_a_record_belongs_to_the_thread_of_any_record_of_its_trace() -> None:
    parts = {
        "root": TracePart("root", None, "T", None),
        "child": TracePart("child", "root", None, None),
        "deep": TracePart("deep", "child", None, "late"),
        "other": TracePart("other", None, "T2", "of-root"),
        "below": TracePart("below", "other", "T2", "of-child"),
        "alone": TracePart("alone", None, None, None),
        "orphan": TracePart("orphan", "missing", None, None),
        "self": TracePart("self", "self", None, "own"),
        "nameless": TracePart(None, None, None, "t"),
    }
    expected = {
        **dict.fromkeys(("root", "child", "deep"), "late"),
        **dict.fromkeys(("other", "below"), "of-root"),
        **{"alone": "alone", "orphan": "missing", "self": "own", "nameless": "t"},
    }
    for ordered in (list(parts.values()), list(parts.values())[::-1]):
        threads = Threads(ordered)
        assert {name: threads.key(part) for name, part in parts.items()} == expected
    assert Threads(parts.values()).by_trace["T"] == "late"


def test_parents_in_a_circle_end() -> None:
    parts = [TracePart(a, b, None, None) for a, b in itertools.pairwise("aba")]
    threads = Threads(parts)
    assert {threads.trace(part) for part in parts} == {"a", "b"}


def test_a_span_message_without_a_role_has_that_of_its_place() -> None:
    replies = {"gen_ai.completion.0.content": "a", "gen_ai.completion.1.content": "b", "gen_ai.completion.1.role": "tool"}  # fmt: skip
    assert otel_attributes.outputs(replies) == [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "b"},
    ]
    names = ("system.message", "user.message", "assistant.message", "tool.message", "choice", "other")
    events = [(f"gen_ai.{name}", {"content": name}) for name in names]
    found = otel_attributes.messages_of_events(
        [*events, ("gen_ai.user.message", {"content": "x", "role": "developer"})]
    )
    assert found == {
        "gen_ai.input.messages": [
            *(
                {"content": f"{role}.message", "role": role}
                for role in ("system", "user", "assistant", "tool")
            ),
            {"content": "x", "role": "developer"},
        ],
        "gen_ai.output.messages": [{"content": "choice", "role": "assistant"}],
    }


def test_a_text_in_a_csv_cell_stays_the_text_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        'conversation_id,sender,text,flag,meta\nc,bot,"{""a"": 1}",TRUE,"{""a"": 1}"\nc,bot,true,x,\n'
    )
    rows = [item.value for item in csv_rows(Source(path, "s")) if isinstance(item, Record)]
    assert rows == [
        {"conversation_id": "c", "role": "bot", "content": '{"a": 1}', "flag": True, "meta": {"a": 1}},
        {"conversation_id": "c", "role": "bot", "content": "true", "flag": "x"},
    ]
