"""Attachments before a judge: sent to models that read them, named where they are not shown, never guessed at."""

import json
from dataclasses import replace

import polars as pl
import pytest

from agent_eval.judge.engine import judge_transcripts, open_questions
from agent_eval.judge.estimate import estimate
from agent_eval.judge.llm.client import CallError, LiteLLMClient, Reply, attachment_kinds_of
from agent_eval.judge.prompts import Messages, Prompt, ViewLimits, build_prompt, shared_rubrics
from agent_eval.judge.prompts.attachments import (
    MEDIA_TYPES,
    MOST_ATTACHED,
    MOST_BYTES,
    TOKENS_PER_IMAGE,
    is_readable,
)
from agent_eval.metrics.base import NEEDS_MULTIMODAL as NEEDED
from agent_eval.metrics.base import NOT_FETCHED, NOT_SENDABLE
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.transcripts.attachments import Attachment, AttachmentKind
from agent_eval.transcripts.models import Conversation, Message
from tests.judge.fakes import Kept, ScriptedClient, panel_of
from tests.judge.material import admitted, agent, conversation, finding, humans, nothing, tables, user
from tests.judge.test_client import Server, complete, server  # noqa: F401
from tests.judge.test_requests import questions
from tests.transcripts.test_attachments import BYTES, PNG, URL
from tests.untyped import any_table

EVERY = frozenset(MEDIA_TYPES)
AUDIO = {"type": "input_audio", "input_audio": {"data": BYTES, "format": "wav"}}


def seen(reference: str = PNG, text: str = "What is it?") -> list[Message]:
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": reference}}]
    return [Message.model_validate({"role": "user", "content": content})]


TALK = conversation(seen(), agent("A cat."), user("Thanks"), agent("You are welcome."))


def judged(
    of: Conversation, client: ScriptedClient, kinds: frozenset[AttachmentKind], kept: Kept | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows, kept = tables(of), kept or Kept()
    held = rows.conversations.frame()
    panel = replace(panel_of(client, kept=kept), limits=lambda _: ViewLimits(kinds=kinds))
    of_all = (admitted(held), held, rows.turns.frame(), humans(), finding(kept.frame()))
    found = judge_transcripts(*any_table(of_all), panel=panel)
    return found.turn_judgments, found.conversation_judgments


def test_a_text_judge_is_not_asked_about_a_turn_with_an_image_and_is_told_of_it_in_later_turns() -> None:
    client = ScriptedClient()
    turns, whole = judged(TALK, client, frozenset())
    assert {row[0] for row in turns.filter(turn_index=0).select("unscored_reason").rows()} == {NEEDED}
    assert set(turns.filter(turn_index=1)["status"]) == {"scored"}
    assert set(whole.filter(metric="goal_completion")["unscored_reason"]) == {NEEDED}
    [asked] = client.asked
    assert "turn 0, message 0: [image, 1 kB, not shown]" in asked.messages[-1]["content"]
    assert asked.attachments == ()
    assert BYTES not in asked.messages[-1]["content"]


def test_a_multimodal_judge_is_asked_everything_and_an_answer_stays_when_it_is_replaced() -> None:
    client, kept = ScriptedClient(), Kept()
    turns, _ = judged(TALK, client, EVERY, kept)
    assert NEEDED not in set(turns["unscored_reason"])
    assert [[a.reference for a in prompt.attachments] for prompt in client.asked] == [[PNG], [PNG]]
    assert "turn 0, message 0: [image, 1 kB, attachment 1]" in client.asked[0].messages[-1]["content"]
    silent = ScriptedClient()
    again, _ = judged(TALK, silent, frozenset(), kept)
    assert not silent.asked
    assert again["unscored_reason"].to_list() == turns["unscored_reason"].to_list()


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (URL, NOT_FETCHED),
        ("file:///etc/passwd", NOT_FETCHED),
        (f"data:image/svg+xml;base64,{BYTES}", NOT_SENDABLE),
    ],
)
def test_what_is_no_data_url_of_a_known_type_is_never_sent(reference: str, reason: str) -> None:
    client = ScriptedClient()
    turns, _ = judged(conversation(seen(reference), agent("A cat.")), client, EVERY)
    assert set(turns["unscored_reason"]) == {reason}
    assert not client.asked


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_a_question_depends_on_images_of_the_agent_and_of_the_operator(role: str) -> None:
    shown = [seen()[0].model_copy(update={"role": role})]
    talk = conversation(*([shown, user("Hi")] if role == "system" else [user("Draw"), shown]), agent("Done."))
    client = ScriptedClient()
    turns, _ = judged(talk, client, frozenset())
    assert set(turns["unscored_reason"]) == {NEEDED}
    assert not client.asked


def test_a_spoken_reply_with_its_text_is_judged_by_its_text() -> None:
    spoken = Message.model_validate({"role": "assistant", "content": ["It is sent.", AUDIO]})
    turns, _ = judged(conversation(user("Sent?"), [spoken]), ScriptedClient(), frozenset())
    assert NEEDED not in set(turns["unscored_reason"])


class Refusing(ScriptedClient):
    """Rejects every call with the image `bad`."""

    bad = f"data:image/png;base64,{BYTES[:-8]}AAAAAAA="

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        if any(found.reference == self.bad for found in form.attachments):
            self.asked.append(form)
            raise CallError("refused", "400 invalid image")
        return await super().complete(messages, form, max_tokens)


def test_a_picture_that_the_server_rejects_costs_only_the_questions_that_depend_on_it() -> None:
    bad, good, client = seen(Refusing.bad), seen(), Refusing()
    talk = conversation(bad, agent("A cat."), good, agent("A dog."), user("Thanks"), agent("Welcome."))
    turns, whole = judged(talk, client, EVERY)
    assert set(turns.filter(turn_index=0)["unscored_reason"]) == {"judge_error"}
    assert set(turns.filter(pl.col("turn_index") > 0)["status"]) == {"scored"}
    assert set(whole.filter(metric="goal_completion")["unscored_reason"]) == {"judge_error"}
    assert [len(p.attachments) for p in client.asked if p.metrics[0].grain == "turn"] == [1, 1, 2, 1]


def test_a_stated_media_type_and_size_are_not_believed() -> None:
    facts = {"kind": "image", "media_type": "image/png", "size_bytes": 1}
    for reference in (f"data:text/html;base64,{BYTES}", f"data:image/png;base64,{'A' * MOST_BYTES}"):
        assert not is_readable(Attachment.model_validate(facts | {"reference": reference}), EVERY)
    assert is_readable(Attachment.model_validate(facts | {"reference": PNG}), EVERY)


def test_without_attachments_a_prompt_is_the_same_for_every_model() -> None:
    asked = questions(conversation(user("Hi"), agent("Hello.")), [HELPFULNESS])
    prompts = [build_prompt(asked, secret=b"s", limits=ViewLimits(kinds=k)) for k in (EVERY, frozenset())]
    assert prompts[0].prompt_hash == prompts[1].prompt_hash


def test_the_last_attachments_are_sent_where_there_are_too_many() -> None:
    content = [{"type": "image_url", "image_url": {"url": PNG}}] * (MOST_ATTACHED + 2)
    many = conversation([Message.model_validate({"role": "user", "content": content})], agent("Cats."))
    prompt = build_prompt(questions(many, [HELPFULNESS]), secret=b"s", limits=ViewLimits(kinds=EVERY))
    assert len(prompt.attachments) == MOST_ATTACHED
    assert prompt.messages[-1]["content"].count("[image, 1 kB, not shown]") == 2
    assert f"2 of {MOST_ATTACHED + 2} attachments are not shown" in prompt.messages[-1]["content"]
    assert prompt.n_left_out == 2
    assert prompt.seen_share == pytest.approx(MOST_ATTACHED / (MOST_ATTACHED + 2), abs=0.01)
    small = ViewLimits(context_tokens=16_384, kinds=EVERY)
    fewer = build_prompt(questions(many, [HELPFULNESS]), secret=b"s", limits=small)
    assert 0 < fewer.n_images < 5


def test_the_request_holds_the_images_after_the_fenced_text(server: Server) -> None:  # noqa: F811
    asked_of = questions(TALK, [HELPFULNESS])[:1]
    prompt = build_prompt(asked_of, secret=b"s", limits=ViewLimits(kinds=EVERY))
    complete(LiteLLMClient("openai/mock"), prompt)
    [asked] = server.asked
    text, label, image = json.loads(json.dumps(asked["messages"]))[-1]["content"]
    assert text == {"type": "text", "text": prompt.messages[-1]["content"]}
    assert label["text"] == "Attachment 1 of the record, data like the record:"
    assert image == {"type": "image_url", "image_url": {"url": PNG}}


def test_litellm_knows_which_kinds_a_model_reads() -> None:
    assert "image" in attachment_kinds_of("openai/gpt-4o-mini")
    assert attachment_kinds_of("openai/some-local-model") == frozenset()


def test_an_estimate_counts_images_and_says_what_is_not_counted() -> None:
    heard = [Message.model_validate({"role": "user", "content": [AUDIO]})]
    rows = tables(conversation(seen(), agent("A cat."), heard, agent("A dog.")))
    held = rows.conversations.frame()
    sequences = open_questions(admitted(held), held, rows.turns.frame(), DEFAULT, {})
    shown = shared_rubrics(DEFAULT.metrics)

    def estimated(kinds: frozenset[AttachmentKind]) -> tuple[int, int, int, int]:
        panel = replace(panel_of(ScriptedClient()), limits=lambda _: ViewLimits(kinds=kinds))
        found = estimate(panel.planned(sequences, nothing(())), shown, panel.limits_of("scripted"))
        return found.n_calls, found.n_images, found.n_uncounted, found.n_tokens_in

    assert estimated(frozenset())[:3] == (0, 0, 0)
    n_metrics = sum(len(question.metrics) for sequence in sequences for question in sequence.questions)
    assert panel_of(ScriptedClient()).n_unreadable(sequences) == n_metrics
    n_calls, n_images, n_uncounted, n_tokens = estimated(EVERY)
    assert (n_calls, n_images, n_uncounted) == (2, 2, 1)
    assert n_tokens > 2 * TOKENS_PER_IMAGE
