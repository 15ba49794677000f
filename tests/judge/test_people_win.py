"""Labels of people decide for every kind of metric, whatever is judged, asked or imported again."""

import pytest

from agent_eval.clusters.cluster_registry import register
from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.failures import failures
from agent_eval.judge.engine import Judged
from agent_eval.transcripts.models import Conversation
from tests.clusters.rows import SPACE, TODAY, calls, grown, told
from tests.judge.fakes import Kept, ScriptedClient
from tests.judge.material import agent, call, conversation, human, user
from tests.judge.test_engine import judged, valued

TALK = conversation(
    user("Where?"), call("find", {"id": 7}), agent("Here."), user("Again?"), agent("There."),
    expected=[{"turn_index": 0, "answer": "There."}],
)  # fmt: skip
LABELS = [
    human("helpfulness", 1, conversation_id="c1", turn_index=0),
    valued("goal_completion", 0.0),
    valued("answer_correctness", 0.25, turn_index=0),
    valued("tool_result_utilisation", 0.0, turn_index=0),
    valued("agent_behavior_failure", label="false information", turn_index=0, rationale="baggage free"),
    valued("tool_call_behavior_failure", label="no failure", turn_index=0),
]
OTHER_WORDS = {"helpfulness": 5, "goal_completion": 1, "agent_behavior_failure": "unsafe action"}


def decided(found: Judged, version: str = "1.3.0") -> dict[str, tuple[object, ...]]:
    """The effective answer about each labelled metric of the first turn, or of the whole."""
    names = [str(label["target"]) for label in LABELS]
    answers: dict[str, tuple[object, ...]] = {}
    for rows in (found.turn_judgments.filter(turn_index=0).drop("turn_index"), found.conversation_judgments):
        for row in rows.filter("is_effective", methodology_version=version).iter_rows(named=True):
            if row["metric"] in names:
                answer = next(a for a in (row["rating_1to5"], row["value"], row["label"]) if a is not None)
                answers[row["metric"]] = (row["judge"], answer)
    return answers


BY_PEOPLE = {
    "helpfulness": ("human", 1),
    "goal_completion": ("human", 0.0),
    "answer_correctness": ("human", 0.25),
    "tool_result_utilisation": ("human", 0.0),
    "agent_behavior_failure": ("human", "false information"),
    "tool_call_behavior_failure": ("human", "no failure"),
}


def judged_by(client: ScriptedClient, of: Conversation = TALK, **more: object) -> Judged:
    return judged(of, ratings=LABELS, client=client, **more)  # type: ignore[arg-type]


def test_labels_survive_judging_again_by_another_model_and_a_changed_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, first = Kept(), ScriptedClient()
    assert decided(judged_by(first, kept=kept)) == BY_PEOPLE
    again = judged_by(ScriptedClient("other", answers=OTHER_WORDS), kept=kept)
    assert decided(again) == BY_PEOPLE
    assert "other" in set(again.turn_judgments["judge"])  # the model's answers stay beside them
    monkeypatch.setattr("agent_eval.judge.engine.asked_since", lambda _: "99")
    second = ScriptedClient(answers=OTHER_WORDS)
    found = judged_by(second, kept=kept)
    assert len(second.asked) == len(first.asked) > 0  # every question is another one
    assert decided(found) == BY_PEOPLE


def test_labels_survive_a_new_methodology_version_and_an_import_of_the_agent_with_other_words() -> None:
    found = judged_by(ScriptedClient(), versions=("1.3.0", "9.0.0"))
    assert decided(found, "9.0.0") == decided(found) == BY_PEOPLE
    changed = conversation(
        user("Where is it?"), call("find", {"id": 8}), agent("Here it is."), user("Again?"), agent("There."),
        expected=[{"turn_index": 0, "answer": "There."}],
    )  # fmt: skip
    assert decided(judged_by(ScriptedClient(answers=OTHER_WORDS), changed)) == BY_PEOPLE


def test_labels_survive_a_merge_of_clusters() -> None:
    rows = judged_by(ScriptedClient(answers={"tool_call_behavior_failure": "wrong tool"})).turn_judgments
    found = failures(rows, calls())
    assert 0 not in found.filter(label="wrong tool")["turn_index"].to_list()  # a person denied it
    more = grown(
        told(*(f"refund baggage {'so ' * i}" for i in range(6))), grown(told("refund late", "baggage free"))
    )
    before = register(more.registry, more.members, found, SPACE, seen_at=TODAY)
    merged = consolidate(before.registry, before.members, SPACE, at=TODAY)
    after = register(merged.registry, merged.members, found, SPACE, seen_at=TODAY)
    by_person = [
        made.failures.filter(label="false information")["cluster_id"].item() for made in (before, after)
    ]
    assert merged.events.filter(cluster_id=by_person[0])["other_id"].to_list() == [by_person[1]]
    counted = error_clusters(after.failures, rows, after.registry).filter(cluster_id=by_person[1])
    assert counted.select("label", "n_turns").rows() == [("false information", 1)]


def test_a_drawn_label_of_an_earlier_rubric_stays_drawn_and_enters_no_mean_beside_the_judge() -> None:
    drawn = {**valued("goal_completion", 0.0), "weight": 2.0, "rubric_hash": "earlier"}
    rows = judged(TALK, ratings=[drawn], client=ScriptedClient()).conversation_judgments
    [of_people] = rows.filter(judge="human", methodology_version="1.3.0").to_dicts()
    assert (of_people["label_weight"], of_people["is_counted"]) == (2.0, False)
