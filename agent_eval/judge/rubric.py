"""Rate rubrics: U1–U6 per session, and three criteria per scenario conversation.

The result is complete: every part that a version expects to be rated has a row, with the reason if it has no rating.
Exactly one row per part is effective.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.judge.evidence import Transcript
from agent_eval.judge.inputs.human_ratings import outdated_ratings, placed_ratings
from agent_eval.judge.inputs.rater_rules import RaterRule, decided_ratings
from agent_eval.judge.judging_pass import (
    HUMAN,
    AskedQuestions,
    Row,
    given_answers,
    judge_questions,
    unanswered_sequences,
    verdict_row,
)
from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import Lookup, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.people import DISPUTED, raters
from agent_eval.judge.prompts import NO_BLINDED_TERMS, BlindedTerms
from agent_eval.judge.prompts.attachments import why_not_sent
from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules import AUTONOMY, RULE
from agent_eval.methodology.models import SCENARIOS, Dimension, Methodology, Template
from agent_eval.metrics.base import NEEDS_MULTIMODAL, NO_TURNS, Metric
from agent_eval.metrics.findings import TRANSCRIPT, RatingFinding, facts_of, findings_of
from agent_eval.metrics.profile import CAPS, asked_since
from agent_eval.metrics.rubrics import criterion_metrics, universal_metrics
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Conversations, Sessions, Transcripts, Turns
from agent_eval.transcripts.content_hash import session_hash
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import SLOTS, Conversation, Turn, n_turn_indexes

NO_JUDGE = "none"
NO_RATING = "no rating: needs a judge model or a human"
NEEDS_HUMAN = "no rating: the agent crashed before its first message; needs a human"
_JUDGED_ON = {cap.target: cap.within for cap in CAPS if cap.metric == TRANSCRIPT}
"""The test whose conversations decide a dimension, by dimension. The others are judged on the whole session."""

_CRASHED = "The agent crashed before its first message in every conversation that serves the test."
_TABLE = table("rubric_ratings")
_PAIR = ["methodology_version", "agent_id"]
_SESSION = [*_PAIR, "session_id"]
_CONVERSATION = ["agent_id", "conversation_id"]


def rubric_ratings(
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
    sessions: Sessions,
    human_ratings: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
    lookup: Lookup,
    *,
    judgments: pl.DataFrame | None = None,
    panel: Panel | None = None,
    names: Mapping[str, BlindedTerms] | None = None,
    watch: Watch | None = None,
    rater_rule: RaterRule = "adjudicator",
) -> pl.DataFrame:
    """Return the table rubric_ratings for every pair (version and agent) in `transcripts`.

    The admitted conversations of the sessions declared for the version are rated: U1–U6 once per session, the three
    criteria once per conversation in a slot. There are also rows for a slot without a conversation, a dimension
    without its required test, a pair without a session and an agent without a template.

    Ratings by people take precedence over rules (U5 is computed from the interventions), and rules over other judges.
    If people differ and the difference is not resolved, the effective row has the status disputed and no rating; it
    is not replaced by a judge's rating. A rating that names the wrong session is ignored.

    Args:
        transcripts: Table transcripts.
        conversations: Table conversations of the same agents.
        turns: Table turns of the same agents.
        sessions: Table sessions of the same agents.
        human_ratings: Table human_ratings of the same agents.
        methodologies: Methodologies by version, for all versions in `transcripts`.
        lookup: Returns the rows of judge_cache for question keys.
        judgments: Tables turn_judgments and conversation_judgments of the pairs, concatenated. Their findings are shown
            to models and limit their ratings.
        panel: The judge models. They are asked only questions that rules leave open and that have no stored answer.
        names: Names to hide from the models, by agent.
        watch: Callback that receives the progress of the models.
        rater_rule: Rule that resolves differing ratings by people.
    """
    material = _held(transcripts, conversations, turns, sessions, names or {})
    pairs = _pairs(transcripts)
    parts = [part for pair in pairs for part in _parts(pair, methodologies, material)]
    if judgments is not None:
        _find(parts, judgments)
    groups = _asked(parts)
    judge_questions([questions for questions, _ in groups], lookup, panel=panel, names=names, watch=watch)
    for questions, of_place in groups:
        _hand_out(questions, of_place)
    placed = placed_ratings(human_ratings, conversations)
    people = _people(placed, [pair.methodology_version for pair in pairs], rater_rule)
    return _TABLE.conform(_TABLE.frame(row for part in parts for row in _rows(part, people)))


def open_questions(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    sessions: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
    names: Mapping[str, BlindedTerms],
) -> list[QuestionSequence]:
    """Return the questions that `rubric_ratings` would ask models if no answers or findings were stored."""
    material = _held(transcripts, conversations, turns, sessions, names)
    groups = _asked([part for pair in _pairs(transcripts) for part in _parts(pair, methodologies, material)])
    return unanswered_sequences([questions for questions, _ in groups], names)


def orphan_ratings(
    human_ratings: pl.DataFrame, conversations: pl.DataFrame, turns: pl.DataFrame
) -> tuple[str, ...]:
    """Return a warning with file and line for each human rating of something that does not exist or has changed.

    Such a rating names an unknown agent, session, conversation or turn, a conversation of another session, a
    scenario (D1–D5) that is not the slot of the conversation, or a turn whose text is not the one that was rated.
    """
    by_agent: dict[str, dict[str, Row]] = defaultdict(dict)
    columns = ("session_id", "scenario", "n_turns", "n_user_messages")
    for row in conversations.select(*_CONVERSATION, *columns).iter_rows(named=True):
        n_indexes = n_turn_indexes(row["n_turns"], row["n_user_messages"])
        by_agent[row["agent_id"]][row["conversation_id"]] = row | {"n_indexes": n_indexes}
    outdated = outdated_ratings(human_ratings, turns).select("file", "line", "problem")
    problems = {(file, line): problem for file, line, problem in outdated.iter_rows()}
    problem_rows = (
        (row, _orphan(row, by_agent.get(row["agent_id"])) or problems.get((row["file"], row["line"])))
        for row in human_ratings.iter_rows(named=True)
    )
    return tuple(
        f"{row['file']}:{row['line']}: the rating of {row['target']} by {row['rater']} is ignored: {problem}."
        for row, problem in problem_rows
        if problem
    )


def _orphan(rating: Row, conversation_rows: Mapping[str, Row] | None) -> str | None:
    if conversation_rows is None:
        return f"agent {rating['agent_id']} has no conversations"
    session, name = rating["session_id"], rating["conversation_id"]
    if session is not None and all(row["session_id"] != session for row in conversation_rows.values()):
        return f"agent {rating['agent_id']} has no session {session}"
    if name is None:
        return None
    conversation = conversation_rows.get(str(name))
    if conversation is None:
        return f"agent {rating['agent_id']} has no conversation {name}"
    if session not in (None, conversation["session_id"]):
        return f"conversation {name} belongs to session {conversation['session_id']}, not {session}"
    index, n_indexes = rating["turn_index"], conversation["n_indexes"]
    if isinstance(index, int) and isinstance(n_indexes, int) and index >= n_indexes:
        return f"conversation {name} has {count_of(conversation['n_turns'], 'turn')}, counted from 0"
    if rating["target"] in SLOTS and conversation["scenario"] != rating["target"]:
        return f"conversation {name} is not in slot {rating['target']}"
    return None


@dataclass(frozen=True)
class _Held:
    """Hold a conversation that is rated, with its texts and its role in the session."""

    conversation: Conversation
    turns: tuple[Turn, ...]
    content_hash: str
    slot: str | None
    tests: frozenset[str]
    transcript: Transcript

    @property
    def is_early_crash(self) -> bool:
        """Return whether the agent crashed before the first message, which is a result of the agent."""
        return not self.turns and self.conversation.outcome.is_crash


@dataclass(frozen=True)
class _Material:
    """Hold the conversations by pair and session, the template of each pair, and why a pair has no session."""

    by_session: Mapping[AgentVersion, Mapping[str, Sequence[_Held]]]
    templates: Mapping[AgentVersion, str]
    reasons: Mapping[AgentVersion, str]


@dataclass
class _Part:
    """Hold a part to rate, with its question or the reason why it cannot be rated."""

    pair: AgentVersion
    session_id: str | None
    conversation_id: str | None
    target: str
    criterion: str | None
    metric: Metric | None = None  # None if the part cannot be rated
    question: Question | None = None
    held: Sequence[_Held] = ()  # the rated conversations
    findings: tuple[RatingFinding, ...] = ()
    status: str = "missing"
    reason: str = NO_RATING
    answers: list[tuple[str, Verdict]] = field(default_factory=list[tuple[str, Verdict]])

    @property
    def where(self) -> Row:
        names = ("session_id", "conversation_id", "target", "criterion")
        return {**self.pair._asdict(), **{name: getattr(self, name) for name in names}}


def _pairs(transcripts: pl.DataFrame) -> list[AgentVersion]:
    return [AgentVersion(a, v) for v, a in transcripts.select(_PAIR).unique().sort(_PAIR).iter_rows()]


def _held(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    sessions: pl.DataFrame,
    names: Mapping[str, BlindedTerms],
) -> _Material:
    declared = (
        sessions.explode("methodology_versions")
        .rename({"methodology_versions": "methodology_version"})
        .select(_SESSION)
    )
    counted_transcripts = transcripts.filter("is_admitted").join(declared, on=_SESSION, how="semi")
    counted_rows = conversations.join(counted_transcripts, on=_CONVERSATION, how="semi")
    hashes = {(a, c): h for a, c, h in counted_rows.select(*_CONVERSATION, "content_hash").iter_rows()}
    built = {
        (agent, c.conversation_id): (
            c,
            c.turns(),
            Transcript(c.turns(), names.get(agent, NO_BLINDED_TERMS).personal),
        )
        for agent, c in conversations_from(
            counted_rows, turns.join(counted_rows, on=_CONVERSATION, how="semi")
        )
    }
    by_session: dict[AgentVersion, dict[str, list[_Held]]] = defaultdict(lambda: defaultdict(list))
    for row in counted_transcripts.sort(*_SESSION, "conversation_id").iter_rows(named=True):
        key = (row["agent_id"], row["conversation_id"])
        conversation, of_turns, transcript = built[key]
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        by_session[pair][row["session_id"]].append(
            _Held(conversation, of_turns, hashes[key], row["slot"], frozenset(row["tests"]), transcript)
        )
    template_rows = transcripts.filter(pl.col("template").is_not_null()).select(*_PAIR, "template").unique()
    why = (
        transcripts.filter(~pl.col("is_admitted"), pl.col("reason").is_not_null())
        .group_by(_PAIR)
        .agg(pl.col("reason").unique().sort().str.join("; "))
    )
    return _Material(
        by_session,
        {AgentVersion(a, v): template for v, a, template in template_rows.iter_rows()},
        {AgentVersion(a, v): reason for v, a, reason in why.iter_rows()},
    )


def _parts(
    pair: AgentVersion, methodologies: Mapping[str, Methodology], material: _Material
) -> Iterator[_Part]:
    version = pair.methodology_version
    methodology = methodologies[version]
    template = next((t for t in methodology.templates if t.slug == material.templates.get(pair)), None)
    sessions = material.by_session.get(pair, {})
    if not sessions:
        reason = material.reasons.get(pair, f"no session declared for {version}")
        for dimension in methodology.dimensions:
            yield _Part(pair, None, None, dimension.id, None, reason=reason)
        yield from _without_conversation(_Part(pair, None, None, "", None, reason=reason), template)
    for session_id, conversations in sessions.items():
        yield from _universal_parts(pair, session_id, conversations, methodology)
        yield from _domain_parts(pair, session_id, conversations, template)


def _universal_parts(
    pair: AgentVersion, session_id: str, chats: Sequence[_Held], methodology: Methodology
) -> Iterator[_Part]:
    crashed = [h for h in chats if h.is_early_crash]
    rated = [h for h in chats if h.turns] or crashed  # other conversations without messages cannot be rated
    content_hash = session_hash(h.content_hash for h in rated)
    metrics = universal_metrics(methodology)
    for dimension in methodology.dimensions:
        part = _Part(pair, session_id, None, dimension.id, None)
        tested = [h for h in chats if dimension.needs_test in h.tests]
        if not rated:
            part.reason = NO_TURNS
        elif dimension.needs_test is not None and not tested:
            part.reason = _lacks_test(dimension)
        elif tested and all(h.is_early_crash for h in tested):
            part.metric, part.held = metrics[dimension.id], tested
            part.answers = [(RULE, Scored(_CRASHED, rating_1to5=1, answered_by=RULE))]
        else:
            _ask(part, metrics[dimension.id], rated, content_hash)
            part.held = [*rated, *(h for h in crashed if h not in rated)]
            part.reason = NO_RATING if any(h.turns for h in rated) else NEEDS_HUMAN
        yield part


def _lacks_test(dimension: Dimension) -> str:
    if dimension.needs_test == "error_injection":
        return "no injected error in the session"
    return f"no {dimension.needs_test} test in the session"


def _domain_parts(
    pair: AgentVersion, session_id: str, chats: Sequence[_Held], template: Template | None
) -> Iterator[_Part]:
    metrics = criterion_metrics(template) if template else {}
    for slot in SCENARIOS:
        in_slot = [h for h in chats if h.slot == slot] if template else []
        if not in_slot or template is None:
            empty = _Part(
                pair, session_id, None, slot, None, reason=f"no {slot} conversation in session {session_id}"
            )
            yield from _without_conversation(empty, template, [slot])
            continue
        for one in in_slot:
            for criterion in template.criteria:
                part = _Part(pair, session_id, one.conversation.conversation_id, slot, criterion.id)
                if one.turns or one.is_early_crash:
                    _ask(part, metrics[f"{slot}.{criterion.id}"], [one], one.content_hash)
                    part.reason = NO_RATING if one.turns else NEEDS_HUMAN
                else:
                    part.reason = NO_TURNS
                yield part


def _without_conversation(
    like: _Part, template: Template | None, slots: Collection[str] = SCENARIOS
) -> Iterator[_Part]:
    """Yield the parts of slots that cannot be rated: one per criterion, or one per slot if there is no template."""
    for slot in slots:
        for criterion in [c.id for c in template.criteria] if template else [None]:
            part = _Part(like.pair, like.session_id, None, slot, criterion)
            part.reason = like.reason
            if template is None:
                part.status = "not_applicable"
                part.reason = f"no template for the agent's category in {like.pair.methodology_version}"
            yield part


def _ask(part: _Part, metric: Metric, chats: Sequence[_Held], content_hash: str) -> None:
    key = question_key(content_hash, None, metric.name, metric.rubric_hash, asked_since(metric.name))
    part.metric = metric
    part.held = chats
    part.question = Question(
        conversations=tuple(h.conversation for h in chats),
        turns=tuple(h.turns for h in chats),
        turn_index=None,
        content_hash=content_hash,
        metrics=(metric,),
        keys={metric.name: key},
    )


def _asked(parts: Sequence[_Part]) -> list[tuple[AskedQuestions, list[_Part]]]:
    """Group the parts that share a call: U1–U6 of a session, or the criteria of a conversation."""
    by_place: dict[tuple[str | None, ...], list[_Part]] = defaultdict(list)
    for part in parts:
        if part.question is not None:
            place = (part.pair.methodology_version, part.pair.agent_id, part.session_id, part.conversation_id)
            by_place[place].append(part)
    return [
        (AskedQuestions(of_place[0].pair.agent_id, [_joined(of_place)], of_place[0].findings), of_place)
        for of_place in by_place.values()
    ]


def _joined(parts: Sequence[_Part]) -> Question:
    """Return a question with the metrics of all parts, which must have the same conversations."""
    questions = [part.question for part in parts if part.question]
    metrics = tuple(metric for question in questions for metric in question.metrics)
    keys = {name: key for question in questions for name, key in question.keys.items()}
    return replace(questions[0], metrics=metrics, keys=keys)


def _hand_out(group: AskedQuestions, parts: Sequence[_Part]) -> None:
    """Assign the answers to the parts."""
    for part in parts:
        why = part.question and group.kinds is not None and why_not_sent(part.question, group.kinds)
        if why:
            part.reason = f"no rating: {why}" + (
                " or a human" if why == NEEDS_MULTIMODAL else "; needs a human"
            )
        for metric in part.question.metrics if part.question else ():
            part.answers = group.answers[0][metric.name]


def _find(parts: Sequence[_Part], judgments: pl.DataFrame) -> None:
    """Set the findings of each part from the judgments and transcripts of its conversations."""
    scored = judgments.filter("is_effective", pl.col("status") == "scored")
    rows: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in scored.sort("conversation_id", "turn_index", "metric", nulls_last=True).iter_rows(named=True):
        rows[row["methodology_version"], row["agent_id"], row["conversation_id"]].append(row)
    findings_of_conversation: dict[tuple[str, str, str], tuple[RatingFinding, ...]] = {}
    for part in parts:
        for chat in part.held:
            key = (part.pair.methodology_version, part.pair.agent_id, chat.conversation.conversation_id)
            if key not in findings_of_conversation:
                findings_of_conversation[key] = _findings(chat, rows[key])
            part.findings += findings_of_conversation[key]


def _findings(chat: _Held, rows: Sequence[Row]) -> tuple[RatingFinding, ...]:
    name = chat.conversation.conversation_id
    replied = [turn.turn_index for turn in chat.turns if turn.reply == "replied"]
    judge_findings = findings_of(rows, {name: chat.tests}, {name: replied[-1]} if replied else {})
    return (*facts_of(chat.conversation, chat.turns, chat.tests), *judge_findings)


def _people(
    placed: pl.DataFrame, versions: Sequence[str], rule: RaterRule
) -> dict[tuple[object, ...], list[Row]]:
    """Return the latest human rating of each rater, grouped by rated part."""
    rubric = placed.filter(pl.col("turn_index").is_null())
    people: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in decided_ratings(rubric, set(versions), rule).iter_rows(named=True):
        place = row["conversation_id"] or row["session_id"]
        key = (row["methodology_version"], row["agent_id"], place, row["target"], row["criterion"])
        people[key].append(row)
    return people


def _rows(part: _Part, people: Mapping[tuple[object, ...], Sequence[Row]]) -> Iterator[Row]:
    """Yield the rows of one part; exactly one is effective."""
    place = part.conversation_id or part.session_id
    key = (part.pair.methodology_version, part.pair.agent_id, place, part.target, part.criterion)
    ratings = people.get(key, ())
    is_rated = bool(ratings) and part.metric is not None
    question_facts = {
        "question_key": None if part.question is None else part.question.keys[part.question.metrics[0].name]
    }
    for rating in ratings:
        is_effective = is_rated and bool(rating["is_effective"])
        row = _human_row(part, rating)
        yield part.where | question_facts | row | _contradiction(part, row) | {"is_effective": is_effective}
    if is_rated and (dispute := ratings[0]["dispute"]):
        by = {"judge": HUMAN, "rater": raters(ratings)}
        yield part.where | question_facts | by | {"status": DISPUTED, "reason": dispute, "is_effective": True}
    judge_answers = list(given_answers(part.answers))
    for judge, verdict, is_effective in judge_answers:
        row = _verdict_row(part, judge, verdict)
        counts = {"is_effective": is_effective and not is_rated}
        yield part.where | question_facts | row | _contradiction(part, row) | counts
    if not judge_answers and not is_rated:
        unrated = {
            "status": part.status,
            "reason": _why_unrated(part),
            "judge": NO_JUDGE,
            "is_effective": True,
        }
        yield part.where | question_facts | unrated


def _why_unrated(part: _Part) -> str:
    """Return why a part has no rating. For U5, this includes why interventions could not be counted."""
    if part.metric is not None and part.target == AUTONOMY:
        uncounted = [v.reason for _, v in part.answers if isinstance(v, NotApplicable)]
        return f"{part.reason} ({uncounted[0]})" if uncounted else part.reason
    return part.reason


def _contradiction(part: _Part, row: Row) -> Row:
    """Return the reason why the transcript contradicts a rating: it is above 1, but the agent never replied.

    A rating that a rule computed from the transcript is not contradicted by it.
    """
    rating, test = row.get("rating_1to5"), _JUDGED_ON.get(part.target)
    chats = [h for h in part.held if test in h.tests] or part.held
    is_silent = bool(chats) and not any(h.conversation.n_replies for h in chats)
    if not is_silent or not isinstance(rating, int) or rating <= 1 or row["judge"] == RULE:
        return {}
    names = ", ".join(h.conversation.conversation_id for h in chats[:3]) + (", …" if len(chats) > 3 else "")
    return {"reason": f"rated above 1, but the agent never replied in conversation {names}"}


def _human_row(part: _Part, rating: Row) -> Row:
    names = ("rating_1to5", "rationale", "evidence", "rater", "rated_at", "decided_by")
    rating_columns = {name: rating[name] for name in names}
    quote = rating["evidence"]
    verified = {"evidence_verified": _is_quoted(part, quote) if isinstance(quote, str) and quote else None}
    return rating_columns | verified | {"status": "scored", "judge": HUMAN}


def _verdict_row(part: _Part, judge: str, verdict: Verdict) -> Row:
    row = verdict_row(judge, verdict, lambda quote: _is_quoted(part, quote))
    if not isinstance(verdict, Scored):
        return row | {"reason": verdict.reason, "rater": judge}
    return row | {"rater": verdict.answered_by or judge, "rated_at": verdict.answered_at}


def _is_quoted(part: _Part, quote: str) -> bool:
    return any(h.transcript.holds(quote) for h in part.held)
