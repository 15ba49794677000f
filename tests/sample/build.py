"""Builds the shipped sample from tests/sample/authored: `python -m tests.sample.build [OUT]`, default OUT data/.

`--check-only FILE…` validates single files, `--check` compares OUT with a fresh build. The same input gives the same
bytes. Verdicts are keyed by the content they were given on, so a changed transcript needs a new build.
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import JsonValue

from agent_eval.errors import AgentEvalError
from agent_eval.judge.inputs.human_ratings import COLUMNS, read_ratings
from agent_eval.judge.inputs.recorded_verdicts import read_verdicts
from agent_eval.judge.keys import cache_key, question_key
from agent_eval.methodology.models import Methodology
from agent_eval.methodology.registry import Registry
from agent_eval.metrics.base import NO_FAILURE, Metric
from agent_eval.metrics.builtin.answer_correctness import ANSWER_CORRECTNESS
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.builtin.tool_result_utilisation import TOOL_RESULT_UTILISATION
from agent_eval.metrics.metric_set import applicable
from agent_eval.metrics.profile import asked_since
from agent_eval.metrics.rubrics import criterion_metrics, universal_metrics
from agent_eval.transcripts.content_hash import conversation_hash, session_hash, turn_hashes
from agent_eval.transcripts.models import Conversation, Message, Turn
from tests.sample.authored_format import (
    RATED,
    AuthoredAgent,
    AuthoredConversation,
    AuthoredSession,
    AuthoredTurn,
    Rating,
)
from tests.sample.check import AuthoredSampleError, failures_of, read_authored

AUTHORED = Path(__file__).parent / "authored"
DATA = Path(__file__).parents[2] / "data"
MODEL = "author:agent_eval-sample"
BUILT = ("agents.yaml", "sessions", "verdicts", "ratings")
IGNORED_ANSWERS = "ignored tool result"

Answer = dict[str, JsonValue]
Methodologies = Mapping[str, Methodology]


@dataclass(frozen=True)
class Verdict:
    """One recorded answer, before its keys."""

    content_hash: str
    turn_index: int | None
    metric: Metric
    answer: Answer
    judged_at: str
    place: str  # for messages

    @property
    def question(self) -> str:
        name = self.metric.name
        of_metric = (name, self.metric.rubric_hash, asked_since(name))
        return question_key(self.content_hash, self.turn_index, *of_metric)

    def row(self) -> dict[str, JsonValue]:
        """A line of data/verdicts."""
        return {
            "cache_key": cache_key(self.question, MODEL, {}),
            "question_key": self.question,
            "content_hash": self.content_hash,
            "turn_index": self.turn_index,
            "metric": self.metric.name,
            "rubric_hash": self.metric.rubric_hash,
            "profile_version": asked_since(self.metric.name),
            "model": MODEL,
            "parameters": {},
            "repeat": 0,
            "verdict": self.answer,
            "judged_at": self.judged_at,
        }


def build(authored: Path = AUTHORED, methodologies: Methodologies | None = None) -> dict[str, str]:
    """Every file of the sample: path under data/ → text.

    Raises:
        AuthoredSampleError: If an authored file breaks its format; all problems of all files are listed.
    """
    agents = read_all(authored)
    known = published() if methodologies is None else methodologies
    entries = [agent.agent.model_dump(mode="json", exclude_none=True) for agent in agents]
    files = {"agents.yaml": _yaml(entries)}
    for agent in agents:
        for session in agent.sessions:
            folder = f"sessions/{agent.agent.agent_id}/{session.session_id}"
            declared = session.session.model_dump(mode="json", exclude_none=True, exclude={"session_id"})
            files[f"{folder}/session.yaml"] = _yaml(declared)
            talks = (_native(conversation.native()) for conversation in session.conversations)
            files[f"{folder}/conversations.jsonl"] = _lines(talks)
    files["verdicts/sample.jsonl"] = _lines(v.row() for v in _distinct(_verdicts(agents, known)))
    files["ratings/sample.csv"] = _ratings_csv(agents)
    return files


def read_all(authored: Path) -> list[AuthoredAgent]:
    """All files in the order of their names; AuthoredSampleError lists the problems of all of them."""
    agents: list[AuthoredAgent] = []
    problems: list[str] = []
    for path in sorted(authored.glob("*.yaml")):
        try:
            agents.append(read_authored(path))
        except AuthoredSampleError as error:
            problems += error.problems
    ids = [agent.agent.agent_id for agent in agents]
    problems += [f"agent_id {i!r} is used by two files" for i in sorted(set(ids)) if ids.count(i) > 1]
    if problems:
        raise AuthoredSampleError(problems)
    return agents


def published() -> Methodologies:
    """The packaged methodology versions."""
    registry = Registry.read()
    return {version: registry.get(version) for version in registry.versions}


def write(files: Mapping[str, str], out: Path) -> None:
    """Write the files, read verdicts and ratings back, and refuse a build that would not read."""
    for name, text in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    refusals = [*read_verdicts(out / "verdicts")[1], *read_ratings(out / "ratings")[1]]
    if refusals:
        raise AuthoredSampleError([f"{r.file}:{r.line}: {r.reason}" for r in refusals])


def check(out: Path = DATA, files: Mapping[str, str] | None = None) -> list[str]:
    """How `out` differs from a fresh build: files that are missing, changed or no longer made."""
    fresh = build() if files is None else files
    present = {
        str(path.relative_to(out))
        for name in BUILT
        for path in ([out / name] if (out / name).is_file() else (out / name).rglob("*"))
        if path.is_file() and path.name != ".gitkeep"
    }
    changed = [n for n in present & set(fresh) if (out / n).read_bytes() != fresh[n].encode()]
    return sorted(
        [f"{name}: missing" for name in set(fresh) - present]
        + [f"{name}: not part of the build" for name in present - set(fresh)]
        + [f"{name}: differs" for name in changed]
    )


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6)


def _lines(rows: Iterator[dict[str, JsonValue]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _native(conversation: Conversation) -> dict[str, JsonValue]:
    """One line of conversations.jsonl, in OpenAI chat form; nothing that is unknown is written."""
    row: dict[str, JsonValue] = conversation.model_dump(
        mode="json", exclude_none=True, exclude_defaults=False, exclude={"messages", "metadata", "tools"}
    )
    row["tools"] = [dict(tool) for tool in conversation.tools or ()]  # schemas may hold nulls of their own
    row["messages"] = [_message(message) for message in conversation.messages]
    return row


def _message(message: Message) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = message.model_dump(mode="json", exclude_none=True, exclude={"tool_calls"})
    if message.tool_calls:
        texts = {call.id: json.dumps(call.arguments, ensure_ascii=False) for call in message.tool_calls}
        row["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": texts[call.id]}}
            for call in message.tool_calls
        ]
    return row


def _ratings_csv(agents: Sequence[AuthoredAgent]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for agent in agents:
        for rating in agent.human_ratings:
            writer.writerow({"agent_id": agent.agent.agent_id, **rating.model_dump()})
    return stream.getvalue()


def _distinct(verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    """One verdict per question: equal content that two sessions share must have been judged alike."""
    first: dict[str, Verdict] = {}
    problems = []
    for verdict in verdicts:
        before = first.setdefault(verdict.question, verdict)
        if _value(before) != _value(verdict):
            problems.append(
                f"{verdict.place}: {verdict.metric.name} {_value(verdict)} differs from {_value(before)} "
                f"in {before.place}, where the content is the same"
            )
    if problems:
        raise AuthoredSampleError(problems)
    return iter(first.values())


def _value(verdict: Verdict) -> list[JsonValue]:
    return [verdict.answer.get(n) for n in ("rating_1to5", "value", "label", "further_labels")]


def _verdicts(agents: Sequence[AuthoredAgent], methodologies: Methodologies) -> Iterator[Verdict]:
    for agent in agents:
        for session in agent.sessions:
            if session.session.invalid_reason is None:
                yield from _of_session(agent, session, methodologies)


def _of_session(
    agent: AuthoredAgent, session: AuthoredSession, methodologies: Methodologies
) -> Iterator[Verdict]:
    judged_at = f"{session.session.date}T12:00:00Z"
    versions = [methodologies[v] for v in session.session.methodology_versions if v in methodologies]
    hashes = []
    for authored in session.conversations:
        conversation = Conversation.model_validate(_native(authored.native()))
        if conversation != authored.native():
            raise AuthoredSampleError([f"{authored.conversation_id} does not read back as it was written"])
        turns = conversation.turns()
        of_turns = list(turn_hashes(conversation, turns))
        whole = conversation_hash(conversation, of_turns[-1])
        hashes.append(whole)
        for turn, said, content in zip(authored.turns, turns, of_turns, strict=True):
            for metric, answer in _turn_answers(turn, said, conversation):
                place = f"{authored.conversation_id} turn {said.turn_index}"
                yield Verdict(content, said.turn_index, metric, answer, judged_at, place)
        for metric, answer in _conversation_answers(agent, authored, versions):
            yield Verdict(whole, None, metric, answer, judged_at, authored.conversation_id)
    content = session_hash(hashes)
    for methodology in versions:
        metrics = universal_metrics(methodology)
        for target, rating in session.ratings.items():
            yield Verdict(content, None, metrics[target], _rated(rating), judged_at, session.session_id)


def _turn_answers(
    authored: AuthoredTurn, turn: Turn, conversation: Conversation
) -> Iterator[tuple[Metric, Answer]]:
    if authored.ratings is None or authored.why is None or authored.quote is None:
        return
    for metric, rating in zip(RATED, authored.ratings, strict=True):
        yield metric, _rated((rating, authored.notes.get(metric.name, authored.why), authored.quote))
    for metric, labels in failures_of(authored).items():
        if applicable(metric, turn, conversation, None):
            yield metric, _labelled(authored, labels)
    if applicable(TOOL_RESULT_UTILISATION, turn, conversation, None) and turn.agent_message is not None:
        is_ignored = IGNORED_ANSWERS in authored.failures.tool
        why = (is_ignored and authored.failure_why) or authored.why
        yield TOOL_RESULT_UTILISATION, _scored(why, authored.quote, value=float(not is_ignored))
    if authored.answer_correctness is not None:
        value, rationale, quote = authored.answer_correctness
        yield ANSWER_CORRECTNESS, _scored(rationale, quote, value=float(value))


def _labelled(authored: AuthoredTurn, labels: Sequence[str]) -> Answer:
    if not labels:
        return _scored(authored.why or "", authored.quote, label=NO_FAILURE)
    quote = authored.failure_quote or authored.quote
    return _scored(authored.failure_why or "", quote, label=labels[0], further_labels=list(labels[1:]))


def _conversation_answers(
    agent: AuthoredAgent, authored: AuthoredConversation, versions: Sequence[Methodology]
) -> Iterator[tuple[Metric, Answer]]:
    if authored.goal_completion is not None:
        value, rationale, quote = authored.goal_completion
        yield GOAL_COMPLETION, _scored(rationale, quote, value=float(value))
    for methodology in versions:
        template = methodology.template_for(agent.agent.category)
        metrics = criterion_metrics(template) if template else {}
        for criterion, rating in (authored.criteria or {}).items():
            if metric := metrics.get(f"{authored.scenario}.{criterion}"):
                yield metric, _rated(rating)
            elif template:
                ids = ", ".join(c.id for c in template.criteria)
                what = f"{criterion!r} is no criterion of {template.slug} ({ids})"
                raise AuthoredSampleError([f"{authored.conversation_id}: {what}"])


def _rated(rating: Rating) -> Answer:
    value, rationale, quote = rating
    return _scored(rationale, quote, rating_1to5=value)


def _scored(rationale: str, quote: str | None, **answer: JsonValue) -> Answer:
    return {"status": "scored", **answer, "rationale": rationale, "evidence": quote}


def main() -> int:
    """0 when done and well, 1 with every problem listed."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("out", nargs="?", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="compare OUT with a fresh build, write nothing")
    only = "validate files, write nothing"
    parser.add_argument("--check-only", nargs="+", type=Path, metavar="FILE", help=only)
    arguments = parser.parse_args()
    try:
        if arguments.check_only:
            for path in arguments.check_only:
                read_authored(path)
                sys.stdout.write(f"{path.name}: ok\n")
            return 0
        if arguments.check:
            differences = check(arguments.out)
            sys.stdout.write("".join(f"{line}\n" for line in differences) or "up to date\n")
            return int(bool(differences))
        files = build()
        write(files, arguments.out)
        stale = check(arguments.out, files)
        sys.stdout.write("".join(f"{line}\n" for line in [f"{len(files)} files written", *stale]))
    except AgentEvalError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
