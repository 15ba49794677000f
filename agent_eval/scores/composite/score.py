"""Compute the composite (the weighted sum minus a single penalty, at least 0) and its status.

`composite_parts` defines the formula. Both the table and the function for notebooks use it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Literal, TypeAlias

import polars as pl

from agent_eval.errors import ArgumentError, InputError
from agent_eval.formats.plain_text import count_of
from agent_eval.methodology.models import DIMENSIONS, SCENARIOS, Methodology
from agent_eval.scores.composite.board_facts import board_facts
from agent_eval.scores.composite.copies import REPEATED
from agent_eval.scores.composite.disclosures import Disclosed, counted, declared, disclosed
from agent_eval.scores.composite.domain import domain_0to100, scenario_0to100
from agent_eval.scores.composite.ratings import PAIR, methodology_of, pairs_of
from agent_eval.scores.composite.universal import universal_0to100
from agent_eval.scores.labelled_parts import corrected_rates_of, goal_parts
from agent_eval.scores.reliability.refused import refused_by_agent, refused_records
from agent_eval.scores.statistics.exact import as_float, as_text, from_text, mean
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import (
    CompositeScores,
    ConversationJudgments,
    Conversations,
    DomainScores,
    ImportErrors,
    Sessions,
    Transcripts,
    UniversalScores,
)
from agent_eval.tables.judging import enters_means
from agent_eval.transcripts.admission import ANY, is_lost_to_harness
from agent_eval.transcripts.outcomes import is_unexplained_error

SCALE = range(1, 6)
_LOWEST = Fraction(100 * SCALE[0], SCALE[-1])  # the score of ratings that are all 1

Status = Literal["published", "provisional", "incomplete", "invalid", "not_applicable"]
Row: TypeAlias = Mapping[str, object]
Rating: TypeAlias = int | None  # None if not rated
Triple: TypeAlias = Sequence[Rating]


def _invalid_rating(key: str, problem: str) -> InputError:
    return InputError(
        f"{key}: {problem}. Allowed are integers 1–5 under {', '.join(DIMENSIONS)} and three of them "
        f"(or a list of such triples) under {', '.join(SCENARIOS)}; omit missing ratings or pass None for them."
    )


@dataclass(frozen=True)
class CompositeParts:
    """Hold the exact parts of a composite; an unknown part is None."""

    raw: Fraction | None
    penalty: Fraction | None
    score: Fraction | None


@dataclass(frozen=True)
class Composite:
    """Hold a composite for notebooks: floats for display and `exact` for comparison; None if parts are missing."""

    universal_0to100: float | None
    domain_0to100: float | None
    raw_composite_score: float | None
    repeatability_penalty: float | None
    composite_score: float | None
    exact: Fraction | None
    status: Literal["published", "provisional", "incomplete"]
    missing: tuple[str, ...]  # keys without a rating; 'repeatability_tested' if required but unknown


def composite_parts(
    universal: Fraction | None,
    domain: Fraction | None,
    methodology: Methodology,
    repeatability_tested: bool | None,
) -> CompositeParts:
    """Return the exact composite: U × w_u + D × w_d, minus the version's penalty once, at least 0.

    If U or D is None, all parts are None. If only the penalised disclosure is unknown, the raw sum is known,
    and penalty and score are None.

    Source: methodology 1.3.0, Score calculation.
    """
    if universal is None or domain is None:
        return CompositeParts(None, None, None)
    weights = methodology.weights
    raw = Fraction(weights.universal) * universal + Fraction(weights.domain) * domain
    points = methodology.penalty_points("repeatability_tested", repeatability_tested)
    if points is None:
        return CompositeParts(raw, None, None)
    return CompositeParts(raw, Fraction(points), max(Fraction(), raw - points))


def one_point(methodology: Methodology) -> Fraction:
    """Return the largest change that one point in one rating makes to a session's raw composite."""
    weights = methodology.weights
    return max(Fraction(weights.universal) * 100 / (5 * len(DIMENSIONS)), Fraction(weights.domain) * 100 / 75)


def composite(
    universal: Mapping[str, Rating],
    domain: Mapping[str, Triple | Sequence[Triple]],
    methodology: Methodology,
    *,
    repeatability_tested: bool | None,
) -> Composite:
    """Compute the composite of plain ratings.

    `universal` is a dict such as `{"U1": 5, …}`; `domain` is a dict with one triple per scenario or a list of
    triples, such as `{"D1": (5, 4, 5), "D2": [(5, 4, 5), (4, 4, 3)], …}`. Several triples of one scenario are
    averaged exactly. If a key is missing, its score is None and the status is 'incomplete'. If
    `repeatability_tested` is None although the version requires it, the status is 'provisional'.

    Raises:
        ArgumentError: If the ratings are not dicts, the methodology is not an entry of `Project.registry`, or
            `repeatability_tested` is not True, False or None.
        InputError: If a rating is not an integer from 1 to 5, or a key is unknown.
    """
    for name, value in (("universal", universal), ("domain", domain)):
        if not isinstance(value, Mapping):
            raise ArgumentError(name, value, "a dict of ratings by key")
    if not isinstance(methodology, Methodology):
        raise ArgumentError(
            "methodology", methodology, "a version such as open_project().registry.get('1.3.0')"
        )
    if repeatability_tested is not None and not isinstance(repeatability_tested, bool):
        raise ArgumentError("repeatability_tested", repeatability_tested, "True, False or None (unknown)")
    _known_keys("universal", universal, DIMENSIONS)
    _known_keys("domain", domain, SCENARIOS)
    ratings = {key: _rating(key, universal.get(key)) for key in DIMENSIONS}
    scenarios = {key: scenario_0to100(_criteria(key, domain.get(key, ()))) for key in SCENARIOS}
    u, d = universal_0to100(list(ratings.values())), domain_0to100(list(scenarios.values()))
    parts = composite_parts(u, d, methodology, repeatability_tested)
    unrated = [key for key, value in (ratings | scenarios).items() if value is None]
    is_required = "repeatability_tested" in methodology.required_disclosures or (
        methodology.penalty_points("repeatability_tested", None) is None
    )
    undisclosed = ["repeatability_tested"] if is_required and repeatability_tested is None else []
    return Composite(
        universal_0to100=as_float(u),
        domain_0to100=as_float(d),
        raw_composite_score=as_float(parts.raw),
        repeatability_penalty=as_float(parts.penalty),
        composite_score=as_float(parts.score),
        exact=parts.score,
        status="incomplete" if unrated else "provisional" if undisclosed else "published",
        missing=(*unrated, *undisclosed),
    )


@dataclass(frozen=True, kw_only=True)
class CompositeTables:
    """Hold the inputs of composite scores; fields are named after the tables whose rows they hold."""

    universal_scores: UniversalScores
    domain_scores: DomainScores
    transcripts: Transcripts
    sessions: Sessions
    conversations: Conversations
    conversation_judgments: ConversationJudgments
    import_errors: ImportErrors | None = None  # records rejected at import; None if there are none
    disputes: pl.DataFrame | None = None  # judgments and ratings with status 'disputed'
    judged: pl.DataFrame | None = None  # as for `board_facts`
    answered: pl.DataFrame | None = None  # as for `board_facts`


def composite_scores(tables: CompositeTables, methodologies: Mapping[str, Methodology]) -> CompositeScores:
    """Return table `composite_scores`: one row per pair with transcripts.

    An agent whose records were all refused also has a row, under each version that its sessions count for; a
    removed agent has no row. The status is the first of these that applies:

    - not_applicable: the agent has no template;
    - invalid: a judge or harness failure lost a required rating, or every declared session was lost;
    - incomplete: a score is missing;
    - provisional: a required test or disclosure is missing, ratings are missing only because people disagree,
      two models that are not declared as an ensemble gave ratings, the transcript contradicts a rating, a session is a
      copy of another one, or it repeats one reply, which was rated above 1;
    - published: none of the above.

    Raises:
        InputError: If rows name a version without a methodology.
    """
    transcripts, sessions, conversations = tables.transcripts, tables.sessions, tables.conversations
    judgments, errors = tables.conversation_judgments, tables.import_errors
    universal, domain = _by_pair(tables.universal_scores), _by_pair(tables.domain_scores)
    checked = disclosed(transcripts, sessions, conversations, judgments, methodologies)
    errors = table("import_errors").empty() if errors is None else errors
    measured = _measured(transcripts, conversations, judgments, refused_records(errors, transcripts))
    score_tables = (tables.universal_scores, tables.domain_scores, transcripts, sessions, conversations)
    facts = board_facts(*score_tables, methodologies, tables.judged, tables.answered)
    pairs = pairs_of(transcripts)
    runs = _runs(transcripts, sessions, conversations, pairs)
    templates = dict(_pairwise(transcripts, "template"))
    disputed = _disputed(tables.disputes)
    dates: dict[str, dict[str, object]] = {}
    for agent_id, session_id, day in sessions.select("agent_id", "session_id", "session_date").iter_rows():
        dates.setdefault(agent_id, {})[session_id] = day
    rows = (
        _row(
            pair,
            methodology_of(pair.methodology_version, methodologies),
            templates.get(pair),
            universal.get(pair, _unrated(DIMENSIONS)),
            domain.get(pair, _unrated(SCENARIOS)),
            checked[pair],
            runs[pair],
            dates.get(pair.agent_id, {}),
            _rejected(measured[pair]),
        )
        | measured[pair]
        | {"disputed": disputed.get(pair, [])}
        | facts[pair]
        for pair in pairs
    )
    unread = _refused_only(transcripts, sessions, errors, methodologies)
    return table("composite_scores").frame([*rows, *unread])


def _rejected(row: Row) -> list[str]:
    """Return a text for each session with records that were rejected at import."""
    counts = (text.rsplit(": ", 1) for text in _names(row["refused_sessions"]))
    return [f"session {name}: {count_of(int(n), 'record')} rejected at import" for name, n in counts]


def _refused_only(
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    import_errors: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
) -> Iterator[dict[str, object]]:
    """Yield a row for each agent whose records were all refused, under each version its sessions count for."""
    lost = refused_by_agent(import_errors)
    unread = sorted(lost.keys() - set(transcripts["agent_id"].unique()))
    of_unread = sessions.filter(pl.col("agent_id").is_in(unread))
    run_for = {
        (a, s): v
        for a, s, v in of_unread.select("agent_id", "session_id", "methodology_versions").iter_rows()
    }
    for agent in unread:
        for version in sorted(methodologies):
            counts = {
                session: n
                for session, n in lost[agent].items()
                if session is not None and {ANY, version} & {*run_for.get((agent, session), ())}
            }
            if not counts:
                continue
            n_refused = sum(counts.values())
            yield {
                "methodology_version": version,
                "agent_id": agent,
                "n_sessions": 0,
                "judge": "none",
                "judge_models": [],
                "status": "not_applicable",
                "missing": [f"no conversation: all {n_refused} records were refused at import"],
                "warnings": [],
                "disputed": [],
                "n_conversations": 0,
                "n_planned": n_refused,
                "n_harness_errors": 0,
                "n_unexplained_errors": 0,
                "n_refused": n_refused,
                "refused_sessions": [f"{name}: {n}" for name, n in sorted(counts.items())],
                "n_goal_completion": 0,
                "n_goal_unknown": 0,
                "goal_completion_worst": 0.0,
                "goal_completion_best": 1.0,
            }


@dataclass(frozen=True)
class _Run:
    """Hold the benchmark that counts for a pair, its harness failures and its superseded runs."""

    benchmark_id: str | None
    harness_failures: tuple[str, ...]  # 'session x: harness failure: why'
    superseded: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()  # later sessions for other versions
    of_same_date: tuple[str, ...] = ()  # runs of which only the names decide which one counts

    @property
    def is_lost(self) -> bool:
        """Return whether every declared session is a harness failure."""
        return self.benchmark_id is None and bool(self.harness_failures)


def _row(
    pair: AgentVersion,
    methodology: Methodology,
    template: object,
    universal: Row,
    domain: Row,
    checked: Disclosed,
    run: _Run,
    dates: Mapping[str, object],
    rejected: Sequence[str],
) -> dict[str, object]:
    u, d = _exact(universal["universal_exact"]), _exact(domain["domain_exact"])
    parts = composite_parts(u, d, methodology, checked.repeatability_tested)
    judges = {*_names(universal["judges"]), *_names(domain["judges"])}
    models = sorted({*_names(universal["judge_models"]), *_names(domain["judge_models"])})
    two_judges = (f"two judges: {' and '.join(models)}",) if len(models) > 1 else ()
    lost = run.harness_failures if run.is_lost else ()
    left_out = () if run.is_lost else run.harness_failures
    is_lowest = d == _LOWEST  # the same reply everywhere explains such ratings, and contradicts higher ones
    disclosures = tuple(text for text in checked.missing if not (is_lowest and text.startswith(REPEATED)))
    disclosures = (*disclosures, *run.of_same_date)
    of_ratings = (*_names(universal["missing"]), *_names(domain["missing"]))
    is_lost = run.is_lost or bool(universal["n_unscored"]) or bool(domain["n_unscored"])
    return {
        **pair._asdict(),
        "template": template,
        "benchmark_id": run.benchmark_id,
        "n_sessions": universal["n_sessions"],
        **_sessions(universal, domain, methodology, dates),
        "point_0to100": None if parts.raw is None else float(one_point(methodology)),
        "universal_0to100": as_float(u),
        "domain_0to100": as_float(d),
        "raw_composite_score": as_float(parts.raw),
        "raw_composite_exact": as_text(parts.raw),
        "repeatability_penalty": as_float(parts.penalty),
        "composite_score": as_float(parts.score),
        "composite_exact": as_text(parts.score),
        "repeatability_tested": checked.repeatability_tested,
        "u3_scope": checked.u3_scope,
        "hallucination_passed": checked.hallucination_passed,
        "judge": " + ".join(sorted(judges)) or "none",
        "judge_models": models,
        "status": _status(
            template is not None,
            is_lost,
            _is_undecided(universal, domain),
            parts,
            (*of_ratings, *disclosures, *two_judges),
        ),
        "missing": (*lost, *of_ratings, *disclosures, *two_judges),
        "warnings": (*checked.warnings, *left_out, *run.superseded),
        "text_sketches": checked.texts,
        "dropped_runs": (*left_out, *run.superseded, *run.elsewhere, *rejected),
    }


_UNDATED = "9999-12-31"


def _sessions(
    universal: Row, domain: Row, methodology: Methodology, dates: Mapping[str, object]
) -> dict[str, object]:
    """Return the session ids in the order of time, and the raw composite of each; null if it is not fully rated."""
    u, d = (
        dict(zip(_names(scores["session_ids"]), _floats(scores[name]), strict=True))
        for scores, name in ((universal, "session_universal"), (domain, "session_domain"))
    )
    weights = (float(methodology.weights.universal), float(methodology.weights.domain))
    names = sorted({*u, *d}, key=lambda name: (str(dates.get(name) or _UNDATED), name))
    values = [
        None if (a := u.get(name)) is None or (b := d.get(name)) is None else weights[0] * a + weights[1] * b
        for name in names
    ]
    return {"session_ids": names, "session_scores": values}


def _is_undecided(universal: Row, domain: Row) -> bool:
    """Return whether each of U and D is known or missing only because people disagree on ratings."""
    scores = ((universal, "universal_exact"), (domain, "domain_exact"))
    return all(row[name] is not None or bool(row["is_disputed"]) for row, name in scores)


def _disputed(disputes: pl.DataFrame | None) -> dict[AgentVersion, list[str]]:
    """Return each pair's disputes as texts such as 'U3 of session b (anna 4, ben 2)', in the given row order."""
    disputes_of_pair: dict[AgentVersion, list[str]] = {}
    for row in disputes.iter_rows(named=True) if disputes is not None else ():
        pair = AgentVersion.of(agent_id=row["agent_id"], methodology_version=row["methodology_version"])
        what = row["target"] if row["criterion"] is None else f"{row['target']}.{row['criterion']}"
        turn = "" if row["turn_index"] is None else f"turn {row['turn_index']} of "
        place = row["conversation_id"] or f"session {row['session_id']}"
        disputes_of_pair.setdefault(pair, []).append(f"{what} of {turn}{place} ({row['reason']})")
    return disputes_of_pair


def _status(
    has_template: bool, is_lost: bool, is_undecided: bool, parts: CompositeParts, reservations: Sequence[str]
) -> Status:
    if not has_template:
        return "not_applicable"
    if is_lost:
        return "invalid"
    if parts.raw is None:
        return "provisional" if is_undecided else "incomplete"
    return "provisional" if reservations else "published"


_COUNTED: Mapping[str, pl.Expr] = {
    "cost_usd": pl.when(
        pl.col("cost_usd").filter("is_admitted").is_null().any() | ~pl.col("is_admitted").any()
    )
    .then(None)
    .otherwise(pl.col("cost_usd").filter("is_admitted").sort().sum()),
    "goal_completion": pl.col("value").filter("is_admitted").sort().mean(),
    "n_goal_completion": pl.col("value").filter("is_admitted").count().cast(pl.Int64),
    "n_conversations": pl.col("is_admitted").sum().cast(pl.Int64),
    "n_lost": pl.col("is_lost_session").sum().cast(pl.Int64),
    "n_harness_errors": (
        (pl.col("is_harness_error").fill_null(False) & pl.col("is_admitted")) | pl.col("is_lost_session")
    )
    .sum()
    .cast(pl.Int64),
    "n_unexplained_errors": (pl.col("is_unexplained").fill_null(False) & pl.col("is_admitted"))
    .sum()
    .cast(pl.Int64),
    "doubted": (1 - pl.col("value")).filter("is_admitted", "is_unexplained").sort().sum(),
}
"""Aggregates over all conversations of a pair. Values are sorted because float sums depend on the order."""


def _measured(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    refused: pl.DataFrame,
) -> dict[AgentVersion, dict[str, object]]:
    """Compute goal completion and cost over the admitted conversations; null without conversations.

    The worst case counts every unknown outcome, including refused records, as failed; the best case as passed, together
    with the failures that ended in an error of unknown cause.
    """
    goals = conversation_judgments.filter(
        enters_means(conversation_judgments),
        pl.col("metric") == "goal_completion",
        pl.col("status") == "scored",
    )
    planned = transcripts.select(
        *PAIR, "conversation_id", "is_admitted", is_lost_session=is_lost_to_harness()
    )
    per_pair = (
        planned.join(
            conversations.select(
                "agent_id",
                "conversation_id",
                "cost_usd",
                is_harness_error=(pl.col("outcome_class") == "harness_error").fill_null(False),
                is_unexplained=is_unexplained_error(),
            ),
            on=["agent_id", "conversation_id"],
            how="left",
        )
        .join(goals.select(*PAIR, "conversation_id", "value"), on=[*PAIR, "conversation_id"], how="left")
        .group_by(PAIR)
        .agg(**_COUNTED)
        .join(_corrected_goals(transcripts, conversation_judgments), on=PAIR, how="left")
        .with_columns(
            goal_completion=pl.coalesce("value", "goal_completion"),
            goal_completion_of_judge=pl.when(pl.col("value").is_not_null()).then("goal_completion"),
        )
        .join(
            refused.group_by(PAIR).agg(pl.col("n_refused").sum(), pl.col("refused_sessions").explode()),
            on=PAIR,
            how="left",
        )
        .with_columns(
            pl.col("n_refused").fill_null(0),
            pl.col("refused_sessions").fill_null(pl.lit([], pl.List(pl.String))),
        )
        .with_columns(
            n_planned=pl.col("n_conversations") + pl.col("n_lost") + pl.col("n_refused"),
            n_goal_unknown=pl.col("n_conversations")
            + pl.col("n_lost")
            - pl.col("n_harness_errors")
            - pl.col("n_goal_completion"),
            reached=pl.col("goal_completion") * pl.col("n_goal_completion"),
        )
        .with_columns(
            goal_completion_worst=pl.col("reached") / pl.col("n_planned"),
            goal_completion_best=(
                pl.col("reached") + pl.col("doubted") + pl.col("n_planned") - pl.col("n_goal_completion")
            )
            / pl.col("n_planned"),
        )
    )
    columns = (
        "cost_usd", "goal_completion", "goal_completion_of_judge", "goal_completion_worst", "goal_completion_best", "n_goal_completion",
        "n_goal_unknown", "n_conversations", "n_planned", "n_harness_errors", "n_unexplained_errors", "n_refused", "refused_sessions",
    )  # fmt: skip
    return {
        AgentVersion(row["agent_id"], row["methodology_version"]): {name: row[name] for name in columns}
        for row in per_pair.iter_rows(named=True)
    }


def _corrected_goals(transcripts: pl.DataFrame, conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return goal completion over the admitted conversations of each pair that drawn labels correct."""
    parts = goal_parts(conversation_judgments)
    admitted = transcripts.filter("is_admitted")
    places = (
        admitted.select(
            *PAIR, "conversation_id", "session_id", cluster=pl.coalesce("task_id", "conversation_id")
        )
        if parts.height
        else admitted.select(*PAIR, "conversation_id")
    )
    rates = corrected_rates_of(parts.join(places, on=[*PAIR, "conversation_id"]), PAIR, "conversation_id")
    return rates.select(*PAIR, "value")


def _runs(
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    pairs: Sequence[AgentVersion],
) -> dict[AgentVersion, _Run]:
    counting = dict(_pairwise(counted(transcripts, sessions), "benchmark_id"))
    session_keys = transcripts.select(*PAIR, "session_id").unique()
    failed = (
        declared(sessions)
        .filter(pl.col("invalid_reason").is_not_null())
        .join(session_keys, on=[*PAIR, "session_id"], how="semi")
        .with_columns(text=pl.format("session {}: harness failure: {}", "session_id", "invalid_reason"))
    )
    dates = sessions.group_by("agent_id", "benchmark_id").agg(pl.col("session_date").max().alias("day"))
    latest = dates.rename({"benchmark_id": "superseded_by", "day": "latest"})
    is_same = pl.col("day").eq_missing(pl.col("latest")).alias("is_same")
    older = (
        transcripts.filter(pl.col("superseded_by").is_not_null())
        .join(dates, on=["agent_id", "benchmark_id"], how="left")
        .join(latest, on=["agent_id", "superseded_by"], how="left")
        .with_columns(
            is_same,
            text=pl.concat_str(
                pl.format("run {} is superseded by {}", "benchmark_id", "superseded_by"),
                pl.when(is_same & pl.col("day").is_null())
                .then(pl.lit(", which has no date either and a later name"))
                .when(is_same)
                .then(pl.lit(", which has the same date and a later name"))
                .when(pl.col("day").is_null() & pl.col("latest").is_not_null())
                .then(pl.lit(", because no session of the former has a date"))
                .otherwise(pl.lit("")),
            ),
        )
    )
    undecided = older.filter("is_same").with_columns(
        text=pl.format("run: {}; give them different dates, or one benchmark_id", "text")
    )
    texts = (
        _grouped(failed),
        _grouped(older),
        _grouped(_later_elsewhere(transcripts, sessions, conversations)),
        _grouped(undecided),
    )
    return {pair: _Run(counting.get(pair), *(reasons.get(pair, ()) for reasons in texts)) for pair in pairs}


def _later_elsewhere(
    transcripts: pl.DataFrame, sessions: pl.DataFrame, conversations: pl.DataFrame
) -> pl.DataFrame:
    """Return a text per session with slots or of another version that is later than the sessions that count."""
    of_session = sessions.select(
        "agent_id", "session_id", "session_date", run_for=pl.col("methodology_versions").list.join(", ")
    )
    dated_transcripts = transcripts.join(of_session, on=["agent_id", "session_id"], how="left")
    is_counted = pl.col("is_admitted") & (pl.col("run_for") != ANY)
    latest = dated_transcripts.filter(is_counted).group_by(PAIR).agg(latest=pl.col("session_date").max())
    is_of_version = pl.col("run_for").str.split(", ").list.contains(pl.col("methodology_version"))
    has_slots = (pl.col("run_for") != ANY) | pl.col("scenario").is_not_null()
    version = (
        pl.when(pl.col("run_for") == ANY).then(pl.lit("any version, so without slots")).otherwise("run_for")
    )
    text = pl.format("session {} of {} is later, but was run for {}", "session_id", "session_date", version)
    scenarios = conversations.select("agent_id", "conversation_id", "scenario")
    return (
        dated_transcripts.join(latest, on=PAIR)
        .join(scenarios, on=["agent_id", "conversation_id"], how="left")
        .filter(pl.col("session_date") > pl.col("latest"), ~is_of_version, has_slots)
        .with_columns(text=text)
    )


def _grouped(texts: pl.DataFrame) -> dict[AgentVersion, tuple[str, ...]]:
    pairs = itertools.groupby(_pairwise(texts, "text"), key=lambda item: item[0])
    return {pair: tuple(text for _, text in group) for pair, group in pairs}


def _pairwise(frame: pl.DataFrame, column: str) -> list[tuple[AgentVersion, str]]:
    """Return the distinct known values of a column for each pair, sorted."""
    rows = frame.select(*PAIR, column).drop_nulls().unique().sort(*PAIR, column).rows()
    return [(AgentVersion(agent, version), value) for version, agent, value in rows]


def _by_pair(scores: pl.DataFrame) -> dict[AgentVersion, Row]:
    return {AgentVersion(r["agent_id"], r["methodology_version"]): r for r in scores.iter_rows(named=True)}


def _unrated(targets: Sequence[str]) -> Row:
    """Return the score columns of a pair that has transcripts but no row of scores."""
    return {
        "n_sessions": 0,
        "session_ids": [],
        "session_universal": [],
        "session_domain": [],
        "universal_exact": None,
        "domain_exact": None,
        "judges": [],
        "judge_models": [],
        "n_unscored": 0,
        "is_disputed": False,
        "missing": [f"{target}: no rating" for target in targets],
    }


def _exact(text: object) -> Fraction | None:
    return from_text(text) if isinstance(text, str) else None


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _floats(value: object) -> list[float | None]:
    return (
        [number if isinstance(number, float) else None for number in value] if isinstance(value, list) else []
    )


def _known_keys(what: str, values: Mapping[str, object], allowed: Sequence[str]) -> None:
    for key in values:
        if key not in allowed:
            raise _invalid_rating(f"{what} key {key!r}", "no such key")


def _rating(key: str, value: object) -> Fraction | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) not in SCALE:
        raise _invalid_rating(key, f"{value!r} is not a rating")
    return Fraction(int(value))


def _criteria(key: str, value: Triple | Sequence[Triple]) -> list[Fraction | None]:
    """Return the three criteria, each as the exact mean over the given triples; None if any rating is None."""
    triples = _triples(key, value)
    columns: list[list[Fraction | None]] = [
        [_rating(f"{key}, criterion {i + 1}", triple[i]) for triple in triples] for i in range(3)
    ]
    return [
        mean(ratings)
        if triples and len(ratings := [v for v in column if v is not None]) == len(triples)
        else None
        for column in columns
    ]


def _triples(key: str, value: object) -> list[Sequence[object]]:
    if not isinstance(value, list | tuple):
        raise _invalid_rating(key, f"{value!r} is neither three ratings nor a list of such triples")
    triples = list(value) if all(isinstance(part, list | tuple) for part in value) else [value]
    for triple in triples:
        if len(triple) != 3:
            raise _invalid_rating(key, f"{triple!r} has {len(triple)} ratings, three are needed")
    return triples
