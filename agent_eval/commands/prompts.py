"""Implement `agent-eval prompts`: show the prompts for a judge model, for an example or a conversation of an agent."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl
from rich.console import Console

from agent_eval.clusters.taxonomies.taxonomy import Taxonomy, read_taxonomy
from agent_eval.commands.terminal.output import print_json
from agent_eval.errors import NotFoundError
from agent_eval.judge.clusters.category import NAME as ERROR_CATEGORY
from agent_eval.judge.clusters.category import category_metric, category_prompt
from agent_eval.judge.clusters.naming import ERROR_DEDUPLICATION, naming_prompt
from agent_eval.judge.judging_pass import answer_without_model, unanswered_part
from agent_eval.judge.prompts import (
    DEFAULT_LIMITS,
    NO_BLINDED_TERMS,
    BlindedTerms,
    Prompt,
    ViewLimits,
    build_prompt,
    can_share_call,
    example,
    has_room_for_all,
    in_parts,
    profile_hash,
    shared_rubrics,
)
from agent_eval.judge.prompts.attachments import why_not_sent
from agent_eval.judge.prompts.personal_data import Redactor, counted
from agent_eval.judge.protocol import Question, TurnsUpTo
from agent_eval.judge.rules import RulesJudge
from agent_eval.methodology.models import Methodology, Template
from agent_eval.metrics.base import Metric
from agent_eval.metrics.findings import RatingFinding, facts_of, findings_of
from agent_eval.metrics.metric_set import (
    DEFAULT,
    ON_REQUEST,
    expected_of,
    unknown_metric,
    why_not_applicable,
)
from agent_eval.metrics.profile import PROFILE_VERSION
from agent_eval.metrics.rubrics import criterion_metrics, universal_metrics
from agent_eval.project import Project
from agent_eval.project.ingest import ingest
from agent_eval.simulate.scenarios import BenchmarkScenario, SimulatedUser
from agent_eval.simulate.users import check_call, user_call
from agent_eval.tables import table
from agent_eval.transcripts.attachments import described
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import Agent, Conversation

DEFAULT_PROMPT = "turn"
_JUDGED = ("transcripts", "turn_judgments", "conversation_judgments")


class NotAskedError(NotFoundError):
    """Raised when a metric does not apply to the given turn, or no model is called for it.

    Fix: Choose a turn or metric that a model is asked.
    """


@dataclass(frozen=True)
class Subject:
    """Hold the data for building prompts: a conversation, a turn, its session and the metrics."""

    session: tuple[Conversation, ...]
    conversation: Conversation
    methodology: Methodology
    template: Template | None  # None if the version has no template for the agent's category
    turn_index: int | None = None  # None: the last turn to which the metric applies
    metrics: tuple[Metric, ...] = DEFAULT.metrics
    names: BlindedTerms = NO_BLINDED_TERMS
    findings: tuple[RatingFinding, ...] = ()
    secret: bytes = b""
    limits: ViewLimits = DEFAULT_LIMITS  # limits of the judge model
    taxonomy: Taxonomy | None = None  # that of the settings; None for the failure labels, and for the example

    @cached_property
    def universal(self) -> Mapping[str, Metric]:
        """Return the metrics U1–U6 by name."""
        return universal_metrics(self.methodology)

    @cached_property
    def criteria(self) -> Mapping[str, Metric]:
        """Return the criteria of the template by name, such as 'D1.accuracy'; empty if there is no template."""
        return criterion_metrics(self.template) if self.template else {}

    def question(self, metrics: Iterable[Metric]) -> Question:
        """Return a question about the whole conversation, or about the session if that is the metrics' grain.

        Raises:
            NotAskedError: If the conversation or session has no turns.
        """
        group = tuple(metrics)
        chats = self.session if group[0].grain == "session" else (self.conversation,)
        chats = tuple(c for c in chats if c.messages)
        if not chats:
            raise NotAskedError(
                f"Conversation {self.conversation.conversation_id!r} has no turns, so no judge is called for it. "
                "Choose another one with --conversation, or omit --conversation for the example."
            )
        return Question(chats, tuple(c.turns() for c in chats), None, "", group, _no_keys(group))

    def turn_question(self, metrics: Sequence[Metric]) -> Question:
        """Return a question about the turn, with the metrics that apply to it.

        Raises:
            NotAskedError: If no metric applies.
        """
        turns = self.conversation.turns()
        candidate_turns = [t for t in reversed(turns) if self.turn_index in (None, t.turn_index)]
        why = "it has no turns"
        for turn in candidate_turns:
            truth = expected_of(turn.turn_index, self.conversation.expected)
            reasons = {m.name: why_not_applicable(m, turn, self.conversation, truth) for m in metrics}
            fitting = tuple(m for m in metrics if reasons[m.name] is None)
            if fitting:
                view = (TurnsUpTo(turns, turn.turn_index),)
                return Question((self.conversation,), view, turn.turn_index, "", fitting, _no_keys(fitting))
            why = next(iter(reasons.values())) or why
        names = ", ".join(m.name for m in metrics)
        raise NotAskedError(
            f"Conversation {self.conversation.conversation_id!r} cannot be judged for {names}: {why}. "
            "Choose another one with --conversation and --turn, or omit both for the example."
        )

    def build(self, *questions: Question, metrics: Sequence[Metric] | None = None) -> list[Prompt]:
        """Return the prompts for the questions: one prompt, or several if the model's context is small.

        Raises:
            NotAskedError: If the model is not called because it does not accept an attachment.
        """
        for question in questions:
            if why := why_not_sent(question, self.limits.kinds):
                names = ", ".join(metric.name for metric in question.metrics)
                raise NotAskedError(
                    f"No model judges conversation {self.conversation.conversation_id!r} for {names}: {why}."
                )
        prompt_list = list[Prompt]()
        for part in in_parts(questions, self.limits):
            first = self._window(part, metrics)
            prompt_list += [first, *(self._window(part, metrics, i) for i in range(1, first.n_windows))]
        return prompt_list

    def _window(
        self, questions: Sequence[Question], metrics: Sequence[Metric] | None, window: int = 0
    ) -> Prompt:
        return build_prompt(
            questions,
            secret=self.secret,
            metrics=metrics,
            names=self.names,
            findings=self.findings,
            limits=self.limits,
            window=window,
        )


def _no_keys(metrics: Iterable[Metric]) -> dict[str, str]:
    return dict.fromkeys((metric.name for metric in metrics), "")


def _undecided(question: Question) -> Question | None:
    """Return the part of a question that rules do not decide, or None if they decide all of it."""
    [answers] = answer_without_model([question], RulesJudge())
    return unanswered_part(question, answers)


def _turn_call(subject: Subject) -> list[Prompt]:
    shared = shared_rubrics(subject.metrics)
    of_turn = subject.turn_question([m for m in shared if m.grain == "turn"])
    of_whole = [m for m in shared if m.grain == "conversation"]
    call_questions = [_undecided(of_turn)]
    is_shared = of_whole and has_room_for_all(of_turn, subject.limits)
    if is_shared and can_share_call(of_turn, whole := subject.question(of_whole)):
        call_questions.append(_undecided(whole))
    return _open_call(subject, call_questions, shared)


def _conversation_call(subject: Subject) -> list[Prompt]:
    shared = shared_rubrics(subject.metrics)
    of_whole = [m for m in shared if m.grain == "conversation"]
    return _open_call(subject, [_undecided(subject.question(of_whole)) if of_whole else None], shared)


def _session_call(subject: Subject) -> list[Prompt]:
    served = {c.scenario for c in subject.session}.union(*(finding.tests for finding in subject.findings))
    session_metrics = [
        subject.universal[d.id] for d in subject.methodology.dimensions if d.needs_test in {None, *served}
    ]
    return _open_call(subject, [_undecided(subject.question(session_metrics))])


def _scenario_call(subject: Subject) -> list[Prompt]:
    slot = subject.conversation.scenario
    slot_metrics = [m for name, m in subject.criteria.items() if name.startswith(f"{slot}.")]
    return _open_call(subject, [subject.question(slot_metrics) if slot_metrics else None])


def _open_call(
    subject: Subject, questions: Sequence[Question | None], metrics: Sequence[Metric] | None = None
) -> list[Prompt]:
    open_questions = [question for question in questions if question is not None]
    if not open_questions:
        raise NotAskedError(
            f"For conversation {subject.conversation.conversation_id!r} no model is called for this question: rules decide "
            "it, or the conversation fills no slot D1–D5. Choose another one with --conversation, or omit it for the example."
        )
    return subject.build(*open_questions, metrics=metrics)


def _naming_call(subject: Subject) -> list[Prompt]:
    """Return the prompt for naming error clusters.

    It always shows an example, because clusters do not belong to a conversation.
    """
    return [naming_prompt(example.CLUSTERS, subject.secret)]


def _category_call(subject: Subject) -> list[Prompt]:
    """Return the prompt for the category of an error cluster, for an example and MAST without a taxonomy in the settings."""
    taxonomy = subject.taxonomy or read_taxonomy("mast", Path())
    assert taxonomy is not None
    [case] = example.CLUSTERS
    anchors = category_metric(taxonomy.candidates(case.label)).anchors
    return [category_prompt([replace(case, near_misses=())], anchors, subject.secret)]


NAMED: dict[str, Callable[[Subject], list[Prompt]]] = {
    DEFAULT_PROMPT: _turn_call,
    "conversation": _conversation_call,
    "session": _session_call,
    "scenario": _scenario_call,
    ERROR_DEDUPLICATION.name: _naming_call,
}
"""Values of --metric that select a kind of call instead of a metric."""


def _simulated(subject: Subject) -> BenchmarkScenario:
    """Return a scenario with the goal, profile and opening of the conversation."""
    c = subject.conversation
    opening = next((m.content for m in c.messages if m.role == "user" and m.content), "Hello.")
    goal = c.goal or "The goal of the scenario."
    return BenchmarkScenario(
        id="example",
        goal=goal,
        profile=c.profile,
        knowledge=c.knowledge,
        opening=opening,
        user=SimulatedUser(),
    )


ON_DEMAND: dict[str, Callable[[Subject], list[Prompt]]] = {
    ERROR_CATEGORY: _category_call,
    "simulated_user": lambda subject: [user_call(_simulated(subject), subject.conversation.messages)],
    "simulated_user_check": lambda subject: [check_call(_simulated(subject), subject.conversation.messages)],
}
"""Values of --metric that select a call that `run` does not make by default: categories of clusters, and simulated users."""


def prompts_of(name: str, subject: Subject) -> list[Prompt]:
    """Return the prompts for a kind of call in NAMED, or for one metric in a separate call.

    There are several prompts if the model's context is small.

    Raises:
        NotFoundError: If the name is neither a kind of call nor a metric.
        NotAskedError: If the metric does not apply to the subject.
    """
    if name in NAMED or name in ON_DEMAND:
        return (NAMED | ON_DEMAND)[name](subject)
    metrics = {m.name: m for m in (*ON_REQUEST, *subject.metrics) if not m.is_measured}
    metrics |= {**subject.universal, **subject.criteria}
    if name not in metrics:
        raise unknown_metric(name, [*NAMED, *ON_DEMAND, *metrics])
    metric = metrics[name]
    ask = subject.turn_question if metric.grain == "turn" else subject.question
    return subject.build(ask([metric]))


def prompts(out: Console, err: Console, *, name: str | None, subject: Subject, as_json: bool) -> None:
    """Print the prompts with their exact messages, the JSON schema of the reply and the hashes.

    If `name` is None, all kinds of calls of a run are printed. If personal data is redacted, the numbers of distinct
    hidden values are printed to `err`.

    Raises:
        NotAskedError: If none of the prompts applies to the subject.
    """
    prompts_of_call: dict[str, list[Prompt]] = {}
    missing: list[NotAskedError] = []
    for each in [name] if name is not None else NAMED:
        try:
            prompts_of_call[each] = prompts_of(each, subject)
        except NotAskedError as error:
            missing.append(error)
    if not prompts_of_call or (missing and name is not None):
        raise missing[0]
    if isinstance(subject.names.personal, Redactor):
        err.print(f"hidden: {counted(subject.names.personal.counts)}", markup=False, soft_wrap=True)
    if as_json:
        print_json([_row(each, prompt) for each, parts in prompts_of_call.items() for prompt in parts])
        return
    for each, parts in prompts_of_call.items():
        for i, prompt in enumerate(parts, start=1):
            title = f"{each}, {i} of {len(parts)}" if len(parts) > 1 else each if name is None else None
            _print(out, title, prompt)
    for reason in missing:
        out.out(f"not applicable here: {reason}", highlight=False)


def _print(out: Console, title: str | None, prompt: Prompt) -> None:
    if title is not None:
        out.rule(f"prompt: {title}", characters="=")
    for message in prompt.messages:
        out.rule(message["role"], align="left")
        out.out(message["content"], highlight=False)
    for number, attachment in enumerate(prompt.attachments, start=1):
        out.out(f"attachment {number}: {described(attachment)}, {attachment.media_type}", highlight=False)
    out.rule(f"reply: JSON schema {prompt.name!r}, strict", align="left")
    out.out(json.dumps(prompt.schema, ensure_ascii=False, indent=1), highlight=False)
    out.rule(align="left")
    out.out(f"prompt hash {prompt.prompt_hash}", highlight=False)
    out.out(f"judge profile {PROFILE_VERSION}, hash {profile_hash()}", highlight=False)


def _row(name: str, prompt: Prompt) -> Mapping[str, object]:
    return {
        "prompt": name,
        "metrics": [metric.name for metric in prompt.metrics],
        "messages": [dict(message) for message in prompt.messages],
        "attachments": [attachment.reference for attachment in prompt.attachments],
        "schema_name": prompt.name,
        "schema": prompt.schema,
        "prompt_hash": prompt.prompt_hash,
        "profile_version": PROFILE_VERSION,
        "profile_hash": profile_hash(),
    }


def example_subject(
    methodology: Methodology, metrics: Sequence[Metric] = DEFAULT.metrics, turn_index: int | None = None
) -> Subject:
    """Return the example in the package."""
    return Subject(
        session=(example.CONVERSATION, example.BROKEN_INPUT),
        conversation=example.CONVERSATION,
        methodology=methodology,
        template=methodology.template_for(example.AGENT.category),
        turn_index=_checked_turn(example.CONVERSATION, turn_index),
        metrics=tuple(metrics),
        names=BlindedTerms.of(example.AGENT),
        findings=example.FINDINGS,
    )


def agent_subject(
    project: Project,
    methodology: Methodology,
    agent_id: str,
    conversation_id: str | None,
    turn_index: int | None,
) -> Subject:
    """Return a conversation of an agent, read from its session folder. Default: the first conversation.

    Raises:
        NotFoundError: If the agent is unknown, or if the agent does not have the conversation or the turn.
    """
    [agent_id] = project.some_agents([agent_id])
    tables = ingest(project, [agent_id])
    rows = tables["conversations"].sort("conversation_id")
    ids = rows["conversation_id"].to_list()
    subject_id = conversation_id or next(iter(ids), None)
    if subject_id not in ids:
        near = ", ".join(difflib.get_close_matches(str(subject_id), ids, n=3, cutoff=0)) or "none"
        raise NotFoundError(
            f"Agent {agent_id} has no conversation {subject_id!r}. It has {len(ids)}, among them: {near}."
        )
    [session_id] = rows.filter(pl.col("conversation_id") == subject_id)["session_id"]
    of_session = rows.filter(pl.col("session_id") == session_id)
    session = tuple(c for _, c in conversations_from(of_session, tables["turns"]))
    [conversation] = [c for c in session if c.conversation_id == subject_id]
    agent = project.declared[0].get(agent_id) or Agent(agent_id=agent_id)
    return Subject(
        session=session,
        conversation=conversation,
        methodology=methodology,
        template=methodology.template_for(agent.category),
        turn_index=_checked_turn(conversation, turn_index),
        metrics=project.metrics.metrics,
        names=project.blinded_terms([agent_id])[agent_id],
        findings=_findings(project, methodology.version, agent_id, session),
        secret=project.judges.prompt_secret,
        limits=project.judges.view_limits(next(iter(project.settings.judge_models), "")),
        taxonomy=read_taxonomy(project.settings.taxonomy, project.home.root),
    )


def _findings(
    project: Project, version: str, agent_id: str, session: Sequence[Conversation]
) -> tuple[RatingFinding, ...]:
    """Return the findings from the stored judgments of a session, as they are shown in prompts for rubric ratings."""
    pair = pl.DataFrame({"methodology_version": [version], "agent_id": [agent_id]})
    read = {name: project.store.read(table(name), pair) for name in _JUDGED}
    tests = {
        name: frozenset(of) for name, of in read["transcripts"].select("conversation_id", "tests").iter_rows()
    }
    judgments = pl.concat([read["turn_judgments"], read["conversation_judgments"]], how="diagonal")
    scored_judgments = judgments.filter("is_effective", pl.col("status") == "scored").sort(
        "conversation_id", "turn_index", "metric", nulls_last=True
    )
    findings: list[RatingFinding] = []
    for conversation in session:
        name, turns = conversation.conversation_id, conversation.turns()
        replied = [turn.turn_index for turn in turns if turn.reply == "replied"]
        findings += facts_of(conversation, turns, tests.get(name, frozenset()))
        rows = scored_judgments.filter(pl.col("conversation_id") == name).iter_rows(named=True)
        findings += findings_of(rows, tests, {name: replied[-1]} if replied else {})
    return tuple(findings)


def _listed(indexes: Sequence[int]) -> str:
    """Return indexes as text: '0 to 4', or each one if there are gaps."""
    return f"0 to {indexes[-1]}" if len(indexes) > indexes[-1] else ", ".join(map(str, indexes))


def _checked_turn(conversation: Conversation, turn_index: int | None) -> int | None:
    indexes = [turn.turn_index for turn in conversation.turns()]
    if turn_index is not None and turn_index not in indexes:
        there = f"its turns are {_listed(indexes)}" if indexes else "it has no turns"
        raise NotFoundError(
            f"Conversation {conversation.conversation_id!r} has no turn {turn_index}; {there}."
        )
    return turn_index
