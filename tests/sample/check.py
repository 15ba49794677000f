"""The hard look at authored files: every problem of a file is listed, each with its place and the fix."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from agent_eval.errors import AgentEvalError
from agent_eval.judge.evidence import Transcript
from agent_eval.methodology.registry import Registry
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE
from agent_eval.metrics.metric_set import applicable, expected_of
from agent_eval.transcripts.models import SLOTS, Conversation, Turn
from tests.sample.authored_format import (
    RATED,
    AuthoredAgent,
    AuthoredConversation,
    AuthoredSession,
    AuthoredTurn,
)

JUDGED = ("U1", "U2", "U3", "U6")  # always; U4 with an injected error; U5 is counted


class AuthoredSampleError(AgentEvalError):
    """Authored files do not keep their format; all problems are listed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} problems in the authored sample:\n{listed}")


def read_authored(path: Path) -> AuthoredAgent:
    """One file, checked. AuthoredSampleError lists everything that is wrong with it."""
    try:
        agent = AuthoredAgent.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader))
    except yaml.YAMLError as error:
        raise AuthoredSampleError([f"{path.name}: no YAML: {error}"]) from error
    except ValidationError as error:
        found = [f"{path.name}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise AuthoredSampleError(found) from error
    if problems := [f"{path.name}: {problem}" for problem in problems_of(agent)]:
        raise AuthoredSampleError(problems)
    return agent


def problems_of(agent: AuthoredAgent) -> list[str]:
    """Everything that contradicts the format or the transcript, in the file's order."""
    templates = {t.category: t for t in Registry.read().current.templates}
    template = templates.get(agent.agent.category or "")
    if template is None:
        return [f"agent.category {agent.agent.category!r} is not one of {', '.join(templates)}"]
    criteria = [criterion.id for criterion in template.criteria]
    of_sessions = [problem for session in agent.sessions for problem in _session(session, criteria)]
    return [*of_sessions, *_human_ratings(agent, criteria)]


def _session(session: AuthoredSession, criteria: Sequence[str]) -> Iterator[str]:
    at = session.session_id
    if session.session.session_id not in (None, at):
        yield f"{at}: session.session_id is {session.session.session_id!r}, expected {at!r} or nothing"
    if session.session.invalid_reason is not None:
        if session.ratings:
            yield f"{at}: the session is invalid and must not be rated; remove ratings"
        return
    yield from _session_ratings(session)
    yield from _scope(session)
    for conversation in session.conversations:
        yield from _conversation(conversation, criteria)


def _session_ratings(session: AuthoredSession) -> Iterator[str]:
    at = f"{session.session_id}: ratings"
    tests = {c.scenario for c in session.conversations} | set(session.session.links.values())
    needed = {*JUDGED, "U4"} if "error_injection" in tests else set(JUDGED)
    if absent := sorted(needed - set(session.ratings)):
        yield f"{at}: {', '.join(absent)} missing"
    if extra := sorted(set(session.ratings) - needed):
        yield f"{at}: {', '.join(extra)} not expected here (U4 needs an error_injection, U5 is counted)"
    if unknown := [c.conversation_id for c in session.conversations if c.interventions is None]:
        yield f"{at}: U5 cannot be counted, interventions are null in {', '.join(unknown)}; write [] for none"
    transcripts = [Transcript(c.native().turns()) for c in session.conversations]
    for target, (_, _, quote) in session.ratings.items():
        if not any(t.holds(quote) for t in transcripts):
            yield f"{at}.{target}: the quote is in no conversation of the session: {quote!r}"


def _scope(session: AuthoredSession) -> Iterator[str]:
    at, scope = session.session_id, session.session.u3_scope
    longest = max((_n_users(c) for c in session.conversations), default=0)
    if scope == "multi_turn" and longest < 2:
        yield f"{at}: u3_scope multi_turn needs a conversation with two user messages, found {longest}"
    if scope == "single_message" and longest > 1:
        yield f"{at}: u3_scope is single_message, but a conversation has {longest} user messages"


def _n_users(conversation: AuthoredConversation) -> int:
    return sum(turn.user is not None for turn in conversation.turns)


def _conversation(authored: AuthoredConversation, criteria: Sequence[str]) -> Iterator[str]:
    at, conversation = authored.conversation_id, authored.native()
    turns = conversation.turns()
    if len(turns) != len(authored.turns):
        yield f"{at}: {len(authored.turns)} turns make {len(turns)}; only the first may lack a user message"
        return
    for index, turn in enumerate(authored.turns):
        for problem in _turn(turn, turns[index], conversation):
            yield f"{at}: turn {index}: {problem}"
    yield from (f"{at}: {problem}" for problem in _verdicts(authored, conversation, criteria))
    yield from (f"{at}: {problem}" for problem in _facts(authored))


def _turn(authored: AuthoredTurn, turn: Turn, conversation: Conversation) -> Iterator[str]:
    if turn.reply != "replied":
        if authored.ratings or authored.failures.agent or authored.failures.tool:
            yield "there is no reply, so there is nothing to rate; remove ratings and failures"
        return
    for name in ("why", "quote", "ratings"):
        if getattr(authored, name) is None:
            yield f"{name} is missing"
    if unknown := sorted(set(authored.notes) - {m.name for m in RATED}):
        yield f"notes for unknown ratings: {', '.join(unknown)}"
    for name in ("quote", "failure_quote"):
        quote = getattr(authored, name)
        if quote is not None and not _is_in(turn, quote):
            yield f"{name} is not in this turn word for word: {quote!r}"
    yield from _failures(authored, turn, conversation)
    yield from _answer(authored, turn, conversation)


def _is_in(turn: Turn, quote: str) -> bool:
    return Transcript([turn]).holds(quote)


def failures_of(authored: AuthoredTurn) -> dict[Metric, tuple[str, ...]]:
    """Metric → its labels."""
    given = authored.failures
    return {AGENT_BEHAVIOR_FAILURE: given.agent, TOOL_CALL_BEHAVIOR_FAILURE: given.tool}


def _failures(authored: AuthoredTurn, turn: Turn, conversation: Conversation) -> Iterator[str]:
    given = failures_of(authored)
    if any(given.values()) and authored.failure_why is None:
        yield "failures need a failure_why"
    if not any(given.values()) and (authored.failure_why or authored.failure_quote):
        yield "failure_why and failure_quote without failures; remove them or name the failures"
    is_asked = applicable(TOOL_CALL_BEHAVIOR_FAILURE, turn, conversation, None)
    if authored.failures.tool and not is_asked:
        yield "tool failures without a tool call or an available tool"
    faithfulness = authored.ratings[3] if authored.ratings else None
    if "false information" in authored.failures.agent and faithfulness is not None and faithfulness > 3:
        yield f"'false information' with faithfulness {faithfulness}; at most 3 agrees with the anchors"


def _answer(authored: AuthoredTurn, turn: Turn, conversation: Conversation) -> Iterator[str]:
    truth = expected_of(turn.turn_index, conversation.expected)
    is_expected = truth is not None and truth.answer is not None
    if is_expected != (authored.answer_correctness is not None):
        yield "answer_correctness [value, rationale, quote] goes with an expected answer, and only with one"
    if authored.answer_correctness and not _is_in(turn, authored.answer_correctness[2]):
        yield f"answer_correctness: the quote is not in this turn: {authored.answer_correctness[2]!r}"


def _verdicts(
    authored: AuthoredConversation, conversation: Conversation, criteria: Sequence[str]
) -> Iterator[str]:
    transcript = Transcript(conversation.turns())
    if authored.goal_completion is None:
        yield "goal_completion is missing"
    else:
        value, _, quote = authored.goal_completion
        if not transcript.holds(quote):
            yield f"goal_completion: the quote is not in the conversation: {quote!r}"
        if authored.outcome.correct is not None and authored.outcome.correct != bool(value):
            declared = str(authored.outcome.correct).lower()
            why = (
                "the declared outcome wins over the verdict, so they must agree (or outcome.correct is null)"
            )
            yield f"goal_completion is {value}, but outcome.correct is {declared}; {why}"
    given = authored.criteria or {}
    needed = set(criteria) if authored.scenario in SLOTS else set[str]()
    if set(given) != needed:
        yield f"criteria are {sorted(given)}, expected {sorted(needed)}"
    for name, (_, _, quote) in given.items():
        if not transcript.holds(quote):
            yield f"criteria.{name}: the quote is not in the conversation: {quote!r}"


def _facts(authored: AuthoredConversation) -> Iterator[str]:
    n = len(authored.turns)
    if authored.scenario == "error_injection" and authored.injected_error is None:
        yield "an error_injection needs injected_error, an object that describes the broken input"
    for what, named in (("an intervention", authored.interventions or ()), ("expected", authored.expected)):
        for part in named:
            if part.turn_index is not None and part.turn_index >= n:
                yield f"{what} names turn {part.turn_index}, but there are {n} turns"
    known = {str(tool.get("name")) for tool in authored.tools}
    called = {part.call for turn in authored.turns for part in turn.reply if not isinstance(part, str)}
    if unknown := sorted(called - known):
        yield f"calls tools that are not declared: {', '.join(unknown)}"


def _human_ratings(agent: AuthoredAgent, criteria: Sequence[str]) -> Iterator[str]:
    held = {s.session_id: {c.conversation_id: c for c in s.conversations} for s in agent.sessions}
    turn_targets = {m.name for m in RATED}
    for i, row in enumerate(agent.human_ratings):
        at = f"human_ratings.{i}"
        conversation = held.get(row.session_id, {}).get(row.conversation_id or "")
        if row.session_id not in held:
            yield f"{at}: session {row.session_id!r} is not in this file"
        elif row.conversation_id is not None and conversation is None:
            yield f"{at}: session {row.session_id} has no conversation {row.conversation_id!r}"
        if row.target in SLOTS:
            if conversation is None or conversation.scenario != row.target or row.criterion not in criteria:
                yield f"{at}: {row.target} needs a conversation in that slot and a criterion of {', '.join(criteria)}"
        elif row.target in turn_targets:
            if conversation is None or row.turn_index is None or row.turn_index >= len(conversation.turns):
                yield f"{at}: {row.target} needs a conversation and one of its turns"
        elif row.target not in {"U1", "U2", "U3", "U4", "U5", "U6"} or row.conversation_id is not None:
            yield f"{at}: target {row.target!r} is not U1..U6 (without conversation), D1..D5 or a turn rating"


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for (key_node, _), key in zip(node.value, keys, strict=True):
            if keys.count(key) > 1:
                twice = f"the key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, twice, key_node.start_mark)
        return super().construct_mapping(node, deep)
