"""Judge turns and conversations: ask every metric once, for all methodology versions.

`judging_pass` describes how questions are answered. Questions do not depend on the methodology version, so each is
answered once, and its rows are repeated for every version that admits the conversation.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.hallucination import hallucination_verdict
from agent_eval.judge.inputs.human_ratings import HALLUCINATION_PASSED, outdated_ratings, placed_ratings
from agent_eval.judge.inputs.rater_rules import RaterRule, decided_ratings
from agent_eval.judge.inputs.source_scores import label_judgments, source_judgments
from agent_eval.judge.judging_pass import (
    HUMAN,
    Answers,
    AskedQuestions,
    Row,
    given_answers,
    is_abstention,
    judge_questions,
    step_columns,
    unanswered_sequences,
    verdict_row,
)
from agent_eval.judge.keys import question_keys
from agent_eval.judge.labels import most_severe_is_main, with_derived_labels, with_further_labels
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import AnswersByQuestion, Lookup, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.people import with_people
from agent_eval.judge.prompts import NO_BLINDED_TERMS, BlindedTerms, shared_rubrics
from agent_eval.judge.prompts.attachments import why_not_sent
from agent_eval.judge.protocol import Question, Scored, TurnsUpTo, Verdict, cause_of
from agent_eval.judge.rules import NEEDS_MODEL, RULE
from agent_eval.judge.sampling import NOT_SAMPLED, sampled, with_outcomes_to_check
from agent_eval.metrics.base import ENDED, GOAL_MISSED, NO_TURNS, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import (
    AGENT_BEHAVIOR_FAILURE,
)
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.metric_set import (
    DEFAULT,
    MetricSet,
    applicable,
    expected_of,
    no_answer,
)
from agent_eval.metrics.profile import asked_since
from agent_eval.tables import Table, table
from agent_eval.tables.frames import Conversations, Transcripts, Turns
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import Conversation, Turn

HALLUCINATION = "hallucination"

_PAIR_AND_CONVERSATION = ["methodology_version", "agent_id", "conversation_id"]
_CONVERSATION = ["agent_id", "conversation_id"]
_TURNS, _CONVERSATIONS = table("turn_judgments"), table("conversation_judgments")


@dataclass(frozen=True)
class Judged:
    """Hold the tables turn_judgments and conversation_judgments."""

    turn_judgments: pl.DataFrame
    conversation_judgments: pl.DataFrame


def judge_transcripts(
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
    human_ratings: pl.DataFrame,
    lookup: Lookup,
    *,
    metrics: MetricSet = DEFAULT,
    panel: Panel | None = None,
    names: Mapping[str, BlindedTerms] | None = None,
    watch: Watch | None = None,
    rater_rule: RaterRule = "adjudicator",
    at_once: int | None = None,
) -> Judged:
    """Judge every admitted conversation of `transcripts` once; return the parts of `judged_in_parts` concatenated."""
    parts = list(
        judged_in_parts(
            transcripts, conversations, turns, human_ratings, lookup, metrics=metrics, panel=panel, names=names,
            watch=watch, rater_rule=rater_rule, at_once=at_once,
        )
    )  # fmt: skip
    return Judged(
        pl.concat(part.turn_judgments for part in parts),
        pl.concat(part.conversation_judgments for part in parts),
    )


def judged_in_parts(
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
    human_ratings: pl.DataFrame,
    lookup: Lookup,
    *,
    metrics: MetricSet = DEFAULT,
    panel: Panel | None = None,
    names: Mapping[str, BlindedTerms] | None = None,
    watch: Watch | None = None,
    rater_rule: RaterRule = "adjudicator",
    at_once: int | None = None,
) -> Iterator[Judged]:
    """Judge every admitted conversation of `transcripts` once, for all its versions; yield the tables in parts.

    Metrics that always apply have rows for every turn; other metrics have rows only for the turns they apply to. An
    unanswered metric has one row by the judge 'rule' with the reason. The same applies to conversation metrics.
    hallucination_passed has a row for each conversation that serves the hallucination test under the version.

    Human ratings take precedence over all judges if the rated turn or conversation belongs to the session that they
    name. If raters differ, all their rows are kept. Exactly one row per question is effective. Labels and scores by
    judges of other tools have rows with the judge 'import:NAME', which are never effective.

    Args:
        transcripts: Table transcripts; rows that are not admitted are not judged.
        conversations: Table conversations of the same agents.
        turns: Table turns of the same agents.
        human_ratings: Table human_ratings of the same agents.
        lookup: Returns the rows of judge_cache for question keys.
        metrics: The metrics to ask.
        panel: The judge models. They are asked only questions that rules leave open and that have no stored answer.
        names: Names to hide from the models, by agent.
        watch: Callback that receives the progress of the models.
        rater_rule: Rule that resolves differing ratings by people.
        at_once: Maximum number of conversations in a part, to limit memory; by default all are in one part. There is
            at least one part.
    """
    shares = (None, None) if panel is None else (panel.spec.sample, panel.spec.outcome_sample)
    sampled_pairs = sampled(transcripts, shares[0])
    checked = with_outcomes_to_check(transcripts, conversations, sampled_pairs, shares[1])
    admitted = transcripts.filter("is_admitted").select(*_PAIR_AND_CONVERSATION, "tests")
    judge = partial(
        _judged, human_ratings=human_ratings, lookup=lookup, metrics=metrics, panel=panel, names=names, watch=watch,
        rater_rule=rater_rule, sampled_pairs=sampled_pairs, checked=checked,
    )  # fmt: skip
    frames = (admitted, conversations, turns)
    keys = admitted.select(_CONVERSATION).unique().sort(_CONVERSATION)
    if at_once is None or keys.height <= at_once:
        yield judge(*frames)
        return
    for start in range(0, keys.height, at_once):
        part = keys.slice(start, at_once)
        yield judge(*(frame.join(part, on=_CONVERSATION, how="semi") for frame in frames))


def _judged(
    admitted: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    *,
    human_ratings: pl.DataFrame,
    lookup: Lookup,
    metrics: MetricSet,
    panel: Panel | None,
    names: Mapping[str, BlindedTerms] | None,
    watch: Watch | None,
    rater_rule: RaterRule,
    sampled_pairs: Collection[tuple[str, str]] | None,
    checked: Collection[tuple[str, str]],
) -> Judged:
    """Judge the given conversations. Models are asked only about those in `sampled_pairs`, or about all if it is None.

    The declared outcomes of those in `checked` check the models.
    """
    items = list(_items(admitted, conversations, turns, metrics))
    for item in items:
        item.transcript = Transcript(item.turns, (names or {}).get(item.agent_id, NO_BLINDED_TERMS).personal)
    _draw(items, sampled_pairs, checked)
    versions = admitted["methodology_version"].unique().to_list()
    outdated = outdated_ratings(human_ratings, turns)
    human_ratings = human_ratings.join(outdated, on=["file", "line"], how="anti", maintain_order="left")
    people = decided_ratings(placed_ratings(human_ratings, conversations), versions, rater_rule)
    _set_goals_by_people(items, people)
    groups = [item.asked for item in items]
    judge_questions(
        groups, lookup, rubrics=shared_rubrics(metrics.metrics), panel=panel, names=names, watch=watch
    )
    of_turns = _for_versions(_TURNS.frame(row for item in items for row in _turn_rows(item)), admitted)
    quotable = {(i.agent_id, i.conversation.conversation_id): i.transcript for i in items}
    of_turns = with_people(_TURNS, of_turns, people, quotable)
    rows = _for_versions(
        _CONVERSATIONS.frame(row for item in items for row in _conversation_rows(item)), admitted
    )
    tested = admitted.filter(pl.col("tests").list.contains(HALLUCINATION))
    passed = _CONVERSATIONS.frame(_hallucination_rows(items, tested, _labelled(of_turns)))
    of_conversations = with_people(_CONVERSATIONS, pl.concat([rows, passed]), people, quotable)
    sources = list(
        source_judgments(conversations.join(admitted, on=_CONVERSATION, how="semi"), turns, quotable)
    )
    labels = label_judgments(human_ratings, admitted, turns)
    foreign = _TURNS.frame({**row, "turn_index": index} for index, row in sources if index is not None)
    labelled = _TURNS.frame(row for row in labels if row["turn_index"] is not None)
    of_turns = _beside(_TURNS, of_turns, _for_versions(foreign, admitted), labelled)
    of_whole = _CONVERSATIONS.frame(row for index, row in sources if index is None)
    labelled_whole = _CONVERSATIONS.frame(row for row in labels if row["turn_index"] is None)
    of_conversations = _beside(
        _CONVERSATIONS, of_conversations, _for_versions(of_whole, admitted), labelled_whole
    )
    return Judged(_TURNS.conform(of_turns), _CONVERSATIONS.conform(of_conversations))


def open_questions(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    metrics: MetricSet,
    names: Mapping[str, BlindedTerms],
    sample: float | None = None,
    outcome_sample: float | None = None,
    human_ratings: pl.DataFrame | None = None,
    rater_rule: RaterRule = "adjudicator",
    stored: Callable[[Sequence[QuestionSequence]], AnswersByQuestion] | None = None,
) -> list[QuestionSequence]:
    """Return the questions that `judge_transcripts` would ask models if no answers were stored.

    The result has one sequence per conversation, and further ones for questions that depend on a missed goal, which
    `human_ratings` decide if people rated it, or else the answers of the models that `stored` returns.
    """
    admitted = transcripts.filter("is_admitted").select(*_PAIR_AND_CONVERSATION, "tests")
    items = list(_items(admitted, conversations, turns, metrics))
    sample_pairs = sampled(transcripts, sample)
    _draw(
        items, sample_pairs, with_outcomes_to_check(transcripts, conversations, sample_pairs, outcome_sample)
    )
    if human_ratings is not None:
        versions = admitted["methodology_version"].unique().to_list()
        placed = placed_ratings(human_ratings, conversations)
        _set_goals_by_people(items, decided_ratings(placed, versions, rater_rule))
    return unanswered_sequences([item.asked for item in items], names, stored)


def _set_goals_by_people(items: Sequence["_Item"], people: pl.DataFrame) -> None:
    """Set where people decided whether the goal was missed; if versions differ, it was missed in one of them."""
    of_goal = people.filter("is_effective", target=GOAL_COMPLETION.name).drop_nulls("value")
    lowest = of_goal.group_by(_CONVERSATION).agg(pl.col("value").min())
    missed = {(agent, conversation): value == 0 for agent, conversation, value in lowest.iter_rows()}
    for item in items:
        item.asked.missed_by_people = missed.get((item.agent_id, item.conversation.conversation_id))


def _draw(
    items: Sequence["_Item"],
    sampled_pairs: Collection[tuple[str, str]] | None,
    checked: Collection[tuple[str, str]],
) -> None:
    """Set whether each conversation is in the sample, if `sampled_pairs` is given, and whether it checks the models."""
    for item in items:
        pair = (item.agent_id, item.conversation.conversation_id)
        item.asked.is_sampled = sampled_pairs is None or pair in sampled_pairs
        item.asked.is_checked = pair in checked


@dataclass
class _Item:
    """Hold a conversation with its questions: one per turn with an applicable metric, then one about the whole.

    A conversation without turns has nothing to read, so only rules answer, from the declared outcome.
    """

    conversation: Conversation
    turns: tuple[Turn, ...]
    metrics: MetricSet
    asked: AskedQuestions

    def __post_init__(self) -> None:
        self.transcript = Transcript(self.turns)

    @property
    def agent_id(self) -> str:
        return self.asked.agent_id

    @property
    def where(self) -> Row:
        return {"agent_id": self.agent_id, "conversation_id": self.conversation.conversation_id}

    def of_turns(self) -> Iterator[tuple[Question, Answers]]:
        """Return the questions about turns, each with its answers."""
        return (pair for pair in self.asked.with_answers() if pair[0].turn_index is not None)


def _items(
    admitted: pl.DataFrame, conversations: pl.DataFrame, turns: pl.DataFrame, metrics: MetricSet
) -> Iterator[_Item]:
    admitted_rows = conversations.join(admitted, on=_CONVERSATION, how="semi")
    admitted_turns = turns.join(admitted_rows, on=_CONVERSATION, how="semi").sort(
        *_CONVERSATION, "turn_index"
    )
    hashes = {
        (agent, conversation): content_hashes
        for agent, conversation, content_hashes in admitted_turns.group_by(_CONVERSATION)
        .agg("content_hash")
        .iter_rows()
    }
    whole = {(a, c): h for a, c, h in admitted_rows.select(*_CONVERSATION, "content_hash").iter_rows()}
    for agent_id, conversation in conversations_from(admitted_rows, admitted_turns):
        key = (agent_id, conversation.conversation_id)
        item = _Item(conversation, conversation.turns(), metrics, AskedQuestions(agent_id))
        item.asked.questions.extend(_turn_questions(item, hashes.get(key, ())))
        if metrics.conversation:
            item.asked.questions.append(_question(item, None, whole[key], metrics.conversation))
        yield item


def _turn_questions(item: _Item, hashes: Sequence[str]) -> Iterator[Question]:
    for turn, content_hash in zip(item.turns, hashes, strict=True):
        truth = expected_of(turn.turn_index, item.conversation.expected)
        metrics = tuple(m for m in item.metrics.turn if applicable(m, turn, item.conversation, truth))
        if metrics:
            yield _question(item, turn.turn_index, content_hash, metrics)


def _question(
    item: _Item, turn_index: int | None, content_hash: str, metrics: tuple[Metric, ...]
) -> Question:
    visible_turns = item.turns if turn_index is None else TurnsUpTo(item.turns, turn_index)
    hashes = item.metrics.rubric_hashes
    wordings = [(m.name, hashes[m.name], asked_since(m.name)) for m in metrics]
    keys = question_keys(content_hash, turn_index, wordings)
    return Question((item.conversation,), (visible_turns,), turn_index, content_hash, metrics, keys)


def _turn_rows(item: _Item) -> Iterator[Row]:
    metrics_of_turn: dict[int | None, set[str]] = {}
    for question, answers in item.of_turns():
        metrics_of_turn[question.turn_index] = {metric.name for metric in question.metrics}
        answers = with_derived_labels(answers)
        where = {**item.where, "turn_index": question.turn_index}
        for metric in question.metrics:
            yield from _rows(item, question, metric, answers[metric.name], where)
    for turn in item.turns:
        if turn.reply != "replied":
            always = {m.name for m in item.metrics.turn if m.applies_when == "always"}
            for name in sorted(always - metrics_of_turn.get(turn.turn_index, set())):
                yield {**item.where, "turn_index": turn.turn_index} | _not_applicable(name, no_answer(turn))


def _conversation_rows(item: _Item) -> Iterator[Row]:
    for question, answers in item.asked.with_answers():
        for metric in question.metrics if question.turn_index is None else ():
            if metric.applies_when == GOAL_MISSED and not item.asked.goal_is_missed(answers):
                continue
            yield from _rows(item, question, metric, answers[metric.name], item.where)


def _rows(
    item: _Item, question: Question, metric: Metric, answers: Sequence[tuple[str, Verdict]], where: Row
) -> Iterator[Row]:
    """Yield one row per judge that answered, or a single row with the reason if no judge did.

    Each has the columns `where` on the conversation and the turn.
    """
    question_columns = {
        **where,
        "question_key": question.keys[metric.name],
        "rubric_hash": item.metrics.rubric_hashes[metric.name],
    }
    answers = [answer for answer in answers if not is_abstention(answer[1])]
    if metric.kind == "label":
        answers = [(j, most_severe_is_main(metric, v)) for j, v in with_further_labels(answers)]
    judge_answers = list(given_answers(answers))
    if not judge_answers:
        is_ended = question.turn_index is not None and question.turn.reply == "ended"
        open_because = NEEDS_MODEL if item.asked.is_sampled else NOT_SAMPLED
        if item.asked.kinds is not None:
            open_because = why_not_sent(question, item.asked.kinds) or open_because
        open_because = open_because if item.turns else NO_TURNS
        yield question_columns | _not_applicable(metric.name, ENDED if is_ended else open_because)
    for judge, verdict, is_effective in judge_answers:
        row = _verdict_row(item.transcript, metric.name, question.turn_index, judge, verdict)
        yield {**question_columns, "metric": metric.name, "is_effective": is_effective, **row}


def _verdict_row(
    transcript: Transcript, metric: str, turn_index: int | None, judge: str, verdict: Verdict
) -> Row:
    quote, label = (verdict.evidence, verdict.label) if isinstance(verdict, Scored) else (None, None)
    step = transcript.cited(quote, metric, turn_index, label)
    row = verdict_row(judge, verdict, lambda _: step is not None) | step_columns(step)
    if not isinstance(verdict, Scored):
        return row | {"unscored_reason": verdict.reason, "judge_model": judge}
    return row | {
        "value": verdict.value,
        "label": verdict.label,
        "further_labels": list(verdict.further_labels) if verdict.label is not None else None,
        **_cause_columns(verdict),
        "judge_model": verdict.answered_by or judge,
        "judged_at": verdict.answered_at,
    }


def _cause_columns(verdict: Scored) -> Row:
    """Return the columns on the causes of the failure labels, null where the verdict gives none."""
    if not verdict.causes:
        return {}
    main = cause_of(verdict, verdict.label)
    further = [cause_of(verdict, label) for label in verdict.further_labels]
    return {
        "cause": main.cause,
        "should_have": main.should_have,
        "further_causes": [further_cause.cause for further_cause in further],
        "further_should_have": [further_cause.should_have for further_cause in further],
    }


def _not_applicable(metric: str, reason: str) -> Row:
    return {
        "metric": metric,
        "judge": RULE,
        "status": "not_applicable",
        "unscored_reason": reason,
        "is_effective": True,
        "judge_model": RULE,
    }


def _labelled(of_turns: pl.DataFrame) -> dict[tuple[str, str, str], dict[int, Row]]:
    """Return people's effective failure labels by (version, agent, conversation) and turn index."""
    labels_of_conversation: dict[tuple[str, str, str], dict[int, Row]] = defaultdict(dict)
    for row in of_turns.filter(
        "is_effective", pl.col("judge") == HUMAN, pl.col("metric") == AGENT_BEHAVIOR_FAILURE.name
    ).iter_rows(named=True):
        key = (row["methodology_version"], row["agent_id"], row["conversation_id"])
        labels_of_conversation[key][row["turn_index"]] = row
    return labels_of_conversation


def _hallucination_rows(
    items: Sequence[_Item], tested: pl.DataFrame, labelled: Mapping[tuple[str, str, str], Mapping[int, Row]]
) -> Iterator[Row]:
    """Yield the row hallucination_passed of each version and conversation that serves the test under the version."""
    by_conversation = {(item.agent_id, item.conversation.conversation_id): item for item in items}
    for version, agent, conversation in tested.select(_PAIR_AND_CONVERSATION).iter_rows():
        item = by_conversation.get((agent, conversation))
        if item is None:
            continue
        people = labelled.get((version, agent, conversation), {})
        verdict = hallucination_verdict(item.conversation, list(item.of_turns()), people)
        row = _verdict_row(item.transcript, HALLUCINATION_PASSED, None, RULE, verdict)
        stated = {"methodology_version": version, "metric": HALLUCINATION_PASSED, "is_effective": True}
        yield item.where | stated | row


def _beside(judgments: Table, ours: pl.DataFrame, *foreign: pl.DataFrame) -> pl.DataFrame:
    """Concatenate our rows and the rows of other tools. If rows of other tools share a key, the last one is kept."""
    return pl.concat([ours, pl.concat(foreign).unique(judgments.key, keep="last", maintain_order=True)])


def _for_versions(rows: pl.DataFrame, admitted: pl.DataFrame) -> pl.DataFrame:
    """Repeat the rows for each version that admits their conversation."""
    versions = admitted.select(_PAIR_AND_CONVERSATION)
    joined = versions.join(
        rows.drop("methodology_version"), on=_CONVERSATION, how="inner", maintain_order="left_right"
    )
    return joined.select(rows.columns)
