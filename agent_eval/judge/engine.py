"""The judging pass: every metric of every turn and conversation, each question asked once for all versions.

Rules and stored verdicts are free and asked about everything; a model is asked only for what rules leave open and it
has not answered before. Questions do not name the methodology version, so the answers are found once and the rows are
given to every version that admits the conversation.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.inputs.human_ratings import latest_ratings, placed_ratings
from agent_eval.judge.inputs.recorded_verdicts import RecordedJudge
from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.calls import Thread
from agent_eval.judge.llm.panel import Given, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.prompts import NO_NAMES, Names
from agent_eval.judge.protocol import Judge, NotApplicable, Question, Scored, Unscored, Verdict
from agent_eval.judge.rules import NEEDS_MODEL, RULE, RulesJudge
from agent_eval.judge.run_sync import run
from agent_eval.metrics.base import NO_FAILURE, NO_REPLY, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE, FALSE_INFORMATION
from agent_eval.metrics.metric_set import DEFAULT, MetricSet, applicable, expected_of
from agent_eval.metrics.profile import PROFILE_VERSION
from agent_eval.tables import table
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import Conversation, Turn

Lookup = Callable[[Collection[str]], pl.DataFrame]
"""Rows of table judge_cache that answer any of the question keys."""
Answers = dict[str, list[tuple[str, Verdict]]]
"""Metric name → (judge, verdict), in the order of precedence."""
Row = dict[str, object]

HUMAN = "human"
HALLUCINATION = "hallucination"
HALLUCINATION_PASSED = "hallucination_passed"

_PAIR_AND_CONVERSATION = ["methodology_version", "agent_id", "conversation_id"]
_CONVERSATION = ["agent_id", "conversation_id"]
_QUESTION = [*_PAIR_AND_CONVERSATION, "turn_index", "metric"]
_TURNS, _CONVERSATIONS = table("turn_judgments"), table("conversation_judgments")
PAID = ("prompt_hash", "cost_usd", "n_tokens_in", "n_tokens_out", "n_tokens_cached")


@dataclass(frozen=True)
class Judged:
    """Tables turn_judgments and conversation_judgments."""

    turn_judgments: pl.DataFrame
    conversation_judgments: pl.DataFrame


def answered_freely(questions: Iterable[Question], judge: Judge) -> list[Answers]:
    """What a judge that costs nothing says to each question, abstentions included."""

    async def ask() -> list[Answers]:
        return [
            {name: [(judge.name, verdict)] for name, verdict in (await judge.judge(question)).items()}
            for question in questions
        ]

    return run(ask())


def open_part(question: Question, answers: Answers) -> Question | None:
    """The question with those metrics that a model is to answer; None where there are none."""
    metrics = [m for m in question.metrics if is_open(m, answers[m.name])]
    return question.about(metrics) if metrics else None


def is_open(metric: Metric, answers: Iterable[tuple[str, Verdict]]) -> bool:
    """Whether a metric still needs an answer. A rule's label leaves the other labels open."""
    return not metric.is_measured and not any(
        (isinstance(verdict, Scored) and not (metric.kind == "label" and judge == RULE))
        or (isinstance(verdict, NotApplicable) and not verdict.is_abstention)
        for judge, verdict in answers
    )  # fmt: skip


def add_answers(question: Question, answers: Answers, given: Given, recorded: Answers) -> None:
    """Behind the rules' answers those of the panel, and behind these what others answered before."""
    for name, key in question.keys.items():
        answers[name] += given.get(key, [])
        answers[name] += recorded[name]


def effective_answer(answers: Sequence[tuple[str, Verdict]]) -> int | None:
    """Which answer counts: the first in order of precedence; one lost to a judge's failure yields to any other."""
    given = [i for i, (_, verdict) in enumerate(answers) if not is_abstention(verdict)]
    return min(given, key=lambda i: (isinstance(answers[i][1], Unscored), i), default=None)


def is_abstention(verdict: Verdict) -> bool:
    """Whether the judge left the question to others."""
    return isinstance(verdict, NotApplicable) and verdict.is_abstention


def judge_transcripts(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    human_ratings: pl.DataFrame,
    lookup: Lookup,
    *,
    metrics: MetricSet = DEFAULT,
    panel: Panel | None = None,
    names: Mapping[str, Names] | None = None,
    watch: Watch | None = None,
) -> Judged:
    """Judge every admitted conversation of `transcripts`, whatever its versions, once.

    Metrics that always apply have rows for every turn, the others where they apply; what nobody answered has one row
    that says so, judge 'rule'. Conversation metrics likewise; hallucination_passed is there for conversations that
    serve the hallucination test under their version. Human ratings of turns count before everything else, where they
    point to a turn of the session they name. Exactly one row per question is effective.

    Args:
        transcripts: Table transcripts; rows that are not admitted are not judged.
        conversations: Table conversations of its agents.
        turns: Table turns of its agents.
        human_ratings: Table human_ratings of its agents.
        lookup: Finds stored verdicts by question key.
        metrics: What is asked.
        panel: The judge models, asked only for what rules leave open and they have not answered before.
        names: By agent, what a model is not to see.
        watch: Told how far the models are.
    """
    admitted = transcripts.filter("is_admitted").select(*_PAIR_AND_CONVERSATION, "tests")
    items = list(_items(admitted, conversations, turns, metrics))
    _answer(items, lookup, metrics, panel, names or {}, watch)
    of_turns = _for_versions(_TURNS.frame(row for item in items for row in _turn_rows(item)), admitted)
    of_turns = _with_human(of_turns, placed_ratings(human_ratings, conversations), items)
    rows = _for_versions(
        _CONVERSATIONS.frame(row for item in items for row in _conversation_rows(item)), admitted
    )
    tested = admitted.filter(pl.col("tests").list.contains(HALLUCINATION))
    passed = _for_versions(_CONVERSATIONS.frame(_hallucination_rows(items, tested)), tested)
    return Judged(_TURNS.conform(of_turns), _CONVERSATIONS.conform(pl.concat([rows, passed])))


def open_threads(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    metrics: MetricSet,
    names: Mapping[str, Names],
) -> list[Thread]:
    """What `judge_transcripts` would put to a model that has answered nothing yet: one thread per conversation."""
    admitted = transcripts.filter("is_admitted").select(*_PAIR_AND_CONVERSATION, "tests")
    items = list(_items(admitted, conversations, turns, metrics))
    _ask_rules(items)
    return _threads(items, names)


@dataclass
class _Item:
    """One conversation with its questions: one per turn that has a reply, then one for the whole."""

    agent_id: str
    conversation: Conversation
    turns: tuple[Turn, ...]
    metrics: MetricSet
    questions: list[Question] = field(default_factory=list[Question])
    answers: list[Answers] = field(default_factory=list[Answers])

    def __post_init__(self) -> None:
        self.transcript = Transcript(self.turns)

    @property
    def where(self) -> Row:
        return {"agent_id": self.agent_id, "conversation_id": self.conversation.conversation_id}

    def of_turns(self) -> Iterator[tuple[Question, Answers]]:
        """Turn questions with their answers."""
        pairs = zip(self.questions, self.answers, strict=True)
        return ((question, answers) for question, answers in pairs if question.turn_index is not None)


def _answer(
    items: Sequence[_Item],
    lookup: Lookup,
    metrics: MetricSet,
    panel: Panel | None,
    names: Mapping[str, Names],
    watch: Watch | None,
) -> None:
    """Fill the items' answers: rules, then models, then what others answered before."""
    questions = [question for item in items for question in item.questions]
    cache = lookup({key for question in questions for key in question.keys.values()})
    _ask_rules(items)
    given: Given = {}
    if panel is not None:
        given = panel.answers(_threads(items, names), cache, metrics.metrics, watch=watch)
        cache = panel.others(cache)
    recorded = iter(answered_freely(questions, RecordedJudge(cache)))
    for item in items:
        for question, answers in zip(item.questions, item.answers, strict=True):
            add_answers(question, answers, given, next(recorded))


def _ask_rules(items: Sequence[_Item]) -> None:
    answers = iter(answered_freely((q for item in items for q in item.questions), RulesJudge()))
    for item in items:
        item.answers = [next(answers) for _ in item.questions]


def _threads(items: Sequence[_Item], names: Mapping[str, Names]) -> list[Thread]:
    return [
        Thread(
            [q for pair in zip(item.questions, item.answers, strict=True) if (q := open_part(*pair))],
            names.get(item.agent_id, NO_NAMES),
        )
        for item in items
    ]


def _items(
    admitted: pl.DataFrame, conversations: pl.DataFrame, turns: pl.DataFrame, metrics: MetricSet
) -> Iterator[_Item]:
    wanted = conversations.join(admitted, on=_CONVERSATION, how="semi")
    held = turns.join(wanted, on=_CONVERSATION, how="semi").sort(*_CONVERSATION, "turn_index")
    hashes = {
        (agent, conversation): content_hashes
        for agent, conversation, content_hashes in held.group_by(_CONVERSATION)
        .agg("content_hash")
        .iter_rows()
    }
    whole = {(a, c): h for a, c, h in wanted.select(*_CONVERSATION, "content_hash").iter_rows()}
    for agent_id, conversation in conversations_from(wanted, held):
        key = (agent_id, conversation.conversation_id)
        item = _Item(agent_id, conversation, conversation.turns(), metrics)
        item.questions.extend(_turn_questions(item, hashes[key]))
        if metrics.conversation:
            item.questions.append(_question(item, None, whole[key], metrics.conversation))
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
    seen = item.turns if turn_index is None else item.turns[: turn_index + 1]
    hashes = item.metrics.rubric_hashes
    keys = {
        m.name: question_key(content_hash, turn_index, m.name, hashes[m.name], PROFILE_VERSION)
        for m in metrics
    }
    return Question((item.conversation,), (seen,), turn_index, content_hash, metrics, keys)


def _turn_rows(item: _Item) -> Iterator[Row]:
    asked = set()
    for question, answers in item.of_turns():
        asked.add(question.turn_index)
        where = {**item.where, "turn_index": question.turn_index}
        for metric in question.metrics:
            for row in _rows(item, question, metric, answers[metric.name]):
                yield where | row
    for turn in item.turns:
        if turn.turn_index not in asked:
            for name in sorted(m.name for m in item.metrics.turn if m.applies_when == "always"):
                yield {**item.where, "turn_index": turn.turn_index} | _not_applicable(name, NO_REPLY)


def _conversation_rows(item: _Item) -> Iterator[Row]:
    for question, answers in zip(item.questions, item.answers, strict=True):
        for metric in question.metrics if question.turn_index is None else ():
            for row in _rows(item, question, metric, answers[metric.name]):
                yield item.where | row


def _rows(
    item: _Item, question: Question, metric: Metric, answers: Sequence[tuple[str, Verdict]]
) -> Iterator[Row]:
    """One row per judge that answered; where none did, one that says so."""
    asked = {
        "question_key": question.keys[metric.name],
        "rubric_hash": item.metrics.rubric_hashes[metric.name],
    }
    best = effective_answer(answers)
    if best is None:
        yield _not_applicable(metric.name, NEEDS_MODEL) | asked
        return
    for i, (judge, verdict) in enumerate(answers):
        if is_abstention(verdict):
            continue
        if i == best and metric.kind == "label":
            verdict = _with_further_labels(judge, verdict, answers[i + 1 :])
        row = _verdict_row(item.transcript, question.turn_index, judge, verdict)
        yield {"metric": metric.name, "is_effective": i == best} | asked | row


def _with_further_labels(judge: str, verdict: Verdict, others: Sequence[tuple[str, Verdict]]) -> Verdict:
    """A rule's finding with the failures that the next judge saw beside it: a rule sees only its own."""
    if judge != RULE or not isinstance(verdict, Scored):
        return verdict
    for other, second in others:
        if isinstance(second, Scored) and second.label is not None:
            seen = {NO_FAILURE, verdict.label, *verdict.further_labels}
            more = [label for label in (second.label, *second.further_labels) if label not in seen]
            if not more:
                return verdict
            return replace(
                verdict,
                further_labels=(*verdict.further_labels, *dict.fromkeys(more)),
                rationale=f"{verdict.rationale} {', '.join(more)} ({other}): {second.rationale}",
            )
    return verdict


def _verdict_row(transcript: Transcript, turn_index: int | None, judge: str, verdict: Verdict) -> Row:
    if isinstance(verdict, NotApplicable):
        return {
            "judge": judge,
            "status": "not_applicable",
            "unscored_reason": verdict.reason,
            "judge_model": judge,
        }
    if isinstance(verdict, Unscored):
        return {
            "judge": judge,
            "status": "unscored",
            "unscored_reason": verdict.reason,
            "rationale": verdict.detail,
            "judge_model": judge,
            **{name: getattr(verdict, name) for name in PAID},
        }
    quote = verdict.evidence or None
    return {
        "judge": judge,
        "status": "scored",
        "rating_1to5": verdict.rating_1to5,
        "value": verdict.value,
        "label": verdict.label,
        "further_labels": list(verdict.further_labels) if verdict.label is not None else None,
        "rationale": verdict.rationale,
        "evidence": quote,
        "evidence_verified": transcript.holds(quote, turn_index) if quote else None,
        "judge_model": verdict.answered_by or judge,
        "judged_at": verdict.answered_at,
        "disagreement": verdict.disagreement,
        **{name: getattr(verdict, name) for name in PAID},
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


def _hallucination_rows(items: Sequence[_Item], tested: pl.DataFrame) -> Iterator[Row]:
    wanted = set(tested.select(_CONVERSATION).iter_rows())
    for item in items:
        if (item.agent_id, item.conversation.conversation_id) in wanted:
            verdict = hallucination_verdict(item.conversation, list(item.of_turns()))
            row = _verdict_row(item.transcript, None, RULE, verdict)
            yield item.where | {"metric": HALLUCINATION_PASSED, "is_effective": True} | row


def hallucination_verdict(conversation: Conversation, judged: Sequence[tuple[Question, Answers]]) -> Verdict:
    """Whether the hallucination stress test was passed: 1 or 0, or an abstention.

    The declared outcome decides; else it is failed as soon as one turn holds false information, and passed when every turn
    with a reply was judged by somebody other than a rule, which would not see it.
    """
    if (correct := conversation.outcome.correct) is not None:
        source = f" ({conversation.outcome.source})" if conversation.outcome.source else ""
        said = "passed" if correct else "failed"
        return Scored(f"Declared outcome: {said}{source}.", value=float(correct), answered_by=RULE)
    n_judged = 0
    for question, answers in judged:
        found = [(j, v) for j, v in answers.get(AGENT_BEHAVIOR_FAILURE.name, ()) if isinstance(v, Scored)]
        for judge, verdict in found:
            if FALSE_INFORMATION in (verdict.label, *verdict.further_labels):
                why = f"False information in turn {question.turn_index} ({judge}): {verdict.rationale}"
                return Scored(why, evidence=verdict.evidence, value=0.0, answered_by=RULE)
            if judge != RULE:
                n_judged += 1
                break
    if not judged or n_judged < len(judged):
        return NotApplicable(NEEDS_MODEL if judged else NO_REPLY)
    return Scored(f"No false information in {n_judged} judged turns.", value=1.0, answered_by=RULE)


def _for_versions(rows: pl.DataFrame, admitted: pl.DataFrame) -> pl.DataFrame:
    """The rows once for each version that admits their conversation."""
    versions = admitted.select(_PAIR_AND_CONVERSATION)
    joined = versions.join(
        rows.drop("methodology_version"), on=_CONVERSATION, how="inner", maintain_order="left_right"
    )
    return joined.select(rows.columns)


def _with_human(rows: pl.DataFrame, human_ratings: pl.DataFrame, items: Iterable[_Item]) -> pl.DataFrame:
    """The rows with the human ratings of their turns: they count before all others and replace 'nobody answered'."""
    on_turns = human_ratings.filter(pl.col("turn_index").is_not_null())
    if on_turns.is_empty():
        return rows
    said = _human_rows(
        rows, on_turns, {(i.agent_id, i.conversation.conversation_id): i.transcript for i in items}
    )
    nobody = (pl.col("judge") == RULE) & (pl.col("unscored_reason") == NEEDS_MODEL)
    overruled = rows.join(said, on=_QUESTION, how="semi").filter(~nobody.fill_null(False))
    untouched = rows.join(said, on=_QUESTION, how="anti")
    return pl.concat([untouched, overruled.with_columns(is_effective=pl.lit(False)), said])


def _human_rows(
    rows: pl.DataFrame, on_turns: pl.DataFrame, transcripts: Mapping[tuple[str, str], Transcript]
) -> pl.DataFrame:
    """The latest human rating of each rated turn that has a reply, per version."""
    is_replied = pl.col("unscored_reason").ne_missing(NO_REPLY)
    questions = rows.filter("is_effective", is_replied).select(*_QUESTION, "question_key", "rubric_hash")
    latest = latest_ratings(on_turns, rows["methodology_version"].unique().to_list())
    latest = latest.rename({"target": "metric", "rater": "judge_model", "rated_at": "judged_at"})
    return _TURNS.frame(
        row
        | {
            "judge": HUMAN,
            "status": "scored",
            "is_effective": True,
            "evidence_verified": transcripts[row["agent_id"], row["conversation_id"]].holds(
                row["evidence"], row["turn_index"]
            )
            if row["evidence"]
            else None,
        }
        for row in latest.join(questions, on=_QUESTION, how="inner").iter_rows(named=True)
    )
