import itertools
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.clusters.failures import failures, impartial_judgments
from agent_eval.gates.error_severity import looked_for_failures
from agent_eval.project import Project
from agent_eval.project.clusters import failure_questions
from agent_eval.tables import table
from tests.clusters.rows import BEHAVIOUR, TOOL, call, calls, judgment, judgments


def test_every_failure_label_of_a_judgment_is_a_failure_once() -> None:
    further = ["unsafe state", "repetition", "no failure"]
    several = judgment("repetition", further_labels=further, evidence="again")
    fine = judgment("no failure", turn_index=1), judgment("no failure", turn_index=2, further_labels=[])
    found = failures(judgments(several, *fine), calls(call("book")))
    assert found.select("turn_index", "label", "quote", "tool", "fault_author").rows() == [
        (0, label, "again", None, "agent") for label in ("repetition", "unsafe state")
    ]
    assert found["failure_id"].n_unique() == 2


@pytest.mark.parametrize(
    "row",
    [
        judgment("repetition", status="unscored"),
        judgment(None, status="unscored", unscored_reason="judge_error"),
        judgment("repetition", status="not_applicable"),
        judgment("repetition", is_effective=False),
        judgment("repetition", metric="tone"),
        judgment(None),
    ],
)
def test_what_is_not_an_effective_scored_failure_label_is_no_failure(row: dict[str, Any]) -> None:
    found = failures(judgments(row), calls())
    assert found.is_empty()
    schema = table("failures").schema
    assert table("failures").typed(found).schema.items() <= schema.items()
    assert set(schema) - set(found.columns) == {"cluster_id", "distance", "finding_id", "method", "text_hash"}


def test_the_rationale_is_quoted_where_there_is_no_evidence() -> None:
    rows = judgments(judgment("repetition", evidence="  "), judgment("repetition", turn_index=1))
    assert failures(rows, calls())["quote"].to_list() == ["why", "why"]


def test_the_tool_is_the_only_one_called_by_the_agent_in_the_turn() -> None:
    by_user = call("pay", call_index=2, requestor="user")
    made = calls(call("book"), call("book", call_index=1), by_user, call("search", 1))
    row = judgment("wrong arguments", TOOL, evidence="search")
    assert failures(judgments(row), made)["tool"].to_list() == ["book"]


@pytest.mark.parametrize(
    ("evidence", "rationale", "tool"),
    [
        ("book_flight(1)", "after search", "book_flight"),
        ("nothing named", "it was search", "search"),
        ("search then book_flight", "it was search", "search"),
        ("search then book_flight", "both search and book_flight", None),
        ("rebook_flights, research", None, None),
        (None, None, None),
    ],
)
def test_of_several_tools_the_one_that_is_named_counts(
    evidence: str | None, rationale: str | None, tool: str | None
) -> None:
    made = calls(call("search"), call("book_flight", call_index=1))
    row = judgment("wrong arguments", TOOL, evidence=evidence, rationale=rationale)
    assert failures(judgments(row), made)["tool"].to_list() == [tool]


def test_a_turn_without_calls_may_name_a_tool_of_its_conversation_only() -> None:
    made = calls(call("get_balance", 3), call("get_rate", conversation_id="other"))
    rows = [
        judgment("missing tool call", TOOL, turn_index=i, evidence=f"{name} was not asked")
        for i, name in enumerate(("get_balance", "get_rate"))
    ]
    assert failures(judgments(*rows), made)["tool"].to_list() == ["get_balance", None]


def test_row_order_does_not_matter_and_versions_have_ids_of_their_own() -> None:
    places = itertools.product((10, 9), ("1.3.0", "1.2.0"))
    rows = [judgment("repetition", turn_index=turn, methodology_version=version) for turn, version in places]
    found = failures(judgments(*rows), calls())
    assert_frame_equal(found, failures(judgments(*reversed(rows)), calls()))
    assert found["failure_id"].n_unique() == 4


def test_a_label_that_a_failing_environment_can_force_is_not_laid_on_the_agent() -> None:
    made = calls(
        *(call("book", is_error=True, call_index=i) for i in (0, 1)),
        *(call("book", 1, is_error=i == 0 or None, call_index=i) for i in (0, 1)),
        call("book", 2),
    )
    labels = (("repeated tool call", TOOL), ("false information", BEHAVIOUR))
    rows = [judgment(*label, turn_index=turn) for turn in range(4) for label in labels]
    found = failures(judgments(*rows), made).sort("label", "turn_index")
    assert found.select("label", "fault_author").rows() == [
        *[("false information", "agent")] * 4,  # told by the agent, whatever the tools did
        ("repeated tool call", "environment"),  # every call failed
        ("repeated tool call", None),  # one of two failed
        ("repeated tool call", "agent"),
        ("repeated tool call", "agent"),
    ]


def test_a_turn_that_people_differ_on_is_neither_a_failure_nor_one_without() -> None:
    rows = judgments(
        judgment("repetition", judge="human", judge_model="anna", is_effective=False),
        judgment("no failure", judge="human", judge_model="ben", is_effective=False),
        judgment(None, judge="human", judge_model="anna, ben", status="disputed"),
        judgment("no failure", turn_index=1),
    )
    assert failures(rows, calls()).is_empty()
    assert impartial_judgments(rows)["turn_index"].to_list() == [1]


def test_clustering_loads_the_judgments_of_failure_metrics_only_and_the_gate_counts_the_same(
    sample: Project,
) -> None:
    pairs = sample.table("transcripts").select("agent_id", "methodology_version").unique()
    judged = sample.store.read(table("turn_judgments"))
    metrics = {m.name for m in sample.metrics.turn if m.is_failure}
    loaded = failure_questions(sample, pairs)
    of_failures = judged.filter(pl.col("metric").is_in(list(metrics)))
    assert_frame_equal(loaded, of_failures.select(loaded.columns))
    assert 0 < loaded.height < judged.height
    assert looked_for_failures(loaded, metrics) == looked_for_failures(judged, metrics)
