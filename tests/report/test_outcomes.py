from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.report.html.outcomes import GOALS, decided, decided_alike
from agent_eval.report.quality import interval_of
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.tables import table
from tests.report.pages import pages_of

Answer = tuple[str, float | None, bool]


@pytest.mark.parametrize(
    ("declared", "outcome_class", "answers", "correct", "by"),
    [
        (None, "unknown", [("human", 1.0, True)], True, "human"),
        (None, "unknown", [("m", 0.0, True)], False, "m"),
        (None, None, [("m", 0.0, True)], False, "m"),
        (None, "unknown", [("human", 0.0, True), ("m", 1.0, False)], False, "human"),  # people win
        (None, "unknown", [("m", 1.0, False)], None, None),
        (None, "unknown", [], None, None),
        (
            None,
            "harness_error",
            [("m", 0.0, True)],
            None,
            None,
        ),  # lost to the harness, whatever the judge says
        (True, "passed", [("m", 0.0, True)], True, None),  # declared
        (False, "failed", [("human", 1.0, True)], False, None),
    ],
)
def test_an_outcome_is_the_declared_one_or_that_of_who_decided_the_goal(
    declared: bool | None,
    outcome_class: str | None,
    answers: list[Answer],
    correct: bool | None,
    by: str | None,
) -> None:
    key = {"agent_id": "a", "conversation_id": "c"}
    row = key | {"outcome_correct": declared, "outcome_class": outcome_class}
    of: dict[str, Any] = {**key, "methodology_version": "1", "metric": GOAL_METRIC, "status": "scored"}
    given = [
        of | {"judge": judge, "value": value, "is_effective": effective}
        for judge, value, effective in answers
    ]
    schema = {name: table("conversation_judgments").schema[name] for name in GOALS}
    judgments = pl.DataFrame(given, schema=schema)
    types = {"outcome_correct": pl.Boolean, "outcome_class": pl.String}
    for decide in (decided, decided_alike):
        [found] = decide(pl.DataFrame([row], schema_overrides=types), judgments).to_dicts()
        assert (found["outcome_correct"], found["decided_by"]) == (correct, by)


def test_versions_that_disagree_decide_no_outcome() -> None:
    schema = {name: table("conversation_judgments").schema[name] for name in GOALS}
    of: dict[str, Any] = {
        "agent_id": "a", "metric": GOAL_METRIC, "status": "scored", "judge": "m", "is_effective": True,
    }  # fmt: skip
    answers = {"alike": (1.0, 1.0), "unlike": (1.0, 0.0), "lost": (1.0, None)}
    judgments = [
        of | {"conversation_id": name, "methodology_version": version, "value": value}
        for name, values in answers.items()
        for version, value in zip("12", values, strict=True)
    ]
    conversations = pl.DataFrame(
        [
            {"agent_id": "a", "conversation_id": name, "outcome_correct": None, "outcome_class": "unknown"}
            for name in answers
        ],
        schema_overrides={"outcome_correct": pl.Boolean},
    )
    shown = decided_alike(conversations, pl.DataFrame(judgments, schema=schema))
    assert shown.select("outcome_correct", "decided_by").rows() == [(True, "m"), (None, None), (None, None)]


def test_a_rate_and_a_pass_rate_on_one_page_say_over_what_their_intervals_are(
    sample: Project, folder: Path
) -> None:
    pages = pages_of(folder)
    version = "1.3.0"
    rates = sample.table("reliability").filter(methodology_version=version).drop_nulls("interval")
    summary = sample.table("quality_summary").filter(methodology_version=version, quantity="success rate")
    assert rates.height
    for row in rates.to_dicts():
        (of_agent,) = [
            p for path, p in pages.items() if path.startswith(f"agents/{version}/{row['agent_id']}-")
        ]
        assert row["interval"] in of_agent.text
        assert row["interval"] in pages["index.html"].text
    for row in summary.drop_nulls("low").to_dicts():
        (of_agent,) = [
            p for path, p in pages.items() if path.startswith(f"agents/{version}/{row['agent_id']}-")
        ]
        units = "sessions" if row["clustered_by"] == "session" else "tasks or conversations"
        assert f"{interval_of(row)} over {row['n_clusters']} {units}" in of_agent.text
