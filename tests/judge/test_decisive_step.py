"""The decisive step is asked about missed goals only, rules first, and its accuracy stands in the calibration."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from agent_eval.errors import ConfigurationError, NotFoundError
from agent_eval.judge.engine import Judged, judge_transcripts, open_questions
from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.client import Reply
from agent_eval.judge.prompts import Messages, Prompt
from agent_eval.metrics.builtin.goal_completion import DECISIVE_STEP, GOAL_COMPLETION
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import DEFAULT, MetricSet
from agent_eval.scores.calibration import ANNOTATIONS, judge_calibration
from agent_eval.tables.judging import is_imported_judge
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.models import Conversation
from tests.judge.fakes import Kept, ScriptedClient, panel_of, part
from tests.judge.material import AGENT, admitted, agent, call, conversation, finding, humans, tables, user
from tests.untyped import any_table

METRICS = MetricSet((*DEFAULT.conversation, DECISIVE_STEP))
TALK = conversation(user("Where is A-1?"), agent("It was sent on Monday."), user("Thanks"), agent("Gladly."))
WRONG_CALL = conversation(
    user("Where?"),
    call("find", {"id": "x"}),
    agent("Here."),
    tools=[{"name": "find", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}],
)


def with_outcome(of: Conversation, correct: bool | None) -> Conversation:
    return of.model_copy(update={"outcome": of.outcome.model_copy(update={"correct": correct})})


def judged(
    conversations: Sequence[Conversation],
    client: ScriptedClient | None = None,
    kept: Kept | None = None,
    metrics: MetricSet = METRICS,
    ratings: pl.DataFrame | None = None,
) -> Judged:
    rows, kept = tables(*conversations), kept or Kept()
    held = rows.conversations.frame()
    return judge_transcripts(
        any_table(admitted(held, ("1.3.0",))),
        any_table(held),
        any_table(rows.turns.frame()),
        humans() if ratings is None else ratings,
        finding(kept.frame()),
        metrics=metrics,
        panel=panel_of(client, kept=kept) if client else None,
    )


def steps_of(result: Judged) -> list[tuple[object, ...]]:
    rows = result.conversation_judgments.filter(metric=DECISIVE_STEP.name).sort("conversation_id", "judge")
    return rows.select("judge", "status", "label", "message_index", "speaker").rows()


@pytest.mark.parametrize(
    ("declared", "of_model", "n_calls"),
    [(True, 0, 1), (False, 1, 2), (None, 0, 2), (None, 1, 1), (None, None, 1)],
)
def test_it_is_asked_once_and_only_where_the_goal_was_missed(
    declared: bool | None, of_model: int | None, n_calls: int
) -> None:
    answers: dict[str, object] = {GOAL_COMPLETION.name: of_model, DECISIVE_STEP.name: "tool"}
    client, kept = ScriptedClient(answers=answers), Kept()
    if of_model is None:
        client.always = Reply("no answer", Usage())
    result = judged([with_outcome(TALK, declared)], client, kept)
    expected = [("scripted", "scored", "tool", None, None)] if n_calls == 2 else []
    assert steps_of(result) == expected
    if of_model is not None:
        assert client.names_asked[1:] == [{DECISIVE_STEP.name}] * (n_calls - 1)
        again = judged([with_outcome(TALK, declared)], client, kept)
        assert (steps_of(again), len(client.asked)) == (expected, n_calls)


def test_a_quote_gives_message_and_speaker_and_null_means_that_no_step_decided() -> None:
    missed = with_outcome(TALK, False)
    for label, quote, expected in (
        ("agent", "sent on Monday", ("scored", "agent", 1, "assistant")),
        ("user", "Where is A-1?", ("scored", "user", 0, "user")),
        ("tool", "never said", ("scored", "tool", None, None)),
        (None, None, ("unscored", None, None, None)),
    ):
        client = ScriptedClient()
        reply = {**part(DECISIVE_STEP), "label": label, "evidence": quote, "further_labels": None}
        client.first = [Reply(json.dumps({DECISIVE_STEP.name: reply}), Usage())]
        metrics = MetricSet((GOAL_COMPLETION, DECISIVE_STEP))
        [row] = steps_of(judged([missed], client, metrics=metrics))
        assert row == ("scripted", *expected)


def test_the_step_is_the_first_message_with_the_quote_by_the_author_whom_the_label_names() -> None:
    talk = conversation(
        user("Cancel 7."), call("get", {"x": 1}, "gone"), agent("You wrote: Cancel 7."), agent("It said: gone"),
        user("And?"), agent("You wrote: Cancel 7."),
    )  # fmt: skip
    for label, quote, expected in (
        ("user", "Cancel 7.", "user"),
        ("agent", "Cancel 7.", "You wrote: Cancel 7."),
        ("tool", "gone", "gone"),
        ("environment", "Cancel 7.", "Cancel 7."),
        ("agent", "And?", "And?"),  # the label contradicts the quote
    ):
        client = ScriptedClient()
        reply = {**part(DECISIVE_STEP), "label": label, "evidence": quote, "further_labels": None}
        client.first = [Reply(json.dumps({DECISIVE_STEP.name: reply}), Usage())]
        metrics = MetricSet((GOAL_COMPLETION, DECISIVE_STEP))
        [row] = steps_of(judged([with_outcome(talk, False)], client, metrics=metrics))
        index = next(i for i, m in enumerate(talk.messages) if expected in (m.role, m.content))
        assert row[3] == index, label


@pytest.mark.parametrize(("of_model", "of_person", "n"), [(1, 0, 1), (0, 1, 0)])
def test_people_decide_whether_a_goal_was_missed(of_model: int, of_person: int, n: int) -> None:
    rating = {"agent_id": AGENT, "methodology_version": "any", "target": GOAL_COMPLETION.name, "value": float(of_person),
              "conversation_id": TALK.conversation_id, "rater": "kim", "rated_at": "2026-04-02T00:00:00Z", "file": "r", "line": 2}  # fmt: skip
    rated = humans(rating)
    client = ScriptedClient(answers={GOAL_COMPLETION.name: of_model, DECISIVE_STEP.name: "tool"})
    talk = with_outcome(TALK, None)
    assert len(steps_of(judged([talk], client, ratings=rated))) == n
    assert sum({DECISIVE_STEP.name} == names for names in client.names_asked) == n
    held = tables(talk).conversations.frame()
    frames = (admitted(held, ("1.3.0",)), held, tables(talk).turns.frame())
    planned = open_questions(*frames, METRICS, {}, human_ratings=rated)
    assert [m.name for s in planned for q in s.questions for m in q.metrics].count(DECISIVE_STEP.name) == n


def test_rules_answer_first_and_models_are_not_asked_then() -> None:
    metrics = MetricSet((*METRICS.metrics, *DEFAULT.turn))
    client = ScriptedClient()
    [row] = steps_of(judged([with_outcome(WRONG_CALL, False)], client, metrics=metrics))
    assert row == ("rule", "scored", "agent", 1, "assistant")
    assert not any(DECISIVE_STEP.name in names for names in client.names_asked)
    assert steps_of(judged([with_outcome(WRONG_CALL, True)], metrics=metrics)) == []
    [row] = steps_of(judged([with_outcome(TALK, False)], metrics=metrics))  # neither rule nor model
    assert row[:2] == ("rule", "not_applicable")


def test_an_estimate_contains_it_wherever_the_goal_may_be_missed() -> None:
    for declared, n in ((True, 0), (False, 1), (None, 1)):
        rows = tables(with_outcome(TALK, declared))
        held = rows.conversations.frame()
        frames = (admitted(held, ("1.3.0",)), held, rows.turns.frame())
        sequences = open_questions(*frames, METRICS, {})
        asked = [m.name for s in sequences for q in s.questions for m in q.metrics]
        assert asked.count(DECISIVE_STEP.name) == n


@pytest.mark.parametrize(("of_model", "n"), [(1, 0), (0, 1)])
def test_an_estimate_uses_stored_answers_to_the_goal(of_model: int, n: int) -> None:
    client, kept = (
        ScriptedClient(answers={GOAL_COMPLETION.name: of_model, DECISIVE_STEP.name: "tool"}),
        Kept(),
    )
    talk = with_outcome(TALK, None)
    judged([talk], client, kept)
    held = tables(talk).conversations.frame()
    frames = (admitted(held, ("1.3.0",)), held, tables(talk).turns.frame())
    panel = panel_of(client, kept=kept)
    planned = open_questions(
        *frames, METRICS, {}, stored=lambda sequences: panel.stored(sequences, kept.frame())
    )
    assert [m.name for s in planned for q in s.questions for m in q.metrics].count(DECISIVE_STEP.name) == n
    assert len(client.asked) == 1 + n  # nothing is asked by the estimate


def test_it_is_on_request() -> None:
    every = load_metrics(only=["default", "decisive_step"])
    assert load_metrics().names == DEFAULT.names
    assert every.names == {*DEFAULT.names, "decisive_step"}
    assert load_metrics(only=["goal_completion", "decisive_step"]).names == {
        "goal_completion",
        "decisive_step",
    }
    with pytest.raises(NotFoundError, match="Metric 'defaults'"):
        load_metrics(only=["defaults"])
    lacking = (
        "goal_completion is 0, and that is not asked"  # else no conversation would be asked, without a word
    )
    with pytest.raises(ConfigurationError, match=lacking):
        load_metrics(only=["decisive_step"])
    with pytest.raises(ConfigurationError, match=lacking):
        load_metrics(only=["default", "decisive_step"], off=["goal_completion"])


class Quoting(ScriptedClient):
    """Quotes the message that people named for the shown run."""

    def __init__(self, quotes: dict[str, str]) -> None:
        super().__init__()
        self.quotes = quotes

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        self.asked.append(form)
        shown = form.turns[0].user_message
        answer = {
            **part(DECISIVE_STEP, "agent"),
            "evidence": self.quotes[shown or ""],
            "further_labels": None,
        }
        return Reply(json.dumps({DECISIVE_STEP.name: answer}), Usage())


def test_a_judge_that_quotes_the_step_of_the_people_is_right_in_all_runs_of_whowhen(
    shared_data: Path, tmp_path: Path
) -> None:
    with gzip.open(shared_data / "whowhen" / "algorithm_generated.jsonl.gz", "rt") as stream:
        runs = [json.loads(line) for line in stream]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)))
    imported = [
        c
        for c in FORMATS["whowhen"](Source(tmp_path / "runs.jsonl", "runs.jsonl"))
        if isinstance(c, Conversation)
    ]
    steps = [run["history"][int(run["mistake_step"])] for run in runs]
    first = [of.turns()[0].user_message or "" for of in imported]
    quotes = {said: str(step["content"]) for said, step in zip(first, steps, strict=True)}
    assert len(quotes) == 126
    rows = judged(
        imported, Quoting(quotes), metrics=MetricSet((GOAL_COMPLETION, DECISIVE_STEP))
    ).conversation_judgments
    rows = rows.filter(metric=DECISIVE_STEP.name).with_columns(
        judge=pl.when(is_imported_judge()).then(pl.lit(ANNOTATIONS)).otherwise("judge"),
        turn_index=pl.lit(None, pl.Int64), criterion=pl.lit(None, pl.String), reply_length=pl.lit(None, pl.Int64),
    )  # fmt: skip
    cited = {row["conversation_id"]: row for row in rows.filter(judge="scripted").to_dicts()}
    for of, run, step in zip(imported, runs, steps, strict=True):
        opening = len(of.messages) - len(run["history"])  # the question, if the log does not have it
        row = cited[of.conversation_id]
        assert (row["message_index"] - opening, row["speaker"]) == (
            int(run["mistake_step"]),
            step.get("name") or step["role"],
        )
    [row] = judge_calibration(rows.clear(), annotated=rows).to_dicts()
    assert (row["judge"], row["reference"], row["n_steps"]) == ("scripted", "annotations", 126)
    assert (row["step_accuracy"], row["speaker_accuracy"], row["kappa"]) == (1.0, 1.0, None)
