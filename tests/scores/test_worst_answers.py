"""The worst answers about a metric, and a long explanation shortened to a page."""

from typing import Any

from agent_eval.scores.explain import Node, shortened, to_rows
from agent_eval.scores.worst_answers import explained, worst_answers
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

PAIR = AgentVersion.of(agent_id="bot", methodology_version="1.3.0")


def answer(turn: int, **answered: Any) -> dict[str, Any]:
    known = {"status": "scored", "is_effective": True, "judge": "m", "rationale": f"why {turn}"}
    return {"conversation_id": "c", "turn_index": turn, **known, **answered}


def test_the_lowest_ratings_come_first_with_what_was_said() -> None:
    rows = table("turn_judgments").frame(
        [answer(i, rating_1to5=r) for i, r in enumerate((4, 2, 5, 1))]
        + [answer(4, rating_1to5=1, is_effective=False), answer(5, status="unscored")]
    )
    worst = worst_answers(rows, [], 2)
    assert worst["rating_1to5"].to_list() == [1, 2]
    turns = table("turns").frame(
        [{"conversation_id": "c", "turn_index": 3, "user_message": "u" * 999, "agent_message": None}]
    )
    tree = explained(PAIR, "helpfulness", worst, 4, turns, is_whole=False)
    assert tree.title.endswith("2 worst of 4 answers")
    assert tree.children[0].title == "1 in c#3 by m"
    assert tree.children[0].detail[1:] == ("agent: (no text)", "judge: why 3")
    assert len(tree.children[0].detail[0]) < 420
    assert len(explained(PAIR, "helpfulness", worst, 4, turns, is_whole=True).children[0].detail[0]) > 999


def test_failures_are_ordered_by_the_severity_of_their_labels() -> None:
    rows = table("turn_judgments").frame(
        answer(i, label=label) for i, label in enumerate(("mild", "no failure", "severe"))
    )
    assert worst_answers(rows, ["severe", "mild"], 9)["label"].to_list() == ["severe", "mild"]


def test_a_long_tree_is_shortened_and_says_what_it_left_out() -> None:
    turns = tuple(Node(f"turn {i}", ("user: u", "agent: a")) for i in range(50))
    ratings = tuple(
        Node(f"rating 4 by m, session {i}", (), (Node("conversation c", (), turns),)) for i in range(9)
    )
    root = Node("composite", (), (Node("U1: 4", (), ratings), Node("U2: 4", (), ratings)))
    titles = [row["title"] for row in to_rows(shortened(root, 40))]
    assert len(titles) <= 40
    assert {"U1: 4", "U2: 4", "… 7 ratings: --all", "turn 0", "… 49 turns: --all"} <= {*titles}
    assert shortened(root, 10_000) == root
    assert len(to_rows(shortened(root, 1))) == 5  # the parts stay, each with a line for its ratings
