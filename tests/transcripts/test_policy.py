"""The operator's orders: found in messages, metadata and benchmark files, and part of what a judgment is given on."""

import json
from pathlib import Path

from agent_eval.judge.prompts import build_prompt
from agent_eval.judge.protocol import Question
from agent_eval.metrics.builtin.policy_adherence import POLICY_ADHERENCE
from agent_eval.transcripts.content_hash import turn_hashes
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.sessions import read_sessions

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]


def talk(*opening: dict[str, str], **facts: object) -> Conversation:
    return Conversation.model_validate({"conversation_id": "c", "messages": [*opening, *TALK], **facts})


def first_hash(conversation: Conversation) -> str:
    return next(iter(turn_hashes(conversation, conversation.turns())))


def test_the_policy_is_that_of_the_metadata_and_of_the_messages_before_the_user_speaks() -> None:
    system, developer = {"role": "system", "content": "A."}, {"role": "developer", "content": "B."}
    assert talk().policy is None
    assert talk(system, developer).policy == "A.\n\nB."
    assert talk(system, metadata={"policy": "P."}).policy == "P.\n\nA."
    assert talk(system, metadata={"policy": "A."}).policy == "A."
    late = Conversation.model_validate({"conversation_id": "c", "messages": [*TALK, system]})
    assert late.policy is None


def test_a_policy_enters_the_content_and_its_absence_changes_nothing() -> None:
    assert first_hash(talk(metadata={"policy": "P."})) != first_hash(talk(metadata={"policy": "Q."}))
    assert first_hash(talk(metadata={"note": "x"})) == first_hash(talk())


def test_tools_that_an_importer_keeps_in_the_metadata_are_the_conversations() -> None:
    assert talk(metadata={"tools": [{"name": "find"}]}).tools == ({"name": "find"},)
    assert talk(metadata={"tools": "none"}).tools is None


def test_the_policy_and_the_tools_of_a_tau2_file_reach_the_prompt(tmp_path: Path) -> None:
    environment = {"domain_name": "air", "policy": "Ask before you book.", "tool_defs": [{"name": "book"}]}
    file = {
        "info": {"environment_info": environment},
        "tasks": [],
        "simulations": [{"task_id": "1", "trial": 0, "messages": TALK, "reward_info": {"reward": 1.0}}],
    }
    (tmp_path / "r.json").write_text(json.dumps(file))
    import_file("tau2", tmp_path / "r.json", sessions_folder=tmp_path / "s", agent_id="a")
    taken = read_sessions("a", tmp_path / "s" / "a")
    [(_, conversation)] = conversations_from(taken.conversations, taken.turns)
    assert conversation.policy == "Ask before you book."
    assert conversation.tools == ({"name": "book"},)
    question = Question((conversation,), (conversation.turns(),), 0, "h", (POLICY_ADHERENCE,))
    [_, sent] = build_prompt([question], secret=b"s").messages
    assert '"policy": "Ask before you book."' in sent["content"]
    assert '"tools": [{"name": "book"}]' in sent["content"]
