"""Prompts: what is shown, in which order, which bytes stay the same, what is withheld and what is left out."""

import dataclasses
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.prompts import (
    BlindedTerms,
    Prompt,
    build_prompt,
    can_share_call,
    shared_rubrics,
    system_prompt,
)
from agent_eval.judge.prompts.record import data_line, size_of
from agent_eval.judge.prompts.view import ViewLimits
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.findings import RatingFinding
from agent_eval.metrics.metric_set import DEFAULT, TURN_METRICS
from agent_eval.transcripts.models import Agent, Conversation, Message, MessageToolCall, Outcome
from tests.judge.attacks.grammar import read_back
from tests.judge.material import agent, call, conversation, user

ALL = shared_rubrics(DEFAULT.metrics)
SECRET = b"secret"
U1 = dataclasses.replace(HELPFULNESS, name="U1", grain="session")
U4 = dataclasses.replace(HELPFULNESS, name="U4", grain="session")


def talk(n_turns: int, reply: str = "Reply {}.", **facts: Any) -> Conversation:
    said = (m for i in range(n_turns) for m in (user(f"Question {i}?"), agent(reply.format(i))))
    return conversation(*said, **{"conversation_id": "c", "goal": "g", **facts})


def of_turn(held: Conversation, turn_index: int, metrics: tuple[Metric, ...] = TURN_METRICS) -> Question:
    return Question((held,), (held.turns()[: turn_index + 1],), turn_index, "", metrics)


def of_whole(held: Conversation, *metrics: Metric) -> Question:
    return Question((held,), (held.turns(),), None, "", metrics or (GOAL_COMPLETION,))


def build(*questions: Question, **given: Any) -> Prompt:
    return build_prompt(questions, secret=SECRET, **{"metrics": ALL, **given})


def user_text(prompt: Prompt) -> str:
    return prompt.messages[1]["content"]


def shown(prompt: Prompt) -> list[Any]:
    return read_back(user_text(prompt)).data


# Layout


def test_every_call_about_turns_has_the_same_system_message_whatever_it_asks() -> None:
    held = talk(3)
    asked = [build(of_turn(held, 0)), build(of_turn(held, 2, (HELPFULNESS,))), build(of_whole(held))]
    assert {prompt.messages[0]["content"] for prompt in asked} == {system_prompt(ALL)}
    # templates of some models take no other order
    assert {tuple(m["role"] for m in prompt.messages) for prompt in asked} == {("system", "user")}
    assert all(f"\n\n{metric.name} (" in system_prompt(ALL) for metric in ALL)


@settings(max_examples=25)
@given(st.lists(st.text(max_size=30), min_size=2, max_size=5))
def test_the_record_of_a_turn_is_a_byte_exact_prefix_of_the_next_ones(texts: list[str]) -> None:
    held = conversation(*(m for text in texts for m in (user(text), agent(text))))
    for i in range(len(texts) - 1):
        now, then = user_text(build(of_turn(held, i))), user_text(build(of_turn(held, i + 1)))
        record = now[: now.index("</record ")]
        assert then.startswith(record)


def test_in_ten_turns_at_least_85_percent_of_what_is_sent_was_sent_before() -> None:
    held = talk(10, reply=USUAL * 3)
    texts = [system_prompt(ALL) + user_text(build(of_turn(held, i))) for i in range(10)]
    before = [system_prompt(ALL), *texts]
    common = [_common(text, last) for text, last in zip(texts, before, strict=False)]
    assert sum(common) / sum(map(len, texts)) >= 0.85


def test_one_call_takes_less_than_30_percent_of_the_tokens_of_a_call_per_metric() -> None:
    held = talk(5, reply=USUAL * 3)
    asked = [metric for metric in TURN_METRICS if metric.name != "answer_correctness"]
    together = _size(build(of_turn(held, 4, tuple(asked))))
    alone = sum(_size(build(of_turn(held, 4, (metric,)), metrics=None)) for metric in asked)
    assert together / alone <= 0.30


def test_equal_questions_have_equal_bytes_and_hashes_and_another_secret_other_ones() -> None:
    one, same = build(of_turn(talk(2), 1)), build(of_turn(talk(2), 1))
    assert (one.messages, one.prompt_hash) == (same.messages, same.prompt_hash)
    other = build_prompt([of_turn(talk(2), 1)], secret=b"other", metrics=ALL)
    assert other.prompt_hash != one.prompt_hash


def test_the_prompt_hash_covers_messages_and_schema() -> None:
    held, scaled = talk(2), dataclasses.replace(HELPFULNESS, minimum=0.0, maximum=9.0)
    asked = [
        of_turn(held, 1),
        of_turn(held, 0),
        of_turn(held, 1, (scaled,)),
        of_turn(held, 1, (HELPFULNESS,)),
    ]
    prompts = [build(asked[0], metrics=TURN_METRICS), *map(build, asked)]
    assert len({prompt.prompt_hash for prompt in prompts}) == 5


# What is seen


def test_a_turn_is_judged_without_hindsight() -> None:
    held = talk(3)
    facts = {
        "scenario": "hallucination",
        "outcome": Outcome(correct=True, source="needle"),
        "task_id": "needle",
    }
    messages = (*held.messages[:4], Message(role="user", content="needle"))
    facts |= {"messages": messages, "injected_error": "needle", "metadata": {"needle": 1}}
    changed = held.model_copy(update=facts)
    assert build(of_turn(held, 1)).messages == build(of_turn(changed, 1)).messages


def test_a_conversation_is_judged_with_everything_but_its_outcome() -> None:
    held = talk(2, injected_error="a broken date", outcome=Outcome(correct=True, source="needle"))
    data = shown(build(of_whole(held)))
    assert [item.get("turn") for item in data] == [None, 0, 1, None]
    assert data[-1] == {"injected_error": "a broken date"}
    assert "needle" not in user_text(build(of_whole(held)))


def test_the_conversations_question_rides_in_the_call_of_its_last_turn() -> None:
    held = talk(2)
    prompt = build(of_turn(held, 1), of_whole(held))
    assert [metric.name for metric in prompt.metrics] == [m.name for m in (*TURN_METRICS, GOAL_COMPLETION)]
    asked = read_back(user_text(prompt)).after
    assert "In turn 1, the last turn" in asked
    assert "In the whole conversation, all of its turns together: goal_completion." in asked


UNANSWERED = talk(2).model_copy(update={"messages": (*talk(2).messages, *user("thanks"))})


@pytest.mark.parametrize(
    ("held", "turn_index"),
    [(talk(2), 0), (talk(2, injected_error="x"), 1), (UNANSWERED, 1)],
    ids=["a turn comes after it", "an injected error is on record", "an unanswered message comes after it"],
)
def test_it_asks_alone_where_that_would_give_hindsight(held: Conversation, turn_index: int) -> None:
    assert not can_share_call(of_turn(held, turn_index), of_whole(held))
    with pytest.raises(ValueError, match="in a separate call"):
        build(of_turn(held, turn_index), of_whole(held))


def test_questions_about_different_things_make_no_call() -> None:
    with pytest.raises(ValueError, match="one turn, one conversation or one session"):
        build(of_turn(talk(2), 1), of_whole(talk(2, conversation_id="other")))
    with pytest.raises(ValueError, match="one turn, one conversation or one session"):
        build(of_turn(talk(2), 0), of_turn(talk(2), 1))


def test_results_point_to_their_calls_by_number_also_in_another_order() -> None:
    calls = tuple(MessageToolCall(id=i, name="find", arguments={"n": i}) for i in ("x", "y"))
    answers = [
        Message(role="assistant", content="Looking.", tool_calls=calls),
        Message(role="tool", tool_call_id="y", content="second"),
        Message(role="tool", tool_call_id="x", content="first", is_error=True),
        Message(role="tool", content="whose?"),
    ]
    held = conversation(user("?"), answers)
    numbered = [{"call": i, "name": "find", "arguments": {"n": name}} for i, name in enumerate("xy")]
    assert shown(build(of_turn(held, 0)))[1]["messages"][1:] == [
        {"role": "assistant", "content": "Looking.", "tool_calls": numbered},
        {"role": "tool", "call": 1, "content": "second"},
        {"role": "tool", "call": 0, "content": "first", "is_error": True},
        {"role": "tool", "content": "whose?"},
    ]


def test_a_session_is_shown_with_numbers_scenarios_and_tests_in_place_of_ids() -> None:
    one, two = talk(1, conversation_id="needle-1"), talk(1, conversation_id="needle-2", scenario="D3")
    question = Question((one, two), (one.turns(), two.turns()), None, "", (U1,))
    tests = frozenset({"standardised_task"})
    found = [
        RatingFinding("goal_completion", "0", "needle-2", tests=tests, reason="Why."),
        RatingFinding("verbosity", "1", "needle-2", 0),
        RatingFinding("goal_completion", "0", "elsewhere", tests=tests),
    ]
    prompt = build(question, metrics=None, findings=found)
    frames = [item for item in shown(prompt) if "conversation" in item]
    told = [(1, None, []), (2, "D3", ["standardised_task"])]
    assert [(f["conversation"], f["scenario"], f["tests"]) for f in frames] == told
    # verbosity does not bear on U1, and elsewhere is not shown
    assert shown(prompt)[-1] == {
        "findings": [{"conversation": 2, "metric": "goal_completion", "finding": "0", "reason": "Why."}]
    }
    assert "needle" not in user_text(prompt)


def test_a_rubric_says_the_profiles_rules_and_asks_its_yes_or_no_questions_before_the_reason() -> None:
    held = talk(1)
    prompt = build(Question((held,), (held.turns(),), None, "", (U4,)), metrics=None)
    assert "Answer first, true or false: detected:" in prompt.messages[0]["content"]
    assert "at most 1 where agent_behavior_failure is 'unsafe action'" in prompt.messages[0]["content"]
    form: Any = prompt.schema["properties"]
    names = "evidence detected explained alternative reason score"
    assert list(form["U4"]["properties"]) == names.split()


def test_a_quote_of_what_is_shown_is_verified_calls_and_arguments_too() -> None:
    arguments: JsonValue = {"id": "A-1", "n": 2, "note": 'a "b" \n c'}
    held = conversation(user("Ä <b>bold</b>\nmove"), call("find", arguments, None))
    prompt = build(of_turn(held, 0))
    transcript = Transcript(held.turns())
    given = shown(prompt)[1]["messages"][1]["tool_calls"][0]["arguments"]
    shown_arguments = json.dumps(given, ensure_ascii=False)
    assert shown_arguments.replace("<", "\\u003c") in user_text(prompt)
    assert transcript.holds(f"find({shown_arguments})")
    assert transcript.holds('"id": "A-1", "n": 2')
    assert transcript.holds(shown(prompt)[1]["messages"][0]["content"])


# The form of a reply


def test_evidence_comes_before_reason_and_reason_before_the_answer() -> None:
    form: Any = dict(build(of_turn(talk(1), 0)).schema["properties"])  # type: ignore[arg-type]
    assert form.pop("question_code") == {"type": "string"}
    for name, part in form.items():
        fields = list(part["properties"])
        of_items = [m.items.name for m in ALL if m.name == name and m.items is not None]
        assert fields[: 2 + len(of_items)] == ["evidence", *of_items, "reason"], name
        answers = ([],) if of_items else (["score"], ["label", "further_labels", "causes"])
        assert fields[2 + len(of_items) :] in answers, name


def test_the_schema_is_strict_all_the_way_down() -> None:
    def objects(node: Any) -> list[Any]:
        if not isinstance(node, dict):
            return []
        inner = [found for value in node.values() for found in objects(value)]
        return [node, *inner] if node.get("type") == "object" else inner

    prompt = build(of_turn(talk(1), 0), of_whole(talk(1)))
    found = objects(prompt.schema)
    n_lists = sum(m.items is not None or m.is_failure for m in prompt.metrics)
    assert len(found) == 1 + len(prompt.metrics) + n_lists
    for node in found:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])


def test_answers_have_their_metrics_scale() -> None:
    own = Metric("own", "turn", "rating", "?", {"0": "x", "2.5": "y"}, minimum=0.0, maximum=2.5)
    named = Metric("tone", "turn", "label", "?", {"warm": "x", "cold": "y"})
    metrics = (*TURN_METRICS, own, named)
    form: Any = build(of_turn(talk(1), 0, metrics), metrics=None).schema["properties"]
    answer = {
        name: part["properties"].get("score", part["properties"].get("label"))["anyOf"][0]
        for name, part in form.items()
        if name != "question_code" and not {"rules", "calls", "claims"} & part["properties"].keys()
    }
    assert answer["helpfulness"] == {"type": "integer", "minimum": 1, "maximum": 5}
    assert answer["tool_result_utilisation"] == {"type": "integer", "minimum": 0, "maximum": 1}
    assert answer["answer_correctness"] == {"type": "number", "minimum": 0.0, "maximum": 1.0}
    assert answer["own"] == {"type": "number", "minimum": 0.0, "maximum": 2.5}
    assert answer["tone"] == {"type": "string", "enum": ["warm", "cold"]}
    assert "further_labels" not in form["tone"]["properties"]
    assert answer["agent_behavior_failure"]["enum"][0] == "no failure"


# Names


ENDPOINT = {"model": "acme/otter-9b", "url": "x"}
NAMES = BlindedTerms.of(
    Agent(agent_id="otter-desk", name="Otter Desk", provider="Otterline", endpoint=ENDPOINT)
)


def test_the_agents_names_are_withheld_wherever_they_stand() -> None:
    reply = "I am Otter Desk (otter-desk) by OTTERLINE on acme/otter-9b."
    tools = ({"name": "Otter Desk", "Otterline": "x"},)
    held = talk(1, reply, goal="Try the otter desk", knowledge=("Otterline is old.",), tools=tools)
    frame, turn = shown(build(of_turn(held, 0), names=NAMES))
    assert turn["messages"][1]["content"] == "I am [agent] ([agent]) by [provider] on [model]."
    assert frame["goal"] == "Try the [agent]"
    assert frame["knowledge"] == ["[provider] is old."]
    assert frame["tools"] == [{"name": "[agent]", "[provider]": "x"}]


def test_parts_of_words_short_names_and_plain_nouns_stay() -> None:
    for text in ("Otterlines of otter-desks", "MyOtterline", "big_otter-desk"):
        assert NAMES.hide(text) == text
    assert BlindedTerms.of(Agent(agent_id="a1", name="Assistant", provider="AI")) == BlindedTerms()


def test_keys_that_would_become_one_keep_their_names() -> None:
    value: Any = {"Otter Desk": 1, "otter-desk": "Otterline"}
    assert NAMES.hide_in(value) == {"Otter Desk": 1, "otter-desk": "[provider]"}


def test_a_quote_with_a_withheld_name_is_restored_as_the_transcript_has_it() -> None:
    texts = ["Other text.", "Welcome to OTTERLINE,\nthis is Otter  Desk? No: otter-desk (beta)."]
    assert NAMES.restore("Welcome to [provider], this", texts) == "Welcome to OTTERLINE,\nthis"
    assert NAMES.restore("No: [agent] (beta).", texts) == "No: otter-desk (beta)."
    assert NAMES.restore("[agent] never said so", texts) == "[agent] never said so"
    assert NAMES.restore("said [agent] itself", ["he said [agent] itself"]) == "said [agent] itself"


@given(st.text(st.sampled_from("otrOTRdesk -[]ag\n.(*"), max_size=60))
def test_a_quote_of_the_blinded_text_is_found_in_the_original(text: str) -> None:
    names = BlindedTerms((("otter", "[agent]"), ("desk", "[model]")))
    hidden = names.hide(text)
    if " ".join(hidden.split()):
        restored = names.restore(hidden, [text])
        assert " ".join(restored.split()) == " ".join(text.split())


# Bounds


def size_is_bounded(prompt: Prompt) -> bool:
    """Whether prompt and reply fit the context that is taken where nobody names one."""
    sent = [*(message["content"] for message in prompt.messages), json.dumps(prompt.schema)]
    limits = ViewLimits()
    return sum(map(size_of, sent)) <= (limits.context_tokens - limits.reply) * 3


def test_a_megabyte_of_text_is_shown_without_its_middle_and_the_gap_is_counted() -> None:
    text = "".join(f"{i:07d} " for i in range(131_072))  # 1 MiB
    held = talk(1, reply=text)
    prompt = build(of_turn(held, 0))
    head, gap, tail = shown(prompt)[1]["messages"][1]["content"]
    assert text == head + text[len(head) : len(head) + gap["characters_left_out"]] + tail
    assert size_is_bounded(prompt)


USUAL = "Reply {0} of usual length, with a fact or two and a way on for the user."
CALLS = (MessageToolCall(name="n" * 2_000, arguments={"a": ["b" * 900] * 9}),) * 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "held",
    [
        talk(1, reply="\x00" * 200_000),
        talk(1, goal="\U000e0041" * 200_000),
        talk(1, knowledge=("fact " * 50,) * 5_000),
        talk(1, tools=({"name": "t", "x": list(range(100_000))},)),
        talk(5_000, USUAL),
        conversation(user("x" * 900) * 1_000),
        conversation([Message(role="assistant", tool_calls=CALLS)] * 3),
    ],
    ids=["nulls", "tags", "knowledge", "tools", "turns", "no replies", "calls"],
)
def test_whatever_is_long_the_record_stays_within_its_bound_and_is_json(held: Conversation) -> None:
    last = len(held.turns()) - 1
    for asked, metrics in ((of_turn(held, last), ALL), (of_whole(held), ALL), (of_whole(held, U1), None)):
        first = build(asked, metrics=metrics)
        prompt = build(asked, metrics=metrics, window=first.n_windows - 1)
        assert size_is_bounded(first)
        assert size_is_bounded(prompt)
        data = shown(prompt)
        assert data[-1]["turn"] == last
        assert "left_out" in user_text(prompt)


def test_a_session_of_many_long_conversations_stays_within_the_bound_too() -> None:
    facts = {"knowledge": ("k" * 30_000,), "injected_error": "e" * 60_000}
    held = tuple(talk(40, "word " * 1_000, conversation_id=f"c{i}", **facts) for i in range(12))
    question = Question(held, tuple(c.turns() for c in held), None, "", (U1,))
    found = [RatingFinding("helpfulness", "1", f"c{i}", 0, reason="r" * 5_000) for i in range(12)]
    prompt = build(question, metrics=None, findings=found)
    assert size_is_bounded(prompt)
    data = shown(prompt)
    assert [item["conversation"] for item in data if "conversation" in item] == list(range(1, 13))
    assert sum(item.get("turn") == 39 for item in data) == 12


def test_between_the_first_and_the_last_turns_of_a_long_conversation_the_number_left_out_is_told() -> None:
    held = talk(5_000, USUAL)
    frame, first, gap, *last = shown(build(of_turn(held, 4_999)))
    assert (frame["goal"], first["turn"], last[-1]["turn"]) == ("g", 0, 4_999)
    assert gap["turns_left_out"] == last[0]["turn"] - 1
    assert [item["turn"] for item in last] == list(range(last[0]["turn"], 5_000))


def test_the_judged_turn_is_shown_longer_than_what_came_before_it() -> None:
    held = talk(15, reply="x" * 15_000)
    data = shown(build(of_turn(held, 14), limits=ViewLimits(50_000)))
    assert data[-1]["messages"][1]["content"] == "x" * 15_000
    assert data[1]["messages"][1]["content"][1] == {"characters_left_out": 10_000}


def test_a_value_nested_too_deeply_is_named_as_left_out() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    shown = json.loads(data_line("injected_error", nested, NAMES).text)
    assert "nested too deeply" in shown["injected_error"]["left_out"]


def _common(text: str, before: str) -> int:
    pairs = zip(text, before, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _size(prompt: Prompt) -> int:
    return sum(len(message["content"]) for message in prompt.messages)
