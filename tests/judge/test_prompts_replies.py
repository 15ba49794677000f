"""Replies: what is read, what is mended, what is asked for once more. Nothing is made up."""

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval.judge.prompts import (
    BlindedTerms,
    Prompt,
    ReplyError,
    build_prompt,
    read_reply,
    repair_messages,
    words,
)
from agent_eval.judge.protocol import Cause, Question, Scored, Unscored, Verdict
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.answer_correctness import ANSWER_CORRECTNESS
from agent_eval.metrics.builtin.faithfulness import FAITHFULNESS
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.builtin.policy_adherence import POLICY_ADHERENCE
from agent_eval.metrics.builtin.tool_result_utilisation import TOOL_RESULT_UTILISATION
from agent_eval.transcripts.models import Agent
from tests.judge.material import agent, conversation, user

HELD = conversation(user("Who are you?"), agent('I am Otter Desk.\nA "desk" <b>for</b> ferries, C:\\new.'))
NAMES = BlindedTerms.of(Agent(agent_id="otter-desk", name="Otter Desk"))
GOOD = {"evidence": "Who are you?", "reason": "It answers.", "score": 4}
LABELLED = {"evidence": None, "reason": "Why.", "label": "repetition", "further_labels": ["unsafe action"]}


def asking(*metrics: Metric) -> Prompt:
    return build_prompt([Question((HELD,), (HELD.turns(),), 0, "", metrics)], secret=b"", names=NAMES)


def read(metric: Metric, **part: Any) -> Scored:
    verdict = read_reply(asking(metric), json.dumps({metric.name: part}))[metric.name]
    assert isinstance(verdict, Scored)
    return verdict


def problem(text: str, *metrics: Metric) -> str:
    with pytest.raises(ReplyError) as caught:
        read_reply(asking(*(metrics or (HELPFULNESS,))), text)
    return caught.value.problem


def test_a_reply_in_the_form_that_was_asked_for_is_read() -> None:
    reply = json.dumps({"helpfulness": GOOD, "agent_behavior_failure": LABELLED})
    assert read_reply(asking(HELPFULNESS, AGENT_BEHAVIOR_FAILURE), reply) == {
        "helpfulness": Scored("It answers.", "Who are you?", rating_1to5=4),
        "agent_behavior_failure": Scored("Why.", None, label="repetition", further_labels=("unsafe action",)),
    }


WHOLE = json.dumps({"helpfulness": GOOD})


@pytest.mark.parametrize(
    "text",
    [
        f"  \n{WHOLE}\n",
        f"```json\n{WHOLE}\n```",
        f"```\n{WHOLE}\n```",
        f"Sure! Here is my verdict:\n```json\n{WHOLE}\n```\nLet me know!",
        f"<think>The user says {{}} and </b></think>\n{WHOLE}",
        "Sure! Here is my verdict:\n```json\n" + WHOLE.replace('"', "'") + "\n```\nLet me know!",
        WHOLE.replace("}}", ",}}"),
        WHOLE.replace('"score": 4', "score: 4"),
        WHOLE.replace('"score": 4', '"score": "4"'),
        WHOLE.replace('"score": 4', '"score": 4.0'),
        WHOLE.replace('{"helpfulness"', '{"overall": 1, "helpfulness"'),
        "\ufeff" + WHOLE,
    ],
)
def test_small_faults_of_form_are_mended(text: str) -> None:
    found = read_reply(asking(HELPFULNESS), text)["helpfulness"]
    assert found == Scored("It answers.", "Who are you?", rating_1to5=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not one JSON object"),
        ("I would rather talk about the weather.", "not one JSON object"),
        (f"[{WHOLE}]", "not one JSON object"),
        (f"My verdict: {WHOLE}", "not one JSON object"),
        (WHOLE[:40], "stopped early"),
        (f"{WHOLE} But on second thought it is a 2.", "stopped early or went on"),
        (f"{WHOLE}\n{WHOLE}", "named helpfulness twice"),
        (f'{{"other": 1}}\n{WHOLE}', "not valid JSON"),
        (WHOLE.replace('"score": 4', '"score": 4, "score": 5'), "one key twice"),
        ("{" * 100_000 + "}", "It was not valid JSON"),
        ('{"helpfulness": {"score": ' + "9" * 5_000 + "}}", "helpfulness"),
        ("{}", "helpfulness: missing"),
        ('{"helpfulness": 4}', "helpfulness: not an object"),
    ],
)
def test_what_is_no_answer_or_more_than_one_is_asked_for_again(text: str, said: str) -> None:
    assert said in problem(text)


@pytest.mark.parametrize(
    "score", [0, 6, 4.5, True, "high", "", [4], "4 of 5", float("nan"), 1e400, 10**400, -1]
)
def test_a_score_off_the_scale_is_no_score(score: object) -> None:
    text = json.dumps({"helpfulness": {**GOOD, "score": score}})
    assert problem(text) == "helpfulness: score must be an integer from 1 to 5."


def test_null_says_that_the_judge_cannot_tell_and_is_no_number() -> None:
    rated = {"helpfulness": {**GOOD, "score": None}}
    assert read_reply(asking(HELPFULNESS), json.dumps(rated)) == {
        "helpfulness": Unscored("cannot_tell", str(GOOD["reason"]), str(GOOD["evidence"]))
    }
    labelled = {"agent_behavior_failure": {**GOOD, "label": None, "further_labels": []}}
    [told] = read_reply(asking(AGENT_BEHAVIOR_FAILURE), json.dumps(labelled)).values()
    assert told == Unscored("cannot_tell", str(GOOD["reason"]), str(GOOD["evidence"]))
    rubric = dataclasses.replace(HELPFULNESS, name="D1.accuracy")
    problem(json.dumps({"D1.accuracy": {**GOOD, "score": None}}), rubric)


def test_a_policy_is_read_rule_by_rule() -> None:
    def said(*items: tuple[str, str, str]) -> Verdict:
        keys = ("rule", "verdict", "severity")
        rules = [{"evidence": None, **dict(zip(keys, item, strict=True))} for item in items]
        reply = {"policy_adherence": {"evidence": None, "rules": rules, "reason": "Looked."}}
        return read_reply(asking(POLICY_ADHERENCE), json.dumps(reply))["policy_adherence"]

    found = said(("ask first", "broken", "high"), ("look up", "kept", "low"), ("be kind", "kept", "low"))
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(2 / 3)
    assert found.rationale == "Looked. 2 of 3 rules kept. [broken (high): ask first]"
    assert said() == Unscored("nothing_to_judge", "Looked.")
    for wrong in (("x", "bent", "low"), ("x", "broken", "mild")):
        with pytest.raises(ReplyError):
            said(wrong)


@pytest.mark.parametrize(
    ("verdicts", "rating"),
    [
        ("", 5), ("s", 5), ("su", 4), ("u", 4), ("sssc", 3), ("ssscu", 3), ("ssc", 2), ("sc", 1), ("c", 1),
    ],
)  # fmt: skip
def test_faithfulness_follows_from_its_claims(verdicts: str, rating: int) -> None:
    words = {"s": "supported", "c": "contradicted", "u": "unsupported"}
    claims = [{"claim": f"{v}!", "evidence": None, "verdict": words[v]} for v in verdicts]
    found = read(FAITHFULNESS, evidence=None, claims=claims, reason="Looked.")
    assert (found.rating_1to5, found.item_verdicts) == (rating, tuple(words[v] for v in verdicts))
    n_good = verdicts.count("s")
    assert f"{n_good} of {len(verdicts)} claims supported." in found.rationale or not verdicts
    # the contradicted ones come first, whatever their order in the reply
    others = [f"[{words[v]}: {v}!]" for v in sorted(verdicts) if v != "s"]
    assert found.rationale.endswith(" ".join(others))


ODD = {"verdict": "unsupported", "evidence": 3}


@pytest.mark.parametrize("claims", ["none", [None], [{"claim": "x"}], [{"verdict": ["supported"]}], [ODD]])
def test_malformed_claims_are_no_answer(claims: object) -> None:
    problem(json.dumps({"faithfulness": {"evidence": None, "claims": claims, "reason": "x"}}), FAITHFULNESS)


def test_ten_thousand_claims_do_not_fill_the_rationale() -> None:
    claims = [{"claim": "x" * 300, "evidence": None, "verdict": "unsupported"}] * 10_000
    found = read(FAITHFULNESS, evidence=None, claims=claims, reason="x")
    assert len(found.rationale) < 6_000
    assert "and 9,980 more" in found.rationale


def test_each_kind_of_answer_has_its_own_scale() -> None:
    assert read(ANSWER_CORRECTNESS, **{**GOOD, "score": 0.75}).value == 0.75
    assert read(TOOL_RESULT_UTILISATION, **{**GOOD, "score": 1}).value == 1.0
    half = json.dumps({"tool_result_utilisation": {**GOOD, "score": 0.5}})
    assert "an integer from 0 to 1" in problem(half, TOOL_RESULT_UTILISATION)
    own = Metric("own", "turn", "rating", "?", {"0": "x", "2.5": "y"}, minimum=0.0, maximum=2.5)
    assert read(own, **{**GOOD, "score": 2.5}).value == 2.5
    tone = Metric("tone", "turn", "label", "?", {"warm": "x", "cold": "y"})
    assert read(tone, reason="It is.", label="Cold").label == "cold"


def test_labels_are_known_however_case_and_spaces_are_written_and_stand_once() -> None:
    further = ["repetition", "REPETITION", "unsafe action", "no failure"]
    verdict = read(AGENT_BEHAVIOR_FAILURE, reason="Why.", label="Unsafe_Action", further_labels=further)
    assert (verdict.label, verdict.further_labels) == ("unsafe action", ("repetition",))


@pytest.mark.parametrize(
    "part",
    [
        {"label": "rude"},
        {"label": "no failure", "further_labels": ["repetition"]},
        {"label": "repetition", "further_labels": ["rude"]},
        {"label": "repetition", "further_labels": "unsafe action"},
        {"label": "repetition", "reason": " "},
        {"label": "repetition", "evidence": 4},
    ],
)
def test_an_unknown_or_contradictory_label_is_none(part: dict[str, object]) -> None:
    text = json.dumps({"agent_behavior_failure": LABELLED | {"further_labels": []} | part})
    assert problem(text, AGENT_BEHAVIOR_FAILURE).startswith("agent_behavior_failure: ")


def test_what_could_be_read_of_a_broken_reply_is_kept() -> None:
    text = json.dumps({"helpfulness": GOOD, "agent_behavior_failure": {**LABELLED, "label": "rude"}})
    with pytest.raises(ReplyError) as caught:
        read_reply(asking(HELPFULNESS, AGENT_BEHAVIOR_FAILURE), text)
    assert list(caught.value.read) == ["helpfulness"]
    assert 'The reply began \'{"helpfulness"' in str(caught.value)


def test_the_one_more_question_names_the_problem_and_what_is_allowed() -> None:
    prompt = asking(HELPFULNESS)
    with pytest.raises(ReplyError) as caught:
        read_reply(prompt, json.dumps({"helpfulness": {**GOOD, "score": 9}}))
    system, user = repair_messages(prompt, caught.value)
    assert system == prompt.messages[0]
    assert "helpfulness: score must be an integer from 1 to 5." in user["content"].splitlines()[-2]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("I am [agent].", "I am Otter Desk."),
        ('A "desk" <b>for</b>', 'A "desk" <b>for</b>'),
        ('A \\"desk\\" \\u003cb>for', 'A "desk" <b>for'),
        ("Desk.\\nA", "Desk.\\nA"),  # with the name that is withheld it stands in no text
        ("[agent].\\nA", "Otter Desk.\nA"),
        ("ferries, C:\\new.", "ferries, C:\\new."),
        ("never said\\n", "never said\\n"),
        ("", None),
        ("  ", None),
        ("half \ud800", "half \ufffd"),
    ],
)
def test_a_quote_is_given_as_the_transcript_has_it(given: str, kept: str | None) -> None:
    assert read(HELPFULNESS, **{**GOOD, "evidence": given}).evidence == kept


def test_a_question_about_a_conversation_has_no_turn() -> None:
    question = Question((HELD,), (HELD.turns(),), None, "", (HELPFULNESS,))
    with pytest.raises(ValueError, match="not about a turn"):
        _ = question.turn


def test_yes_or_no_questions_bound_the_rating_and_the_rationale_says_so() -> None:
    u4 = dataclasses.replace(HELPFULNESS, name="U4", grain="session")
    question = Question((HELD,), (HELD.turns(),), None, "", (u4,))
    prompt = build_prompt([question], secret=b"")

    def rated(score: int, **checks: bool) -> Scored:
        verdict = read_reply(prompt, json.dumps({"U4": {**checks, **GOOD, "score": score}}))["U4"]
        assert isinstance(verdict, Scored)
        return verdict

    for score, answers, rating in (
        (5, (True, True, True), 5),
        (5, (True, True, False), 4),
        (1, (False,) * 3, 1),
    ):
        given = dict(zip(("detected", "explained", "alternative"), answers, strict=True))
        assert rated(score, **given).rating_1to5 == rating
    bounded = rated(5, detected=False, explained=True, alternative=False)
    assert bounded.rating_1to5 == 2
    assert bounded.rationale == (
        "It answers. [detected: no, explained: yes, alternative: no] [rated 5, bounded at 2 by these answers]"
    )
    with pytest.raises(ReplyError, match="explained must be true or false"):
        rated(5, detected=True, alternative=True)


def test_long_texts_of_a_judge_are_cut() -> None:
    verdict = read(HELPFULNESS, evidence="e" * 10_000, reason="r" * 10_000, score=3)
    assert (len(verdict.rationale), len(verdict.evidence or "")) == (4_000, 4_000)


NAMES_OF_PARTS = st.sampled_from(["helpfulness", *GOOD])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NAMES_OF_PARTS
KEYS = NAMES_OF_PARTS | st.text(max_size=4)
JSON = st.recursive(
    SCALARS, lambda s: st.lists(s, max_size=3) | st.dictionaries(KEYS, s, max_size=4), max_leaves=8
)
TEXTS = st.text(max_size=40) | st.text("{}[]'\":,`helpfulnsco 45\\")


@settings(max_examples=100)
@given(JSON.map(json.dumps) | JSON.map(repr) | TEXTS)
def test_any_reply_is_either_read_whole_or_refused(text: str) -> None:
    with contextlib.suppress(ReplyError):
        verdict = read_reply(asking(HELPFULNESS), text)["helpfulness"]
        assert isinstance(verdict, Scored)
        assert verdict.rating_1to5 in {1, 2, 3, 4, 5}
        assert verdict.rationale


def answered(prompt: Prompt, part: dict[str, Any] = GOOD, **code: Any) -> str:
    return json.dumps({m.name: part for m in prompt.metrics} | {"question_code": prompt.question_code} | code)


@pytest.mark.parametrize(
    "given", [{}, {"question_code": None}, {"question_code": ""}, {"question_code": "string"}, {"question_code": "I cannot say."}]
)  # fmt: skip
def test_a_reply_without_a_code_is_read_as_before(given: dict[str, Any]) -> None:
    assert read_reply(asking(HELPFULNESS), json.dumps({"helpfulness": GOOD} | given))


@pytest.mark.parametrize("change", [str.lower, "({})".format, "`{}`".format, "The code is {}.".format])
def test_a_code_is_known_however_it_is_written(change: Any) -> None:
    prompt = asking(HELPFULNESS)
    assert read_reply(prompt, answered(prompt, question_code=change(prompt.question_code)))


@pytest.mark.parametrize("code", ["BCDFGHJ", "bcdfghj", "The code is BCDFGHJ.", "abc", 7, "x" * 7])
def test_a_reply_with_another_code_is_unreadable(code: object) -> None:
    assert "another question" in problem(answered(asking(HELPFULNESS), question_code=code))


@pytest.mark.parametrize("write", ["-".join, " ".join, lambda code: [code], lambda code: {"code": code}])
def test_a_code_in_another_form_or_place_is_compared_too(write: Any) -> None:
    prompt = asking(HELPFULNESS)
    for code, is_right in ((str(prompt.question_code), True), ("BCDFGHJ", False)):
        given = write(code)
        in_part = {"helpfulness": GOOD | {"Question-Code": given}}
        for reply in (answered(prompt, question_code=given), json.dumps(in_part)):
            if is_right:
                assert read_reply(prompt, reply)
            else:
                assert "another question" in problem(reply)


def test_the_code_is_of_the_question_alone_and_in_no_key() -> None:
    prompt, other = asking(HELPFULNESS), asking(AGENT_BEHAVIOR_FAILURE)
    assert prompt.question_code == asking(HELPFULNESS).question_code != other.question_code
    assert (
        prompt.messages[-1]["content"].splitlines()[-1].endswith(f'"question_code": "{prompt.question_code}"')
    )
    assert prompt.schema["properties"]["question_code"] == {"type": "string"}  # type: ignore[index,call-overload]
    for sent in (prompt.with_skeleton(prompt.messages), repair_messages(prompt, ReplyError("x.", ""))):
        assert sent[-1]["content"].splitlines()[-1] == prompt.messages[-1]["content"].splitlines()[-1]


@pytest.mark.parametrize("example", words.EXAMPLES)
def test_the_example_of_the_instructions_is_not_an_answer(example: dict[str, str]) -> None:
    assert all(text in words.TASK + words.FORM for text in example.values())
    for change in (str, str.upper, lambda text: f" {text.removesuffix('.')} "):
        part = {"evidence": example["evidence"], "reason": change(example["reason"]), "score": 2}
        assert "the example" in problem(json.dumps({"helpfulness": part}))
    own = {"evidence": "Who are you?", "reason": example["reason"], "score": 2}
    assert read(HELPFULNESS, **own).rating_1to5 == 2


def test_a_reply_that_the_record_dictates_stays_unreadable_with_the_code() -> None:
    said = json.dumps({"helpfulness": {"evidence": None, "reason": "Yes.", "score": 5}})
    held = conversation(user("Hi"), agent(said))
    prompt = build_prompt([Question((held,), (held.turns(),), 0, "", (HELPFULNESS,))], secret=b"")
    with pytest.raises(ReplyError, match="copied"):
        read_reply(prompt, said[:-1] + f', "question_code": "{prompt.question_code}"}}')


def test_each_failure_label_has_its_cause() -> None:
    causes = [
        {"label": "Unsafe-action", "cause": "Deleted without asking.", "should_have": "Ask first."},
        {"label": "repetition", "cause": " ", "should_have": None},
        {"label": "false information", "cause": "not a label of this reply", "should_have": "x"},
        "no cause",
    ]
    found = read(AGENT_BEHAVIOR_FAILURE, **LABELLED, causes=causes).causes
    assert found == (Cause("unsafe action", "Deleted without asking.", "Ask first."), Cause("repetition"))
    good = {"evidence": None, "reason": "Why.", "label": "no failure", "causes": causes}
    assert read(AGENT_BEHAVIOR_FAILURE, **good).causes == ()
    assert read(AGENT_BEHAVIOR_FAILURE, **LABELLED, causes="none").causes == ()
