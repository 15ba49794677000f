"""Compute the board columns other than the scores: dimensions, sessions, methodology and dropped data."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import polars as pl

from agent_eval.methodology.models import DIMENSIONS, SCENARIOS, Methodology
from agent_eval.scores.composite.disclosures import counted
from agent_eval.scores.composite.ratings import PAIR, methodology_of
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.contract import DATES, NAMES

_RATED = (*(d.lower() for d in DIMENSIONS), *(s.lower() for s in SCENARIOS))
_SESSION = ("agent_id", "session_id")
_SEEN = {"n_judged": pl.Int64, "n_seen_in_part": pl.Int64, "least_seen_share": pl.Float64}
_EARLIER = {"n_earlier_wording": pl.Int64}
_SAMPLED = {"n_sampled": pl.Int64, "n_to_sample": pl.Int64}
NOT_SAMPLED = "not in the judged sample (judge_sample)"
"""Reason for a conversation that was not sent to any judge model (judge/sampling.py)."""
_LONGEST_NAME = 80  # characters of the name of a model
Facts = dict[str, object]


def board_facts(
    universal_scores: pl.DataFrame,
    domain_scores: pl.DataFrame,
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
    judgments: pl.DataFrame | None = None,
    answered: pl.DataFrame | None = None,
) -> dict[AgentVersion, Facts]:
    """Return the BOARD_FACTS columns for every pair in `transcripts`.

    Dates and evaluators are taken from the sessions that count. A dimension or scenario is null if it has no
    rating. `judgments` holds the number (`n`) of effective judgments and ratings per combination of PAIR,
    conversation_id, judge, status, reason, seen_share and earlier_profile. `answered` holds PAIR, judge and response_model of all answers.

    Raises:
        InputError: If rows name a version without a methodology.
    """
    rated = [
        scores.select(*PAIR, pl.col("^(u|d)[1-6]$").cast(pl.Float64))
        for scores in (universal_scores, domain_scores)
    ]
    rows = _per_pair(transcripts, sessions, conversations)
    for scores in rated:
        rows = rows.join(scores, on=PAIR, how="left")
    rows = rows.join(_seen(judgments), on=PAIR, how="left").join(_sampled(judgments), on=PAIR, how="left")
    rows = rows.join(_earlier(judgments), on=PAIR, how="left")
    of_models = {} if answered is None else _several_models(answered)
    fact_columns = (
        *_RATED,
        *_SEEN,
        *_EARLIER,
        *_SAMPLED,
        "session_dates",
        "evaluators",
        "suites",
        "n_harness_failures_dropped",
        "has_entered",
    )
    return {
        AgentVersion(row["agent_id"], row["methodology_version"]): {name: row[name] for name in fact_columns}
        | {"several_models": of_models.get((row["methodology_version"], row["agent_id"]), [])}
        | {
            "methodology_content_hash": methodology_of(
                row["methodology_version"], methodologies
            ).hash_with_scores
        }
        for row in rows.iter_rows(named=True)
    }


def several_models(answered: Iterable[tuple[str, str]]) -> list[str]:
    """Return a text for each judge whose answers came from several models, sorted; the models as their servers name them.

    A server can replace a model under its name, so that two models answered as one judge.

    Args:
        answered: Pairs of a judge and the model that answered.
    """
    by_judge: dict[str, set[str]] = defaultdict(set)
    for judge, model in answered:
        by_judge[judge].add(" ".join(model.split())[:_LONGEST_NAME])  # text of a server
    return [
        f"{judge} answered by {len(models)} models: {', '.join(sorted(models))}"
        for judge, models in sorted(by_judge.items())
        if len(models) > 1
    ]


def _several_models(answered: pl.DataFrame) -> dict[tuple[str, str], list[str]]:
    rows = answered.drop_nulls("response_model").group_by(PAIR)
    return {
        (str(version), str(agent)): several_models(of_pair.select("judge", "response_model").iter_rows())
        for (version, agent), of_pair in rows
    }


def _seen(judgments: pl.DataFrame | None) -> pl.DataFrame:
    """Count the scored judgments by models and those based on part of the evidence, with the smallest share seen."""
    if judgments is None:
        return pl.DataFrame(schema={**dict.fromkeys(PAIR, pl.String), **_SEEN})
    is_model = ~pl.col("judge").is_in(["human", "rule", "recorded", "none"])
    share = pl.col("seen_share")
    return (
        judgments.filter(is_model, pl.col("status") == "scored")
        .group_by(PAIR)
        .agg(
            n_judged=pl.col("n").sum(),
            n_seen_in_part=pl.col("n").filter(share < 1).sum(),
            least_seen_share=share.min(),
        )
    )


def _earlier(judgments: pl.DataFrame | None) -> pl.DataFrame:
    """Count the answers to earlier wordings of their questions; pairs without any are omitted."""
    if judgments is None or "earlier_profile" not in judgments.columns:
        return pl.DataFrame(schema={**dict.fromkeys(PAIR, pl.String), **_EARLIER})
    earlier_wording = judgments.filter(pl.col("earlier_profile").is_not_null())
    return earlier_wording.group_by(PAIR).agg(n_earlier_wording=pl.col("n").sum().cast(pl.Int64))


def _sampled(judgments: pl.DataFrame | None) -> pl.DataFrame:
    """Count the sampled conversations and all conversations of each pair that was judged on a sample."""
    if judgments is None:
        return pl.DataFrame(schema={**dict.fromkeys(PAIR, pl.String), **_SAMPLED})
    is_left_out = (pl.col("reason") == NOT_SAMPLED).fill_null(False)
    return (
        judgments.drop_nulls("conversation_id")
        .group_by(*PAIR, "conversation_id")
        .agg(is_left_out=is_left_out.any())
        .group_by(PAIR)
        .agg(
            n_sampled=(~pl.col("is_left_out")).sum().cast(pl.Int64),
            n_to_sample=pl.len().cast(pl.Int64),
        )
        .filter(pl.col("n_sampled") < pl.col("n_to_sample"))
    )


def _suites(conversations: pl.DataFrame) -> pl.DataFrame:
    """Return the suite of each session of `agent-eval simulate`, as text such as 'shop 2 #0a1b2c3d, public'.

    The names come from untrusted metadata, so signs other than letters, digits and -._ are replaced.
    """

    def stated(name: str) -> pl.Expr:
        value = pl.col("metadata").str.json_path_match(f"$.benchmark.{name}")
        return value.str.replace_all(r"[^\w.-]", "?").str.slice(0, _LONGEST_NAME)

    public = stated("suite_is_public").replace_strict(
        {"true": ", public", "false": ", not public"}, default=", public not stated"
    )
    version = pl.lit(" ") + stated("suite_version")
    text = pl.concat_str(
        stated("suite"), version.fill_null(""), pl.lit(" #"), stated("suite_hash").str.slice(0, 8), public
    )
    return (
        conversations.filter(pl.col("metadata").str.contains('"benchmark"', literal=True))
        .select(*_SESSION, suite=text)
        .drop_nulls("suite")
        .unique()
    )


def _per_pair(transcripts: pl.DataFrame, sessions: pl.DataFrame, conversations: pl.DataFrame) -> pl.DataFrame:
    """Return one row per pair in `transcripts`, with session facts and whether a session is for the version."""
    broken = conversations.filter(outcome_class="harness_error").select(
        "agent_id", "conversation_id", is_broken=pl.lit(value=True)
    )
    versions = pl.col("methodology_versions")
    of_session = sessions.select(
        *_SESSION, "session_date", "evaluator", versions, is_invalid=pl.col("invalid_reason").is_not_null()
    )
    is_for_it = versions.list.contains(pl.col("methodology_version")) | versions.list.contains("any")
    session_rows = (
        transcripts.join(of_session, on=_SESSION, how="left")
        .join(broken, on=["agent_id", "conversation_id"], how="left")
        .with_columns(
            is_for_it=is_for_it.fill_null(False),
            is_lost=pl.col("is_invalid").fill_null(False) | pl.col("is_broken").fill_null(False),
        )
    )
    counting = (
        counted(transcripts, sessions)
        .join(of_session, on=_SESSION, how="left")
        .join(_suites(conversations), on=_SESSION, how="left")
        .group_by(PAIR)
        .agg(
            session_dates=pl.col("session_date").drop_nulls().unique().sort(),
            evaluators=pl.col("evaluator").drop_nulls().unique().sort(),
            suites=pl.col("suite").drop_nulls().unique().sort(),
        )
    )
    return (
        session_rows.group_by(PAIR)
        .agg(
            has_entered=pl.col("is_for_it").any(),
            n_harness_failures_dropped=(pl.col("is_for_it") & pl.col("is_lost")).sum().cast(pl.Int64),
        )
        .join(counting, on=PAIR, how="left")
        .with_columns(
            pl.col(name).fill_null(pl.lit([], dtype=dtype))
            for name, dtype in (("session_dates", DATES), ("evaluators", NAMES), ("suites", NAMES))
        )
    )
