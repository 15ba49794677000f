"""One judging pass over made-up conversations, in a process of its own; prints what it took as one line of JSON.

python -m benchmarks.judge_load ROOT CONVERSATIONS TURNS [calls] [from=N], with the judge in the environment as for
`agent-eval run`. With `calls` every turn has a tool call, so that eight metrics are asked instead of six. With `from`
the conversations are numbered from N and are those of an agent of their own.
"""

import json
import resource
import sys
import time
from pathlib import Path

import polars as pl

from agent_eval.judge.engine import Judged, judge_transcripts
from agent_eval.judge.llm.client import imported
from agent_eval.project import Project
from agent_eval.settings import Settings
from agent_eval.settings.home import Home
from agent_eval.tables import table
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.models import Conversation, Message, MessageToolCall
from tests.untyped import any_table


def conversations(
    count: int, n_turns: int, *, has_calls: bool = False, first: int = 0, agent: str = "load"
) -> ConversationRows:
    """Orders and parcels; every turn differs from every other."""
    rows = ConversationRows()
    for i in range(first, first + count):
        messages = [message for turn in range(n_turns) for message in _turn(i, turn, has_calls=has_calls)]
        rows.add(
            agent,
            "s1",
            None,
            Conversation(conversation_id=f"c{i}", goal="find a parcel", messages=tuple(messages)),
        )
    return rows


def judge(project: Project, rows: ConversationRows) -> Judged:
    """The pass of the asset, storing included."""
    held = rows.conversations.frame()
    admitted = table("transcripts").frame(
        {
            **{name: row[name] for name in ("agent_id", "conversation_id", "session_id", "n_turns", "n_user_messages")},
            "methodology_version": "1.3.0", "benchmark_id": "b", "tests": [], "is_admitted": True,
        }
        for row in held.iter_rows(named=True)
    )  # fmt: skip
    [(panel, _)] = project.judges.by_judge(admitted)
    judged = judge_transcripts(
        *any_table(
            (admitted, held, rows.turns.frame(), table("human_ratings").empty(), project.judges.answers.find)
        ),
        metrics=project.metrics,
        panel=panel,
    )
    pairs = admitted.select("agent_id", "methodology_version").unique()
    for name in ("turn_judgments", "conversation_judgments"):
        project.store.replace(table(name), getattr(judged, name), pairs, run_id="load")
    return judged


def _turn(i: int, turn: int, *, has_calls: bool) -> list[Message]:
    number = i * 100 + turn
    asked = (
        f"Where is order {number}? I ordered it last week and would like to know whether it can be sent to my "
        f"office instead, because nobody is at home on day {turn}."
    )
    said = (
        f"Order {number} left our warehouse on Monday and arrives in {turn + 1} days. It cannot be redirected any "
        f"more, but you can pick it up at depot {number % 97}; bring your passport and the code {number * 7}."
    )
    call = MessageToolCall(id=str(number), name="find_order", arguments={"order": number})
    found = f'{{"order": {number}, "days": {turn + 1}, "depot": {number % 97}}}'
    looked_up = [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=found, tool_call_id=str(number)),
    ]
    return [
        Message(role="user", content=asked),
        *(looked_up if has_calls else []),
        Message(role="assistant", content=said),
    ]


if __name__ == "__main__":
    root, count, n_turns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    project = Project(Home(root, root), Settings())
    first = next((int(given[5:]) for given in sys.argv[4:] if given.startswith("from=")), 0)
    rows = conversations(
        count, n_turns, has_calls="calls" in sys.argv[4:], first=first, agent=f"load{first or ''}"
    )
    before = time.process_time()
    imported()
    import_cpu_s = time.process_time() - before
    began, wall, cpu = time.time(), time.perf_counter(), time.process_time()
    judged = judge(project, rows)
    both = pl.concat([judged.turn_judgments.drop("turn_index"), judged.conversation_judgments])
    budget = project.judges.runtime.budget
    took = {
        "began": began,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "import_cpu_s": import_cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "n_calls": budget.n_calls,
        "n_scored": both.filter(status="scored").height,
        "n_unscored": both.filter(status="unscored").height,
        "n_cached": project.store.read(table("judge_cache"), columns=["cache_key"]).height,
        "reasons": both.filter(status="unscored")["unscored_reason"].unique().sort().to_list(),
    }
    print(json.dumps(took))
