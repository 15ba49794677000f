"""What a judge is shown of a long case: all of it where it fits, else what matters, and never more than fits."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import JsonValue

from agent_eval.judge.estimate import CallEstimate, estimate
from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import (
    Messages,
    Prompt,
    ViewLimits,
    build_prompt,
    in_parts,
    read_reply,
    shared_rubrics,
)
from agent_eval.judge.prompts.build import merge_prompt, system_prompt
from agent_eval.judge.prompts.forms import schema_text
from agent_eval.judge.prompts.merging import merge_windows
from agent_eval.judge.prompts.record import BYTES_PER_TOKEN, size_of
from agent_eval.judge.protocol import Question, Scored, TurnsUpTo, Unscored, Verdict
from agent_eval.judge.rules.destructive import may_destroy
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation, Message, Turn
from tests.judge.fakes import USAGE, Kept, part
from tests.judge.material import agent, call, conversation, user

PUSH = "cd /srv/app && git push --force origin main && rm -rf .git"
SMALL, LARGE = ViewLimits(8_192), ViewLimits(128_000)
METRICS = (HELPFULNESS, AGENT_BEHAVIOR_FAILURE)
EVERY = tuple(metric for metric in DEFAULT.turn if not metric.is_measured)


def steps(n: int) -> Conversation:
    """One turn of n calls with 181 characters each; a force push in the middle."""
    calls: list[Message] = []
    for i in range(n):
        command, result = f"sed -n {i},{i + 40}p src/module_{i % 7}.py", f"line {i} " * 14
        if i == n // 2:
            command, result = PUSH, "+ abc...def main -> main (forced update)"
        calls += call("bash", {"command": command}, result)
    return conversation(user("Please tidy the repository."), calls, agent("It is tidied."))


def turn_question(
    talk: Conversation, metrics: Sequence[Metric] = METRICS, at: int = -1, turns: Sequence[Turn] = ()
) -> Question:
    turns = tuple(turns) or talk.turns()
    index = range(len(turns))[at]
    keys = {m.name: question_key("h", index, m.name, m.rubric_hash, "1") for m in metrics}
    return Question((talk,), (TurnsUpTo(turns, index),), index, "h", tuple(metrics), keys)


def whole_question(talk: Conversation) -> Question:
    keys = {GOAL_COMPLETION.name: question_key("h", None, "goal_completion", "r", "1")}
    return Question((talk,), (talk.turns(),), None, "h", (GOAL_COMPLETION,), keys)


def windows(question: Question, limits: ViewLimits) -> list[Prompt]:
    def one(window: int) -> Prompt:
        shown = shared_rubrics(DEFAULT.metrics)
        return build_prompt([question], secret=b"s", metrics=shown, limits=limits, window=window)

    first = one(0)
    return [first, *(one(i) for i in range(1, first.n_windows))]


def text_of(prompts: Sequence[Prompt]) -> str:
    return "".join(prompt.messages[1]["content"] for prompt in prompts)


def n_tokens(prompt: Prompt) -> float:
    return sum(size_of(message["content"]) for message in prompt.messages) / 3


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize("limits", [SMALL, ViewLimits(32_000), LARGE], ids=["8k", "32k", "128k"])
@pytest.mark.parametrize("ask", [turn_question, whole_question], ids=["turn", "conversation"])
def test_a_force_push_among_many_calls_is_seen_by_every_judge(
    n: int, limits: ViewLimits, ask: object
) -> None:
    prompts = windows(ask(steps(n)), limits)  # type: ignore[operator]
    assert PUSH in text_of(prompts)
    assert all(n_tokens(prompt) <= limits.context_tokens - limits.reply for prompt in prompts)
    shares = [prompt.seen_share for prompt in prompts]
    assert 0 < sum(shares) <= 1 + 1e-9
    is_whole = sum(shares) > 1 - 1e-9
    assert is_whole == (sum(prompt.n_left_out for prompt in prompts) == 0)


def test_181_000_characters_are_shown_whole_to_a_model_of_128_000_tokens() -> None:
    talk = conversation(user("Go."), call("bash", {"command": "make"}, "x " * 90_500), agent("Done."))
    [prompt] = windows(turn_question(talk), LARGE)
    assert "x " * 90_500 in prompt.messages[1]["content"]
    assert (prompt.seen_share, prompt.n_left_out) == (1.0, 0)


def test_errors_stay_whole_where_other_texts_are_cut() -> None:
    error = "Error: disk full. " + "The volume data has no room left. " * 20
    long = call("read", {"path": "a"}, "fine " * 6_000)
    talk = conversation(user("Go."), long * 3, call("read", {"path": "b"}, error), long * 3, agent("Done."))
    [prompt] = windows(turn_question(talk), ViewLimits(12_000))
    assert error in prompt.messages[1]["content"]
    assert prompt.n_left_out == 6
    assert 0 < prompt.seen_share < 0.5


@pytest.mark.parametrize(
    ("name", "arguments", "may"),
    [
        ("bash", {"command": PUSH}, True),
        ("act", {"Command": ["git", "push", "--force"]}, True),
        ("python", {"input": "shutil.rmtree('/srv')"}, True),
        ("browse", {"query": "DROP TABLE orders"}, True),
        ("deleteUser", {}, True),
        ("act", {"note": "rm -rf /"}, False),
        ("act", "rm -rf /", False),
        ("bash", {"command": "ls"}, False),
        ("bash", {"command": "git push; ls -f"}, False),
        ("bash", {"command": "push " * 40_000}, False),
    ],
)
def test_calls_that_may_destroy_are_known_by_name_or_by_their_command(
    name: str, arguments: JsonValue, may: bool
) -> None:
    assert may_destroy(name, arguments) is may


@pytest.mark.parametrize("ask", [turn_question, whole_question], ids=["turn", "conversation"])
def test_short_messages_are_shown_where_large_tool_results_are_not(ask: object) -> None:
    requests = [f"Request number {i}: paint item {i * 7} of the order {i} times." for i in range(12)]
    found = [call("search", {"q": f"{i}"}, f"{i} " * 4_000) for i in range(5)]
    parts = [part for text in requests for part in (user(text), *found, agent(text.lower()))]
    text = text_of(windows(ask(conversation(*parts)), ViewLimits(8_000)))  # type: ignore[operator]
    assert [said for said in requests if said not in text or said.lower() not in text] == []


def earlier_turns(n: int, *last: Sequence[Message]) -> Conversation:
    """Turns with large tool results, then the judged turn."""
    found = call("search", {"q": "x"}, "y " * 75_000)
    asked = "paint the door blue, please."
    turns = (part for i in range(n) for part in (user(f"Request {i}: {asked}"), found, agent(f"Reply {i}.")))
    return conversation(*turns, *last)


def test_the_requests_of_forty_large_turns_are_shown_to_a_small_model_with_the_last_replies() -> None:
    talk = earlier_turns(41)
    [prompt] = windows(turn_question(talk), ViewLimits(8_000))
    text = prompt.messages[1]["content"]
    assert [i for i in range(41) if f"Request {i}: paint the door blue" not in text] == []
    assert '{"turns_left_out": ' in text
    assert "Reply 39." in text
    assert prompt.n_left_out > 40
    assert n_tokens(prompt) <= 6_000


def test_where_not_even_first_words_of_all_turns_fit_those_of_the_last_ones_are_shown() -> None:
    [prompt] = windows(turn_question(earlier_turns(101)), ViewLimits(6_000))
    text = prompt.messages[1]["content"]
    shown = [i for i in range(101) if f"Request {i}: paint" in text]
    assert shown[-30:] == [*range(71, 101)]
    assert n_tokens(prompt) <= 4_500


def test_every_window_of_a_turn_shows_what_was_asked_in_it_and_before() -> None:
    commands = [m for i in range(400) for m in call("bash", {"command": f"sed -n {i}p a"}, "line " * 30)]
    asked = "Tidy the repository, and keep the tests."
    prompts = windows(turn_question(earlier_turns(9, user(asked), commands, agent("It is tidied."))), SMALL)
    assert len(prompts) > 2
    for prompt in prompts:
        assert asked in prompt.messages[1]["content"]
        assert "Request 8: paint the door blue" in prompt.messages[1]["content"]
        assert n_tokens(prompt) <= SMALL.context_tokens - SMALL.reply
    assert 0 < sum(prompt.seen_share for prompt in prompts) < 1


def test_a_small_context_is_asked_in_several_calls_that_leave_room_for_the_record() -> None:
    assert [len(in_parts([turn_question(SHORT, EVERY)], limits)) for limits in (SMALL, LARGE)] == [1, 1]
    asked = turn_question(steps(100), EVERY)
    assert len(in_parts([asked], LARGE)) == 1
    parts = in_parts([asked], SMALL)
    assert 1 < len(parts) < 6
    assert [metric for [question] in parts for metric in question.metrics] == [*EVERY]
    for [question] in parts:
        assert set(question.keys) == {metric.name for metric in question.metrics}
        rubrics = system_prompt(question.metrics), schema_text(question.metrics)
        assert SMALL.room_beside(*rubrics) >= SMALL.prompt_bytes // 4
    planned = Panel(JudgeSpec(("m",)), limits=lambda _: SMALL).planned(
        [QuestionSequence([asked])], table("judge_cache").empty()
    )
    counted = estimate(planned, shared_rubrics(DEFAULT.metrics), SMALL)
    assert counted.n_calls > len(parts)
    assert counted.n_answers == len(EVERY)
    assert counted.n_in_part == 0  # all windows together show the whole turn


def test_a_long_conversation_is_asked_about_in_a_call_of_its_own() -> None:
    def n_calls(n_turns: int, limits: ViewLimits) -> int:
        parts = (part for i in range(n_turns) for part in (user(f"Ask {i} " * 40), agent(f"Say {i} " * 40)))
        talk = conversation(*parts)
        panel = Panel(JudgeSpec(("m",)), limits=lambda _: limits)
        sequence = QuestionSequence([turn_question(talk), whole_question(talk)])
        return sum(map(len, panel.planned([sequence], table("judge_cache").empty())))

    assert [n_calls(n, SMALL) for n in (2, 40)] == [1, 2]
    assert [n_calls(n, LARGE) for n in (40, LARGE.turns + 2)] == [1, 2]


def test_a_long_policy_is_shown_whole_where_the_turns_leave_room_for_it() -> None:
    policy = "Refunds need a manager. " * 8_000
    talk = conversation(user("Go."), agent("Done."), metadata={"policy": policy})
    long = conversation(user("Go. " * 50_000), agent("Done."), metadata={"policy": policy * 2})
    for ask in (turn_question, whole_question):
        assert policy in text_of(windows(ask(talk), LARGE))
        frame = json.loads(windows(ask(long), LARGE)[0].messages[1]["content"].splitlines()[1])
        assert len("".join(part for part in frame["policy"] if isinstance(part, str))) > 75_000


def test_the_window_of_earlier_turns_moves_in_jumps_of_half_its_size() -> None:
    limits = ViewLimits(turns=10)
    firsts = [limits.first_turn(n) for n in range(31)]
    assert firsts[:11] == [0] * 11
    assert all(5 <= n - first <= 10 for n, first in enumerate(firsts) if n > 10)
    assert all(b - a in (0, 5, 10) for a, b in itertools.pairwise(firsts))


@pytest.mark.slow
def test_a_long_conversation_costs_as_its_length_and_not_as_the_square_of_it() -> None:
    def total(n: int) -> int:
        talk = conversation(*(p for i in range(n) for p in (user(f"Ask {i}?"), agent(f"Answer {i}. " * 9))))
        turns = talk.turns()
        sequence = QuestionSequence([turn_question(talk, at=i, turns=turns) for i in range(0, n, 5)])
        planned = Panel(JudgeSpec(("m",))).planned([sequence], table("judge_cache").empty())
        found: CallEstimate = estimate(planned, shared_rubrics(DEFAULT.metrics))
        return found.n_tokens_in

    assert total(2_000) <= 12 * total(200)


class Narrow:
    """A server that takes `context` tokens and says so, or not, where a prompt is longer."""

    model = "narrow"

    def __init__(self, context: int, says: str) -> None:
        self.context, self.says = context, says
        self.asked: list[Prompt] = []
        self.n_refused = 0

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        if sum(size_of(m["content"]) for m in messages) / 3 + max_tokens > self.context:
            self.n_refused += 1
            raise CallError("too_long", self.says.format(self.context))
        self.asked.append(form)
        is_seen = "push --force" in messages[1]["content"]
        label = "unsafe action" if is_seen else "no failure"
        answers: dict[str, object] = {"helpfulness": 3, "agent_behavior_failure": label}
        await asyncio.sleep(0)
        return Reply(json.dumps({m.name: part(m, answers.get(m.name)) for m in form.metrics}), USAGE)

    async def close(self) -> None:
        pass


def asked_of(
    client: Narrow,
    talk: Conversation,
    kept: Kept,
    limits: ViewLimits | None = None,
    metrics: Sequence[Metric] = METRICS,
) -> dict[str, Scored | Unscored]:
    runtime = JudgeRuntime(client=lambda _: client, writing=kept.writing, secret=b"s", max_tokens=1_000)
    panel = Panel(JudgeSpec((client.model,)), runtime, (lambda _: limits) if limits else None)
    question = turn_question(talk, metrics)
    given = panel.answers([QuestionSequence([question])], kept.frame(), shared_rubrics(DEFAULT.metrics))
    return {m.name: given[question.keys[m.name]][0][1] for m in question.metrics}  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("says", ["maximum context length is {} tokens", "the prompt is too long"])
def test_a_prompt_that_is_too_long_leads_to_a_smaller_view_and_a_score(says: str) -> None:
    client, kept = Narrow(8_192, says), Kept()
    found = asked_of(client, steps(500), kept)
    rated, labelled = found["helpfulness"], found["agent_behavior_failure"]
    assert isinstance(rated, Scored)
    assert isinstance(labelled, Scored)
    assert labelled.label == "unsafe action"
    assert 0 < (rated.seen_share or 0) < 1
    assert (rated.n_left_out or 0) > 0
    n_calls = len(client.asked)
    assert n_calls > 2  # windows, and the call that merges the ratings
    assert sum(v.n_tokens_in or 0 for v in (rated, labelled)) == n_calls * (USAGE.n_in or 0)
    assert kept.frame()["context_tokens"].to_list() == [128_000] * 2


def test_a_server_with_a_context_below_all_rubrics_scores_every_metric_in_several_calls() -> None:
    found = asked_of(Narrow(4_096, "maximum context length is {} tokens"), steps(40), Kept(), metrics=EVERY)
    assert [name for name, verdict in found.items() if not isinstance(verdict, Scored)] == []
    assert len(found) == len(EVERY)


@pytest.mark.slow
def test_only_answers_on_part_of_the_evidence_are_asked_again_when_the_context_changes() -> None:
    def n_asked(n_steps: int, kept: Kept, limits: ViewLimits) -> int:
        client = Narrow(10**6, "")
        asked_of(client, steps(n_steps), kept, limits)
        return len(client.asked)

    kept, whole = Kept(), Kept()
    assert n_asked(500, kept, SMALL) > 1
    assert [n_asked(500, kept, limits) for limits in (SMALL, LARGE)] == [0, 1]
    assert [n_asked(20, whole, limits) for limits in (LARGE, ViewLimits(64_000))] == [1, 0]


def test_a_server_that_takes_nothing_ends_in_a_reason() -> None:
    client = Narrow(10, "the prompt is too long")
    found = asked_of(client, steps(10), Kept())
    assert {v.reason for v in found.values() if isinstance(v, Unscored)} == {"judge_error"}
    assert client.n_refused <= 8


def test_windows_are_merged_by_rule_for_labels_and_asked_for_ratings() -> None:
    name = AGENT_BEHAVIOR_FAILURE.name
    unsafe = Scored("b", "quote", label="unsafe action")
    read: list[dict[str, Verdict]] = [
        {name: Scored("a", label="repetition"), "helpfulness": Scored("x", rating_1to5=4)},
        {name: unsafe, "helpfulness": Unscored("truncated", "")},
        {name: Scored("c", label="no failure")},
    ]
    united = {name: replace(unsafe, further_labels=("repetition",))}
    assert merge_windows(METRICS, read) == (united, [HELPFULNESS])
    assert merge_windows(METRICS, [{}]) == ({}, [])
    nothing, unknown = Unscored("nothing_to_judge", "no call"), Unscored("cannot_tell", "cut")
    without: list[dict[str, Verdict]] = [{"helpfulness": nothing}, {"helpfulness": unknown}]
    assert merge_windows(METRICS, without) == ({"helpfulness": unknown}, [])
    assert merge_windows(METRICS, without[:1]) == ({"helpfulness": nothing}, [])


def test_a_text_that_is_a_little_too_long_is_not_cut_to_a_fraction_of_its_room() -> None:
    question = turn_question(conversation(user("x" * 500_000), agent("Short.")), [HELPFULNESS])
    prompt = build_prompt([question], secret=b"s")
    assert prompt.seen_share > 0.39  # 200,000 of 500,000 characters, where 370,000 bytes are free


SHORT = conversation(user("Fix it."), agent("Done."))


@pytest.mark.parametrize("n_windows", [2, 8, 24])
def test_the_call_that_merges_windows_fits_the_model_with_every_rating(n_windows: int) -> None:
    metrics = [metric for metric in DEFAULT.turn if metric.kind == "rating"]
    first = build_prompt([turn_question(SHORT, metrics)], secret=b"s")
    part: JsonValue = {"answer": 3, "reason": "r" * 500, "evidence": "é" * 500}
    said = [{m.name: part for m in DEFAULT.turn}] * n_windows
    small = ViewLimits(8_000)
    merged = merge_prompt([first] * n_windows, said, metrics, b"s", small)
    text = merged.messages[-1]["content"]
    sent = sum(size_of(message["content"]) for message in merged.messages) + size_of(str(merged.schema))
    assert sent <= (small.context_tokens - small.reply) * BYTES_PER_TOKEN
    assert text.count('"helpfulness"') == n_windows
    whole = merge_prompt([first] * n_windows, said, metrics, b"s").messages[-1]["content"]
    n_kept = len(DEFAULT.turn) if n_windows <= 8 else len(metrics)
    assert whole.count("r" * 500) == n_windows * n_kept


def test_a_merged_rating_may_have_the_reason_of_a_window() -> None:
    first = build_prompt([turn_question(SHORT, [HELPFULNESS])], secret=b"s")
    why = "The reply does what the user asked for."
    said: list[dict[str, JsonValue]] = [{"helpfulness": {"answer": 3, "reason": why, "evidence": None}}] * 2
    merged = merge_prompt([first] * 2, said, [HELPFULNESS], b"s")
    reply = {"helpfulness": {"evidence": None, "reason": why, "score": 3}}
    assert isinstance(read_reply(merged, json.dumps(reply))["helpfulness"], Scored)
