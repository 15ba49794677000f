"""A share of the conversations, and several answers of one model: who is asked, and what counts."""

import polars as pl
import pytest

from agent_eval.judge.engine import Judged, judge_transcripts, open_questions
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.sampling import NOT_SAMPLED, sampled
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.report.board import outcomes
from agent_eval.scores.composite import board_facts
from tests.judge.fakes import Kept, ScriptedClient, panel_of
from tests.judge.material import admitted, agent, conversation, finding, humans, tables, user
from tests.untyped import any_table

MANY = tables(
    *(conversation(user(f"Ask {i}"), agent(f"Answer {i}."), conversation_id=f"c{i}") for i in range(20))
)
HELD = MANY.conversations.frame()
TRANSCRIPTS = admitted(HELD)
METRICS = DEFAULT.only(["helpfulness", "agent_behavior_failure", "goal_completion"])


def judge(
    client: ScriptedClient, spec: JudgeSpec, kept: Kept | None = None, budget: Budget | None = None
) -> Judged:
    kept = kept or Kept()
    panel = panel_of(client, kept=kept, spec=spec, budget=budget)
    of = (TRANSCRIPTS, HELD, MANY.turns.frame(), humans(), finding(kept.frame()))
    return judge_transcripts(*any_table(of), metrics=METRICS, panel=panel)


def helpful(found: Judged) -> pl.DataFrame:
    return found.turn_judgments.filter("is_effective", metric="helpfulness")


@pytest.mark.parametrize(("share", "n"), [(None, None), (0.2, 4), (0.21, 5), (1.0, 20), (0.001, 1)])
def test_the_sample_is_a_share_of_each_session_rounded_up(share: float | None, n: int | None) -> None:
    found = sampled(TRANSCRIPTS, share)
    assert (None if found is None else len(found)) == n


def test_a_larger_sample_holds_the_smaller_one_and_slots_are_always_in_it() -> None:
    small, large = sampled(TRANSCRIPTS, 0.2) or set(), sampled(TRANSCRIPTS.reverse(), 0.5) or set()
    assert small < large
    slotted = TRANSCRIPTS.with_columns(slot=pl.when(pl.col("conversation_id") < "c11").then(pl.lit("D1")))
    assert {c for _, c in sampled(slotted, 0.2) or set()} >= {"c0", "c1", "c10"}


def test_only_the_sample_is_asked_and_the_others_say_so() -> None:
    client = ScriptedClient()
    found = judge(client, JudgeSpec(("scripted",), sample=0.2))
    assert len(client.asked) == 4
    rows = helpful(found)
    counted = rows.group_by("status", "unscored_reason").len().sort("status").rows()
    assert counted == [("not_applicable", NOT_SAMPLED, 16), ("scored", None, 4)]
    goals = found.conversation_judgments.filter(metric="goal_completion")
    assert goals.filter(status="scored").height == 4
    said = open_questions(TRANSCRIPTS, HELD, MANY.turns.frame(), METRICS, {}, 0.2)
    assert sum(bool(sequence.questions) for sequence in said) == 4
    assert any(r == NOT_SAMPLED for r in goals["unscored_reason"])


def test_the_board_says_how_much_was_drawn_and_seen() -> None:
    row = {
        "agent_id": "a", "name": "A", "n_sampled": 41, "n_to_sample": 205, "n_judged": 340, "n_seen_in_part": 12,
        "least_seen_share": 0.4199, "n_planned": None, "n_refused": None, "n_harness_errors": None, "n_unknown": None,
        "n_known": None,
    }  # fmt: skip
    seen, drawn = outcomes(pl.DataFrame([row]))
    assert seen == "A: 12 of 340 judgments were made on part of the evidence, at least 41.9 % of it"
    # 1.96 × √(0.25 / 41 × 164 / 204) = 0.1372
    assert drawn.startswith("A: 41 of 205 conversations were put to a judge model (judge_sample)")
    assert drawn.endswith("known to ±13.7 points")
    none = row | {"n_seen_in_part": 0, "n_sampled": None, "n_to_sample": None}
    assert outcomes(pl.DataFrame([none])) == []


def test_the_facts_of_a_board_count_judgments_of_models_alone() -> None:
    where = {"methodology_version": "1.3.0", "agent_id": "a"}
    rows: list[dict[str, object]] = [
        {"conversation_id": "c", "judge": "m", "status": "scored", "reason": None, "seen_share": 0.4},
        {"conversation_id": "c", "judge": "m", "status": "scored", "reason": None, "seen_share": 1.0},
        {"conversation_id": "c", "judge": "m", "status": "unscored", "reason": "x", "seen_share": 0.1},
        {"conversation_id": "c", "judge": "rule", "status": "scored", "reason": None, "seen_share": None},
        {"conversation_id": "d", "judge": "rule", "status": "not_applicable", "reason": NOT_SAMPLED, "seen_share": None},
    ]  # fmt: skip
    judged = pl.DataFrame([{**where, **row, "n": n} for n, row in enumerate(rows, start=1)])
    assert board_facts._seen(judged).drop(*where).rows() == [(1 + 2, 1, 0.4)]
    assert board_facts._sampled(judged).drop(*where).rows() == [(1, 2)]
    assert board_facts._sampled(judged.head(4)).is_empty()


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ([], []),
        ([("m", "a"), ("n", "b")], []),  # two judges are two models
        ([("m", "a"), ("m", None), ("m", "a")], []),
        ([("m", "b"), ("m", "a"), ("n", "b")], ["m answered by 2 models: a, b"]),
        ([("m", "a"), ("m", "b\nrank 1")], ["m answered by 2 models: a, b rank 1"]),
    ],
)
def test_a_judge_whose_server_changed_its_model_is_named(
    answered: list[tuple[str, str | None]], said: list[str]
) -> None:
    schema = dict.fromkeys(("methodology_version", "agent_id", "judge", "response_model"), pl.String)
    rows = pl.DataFrame([("1.3.0", "a", *row) for row in answered], schema=schema, orient="row")
    found = board_facts._several_models(rows).get(("1.3.0", "a"), [])
    assert found == said
    row = {"agent_id": "a", "name": "A", "several_models": found, "n_planned": None, "n_refused": None}
    row |= dict.fromkeys(("n_harness_errors", "n_unknown", "n_known", "n_seen_in_part"))
    assert outcomes(pl.DataFrame([row])) == [f"A: {one}" for one in said]


def test_the_median_of_repeats_counts_and_their_spread_is_kept() -> None:
    class Moody(ScriptedClient):
        async def complete(self, *given):  # type: ignore[no-untyped-def]
            n = sum(p.messages == given[0] for p in self.asked)
            label = [["repetition"], None, ["repetition"]][n]
            self.answers = {"helpfulness": [5, 1, 2][n], "agent_behavior_failure": label}
            return await super().complete(*given)

    kept, client = Kept(), Moody()
    spec = JudgeSpec(("scripted",), repeats=3)
    found = judge(client, spec, kept)
    assert len(client.asked) == 60
    assert set(helpful(found).select("judge", "rating_1to5", "disagreement").rows()) == {("scripted", 2, 4.0)}
    labels = found.turn_judgments.filter("is_effective", metric="agent_behavior_failure")["label"]
    assert set(labels) == {"repetition"}
    assert helpful(found)["cost_usd"][0] == pytest.approx(3 * 0.01 / 3)  # three calls, a third of each
    again = ScriptedClient()
    assert helpful(judge(again, spec, kept))["rating_1to5"].equals(helpful(found)["rating_1to5"])
    assert again.asked == []


def test_more_repeats_ask_only_for_those_that_are_missing_and_a_lost_one_leaves_the_rest_open() -> None:
    kept, client = Kept(), ScriptedClient()
    judge(client, JudgeSpec(("scripted",)), kept)
    more = ScriptedClient()
    cut = judge(more, JudgeSpec(("scripted",), repeats=2), kept, Budget(max_calls=5))
    assert len(more.asked) == 5
    counted = helpful(cut).group_by("status").len().sort("status").rows()
    assert counted == [("scored", 5), ("unscored", 15)]
    rest = ScriptedClient()
    whole = judge(rest, JudgeSpec(("scripted",), repeats=2), kept)
    assert len(rest.asked) == 15
    assert set(helpful(whole)["status"]) == {"scored"}


def test_a_spec_without_repeats_and_sample_is_written_as_before() -> None:
    assert "repeats" not in JudgeSpec(("m",)).to_json()
    spec = JudgeSpec(("m",), repeats=3, sample=0.2)
    assert JudgeSpec.from_json(spec.to_json()) == spec
    assert spec.parameters == JudgeSpec(("m",)).parameters
