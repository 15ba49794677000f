"""Two agents side by side: what is compared with what, and when a difference is called one."""

from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import AgentEvalError
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.scores.statistics.compare import compare, session_values, task_values
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES, composed, frames, ratings, session, transcripts
from tests.untyped import any_table

SESSIONS: dict[str, Any] = dict.fromkeys(("agent_id", "quantity"), pl.String)
SESSIONS |= {"values": pl.List(pl.Float64), "point": pl.Float64}
TASKS: dict[str, Any] = dict.fromkeys(("agent_id", "task_set", "task", "quantity"), pl.String)
TASKS |= {"value": pl.Float64}
PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}


def of_sessions(**values: list[float]) -> pl.DataFrame:
    rows = [(agent, "composite", v, 4 / 3) for agent, v in values.items()]
    return pl.DataFrame(rows, schema=SESSIONS, orient="row")


def of_tasks(quantity: str = "pass@1", **values: list[float]) -> pl.DataFrame:
    rows = [(a, "set", f"t{i}", quantity, float(v)) for a, of in values.items() for i, v in enumerate(of)]
    return pl.DataFrame(rows, schema=TASKS, orient="row")


NO_SESSIONS, NO_TASKS = of_sessions(), of_tasks()


def only(frame: pl.DataFrame) -> dict[str, Any]:
    assert frame.height == 1
    return frame.row(0, named=True)


def test_composites_are_compared_over_sessions() -> None:
    sessions = of_sessions(a=[90, 91, 92], b=[70, 71, 72])
    found = only(compare("a", "b", sessions, NO_TASKS))
    assert (found["difference"], found["n"], found["other_n"], found["unit"]) == (20, 3, 3, "sessions")
    assert found["verdict"] == "a better"
    found = only(compare("a", "b", of_sessions(a=[90, 91, 92], b=[20]), NO_TASKS))
    assert (found["p_value"], found["low"], found["verdict"]) == (None, None, "unknown")


def test_identical_data_are_a_tie() -> None:
    sessions, tasks = of_sessions(a=[70, 80], b=[70, 80]), of_tasks(a=[1, 0, 0.5], b=[1, 0, 0.5])
    found = compare("a", "b", sessions, tasks)
    assert found["verdict"].to_list() == ["tie", "tie"]
    assert found["p_holm"].to_list() == [1, 1]
    assert found["probability_better"].to_list() == [0.5, 0.5]


@pytest.mark.slow
def test_agents_of_one_kind_are_seldom_called_different() -> None:
    # two skewed kinds of numbers of the same agent, four hundred times: 5 % of them are 20
    random = np.random.default_rng(3)
    n_found = 0
    for _ in range(400):
        scores = (100 - np.minimum(random.gamma(2, 6, (2, 5)), 80)).tolist()
        shares = (random.binomial(2, 0.8, (2, 12)) / 2).tolist()
        sessions, tasks = of_sessions(a=scores[0], b=scores[1]), of_tasks(a=shares[0], b=shares[1])
        found = compare("a", "b", sessions, tasks)
        n_found += found["verdict"].str.ends_with("better").any()
    assert n_found <= 20


def test_tasks_are_paired_and_only_common_ones_count() -> None:
    # six tasks, each half a point better: 2 of 64 ways to flip the signs are as far from 0
    found = only(compare("a", "b", NO_SESSIONS, of_tasks(a=[1, 1, 1, 1, 1, 1, 0], b=[0.5] * 6)))
    assert (found["n"], found["difference"], found["p_value"]) == (6, 0.5, 2 / 64)
    assert found["verdict"] == "a better"


def test_pairing_sees_what_the_spread_of_tasks_would_hide() -> None:
    hard_and_easy = [0.0, 0.1, 0.4, 0.5, 0.8, 0.9]
    tasks = of_tasks(a=[v + 0.1 for v in hard_and_easy], b=hard_and_easy)
    found = only(compare("a", "b", NO_SESSIONS, tasks))
    assert found["verdict"] == "a better"


def test_equal_means_of_unequal_tasks_are_no_tie() -> None:
    found = only(compare("a", "b", NO_SESSIONS, of_tasks(a=[1, 0], b=[0, 1])))
    assert (found["difference"], found["verdict"]) == (0, "not distinguishable")


def test_a_lower_cost_is_the_better_one() -> None:
    found = only(compare("a", "b", NO_SESSIONS, of_tasks("cost_usd", a=[1] * 6, b=[2, 3, 4, 5, 6, 7])))
    assert found["verdict"] == "a better"
    assert found["probability_better"] > 0.95


def test_the_primary_quantity_is_tested_uncorrected_and_all_others_together() -> None:
    names = ("pass@1", "helpfulness", "relevance")
    tasks = pl.concat([of_tasks(q, a=[1] * 6, b=[0] * 6) for q in names])
    found = compare("a", "b", NO_SESSIONS, tasks).sort("role")
    assert found["role"].to_list() == ["primary", "secondary", "secondary"]
    assert found["quantity"][0] == "pass@1"
    assert found["p_holm"].to_list() == [2 / 64, 4 / 64, 4 / 64]
    assert found["verdict"].to_list() == ["a better", "not distinguishable", "not distinguishable"]


@pytest.mark.parametrize(
    ("sessions", "quantities", "thresholds", "primary"),
    [
        ({"a": [90, 91], "b": [70, 72]}, ["pass@1"], [], "composite"),
        ({"a": [90], "b": [70, 72]}, ["pass@1"], [], "pass@1"),  # one session: cannot be tested
        ({}, ["helpfulness", "relevance"], ["relevance", "helpfulness"], "relevance"),
        ({}, ["helpfulness", "relevance"], [], None),
    ],
)
def test_the_primary_quantity_is_named_by_rule(
    sessions: dict[str, list[float]], quantities: list[str], thresholds: list[str], primary: str | None
) -> None:
    tasks = pl.concat([of_tasks(q, a=[1] * 6, b=[0] * 6) for q in quantities])
    found = compare("a", "b", of_sessions(**sessions), tasks, thresholds=thresholds)
    assert found.filter(role="primary")["quantity"].to_list() == ([primary] if primary else [])


def test_of_several_task_sets_the_one_with_most_common_tasks_is_primary() -> None:
    large = of_tasks(a=[1] * 9, b=[0] * 9).with_columns(task_set=pl.lit("z"))
    found = compare("a", "b", NO_SESSIONS, pl.concat([of_tasks(a=[1] * 6, b=[0] * 6), large]))
    assert found.filter(role="primary")["task_set"].to_list() == ["z"]


def test_an_agent_is_not_compared_with_itself() -> None:
    with pytest.raises(AgentEvalError, match="'a' is compared with itself"):
        compare("a", "a", NO_SESSIONS, NO_TASKS)


def test_nothing_common_gives_no_rows() -> None:
    assert compare("a", "b", of_sessions(a=[90, 91]), of_tasks(a=[1, 0])).is_empty()


@settings(max_examples=30)
@given(
    st.lists(st.integers(20, 100), min_size=1, max_size=4), st.lists(st.integers(20, 100), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6), st.randoms(use_true_random=False),
)  # fmt: skip
def test_neither_row_order_nor_who_comes_first_changes_what_is_said(
    ours: list[int], theirs: list[int], values: list[tuple[int, int]], random: Random
) -> None:
    sessions = of_sessions(a=[float(v) for v in ours], b=[float(v) for v in theirs])
    tasks = of_tasks(a=[v for v, _ in values], b=[v for _, v in values])
    found, turned = compare("a", "b", sessions, tasks), compare("b", "a", sessions, tasks)
    assert found["verdict"].to_list() == turned["verdict"].to_list()
    assert found["p_holm"].to_list() == turned["p_holm"].to_list()
    assert [-d for d in found["difference"]] == pytest.approx(turned["difference"].to_list())
    shuffled = tasks.sample(fraction=1, shuffle=True, seed=random.randint(0, 99))
    assert_frame_equal(compare("a", "b", sessions, shuffled), found)


def test_values_of_a_task_are_means_over_its_trials() -> None:
    trial = PAIR | {"session_id": "s", "task_set": "set", "source": "outcome", "is_harness_error": False}
    given = [
        ("c1", True, "task:t"),
        ("c2", False, "task:t"),
        ("c3", None, "task:t"),
        ("c4", True, "conversation:c4"),
    ]
    outcomes = pl.DataFrame(
        [trial | dict(zip(("conversation_id", "is_correct", "task"), row, strict=True)) for row in given]
    )
    costs: list[dict[str, Any]] = [PAIR | {"conversation_id": "c1", "cost_usd": 1.0}]
    costs += [PAIR | {"conversation_id": "c2"}]
    rated = PAIR | {"metric": "helpfulness", "status": "scored", "is_effective": True}
    judged = table("turn_judgments").frame(
        [
            rated | {"conversation_id": "c1", "turn_index": 0, "rating_1to5": 5},
            rated | {"conversation_id": "c1", "turn_index": 1, "rating_1to5": 2},
            rated | {"conversation_id": "c1", "turn_index": 2, "rating_1to5": 1, "is_effective": False},
            rated | {"conversation_id": "c2", "turn_index": 0, "rating_1to5": 1},
            rated | {"conversation_id": "c3", "turn_index": 0, "status": "unscored"},
        ]
    )
    conversations, goals = table("conversations").frame(costs), table("conversation_judgments").empty()
    made = task_values(outcomes, conversations, judged, goals, unasked=())
    # c1 is (5 + 2)/2 = 3.5, c2 is 1: each conversation counts once
    wanted = [("cost_usd", 1.0), ("helpfulness", 2.25), ("pass@1", 0.5)]
    assert made.select("task", "quantity", "value").rows() == [("task:t", *row) for row in wanted]


def test_goal_completion_is_a_quantity_of_its_own_only_where_it_is_not_the_outcome_again() -> None:
    # what decided the trial, and who judged the goal
    given = {
        "declared": ("outcome", "rule"),
        "reached": ("goal_completion", "m"),
        "tools": ("interactions", "m"),
        "unruled": ("outcome", "m"),
    }
    rows = [PAIR | {"conversation_id": name, "task_set": "set", "task": f"task:{name}"} for name in given]
    outcomes = pl.DataFrame(
        row | {"is_correct": True, "source": source}
        for row, (source, _) in zip(rows, given.values(), strict=True)
    )
    scored = {"metric": "goal_completion", "value": 1.0, "status": "scored", "is_effective": True}
    goals = table("conversation_judgments").frame(
        row | scored | {"judge": judge} for row, (_, judge) in zip(rows, given.values(), strict=True)
    )
    known = (outcomes, table("conversations").frame(rows), table("turn_judgments").empty(), goals)
    of_goals = task_values(*known, unasked=()).filter(quantity="goal_completion")
    assert of_goals["task"].to_list() == ["task:tools", "task:unruled"]
    repeated = task_values(*known, unasked=(), repeats_outcome=True).filter(quantity="goal_completion")
    assert repeated.height == 4


def test_values_of_sessions_are_the_composites_of_each_session() -> None:
    # session a: U 24/30 = 80, D 60/75 = 80, composite 80; session b: U 100, D 100, composite 100; both − 10
    rated = ratings() + ratings((5,) * 6, ((5, 5, 5),) * 5, session_id="b")
    held = transcripts() + transcripts(session="b")
    made = frames(rated=rated, held=held, declared=[session("a"), session("b")])
    scores = composed(rated=rated, held=held, declared=[session("a"), session("b")], judged=[])
    assert scores.select("session_ids", "session_scores", "raw_composite_score").row(0) == (
        ["a", "b"], [pytest.approx(80.0), pytest.approx(100.0)], 90.0,
    )  # fmt: skip
    values = session_values(
        scores,
        universal_scores(any_table(made["rubric_ratings"]), METHODOLOGIES),
        domain_scores(any_table(made["rubric_ratings"]), any_table(made["transcripts"]), METHODOLOGIES),
    )
    found = dict(values.select("quantity", "values").iter_rows())
    assert {q: pytest.approx(v) for q, v in found.items()} == {
        "composite": [70.0, 90.0], "universal": [80.0, 100.0], "domain": [80.0, 100.0],
    }  # fmt: skip


def test_a_session_that_lacks_a_rating_has_no_composite_of_its_own() -> None:
    rated = ratings() + ratings((5, 5, 5, None, 5, 5), session_id="b")
    held = transcripts() + transcripts(session="b")
    scores = composed(rated=rated, held=held, declared=[session("a"), session("b")])
    assert scores["session_scores"].to_list() == [[pytest.approx(80.0), None]]
