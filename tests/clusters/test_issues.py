"""Issues are open, fixed when enough comparable conversations were without them, and come back by a test."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval.clusters.issues.lifecycle import (
    Issue,
    chance_of_return,
    error_issues,
    followed,
    issue_costs,
)
from agent_eval.clusters.issues.sightings import ALL, issue_runs
from agent_eval.clusters.rates import of_valid_runs
from agent_eval.gates.error_severity import issue_finding
from agent_eval.settings.gate_spec import GateSpec, Rules
from agent_eval.tables import table
from tests.clusters.rows import PLACE, VERSION, judgment, judgments

CLUSTER = "E-0000000001"
REGISTRY = table("error_registry").frame(
    [{"cluster_id": CLUSTER, "label": "repetition", "severity": "high", "title": "Says it twice"}]
)
NOTHING = table("issue_runs").empty()
Night = tuple[Mapping[str, int], Mapping[str, int]]
"""Conversations that were looked at, and those with the issue, by task."""
TASKS = [f"t{i}" for i in range(25)]


def night(n_failing: int, per_task: int = 2, tasks: Sequence[str] = TASKS) -> Night:
    """A night in which so many conversations, of different tasks in turn, had the issue."""
    return dict.fromkeys(tasks, per_task), Counter(tasks[i % len(tasks)] for i in range(n_failing))


def rows_of(nights: Sequence[Night]) -> pl.DataFrame:
    rows = [
        {**PLACE, "benchmark_id": f"n{i}", "run_key": f"{i:02}", "basis": ALL, "cluster_id": cluster}
        | {"tasks": [*counts], "n_conversations": [*counts.values()]}
        for i, (looked, failing) in enumerate(nights)
        for cluster, counts in ((None, looked), (CLUSTER, failing))
        if counts
    ]
    return table("issue_runs").frame(rows)


def after(*nights: Night) -> Issue:
    [(_, issue)] = followed(rows_of(nights), REGISTRY)
    return issue


@pytest.mark.parametrize(
    ("nights", "state"),
    [
        ([night(15)], ("open", None, None)),
        ([night(0), night(15), night(12)], ("open", None, None)),
        ([night(15), night(0)], ("fixed", "n1", None)),
        ([night(2), night(0)], ("open", None, None)),  # rare: one night without it says little
        ([night(2), *[night(0)] * 12], ("fixed", "n1", None)),
        ([night(15), night(0), night(12)], ("came back", "n1", "n2")),
        ([night(15), night(0), night(1)], ("fixed", "n1", "n2")),  # seen again, which may be chance
        ([night(15), night(0), night(2), night(4), night(5)], ("fixed", "n1", "n2")),  # 50 clean ones are too few
        ([night(15), *[night(0)] * 3, night(3), night(6), night(6)], ("came back", "n1", "n4")),
        ([night(15), night(0), night(12), night(0)], ("fixed", "n3", None)),  # fixed again
        ([night(15), night(0), night(12), night(0), night(12)], ("came back", "n3", "n4")),
        ([night(15), night(0), night(1), *[night(0)] * 20, night(25)], ("came back", "n1", "n23")),
        ([night(15), night(0), night(1), *[night(0)] * 5, *[night(1)] * 3], ("fixed", "n1", "n2")),
        ([night(15), night(0, tasks=["other"])], ("open", None, None)),  # other tasks fix nothing
        ([night(4, tasks=TASKS[:2]), night(0, tasks=TASKS[2:])], ("open", None, None)),
        ([night(15), night(0, per_task=0)], ("open", None, None)),  # nobody looked
    ],
)  # fmt: skip
def test_an_issue_is_open_until_its_absence_says_something(
    nights: list[Night], state: tuple[str, str | None, str | None]
) -> None:
    issue = after(*nights)
    assert (issue.status, issue.fixed_in, issue.returned_in) == state


NIGHTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), NIGHTS)
def test_fixed_is_never_said_on_fewer_conversations_than_needed(
    first: int, rest: list[tuple[int, int]]
) -> None:
    nights: list[Night] = [({"t": 12}, {"t": first})]
    for looked, failing in rest:
        nights.append(({"t": looked}, {"t": min(failing, looked)} if min(failing, looked) else {}))
        issue = after(*nights)
        if issue.status == "fixed" and issue.fixed_in == f"n{len(nights) - 1}":
            assert issue.n_needed is not None
            assert issue.n_needed <= issue.n_clean == looked
        assert issue.n_runs_needed is None or issue.n_runs_needed >= 1


def test_the_number_needed_is_that_at_which_it_is_fixed() -> None:
    issue = after(night(5), night(0))
    assert issue.n_needed is not None
    assert issue.n_runs_needed == -(-issue.n_needed // 50)
    clean = [night(0)] * issue.n_runs_needed
    assert after(night(5), *clean).status == "fixed"
    assert after(night(5), *clean[1:]).status == "open"


@pytest.mark.parametrize(
    ("again", "later", "clean", "chance"),
    [(0, 5, 5, 1.0), (1, 1, 1, 0.5), (2, 2, 2, 1 / 6), (1, 1, 99, 0.01)],
)
def test_the_chance_of_a_return_is_fishers(again: int, later: int, clean: int, chance: float) -> None:
    assert chance_of_return(again, later, clean) == pytest.approx(chance)


def test_a_change_by_chance_is_seldom_a_return() -> None:
    """Four nights of 50 tasks with issues of constant rates, in 60 draws."""
    draw, returned = random.Random(1), 0
    for _ in range(60):
        rates = [{task: min(1.0, draw.expovariate(1 / mean)) for task in TASKS} for mean in (0.02, 0.1, 0.3)]
        returned += any(
            after(*nights).status == "came back"
            for of_task in rates
            if any(
                (
                    nights := [
                        (
                            dict.fromkeys(TASKS, 2),
                            {
                                t: k
                                for t, p in of_task.items()
                                if (k := sum(draw.random() < p for _ in range(2)))
                            },
                        )
                        for _ in range(4)
                    ]
                )[i][1]
                for i in range(4)
            )
        )
    assert returned <= 3


def statuses(counts: Sequence[int], n: int = 200) -> list[str]:
    """The status after each night with so many of n conversations with the issue."""
    issue = Issue("n0", "n0")
    told = []
    for i, k in enumerate(counts):
        issue.add(f"n{i}", Counter(t=n), Counter(t=k) if k else Counter())
        told.append(issue.status)
    return told


def test_a_constant_rate_over_many_nights_seldom_comes_back_and_a_planted_return_is_found_in_its_night() -> (
    None
):
    """28 nights of 200 conversations at 0.5 % after a repair; 5 % in each night would report a fifth of them."""
    draw, n_back = random.Random(2), 0
    for _ in range(100):
        later = [sum(draw.random() < 0.005 for _ in range(200)) for _ in range(28)]
        *before, last = statuses([50, 50, *later, 50])
        assert "fixed" in before
        assert last == "came back"
        n_back += "came back" in before
    assert n_back <= 3


def transcripts(*conversations: str, benchmark: str = "b", n_turns: int = 1) -> pl.DataFrame:
    rows = [
        {**PLACE, "conversation_id": c, "session_id": "s", "benchmark_id": benchmark, "task_id": c[0]}
        | {"n_turns": n_turns, "tests": [], "is_admitted": True}
        for c in conversations
    ]
    return table("transcripts").frame(rows)


def test_conversations_are_counted_by_task_and_earlier_runs_are_kept() -> None:
    sessions = table("sessions").frame(
        [
            {
                "agent_id": "a",
                "session_id": "s",
                "benchmark_id": "b",
                "session_date": "2026-01-02",
                "methodology_versions": ["any"],
            }
        ]
    )
    asked = judgments(
        judgment("repetition", conversation_id="a1"), judgment("no failure", conversation_id="a2")
    )
    failures = pl.DataFrame([PLACE | {"conversation_id": "a1", "cluster_id": CLUSTER}])
    old = rows_of([night(1, tasks=["a"])]).with_columns(benchmark_id=pl.lit("old"))
    made = issue_runs(failures, asked, transcripts("a1", "a2", "b1"), sessions, REGISTRY, old)
    assert made.filter(benchmark_id="old").height == old.height
    of = "agent_behavior_failure"
    now = (
        made.filter(pl.col("basis").is_in([ALL, of]), benchmark_id="b")
        .select("run_key", "basis", "cluster_id", "tasks", "n_conversations")
        .rows()
    )
    assert sorted(now, key=str) == sorted(
        [
            ("2026-01-02", ALL, None, ["a", "b"], [2, 1]),
            ("2026-01-02", ALL, CLUSTER, ["a"], [1]),
            ("2026-01-02", of, None, ["a"], [2]),
            ("2026-01-02", of, CLUSTER, ["a"], [1]),
        ],
        key=str,
    )


def test_runs_without_a_task_of_the_issue_have_a_reason() -> None:
    assert after(night(15), night(0, tasks=["other"])).reason == "no task with the issue was repeated"
    assert after(night(15)).reason is None


def test_runs_that_were_removed_or_lost_to_the_harness_do_not_count_any_more() -> None:
    stored = rows_of([night(15), night(0), night(12), night(12)])
    entry = {"agent_id": "a", "methodology_versions": ["any"]}
    reasons = {"n0": None, "n1": None, "n2": "the tools were down"}  # n3 was removed
    sessions = table("sessions").frame(
        entry | {"session_id": run, "benchmark_id": run, "invalid_reason": why}
        for run, why in reasons.items()
    )
    assert set(of_valid_runs(stored, sessions)["benchmark_id"]) == {"n0", "n1"}


def issues(*nights: Night, costs: pl.DataFrame | None = None) -> pl.DataFrame:
    nothing = issue_costs(
        pl.DataFrame(schema=dict.fromkeys((*PLACE, "conversation_id", "cluster_id"), pl.String)),
        table("conversations").empty(), table("turns").empty(),
        pl.DataFrame(schema={**dict.fromkeys((*PLACE, "conversation_id"), pl.String), "value": pl.Float64}),
    )  # fmt: skip
    return error_issues(rows_of(nights), REGISTRY, nothing if costs is None else costs)


def test_a_return_fails_its_gate_and_a_fixed_issue_passes_it() -> None:
    assert issue_finding(Rules(), issues(night(15))) is None
    fixed = issue_finding(Rules(), issues(night(15), night(0)))
    assert fixed is not None
    assert (fixed.result, fixed.evidence) == ("passed", "1 fixed issue; none came back")
    back = issues(night(15), night(0), night(12))
    failed = issue_finding(Rules(), back)
    assert failed is not None
    assert failed.result == "failed"
    assert failed.evidence == (
        f"1 issue came back: Says it twice ({CLUSTER}, fixed in n1, came back in n2: 12 of 50 conversations)"
    )
    assert issue_finding(GateSpec(issues=False).rules("a", VERSION), back) is None


def test_costs_are_sums_over_the_conversations_and_unknown_is_not_zero() -> None:
    where = ["a1", "a2", "b1"]
    failures = pl.DataFrame(
        [PLACE | {"conversation_id": c, "cluster_id": k} for c, k in zip(where, "XXY", strict=True)]
    )
    conversations = pl.DataFrame(
        {
            "agent_id": "a",
            "conversation_id": where,
            "outcome_class": ["failed", "unknown", "unknown"],
            "cost_usd": [0.5, None, None],
        }
    )
    turns = pl.DataFrame({"agent_id": "a", "conversation_id": ["a1", "a1"], "latency_ms": [1000.0, 500.0]})
    goals = pl.DataFrame([PLACE | {"conversation_id": "a2", "value": 0.0}])
    made = issue_costs(failures, conversations, turns, goals).sort("cluster_id")
    assert made.select("n_goals_missed", "seconds", "cost_usd").rows() == [(2, 1.5, 0.5), (None, None, None)]
